// SPDX-License-Identifier: MIT OR Apache-2.0
//! The volume of a history: what it is made of, and where things lie on its flash.

use larder_core::config::{AdmissionChoice, Choices, Limits};
use larder_core::exec::Nanos;
use larder_core::format::Plan;
use larder_core::shape::Shape;

use super::kinds::Kind;
use super::promise::{Promise, Trouble};

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
    /// Whether a start may find another flash or another state file than the last one.
    pub strays: bool,
}

impl Setup {
    /// What is promised under the trouble of the plan.
    #[must_use]
    pub fn promise(&self) -> Promise {
        self.kind.promise(self.trouble)
    }

    /// Whether another read follows one that the origin failed: of the request alone, or of flash.
    pub(super) fn reads_again(&self) -> bool {
        let AdmissionChoice::Selective(settings) = &self.choices.admission else { return false };
        settings.extended.is_some() || self.choices.balance.is_some()
    }
}
