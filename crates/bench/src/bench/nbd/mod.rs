// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nbd`: a served volume beside nbdkit, through fio's nbd engine and a unix socket.
//!
//! Method: equal media on both sides. In memory, `larder serve --origin mem:1GiB` stands beside
//! `nbdkit memory 1G`, both filled with the same noise first. On tmpfs, a cached volume (origin
//! and flash are files there, every unit populated) stands beside `nbdkit file` and beside nbdkit's
//! cache filter (write-through, caching reads, its cache on the same tmpfs and warm). Servers run
//! side by side and take turns with one client, so the ratio of a pair is of the same seconds.
//!
//! Each request also costs the server processor time, which a busy machine changes less than it
//! changes requests per second; that stands in the notes.
//!
//! Why not a client of our own: it would be tuned to our server.

pub(super) mod fio;
pub(super) mod servers;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use self::fio::Job;
use self::servers::{Contestant, MIB};
use super::common::{BenchOptions, progress};
use super::quiet::Counted;
use super::row::{Goal, Row, median};

const NAME: &str = "nbd";
const TMPFS: &str = "/dev/shm";

/// How long and how large.
#[derive(Clone, Copy)]
struct Scale {
    bytes: u64,
    rounds: usize,
    span: Duration,
}

impl Scale {
    fn of(options: &BenchOptions) -> Self {
        if options.quick {
            Self { bytes: 64 * MIB, rounds: 1, span: Duration::from_secs(1) }
        } else {
            Self { bytes: 1024 * MIB, rounds: 9, span: Duration::from_secs(1) }
        }
    }
}

/// A load, and its goal.
const JOBS: [(Job, f64); 6] = [
    (Job { depth: 1, connections: 1, reads_percent: 100 }, 1.2),
    (Job { depth: 32, connections: 1, reads_percent: 100 }, 1.0),
    (Job { depth: 32, connections: 4, reads_percent: 100 }, 1.2),
    (Job { depth: 1, connections: 1, reads_percent: 70 }, 1.2),
    (Job { depth: 32, connections: 1, reads_percent: 70 }, 1.0),
    (Job { depth: 32, connections: 4, reads_percent: 70 }, 1.2),
];

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    fio::check()?;
    let version = servers::nbdkit_version()?;
    let scale = Scale::of(options);
    let larder = options.larder()?;
    let sockets = TempDir::with_prefix_in("larder-bench-", &options.dir)
        .with_context(|| format!("a directory in {}", options.dir.display()))?;
    let mut rows = in_memory(&larder, sockets.path(), scale, &version)?;
    rows.extend(on_tmpfs(&larder, sockets.path(), scale, &version)?);
    Ok(rows)
}

fn in_memory(larder: &Path, sockets: &Path, scale: Scale, version: &str) -> Result<Vec<Row>> {
    let contestants = [
        Contestant::larder_in_memory(larder, sockets, scale.bytes)?,
        Contestant::nbdkit_memory(sockets, scale.bytes)?,
    ];
    for contestant in &contestants {
        contestant.fill(scale.bytes).with_context(|| contestant.words.clone())?;
    }
    progress(NAME, "memory: both are filled");
    compare("memory", &contestants, scale, version)
}

fn on_tmpfs(larder: &Path, sockets: &Path, scale: Scale, version: &str) -> Result<Vec<Row>> {
    let files = TempDir::with_prefix_in("larder-bench-", TMPFS).context(TMPFS)?;
    let dir = files.path();
    let stat = rustix::fs::statvfs(dir).context(TMPFS)?;
    let free = stat.f_bavail * stat.f_frsize;
    // Two files of ours, one for nbdkit, one and a cache for its filter.
    let needed = 5 * scale.bytes + 64 * MIB;
    ensure!(free >= needed, "{TMPFS} has {} MiB free; needed: {}", free / MIB, needed / MIB);
    let contestants = [
        Contestant::larder_on_files(larder, sockets, dir, scale.bytes)?,
        Contestant::nbdkit_file(sockets, dir, scale.bytes)?,
        Contestant::nbdkit_cache(sockets, dir, scale.bytes)?,
    ];
    for contestant in &contestants {
        contestant.warm(scale.bytes).with_context(|| contestant.words.clone())?;
    }
    progress(NAME, "tmpfs: all are filled and warm");
    compare("tmpfs", &contestants, scale, version)
}

/// The first contestant beside each other one.
fn compare(
    medium: &str,
    contestants: &[Contestant],
    scale: Scale,
    version: &str,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (job, least) in JOBS {
        let mut results: Vec<Vec<fio::Outcome>> = contestants.iter().map(|_| Vec::new()).collect();
        for round in 0..scale.rounds {
            for turn in 0..contestants.len() {
                let who = (turn + round) % contestants.len();
                let outcome = contestants[who].measure(&job, scale.bytes, scale.span)?;
                results[who].push(outcome);
            }
        }
        progress(NAME, format!("{medium}: {}", job.words()));
        let Some((ours, peers)) = results.split_first() else { continue };
        for (peer, results) in contestants[1..].iter().zip(peers) {
            let (ours, peer) = ((&contestants[0], &ours[..]), (peer, &results[..]));
            rows.push(row(medium, &job, least, ours, peer, version));
        }
    }
    Ok(rows)
}

type Side<'a> = (&'a Contestant, &'a [fio::Outcome]);

fn row(
    medium: &str,
    job: &Job,
    least: f64,
    (larder, ours): Side<'_>,
    (peer, theirs): Side<'_>,
    version: &str,
) -> Row {
    let others: Vec<f64> = ours.iter().zip(theirs).map(|(o, t)| o.others.max(t.others)).collect();
    let counted = Counted::quietest(&others);
    let figures = |side: &[fio::Outcome]| {
        format!(
            "{:.1} us p50, {:.1} us p99, {:.2} us of server CPU each",
            median(&counted.each(side, |o| o.p50_us)),
            median(&counted.each(side, |o| o.p99_us)),
            median(&counted.each(side, |o| o.cpu_us)),
        )
    };
    let case = format!("{medium} / {}, {}", peer.name, job.words());
    let iops = |side: &[fio::Outcome]| counted.each(side, |o| o.iops);
    Row::new(NAME, case, "IOPS")
        .paired(&format!("{version}: {}", peer.words), &iops(ours), &iops(theirs))
        .goals(&[Goal::RatioAtLeast(least)])
        .command(format!("{}; {}", larder.words, job.command(larder.socket())))
        .note(format!("ours {}; peer {}; {}", figures(ours), figures(theirs), counted.words()))
}
