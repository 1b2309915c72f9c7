// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands to a serving process, by its control socket, and those that need none.

use std::io::IsTerminal;

use anyhow::{Result, bail};
use comfy_table::{ContentArrangement, Table, presets};
use larder_core::config::Memory;
use larder_core::config::{Limits, presets as all_presets};
use larder_front::control::client;
use larder_front::control::wire::Command;
use larder_front::nbd::uri::Address;
use larder_io::{Access, DevSpec, Device, rough_size};
use larder_volume::{FlashReport, VolumeError, inspect};
use serde_json::{Value, json};

use crate::args::{AttachArgs, BoundArgs, CheckArgs, ControlArgs, SizeArgs};
use crate::exit::Coded;
use crate::out;
use crate::serve::{default_control, workers};
use crate::settings::choices;

/// Sends a command and prints its answer.
fn ask(args: &ControlArgs, command: &Command, show: impl Fn(&Value) -> String) -> Result<()> {
    let path = args.control.clone().map_or_else(|| default_control(&args.name), Ok)?;
    let progress = |text: &str| out::tell!("{text}");
    match client::ask(&path, command, progress) {
        Ok(value) if args.json => out::line(value),
        Ok(value) => out::line(show(&value)),
        Err(failed) => bail!(Coded::from(failed)),
    }
}

/// `status` and `stats`: one line a key, sizes readable.
pub fn show(args: &ControlArgs, command: &Command) -> Result<()> {
    ask(args, command, |value| {
        let Value::Object(map) = value else { return value.to_string() };
        let line = |(key, value): (&String, &Value)| match value {
            Value::Null => format!("{key:20} -"),
            Value::String(text) => format!("{key:20} {text}"),
            Value::Number(n) if key.ends_with("_bytes") => {
                let size = n.as_u64().map(rough_size).unwrap_or_default();
                format!("{key:20} {n} ({size})")
            }
            other => format!("{key:20} {other}"),
        };
        map.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

/// `flush` and `detach`.
pub fn bounded(args: &BoundArgs, command: impl Fn(u64) -> Command, done: &str) -> Result<()> {
    let seconds = args.bound.div_ceil(1_000_000_000).max(1);
    ask(&args.control, &command(seconds), |_| done.to_owned())
}

/// The device by its whole path: the server may have another working directory.
fn absolute(spec: DevSpec) -> Result<DevSpec> {
    Ok(match spec {
        DevSpec::Path(path) => DevSpec::Path(std::path::absolute(path)?),
        DevSpec::Slow { inner, profile, seed } => {
            DevSpec::Slow { inner: Box::new(absolute(*inner)?), profile, seed }
        }
        DevSpec::Nbd(mut uri) => {
            if let Address::Unix(path) = &mut uri.address {
                *path = std::path::absolute(&*path)?;
            }
            if let Some(names) = &mut uri.tls {
                for path in [&mut names.certificates, &mut names.ca].into_iter().flatten() {
                    *path = std::path::absolute(&*path)?;
                }
            }
            DevSpec::Nbd(uri)
        }
        other => other,
    })
}

/// `attach`.
pub fn attach(args: &AttachArgs) -> Result<()> {
    let flash = absolute(args.flash.clone())?.to_string();
    let command = Command::Attach { flash, flash_bytes: args.flash_size, format: args.format };
    ask(&args.control, &command, |value| format!("attached, {} units", value["units_total"]))
}

/// `check`.
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

/// `size`.
pub fn size(args: &SizeArgs) -> Result<()> {
    let choices = choices(&args.preset, &args.choices)?;
    if args.origin == 0 || args.flash < choices.unit_bytes {
        bail!("--origin and --flash: accepted: an origin above 0 and at least one unit of flash");
    }
    let workers = workers(args.workers)?;
    let memory = Memory::of(args.origin, args.flash, &choices, &Limits::default(), workers);
    let pages = choices.log().is_some();
    if args.json {
        let value = json!({
            "memory_bytes": memory.worst_bytes(),
            "memory_full_bytes": memory.full_bytes(),
            "map_bytes": memory.map_bytes,
            "slot_bytes": memory.slot_bytes,
            "bitmap_bytes": memory.bitmap_bytes,
            "buffer_bytes": memory.buffer_bytes,
        });
        return out::line(value);
    }
    let rows = [
        ("origin map, 4 bytes a unit", memory.map_bytes),
        (if pages { "page directory, 20 bytes a page" } else { "slots" }, memory.slot_bytes),
        ("buffers", memory.buffer_bytes),
        ("= full and fully valid", memory.full_bytes()),
        ("bitmaps, if every unit is partly valid", memory.bitmap_bytes),
        ("= at worst", memory.worst_bytes()),
    ];
    for (what, bytes) in rows {
        out::line(format!("{what:40} {:>12}  {bytes} bytes", rough_size(bytes)))?;
    }
    Ok(())
}

/// How wide a table may be: as the terminal, or what a page has room for.
fn table_width() -> u16 {
    let terminal = std::io::stdout().is_terminal().then(ratatui::crossterm::terminal::size);
    match terminal {
        Some(Ok((columns, _))) => columns.clamp(80, 160),
        _ => 100,
    }
}

/// `presets`.
pub fn presets(json: bool) -> Result<()> {
    const HEAD: [&str; 5] = ["unit", "admission", "replacement", "write_policy", "metadata"];
    if json {
        let rows = all_presets().map(|p| {
            let mut row = json!({ "name": p.name, "source": p.source });
            for (key, words) in HEAD.iter().zip(p.words) {
                row[*key] = json!(words);
            }
            row
        });
        return out::line(Value::Array(rows.collect()));
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(table_width());
    table.set_header(["preset"].into_iter().chain(HEAD.map(|h| match h {
        "write_policy" => "write policy",
        other => other,
    })));
    for preset in all_presets() {
        table.add_row([preset.name].into_iter().chain(preset.words));
    }
    out::line(table)
}
