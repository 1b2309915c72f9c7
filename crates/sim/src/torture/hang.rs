// SPDX-License-Identifier: MIT OR Apache-2.0
//! An origin that hangs, or forgets what it had acknowledged, beside those of other volumes.
//!
//! While it hangs, its requests do not count as clients of the others, who continue. A request of another volume is answered
//! within a bound (design rule 14), which is the patience of the engine and some operations.

use larder_core::exec::{MILLISECOND, Nanos};
use rand::RngExt;

use super::history::{Judged, wrong};
use super::life::Life;
use super::promise::Trouble;
use super::setup::HANGING;
use crate::world::ORIGIN;

/// The longest hang, in patiences.
const LONGEST: u64 = 20;
/// How long a request of another volume takes at most, besides the patience: some operations, a checkpoint, an exchange.
const SLOWEST: Nanos = 60 * MILLISECOND;

impl Life<'_> {
    /// An origin stops to answer for a while, or answers again.
    pub(super) fn hang(&mut self, begins: bool) {
        if !begins {
            return self.answer();
        }
        if self.hangs_until.is_none() {
            let patience = self.setup.limits.origin_patience;
            let span = self.rng.random_range(0..LONGEST * patience);
            self.hangs_until = Some(self.world.now() + span);
            let within = self.setup.troubled.map(|volume| self.setup.volumes.range(volume));
            let faults = &mut self.world.device(ORIGIN).faults;
            (faults.within, faults.hang) = (within, true);
        }
    }

    fn answer(&mut self) {
        if self.hangs_until.take().is_some() {
            let now = self.world.now();
            self.world.device(ORIGIN).release(now);
        }
    }

    /// Whether no further request at this offset may be in flight.
    pub(super) fn is_full(&self, offset: u64) -> bool {
        let (in_flight, setup) = (self.world.in_flight(), self.setup);
        if self.hangs_until.is_none() {
            return in_flight >= setup.in_flight;
        }
        let hang = self.asked.values().filter(|asked| setup.is_troubled(asked.offset)).count();
        match setup.is_troubled(offset) {
            true => hang >= HANGING,
            false => in_flight - hang >= setup.in_flight,
        }
    }

    /// The hang ends in time, and no request of another volume waits for it.
    pub(super) fn follow_hang(&mut self) -> Judged<()> {
        let (now, setup) = (self.world.now(), self.setup);
        if self.hangs_until.is_some_and(|at| now >= at) {
            self.answer();
        }
        if setup.trouble != Trouble::OriginHangs {
            return Ok(());
        }
        let bound = setup.limits.origin_patience + SLOWEST;
        let others = self.asked.values().filter(|asked| !setup.is_troubled(asked.offset));
        match others.map(|asked| now - asked.start).max().filter(|waits| *waits > bound) {
            Some(waits) => {
                let what = format!("a request waits for {waits} ns of at most {bound} ns");
                wrong("14: an origin that hangs holds up another volume", what)
            }
            None => Ok(()),
        }
    }

    /// Whether the origin at this offset has lost writes that it had acknowledged.
    pub(super) fn has_forgotten(&mut self, offset: u64) -> bool {
        self.world.device(ORIGIN).forgot && self.setup.is_troubled(offset)
    }
}
