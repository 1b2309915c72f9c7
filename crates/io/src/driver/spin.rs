// SPDX-License-Identifier: MIT OR Apache-2.0
//! A short look before a sleep: a client that waits for one answer at a time sends its next
//! request within microseconds, and waking a sleeping thread costs more than that.
//!
//! Bounded and adaptive: at most [`SPIN`] before a sleep, only while a connection is waiting for
//! its client, and when it was in vain several times in a row it is left out for ever longer
//! stretches. So an idle server sleeps, and one whose clients think for long hardly spins.

use larder_core::exec::Nanos;

use crate::clock;

/// The longest look.
const SPIN: Nanos = 40_000;
/// So many looks in vain in a row and it pauses.
const VAIN: u32 = 3;
/// The longest pause, in sleeps.
const MOST_PAUSE: u32 = 256;

/// The habit, see the module.
#[derive(Default)]
pub(super) struct Spin {
    vain: u32,
    /// Sleeps without a look that are left.
    pause: u32,
    next_pause: u32,
}

impl Spin {
    /// Looks until `news` is true or the time is over, if looking is worth while at the moment.
    pub(super) fn look(&mut self, limit: Option<Nanos>, mut news: impl FnMut() -> bool) -> bool {
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
        self.vain += 1;
        if self.vain >= VAIN {
            self.vain = VAIN - 1;
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
    fn looks_in_vain_become_rare_and_one_success_brings_them_back() {
        let mut spin = Spin::default();
        let mut looks = 0;
        for _ in 0..1000 {
            let mut looked = false;
            spin.look(Some(u64::MAX), || {
                looked = true;
                false
            });
            looks += u32::from(looked);
        }
        assert!(looks < 40, "{looks} of 1000");
        while !spin.look(None, || true) {}
        assert!(spin.look(None, || true));
    }
}
