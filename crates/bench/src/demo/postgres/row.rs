// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row: one way of running the server, and what was measured of it.
//!
//! Invariants: figures are of the measured window, unless their names state another. Pages that are dirty on flash at the
//! window's end count as written to the disk: a policy that only delays writes saves none. A row without a cache whose
//! reads did not reach the disk is an error.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use super::slow::{Counts, Traffic};
use super::tpcc::Figures;
use crate::demo::row::{Row, ensure_uncached};

/// PostgreSQL's page.
pub const PAGE_BYTES: u64 = 8192;
/// The policies that have a row each, in their order.
pub const POLICIES: [&str; 3] = ["through", "bounded", "full"];

/// A way of running the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Stock PostgreSQL.
    Off,
    /// With a cache under a policy.
    On(&'static str),
    /// Stock, with the memory that the cache took as shared buffers.
    Grown,
}

impl Kind {
    /// All, in their order.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let on = POLICIES.iter().map(|policy| Self::On(policy));
        std::iter::once(Self::Off).chain(on).chain([Self::Grown]).collect()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On(policy) => policy,
            Self::Grown => "off, more RAM",
        }
    }
}

/// All counters at a moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Of the slow disk.
    pub disk: Counts,
    /// Pages that the server read into shared buffers.
    pub blocks_read: u64,
    /// The cache's own counters.
    pub cache: Option<Value>,
}

/// What a row is put together from.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which.
    pub kind: Kind,
    /// Seconds between checkpoints.
    pub checkpoint_seconds: u64,
    /// Shared buffers.
    pub shared_buffers_bytes: u64,
    /// At the window's begin and end.
    pub snapshots: [Snapshot; 2],
    /// The figures of the load.
    pub load: Figures,
    /// Memory of the cache, beside shared buffers.
    pub memory_bytes: u64,
    /// The log of changes since the last checkpoint's begin, at the kill.
    pub replay_bytes: u64,
    /// From the start after `kill -9` until connections are taken.
    pub restart_seconds: f64,
    /// What reached the slow disk in the data directory meanwhile.
    pub restart_disk: Traffic,
}

/// What the rows of PostgreSQL have besides.
#[derive(Clone, Debug, Serialize)]
pub struct Details {
    /// The cache's policy.
    pub policy: Option<&'static str>,
    /// Seconds between checkpoints.
    pub checkpoint_seconds: u64,
    /// Shared buffers.
    pub shared_buffers_bytes: u64,
    /// The load's own figures.
    #[serde(flatten)]
    pub load: Figures,
    /// Pages read from the slow disk, of those that the server read into shared buffers.
    pub disk_read_ratio: f64,
    /// Pages that the server read into shared buffers.
    pub blocks_read: u64,
    /// What reached the slow disk in the data directory.
    pub disk: Traffic,
    /// What reached it of the log of changes.
    pub wal: Traffic,
    /// Dirty pages on flash, more than when the window began.
    pub owed_pages: i64,
    /// Pages written to the data directory on the slow disk, or dirty on flash, a transaction.
    pub disk_writes_per_transaction: f64,
    /// How many of those the row saves against that without a cache and the same checkpoints.
    pub disk_writes_saved_ratio: Option<f64>,
    /// Pages written to flash.
    pub flash_pages_written: Option<u64>,
    /// Bytes of a write to flash, in the mean: pages, and two batch headers.
    pub flash_write_mean_bytes: Option<u64>,
    /// The log of changes that was replayed for it.
    pub replay_bytes: u64,
    /// From the start after `kill -9` of all processes until connections are taken.
    pub restart_seconds: f64,
    /// What reached the slow disk in the data directory meanwhile.
    pub restart_disk: Traffic,
    /// The cache's own counters at the end.
    pub cache: Option<Value>,
}

/// A row of `postgres.json`; throughput and latencies are of all five transactions, hits and device
/// reads of pages of the data directory.
pub type PostgresRow = Row<Details>;

/// What the cache did in the window.
struct Cached {
    hit_ratio: f64,
    pages_written: u64,
    writes: u64,
    owed_pages: i64,
}

impl Cached {
    fn new(before: &Snapshot, after: &Snapshot) -> Result<Self> {
        let cache = after.cache.as_ref().context("the cache reports no counters")?;
        ensure!(cache["caching"] == true, "the cache did not work; the server's log states why");
        let change = |key: &str| {
            let at = |snapshot: &Snapshot| snapshot.cache.as_ref().and_then(|c| c[key].as_i64());
            at(after).unwrap_or_default() - at(before).unwrap_or_default()
        };
        let count = |key| u64::try_from(change(key)).unwrap_or_default();
        Ok(Self {
            hit_ratio: count("hits") as f64 / count("reads").max(1) as f64,
            pages_written: count("pages_written_to_flash"),
            writes: count("writes_to_flash"),
            owed_pages: change("pages_dirty"),
        })
    }

    /// Bytes written to flash: pages, and two batch headers a write.
    fn bytes_written(&self) -> u64 {
        (self.pages_written + 2 * self.writes) * PAGE_BYTES
    }
}

impl PostgresRow {
    /// Puts a row together.
    ///
    /// # Errors
    /// What was measured is not what the row stands for.
    pub fn new(measured: Measured) -> Result<Self> {
        let Measured { kind, checkpoint_seconds, shared_buffers_bytes, snapshots, load, .. } =
            measured;
        let [before, after] = snapshots;
        let disk = after.disk.data.since(&before.disk.data);
        let blocks_read = after.blocks_read.saturating_sub(before.blocks_read);
        ensure!(blocks_read > 0, "the server read no page in the measured time");
        let policy = if let Kind::On(policy) = kind { Some(policy) } else { None };
        let cached = policy.map(|_| Cached::new(&before, &after)).transpose()?;
        if cached.is_none() {
            ensure_uncached(kind.name(), disk.read_bytes, blocks_read * PAGE_BYTES)?;
        }
        let owed_pages = cached.as_ref().map_or(0, |c| c.owed_pages);
        let pages_written = (disk.write_bytes / PAGE_BYTES).cast_signed() + owed_pages;
        let transactions = load.transactions_per_second * load.seconds;
        let mean = |c: &Cached| c.bytes_written() / c.writes.max(1);
        Ok(Self {
            name: kind.name(),
            throughput: load.transactions_per_second,
            p50_us: load.p50_ms * 1e3,
            p95_us: load.p95_ms * 1e3,
            p99_us: load.p99_ms * 1e3,
            hit_ratio: cached.as_ref().map_or(0.0, |c| c.hit_ratio),
            device_reads: disk.read_bytes,
            flash_write_bytes: cached.as_ref().map_or(0, Cached::bytes_written),
            memory_bytes: measured.memory_bytes,
            details: Details {
                policy,
                checkpoint_seconds,
                shared_buffers_bytes,
                disk_read_ratio: (disk.read_bytes / PAGE_BYTES) as f64 / blocks_read as f64,
                blocks_read,
                owed_pages,
                disk_writes_per_transaction: pages_written as f64 / transactions.max(1.0),
                disk,
                wal: after.disk.wal.since(&before.disk.wal),
                disk_writes_saved_ratio: None,
                flash_pages_written: cached.as_ref().map(|c| c.pages_written),
                flash_write_mean_bytes: cached.as_ref().map(mean),
                replay_bytes: measured.replay_bytes,
                restart_seconds: measured.restart_seconds,
                restart_disk: measured.restart_disk,
                cache: after.cache,
                load,
            },
        })
    }

    /// Compares with the row without a cache and with the same checkpoints.
    pub fn compare(&mut self, off: &Self) {
        let writes = |row: &Self| row.details.disk_writes_per_transaction;
        self.details.disk_writes_saved_ratio = Some(1.0 - writes(self) / writes(off).max(1e-9));
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A hundred pages read, so many of them from the disk.
    pub fn row(kind: Kind, from_disk: u64) -> Result<PostgresRow> {
        let snapshot = |times: u64| {
            let mut disk = Counts::default();
            disk.data.read_bytes = times * from_disk * PAGE_BYTES;
            disk.data.write_bytes = times * 50 * PAGE_BYTES;
            let cache = matches!(kind, Kind::On(_)).then(|| {
                json!({
                    "caching": true, "reads": times * 100, "hits": times * 40, "pages_dirty": times * 10,
                    "pages_written_to_flash": times * 14, "writes_to_flash": times * 2
                })
            });
            Snapshot { disk, blocks_read: times * 100, cache }
        };
        let load = Figures {
            transactions_per_second: 10.0,
            seconds: 2.5,
            p50_ms: 7.0,
            ..Figures::default()
        };
        PostgresRow::new(Measured {
            kind: kind.clone(),
            checkpoint_seconds: 30,
            shared_buffers_bytes: 64 << 20,
            snapshots: [snapshot(1), snapshot(2)],
            load,
            memory_bytes: 5 << 20,
            replay_bytes: 7 << 20,
            restart_seconds: 1.5,
            restart_disk: Traffic::default(),
        })
    }

    #[test]
    fn figures_are_of_the_window() {
        let off = row(Kind::Off, 101).unwrap();
        let mut on = row(Kind::On("through"), 60).unwrap();
        assert!((on.hit_ratio - 0.4).abs() < 1e-9 && off.hit_ratio.abs() < 1e-9);
        assert!((on.throughput - 10.0).abs() < 1e-9 && (on.p50_us - 7e3).abs() < 1e-9);
        assert_eq!((on.device_reads, on.flash_write_bytes), (60 * PAGE_BYTES, 18 * PAGE_BYTES));
        let (on_details, off_details) = (&mut on.details, &off.details);
        assert_eq!(on_details.flash_pages_written, Some(14));
        assert_eq!(on_details.flash_write_mean_bytes, Some(9 * PAGE_BYTES));
        assert!((on_details.disk_read_ratio - 0.6).abs() < 1e-9);
        assert!((off_details.disk_writes_per_transaction - 2.0).abs() < 1e-9);
        let writes = on_details.disk_writes_per_transaction;
        assert!((writes - 2.4).abs() < 1e-9, "ten pages more are owed");
        on_details.disk_writes_per_transaction = 0.5;
        on.compare(&off);
        assert_eq!(on.details.disk_writes_saved_ratio, Some(0.75));
    }

    #[test]
    fn a_row_without_a_cache_that_is_cached_fails() {
        assert!(row(Kind::Off, 25).is_ok() && row(Kind::On("bounded"), 0).is_ok());
        let error = row(Kind::Grown, 24).unwrap_err().to_string();
        assert!(error.contains("another cache answered"), "{error}");
    }
}
