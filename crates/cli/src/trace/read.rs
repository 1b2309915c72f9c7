// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a trace is read: the flags of every command that reads one.

use std::path::PathBuf;

use clap::Args;
use larder_trace::{Columns, Format, Options};

/// How to read a trace.
#[derive(Args, Debug)]
#[command(next_help_heading = "How the trace is read")]
pub struct ReadArgs {
    /// btr, fio, blkparse, csv, vscsi, msr or oracleGeneral; plain, zstd or gzip [default: detected]
    #[arg(long, value_name = "FORMAT", value_parser = Format::by_name)]
    pub format: Option<Format>,
    /// Only requests of this device
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub dev: Option<u8>,
    /// Columns of a CSV [default: by well-known names]
    ///
    /// time=NAME:UNIT (s, ms, us, ns), offset=NAME:BYTES, length=NAME:BYTES, op=NAME, dev=NAME, with commas between them.
    #[arg(long, value_name = "COLUMNS", hide_short_help = true)]
    pub columns: Option<Columns>,
    /// Event of a blkparse text that is a request: Q (queued), D (issued), C (completed) [default: Q]
    #[arg(long, value_name = "LETTER", hide_short_help = true)]
    pub event: Option<char>,
}

impl ReadArgs {
    /// Whether a flag was given.
    #[cfg(feature = "lab")]
    pub fn is_given(&self) -> bool {
        let Self { format, dev, columns, event } = self;
        format.is_some() || dev.is_some() || columns.is_some() || event.is_some()
    }

    /// The options of the reader.
    pub fn options(&self) -> Options {
        Options {
            format: self.format,
            columns: self.columns.clone().unwrap_or_default(),
            event: self.event.unwrap_or(Options::default().event),
            dev: self.dev,
        }
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
