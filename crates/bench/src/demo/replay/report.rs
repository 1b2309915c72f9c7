// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the rows of the replay have besides, their table, and the sentences below it.

use anyhow::Result;
use serde::Serialize;

use super::setup::Setup;
use crate::demo::report::{Report, latency, mib, percent};
use crate::demo::row::Row;
use crate::demo::served::row::{Details, HEADER, Measured, Words, cells};
use crate::demo::served::way::{Medium, Way};

/// The rows, in their order.
pub const WAYS: [Way; 5] = [
    Way { name: "no-cache", medium: Medium::Device },
    Way::LARDER,
    Way { name: "flashcache", medium: Medium::Cached("flashcache") },
    Way { name: "bcache", medium: Medium::Cached("bcache") },
    Way { name: "all-flash", medium: Medium::Flash },
];
/// The first seconds of a row, shown beside the measured ones.
const FIRST_SECONDS: u64 = 5;
const WORDS: Words = Words { unit: "IOPS", change: "write", asked: "reads" };

/// What the replay measures besides.
#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    /// Bytes of reads and writes per second.
    pub throughput_bytes_per_second: f64,
    /// Of writes.
    pub write_p50_us: f64,
    /// Of writes.
    pub write_p99_us: f64,
    /// Of flushes.
    pub flush_p99_us: f64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// The hit ratio of the first seconds of the row.
    pub first_hit_ratio: f64,
    /// Reads and writes per second in the first seconds of the row.
    pub first_throughput: f64,
    /// Pages that were read and found right since the start of the row.
    pub verified_pages: u64,
    /// Writes since the start of the row that waited for an overlapping one.
    pub held_writes: u64,
}

/// A row of `demo.json`.
pub type ReplayRow = Row<Details<Replayed>>;

/// Puts a row together.
///
/// # Errors
/// Nothing was measured, or what was measured is not what the row stands for.
pub fn row(measured: &Measured) -> Result<ReplayRow> {
    let tally = &measured.tally;
    let first: u64 = tally.seconds.iter().take(FIRST_SECONDS as usize).sum();
    let load = Replayed {
        throughput_bytes_per_second: measured.per_second(tally.bytes),
        write_p50_us: tally.writes.quantile_us(0.50),
        write_p99_us: tally.writes.quantile_us(0.99),
        flush_p99_us: tally.flushes.quantile_us(0.99),
        writes: tally.writes.count(),
        flushes: tally.flushes.count(),
        first_hit_ratio: measured.first(FIRST_SECONDS).hit_ratio(),
        first_throughput: first as f64 / FIRST_SECONDS as f64,
        verified_pages: tally.verified,
        held_writes: tally.held_writes,
    };
    measured.row(measured.counters().read_bytes, load)
}

/// The report.
///
/// # Errors
/// A figure is no number.
pub fn report(rows: &[ReplayRow], setup: &Setup) -> Result<Report> {
    Report::new(HEADER, rows, line, setup, &[explain(rows, setup), reading(rows)])
}

fn line(row: &ReplayRow) -> [String; 8] {
    let (details, load) = (&row.details, &row.details.load);
    let mut cells = cells(row, WORDS, (load.write_p50_us, load.write_p99_us));
    cells[1] += &format!("\n{:.1} MB/s", load.throughput_bytes_per_second / 1e6);
    if details.way.is_cached() {
        cells[4] += &format!("\nfirst {FIRST_SECONDS} s: {}", percent(load.first_hit_ratio));
    }
    cells
}

/// What was measured.
fn explain(rows: &[ReplayRow], s: &Setup) -> String {
    let verified: u64 = rows.iter().map(|r| r.details.load.verified_pages).sum();
    let flags = match s.larder_flags.as_str() {
        "" => "`larder` runs with its defaults".to_owned(),
        flags => format!("`larder` runs with `{flags}`"),
    };
    format!(
        "Measured: {} ({} requests, {:.0} % writes), replayed over NBD by {} connections with {} \
         requests open each, as fast as answers come (its timestamps are ignored), a FLUSH after \
         every {} log writes; {} s of warm-up, then {} s that count, for every row alike. The slow \
         device is a file of {} ({} touched) behind the modelled latency of `{}`, the flash a file \
         of {} on this machine's disk, with room for all of it; {flags}. All {verified} pages read, \
         and the whole file after each row, held what was last written.",
        s.trace,
        s.trace_requests,
        s.trace_writes as f64 * 100.0 / s.trace_requests.max(1) as f64,
        s.scale.connections,
        s.scale.depth,
        s.scale.flush_every,
        s.scale.window.warm_up_seconds,
        s.scale.window.measured_seconds,
        mib(s.volume_bytes),
        mib(s.touched_bytes),
        s.profile,
        mib(s.flash_bytes),
    )
}

fn reading(rows: &[ReplayRow]) -> String {
    let row = |name| rows.iter().find(|r| r.name == name);
    let (Some(bare), Some(larder), Some(flash)) =
        (row("no-cache"), row("larder"), row("all-flash"))
    else {
        return String::new();
    };
    format!(
        "How to read it: `larder` answers {} of the reads from flash, half of all reads within {} \
         instead of {}, and does {:.1} times the requests of `no-cache` and {} of those of \
         `all-flash`. A write is answered when the slow device has it, so writes stay as slow as \
         that device, and clients that wait for them are bound by them; device reads of `larder` are \
         misses and what it copies to flash. `flashcache` and `bcache` are the same engine with the \
         choices of those caches (single pages, copied by the request that misses them), not their code. A \
         faster row gets further through the trace.",
        percent(larder.hit_ratio),
        latency(larder.details.read_p50_us),
        latency(bare.details.read_p50_us),
        larder.throughput / bare.throughput,
        percent(larder.throughput / flash.throughput),
    )
}

#[cfg(test)]
mod tests {
    use super::super::setup::Scale;
    use super::*;
    use crate::demo::served::row::tests::measured;

    #[test]
    fn every_row_and_figure_is_in_the_report() {
        let setup = Setup {
            trace: "a trace".into(),
            trace_requests: 10,
            trace_writes: 4,
            volume_bytes: 8 << 20,
            touched_bytes: 4 << 20,
            flash_bytes: 9 << 20,
            profile: "san-1g".into(),
            seed: 1,
            larder_flags: "--populate-share 90%".into(),
            scale: Scale::default(),
        };
        let rows = WAYS.map(|way| row(&measured(way)).unwrap());
        let load = &rows[1].details.load;
        assert_eq!((load.writes, load.verified_pages), (30, 0));
        assert!((load.first_hit_ratio - 0.6).abs() < 1e-9);
        assert!((load.first_throughput - 20.0).abs() < 1e-9);
        let report = report(&rows, &setup).unwrap();
        for part in [
            "no-cache",
            "larder",
            "all-flash",
            "20 IOPS",
            "900 µs",
            "100.0 %",
            "first 5 s: 60.0 %",
            "50.0 % of reads",
            "40 % writes",
            "8.0 MiB",
            "process 5.0 MiB",
            "1.0 times",
        ] {
            assert!(report.text.contains(part), "{part}: {}", report.text);
        }
        let names: Vec<_> = report.rows.iter().map(|r| r["name"].clone()).collect();
        assert_eq!(names, ["no-cache", "larder", "flashcache", "bcache", "all-flash"]);
        let setup = &report.rows[1]["setup"];
        assert_eq!((&setup["profile"], &setup["depth"]), (&"san-1g".into(), &2.into()));
    }
}
