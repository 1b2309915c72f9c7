// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contract of a cache: what its choices promise about acknowledged writes and about a crash.
//!
//! Two caches can be compared by their speed only if their contract is the same.

use super::choices::{Choices, Durability, WritePolicy};
use crate::pagelog::LogPolicy;

/// A contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// The origin has every acknowledged write. After a crash the cache is cold.
    Volatile,
    /// The origin has every acknowledged write. After a crash the cache is warm.
    Journal,
    /// Flash may hold dirty data: losing it loses acknowledged writes.
    WriteBack,
}

impl Choices {
    /// The contract of these choices.
    #[must_use]
    pub fn contract(&self) -> Contract {
        match self.durability {
            _ if self.write.flash_owns() => Contract::WriteBack,
            Durability::Volatile => Contract::Volatile,
            Durability::Journal | Durability::Log => Contract::Journal,
        }
    }

    /// Whether the origin has each answered write.
    #[must_use]
    pub fn origin_has_answers(&self) -> bool {
        self.contract() != Contract::WriteBack
    }

    /// Whether each answered write survives the end of the process, flushed or not. Dirty pages that are logged with the
    /// next FLUSH do not, nor does the open batch of a page log.
    #[must_use]
    pub fn answers_survive(&self) -> bool {
        match self.write {
            WritePolicy::AsyncWriteThrough
            | WritePolicy::WriteThrough
            | WritePolicy::WriteAround => true,
            // Before a write to a clean region of a unit its journal has the region as dirty; a page that a miss admits
            // is logged later.
            WritePolicy::WriteBack => self.admission.is_periodic(),
            WritePolicy::Logged(policy) => policy == LogPolicy::Through,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::preset;

    #[test]
    fn contracts_of_presets() {
        let of = |name| preset(name).unwrap().choices().contract();
        assert_eq!(["sce", "proc"].map(of), [Contract::Journal; 2]);
        assert_eq!(["slru", "bcache"].map(of), [Contract::Volatile; 2]);
        assert_eq!(["prwc", "face"].map(of), [Contract::WriteBack; 2]);
    }

    #[test]
    fn answers_survive_the_process_where_they_wait_for_a_device_and_its_record() {
        let survive = |choices: Choices| choices.answers_survive();
        let of = |name| survive(preset(name).unwrap().choices());
        assert_eq!(["larder", "sce", "slru", "proc", "prwc"].map(of), [true; 5]);
        assert!(!of("face"));
        let logged = |policy| Choices {
            write: WritePolicy::Logged(policy),
            ..preset("face").unwrap().choices()
        };
        assert_eq!(LogPolicy::ALL.map(logged).map(survive), [true, false, false]);
        let on_miss =
            Choices { write: WritePolicy::WriteBack, ..preset("bcache").unwrap().choices() };
        assert!(!survive(on_miss));
    }
}
