// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder bench`: measurements side by side with the bare device or a comparison system.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use larder_bench::bench::{self, BenchOptions};
use larder_report::{self as report, About};

use super::regret::{self, How, RegretArgs};
use crate::out;

/// The benches to run.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Names of benches, or `all`; or `regret` alone, which takes hours
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Directory for files [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Small and short, to check that the bench works; its figures mean little
    #[arg(long)]
    pub quick: bool,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
    /// Also write one HTML file with pictures (of the benches in virtual time) and the rows
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub regret: RegretArgs,
}

/// Prints the rows, as a table or as JSON.
pub fn bench(args: &BenchArgs) -> Result<()> {
    if regret::is_asked(&args.names, &args.regret)? {
        let how = How { quick: args.quick, json: args.json, report: args.report.as_deref() };
        return regret::regret(&args.regret, &how);
    }
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let options = BenchOptions { dir, quick: args.quick, json: args.json, larder: None };
    let found = bench::run(&args.names, &options)?;
    if let Some(path) = &args.report {
        let quick = if args.quick { " --quick" } else { "" };
        let names = args.names.join(" ");
        let about = About {
            title: format!("Larder: {names}"),
            command: format!("larder bench {names}{quick} --report {}", path.display()),
            seeds: if args.quick { "1" } else { "1 to 3" }.to_owned(),
        };
        let rows = report::Section::table(bench::sheet(&found.rows));
        let html = report::html(&about, &[report::Section::of(found.figures), rows]);
        std::fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        out::line(serde_json::to_string(&found.rows)?)?;
    } else {
        bench::print_table(&found.rows);
    }
    Ok(())
}
