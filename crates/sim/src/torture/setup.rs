// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volume of a history: what it is made of, and where things lie on its flash.

use larder_core::config::{Choices, Durability, Limits};
use larder_core::exec::{DevId, Nanos};
use larder_core::format::label::LABELS_END;
use larder_core::format::{Frame, LogsPlan, Plan, UnitsPlan};
use larder_core::shape::Shape;

use super::promise::{Promise, Trouble};

/// Bytes of a journal's log: the smallest that there is, so that it fills.
const LOG_BYTES: u64 = 16 << 10;
/// The flash device's number.
pub(super) const FLASH: DevId = DevId(1);

/// The volume, and the engine's settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of the preset.
    pub preset: &'static str,
    /// Its choices, with impatient settings.
    pub choices: Choices,
    /// Limits, impatient too.
    pub limits: Limits,
    /// The volume.
    pub shape: Shape,
    /// Where things lie on flash.
    pub plan: Plan,
    /// Client requests in flight, at most.
    pub in_flight: usize,
    /// The longest that an operation on the origin takes.
    pub origin_slowest: Nanos,
    /// The longest that one on flash takes.
    pub flash_slowest: Nanos,
    /// Which copy of the metadata rots.
    pub copy: u8,
    /// What goes wrong.
    pub trouble: Trouble,
}

/// The plan of a cache of so many units: nothing but copies of the label before its metadata.
pub(super) fn units(shape: Shape, slots: u64, block_bytes: u32, choices: &Choices) -> Plan {
    let frame = Frame::packed(LABELS_END);
    Plan::Units(UnitsPlan::of(frame, shape, slots, block_bytes, choices, LOG_BYTES))
}

impl Setup {
    /// Whether metadata survives.
    #[must_use]
    pub fn is_journaled(&self) -> bool {
        self.choices.durability == Durability::Journal
    }

    /// The page logs, where there are any.
    #[must_use]
    pub fn logs(&self) -> Option<&LogsPlan> {
        match &self.plan {
            Plan::Logs(logs) => Some(logs),
            Plan::Units(_) => None,
        }
    }

    /// The places of units, where they are cached.
    #[must_use]
    pub fn units(&self) -> Option<&UnitsPlan> {
        match &self.plan {
            Plan::Units(units) => Some(units),
            Plan::Logs(_) => None,
        }
    }

    /// Whether flash owns what it holds.
    #[must_use]
    pub fn flash_owns(&self) -> bool {
        self.choices.write.flash_owns()
    }

    /// What is promised under the trouble of the plan.
    #[must_use]
    pub fn promise(&self) -> Promise {
        match self.trouble {
            // It is the only one to ask.
            Trouble::FlashErrors if self.flash_owns() => Promise::ErrorsPass,
            // A page of a log has a checksum.
            Trouble::DataRot if self.logs().is_some() => Promise::Invisible,
            trouble => trouble.promise(),
        }
    }
}
