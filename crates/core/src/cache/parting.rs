// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far flash and origin are on their way to part: before a detach the origin gets all dirty data.

use std::cell::Cell;

use crate::request::Errno;

/// See the module.
pub(crate) struct Parting {
    /// An update is in progress; never at the same time as a clear.
    pub updating: Cell<bool>,
    /// Dirty data is being copied to the origin.
    pub clearing: Cell<bool>,
    /// A clear that was asked for and has not begun, and whether nothing is to stay cached.
    pub asked: Cell<Option<bool>>,
    /// Whether changes wait, from the end of a clear on, for a page log to be left.
    pub hold_back: Cell<bool>,
    /// How the last clear ended.
    pub result: Cell<Result<(), Errno>>,
    /// Nothing is to be cached any more.
    pub leaving: Cell<bool>,
}

impl Default for Parting {
    fn default() -> Self {
        Self {
            updating: Cell::new(false),
            clearing: Cell::new(false),
            asked: Cell::new(None),
            hold_back: Cell::new(false),
            result: Cell::new(Ok(())),
            leaving: Cell::new(false),
        }
    }
}

impl Parting {
    /// Whether units are no longer exchanged.
    pub(crate) fn has_begun(&self) -> bool {
        self.clearing.get() || self.leaving.get()
    }

    /// Asks for a clear; whether one must be started. With one under way, another follows it: it may have passed what
    /// was written since.
    pub(crate) fn ask(&self, leave: bool) -> bool {
        if leave {
            self.hold_back.set(true);
        }
        let asked = self.asked.get().unwrap_or(false);
        self.asked.set(Some(asked || leave));
        !self.clearing.replace(true)
    }
}
