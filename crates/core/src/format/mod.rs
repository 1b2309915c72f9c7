// SPDX-License-Identifier: MIT OR Apache-2.0
//! What lies on a flash device, and where.
//!
//! | the ... | file |
//! | --- | --- |
//! | label: whose the device is, and where its sections lie | `label.rs` |
//! | places of everything, from choices and a size, or from a label | `plan.rs` |
//! | places of a cache of units, also as the engine sees them; of page logs | `units.rs`, `flash_plan.rs`; `logs.rs` |
//! | sizes, and what is too small | `room.rs` |

mod flash_plan;
pub mod label;
mod logs;
mod plan;
mod room;
mod units;

pub use self::flash_plan::{FlashPlan, MetadataPlan};
pub use self::label::{Keeps, LOG_PERIODIC};
pub use self::logs::LogsPlan;
pub use self::plan::{Plan, Unsuitable};
pub use self::room::{DeviceSize, Frame, TooSmall, slots_in};
pub use self::units::{Metadata, UnitsPlan};
