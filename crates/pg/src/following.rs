// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the background writer knows of a change of the policy that it carries out (`reload.rs`).

use std::cell::{Cell, RefCell};
use std::time::Instant;

use crate::server;

/// See the module.
#[derive(Default)]
pub struct Following {
    /// Why the setting does not apply, as it was reported.
    pub told: RefCell<String>,
    /// Positions before were written back.
    pub done: Cell<u64>,
    /// The end of a pause after a drain that failed.
    pub until: Cell<Option<Instant>>,
}

impl Following {
    /// Reports something, unless it is what was reported last.
    pub fn tell(&self, level: &str, what: String) {
        if *self.told.borrow() != what {
            server::say(level, &what);
            self.told.replace(what);
        }
    }
}
