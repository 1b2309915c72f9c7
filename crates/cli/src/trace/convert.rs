// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace convert`: a trace in another format.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use larder_trace::{Format, Trace};

use super::output::Output;
use super::read::InputArgs;

/// The input and the output.
#[derive(Args, Debug)]
pub struct ConvertArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Output file; a name that ends in .zst is compressed
    #[arg(value_name = "OUT")]
    pub out: PathBuf,
    /// btr, csv, fio or oracleGeneral [default: by the name of OUT]
    #[arg(long, value_name = "FORMAT", value_parser = Format::by_name)]
    pub to: Option<Format>,
}

/// Runs the command.
pub fn convert(args: &ConvertArgs) -> Result<()> {
    let same = |a, b| matches!((std::fs::canonicalize(a), std::fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b);
    if same(&args.input.trace, &args.out) {
        bail!("{}: is also the input; accepted: another file", args.out.display());
    }
    let trace = Trace::new(&args.input.trace, args.input.read.options());
    let mut records = trace.records()?;
    let mut output = Output::create(&args.out, args.to)?;
    while let Some(batch) = records.next_batch()? {
        output.write(batch)?;
    }
    output.finish()
}
