// SPDX-License-Identifier: MIT OR Apache-2.0
//! The systems of the table: every preset that the laboratory's volumes know, no cache, and flash alone.
//!
//! Invariant: rows follow from [`PRESETS`]; a new preset is a new row. A volatile preset is there twice, as it is and
//! with a journal, because only systems of one contract can be compared.

use larder_core::config::{self, PRESETS};
use serde::Serialize;

/// What a client may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Contract {
    /// There is no cache.
    #[serde(rename = "no cache")]
    NoCache,
    /// The origin has every acknowledged write, and a crash leaves the cache cold.
    #[serde(rename = "write-through, volatile")]
    Volatile,
    /// The origin has every acknowledged write, and a crash leaves the cache warm.
    #[serde(rename = "write-through, journal")]
    Journal,
    /// Flash may hold what the origin does not.
    #[serde(rename = "write-back")]
    WriteBack,
    /// All data is on flash.
    #[serde(rename = "all-flash")]
    AllFlash,
}

impl Contract {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoCache => "no cache",
            Self::Volatile => "write-through, volatile",
            Self::Journal => "write-through, journal",
            Self::WriteBack => "write-back",
            Self::AllFlash => "all-flash",
        }
    }

    /// Whether systems of this contract are compared with each other; others are shown alone.
    #[must_use]
    pub fn competes(self) -> bool {
        matches!(self, Self::Volatile | Self::Journal)
    }
}

impl From<config::Contract> for Contract {
    fn from(contract: config::Contract) -> Self {
        match contract {
            config::Contract::Volatile => Self::Volatile,
            config::Contract::Journal => Self::Journal,
            config::Contract::WriteBack => Self::WriteBack,
        }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name: the system's, with what differs from the preset.
    pub name: String,
    /// The `system` of a scenario.
    pub system: &'static str,
    /// The `durability` of a scenario, where it differs from the preset's.
    pub durability: Option<&'static str>,
    /// Whether units are exchanged by periodic updates.
    pub updates: bool,
    /// What a client may rely on.
    pub contract: Contract,
}

impl Row {
    fn bare(name: &'static str, contract: Contract) -> Self {
        Self { name: name.to_owned(), system: name, durability: None, updates: false, contract }
    }
}

/// All rows, no cache first.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut all = vec![Row::bare("no-cache", Contract::NoCache)];
    for preset in PRESETS {
        let mut choices = preset.choices();
        let contract = Contract::from(choices.contract());
        let updates = choices.periodic_mut().is_some();
        let row = Row { updates, ..Row::bare(preset.name, contract) };
        let journaled = (contract == Contract::Volatile).then(|| Row {
            name: format!("{}+journal", row.name),
            durability: Some("journal"),
            contract: Contract::Journal,
            ..row.clone()
        });
        all.push(row);
        all.extend(journaled);
    }
    all.push(Row::bare("all-flash", Contract::AllFlash));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_row_and_volatile_ones_have_a_journal_too() {
        let rows = rows();
        for preset in PRESETS {
            let own: Vec<&Row> = rows.iter().filter(|row| row.system == preset.name).collect();
            assert_eq!(own[0].name, preset.name);
            assert_eq!(own.len() == 2, own[0].contract == Contract::Volatile, "{}", preset.name);
        }
        let contract = |name: &str| rows.iter().find(|row| row.name == name).unwrap().contract;
        assert_eq!(contract("sce"), Contract::Journal);
        assert_eq!(contract("prwc"), Contract::WriteBack);
        assert_eq!(contract("bcache"), Contract::Volatile);
        assert_eq!(contract("bcache+journal"), Contract::Journal);
        assert!(!contract("all-flash").competes() && contract("proc").competes());
    }
}
