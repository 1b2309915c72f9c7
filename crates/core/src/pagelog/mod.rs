// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page log: the second shape of a flash cache (FaCE 4.3, 5; paper-tables 4).
//!
//! Purpose: pages enter a circular log on flash one after the other and leave it in the same order
//! (multi-version FIFO), so that all writes to flash are large and sequential. A page that was asked
//! for while it stayed is entered once more instead of leaving (group second chance). The log is part
//! of the durable state: what it holds survives a crash together with the origin.
//!
//! | the ... | file |
//! | --- | --- |
//! | places on flash: header, segments, blocks | `geometry.rs` |
//! | bytes of header, batch heads and segments | `format.rs` |
//! | words of memory: which page lies where; front and rear | `words.rs`, `directory.rs`, `queue.rs` |
//! | what it asks of whoever drives it | `host.rs` |
//! | write policies; what they make of a change, a FLUSH, a stop | `policy.rs`, `ops.rs` |
//! | put, get, flush | `paths.rs` |
//! | pages that are no more | `bury.rs` |
//! | what may be asked with pages held | `held.rs` |
//! | closed batches and segments written, the durable marks | `durable.rs` |
//! | pages leave at the front | `leave.rs` |
//! | what the origin lacks goes there | `origin.rs` |
//! | start, recovery, stop | `recover.rs`, `open.rs` |
//! | a look at what lies on flash, from outside | `look.rs` |
//! | state, failure; errors | `status.rs`, `error.rs` |
//!
//! # Positions
//! A *position* counts blocks of a page's bytes since the log was formatted and never
//! comes back; its *slot* is the position modulo the number of blocks. Pages are gathered in memory in a
//! *batch*: two copies of its head, then up to 64 pages. A batch is one write; it never crosses the end
//! of the ring. `front <= left <= written <= rear`: pages before `front` are gone.
//!
//! # Rules
//! L1 to L10 of docs/design.md: when a block may be written over (L1), when the front moves (L2), which heads count (L3),
//! what recovery assumes (L4), tombstones (L5), headers and segments (L6), damage (L7, L8), seals (L9), and the death of a
//! holder of the lock (L10). Each has a mutant or a test that fails without it.
//!
//! # Memory
//! All state lies in a flat run of atomic words without pointers (20 bytes a slot): plain memory of a
//! thread, or memory that processes share. Changes are made under the host's lock in an order such that
//! a holder may be killed at any instruction: the rear moves last, and everything else is rebuilt from
//! the slots ([`PageLog::repair`]).
//!
//! Why not places of fixed size for batches: a FLUSH closes a batch early, and would waste the rest of it.
//! Why not the pages' own headers, as in the paper (id, LSN): a block cache knows no such header.

mod bury;
mod directory;
mod durable;
mod error;
mod format;
mod geometry;
mod held;
mod host;
mod leave;
mod look;
mod open;
mod ops;
mod origin;
mod paths;
mod policy;
mod queue;
mod recover;
mod status;
mod words;

#[cfg(test)]
mod device;
#[cfg(test)]
mod several;
#[cfg(test)]
mod tests;

pub use self::error::{OpenError, ReleaseError};
pub use self::geometry::{
    BATCH_PAGES, BATCH_PAGES_MOST, Geometry, HEADS, PAGE_BYTES_MOST, SEGMENT_MOST,
};
pub use self::held::Burial;
pub use self::host::{Burials, Host, now};
pub use self::look::Look;
pub use self::ops::Change;
pub use self::paths::{Got, New, PageLog};
pub use self::policy::{LogPolicy, LogSettings};
pub use self::recover::Found;
pub use self::status::LogStatus;
pub use self::words::{BUFFERS, PAGES_MOST, words_needed};
