// SPDX-License-Identifier: MIT OR Apache-2.0
//! Write policies of a log, and what each promises.
//!
//! Invariant: `through` never holds a dirty page; only under `full` does the log survive a crash. `ops.rs` derives
//! the operations from that; a user of a log asks for those, not for the policy.

use super::error::OpenError;

/// What happens to pages that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPolicy {
    /// The origin has every write before it is answered; the log holds clean pages alone.
    Through,
    /// Changed pages stay in the log until a FLUSH, which brings them to the origin.
    Bounded,
    /// Changed pages stay in the log until they leave; the log is part of the durable state (the paper's).
    Full,
}

/// How a log behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// See [`LogPolicy`].
    pub policy: LogPolicy,
    /// Whether pages that were asked for are entered once more (FaCE 4.3).
    pub second_chance: bool,
}

impl LogPolicy {
    /// All policies. The order is that of the numbers which memory shared between processes holds.
    pub const ALL: [Self; 3] = [Self::Through, Self::Bounded, Self::Full];

    /// The name in settings and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Through => "through",
            Self::Bounded => "bounded",
            Self::Full => "full",
        }
    }

    /// Whether the log alone may have a page.
    #[must_use]
    pub fn holds_dirty(self) -> bool {
        self != Self::Through
    }

    /// Whether what the log holds counts after a crash.
    #[must_use]
    pub fn survives_crash(self) -> bool {
        self == Self::Full
    }

    /// Whether a log that cannot be used for this reason may hold what the origin lacks.
    #[must_use]
    pub fn may_lose(self, error: &OpenError) -> bool {
        match self {
            Self::Through => false,
            // A crash has lost it; after a stop it is there, and whether there was a stop is not known.
            Self::Bounded => matches!(error, OpenError::Device { .. } | OpenError::Origin(_)),
            Self::Full => true,
        }
    }
}
