// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row of the second part: one way of serving the file system, and what was measured of it.
//!
//! Invariants: as for the rows of the replay; throughput and latencies are of transactions.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::super::row::{LEAST_DEVICE_RATIO, Second, seconds};
use super::super::server::Stats;
use super::super::tally::Tally;

/// A way of serving the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The slow device in pass-through, by the same doors.
    Direct,
    /// The slow device behind a flash cache.
    Larder,
}

impl Kind {
    /// Both, in their order.
    pub const ALL: [Self; 2] = [Self::Direct, Self::Larder];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Larder => "larder",
        }
    }
}

/// What a row is put together from.
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
    /// Updates acknowledged since the start of the row.
    pub updates: u64,
}

/// A row of the table and of `oltp.json`; the keys are part of the contract.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: Kind,
    /// Transactions per second.
    pub throughput: f64,
    /// Half of all transactions took at most this long.
    pub p50_us: f64,
    /// Of all transactions.
    pub p95_us: f64,
    /// Of all transactions.
    pub p99_us: f64,
    /// Of those that read.
    pub read_p50_us: f64,
    /// Of those that read.
    pub read_p99_us: f64,
    /// Of those that update.
    pub update_p50_us: f64,
    /// Of those that update.
    pub update_p99_us: f64,
    /// The share of reads of the volume served wholly from flash; 0 where there is none.
    pub hit_ratio: f64,
    /// Bytes read from the slow device, population included.
    pub device_reads: u64,
    /// The same as a share of the pages that transactions asked for.
    pub device_read_ratio: f64,
    /// Bytes written to flash.
    pub flash_write_bytes: u64,
    /// Bytes written to flash since the start of the row.
    pub flash_write_since_start_bytes: u64,
    /// Memory that the server accounts for.
    pub memory_bytes: u64,
    /// Resident memory of the server's process.
    pub rss_bytes: u64,
    /// Transactions that read.
    pub reads: u64,
    /// Transactions that update.
    pub updates: u64,
    /// Updates acknowledged since the start of the row, all of which the database had in the end.
    pub updates_since_start: u64,
    /// Rows of the table that were read and found right since the start of the row.
    pub verified_rows: u64,
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
        let Measured { kind, tally, samples, window, rss_bytes, updates } = measured;
        let at = |second: u64| samples.get(second as usize).copied().unwrap_or_default();
        let counters = at(window.end).since(&at(window.start));
        ensure!(
            tally.reads.count() > 0 && tally.writes.count() > 0,
            "row {}: no transaction that reads or none that updates was done in {} s",
            kind.name(),
            window.end - window.start
        );
        let device_reads = counters.origin_read_bytes;
        let device_read_ratio = device_reads as f64 / tally.bytes.max(1) as f64;
        ensure!(
            *kind != Kind::Direct || device_read_ratio >= LEAST_DEVICE_RATIO,
            "row direct read {device_reads} bytes from the origin for {} bytes of pages that its \
             transactions asked for, less than a quarter: something else caches, and the \
             comparison means nothing",
            tally.bytes
        );
        let all = tally.all();
        let span = (window.end - window.start).max(1) as f64;
        Ok(Self {
            name: *kind,
            throughput: tally.requests() as f64 / span,
            p50_us: all.quantile_us(0.50),
            p95_us: all.quantile_us(0.95),
            p99_us: all.quantile_us(0.99),
            read_p50_us: tally.reads.quantile_us(0.50),
            read_p99_us: tally.reads.quantile_us(0.99),
            update_p50_us: tally.writes.quantile_us(0.50),
            update_p99_us: tally.writes.quantile_us(0.99),
            hit_ratio: counters.hit_ratio(),
            device_reads,
            device_read_ratio,
            flash_write_bytes: counters.flash_write_bytes,
            flash_write_since_start_bytes: at(window.end).since(&at(0)).flash_write_bytes,
            memory_bytes: counters.memory_bytes,
            rss_bytes: *rss_bytes,
            reads: tally.reads.count(),
            updates: tally.writes.count(),
            updates_since_start: *updates,
            verified_rows: tally.verified_pages,
            seconds: seconds(tally, samples),
            counters,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::super::tally::Class;
    use super::*;

    /// Two seconds of ten reading and one updating transaction each; `device` of the pages they
    /// asked for come from the device.
    pub fn row(kind: Kind, device: u64) -> Result<Row> {
        let mut tally = Tally::new(Duration::from_secs(1)..Duration::from_secs(2));
        for tenth in 0..20 {
            let ended = Duration::from_millis(tenth * 100);
            tally.add(Class::Read, 4 * 4096, ended, Duration::from_micros(500));
        }
        for ended in [Duration::ZERO, Duration::from_secs(1)] {
            tally.add(Class::Write, 4096, ended, Duration::from_micros(3000));
        }
        let sample = |second: u64| Stats {
            reads: second * 40,
            read_hits: second * 30,
            read_bytes: second * 40 * 4096,
            origin_read_bytes: second * device * 4096,
            flash_write_bytes: second * 8192,
            memory_bytes: 77,
            ..Stats::default()
        };
        let samples: Vec<_> = (0..3).map(sample).collect();
        let (window, rss_bytes) = (1..2, 5 << 20);
        let tally = &tally;
        Row::new(&Measured { kind, tally, samples: &samples, window, rss_bytes, updates: 2 })
    }

    #[test]
    fn figures_are_of_the_window() {
        let row = row(Kind::Larder, 8).unwrap();
        assert_eq!((row.reads, row.updates, row.updates_since_start), (10, 1, 2));
        assert!((row.throughput - 11.0).abs() < 1e-9 && (row.hit_ratio - 0.75).abs() < 1e-9);
        assert_eq!((row.device_reads, row.flash_write_bytes), (8 * 4096, 8192));
        assert_eq!(row.flash_write_since_start_bytes, 2 * 8192);
        assert!((row.device_read_ratio - 8.0 / 41.0).abs() < 1e-9);
        assert!((row.update_p50_us / 3000.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_direct_row_that_is_cached_fails() {
        assert!(row(Kind::Direct, 11).is_ok());
        let error = row(Kind::Direct, 10).unwrap_err().to_string();
        assert!(error.contains("less than a quarter"), "{error}");
        assert!(row(Kind::Larder, 0).is_ok());
    }

    #[test]
    fn the_keys_of_the_contract_are_there() {
        let value = serde_json::to_value(row(Kind::Direct, 40).unwrap()).unwrap();
        assert_eq!(value["name"], "direct");
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
