// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was found on a flash of this volume at a start.

use larder_core::journal::recover::Recovered;

/// What the metadata of all shards says.
pub(crate) enum Kept {
    /// Maps of units, by journals.
    Units(Vec<Recovered>),
    /// How far page logs have come, which their shards open themselves, how many do not count since they were
    /// not closed, whether the origin lacks anything that they have, and how many blocks behind their ends
    /// do not count.
    Logs { reached: Vec<(u64, u64)>, unclosed: usize, dirty: bool, torn: u64 },
}

impl Kept {
    /// What the journal of each shard says; nothing of page logs.
    pub fn recovered(self) -> Vec<Recovered> {
        match self {
            Self::Units(recovered) => recovered,
            Self::Logs { .. } => Vec::new(),
        }
    }

    /// How far each shard's has come.
    pub fn reached(&self) -> Vec<(u64, u64)> {
        match self {
            Self::Units(recovered) => recovered.iter().map(Recovered::reached).collect(),
            Self::Logs { reached, .. } => reached.clone(),
        }
    }

    /// Tells the log of the process what of it does not count.
    pub fn log_losses(&self, flash: &str) {
        let Self::Logs { unclosed, torn, .. } = *self else { return };
        if unclosed > 0 {
            tracing::warn!(
                "flash {flash} starts cold: {unclosed} of its page logs were not closed, as after a crash"
            );
        }
        if torn > 0 {
            tracing::warn!(
                "flash {flash}: the last {torn} blocks of its page logs do not count: the first batch of them is \
                 not whole, as after a power cut, or damaged since"
            );
        }
    }
}
