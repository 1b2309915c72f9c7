// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder paper`: each claim of the papers, with the verdict of a run.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use comfy_table::{Table, presets};
use larder_lab::paper::{self, Asked, Made, Row, SEEDS};
use larder_report::{self as report, About};

use crate::out;

/// The claims to reproduce.
#[derive(Args, Debug)]
pub struct PaperArgs {
    /// sce, holland, prwc, face, or all
    #[arg(value_name = "PAPER")]
    pub paper: String,
    /// Scale of footprints, RAM, flash and volumes, as 1/16 [default: each row's own]
    ///
    /// The papers' hours and days, and the periods of Holland's write-back and PRWC's update, have the same scale. Unit
    /// sizes, latencies and the periods of SCE's population stay.
    #[arg(long, value_name = "RATIO")]
    pub scale: Option<String>,
    /// The first of three seeds; a shape has to hold on each
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,
    /// Only these rows, as S6,H2
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Directory that keeps the results of all runs; a later command continues from them
    ///
    /// The results are of one version of this program.
    #[arg(long, value_name = "DIR")]
    pub points: Option<PathBuf>,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
    /// Print the table of docs/papers.md
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Also write one HTML file with every figure of the papers, ours over theirs
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Runs the command. A claim that differs is an answer, not a failure.
pub fn paper(args: &PaperArgs) -> Result<()> {
    let asked = Asked {
        scale: args.scale.clone(),
        seed: args.seed,
        only: args.only.clone(),
        progress: true,
        points: args.points.clone(),
        made: Made::default(),
    };
    let rows = paper::run(&args.paper, &asked)?;
    if let Some(path) = &args.report {
        let html = page(args, &asked, &rows)?;
        std::fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        return out::line(serde_json::to_string(&rows)?);
    }
    if args.markdown {
        return out::line(paper::page(&rows)?.trim_end());
    }
    out::line(table(&rows))
}

fn page(args: &PaperArgs, asked: &Asked, rows: &[Row]) -> Result<String> {
    let mut command = format!("larder paper {}", args.paper);
    if let Some(scale) = &args.scale {
        command.push_str(&format!(" --scale {scale}"));
    }
    if !args.only.is_empty() {
        command.push_str(&format!(" --only {}", args.only.join(",")));
    }
    let about = About {
        title: format!("Larder: what reproduces of {}", args.paper),
        command: format!("{command} --seed {}", args.seed),
        seeds: format!("{} to {}", args.seed, args.seed + SEEDS - 1),
    };
    Ok(report::html(&about, &paper::report(&args.paper, asked, rows)?))
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["row", "claim", "paper", "ours", "unit", "verdict"]);
    for row in rows {
        let cells = [row.claim, &row.paper_text(), &row.ours_text(), row.unit, row.verdict_text()];
        table.add_row(std::iter::once(row.id).chain(cells));
    }
    let notes: String = rows.iter().map(|row| format!("\n{}: {}", row.id, row.notes())).collect();
    format!("{table}\n{notes}")
}
