// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row of the demo: one way of serving the same data, and what was measured of it.
//!
//! Invariants: every figure is of the measured window unless its name says otherwise; latencies
//! and throughput are the client's, bytes and hits the server's own counters.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::server::Stats;
use super::tally::Tally;

/// The first seconds of a row, shown beside the measured ones.
pub const FIRST_SECONDS: u64 = 5;
/// The share of client reads that must come from the device where there is no cache; with less,
/// something else caches and the comparison means nothing.
pub(super) const LEAST_DEVICE_RATIO: f64 = 0.25;

/// A way of serving the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The slow device in pass-through.
    NoCache,
    /// The slow device behind a flash cache: the preset `sce`.
    Larder,
    /// The same engine with the choices of flashcache.
    Flashcache,
    /// The same engine with the choices of bcache.
    Bcache,
    /// The same data on the flash, in pass-through.
    AllFlash,
}

impl Kind {
    /// All of them, in their order.
    pub const ALL: [Self; 5] =
        [Self::NoCache, Self::Larder, Self::Flashcache, Self::Bcache, Self::AllFlash];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoCache => "no-cache",
            Self::Larder => "larder",
            Self::Flashcache => "flashcache",
            Self::Bcache => "bcache",
            Self::AllFlash => "all-flash",
        }
    }

    /// The preset of its cache, where it has one.
    #[must_use]
    pub fn preset(self) -> Option<&'static str> {
        match self {
            Self::NoCache | Self::AllFlash => None,
            Self::Larder => Some("sce"),
            Self::Flashcache => Some("flashcache"),
            Self::Bcache => Some("bcache"),
        }
    }
}

/// What happened in one second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Second {
    /// Reads and writes answered.
    pub throughput: u64,
    /// The share of reads served wholly from flash.
    pub hit_ratio: f64,
}

/// What this row's measurement is put together from.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// Which row.
    pub kind: Kind,
    /// The clients' counts.
    pub tally: &'a Tally,
    /// The server's counters at the start and after each second.
    pub samples: &'a [Stats],
    /// The measured window in seconds since the start.
    pub window: std::ops::Range<u64>,
    /// The server's resident memory at the end.
    pub rss_bytes: u64,
}

/// A row of the table and of `demo.json`; the keys are part of the contract.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: Kind,
    /// Reads and writes per second.
    pub throughput: f64,
    /// Bytes of reads and writes per second.
    pub throughput_bytes_per_second: f64,
    /// Half of all reads and writes took at most this long.
    pub p50_us: f64,
    /// Of all reads and writes.
    pub p95_us: f64,
    /// Of all reads and writes.
    pub p99_us: f64,
    /// Of reads.
    pub read_p50_us: f64,
    /// Of reads.
    pub read_p99_us: f64,
    /// Of writes.
    pub write_p50_us: f64,
    /// Of writes.
    pub write_p99_us: f64,
    /// Of flushes.
    pub flush_p99_us: f64,
    /// The share of reads served wholly from a cache's flash; 0 where there is no cache.
    pub hit_ratio: f64,
    /// Bytes read from the slow device, population included; 0 where there is none.
    pub device_reads: u64,
    /// The same as a share of the bytes that clients read.
    pub device_read_ratio: f64,
    /// Bytes written to flash.
    pub flash_write_bytes: u64,
    /// Bytes written to flash since the start of the row.
    pub flash_write_since_start_bytes: u64,
    /// Memory that the server accounts for.
    pub memory_bytes: u64,
    /// Resident memory of the server's process.
    pub rss_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// The hit ratio of the first [`FIRST_SECONDS`] seconds.
    pub first_hit_ratio: f64,
    /// Reads and writes per second in the first [`FIRST_SECONDS`] seconds.
    pub first_throughput: f64,
    /// Pages that were read and found right since the start of the row.
    pub verified_pages: u64,
    /// Writes since the start of the row that waited for an overlapping one.
    pub held_writes: u64,
    /// Every second since the start of the row.
    pub seconds: Vec<Second>,
    /// The server's counters over the measured window, as it gives them.
    pub counters: Stats,
}

impl Row {
    /// Puts a row together.
    ///
    /// # Errors
    /// Nothing was measured, or what was measured is not what the row stands for.
    pub fn new(measured: &Measured<'_>) -> Result<Self> {
        let Measured { kind, tally, samples, window, rss_bytes } = measured;
        let at = |second: u64| samples.get(second as usize).copied().unwrap_or_default();
        let (start, first, end) = (at(0), at(FIRST_SECONDS), at(window.end));
        let counters = end.since(&at(window.start));
        let since_start = end.since(&start);
        ensure!(
            tally.reads.count() > 0 && tally.writes.count() > 0 && counters.reads > 0,
            "row {}: nothing was read or nothing written in {} s; accepted is a trace that does \
             both",
            kind.name(),
            window.end - window.start
        );
        // On flash alone, the server's origin is the flash.
        let flash_alone = *kind == Kind::AllFlash;
        let device_reads = if flash_alone { 0 } else { counters.origin_read_bytes };
        let flash_writes =
            |s: &Stats| if flash_alone { s.origin_write_bytes } else { s.flash_write_bytes };
        let all = tally.all();
        let span = (window.end - window.start).max(1) as f64;
        let row = Self {
            name: *kind,
            throughput: tally.requests() as f64 / span,
            throughput_bytes_per_second: tally.bytes as f64 / span,
            p50_us: all.quantile_us(0.50),
            p95_us: all.quantile_us(0.95),
            p99_us: all.quantile_us(0.99),
            read_p50_us: tally.reads.quantile_us(0.50),
            read_p99_us: tally.reads.quantile_us(0.99),
            write_p50_us: tally.writes.quantile_us(0.50),
            write_p99_us: tally.writes.quantile_us(0.99),
            flush_p99_us: tally.flushes.quantile_us(0.99),
            hit_ratio: counters.hit_ratio(),
            device_reads,
            device_read_ratio: device_reads as f64 / counters.read_bytes.max(1) as f64,
            flash_write_bytes: flash_writes(&counters),
            flash_write_since_start_bytes: flash_writes(&since_start),
            memory_bytes: counters.memory_bytes,
            rss_bytes: *rss_bytes,
            reads: tally.reads.count(),
            writes: tally.writes.count(),
            flushes: tally.flushes.count(),
            first_hit_ratio: first.since(&start).hit_ratio(),
            first_throughput: tally.seconds.iter().take(FIRST_SECONDS as usize).sum::<u64>() as f64
                / FIRST_SECONDS as f64,
            verified_pages: tally.verified_pages,
            held_writes: tally.held_writes,
            seconds: seconds(tally, samples),
            counters,
        };
        row.stands_for_itself()?;
        Ok(row)
    }

    /// Refuses a row without a cache that did not get its data from the device.
    fn stands_for_itself(&self) -> Result<()> {
        ensure!(
            self.name != Kind::NoCache || self.device_read_ratio >= LEAST_DEVICE_RATIO,
            "row no-cache read {} of its {} bytes from the origin, less than a quarter: something \
             else caches, and the comparison means nothing",
            self.device_reads,
            self.counters.read_bytes
        );
        Ok(())
    }
}

/// Every second since the start.
pub(super) fn seconds(tally: &Tally, samples: &[Stats]) -> Vec<Second> {
    let spans = samples.windows(2).map(|pair| pair[1].since(&pair[0]).hit_ratio());
    let throughput = tally.seconds.iter().copied().chain(std::iter::repeat(0));
    spans.zip(throughput).map(|(hit_ratio, throughput)| Second { throughput, hit_ratio }).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::tally::Class;
    use super::*;

    /// Eight seconds, the last three measured: half of the reads hit in the first four seconds,
    /// then all of them.
    pub fn samples() -> Vec<Stats> {
        let sample = |second: u64| Stats {
            reads: second * 100,
            read_hits: second.min(4) * 50 + second.saturating_sub(4) * 100,
            read_bytes: second * 100 * 4096,
            write_bytes: second * 4096,
            flash_write_bytes: second * 8192,
            origin_read_bytes: second * 50 * 4096,
            origin_write_bytes: second * 4096,
            memory_bytes: 77,
            ..Stats::default()
        };
        (0..9).map(sample).collect()
    }

    pub fn row(kind: Kind, samples: &[Stats]) -> Result<Row> {
        let mut tally = Tally::new(Duration::from_secs(5)..Duration::from_secs(8));
        for tenth in 0..80 {
            let ended = Duration::from_millis(tenth * 100);
            tally.add(Class::Read, 4096, ended, Duration::from_micros(100));
            tally.add(Class::Write, 4096, ended, Duration::from_micros(900));
        }
        Row::new(&Measured { kind, tally: &tally, samples, window: 5..8, rss_bytes: 5 << 20 })
    }

    #[test]
    fn figures_are_of_the_window() {
        let row = row(Kind::Larder, &samples()).unwrap();
        assert_eq!((row.reads, row.writes), (30, 30));
        assert!((row.throughput - 20.0).abs() < 1e-9);
        assert!((row.hit_ratio - 1.0).abs() < 1e-9 && (row.first_hit_ratio - 0.6).abs() < 1e-9);
        assert!((row.read_p50_us / 100.0 - 1.0).abs() < 0.01);
        assert!((row.p99_us / 900.0 - 1.0).abs() < 0.01);
        assert_eq!(row.device_reads, 150 * 4096);
        assert!((row.device_read_ratio - 0.5).abs() < 1e-9);
        assert_eq!((row.flash_write_bytes, row.flash_write_since_start_bytes), (3 << 13, 8 << 13));
        assert_eq!(row.seconds.len(), 8);
        assert_eq!(row.seconds[7], Second { throughput: 20, hit_ratio: 1.0 });
    }

    #[test]
    fn without_a_slow_device_what_is_written_is_written_to_flash() {
        let row = row(Kind::AllFlash, &samples()).unwrap();
        assert_eq!((row.device_reads, row.flash_write_bytes), (0, 3 << 12));
        assert_eq!(row.counters.origin_read_bytes, 150 * 4096);
    }

    #[test]
    fn a_row_without_cache_that_is_cached_fails() {
        let mut samples = samples();
        samples.iter_mut().for_each(|s| s.origin_read_bytes /= 2);
        assert!(row(Kind::NoCache, &samples).is_ok());
        samples.iter_mut().for_each(|s| s.origin_read_bytes -= s.origin_read_bytes / 50);
        let error = row(Kind::NoCache, &samples).unwrap_err().to_string();
        assert!(error.contains("less than a quarter"), "{error}");
        assert!(row(Kind::Larder, &samples).is_ok());
    }

    #[test]
    fn the_keys_of_the_contract_are_there() {
        let value = serde_json::to_value(row(Kind::NoCache, &samples()).unwrap()).unwrap();
        assert_eq!(value["name"], "no-cache");
        for key in [
            "throughput",
            "p50_us",
            "p95_us",
            "p99_us",
            "hit_ratio",
            "device_reads",
            "flash_write_bytes",
        ] {
            assert!(value[key].is_number(), "{key}");
        }
    }
}
