// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps before a detach: exchanges end, and all dirty data is copied to the origin (a *clear*).

use std::cell::Cell;

use crate::request::Errno;

/// Progress of an update, of a clear, and towards a detach.
pub(crate) struct Detaching {
    /// An update is in progress; never at the same time as a clear.
    pub updating: Cell<bool>,
    /// Dirty data is being copied to the origin.
    pub clearing: Cell<bool>,
    /// The clear that is requested and has not begun: whether it also evicts everything.
    pub requested: Cell<Option<bool>>,
    /// Whether changes wait, from the end of a clear on, for the detach of a page log.
    pub hold_back: Cell<bool>,
    /// Result of the last clear.
    pub result: Cell<Result<(), Errno>>,
    /// No unit is exchanged: the volume stops, or the flash is about to be detached.
    pub stopped: Cell<bool>,
}

impl Default for Detaching {
    fn default() -> Self {
        Self {
            updating: Cell::new(false),
            clearing: Cell::new(false),
            requested: Cell::new(None),
            hold_back: Cell::new(false),
            result: Cell::new(Ok(())),
            stopped: Cell::new(false),
        }
    }
}

impl Detaching {
    /// Whether exchanges have ended.
    pub(crate) fn has_begun(&self) -> bool {
        self.clearing.get() || self.stopped.get()
    }

    /// Requests a clear; returns whether the caller must start it. Another clear follows one that is in progress, since that
    /// one may miss later writes.
    pub(crate) fn request(&self, evict: bool) -> bool {
        if evict {
            self.hold_back.set(true);
        }
        let requested = self.requested.get().unwrap_or(false);
        self.requested.set(Some(requested || evict));
        !self.clearing.replace(true)
    }
}
