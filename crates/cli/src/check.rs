// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder check`: what an unused flash device holds, and what a start with it would do.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use larder_io::{Access, DevSpec, Device, rough_size};
use larder_volume::{FlashReport, StateFile, VolumeError, inspect};

use crate::control::default_state;
use crate::exit::Coded;
use crate::out;

/// What to check.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The flash device, which no server may use at the same time
    #[arg(value_name = "FLASH")]
    pub flash: DevSpec,
    /// Directory of state files, as for serve
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Write a lost copy of the label; other damage is repaired by a start where the origin has all data
    #[arg(long)]
    pub repair: bool,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn check(args: &CheckArgs) -> Result<()> {
    // A server would change it meanwhile, so that the device is locked as for writing.
    let device = Device::open(&args.flash, Access::ReadWrite).map_err(VolumeError::from)?;
    let directory = args.state.clone().map_or_else(default_state, Ok);
    let files = directory.as_ref().ok().map(|directory| StateFile::new(directory, "", ""));
    let report = inspect(&device, args.repair, files.as_ref())?;
    if args.json {
        out::line(serde_json::to_value(&report)?)?;
    } else {
        out::line(words(&report, args.repair, &directory))?;
    }
    if report.damaged {
        bail!(Coded { code: 1, message: format!("{}: is damaged", report.flash) });
    }
    Ok(())
}

/// The state file that names the device, and its origin.
fn recorded(report: &FlashReport, directory: &Result<PathBuf>) -> String {
    match (&report.state_file, directory) {
        (Some(path), _) => {
            let used = match report.in_use {
                Some(true) => "permits its use",
                _ => "marks it as out of use",
            };
            let origin = report.origin.as_deref().unwrap_or_default();
            let unread = report.origin_unread.as_ref();
            let unread = unread.map(|why| format!(" (not read, assumed to be unchanged: {why})"));
            let unread = unread.unwrap_or_default();
            format!("state file: {}, {used}, origin {origin}{unread}", path.display())
        }
        (None, Ok(directory)) => format!(
            "state file: none in {} records this flash; accepted: --state DIR of the server",
            directory.display()
        ),
        (None, Err(e)) => format!("state file: none; {e:#}"),
    }
}

fn words(report: &FlashReport, repair: bool, directory: &Result<PathBuf>) -> String {
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
            torn => format!(", {torn} blocks at the end are invalid: a batch is incomplete"),
        };
        lines.push(format!(
            "shard {n}: {}, generation {}, {} blocks of log, {} {units}, {} dirty{torn}",
            shard.state, shard.generation, shard.log_blocks, shard.units_used, shard.units_dirty
        ));
    }
    if repair && report.repaired.is_empty() {
        lines.push("a repair has nothing to write".to_owned());
    }
    lines.extend(report.repaired.iter().map(|what| format!("repaired: {what}")));
    lines.push(recorded(report, directory));
    lines.push(format!("with this flash a server {}", report.verdict));
    lines.join("\n")
}
