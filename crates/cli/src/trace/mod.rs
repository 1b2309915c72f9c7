// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace`: what a trace is like, and traces in other formats, of a known load, or of a
//! volume that is being served.

mod convert;
mod info;
pub mod output;
pub mod read;
mod record;

use anyhow::Result;
use clap::Subcommand;

use self::convert::ConvertArgs;
use self::info::InfoArgs;
use self::record::RecordArgs;
#[cfg(feature = "lab")]
use crate::lab::trace_gen::{Kind, generate};

/// The commands.
#[derive(Subcommand, Debug)]
pub enum TraceCommand {
    /// Show what a trace is like: mix, sizes, footprint, reuse, LRU miss ratios
    Info(InfoArgs),
    /// Write a trace in another format
    Convert(ConvertArgs),
    /// Make a trace of a load whose laws are known
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Gen(Box<Kind>),
    /// Record what clients ask of a volume that is being served
    Record(RecordArgs),
}

/// Runs a command.
pub fn trace(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Info(args) => info::show(args),
        TraceCommand::Convert(args) => convert::convert(args),
        #[cfg(feature = "lab")]
        TraceCommand::Gen(kind) => generate(kind),
        TraceCommand::Record(args) => record::record(args),
    }
}
