// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volume of a history: what it is made of, and where things lie on its flash.

use larder_core::buf::PAGE;
use larder_core::config::{AdmissionChoice, CacheSpec, Choices, Limits};
use larder_core::exec::Nanos;
use larder_core::format::Plan;
use larder_core::shape::Shape;
use larder_core::volumes::Volumes;

use super::kinds::Kind;
use super::promise::{Promise, Trouble};
use crate::world::lawful;

/// Events within which some request must be answered while any is in flight, if no client waits for the copy of a unit.
const PATIENCE: u64 = 20_000;
/// Events while one part of a unit is copied. Seed 3527 of the row `lawful` has 11: three shards, updates every 202
/// microseconds, devices that take at most 0.4 and 0.8 ms. The slowest devices of a seed take 2.5 times as long, and
/// slow flash is assumed to double that.
const PART: u64 = 64;
/// Requests of a volume that wait for an origin that hangs, beside those of the others.
pub(super) const HANGING: usize = 8;
/// Units that a write-back cache copies at most while their clients wait.
const SHUT: u64 = 8;

/// The volume, and the engine's settings.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name of the preset.
    pub preset: &'static str,
    /// The kind of cache.
    pub kind: &'static Kind,
    /// Its choices, with impatient settings.
    pub choices: Choices,
    /// Limits, impatient too.
    pub limits: Limits,
    /// The volume, or the space of several.
    pub shape: Shape,
    /// The volumes that share the cache.
    pub volumes: Volumes,
    /// The volume whose origin has trouble, if there are several.
    pub troubled: Option<u32>,
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
    /// Bytes of the origin in the first life. It grows up to `shape`'s, if it has fewer.
    pub first_bytes: u64,
    /// Whether the part of flash that is in use changes.
    pub resizes: bool,
    /// Whether a start may find another flash or another state file than the last one.
    pub strays: bool,
}

impl Setup {
    /// The choices of a life, counted from 0.
    pub(super) fn choices_of(&self, life: u32) -> Choices {
        (self.kind.of_life)(&self.choices, life)
    }

    /// The specification of a life.
    pub(super) fn spec(&self, life: u32) -> CacheSpec {
        lawful(&self.choices_of(life))
    }

    /// What is promised under the trouble of the plan.
    #[must_use]
    pub fn promise(&self) -> Promise {
        match self.is_detected() {
            true if self.kind.outlives_flash => Promise::Invisible,
            // What only flash had cannot be read.
            true => Promise::ErrorsPass,
            false => self.kind.promise(self.trouble),
        }
    }

    /// Whether rot of cached data is found when it is read.
    pub(super) fn is_detected(&self) -> bool {
        self.choices.verify && self.trouble == Trouble::DataRot
    }

    /// Whether anything is promised of a crash: rot of dirty data that was being overwritten is not found after one.
    pub(super) fn judges_crashes(&self) -> bool {
        !self.is_detected() || self.kind.outlives_flash
    }

    /// Whether flash may return other bytes than it was given.
    pub(super) fn may_damage(&self) -> bool {
        self.trouble.rots() || self.trouble == Trouble::FlashForgets
    }

    /// Whether the trouble of an origin concerns the volume at this offset.
    pub(super) fn is_troubled(&self, offset: u64) -> bool {
        self.troubled.is_none_or(|volume| volume == self.volumes.at(offset))
    }

    /// Whether another read follows one that the origin failed: of the request alone, or of flash.
    pub(super) fn reads_again(&self) -> bool {
        let AdmissionChoice::Selective(settings) = &self.choices.admission else { return false };
        settings.extended.is_some() || self.choices.balance.is_some()
    }

    /// Events within which some request must be answered while any is in flight.
    ///
    /// Under write-back the clients of a unit wait while it is copied: an exchange copies one unit to the origin and
    /// another to flash, a write-back of all dirty data copies the units of several slots. The copy goes part by part,
    /// and the other shards have their events meanwhile. A unit of 8 MiB has 2,048 parts of a page.
    pub(super) fn patience(&self) -> u64 {
        let parts =
            self.shape.unit_bytes.div_ceil(self.limits.population_io_bytes.max(PAGE as u64));
        PATIENCE + self.plan.slots().clamp(2, SHUT) * parts * PART
    }
}
