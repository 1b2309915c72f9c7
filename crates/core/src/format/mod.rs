// SPDX-License-Identifier: MIT OR Apache-2.0
//! The format of a flash device, and whether it may be used. No code here accesses a device or a file.
//!
//! | the ... | file |
//! | --- | --- |
//! | label: owner of the device, and places of its sections | `label.rs` |
//! | plan: all places, from choices and a size, or from a label | `plan.rs` |
//! | places of a cache of units, also for the engine; of page logs | `units.rs`, `flash_plan.rs`; `logs.rs` |
//! | checksums of cached pages; their comparison off line | `sums.rs`; `compare.rs` |
//! | sizes, and the errors for small devices | `room.rs` |
//! | reading the metadata | `kept.rs` |
//! | state record off the flash | `state.rs` |
//! | decision whether a flash may be used; its reasons | `admit.rs`; `why.rs` |

mod admit;
mod compare;
mod flash_plan;
mod kept;
pub mod label;
mod logs;
mod plan;
mod room;
mod state;
pub mod sums;
mod units;
mod why;

pub use self::admit::{
    Asked, AskedOrigin, Decision, Owner, Records, Vouched, Warm, Wishes, admit, owner,
};
pub use self::compare::{Compared, compare_data};
pub use self::flash_plan::{FlashPlan, MetadataPlan, SumsPlan};
pub use self::kept::{Kept, LogsKept, Medium, Unreadable, look_at_journal, look_at_log};
pub use self::label::{Keeps, LOG_PERIODIC};
pub use self::logs::LogsPlan;
pub use self::plan::{Plan, Unsuitable};
pub use self::room::{DeviceSize, Frame, LargeBlocks, TooSmall, slots_in};
pub use self::state::{
    FORMAT, FORMAT_SHARED, OriginFacts, OriginPlace, OriginRecord, StateRecord, superseded,
};
pub use self::units::{Metadata, SizeRefused, UnitsPlan};
pub use self::why::{Misfit, Used, WhyCold, WhyRefused};
