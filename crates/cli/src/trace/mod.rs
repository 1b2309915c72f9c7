// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace`: what a trace is like, and traces in other formats, of a known load, or of a
//! volume that is being served.

mod convert;
mod r#gen;
mod info;
mod output;
pub mod read;
mod record;

use anyhow::Result;
use clap::Subcommand;

use self::convert::ConvertArgs;
use self::r#gen::Kind;
use self::info::InfoArgs;
use self::record::RecordArgs;

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

/// Runs a command.
pub fn trace(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Info(args) => info::show(args),
        TraceCommand::Convert(args) => convert::convert(args),
        TraceCommand::Gen(kind) => r#gen::generate(kind),
        TraceCommand::Record(args) => record::record(args),
    }
}
