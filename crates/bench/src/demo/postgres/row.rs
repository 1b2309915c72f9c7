// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row: one way of running the server, and what was measured of it.
//!
//! Invariants: figures are of the measured window alone, but for those that say otherwise. What flash owes the disk at the
//! window's end counts as written there: a policy that only puts writes off saves none. A row without a cache whose reads
//! did not reach the disk is an error.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use super::super::row::LEAST_DEVICE_RATIO;
use super::slow::{Counts, Traffic};
use super::tpcc::Figures;

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
    /// What the cache says of itself.
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
    /// What the load says.
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

/// A row of the table and of `postgres.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// The cache's policy.
    pub policy: Option<&'static str>,
    /// Seconds between checkpoints.
    pub checkpoint_seconds: u64,
    /// Shared buffers.
    pub shared_buffers_bytes: u64,
    /// What the load says of itself.
    #[serde(flatten)]
    pub load: Figures,
    /// Pages that flash had of those that were asked of it.
    pub hit_ratio: Option<f64>,
    /// Pages read from the slow disk, of those that the server read into shared buffers.
    pub disk_read_ratio: f64,
    /// Pages that the server read into shared buffers.
    pub blocks_read: u64,
    /// What reached the slow disk in the data directory.
    pub disk: Traffic,
    /// What reached it of the log of changes.
    pub wal: Traffic,
    /// Pages that flash owes the disk, more than at the window's begin.
    pub owed_pages: i64,
    /// Pages written to the data directory on the slow disk, or owed to it, a transaction.
    pub disk_writes_per_transaction: f64,
    /// How many of those the row saves against that without a cache and the same checkpoints.
    pub disk_writes_saved_ratio: Option<f64>,
    /// Pages written to flash.
    pub flash_pages_written: Option<u64>,
    /// Bytes of a write to flash, in the mean: pages, and two heads.
    pub flash_write_bytes: Option<u64>,
    /// Memory of the cache, beside shared buffers.
    pub memory_bytes: u64,
    /// The log of changes that was replayed for it.
    pub replay_bytes: u64,
    /// From the start after `kill -9` of all processes until connections are taken.
    pub restart_seconds: f64,
    /// What reached the slow disk in the data directory meanwhile.
    pub restart_disk: Traffic,
    /// The cache's own counters at the end.
    pub cache: Option<Value>,
}

impl Row {
    /// Puts a row together.
    ///
    /// # Errors
    /// What was measured is not what the row stands for.
    pub fn new(measured: Measured) -> Result<Self> {
        let Measured { kind, checkpoint_seconds, shared_buffers_bytes, snapshots, load, .. } =
            measured;
        let [before, after] = snapshots;
        let disk = after.disk.data.since(&before.disk.data);
        let wal = after.disk.wal.since(&before.disk.wal);
        let blocks_read = after.blocks_read.saturating_sub(before.blocks_read);
        ensure!(blocks_read > 0, "the server read no page in the measured time");
        let disk_read_ratio = (disk.read_bytes / PAGE_BYTES) as f64 / blocks_read as f64;
        let on = matches!(kind, Kind::On(_));
        ensure!(
            on || disk_read_ratio >= LEAST_DEVICE_RATIO,
            "the page cache answers: {:.0} % of the pages that the server read reached the disk, and the comparison \
             means nothing",
            disk_read_ratio * 100.0
        );
        let of = |key: &str| {
            let at = |snapshot: &Snapshot| snapshot.cache.as_ref().and_then(|c| c[key].as_u64());
            Some(at(&after)?.saturating_sub(at(&before)?))
        };
        let hit_ratio =
            of("reads").zip(of("hits")).map(|(reads, hits)| hits as f64 / reads.max(1) as f64);
        if on {
            let cache = after.cache.as_ref().context("the cache says nothing of itself")?;
            ensure!(cache["caching"] == true, "the cache did not work; the server's log says why");
        }
        let owed = |snapshot: &Snapshot| {
            let pages = snapshot.cache.as_ref().and_then(|c| c["pages_dirty"].as_i64());
            pages.unwrap_or_default()
        };
        let owed_pages = owed(&after) - owed(&before);
        let pages_written = (disk.write_bytes / PAGE_BYTES).cast_signed() + owed_pages;
        let transactions = load.transactions_per_second * load.seconds;
        Ok(Self {
            name: kind.name(),
            policy: if let Kind::On(policy) = kind { Some(policy) } else { None },
            checkpoint_seconds,
            shared_buffers_bytes,
            hit_ratio,
            disk_read_ratio,
            blocks_read,
            owed_pages,
            disk_writes_per_transaction: pages_written as f64 / transactions.max(1.0),
            disk,
            wal,
            disk_writes_saved_ratio: None,
            flash_pages_written: of("pages_written_to_flash"),
            flash_write_bytes: of("pages_written_to_flash")
                .zip(of("writes_to_flash"))
                .map(|(pages, writes)| (pages + 2 * writes) * PAGE_BYTES / writes.max(1)),
            memory_bytes: measured.memory_bytes,
            replay_bytes: measured.replay_bytes,
            restart_seconds: measured.restart_seconds,
            restart_disk: measured.restart_disk,
            cache: after.cache,
            load,
        })
    }

    /// Compares with the row without a cache and with the same checkpoints.
    pub fn compare(&mut self, off: &Self) {
        let saved =
            1.0 - self.disk_writes_per_transaction / off.disk_writes_per_transaction.max(1e-9);
        self.disk_writes_saved_ratio = Some(saved);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A hundred pages read, so many of them from the disk.
    pub fn row(kind: Kind, from_disk: u64) -> Result<Row> {
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
        let load = Figures { transactions_per_second: 10.0, seconds: 2.5, ..Figures::default() };
        Row::new(Measured {
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
        assert_eq!((on.hit_ratio, on.flash_pages_written), (Some(0.4), Some(14)));
        assert_eq!(on.flash_write_bytes, Some(9 * PAGE_BYTES));
        assert!((on.disk_read_ratio - 0.6).abs() < 1e-9);
        assert!((off.disk_writes_per_transaction - 2.0).abs() < 1e-9 && off.hit_ratio.is_none());
        assert!((on.disk_writes_per_transaction - 2.4).abs() < 1e-9, "ten pages more are owed");
        on.disk_writes_per_transaction = 0.5;
        on.compare(&off);
        assert_eq!(on.disk_writes_saved_ratio, Some(0.75));
    }

    #[test]
    fn a_row_without_a_cache_that_is_cached_fails() {
        assert!(row(Kind::Off, 25).is_ok() && row(Kind::On("bounded"), 0).is_ok());
        let error = row(Kind::Grown, 24).unwrap_err().to_string();
        assert!(error.contains("the page cache answers"), "{error}");
    }
}
