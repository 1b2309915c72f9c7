// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages that leave shared buffers enter flash: all, only clean ones, or only changed ones (FaCE, section 6.3
//! compares them). The shared memory has the setting of the start.
//!
//! | `larder.admit` | a clean page is evicted | a page is written |
//! | --- | --- | --- |
//! | `all` | enters | flash takes it, or gets a copy (by the policy) |
//! | `clean` | enters | the disk takes it; flash drops its version |
//! | `dirty` | does not | as with `all` |
//!
//! Invariant: correctness does not depend on it. A page that is not admitted is dropped from flash like any page that is written
//! past it (rule P1).
//!
//! Why only these: the paper's third choice, to pull more pages from the tail of the buffer pool until a batch is full, needs a
//! buffer pool that gives pages away. The stock server has no function for it: only its own background writer chooses changed
//! pages there, and the batch is filled by all processes together instead.

use crate::area::{Area, Mark};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// All pages.
    All,
    /// Pages that are clean when shared buffers evict them.
    Clean,
    /// Pages that the server writes.
    Dirty,
}

impl Admits {
    /// All choices, in the order of their numbers in shared memory.
    pub const EVERY: [Self; 3] = [Self::All, Self::Clean, Self::Dirty];

    /// The name in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Clean => "clean",
            Self::Dirty => "dirty",
        }
    }

    /// Records the setting of a start.
    pub fn set(self, area: &Area) {
        area.set(Mark::Admits, self as u64);
    }
}

/// Whether clean pages enter when shared buffers evict them.
#[must_use]
pub fn clean(area: &Area) -> bool {
    area.get(Mark::Admits) != Admits::Dirty as u64
}

/// Whether pages enter when the server writes them.
#[must_use]
pub fn written(area: &Area) -> bool {
    area.get(Mark::Admits) != Admits::Clean as u64
}
