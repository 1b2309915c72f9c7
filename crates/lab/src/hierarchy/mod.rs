// SPDX-License-Identifier: MIT OR Apache-2.0
//! RAM over flash over a network over a filer, in virtual time, as in Holland et al. (3, 5).
//!
//! Purpose: Holland's question (how should RAM and flash be combined, and when should dirty
//! blocks be written back) answered for any load. Application threads have one request outstanding each;
//! caches have one chain of blocks each; a segment of network carries one packet at a time; RAM,
//! flash and filer serve any number of blocks at once, in the times of the paper's Table 1.
//!
//! | the ... | file |
//! | --- | --- |
//! | settings and results | this one |
//! | read, write and eviction | `paths.rs` |
//! | threads, syncers, their turns | `run.rs` |
//! | write-back in the background | `writeback.rs` |
//! | time: the next event | `clock.rs` |
//! | a cache of blocks | `level.rs` |
//!
//! # What the paper leaves open, and how it is here
//! - A request's blocks are asked for one after the other; each counts as a request of its own.
//! - A decision of a cache takes effect at once, and its cost follows: a block is admitted when its
//!   read is done, and a victim is gone when it is chosen, although its write takes time.
//! - Dirty victims hold the requester: it waits for the victim's write to the level below. That is
//!   how the paper's policy "none" shows.
//! - Filling a cache with what was read delays no request: the paper finds that dearer flash writes
//!   cannot be seen by the application (7.8).
//! - RAM is a subset of flash in that all blocks that are read are admitted to flash first. RAM hits do not reach
//!   flash, so flash may drop a block that is hot in RAM; RAM then keeps it.
//! - A cache has at most [`Spec::writers`] blocks on their way down at once, whatever its policy;
//!   else a syncer that wakes every second would fill the network's queue for a third of it.
//! - Other hosts' copies vanish at once and without cost when a block is written (3.8); writes that
//!   made a copy vanish are counted.
//!
//! Invariants: equal specs, sources and seeds give equal runs; under `lookaside` flash is never dirty
//! (H17); `unified` never has a block twice.
//!
//! Why not the engine under [`World`](larder_sim::world): it is one cache over one origin, with bytes that
//! tear and rules for crashes. Here blocks have no content, there are two caches, and a hundred
//! million requests must be simulated in a minute. Replacement and device figures are the engine's own.

mod clock;
mod level;
mod paths;
mod run;
mod writeback;

use larder_core::config::ReplacementChoice;
use larder_model::{Holland, Nanos};

pub use self::run::run;

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 4096;

/// How RAM and flash are combined (3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Flash below RAM, each by itself; RAM writes back to flash, flash to the filer.
    Naive,
    /// RAM writes back to the filer; flash is brought up to date after that and never dirty.
    Lookaside,
    /// One chain over the blocks of both; a new block takes the place of the oldest, whatever that
    /// is made of, and stays there.
    Unified,
}

/// When dirty blocks are written back (3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// At once; the requester waits.
    Sync,
    /// At once; no request waits.
    Async,
    /// Every so often.
    Periodic(Nanos),
    /// When they are evicted.
    None,
}

/// When an application's write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// When it is in RAM, or as RAM's policy requires: applications of the paper.
    Cached,
    /// When it is where RAM's loss does not matter, as databases ask for (O_SYNC): RAM passes it on
    /// and flash's policy decides whether flash is enough. SCE's applications (5).
    Stable,
}

/// What to simulate.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// How RAM and flash are combined.
    pub architecture: Architecture,
    /// RAM's policy.
    pub ram_policy: WriteBack,
    /// Flash's policy.
    pub flash_policy: WriteBack,
    /// When writes are answered.
    pub answered: Answered,
    /// Blocks of RAM in each host.
    pub ram_blocks: u32,
    /// Blocks of flash in each host.
    pub flash_blocks: u32,
    /// Which block either level evicts.
    pub replacement: ReplacementChoice,
    /// Hosts; each has caches and a network segment of its own, and all share the filer.
    pub hosts: u32,
    /// Application threads of each host.
    pub threads: u32,
    /// Blocks that a cache may have on their way down.
    pub writers: u32,
    /// The devices.
    pub times: Holland,
    /// Whether a segment carries one packet at a time, or any number.
    pub one_packet_at_a_time: bool,
    /// Blocks asked for before anything is counted.
    pub warm_up_blocks: u64,
    /// Which reads are fast if they reach the filer.
    pub seed: u64,
}

/// A request of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Whether it writes.
    pub write: bool,
    /// Its first block.
    pub block: u32,
    /// How many, at least one.
    pub blocks: u32,
}

/// Where requests come from.
pub trait Source {
    /// The next request of a thread of a host, `None` at the end.
    fn next(&mut self, host: u32, thread: u32) -> Option<Io>;
}

/// A block that an application got or gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Whether it was written.
    pub write: bool,
    /// How long that took.
    pub took: Nanos,
}

/// What was counted after the warm-up, over all hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks that applications read.
    pub reads: u64,
    /// Of these, found in RAM.
    pub ram_hits: u64,
    /// Of these, found in flash.
    pub flash_hits: u64,
    /// Time of all reads.
    pub read_ns: u64,
    /// Blocks that applications wrote.
    pub writes: u64,
    /// Time of all writes.
    pub write_ns: u64,
    /// Writes that made another host's copy vanish.
    pub invalidating: u64,
    /// Blocks written to flash.
    pub flash_writes: u64,
    /// Blocks written to the filer.
    pub filer_writes: u64,
    /// Victims that were dirty, for which a request waited.
    pub dirty_victims: u64,
    /// Packets.
    pub packets: u64,
    /// Virtual time.
    pub span_ns: Nanos,
    /// The most blocks that were dirty in flash at once.
    pub flash_dirty_most: u64,
}
