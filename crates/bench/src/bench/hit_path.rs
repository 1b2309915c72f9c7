// SPDX-License-Identifier: MIT OR Apache-2.0
//! `hit-path`: what the cache adds to a read that it serves from flash.
//!
//! Method: a file that stands for flash, with direct I/O, is filled by the engine's own population
//! workers from memory. Then 4 KiB reads at random places, all hits, take turns with reads of the
//! same file without a cache: the same driver, the same ring, the same loop. Beside it, without a
//! device (nothing is read or copied), what engine and driver cost by themselves.
//!
//! Why not fio for the bare side: two loops would be compared, and not a cache with none.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use larder_core::buf::{Buf, PAGE};
use larder_core::config::{Choices, Limits};
use larder_core::exec::{DevId, Io, IoId, IoKind, Nanos};
use larder_core::policy::admission::Class;
use larder_core::request::Kind;
use larder_io::{Access, DevSpec, Device};
use larder_model::SplitMix64;
use larder_sim::scenario::sce;
use tempfile::NamedTempFile;

use super::common::{BenchOptions, progress};
use super::inline::Inline;
use super::quiet::{Counted, Watch};
use super::row::{Goal, Row, median};
use super::volume::{Bare, Target, Volume};
use larder_lab::latencies::Latencies;

const NAME: &str = "hit-path";
const MIB: u64 = 1 << 20;

/// How long and how large.
struct Scale {
    bytes: u64,
    pairs: usize,
    span: Duration,
    /// Reads without a device.
    reads: u64,
}

impl Scale {
    fn of(options: &BenchOptions) -> Self {
        if options.quick {
            let span = Duration::from_millis(200);
            Self { bytes: 64 * MIB, pairs: 2, span, reads: 100_000 }
        } else {
            let span = Duration::from_millis(1500);
            Self { bytes: 1024 * MIB, pairs: 11, span, reads: 1_000_000 }
        }
    }
}

/// One run of reads.
struct Tally {
    iops: f64,
    p50_us: f64,
    per_turn: f64,
    cpu_ns_each: f64,
    /// The share of the machine that other processes used meanwhile.
    others: f64,
}

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let scale = Scale::of(options);
    let file = NamedTempFile::with_prefix_in("larder-bench-", &options.dir)
        .with_context(|| format!("a file in {}", options.dir.display()))?;
    let flash = flash_file(&file, scale.bytes)?;
    let origin = origin_in_memory(scale.bytes)?;
    let choices = eager();
    let mut volume = Volume::new(&origin, Some(&flash), &choices, &Limits::default())?;
    volume.populate_all().context("filling the cache")?;
    let mut bare = Bare::new(&flash)?;
    progress(NAME, format!("{} MiB are cached on {}", scale.bytes / MIB, file.path().display()));
    let mut rows = on_flash(&mut volume, &mut bare, &scale, flash.direct())?;
    volume.check()?;
    rows.extend(without_device(&scale, &choices)?);
    Ok(rows)
}

/// The preset's choices, except that workers never slow down, so that the cache becomes full.
fn eager() -> Choices {
    let mut choices = sce();
    if let Some(settings) = choices.selective_mut() {
        settings.classes =
            vec![Class { workers: 8, target_miss_ratio: 0.0, min_free_ratio: 0.0, period_ns: 0 }];
    }
    choices
}

/// A device of this many bytes, each of them written.
fn flash_file(file: &NamedTempFile, bytes: u64) -> Result<Device> {
    let failed = || format!("{} bytes in {}", bytes, file.path().display());
    rustix::fs::fallocate(file.as_file(), rustix::fs::FallocateFlags::empty(), 0, bytes)
        .with_context(failed)?;
    let device = Device::open(&DevSpec::Path(file.path().to_owned()), Access::ReadWrite)?;
    fill(&device).with_context(failed)?;
    Ok(device)
}

fn origin_in_memory(bytes: u64) -> Result<Device> {
    let device = Device::mem(bytes);
    fill(&device).context("memory")?;
    Ok(device)
}

/// Writes noise over a device, so that nothing below can take it for holes or zeroes.
fn fill(device: &Device) -> Result<()> {
    let mut random = SplitMix64::new(1);
    let mut buf = Some(Buf::with_len(MIB as usize));
    for offset in (0..device.geometry().bytes).step_by(MIB as usize) {
        for word in buf.iter_mut().flat_map(|b| b.chunks_exact_mut(8)) {
            word.copy_from_slice(&random.next_u64().to_ne_bytes());
        }
        let (id, dev, kind) = (IoId(0), DevId(0), IoKind::Write { fua: false });
        let mut io = Io { id, dev, kind, offset, len: MIB, buf, at: 0 };
        device.run_blocking(&mut io)?;
        buf = io.buf;
    }
    Ok(())
}

/// When to end.
#[derive(Clone, Copy)]
enum End {
    After(Duration),
    Reads(u64),
}

/// Reads of one page at random places, `depth` at a time.
fn random_reads(
    target: &mut impl Target,
    bytes: u64,
    depth: u32,
    end: End,
    seed: u64,
) -> Result<Tally> {
    let pages = bytes / PAGE as u64;
    let mut random = SplitMix64::new(seed);
    let (mut latencies, mut turns, mut count) = (Latencies::new(), 0u64, 0);
    let watch = Watch::begin(None)?;
    let (start, cpu) = (target.now(), thread_cpu_ns()?);
    let mut now = start;
    let mut began: Vec<Nanos> = vec![start; depth as usize];
    (0..depth).for_each(|client| target.read(client, random.below(pages) * PAGE as u64));
    let goes_on = |now: Nanos, count: u64| match end {
        End::After(span) => now - start < span.as_nanos() as u64,
        End::Reads(reads) => count < reads,
    };
    while goes_on(now, count) {
        target.turn(None)?;
        turns += 1;
        now = target.now();
        // As many as were complete at this time: a device that costs nothing completes operations without end.
        for _ in 0..depth {
            let Some(client) = target.next()? else { break };
            latencies.record(now - began[client as usize]);
            began[client as usize] = now;
            target.read(client, random.below(pages) * PAGE as u64);
            count += 1;
        }
    }
    let each = |ns: u64| ns as f64 / count.max(1) as f64;
    let (ns_each, cpu_ns_each) = (each(now - start), each(thread_cpu_ns()? - cpu));
    let mut open = depth;
    while open > 0 {
        match target.next()? {
            Some(_) => open -= 1,
            None => target.turn(None)?,
        }
    }
    let per_turn = count as f64 / turns.max(1) as f64;
    let p50_us = latencies.quantile_us(0.5);
    let others = watch.others()?;
    Ok(Tally { iops: 1e9 / ns_each, p50_us, per_turn, cpu_ns_each, others })
}

/// The time that this thread has had a processor, which a busy neighbour does not change (much).
fn thread_cpu_ns() -> Result<u64> {
    const PATH: &str = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(PATH).context(PATH)?;
    text.split_whitespace().next().and_then(|word| word.parse().ok()).context(PATH)
}

/// The same reads with and without a cache, in turns.
struct Pairs {
    ours: Vec<Tally>,
    bare: Vec<Tally>,
    counted: Counted,
}

impl Pairs {
    fn run(
        volume: &mut Volume,
        bare: &mut Bare,
        depth: u32,
        scale: &Scale,
        end: End,
    ) -> Result<Self> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for pair in 0..scale.pairs {
            for side in 0..2 {
                let seed = pair as u64 * 64 + u64::from(depth);
                // Ours first in every second pair.
                if (pair + side) % 2 == 0 {
                    theirs.push(random_reads(bare, scale.bytes, depth, end, seed)?);
                } else {
                    ours.push(random_reads(volume, scale.bytes, depth, end, seed)?);
                }
            }
        }
        let others = |(o, b): (&Tally, &Tally)| o.others.max(b.others);
        let others: Vec<f64> = ours.iter().zip(&theirs).map(others).collect();
        Ok(Self { ours, bare: theirs, counted: Counted::quietest(&others) })
    }

    fn row(&self, case: &str, unit: &str, figure: fn(&Tally) -> f64) -> Row {
        let each = |tallies: &[Tally]| self.counted.each(tallies, figure);
        let what = "the same reads without a cache";
        Row::new(NAME, case, unit).paired(what, &each(&self.ours), &each(&self.bare))
    }

    /// Both sides of a figure, for a note.
    fn both(&self, figure: fn(&Tally) -> f64) -> String {
        let mid = |tallies: &[Tally]| median(&self.counted.each(tallies, figure));
        format!("{:.1} (bare {:.1})", mid(&self.ours), mid(&self.bare))
    }
}

fn on_flash(volume: &mut Volume, bare: &mut Bare, scale: &Scale, direct: bool) -> Result<Vec<Row>> {
    let (before, end) = (volume.reads(), End::After(scale.span));
    let deep = Pairs::run(volume, bare, 32, scale, end)?;
    let one = Pairs::run(volume, bare, 1, scale, end)?;
    let after = volume.reads();
    let misses = (after.0 - before.0) - (after.1 - before.1);
    let timeouts = volume.flash_timeouts();
    ensure!(misses == 0, "{misses} reads were no hits; {timeouts} flash operations took too long");
    let conditions = format!(
        "{} MiB file, {}; reads per system call {}; p50 in us {}; {}",
        scale.bytes / MIB,
        if direct { "direct I/O" } else { "NO direct I/O on this file system" },
        deep.both(|t| t.per_turn),
        deep.both(|t| t.p50_us),
        deep.counted.words(),
    );
    Ok(vec![
        deep.row("4 KiB hits, depth 32", "IOPS", |t| t.iops)
            .goals(&[Goal::RatioAtLeast(0.95)])
            .note(conditions),
        one.row("4 KiB hits, depth 1, p50", "us", |t| t.p50_us)
            .goals(&[Goal::AddsAtMost(3.0)])
            .note(one.counted.words()),
        deep.row("CPU per hit, depth 32", "ns", |t| t.cpu_ns_each)
            .note("for information: the thread's own time, system calls included"),
        one.row("CPU per hit, depth 1", "ns", |t| t.cpu_ns_each).note("the same"),
    ])
}

/// The cost of engine and driver, when the device costs nothing.
fn without_device(scale: &Scale, choices: &Choices) -> Result<Vec<Row>> {
    let nothing = Device::blackhole(scale.bytes);
    let mut volume = Volume::new(&nothing, Some(&nothing), choices, &Limits::default())?;
    volume.populate_all()?;
    let mut bare = Bare::new(&nothing)?;
    let pairs = Pairs::run(&mut volume, &mut bare, 32, scale, End::Reads(scale.reads))?;
    let engine: Vec<f64> =
        (0..scale.pairs).map(|_| engine_ns(scale, choices)).collect::<Result<_>>()?;
    Ok(vec![
        pairs
            .row("CPU per read, no device", "ns", |t| t.cpu_ns_each)
            .note("for information: desk, engine and driver, depth 32"),
        Row::new(NAME, "CPU per hit, engine alone", "ns")
            .alone(median(&engine))
            .note("for information: submit, run, complete, run, reply; depth 32"),
    ])
}

fn engine_ns(scale: &Scale, choices: &Choices) -> Result<f64> {
    const DEPTH: u64 = 32;
    let units = scale.bytes / choices.unit_bytes;
    let mut inline = Inline::new(scale.bytes, units, &choices.try_into()?, &Limits::default());
    inline.populate(0..units)?;
    let mut random = SplitMix64::new(7);
    let (mut count, mut hits) = (0, 0);
    let start = thread_cpu_ns()?;
    while count < scale.reads {
        for _ in 0..DEPTH {
            inline.page(Kind::Read, random.below(units), random.next_u64() >> 24);
        }
        inline.settle(|reply| hits += u64::from(reply.hit));
        inline.tick();
        count += DEPTH;
    }
    let ns = (thread_cpu_ns()? - start) as f64 / count as f64;
    ensure!(hits == count, "{hits} of {count} reads were hits");
    Ok(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_read_of_a_filled_cache_is_a_hit() {
        let scale = Scale { bytes: 8 * MIB, pairs: 1, span: Duration::ZERO, reads: 1_000 };
        let rows = without_device(&scale, &eager()).unwrap();
        assert!(rows.iter().all(|row| row.ours.is_some()));
    }
}
