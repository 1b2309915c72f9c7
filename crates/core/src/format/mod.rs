// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lies on a flash device, where, and whether it may be used. Pure: no device and no file is named here.
//!
//! | the ... | file |
//! | --- | --- |
//! | label: whose the device is, and where its sections lie | `label.rs` |
//! | places of everything, from choices and a size, or from a label | `plan.rs` |
//! | places of a cache of units, also as the engine sees them; of page logs | `units.rs`, `flash_plan.rs`; `logs.rs` |
//! | sizes, and what is too small | `room.rs` |
//! | what the metadata says | `kept.rs` |
//! | what is kept off the flash about it | `state.rs` |
//! | decision whether a flash may be used; its reasons | `admit.rs`; `why.rs` |
//! | what a start would make of a flash | `outlook.rs` |

mod admit;
mod flash_plan;
mod kept;
pub mod label;
mod logs;
mod outlook;
mod plan;
mod room;
mod state;
mod units;
mod why;

pub use self::admit::{Asked, Decision, Owner, Records, Vouched, Warm, Wishes, admit, owner};
pub use self::flash_plan::{FlashPlan, MetadataPlan};
pub use self::kept::{Kept, LogsKept, Medium, Unreadable, look_at_journal, look_at_log};
pub use self::label::{Keeps, LOG_PERIODIC};
pub use self::logs::LogsPlan;
pub use self::outlook::{ShardState, outlook};
pub use self::plan::{Plan, Unsuitable};
pub use self::room::{DeviceSize, Frame, LargeBlocks, TooSmall, slots_in};
pub use self::state::{FORMAT, OriginFacts, StateRecord, superseded};
pub use self::units::{Metadata, UnitsPlan};
pub use self::why::{Misfit, Used, WhyCold, WhyRefused};
