// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder check`: what an unused flash device holds, and what a start with it would do.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use larder_core::buf::PAGE;
use larder_io::{Access, DevSpec, Device, rough_size};
use larder_volume::{
    DataReport, FlashReport, MOST_PLACES, StateFile, VolumeError, compare, inspect,
};

use crate::control::default_state;
use crate::exit::Coded;
use crate::out;
use crate::trace::output::TELL_EVERY;

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
    /// Read all cached data, and compare it with its checksums (--verify)
    #[arg(long)]
    pub data: bool,
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
    let data = if args.data { Some(compare_data(&device, &report)?) } else { None };
    if args.json {
        let mut value = serde_json::to_value(&report)?;
        if let Some(data) = &data {
            value["data"] = serde_json::to_value(data)?;
        }
        out::line(value)?;
    } else {
        out::line(words(&report, args.repair, &directory))?;
        data.iter().try_for_each(|data| out::line(data_words(data)))?;
    }
    let damaged = |data: &DataReport| data.wrong.damaged_pages > data.wrong.lost_pages;
    if report.damaged || data.as_ref().is_some_and(damaged) {
        let repairs = ": larder check --repair writes the other copy of its label again";
        let what = if report.labels == 1 { repairs } else { "" };
        bail!(Coded { code: 1, message: format!("{}: is damaged{what}", report.flash) });
    }
    Ok(())
}

/// Compares cached data, with lines of progress.
fn compare_data(device: &Device, report: &FlashReport) -> Result<DataReport> {
    let mut told = Instant::now();
    let all = rough_size(report.units_used * report.unit_bytes);
    let mut progress = |pages: u64| {
        if pages.is_multiple_of(256) && told.elapsed() >= TELL_EVERY {
            out::tell!("compared {} of at most {all}", rough_size(pages * PAGE as u64));
            told = Instant::now();
        }
    };
    Ok(compare(device, &mut progress)?)
}

fn data_words(data: &DataReport) -> String {
    let (wrong, compared) = (&data.wrong, data.compared_pages);
    let (damaged, dirty) = (wrong.damaged_pages - wrong.lost_pages, wrong.lost_pages);
    let unsure = match dirty {
        0 => String::new(),
        dirty => {
            format!("; {dirty} dirty pages do not match: damaged, or being written as a crash came")
        }
    };
    let mut text = format!("data: {compared} pages compared, {damaged} damaged{unsure}");
    for place in &wrong.places {
        let what = if place.lost { "dirty" } else { "damaged" };
        text += &format!("\n{what}: {}+{}", place.offset, place.length);
    }
    if wrong.places.len() == MOST_PLACES {
        text += "\nfurther ones are not listed";
    }
    text
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
