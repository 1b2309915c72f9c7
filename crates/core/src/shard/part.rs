// SPDX-License-Identifier: MIT OR Apache-2.0
//! How flash that alone has something and the origin part: before a detach the origin gets all of it.

use std::rc::Rc;

use super::Shard;
use crate::request::Errno;

impl Shard {
    /// Copies what flash alone has to the origin, in the background; with `leave` nothing stays
    /// cached. Where that is under way already, for this or for less, it is done once more after it:
    /// it may have passed what was written since.
    pub fn clear(&self, leave: bool) {
        if leave {
            self.0.hold_back.set(true);
        }
        let asked = self.0.clear_asked.get().unwrap_or(false);
        self.0.clear_asked.set(Some(asked || leave));
        if !self.0.clearing.replace(true) {
            self.0.exec.spawn(Rc::clone(&self.0).clear());
        }
    }

    /// The flash is not taken away after all, though everything was to leave it: with a page log, whoever wants to
    /// change something waits for that from the end of such a [`clear`](Self::clear) on.
    pub fn stay(&self) {
        self.0.hold_back.set(false);
        if let Some(logged) = self.0.open_logged() {
            logged.go_on();
        }
    }

    /// How [`clear`](Self::clear) ended, if it is not under way.
    #[must_use]
    pub fn cleared(&self) -> Option<Result<(), Errno>> {
        (!self.0.clearing.get()).then(|| self.0.cleared.get())
    }
}
