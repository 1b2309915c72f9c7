// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder size`: the memory that a cache needs.

use anyhow::{Result, bail};
use clap::Args;
use larder_core::config::{DEFAULT_PRESET, Limits, Memory};
use larder_io::{format_size, rough_size};
use larder_volume::RECORDER_BYTES;
use larder_volume::budget::{Budget, CONNECTIONS, DEFAULT_BYTES, PROGRAM_BYTES};
use serde_json::json;

use crate::choices::{ChoiceArgs, choices};
use crate::out;
use crate::setting::BadSetting;
use crate::units;
use crate::workers::workers;

/// Memory of the miss-ratio curve of a volume, at most.
const CURVE_BYTES: u64 = 1 << 20;

/// The cache.
#[derive(Args, Debug)]
pub struct SizeArgs {
    /// Size of the origin
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    pub origin: u64,
    /// Size of the flash
    #[arg(long, value_parser = units::size, value_name = "SIZE")]
    pub flash: u64,
    /// Name of the preset, see `larder presets`
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PRESET)]
    pub preset: String,
    #[command(flatten)]
    pub choices: ChoiceArgs,
    /// Worker threads; each has batches in memory if the cache has page logs [default: as for serve]
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn size(args: &SizeArgs) -> Result<()> {
    let choices = choices(&args.preset, &args.choices)?;
    if args.origin == 0 {
        bail!(BadSetting::of("origin", 0, "accepted above 0"));
    }
    if args.flash < choices.unit_bytes {
        let why = format!("accepted at least one unit, {}", format_size(choices.unit_bytes));
        bail!(BadSetting::of("flash", format_size(args.flash), why));
    }
    let workers = workers(args.workers)?;
    let memory = Memory::of(args.origin, args.flash, &choices, &Limits::default(), workers);
    let clients = Budget::new(DEFAULT_BYTES, CONNECTIONS, u64::from(workers)).bound_bytes();
    // At an alarm the requests before it are copied.
    let recorder = 2 * RECORDER_BYTES + CURVE_BYTES;
    let resident = memory.worst_bytes().saturating_add(clients + recorder + PROGRAM_BYTES);
    let pages = choices.log().is_some();
    let map = format!("origin map, {} bytes a unit", 4 + choices.admission.bytes_per_unit());
    if args.json {
        let value = json!({
            "memory_bytes": memory.worst_bytes(),
            "memory_full_bytes": memory.full_bytes(),
            "map_bytes": memory.map_bytes,
            "slot_bytes": memory.slot_bytes,
            "bitmap_bytes": memory.bitmap_bytes,
            "directory_bytes": memory.directory_bytes,
            "buffer_bytes": memory.buffer_bytes,
            "client_bytes": clients,
            "recorder_bytes": recorder,
            "program_bytes": PROGRAM_BYTES,
            "resident_bytes": resident,
        });
        return out::line(value);
    }
    let rows = [
        (map.as_str(), memory.map_bytes),
        (if pages { "page directory, 20 bytes a page" } else { "slots" }, memory.slot_bytes),
        ("buffers", memory.buffer_bytes),
        ("= full and fully valid", memory.full_bytes()),
        ("bitmaps, if every unit is partly valid", memory.bitmap_bytes),
        ("directories of single pages, at most", memory.directory_bytes),
        ("= at worst", memory.worst_bytes()),
        ("clients, with the default --client-memory", clients),
        ("last requests and the miss-ratio curve", recorder),
        ("the program itself", PROGRAM_BYTES),
        ("= resident memory without FUSE files", resident),
    ];
    for (what, bytes) in rows {
        out::line(format!("{what:41} {:>12}  {bytes} bytes", rough_size(bytes)))?;
    }
    Ok(())
}
