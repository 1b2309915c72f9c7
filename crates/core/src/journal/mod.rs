// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal of a unit cache: which metadata survives a crash, so that a restart is warm (design rules 8 to 10).
//!
//! Its mechanism is the *touched* record: it is durable before the first write to a region of a logged unit reaches a
//! device. Under write-through it invalidates the region's pages, so that no recovered page may differ from the origin.
//! Under write-back it marks the region as dirty. Which regions of a clean cache stay touched is a policy
//! (`larder_policy::touched`). A crash loses only cached data that is not logged, such as the
//! populations of the last second.
//!
//! | the ... | file |
//! | --- | --- |
//! | log, its committer | `log.rs` |
//! | bytes of records and blocks | `record.rs` |
//! | places on flash; a slot's entry | `layout.rs`; `entry.rs` |
//! | slots whose units are logged | `mapping.rs` |
//! | journals: common part; of a clean cache, and what it logs next; of a write-back cache | `base.rs`; `clean.rs`, `due.rs`; `dirty.rs` |
//! | volumes without which the journal of a clean cache continues: their flush failed, or is overdue | `closed.rs`; `left_out.rs` |
//! | checkpoints | `checkpoint.rs` |
//! | recovery; what a start writes: metadata without slots, a block of the log | `recover.rs`; `cut.rs`, `start.rs` |
//!
//! The metadata has two halves: the current one, and one that receives the next checkpoint. All containers are ordered:
//! equal seeds must give equal runs.

mod base;
mod checkpoint;
mod clean;
mod closed;
pub mod cut;
mod dirty;
mod due;
pub mod entry;
pub mod layout;
mod left_out;
mod log;
mod mapping;
pub mod record;
pub mod recover;
pub mod start;

pub(crate) use self::base::Journal;
pub(crate) use self::clean::CleanJournal;
pub(crate) use self::dirty::DirtyJournal;
pub(crate) use self::log::{Log, LogFailed, Ticket};
