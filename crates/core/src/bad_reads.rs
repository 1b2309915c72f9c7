// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failed reads of one place, whose bytes nothing else has: is the device at fault, or only this place?

/// Attempts to read a place of a device that works elsewhere.
const ATTEMPTS: u32 = 6;

/// Failed reads of one place.
#[derive(Default)]
pub struct BadReads {
    failures: u64,
    alone: u32,
}

impl BadReads {
    /// The read failed again. Returns how many times it has.
    pub fn failed(&mut self) -> u64 {
        self.failures += 1;
        self.failures
    }

    /// Whether to read the place again, after the device was asked for another one.
    pub fn may_pass(&mut self, elsewhere_works: bool) -> bool {
        self.alone += u32::from(elsewhere_works);
        self.alone < ATTEMPTS
    }
}
