// SPDX-License-Identifier: MIT OR Apache-2.0
//! Switches of the cache, for all processes of the server at once: whether flash is used at all (`larder.disable()` and
//! `larder.enable()`), and whether it takes changed pages instead of the disk (`policy/state.rs`, `reload.rs`).
//!
//! | state | flash takes changes | flash holds dirty pages | flash is read (first switch), gets copies of clean pages |
//! | --- | --- | --- | --- |
//! | on | yes | yes | yes |
//! | draining | no | yes | it is read |
//! | off | no | no | no |
//!
//! The second switch affects only the first two columns.
//!
//! # Invariants
//! 1. While a switch is off, flash holds no dirty page. A change is appended only if both switches are on, which is checked
//!    under the log's lock. [`Switch::begin_off`] ends that; then the caller takes the lock once: then a change is in the log, or
//!    is never appended. After that it drains the log, and only then is the switch off.
//! 2. Flash that is not used (the first switch is off) is current when it is used again. Writes, truncations and drops remove
//!    pages from the log in every state (rules P1 and P3), so that flash stays warm. A record of a frame from before is as good
//!    as any: P2 compares the epoch, which writes raise in every state.
//! 3. A drain ends in the off state only if the switch was not on in between: each change of the state to or from on has
//!    a new number.
//!
//! Why not drop all pages when the cache is disabled: the reason may be a maintenance of minutes, and a cold cache costs
//! hours. Why no latch of the log around a change of state: a drain takes holds, and a hold is never taken under a latch.

use crate::area::{Area, Mark};
use crate::error::Failure;

const ON: u64 = 0;
const DRAINING: u64 = 1;
const OFF: u64 = 2;
/// The state is in the lowest bits; the rest is its number.
const STATES: u64 = 4;

/// Why the cache was not disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOff {
    /// Dirty pages cannot be written back.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// Another process enabled it meanwhile.
    #[error("another session called larder.enable() meanwhile")]
    Enabled,
}

/// See the module.
#[derive(Clone, Copy)]
pub struct Switch<'a> {
    area: &'a Area,
    mark: Mark,
}

/// The state in which one process drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draining(u64);

/// The word after `now`, with another state.
fn next(now: u64, state: u64) -> u64 {
    (now / STATES + 1) * STATES + state
}

impl<'a> Switch<'a> {
    /// Whether flash is used.
    #[must_use]
    pub fn flash(area: &'a Area) -> Self {
        Self { area, mark: Mark::Switch }
    }

    /// Whether flash takes changes.
    #[must_use]
    pub fn changes(area: &'a Area) -> Self {
        Self { area, mark: Mark::Changes }
    }

    fn state(self) -> u64 {
        self.area.get(self.mark) % STATES
    }

    /// Whether it is on.
    #[must_use]
    pub fn is_on(self) -> bool {
        self.state() == ON
    }

    /// Whether it is off.
    #[must_use]
    pub fn is_off(self) -> bool {
        self.state() == OFF
    }

    /// Turns it on.
    pub fn on(self) {
        loop {
            let now = self.area.get(self.mark);
            if now % STATES == ON || self.area.exchange(self.mark, now, next(now, ON)) {
                return;
            }
        }
    }

    /// Turns it off at a start, when flash holds no dirty page.
    pub fn set_off(self) {
        self.area.set(self.mark, next(self.area.get(self.mark), OFF));
    }

    /// Begins to turn it off, or joins a process that does; none if it is off.
    #[must_use]
    pub fn begin_off(self) -> Option<Draining> {
        loop {
            let now = self.area.get(self.mark);
            match now % STATES {
                OFF => return None,
                // Whichever process ends its drain first sets the state.
                DRAINING => return Some(Draining(now)),
                _ if self.area.exchange(self.mark, now, next(now, DRAINING)) => {
                    return Some(Draining(next(now, DRAINING)));
                }
                _ => {}
            }
        }
    }

    /// Flash holds no dirty page, if the switch was not on meanwhile. Returns whether it is off.
    #[must_use]
    pub fn end_off(self, Draining(mine): Draining) -> bool {
        self.area.exchange(self.mark, mine, mine - DRAINING + OFF) || self.is_off()
    }

    /// Turns it off; `drain` takes the log's lock, and writes all dirty pages back.
    ///
    /// # Errors
    /// If it cannot, or another process turns it on meanwhile. Then it is on.
    pub fn off(self, drain: impl Fn() -> Result<(), Failure>) -> Result<(), NotOff> {
        let Some(mine) = self.begin_off() else { return Ok(()) };
        if let Err(failure) = drain() {
            self.area.exchange(self.mark, mine.0, next(mine.0, ON));
            return Err(failure.into());
        }
        if self.end_off(mine) { Ok(()) } else { Err(NotOff::Enabled) }
    }
}

/// The state of a switch after a crash of a backend, which restarts the server's processes: off stays off.
#[must_use]
pub fn after_crash(word: u64) -> u64 {
    if word % STATES == OFF { word } else { next(word, ON) }
}
