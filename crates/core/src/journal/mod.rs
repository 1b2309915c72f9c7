// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal of a unit cache: which metadata survives a crash, so that a restart is warm (design rules 8 to 10).
//!
//! One mechanism, the *touched* record: before the first write to a region of a logged unit reaches either device, a
//! record is durable that names the region. Under write-through it takes the region's pages back, so that recovery never
//! finds a page valid that may differ from the origin. Under write-back it says that the region is dirty. What is not
//! logged yet, such as a population of the last second, is lost by a crash and costs no more than that.
//!
//! | the ... | file |
//! | --- | --- |
//! | log, its committer | `log.rs` |
//! | bytes of records and blocks | `record.rs` |
//! | places on flash; a slot's entry | `layout.rs`; `entry.rs` |
//! | slots that the log names | `mapping.rs` |
//! | what both kinds of journals have; of a clean cache; of a write-back cache | `base.rs`; `clean.rs`; `dirty.rs` |
//! | whole state, written to the other half | `checkpoint.rs` |
//! | from bytes on flash to what each slot holds | `recover.rs` |
//!
//! The metadata is there in two halves; one is in force, the other receives the next checkpoint. Ordered containers
//! only: equal seeds must give equal runs.

mod base;
mod checkpoint;
mod clean;
mod dirty;
pub mod entry;
pub mod layout;
mod log;
mod mapping;
pub mod record;
pub mod recover;

pub(crate) use self::base::Journal;
pub(crate) use self::clean::CleanJournal;
pub(crate) use self::dirty::DirtyJournal;
pub(crate) use self::log::{Log, LogFailed};
