// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended reads: how many bytes around a request a miss reads from the origin.
//!
//! A read of the origin costs a seek, a round trip or a place in a queue whatever its size, so the neighbours of a request
//! are nearly free on some origins and dear on others. Two measures decide, both taken from the load itself:
//! - *cost*: the mean time of extended reads over that of plain reads of the same origin. Above the guard the size is
//!   halved; far below it the size is doubled;
//! - *yield*: the hits that the blocks of recent extended reads earned. If these save less time than the extension costs,
//!   only probes are extended.
//!
//! A read that is as long as the largest block reads nothing more, and its own pages are admitted: that costs no time of the
//! origin.
//!
//! Why not a fixed size: on a disk 256 KiB cost little more than 4 KiB, on a volume with a bandwidth limit they cost ten
//! times as much.

use alloc::vec::Vec;

use super::{Mean, spread};
use crate::Nanos;

/// The block of reads that are long: a page.
const OWN_BYTES: u64 = 4 << 10;
/// The smallest block.
const LEAST_BYTES: u64 = 8 << 10;
/// Larger plain reads are not compared.
const SMALL_BYTES: u64 = 64 << 10;
/// The first block.
const FIRST_BYTES: u64 = 32 << 10;
/// Reads of each sort before their means count.
const ENOUGH: u32 = 64;
/// Blocks judged before the yield counts.
const JUDGED: u32 = 32;
/// Until then one read in so many is extended.
const TRIALS: u64 = 8;
/// While extended reads pay, one read in so many is plain, which keeps the cost known.
const PLAIN_PROBES: u64 = 8;
/// While they do not pay, one read in so many is extended.
const EXTENDED_PROBES: u64 = 256;
/// Below this share of the guard the size is doubled.
const CHEAP: f64 = 0.4;
/// An extended read pays if its hits save this many times what it costs.
const MARGIN: f64 = 2.0;
/// The least cost of an extension that is assumed, in plain reads: measured means are never exact.
const LEAST_COST: f64 = 0.02;
/// Blocks whose hits are counted.
const WATCHED: usize = 64;

/// Settings of extended reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExtendedSettings {
    /// The largest block in bytes, a power of two.
    pub most_bytes: u64,
    /// An extended read may take this much longer than a plain one, as a share of it.
    pub guard: f64,
    /// Only while more than this share of the slots is free, extended reads admit units.
    pub room: f64,
}

impl Default for ExtendedSettings {
    fn default() -> Self {
        Self { most_bytes: 256 << 10, guard: 0.25, room: 0.1 }
    }
}

/// A block that an extended read brought, and the hits that it has earned.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// Unit + 1; 0 for none.
    unit: u64,
    from: u64,
    to: u64,
    hits: u32,
}

/// State of extended reads.
#[derive(Debug)]
pub struct ExtendedReads {
    settings: ExtendedSettings,
    bytes: u64,
    reads: u64,
    plain: Mean,
    extended: Mean,
    yields: Mean,
    watched: Vec<Watch>,
}

impl ExtendedReads {
    /// The policy for units of so many bytes: no block is larger than a unit.
    #[must_use]
    pub fn new(settings: &ExtendedSettings, unit_bytes: u64) -> Self {
        let settings =
            ExtendedSettings { most_bytes: settings.most_bytes.min(unit_bytes), ..*settings };
        Self {
            settings,
            bytes: FIRST_BYTES.min(settings.most_bytes),
            reads: 0,
            plain: Mean::default(),
            extended: Mean::default(),
            yields: Mean::default(),
            watched: alloc::vec![Watch::default(); WATCHED],
        }
    }

    /// Whether an extended read may admit a unit while this share of the slots is free.
    #[must_use]
    pub fn admits(&self, free_ratio: f64) -> bool {
        free_ratio > self.settings.room
    }

    /// A miss of `len` bytes reads the aligned blocks of so many bytes that cover it; `None` for a plain read.
    pub fn blocks(&mut self, len: u64) -> Option<u64> {
        match self.is_long(len) {
            true => Some(OWN_BYTES),
            false => self.block().filter(|bytes| len < *bytes),
        }
    }

    fn is_long(&self, len: u64) -> bool {
        len >= self.settings.most_bytes
    }

    /// Bytes of the aligned block that the next miss reads, unless it is long; `None` for a plain read.
    fn block(&mut self) -> Option<u64> {
        self.reads += 1;
        let every = |n: u64| self.reads.is_multiple_of(n);
        let extends = if self.yields.count < JUDGED {
            every(TRIALS)
        } else if self.pays() {
            !every(PLAIN_PROBES)
        } else {
            every(EXTENDED_PROBES)
        };
        (extends && self.bytes >= LEAST_BYTES).then_some(self.bytes)
    }

    /// Bytes of the aligned block that a read of a stream which returns reads: the neighbours will be read.
    #[must_use]
    pub fn ahead(&self) -> Option<u64> {
        let bytes = self.settings.most_bytes;
        (bytes >= LEAST_BYTES).then_some(bytes)
    }

    /// Whether the hits of a block save more time than its extension costs; false while that is not known.
    #[must_use]
    pub fn pays(&self) -> bool {
        if self.yields.count < JUDGED {
            return false;
        }
        let plain = self.plain.value;
        let cost = (self.extended.value - plain).max(LEAST_COST * plain);
        self.yields.value * plain > MARGIN * cost
    }

    /// A plain read of so many bytes took so long.
    pub fn plain_ended(&mut self, bytes: u64, took: Nanos) {
        if bytes <= SMALL_BYTES {
            self.plain.add(took as f64);
        }
    }

    /// A read of `len` bytes, which was extended to bytes `from..to` of a unit, took so long.
    pub fn extended_ended(&mut self, len: u64, unit: u64, (from, to): (u64, u64), took: Nanos) {
        if self.is_long(len) {
            return;
        }
        self.extended.add(took as f64);
        let watch = &mut self.watched[place(unit)];
        if watch.unit != 0 {
            self.yields.add(f64::from(watch.hits));
        }
        *watch = Watch { unit: unit + 1, from, to, hits: 0 };
        if self.plain.count >= ENOUGH && self.extended.count >= ENOUGH {
            self.resize();
        }
    }

    fn resize(&mut self) {
        let slower = self.extended.value / self.plain.value - 1.0;
        let next = if slower > self.settings.guard {
            (self.bytes / 2).max(LEAST_BYTES)
        } else if slower < CHEAP * self.settings.guard {
            (self.bytes * 2).min(self.settings.most_bytes)
        } else {
            self.bytes
        };
        if next != self.bytes {
            self.bytes = next;
            self.extended = Mean::default();
        }
    }

    /// A read of this byte of a unit hit, or was answered by an extended read in flight.
    #[inline]
    pub fn hit(&mut self, unit: u64, at: u64) {
        let watch = &mut self.watched[place(unit)];
        if watch.unit == unit + 1 && (watch.from..watch.to).contains(&at) {
            watch.hits += 1;
        }
    }
}

/// Where a unit is watched.
fn place(unit: u64) -> usize {
    spread(unit, WATCHED as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The policy after a load in which each block earns `hits`, a read takes 1 ms and `byte_ns` a byte.
    fn after(hits: u32, byte_ns: f64) -> ExtendedReads {
        let mut policy = ExtendedReads::new(&ExtendedSettings::default(), 1 << 20);
        for n in 0..20_000_u64 {
            match policy.block() {
                None => policy.plain_ended(4096, 1_000_000 + (4096.0 * byte_ns) as u64),
                Some(bytes) => {
                    let took = 1_000_000 + (bytes as f64 * byte_ns) as u64;
                    policy.extended_ended(4096, n, (0, bytes), took);
                    (0..hits).for_each(|_| policy.hit(n, 0));
                }
            }
        }
        policy
    }

    fn share_extended(policy: &mut ExtendedReads) -> f64 {
        (0..6400).filter(|_| policy.block().is_some()).count() as f64 / 6400.0
    }

    #[test]
    fn blocks_grow_where_bytes_are_cheap_and_shrink_where_they_are_dear() {
        assert_eq!(after(3, 0.1).bytes, 256 << 10, "a disk");
        assert_eq!(after(3, 8.0).bytes, 32 << 10, "a volume of 125 MB/s");
        assert_eq!(after(3, 200.0).bytes, LEAST_BYTES, "a thin wire");
    }

    #[test]
    fn what_earns_no_hits_is_only_probed() {
        assert!(share_extended(&mut after(3, 0.1)) > 0.8);
        assert!(share_extended(&mut after(0, 0.1)) < 0.02);
        assert!(
            share_extended(&mut after(1, 400.0)) < 0.02,
            "one hit does not pay for a slow wire"
        );
    }

    #[test]
    fn a_long_read_admits_its_own_pages_and_is_not_compared() {
        let mut policy = after(0, 400.0);
        let before = (policy.bytes, policy.extended.value, policy.yields.count);
        for unit in 0..10_000 {
            assert_eq!(policy.blocks(256 << 10), Some(OWN_BYTES));
            policy.extended_ended(256 << 10, unit, (0, 256 << 10), 1);
        }
        assert_eq!(before, (policy.bytes, policy.extended.value, policy.yields.count));
    }

    #[test]
    fn a_block_is_a_power_of_two_within_the_unit() {
        for unit_bytes in [4 << 10, 16 << 10, 64 << 10, 1 << 20] {
            let mut policy = ExtendedReads::new(&ExtendedSettings::default(), unit_bytes);
            let mut seed = 1_u64;
            for n in 0..50_000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let took = 1000 + seed % 5_000_000;
                match policy.block() {
                    None => policy.plain_ended(4096, took),
                    Some(bytes) => {
                        assert!(bytes.is_power_of_two() && bytes <= unit_bytes, "{bytes}");
                        policy.extended_ended(4096, n, (0, bytes), took);
                        policy.hit(n, seed % bytes);
                    }
                }
            }
        }
    }
}
