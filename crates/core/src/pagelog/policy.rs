// SPDX-License-Identifier: MIT OR Apache-2.0
//! Write policies of a log.
//!
//! Invariant: a log under `through` never holds a dirty page; only a log under `full` survives a crash. `ops.rs` derives the
//! operations from that.

use super::error::OpenError;

/// Where a changed page is written, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPolicy {
    /// The origin has every write before the answer; the log holds clean pages only.
    Through,
    /// Changed pages stay in the log until a FLUSH writes them to the origin.
    Bounded,
    /// Changed pages stay in the log until their eviction; the log is part of the durable state (as in FaCE).
    Full,
    /// As `Full`, and the origin receives them in the order in which FLUSH and FUA made them durable (`replay.rs`): alone it
    /// is an older state of the volume, as after a power loss.
    Ordered,
}

/// The settings of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// See [`LogPolicy`].
    pub policy: LogPolicy,
    /// Whether referenced pages are appended again (FaCE 4.3).
    pub second_chance: bool,
}

impl LogPolicy {
    /// The policies of logs that processes may share, in the order of their numbers in shared memory.
    pub const ALL: [Self; 3] = [Self::Through, Self::Bounded, Self::Full];

    /// The name in settings and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Through => "through",
            Self::Bounded => "bounded",
            Self::Full => "full",
            Self::Ordered => "ordered",
        }
    }

    /// Whether the log may hold dirty pages.
    #[must_use]
    pub fn holds_dirty(self) -> bool {
        self != Self::Through
    }

    /// Whether the log's pages survive a crash.
    #[must_use]
    pub fn survives_crash(self) -> bool {
        matches!(self, Self::Full | Self::Ordered)
    }

    /// Whether a log that cannot be used for this reason may hold dirty pages.
    #[must_use]
    pub fn may_lose(self, error: &OpenError) -> bool {
        match self {
            Self::Through => false,
            // Dirty pages survive a stop and not a crash; with these errors it is unknown whether there was a stop.
            Self::Bounded => matches!(error, OpenError::Device { .. } | OpenError::Origin(_)),
            Self::Full | Self::Ordered => true,
        }
    }

    /// Whether the origin receives changes in their order.
    #[must_use]
    pub fn is_ordered(self) -> bool {
        self == Self::Ordered
    }
}
