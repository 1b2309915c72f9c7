// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contract of a cache: what its choices promise about acknowledged writes and about a crash.
//!
//! Two caches can be compared by their speed only if their contract is the same.

use super::choices::{Choices, Durability};

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
}
