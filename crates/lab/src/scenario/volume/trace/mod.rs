// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace as the load: its requests with their true offsets and sizes, at their times or so many
//! at once.
//!
//! Invariants: the trace is streamed, twice, so memory does not grow with its length; what is
//! counted begins when the warm-up's requests were answered; nothing of the trace is left out
//! without being counted (`late_requests`).
//!
//! Why a request that comes late is not dropped: its client waited, and that is the answer.

mod figures;
mod scan;
mod settings;
mod source;
mod tally;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use larder_core::config::Memory;
use larder_trace::PAGE_BYTES;
use serde_json::Value as Json;

use self::scan::{Feed, Scan};
use self::settings::FlashSize;
use self::settings::SHARE_STEP_BYTES;
pub use self::settings::{OUTSTANDING, TraceSettings};
use self::tally::Tally;
use super::super::setting::bad;
use super::{Setup, System, world};
use crate::load::replay::drive;

/// Between two words of progress.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// The engine's tables may take so much memory.
const MOST_MEMORY: u64 = 8 << 30;

/// Runs a trace over the devices of a setup, whose load, sizes and spans do not count.
///
/// # Errors
/// If the trace is malformed or empty, or flash has no room for a unit.
pub(super) fn point(mut setup: Setup, settings: &TraceSettings) -> Result<Json> {
    let (source, size) = (settings.source(setup.seed), settings.flash_size());
    let (source, size) = (source.map_err(anyhow::Error::msg)?, size.map_err(anyhow::Error::msg)?);
    let unit_bytes = setup.choices.unit_bytes;
    let counted = matches!(size, FlashSize::Share(_)).then_some(unit_bytes);
    let scan = Scan::of(&source, settings.requests(), counted)?;
    let name = source.name();
    if scan.requests == 0 {
        bail!("{name}: has no requests; accepted: at least one");
    }
    setup.data_bytes = scan.packed.bytes();
    setup.flash_bytes = flash_bytes(size, &scan, unit_bytes).map_err(anyhow::Error::msg)?;
    let memory = Memory::of(setup.data_bytes, setup.flash_bytes, &setup.choices, &setup.limits, 1);
    if setup.system != System::NoCache && memory.worst_bytes() > MOST_MEMORY {
        bail!(
            "{name}: spans {} bytes, which needs {} of memory with units of {unit_bytes}; accepted: up to \
             {MOST_MEMORY}, as with larger units",
            setup.data_bytes,
            memory.worst_bytes()
        );
    }
    let (pace, speed) = settings.pace(scan.is_timed()).map_err(anyhow::Error::msg)?;
    let has_flash = matches!(setup.system, System::Preset(_));
    let mut tally = Tally::new(scan.requests, settings.warm_up_share, has_flash);
    let (mut world, mut feed) = (world(&setup)?, Feed::new(&source, &scan, speed)?);
    let (mut told, system) = (Instant::now(), setup.system.name());
    drive(
        &mut world,
        pace,
        || feed.next(),
        |world, answered| {
            tally.add(world, &answered);
            if tally.answered.is_multiple_of(1024) && told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                crate::tell!("{name}: {system}: {} of {} requests", tally.answered, scan.requests);
            }
        },
    )
    .map_err(|why| anyhow!(why))
    .with_context(|| name.clone())?;
    if let Some(error) = feed.failed {
        return Err(error.into());
    }
    let touched = counted.map(|unit_bytes| figures::Touched {
        page_bytes: scan.pages * PAGE_BYTES,
        unit_bytes: scan.units * unit_bytes,
    });
    let found = figures::json(&setup, pace, &tally, &memory, touched);
    if found["keeps_up"] == false {
        crate::tell!(
            "{name}: {system}: cannot keep up with the recorded times: {} of {} requests came late, at most by \
             {:.1} s",
            tally.late,
            scan.requests,
            tally.latest as f64 / 1e9
        );
    }
    Ok(found)
}

/// Bytes of whole units.
fn flash_bytes(size: FlashSize, scan: &Scan, unit_bytes: u64) -> Result<u64, String> {
    let asked = match size {
        FlashSize::Bytes(bytes) => bytes,
        FlashSize::Share(share) => share_bytes(scan.pages * PAGE_BYTES, share),
    };
    if asked >= unit_bytes {
        return Ok(asked / unit_bytes * unit_bytes);
    }
    let room = format!("room for a unit of {unit_bytes} bytes");
    match size {
        FlashSize::Bytes(bytes) => bad("trace.flash_mib", bytes as f64 / f64::from(1 << 20), room),
        FlashSize::Share(share) => {
            bad("trace.flash_share", share, format!("{room}; {} pages are asked for", scan.pages))
        }
    }
}

/// The share of a footprint, the same for every system.
fn share_bytes(footprint_bytes: u64, share: f64) -> u64 {
    ((footprint_bytes as f64 * share) as u64).max(1).next_multiple_of(SHARE_STEP_BYTES)
}
