// SPDX-License-Identifier: MIT OR Apache-2.0
//! The switch of the cache: `larder.disable()` and `larder.enable()`, for all processes of the server at once.
//!
//! | state | flash admits and takes changes | flash is read |
//! | --- | --- | --- |
//! | on | yes | yes |
//! | draining | no | yes |
//! | off | no | no |
//!
//! # Invariants
//! 1. While the cache is off, flash holds no dirty page. A change is appended only if the cache is on, which is checked
//!    under the log's lock. [`off`] first ends that, then takes the lock once: then a change is in the log, or
//!    is never appended. After that it drains the log, and only then do reads no longer use flash.
//! 2. When the cache is on again, flash is current. Writes, truncations and drops remove pages from the log in every
//!    state (rules P1 and P3), so that flash stays warm. A record of a frame from before is as good as any: P2 compares the
//!    epoch, which writes raise in every state.
//! 3. A drain ends in the off state only if the cache was not on in between: each change of the state to or from on has
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

/// Whether flash admits pages and takes changes.
#[must_use]
pub fn is_on(area: &Area) -> bool {
    area.get(Mark::Switch) % STATES == ON
}

/// Whether no page is read from flash.
#[must_use]
pub fn is_off(area: &Area) -> bool {
    area.get(Mark::Switch) % STATES == OFF
}

/// The word after `now`, with another state.
fn next(now: u64, state: u64) -> u64 {
    (now / STATES + 1) * STATES + state
}

/// Disables the cache; `drain` takes the log's lock, and writes all dirty pages back.
///
/// # Errors
/// If it cannot, or another process enables the cache meanwhile. Then the cache is on.
pub fn off(area: &Area, drain: impl Fn() -> Result<(), Failure>) -> Result<(), NotOff> {
    let mine = loop {
        let now = area.get(Mark::Switch);
        match now % STATES {
            OFF => return Ok(()),
            // Another process drains; whichever ends first sets the state.
            DRAINING => break now,
            _ if area.exchange(Mark::Switch, now, next(now, DRAINING)) => {
                break next(now, DRAINING);
            }
            _ => {}
        }
    };
    if let Err(failure) = drain() {
        area.exchange(Mark::Switch, mine, next(mine, ON));
        return Err(failure.into());
    }
    let done = area.exchange(Mark::Switch, mine, mine - DRAINING + OFF);
    if done || is_off(area) { Ok(()) } else { Err(NotOff::Enabled) }
}

/// Enables the cache.
pub fn on(area: &Area) {
    loop {
        let now = area.get(Mark::Switch);
        if now % STATES == ON || area.exchange(Mark::Switch, now, next(now, ON)) {
            return;
        }
    }
}

/// The state after a crash of a backend, which restarts the server's processes: a disabled cache stays disabled.
#[must_use]
pub fn after_crash(word: u64) -> u64 {
    if word % STATES == OFF { word } else { next(word, ON) }
}
