// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace`: what a trace is like, and traces in other formats, of a known load, or of a
//! volume that is being served.

mod convert;
mod r#gen;
mod info;
mod output;
mod record;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use larder_trace::{Columns, Format, Options};

pub use convert::ConvertArgs;
pub use r#gen::Kind;
pub use info::InfoArgs;
pub use record::RecordArgs;

/// Between two words of progress.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// The commands.
#[derive(Subcommand, Debug)]
pub enum TraceCommand {
    /// Show what a trace is like: mix, sizes, footprint, reuse, LRU miss ratios
    Info(InfoArgs),
    /// Write a trace in another format
    Convert(ConvertArgs),
    /// Make a trace of a load whose laws are known
    #[command(subcommand)]
    Gen(Box<Kind>),
    /// Record what clients ask of a volume that is being served
    Record(RecordArgs),
}

/// How a trace is to be understood.
#[derive(Args, Debug)]
#[command(next_help_heading = "How the trace is read")]
pub struct ReadArgs {
    /// btr, fio, blkparse, csv, vscsi, msr or oracleGeneral, each plain, as zstd or as gzip
    /// [default: as the file's name or beginning says]
    #[arg(long, value_name = "FORMAT", value_parser = Format::by_name)]
    pub format: Option<Format>,
    /// Only requests of this device
    #[arg(long, value_name = "N")]
    pub dev: Option<u8>,
    /// Columns of a CSV: time=NAME:UNIT (s, ms, us, ns), offset=NAME:BYTES, length=NAME:BYTES,
    /// op=NAME, dev=NAME, with commas between them [default: as well-known names say]
    #[arg(long, value_name = "COLUMNS")]
    pub columns: Option<Columns>,
    /// Which event of a blkparse text is a request: Q (queued), D (issued), C (completed)
    /// [default: Q]
    #[arg(long, value_name = "LETTER")]
    pub event: Option<char>,
}

impl ReadArgs {
    /// The same for the reader.
    pub fn options(&self) -> Options {
        Options {
            format: self.format,
            columns: self.columns.clone().unwrap_or_default(),
            event: self.event.unwrap_or(Options::default().event),
            dev: self.dev,
        }
    }

    /// Whether any of it is.
    pub fn is_given(&self) -> bool {
        !self.keys().is_empty()
    }

    /// What is given, as keys of a scenario's `[trace]`.
    pub fn keys(&self) -> Vec<(&'static str, toml::Value)> {
        let text = |value: &str| toml::Value::from(value);
        let keys = [
            ("format", self.format.map(|format| text(format.name()))),
            ("dev", self.dev.map(|dev| i64::from(dev).into())),
            ("columns", self.columns.as_ref().map(|columns| text(columns.text()))),
            ("event", self.event.map(|event| text(&event.to_string()))),
        ];
        keys.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

/// A trace to read.
#[derive(Args, Debug)]
pub struct InputArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    #[command(flatten)]
    pub read: ReadArgs,
}

/// Runs a command.
pub fn trace(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Info(args) => info::show(args),
        TraceCommand::Convert(args) => convert::convert(args),
        TraceCommand::Gen(kind) => r#gen::generate(kind),
        TraceCommand::Record(args) => record::record(args),
    }
}
