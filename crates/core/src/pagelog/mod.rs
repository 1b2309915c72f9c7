// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page log: a cache in a circular log on flash (FaCE 4.3, 5).
//!
//! Pages are appended at the head and evicted at the tail in the same order (multi-version FIFO), so that all writes to
//! flash are large and sequential. A page that was referenced is appended again instead of evicted (group second chance).
//! Under policy `full` the log is part of the durable state: its pages survive a crash.
//!
//! | the ... | file |
//! | --- | --- |
//! | places on flash: header, segments, blocks | `geometry.rs` |
//! | bytes of log header, batch headers and segments | `format.rs` |
//! | words of memory: place of each page; tail and head | `words.rs`, `directory.rs`, `ended.rs`, `queue.rs` |
//! | interface to the driver | `host.rs` |
//! | write policies; their effect on a change, a FLUSH, a stop | `policy.rs`, `ops.rs` |
//! | put, flush; get | `paths.rs`; `get.rs` |
//! | tombstones | `bury.rs` |
//! | operations for callers that hold pages | `held.rs` |
//! | batches and segments made durable | `durable.rs` |
//! | flash after a failed flush, or after errors | `verify.rs` |
//! | changes past a log whose flash fails; its return | `bypass.rs` |
//! | eviction at the tail | `evict.rs` |
//! | dirty pages written to the origin | `origin.rs` |
//! | changes replayed to the origin in their order | `replay.rs`, `order.rs`, `epochs.rs` |
//! | start, recovery, stop | `recover.rs`, `open.rs` |
//! | reading a log without a change | `inspect.rs` |
//! | state, failure; errors | `status.rs`, `error.rs` |
//!
//! # Positions
//! A *position* counts blocks since the log was formatted and is never reused; its *slot* is the position modulo the number
//! of blocks. Pages are collected in memory in a *batch*: two copies of its header, then up to 64 pages. A batch is one
//! write; it never crosses the end of the ring. `tail <= evicted <= written <= head`.
//!
//! # Rules
//! L1 to L12 of docs/design.md: when a block may be overwritten (L1), when the tail moves (L2), which batch headers are valid
//! (L3), assumptions of recovery (L4), tombstones (L5), log headers and segments (L6), damage (L7, L8), seals (L9), the death of
//! a holder of the lock (L10), failed flushes (L11), and changes past a failed log (L12). Each has a mutant or a test that fails without it.
//!
//! # Memory
//! All state is a flat run of atomic words without pointers (20 bytes a slot): memory of a thread, or memory that processes
//! share. Changes are made under the host's lock, in an order that lets a holder be killed at any instruction: the head moves
//! last, and everything else is rebuilt from the slots ([`PageLog::repair`]).
//!
//! Why no fixed size of batches: a FLUSH closes a batch early, and would waste the rest of it. Why not the pages' own
//! headers, as in the paper (id, LSN): the pages of a block cache have none.

mod bury;
mod bypass;
mod directory;
mod durable;
mod ended;
mod epochs;
mod error;
mod evict;
mod format;
mod geometry;
mod get;
mod held;
mod host;
mod inspect;
mod open;
mod ops;
mod order;
mod origin;
mod paths;
mod policy;
mod queue;
mod recover;
mod replay;
mod status;
mod verify;
mod words;

#[cfg(test)]
mod device;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod in_order;
#[cfg(test)]
mod several;
#[cfg(test)]
mod tests;

pub use self::epochs::{Epochs, Seat};
pub use self::error::{OpenError, ReleaseError};
pub use self::geometry::{
    BATCH_HEADERS, BATCH_PAGES, BATCH_PAGES_MOST, Geometry, PAGE_BYTES_MOST, SEGMENT_MOST,
};
pub use self::get::{Got, Latest};
pub use self::held::Burial;
pub(crate) use self::host::until;
pub use self::host::{Burials, Host, now};
pub use self::inspect::Inspection;
pub use self::ops::Change;
pub use self::order::Order;
pub use self::paths::{New, PageLog};
pub use self::policy::{LogPolicy, LogSettings};
pub use self::recover::Found;
pub use self::status::LogStatus;
pub use self::words::{BUFFERS, PAGES_MOST, words_needed};
