// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of a cache: five choices, presets, limits, and the memory that results.
//!
//! | the ... | file |
//! | --- | --- |
//! | five choices with their settings | `choices.rs` |
//! | table of presets | `presets.rs` |
//! | what the choices promise | `contract.rs` |
//! | which choices may be combined, and the kind of cache that they make | `spec.rs` |
//! | budgets and time limits | `limits.rs` |
//! | memory of a volume | `memory.rs` |

mod choices;
mod contract;
mod limits;
mod memory;
mod presets;
mod spec;

pub use self::choices::{
    AdmissionChoice, Choices, Durability, Eviction, OnExitSettings, Placement, ReplacementChoice,
    WithPolicy, WritePolicy,
};
pub use self::contract::Contract;
pub use self::limits::Limits;
pub(crate) use self::limits::{FOREGROUND_MEMORY, LimitsInUse};
pub use self::memory::{LOG_SLOT_BYTES, Memory};
pub use self::presets::{
    DEFAULT_PRESET, FRAGMENT_BYTES_LEAST, PAGE_LOGS, PRESETS, Preset, UNIT_BYTES_LEAST,
    UNIT_BYTES_MOST, preset, presets,
};
pub use self::spec::{CacheSpec, Rejected};
pub(crate) use self::spec::{
    CleanSpec, Contents, FlashCopy, KindSpec, LogSpec, SlotSpec, WriteBackSpec,
};
