// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands to a serving process: `status`, `stats`, `flush`, `detach`, `attach`, `resize`.

use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use larder_core::exec::Nanos;
use larder_front::control::client;
use larder_front::control::wire::Command;
use larder_io::{DevSpec, rough_size};
use larder_nbd::uri::Address;
use serde_json::{Map, Value, json};

use crate::control::ControlArgs;
use crate::curve::Curve;
use crate::drives;
use crate::exit::Coded;
use crate::out;
use crate::units::{size, span};

/// A command that may take a while.
#[derive(Args, Debug)]
pub struct BoundArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// Time limit, in whole seconds
    #[arg(long, default_value = "30s", value_parser = whole_seconds, value_name = "SPAN")]
    pub bound: Nanos,
}

/// A time limit, which the control socket transfers in seconds.
pub fn whole_seconds(text: &str) -> Result<Nanos, String> {
    match span(text)? {
        bound if bound > 0 && bound.is_multiple_of(1_000_000_000) => Ok(bound),
        _ => Err(format!("got '{text}', accepted whole seconds from 1s, as 30s or 2m")),
    }
}

/// The server to show.
#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// Also ask the drives that flash lies on for their own count of wear, by smartctl; needs root
    #[arg(long)]
    pub drives: bool,
}

/// The flash device.
#[derive(Args, Debug)]
pub struct AttachArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// The flash device, as for serve --flash; omit it to return a detached volume to its shared cache
    #[arg(value_name = "DEV")]
    pub flash: Option<DevSpec>,
    /// Flash bytes to use at most
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub flash_size: Option<u64>,
    /// Overwrite foreign data on it
    #[arg(long)]
    pub format: bool,
    /// Do not allocate the blocks of a file that is formatted
    #[arg(long)]
    pub sparse: bool,
}

/// The size of the flash device.
#[derive(Args, Debug)]
pub struct ResizeArgs {
    #[command(flatten)]
    pub bounded: BoundArgs,
    /// Bytes of the device to use; without this, all that it has now
    ///
    /// A file becomes longer or shorter. A block device must be made longer before, and may be made shorter afterwards. The next
    /// start uses the configuration's flash_size again.
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub flash_size: Option<u64>,
}

/// Sends a command and prints its answer.
pub fn ask(args: &ControlArgs, command: &Command, show: impl Fn(&Value) -> String) -> Result<()> {
    print(args, &answer(args, command)?, show)
}

/// The answer to a command; its progress goes to standard error.
pub fn answer(args: &ControlArgs, command: &Command) -> Result<Value> {
    let path = args.socket()?;
    let progress = |text: &str| out::tell!("{text}");
    client::ask(&path, command, progress).map_err(|failed| Coded::from(failed).into())
}

/// Prints an answer, as JSON or in the words of `show`.
pub fn print(args: &ControlArgs, value: &Value, show: impl Fn(&Value) -> String) -> Result<()> {
    if args.json { out::line(value) } else { out::line(show(value)) }
}

/// The state of a server, and of the drives that its flash lies on.
pub fn status(args: &StatusArgs) -> Result<()> {
    let mut status = answer(&args.control, &Command::Status)?;
    if args.drives {
        let drives = status["flash"].as_str().map(drives::wear);
        status["drives"] = drives.unwrap_or_else(|| json!([]));
    }
    print(&args.control, &status, lines)
}

/// The counters of a server.
pub fn stats(args: &ControlArgs) -> Result<()> {
    ask(args, &Command::Stats, lines)
}

/// One line a key, sizes readable.
fn lines(value: &Value) -> String {
    let Value::Object(map) = value else { return value.to_string() };
    let line = |(key, value): (&String, &Value)| match value {
        Value::Array(members) if key == "volumes" => volumes(members),
        Value::Array(members) if key == "drives" && !members.is_empty() => drives::words(members),
        Value::Object(_) if key == "curve" => curve(map),
        Value::Object(ranges) if ["pinned", "excluded"].contains(&key.as_str()) => {
            let count = ranges["ranges"].as_array().map_or(0, Vec::len);
            format!("{key:20} {} in {count} range(s)", rough_size(number(value, "bytes")))
        }
        Value::Null => format!("{key:20} -"),
        Value::String(text) => format!("{key:20} {text}"),
        Value::Number(n) if key.ends_with("_bytes") => {
            let sign = if n.as_i64().is_some_and(|n| n < 0) { "-" } else { "" };
            let bytes = n.as_u64().or_else(|| n.as_i64().map(i64::unsigned_abs));
            format!("{key:20} {n} ({sign}{})", rough_size(bytes.unwrap_or(0)))
        }
        other => format!("{key:20} {other}"),
    };
    map.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The hit ratio by the size of flash: a line each.
fn curve(status: &Map<String, Value>) -> String {
    let status = Value::Object(status.clone());
    let Some(curve) = Curve::of(&status) else { return String::new() };
    let head =
        format!("{:20} hit ratio of LRU by size, of {} reads of pages", "curve", curve.references);
    [head].into_iter().chain(curve.rows()).collect::<Vec<_>>().join("\n")
}

/// The volumes of a shared cache: a line each.
fn volumes(members: &[Value]) -> String {
    let text = |of: &Value, key: &str| of[key].as_str().unwrap_or("-").to_owned();
    let line = |of: &Value| {
        let size = rough_size(number(of, "origin_bytes"));
        let alarm = of["alarm"].as_str().map(|alarm| format!(", ALARM: {alarm}"));
        format!(
            "volume {:13} {}, origin {} ({size}), {} units used, {} dirty, {} connections{}",
            text(of, "name"),
            text(of, "state"),
            text(of, "origin"),
            of["units_used"],
            of["units_dirty"],
            of["connections"],
            alarm.unwrap_or_default()
        )
    };
    members.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A number in an answer.
pub fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// The size of a served volume.
pub fn volume_bytes(socket: &Path) -> Result<u64> {
    let status = client::ask(socket, &Command::Status, |_| ()).map_err(Coded::from)?;
    Ok(number(&status, "origin_bytes"))
}

/// `flush` and `detach`.
pub fn bounded(args: &BoundArgs, command: impl Fn(u64) -> Command, done: &str) -> Result<()> {
    let seconds = args.bound / 1_000_000_000;
    ask(&args.control, &command(seconds), |_| done.to_owned())
}

/// `resize`.
pub fn resize(args: &ResizeArgs) -> Result<()> {
    let ResizeArgs { bounded, flash_size: flash_bytes } = args;
    let bound_seconds = bounded.bound / 1_000_000_000;
    let command = Command::Resize { flash_bytes: *flash_bytes, bound_seconds };
    ask(&bounded.control, &command, |value| {
        let size = |key| rough_size(number(value, key));
        format!(
            "flash {}, was {}; {} units",
            size("flash_bytes"),
            size("flash_bytes_before"),
            value["units_total"]
        )
    })
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
    let AttachArgs { flash_size: flash_bytes, format, sparse, .. } = *args;
    let command = match &args.flash {
        Some(flash) => {
            let flash = absolute(flash.clone())?.to_string();
            Command::Attach { flash, flash_bytes, format, sparse }
        }
        None if flash_bytes.is_some() || format || sparse => {
            bail!("--flash-size, --format and --sparse: need DEV");
        }
        None => Command::Join,
    };
    ask(&args.control, &command, |value| format!("attached, {} units", value["units_total"]))
}
