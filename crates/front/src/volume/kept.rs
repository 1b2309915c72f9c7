// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was found on a flash of this volume at a start.

use larder_core::journal::recover::Recovered;

use super::flash::FlashDevice;

/// What the metadata of all shards says.
pub(crate) enum Kept {
    /// Maps of units, by journals.
    Units(Vec<Recovered>),
    /// How far page logs have come, which their shards open themselves, how many do not count since they were
    /// not closed, and whether the origin lacks anything that they have.
    Logs { reached: Vec<(u64, u64)>, unclosed: usize, dirty: bool },
}

impl Kept {
    /// How far each shard's has come.
    pub fn reached(&self) -> Vec<(u64, u64)> {
        match self {
            Self::Units(recovered) => recovered.iter().map(Recovered::reached).collect(),
            Self::Logs { reached, .. } => reached.clone(),
        }
    }

    /// Of a flash that was just formatted.
    pub fn nothing(flash: &FlashDevice) -> Self {
        match flash.logs {
            Some(_) => Self::Logs { reached: Vec::new(), unclosed: 0, dirty: false },
            None => Self::Units(Vec::new()),
        }
    }
}
