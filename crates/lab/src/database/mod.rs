// SPDX-License-Identifier: MIT OR Apache-2.0
//! A database under TPC-C whose buffer pool has an extension on flash, in virtual time (FaCE, 6).
//!
//! Purpose: FaCE's question (what may flash do between a pool and its disks?) asked of the page log and of
//! those it is compared with. Clients run TPC-C's transactions ([`tpcc`](crate::load::trace::tpcc)) one
//! after the other without a pause; they wait for reads of pages, and for the eviction of other pages from the pool
//! first. Reads and writes take the time of the device models, queues included.
//!
//! | the ... | file |
//! | --- | --- |
//! | settings and results | this one |
//! | phases: filled, warm, counted; crash and restart | `run.rs` |
//! | clients, checkpoints; processors | `clients.rs`, `processors.rs` |
//! | buffer pool, over the frames of [`tpcc`](crate::load::trace::tpcc); the log of changes | `pool.rs`, `journal.rs` |
//! | what an extension is, and none | `extension.rs` |
//! | LC, TAC, Exadata; TAC's heat | `in_place.rs`, `temperature.rs` |
//! | bcache | `buckets.rs` |
//! | FaCE: the engine's page log | `log.rs`, `log_host.rs` |
//! | devices and clock | `machine.rs` |
//!
//! # What is modelled, and what is not
//! - The log has a device of its own (FaCE, 5) that takes no time here. A transaction takes a processor for
//!   [`Spec::computing`]. Locks, versions of rows and vacuum are left out, as in the trace of the same load.
//! - A checkpoint begins every [`Spec::checkpoint`] and is spread over half of that time, as
//!   PostgreSQL's. There is no other writer in the background.
//! - Before anything is counted the extension is filled without the devices ([`Spec::fill_laps`]), and
//!   then the database runs with them for a while.
//! - After a crash the changes since the last whole checkpoint are made again, one after the other, by
//!   pages that come from where they are (`run.rs`).
//!
//! Invariants: equal specs and devices give equal runs; no page comes back in another version than its
//! last ([`PoolCounts::wrong`] is 0).
//!
//! Why the pool is not the trace generator's own: there, no task waits for an eviction, and a page has one flag.
//! Both have the same frames and evict the same page.

mod buckets;
mod clients;
mod extension;
mod in_place;
mod journal;
mod log;
mod log_host;
mod machine;
mod pool;
mod processors;
mod run;
mod temperature;
#[cfg(test)]
mod tests;
mod waits;

use larder_core::exec::Nanos;
use larder_model::{Model, Wear};
pub use larder_policy::replacement::BucketOrder;

pub use self::extension::Frames;
pub use self::machine::{PAGE_BYTES, Tally};
pub use self::pool::PoolCounts;
pub use self::run::run;

/// Which pages an extension takes (FaCE, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caches {
    /// All.
    Mixed,
    /// Only pages that are evicted unchanged; others go to disk.
    Clean,
    /// Only changed pages.
    Dirty,
}

/// What a write does (FaCE, 4.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Flash; disk when flash evicts the page.
    Back,
    /// Flash and disk, beside each other; both are waited for.
    Through,
    /// Disk; flash loses its copy.
    Around,
}

/// When a page is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// When it was read from disk.
    OnEntry,
    /// When the pool evicts it.
    OnExit,
}

/// Which page a cache of slots evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// The least recently used.
    Lru,
    /// By the last use but one.
    Lru2,
    /// A page of the coldest extent.
    Temperature,
}

/// A cache of slots that are overwritten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InPlace {
    /// When a page is admitted.
    pub entry: Entry,
    /// Which page is evicted.
    pub victims: Victims,
    /// Above this share of dirty slots they are cleaned in the background.
    pub cleans_above: Option<f64>,
    /// Whether a directory of slots is kept up to date on flash.
    pub directory: bool,
}

impl InPlace {
    /// Lazy Cleaning.
    pub const LC: Self = Self {
        entry: Entry::OnExit,
        victims: Victims::Lru2,
        cleans_above: Some(0.8),
        directory: false,
    };
    /// Temperature-aware caching.
    pub const TAC: Self = Self {
        entry: Entry::OnEntry,
        victims: Victims::Temperature,
        cleans_above: None,
        directory: true,
    };
    /// Exadata's smart flash cache.
    pub const EXADATA: Self =
        Self { entry: Entry::OnEntry, victims: Victims::Lru, cleans_above: None, directory: false };
}

/// How pages are put on the page log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLog {
    /// Group second chance, with pages pulled from the pool (FaCE, 4.3).
    pub second_chance: bool,
    /// A batch is one write; else each of its pages is one, as in the paper without groups.
    pub batches: bool,
}

/// The cache between pool and disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum System {
    /// Nothing.
    None,
    /// One copy of a page, in a slot.
    InPlace(InPlace),
    /// bcache.
    Buckets(BucketOrder),
    /// FaCE.
    Log(PageLog),
}

/// What to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Warehouses of TPC-C.
    pub warehouses: u32,
    /// Pages of the pool.
    pub pool_pages: u32,
    /// Pages of flash.
    pub flash_pages: u32,
    /// Clients, without a pause.
    pub clients: u32,
    /// Processors of the machine.
    pub processors: u32,
    /// Time that a transaction takes of one.
    pub computing: Nanos,
    /// From the begin of a checkpoint to that of the next.
    pub checkpoint: Nanos,
    /// The cache between pool and disk.
    pub system: System,
    /// Which pages it takes.
    pub caches: Caches,
    /// What a write does.
    pub sync: Sync,
    /// How many times its own size flash must admit before anything is timed.
    pub fill_laps: u32,
    /// ... or so many transactions, if that is sooner.
    pub fill_transactions: u64,
    /// Transactions with devices that are not counted.
    pub warm_transactions: u64,
    /// Transactions that are.
    pub transactions: u64,
    /// Crashes half a checkpoint interval after the begin of a checkpoint, and restarts.
    pub crash: Option<Crash>,
    /// At the end clients stop, and every page that was ever evicted is looked up.
    pub audit: bool,
    /// The seed of the load.
    pub seed: u64,
}

/// A crash, and what is measured after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// A clean stop instead: all that was changed is made safe.
    pub stops: bool,
    /// Throughput after the restart is reported in so many spans ...
    pub spans: u32,
    /// ... of this length.
    pub span: Nanos,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Time.
    pub span_ns: Nanos,
    /// Transactions, and those of them that are New-Orders.
    pub transactions: u64,
    /// See there.
    pub new_orders: u64,
    /// The pool.
    pub pool: PoolCounts,
    /// Disk.
    pub disk: Tally,
    /// Flash.
    pub flash: Tally,
    /// Pages admitted to flash.
    pub entered: u64,
    /// Flash at the end.
    pub frames: Frames,
    /// What a drive with a flash translation layer did.
    pub wear: Option<Wear>,
    /// Laps of flash that filled it.
    pub filled_laps: f64,
    /// Changed pages that the pool evicted, and pages written to disk, from the first to the last transaction.
    pub totals: (u64, u64),
    /// Pages that an audit looked for, and those that it did not find in their last version.
    pub audited: (u64, u64),
    /// The crash.
    pub restart: Option<Restart>,
}

/// The result of a restart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restart {
    /// The time to restore flash's directory.
    pub directory_ns: Nanos,
    /// Bytes read from flash for that.
    pub directory_bytes: u64,
    /// Changes that were made again, or checked.
    pub changes: u64,
    /// The time for that.
    pub redo_ns: Nanos,
    /// Pages that redo fetched, and those of them that were on flash.
    pub redo_fetches: u64,
    /// See there.
    pub redo_flash_hits: u64,
    /// The time of a clean stop.
    pub stop_ns: Nanos,
    /// New-Orders in each span after the restart.
    pub new_orders: Vec<u64>,
    /// Pages that came back wrong after it.
    pub wrong: u64,
}

/// The devices.
pub struct Devices {
    /// Below the pool.
    pub disk: Box<dyn Model>,
    /// Of the extension.
    pub flash: Box<dyn Model>,
}
