// SPDX-License-Identifier: MIT OR Apache-2.0
//! `replay`: hits and misses of a trace, compared with libCacheSim.
//!
//! Method: one file in the format `oracleGeneral`, plain, of requests by Zipf's law over a million
//! pages in no order. Both replay it as whole processes on one processor, from start to end, by
//! turns: `larder sim --hits`, and libCacheSim through its Python package. The cache is a tenth of
//! the pages. Both must count the same misses, else they did not do the same work.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use larder_lab::load::zipf::Zipf;
use larder_model::SplitMix64;
use larder_trace::{Op, PAGE_BYTES, Record, Writer};
use tempfile::TempDir;

use super::common::{BenchOptions, progress};
use super::quiet::{Counted, Watch};
use super::row::{Goal, Row, median};

const NAME: &str = "replay";
const SEED: u64 = 1;
const PAGES: u32 = 1_000_000;
/// By Larder's name and by libCacheSim's class.
const POLICIES: [(&str, &str); 3] = [("lru", "LRU"), ("s3fifo", "S3FIFO"), ("sieve", "Sieve")];
/// How far the two miss ratios may be apart.
const SAME: f64 = 0.0005;

/// The peer: prints its miss ratio.
const PEER: &str = "\
import sys
import libcachesim as lcs
path, policy, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
params = lcs.ReaderInitParam(ignore_obj_size=True)
kind = lcs.TraceType.ORACLE_GENERAL_TRACE
reader = lcs.TraceReader(trace=path, trace_type=kind, reader_init_params=params)
print(getattr(lcs, policy)(cache_size=size).process_trace(reader)[0])
";
const VERSION: &str =
    "import importlib.metadata as m, libcachesim; print(m.version('libcachesim'))";

/// How much.
struct Scale {
    requests: u64,
    pages: u32,
    rounds: usize,
}

/// A run of one side.
struct Outcome {
    seconds: f64,
    miss_ratio: f64,
    others: f64,
}

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let version = version()?;
    let scale = match options.quick {
        true => Scale { requests: 200_000, pages: PAGES / 50, rounds: 1 },
        false => Scale { requests: 10_000_000, pages: PAGES, rounds: 5 },
    };
    let dir = TempDir::with_prefix_in("larder-bench-", &options.dir)
        .with_context(|| format!("a directory in {}", options.dir.display()))?;
    let path = dir.path().join("zipf.oracleGeneral");
    write(&path, &scale)?;
    progress(NAME, format!("{} requests are written", scale.requests));
    let larder = options.larder()?;
    let each = POLICIES.iter().map(|names| compare(*names, &larder, &path, &scale, &version));
    each.collect()
}

/// Of the peer.
fn version() -> Result<String> {
    const HOW: &str = "libcachesim cannot be imported by python3; it is the Python package \
                       libcachesim (python3 -m pip install libcachesim)";
    let output = Command::new("python3").args(["-c", VERSION]).stdin(Stdio::null()).output();
    let output = output.context(HOW)?;
    ensure!(output.status.success(), HOW);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The trace. Ranks are spread over the pages by a step that has no factor in common with them.
fn write(path: &Path, scale: &Scale) -> Result<()> {
    let (zipf, mut random) = (Zipf::new(scale.pages, 1.0), SplitMix64::new(SEED));
    let mut writer = Writer::create(path, None)?;
    for request in 0..scale.requests {
        let page = u64::from(zipf.draw(&mut random)) * 618_033 % u64::from(scale.pages);
        let what = Record::new(request, 0, Op::Read, page * PAGE_BYTES, PAGE_BYTES);
        writer.write(&what.map_err(anyhow::Error::msg)?)?;
    }
    Ok(writer.finish()?)
}

fn compare(
    (ours, theirs): (&str, &str),
    larder: &Path,
    trace: &Path,
    scale: &Scale,
    version: &str,
) -> Result<Row> {
    let pages = scale.pages / 10;
    let capacity = (u64::from(pages) * PAGE_BYTES).to_string();
    let mine = || {
        let mut command = Command::new(larder);
        command.args(["sim", "--hits", "--json", "--replacement", ours, "--capacity", &capacity]);
        command.arg("--trace").arg(trace);
        command
    };
    let peer = || {
        let mut command = Command::new("python3");
        command.args(["-c", PEER]).arg(trace).args([theirs, &pages.to_string()]);
        command
    };
    let (mut our_runs, mut their_runs) = (Vec::new(), Vec::new());
    for round in 0..scale.rounds {
        for turn in 0..2 {
            match (turn + round) % 2 {
                0 => our_runs.push(timed(mine(), |out| {
                    let value: serde_json::Value = serde_json::from_str(out)?;
                    value["miss_ratio"].as_f64().context("no miss_ratio")
                })?),
                _ => their_runs.push(timed(peer(), |out| {
                    let last = out.lines().last().context("no output")?;
                    Ok(last.trim().parse()?)
                })?),
            }
        }
    }
    progress(NAME, ours);
    let (a, b) = (our_runs[0].miss_ratio, their_runs[0].miss_ratio);
    if (a - b).abs() > SAME {
        bail!("{ours}: miss ratio {a:.4}, but {b:.4} of libcachesim: not the same work");
    }
    let pairs = our_runs.iter().zip(&their_runs);
    let others: Vec<f64> = pairs.map(|(o, t)| o.others.max(t.others)).collect();
    let counted = Counted::quietest(&others);
    let (our_seconds, their_seconds) =
        (counted.each(&our_runs, |o| o.seconds), counted.each(&their_runs, |o| o.seconds));
    let rate = scale.requests as f64 / median(&our_seconds).max(1e-9) / 1e6;
    let row = Row::new(NAME, ours, "s")
        .faster(&format!("libcachesim {version}, {theirs}"), &our_seconds, &their_seconds)
        .note(format!(
            "{} requests, Zipf 1.0 over {} pages, cache of {pages}; whole processes; miss ratio \
             {a:.4} and {b:.4}; {rate:.1} million accesses/s; {}",
            scale.requests,
            scale.pages,
            counted.words()
        ));
    // A small file measures how fast processes start.
    Ok(match scale.pages == PAGES {
        true => row.goals(&[Goal::RatioAtLeast(1.5)]),
        false => row.command("larder bench replay --quick"),
    })
}

/// Runs a process to its end; the misses that it prints.
fn timed(mut command: Command, misses: impl Fn(&str) -> Result<f64>) -> Result<Outcome> {
    let (watch, begin) = (Watch::begin(None)?, Instant::now());
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let seconds = begin.elapsed().as_secs_f64();
    let err = String::from_utf8_lossy(&output.stderr);
    let last = err.lines().last().unwrap_or_default();
    ensure!(output.status.success(), "{command:?} ended with {}: {last}", output.status);
    let out = String::from_utf8_lossy(&output.stdout);
    let miss_ratio = misses(&out).with_context(|| format!("the output of {command:?}"))?;
    Ok(Outcome { seconds, miss_ratio, others: watch.others()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_the_same_each_time_and_over_all_pages() {
        let dir = tempfile::tempdir().unwrap();
        let scale = Scale { requests: 20_000, pages: 1000, rounds: 1 };
        let paths = ["a.oracleGeneral", "b.oracleGeneral"].map(|name| dir.path().join(name));
        paths.iter().for_each(|path| write(path, &scale).unwrap());
        let read = |path| std::fs::read(path).unwrap();
        assert!(read(&paths[0]) == read(&paths[1]));
        let trace = larder_trace::Trace::new(&paths[0], larder_trace::Options::default());
        let pages = trace.records().unwrap().map(|record| record.unwrap().pages().start);
        let different: std::collections::BTreeSet<u64> = pages.collect();
        assert!(different.len() > 800 && different.last() < Some(&1000), "{}", different.len());
    }
}
