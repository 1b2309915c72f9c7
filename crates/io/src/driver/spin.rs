// SPDX-License-Identifier: MIT OR Apache-2.0
//! Polls briefly before a sleep: a client that waits for one reply at a time sends its next request within
//! microseconds, and another worker answers its part of a request as soon. Waking a sleeping thread costs more than that.
//!
//! The polling is bounded and adaptive: at most [`SPIN`] before a sleep, and only while a connection waits for its
//! client. After several unsuccessful polls in a row it is skipped for increasingly many sleeps. So an idle server
//! sleeps, and one whose clients think for long hardly polls.

use larder_core::exec::Nanos;

use crate::clock;

/// The longest poll: long enough for another worker to wake up and read flash.
const SPIN: Nanos = 100_000;
/// After this many unsuccessful polls in a row a pause begins.
const MISSES: u32 = 3;
/// The longest pause, in sleeps.
const MOST_PAUSE: u32 = 256;

/// The adaptive state.
#[derive(Default)]
pub(super) struct Spin {
    misses: u32,
    /// Sleeps without a poll that remain.
    pause: u32,
    next_pause: u32,
}

impl Spin {
    /// Polls until `news` is true or the time is over, unless polling is paused.
    pub(super) fn poll(&mut self, limit: Option<Nanos>, mut news: impl FnMut() -> bool) -> bool {
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        let end = limit.unwrap_or(Nanos::MAX).min(clock::now() + SPIN);
        while clock::now() < end {
            for _ in 0..32 {
                if news() {
                    *self = Self::default();
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        self.misses += 1;
        if self.misses >= MISSES {
            self.misses = MISSES - 1;
            self.next_pause = (self.next_pause * 2).clamp(8, MOST_PAUSE);
            self.pause = self.next_pause;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsuccessful_polls_become_rare_until_one_succeeds() {
        let mut spin = Spin::default();
        let mut polls = 0;
        for _ in 0..1000 {
            let mut polled = false;
            spin.poll(Some(u64::MAX), || {
                polled = true;
                false
            });
            polls += u32::from(polled);
        }
        assert!(polls < 40, "{polls} of 1000");
        while !spin.poll(None, || true) {}
        assert!(spin.poll(None, || true));
    }
}
