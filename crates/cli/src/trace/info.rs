// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace info`: a description of a trace.

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use larder_io::rough_size;
use larder_trace::info::{
    EXACT_MOST_BYTES, Info, Progress, QUANTILES, Traffic, info, json, percent_of,
};
use larder_trace::{PAGE_BYTES, Trace};

use super::output::TELL_EVERY;
use super::read::InputArgs;
use crate::out;

/// The trace.
#[derive(Args, Debug)]
pub struct InfoArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Count every page, even if that needs more than 1GiB of memory
    #[arg(long)]
    pub exact: bool,
    /// Print one JSON value
    #[arg(long)]
    pub json: bool,
}

/// Sizes of a cache in the table, in percent of the pages.
const TABLE: [u64; 10] = [1, 2, 5, 10, 20, 25, 40, 60, 80, 100];

/// Runs the command.
pub fn show(args: &InfoArgs) -> Result<()> {
    let trace = Trace::new(&args.input.trace, args.input.read.options());
    let mut last = Instant::now();
    let found = info(&trace, args.exact, |told| match told {
        Progress::Requests { pass, requests } if last.elapsed() >= TELL_EVERY => {
            last = Instant::now();
            out::tell!("pass {pass} of 2: {requests} requests");
        }
        Progress::Requests { .. } => {}
        Progress::Exact(bytes) => {
            out::tell!("exact reuse takes up to {} of memory", rough_size(bytes));
        }
        Progress::TooLarge(bytes) => out::tell!(
            "exact reuse would take up to {}, above {}: estimated from a sample; accepted: --exact",
            rough_size(bytes),
            rough_size(EXACT_MOST_BYTES)
        ),
    })?;
    if found.totals.all.requests == 0 {
        bail!("{}: has no requests; accepted: at least one", args.input.trace.display());
    }
    out::line(if args.json { json(&found).to_string() } else { as_text(&found) })
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn as_text(found: &Info) -> String {
    let (totals, reuse) = (&found.totals, &found.reuse);
    let (all, about) = (&totals.all, if reuse.exact { "" } else { "about " });
    let seconds = totals.duration_us() as f64 / 1e6;
    let list = |value: &dyn Fn(f64) -> String| {
        let each: Vec<_> =
            QUANTILES.iter().map(|(name, q)| format!("{name} {}", value(*q))).collect();
        each.join(", ")
    };
    let mut lines = vec![
        format!("requests          {}", mix(all)),
        format!("accesses          {} of 4 KiB, {}", all.accesses, rough_size(all.bytes)),
        format!(
            "footprint         {about}{} pages, {}",
            reuse.unique,
            rough_size(reuse.unique * PAGE_BYTES)
        ),
        format!(
            "duration          {}",
            if seconds > 0.0 { format!("{seconds:.1} s") } else { "without times".to_owned() }
        ),
        format!("request size      {} bytes", list(&|q| totals.sizes.quantile(q).to_string())),
        format!("sequential        {}", sequential(all)),
        format!("accesses again    {:.1} %", reuse.curve.reuse_ratio() * 100.0),
        format!(
            "reuse distance    {} pages",
            list(&|q| reuse.curve.distance(q).map_or("-".to_owned(), |d| d.to_string()))
        ),
    ];
    lines.extend(totals.devices.iter().zip(&reuse.unique_of).map(|((dev, t), unique)| {
        format!("device {dev:<10} {}; {about}{unique} pages; sequential {}", mix(t), sequential(t))
    }));
    let widest = reuse.working_set.iter().max_by_key(|w| w.unique);
    lines.extend(widest.map(|w| {
        let mean =
            share(reuse.working_set.iter().map(|w| w.unique).sum(), reuse.working_set.len() as u64);
        format!(
            "working set       mean {}, at most {} of {} spans",
            rough_size((mean * PAGE_BYTES as f64) as u64),
            rough_size(w.unique * PAGE_BYTES),
            reuse.working_set.len()
        )
    }));
    let error = found.sample_error.map(|e| format!(", mean absolute error {e:.4}"));
    lines.push(format!(
        "sample            {} pages, {:.2} % of them{}",
        found.sample_pages,
        found.sample_ratio * 100.0,
        error.unwrap_or_default()
    ));
    lines.push("LRU of            miss ratio  from the sample".to_owned());
    lines.extend(TABLE.iter().map(|percent| {
        let pages = percent_of(reuse.unique, *percent);
        let exact = if reuse.exact {
            format!("{:.4}", reuse.curve.miss_ratio(pages))
        } else {
            "-".to_owned()
        };
        let size = format!("{percent} %, {}", rough_size(pages * PAGE_BYTES));
        format!("{size:17} {exact:<11} {:.4}", found.sampled.miss_ratio(pages))
    }));
    lines.join("\n")
}

fn mix(t: &Traffic) -> String {
    let percent = |n| share(n, t.requests) * 100.0;
    let unknown = t.requests - t.reads - t.writes;
    format!(
        "{}: {:.1} % reads, {:.1} % writes, {:.1} % unknown",
        t.requests,
        percent(t.reads),
        percent(t.writes),
        percent(unknown)
    )
}

fn sequential(t: &Traffic) -> String {
    let percent = |n| share(n, t.requests) * 100.0;
    format!(
        "{:.1} % follow the one before, {:.1} % one of 32 before",
        percent(t.follows),
        percent(t.follows_recent)
    )
}
