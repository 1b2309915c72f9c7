// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memory`: the memory that a volume of 100 TiB under 16 TiB of flash uses.
//!
//! Method: in a process of its own, a real shard is filled through the engine's own path: a read
//! of every unit misses, and the population workers copy it. Cached units are spread over the
//! whole origin, so that every page of the origin map is in use. The growth of the resident set is
//! then compared with the declaration (`larder size`). For the worst case one page of every cached
//! unit is written under write-around, which makes every unit partly valid.
//!
//! Devices complete at once and move no bytes; nothing else is left out or made smaller.
//! Why not the sum of `size_of`: that is the declaration; the bench measures the overhead of the allocator too.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use larder_core::config::Memory;
use larder_core::config::{Limits, WritePolicy};
use larder_core::request::Kind;
use larder_sim::scenario::sce;

use super::child;
use super::common::{BenchOptions, progress};
use super::inline::Inline;
use super::row::{Goal, Row};

const NAME: &str = "memory";
const GIB: f64 = (1u64 << 30) as f64;
const TIB: u64 = 1 << 40;
const ORIGIN_BYTES: u64 = 100 * TIB;
const FLASH_BYTES: u64 = 16 * TIB;
/// Both are divided by this with `--quick`.
const QUICK: u64 = 64;
/// Hits by which the cost of a hit in large tables is measured.
const HITS: u64 = 4_000_000;
/// Requests in flight meanwhile.
const DEPTH: u64 = 32;

/// The result of a run.
struct Found {
    declared: Memory,
    slots: u64,
    full_bytes: u64,
    worst_bytes: u64,
    bitmap_bytes: u64,
    hit_ns: f64,
    seconds: f64,
}

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    if !child::is_child() {
        return child::run(NAME, options);
    }
    let scale = if options.quick { QUICK } else { 1 };
    let found = measure(ORIGIN_BYTES / scale, FLASH_BYTES / scale)?;
    Ok(rows(&found, scale))
}

/// The resident set of this process.
fn resident_bytes() -> Result<u64> {
    const PATH: &str = "/proc/self/status";
    let text = std::fs::read_to_string(PATH).context(PATH)?;
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:")).context(PATH)?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context(PATH)?;
    Ok(kib << 10)
}

/// `count` of `units` units, evenly spread and in no order: the multiples of the golden section.
fn spread(units: u64, count: u64) -> impl Iterator<Item = u64> + Clone {
    let mut step = (units as f64 * 0.618_033_988_749_895) as u64 | 1;
    while gcd(step, units) != 1 {
        step += 2;
    }
    (0..count).map(move |i| (u128::from(i) * u128::from(step) % u128::from(units)) as u64)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn measure(origin_bytes: u64, flash_bytes: u64) -> Result<Found> {
    let (mut choices, limits) = (sce(), Limits::default());
    choices.write = WritePolicy::WriteAround;
    let (units, slots) = (origin_bytes / choices.unit_bytes, flash_bytes / choices.unit_bytes);
    let declared = Memory::of(origin_bytes, flash_bytes, &choices, &limits, 1);
    let start = Instant::now();
    let before = resident_bytes()?;
    let mut volume = Inline::new(origin_bytes, slots, &(&choices).try_into()?, &limits);
    volume.populate(spread(units, slots))?;
    let full_bytes = resident_bytes()?.saturating_sub(before);
    let status = volume.shard.cache_status().context("the cache has failed")?;
    ensure!(status.units_used == slots, "{} of {slots} slots are in use", status.units_used);
    progress(NAME, format!("{slots} units populated in {:.0} s", start.elapsed().as_secs_f64()));
    let hit_ns = hit_cost(&mut volume, units, slots)?;
    volume.write_pages(spread(units, slots));
    let worst_bytes = resident_bytes()?.saturating_sub(before);
    let bitmap_bytes = volume.shard.cache_status().map_or(0, |s| s.bitmap_bytes);
    ensure!(bitmap_bytes >= declared.bitmap_bytes, "not every unit is partly valid");
    let seconds = start.elapsed().as_secs_f64();
    Ok(Found { declared, slots, full_bytes, worst_bytes, bitmap_bytes, hit_ns, seconds })
}

/// Nanoseconds of a hit somewhere in the whole cache.
fn hit_cost(volume: &mut Inline, units: u64, slots: u64) -> Result<f64> {
    let rounds = HITS.min(slots) / DEPTH;
    let mut hits = 0;
    let mut unit = spread(units, slots).step_by((slots / (rounds * DEPTH)).max(1) as usize);
    let start = Instant::now();
    for round in 0..rounds {
        for (i, unit) in unit.by_ref().take(DEPTH as usize).enumerate() {
            volume.page(Kind::Read, unit, round * DEPTH + i as u64);
        }
        volume.settle(|reply| hits += u64::from(reply.hit));
        volume.tick();
    }
    let ns = start.elapsed().as_nanos() as f64;
    ensure!(hits == rounds * DEPTH, "{hits} of {} reads were hits", rounds * DEPTH);
    Ok(ns / hits as f64)
}

fn rows(found: &Found, scale: u64) -> Vec<Row> {
    let Found { declared, slots, full_bytes, worst_bytes, bitmap_bytes, .. } = found;
    let row = |case: &str, unit, goals: &[Goal], ours: f64, declared: f64| {
        let row = Row::new(NAME, case, unit).against("declared by larder size", ours, declared);
        if scale == 1 { row.goals(goals) } else { row.command("larder bench memory --quick") }
    };
    let gib = |bytes: u64| bytes as f64 / GIB;
    let each = |bytes: u64| bytes.saturating_sub(declared.map_bytes) as f64 / *slots as f64;
    let (full, worst) = (declared.full_bytes(), declared.worst_bytes());
    let tib = |bytes: u64| (bytes / scale) as f64 / TIB as f64;
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / (1 << 20) as f64);
    let volume = format!(
        "{} TiB under {} TiB in units of 1 MiB; growth of the resident set; {:.0} s{}",
        tib(ORIGIN_BYTES),
        tib(FLASH_BYTES),
        found.seconds,
        if scale == 1 { "" } else { "; goals are for the full size" }
    );
    let parts = format!(
        "declared in MiB: map {}, slots {}, bitmaps {} (the pool holds {}), buffers {}",
        mib(declared.map_bytes),
        mib(declared.slot_bytes),
        mib(declared.bitmap_bytes),
        mib(*bitmap_bytes),
        mib(declared.buffer_bytes),
    );
    let within = Goal::Within(0.05);
    vec![
        row(
            "full, fully valid",
            "GiB",
            &[Goal::OursAtMost(0.7), within],
            gib(*full_bytes),
            gib(full),
        )
        .note(volume),
        row(
            "full, partly valid",
            "GiB",
            &[Goal::OursAtMost(1.2), within],
            gib(*worst_bytes),
            gib(worst),
        )
        .note(parts),
        row("a fully valid unit", "B", &[Goal::OursAtMost(16.0)], each(*full_bytes), each(full))
            .note("all but the map (4 B per origin unit), divided by the units cached"),
        row("a partly valid unit", "B", &[Goal::OursAtMost(48.0)], each(*worst_bytes), each(worst))
            .note("the same"),
        Row::new(NAME, "engine per hit", "ns").alone(found.hit_ns).note(
            "for information: in tables of this size, devices that complete at once, units in no \
             order",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_populated_once_and_then_partly_valid() {
        let found = measure(100 << 30, 16 << 30).unwrap();
        assert_eq!(found.slots, 16 << 10);
        assert_eq!(found.bitmap_bytes, found.slots * 32);
    }

    #[test]
    fn spread_units_are_different_and_reach_everywhere() {
        let units: std::collections::BTreeSet<u64> = spread(1000, 160).collect();
        assert_eq!(units.len(), 160);
        let gaps = units.iter().zip(units.iter().skip(1)).map(|(a, b)| b - a);
        assert!(gaps.max().unwrap() < 64);
    }
}
