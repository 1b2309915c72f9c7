// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches of units: slots on flash, written in place, and a table in memory.
//!
//! | the ... | file |
//! | --- | --- |
//! | which unit lies where, which pages are valid | `table.rs`, `validity.rs` |
//! | state that a journal saves from the table and a warm start restores | `warm.rs` |
//! | pages that a write makes invalid | `writes.rs` |
//! | slots that hold single pages of many units | `mixed.rs`; given out, recycled and logged: `singles.rs`; which page is in which place, on flash: `directory.rs` |
//! | slots of a device, read and written | `unit_cache.rs` |
//! | reads of a clean cache; its writes; reads of the origin that cover more than a request | `clean.rs`; `clean_writes.rs`; `extended.rs` |
//! | paths of a write-back cache; units that a miss admits; its dirty data | `write_back.rs`; `on_miss.rs`; `dirty_map.rs` |
//! | dirty data copied to the origin: by exchanges and clears; by the syncer, and what it learns | `copy_back.rs`; `syncer.rs`, `sync_task.rs` |
//! | operations on dirty slots, repeated and verified; what no flush covers | `dirty_flash.rs`; `flash_writes.rs` |
//! | units exchanged by an update; clients kept out of them | `exchanges.rs`; `gate.rs` |
//! | how many slots there are; those beyond a lower limit emptied | `sizes.rs`; `shrink.rs` |
//! | units that a command warms or evicts | `by_command.rs`, `warmth.rs` |
//! | units that a rule keeps or excludes | `kept.rs`, `volume_slots.rs` |
//! | shares of volumes, and volumes without slots; a volume that leaves a clean cache | `shares.rs`, `volume_slots.rs`; `leave.rs` |

mod by_command;
pub(crate) mod clean;
mod clean_writes;
mod copy_back;
pub(crate) mod directory;
pub(crate) mod dirty_flash;
pub(crate) mod dirty_map;
pub(crate) mod exchanges;
pub(crate) mod extended;
pub(crate) mod flash_writes;
mod gate;
mod kept;
mod leave;
pub(crate) mod mixed;
mod on_miss;
pub(crate) mod scrub;
mod shares;
mod shrink;
pub(crate) mod singles;
mod sizes;
mod sync_task;
pub(crate) mod syncer;
pub(crate) mod table;
pub(crate) mod unit_cache;
mod validity;
mod volume_slots;
pub(crate) mod warm;
pub(crate) mod warmth;
pub(crate) mod write_back;
pub(crate) mod writes;
