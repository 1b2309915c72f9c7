// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace`: describes, converts, generates and records traces of block requests.

mod convert;
mod info;
pub mod output;
pub mod read;
pub mod recent;
mod record;

use anyhow::Result;
use clap::Subcommand;

use self::convert::ConvertArgs;
use self::info::InfoArgs;
use self::recent::RecentArgs;
use self::record::RecordArgs;
#[cfg(feature = "lab")]
use crate::lab::trace_gen::{Kind, generate};

/// The commands.
#[derive(Subcommand, Debug)]
pub enum TraceCommand {
    /// Describe a trace: mix, sizes, footprint, reuse, LRU miss ratios
    Info(InfoArgs),
    /// Write a trace in another format
    Convert(ConvertArgs),
    /// Generate a trace of a load with known laws
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Gen(Box<Kind>),
    /// Record the requests of clients of a served volume
    Record(RecordArgs),
    /// Show the last requests of a served volume and their latencies, or those before an alarm
    Recent(RecentArgs),
}

/// Runs a command.
pub fn trace(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Info(args) => info::show(args),
        TraceCommand::Convert(args) => convert::convert(args),
        #[cfg(feature = "lab")]
        TraceCommand::Gen(kind) => generate(kind),
        TraceCommand::Record(args) => record::record(args),
        TraceCommand::Recent(args) => recent::recent(args),
    }
}
