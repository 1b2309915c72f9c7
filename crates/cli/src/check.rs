// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder check`: what is on a flash device that nobody uses.

use anyhow::{Result, bail};
use clap::Args;
use larder_io::{Access, DevSpec, Device, rough_size};
use larder_volume::{FlashReport, VolumeError, inspect};

use crate::exit::Coded;
use crate::out;

/// What to look at.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The flash device, which nobody uses at the moment
    #[arg(value_name = "FLASH")]
    pub flash: DevSpec,
    /// Write a lost copy of the label; damaged metadata needs nothing where the origin has everything
    #[arg(long)]
    pub repair: bool,
    /// One JSON value on stdout
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn check(args: &CheckArgs) -> Result<()> {
    // Whoever serves it changes it, so it is locked, though nothing may be written.
    let device = Device::open(&args.flash, Access::ReadWrite).map_err(VolumeError::from)?;
    let report = inspect(&device, args.repair)?;
    if args.json {
        out::line(serde_json::to_value(&report)?)?;
    } else {
        out::line(checked(&report, args.repair))?;
    }
    if report.damaged {
        bail!(Coded { code: 1, message: format!("{}: is damaged", report.flash) });
    }
    Ok(())
}

fn checked(report: &FlashReport, repair: bool) -> String {
    let (unit, slots) = (rough_size(report.unit_bytes), report.slots);
    let origin = report.origin_bytes.map(|b| format!(", for an origin of {}", rough_size(b)));
    let what = match report.batch_pages {
        None => format!("{slots} slots of {unit}"),
        Some(pages) => format!("{slots} pages of {unit} in logs, in batches of {pages}"),
    };
    let mut lines = vec![
        format!(
            "{}: volume {}, {what}{}, write policy {}",
            report.flash,
            report.volume,
            origin.unwrap_or_default(),
            report.write_policy
        ),
        format!("label: {} of 2 copies whole", report.labels),
    ];
    let units = if report.batch_pages.is_some() { "pages" } else { "units" };
    for (n, shard) in report.shards.iter().enumerate() {
        let torn = match shard.torn_blocks {
            0 => String::new(),
            torn => format!(", {torn} blocks behind do not count: a batch is not whole"),
        };
        lines.push(format!(
            "shard {n}: {}, generation {}, {} blocks of log, {} {units}, {} dirty{torn}",
            shard.state, shard.generation, shard.log_blocks, shard.units_used, shard.units_dirty
        ));
    }
    if repair && report.repaired.is_empty() {
        lines.push("there is nothing that a repair could write".to_owned());
    }
    lines.extend(report.repaired.iter().map(|what| format!("repaired: {what}")));
    lines.push(format!("it {}, if the state file names it as in use", report.verdict));
    lines.join("\n")
}
