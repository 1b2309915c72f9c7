// SPDX-License-Identifier: MIT OR Apache-2.0
//! W-TinyLFU (Einziger, Friedman and Manes, TOS 2017). New units go to a small LRU window. The unit that the window
//! evicts is admitted to the main part only if it was requested more often recently than the main part's victim.
//!
//! Variant: the window has 1 % of the slots. The main part is a segmented LRU; 80 % of it is protected, for units that
//! were accessed in the main part.
//!
//! A count-min sketch of bytes estimates the frequencies. All counts are halved after every 10 requests per slot.

use alloc::vec;
use alloc::vec::Vec;

use super::Replacement;
use super::list::{Links, Queue};

const ROWS: usize = 4;
/// Counters of a row per slot, before rounding up to a power of two.
const COUNTERS_PER_SLOT: usize = 2;
/// Requests per slot after which all counts are halved.
const PERIOD_PER_SLOT: u64 = 10;

/// Request counts of units. Apart from the halving an estimate is never too low, and rarely too high.
#[derive(Debug)]
struct Sketch {
    counts: Vec<u8>,
    mask: u64,
    seen: u64,
    period: u64,
}

impl Sketch {
    fn new(slots: u32) -> Self {
        let width = (slots as usize * COUNTERS_PER_SLOT).next_power_of_two().max(64);
        let period = (u64::from(slots) * PERIOD_PER_SLOT).max(1);
        Self { counts: vec![0; width * ROWS], mask: width as u64 - 1, seen: 0, period }
    }

    /// The unit's counter in each row. Counters of the rows are interleaved.
    fn places(&self, unit: u64) -> [usize; ROWS] {
        let mut hash = unit;
        core::array::from_fn(|row| {
            // The finaliser of splitmix64: each bit of the unit changes half of the bits of the hash.
            hash = hash.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = hash;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) & self.mask) as usize * ROWS + row
        })
    }

    fn count(&self, unit: u64) -> u8 {
        self.places(unit).iter().map(|place| self.counts[*place]).min().unwrap_or(0)
    }

    fn add(&mut self, unit: u64) {
        let places = self.places(unit);
        let least = self.count(unit);
        for place in places {
            // Conservative update: only the smallest counters are known to be too low.
            if self.counts[place] == least {
                self.counts[place] = least.saturating_add(1);
            }
        }
        self.seen += 1;
        if self.seen >= self.period {
            self.seen = 0;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Window,
    Probation,
    Protected,
}

/// State of W-TinyLFU.
#[derive(Debug)]
pub struct WTinyLfu {
    links: Links,
    window: Queue,
    probation: Queue,
    protected: Queue,
    part: Vec<Part>,
    units: Vec<u64>,
    window_most: u32,
    protected_most: u32,
    sketch: Sketch,
}

impl WTinyLfu {
    /// W-TinyLFU over `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let window_most = (slots / 100).max(1);
        Self {
            links: Links::new(slots),
            window: Queue::default(),
            probation: Queue::default(),
            protected: Queue::default(),
            part: vec![Part::Window; slots as usize],
            units: vec![0; slots as usize],
            window_most,
            protected_most: (u64::from(slots.saturating_sub(window_most)) * 4 / 5) as u32,
            sketch: Sketch::new(slots),
        }
    }

    fn queue(&mut self, part: Part) -> (&mut Queue, &mut Links) {
        let queue = match part {
            Part::Window => &mut self.window,
            Part::Probation => &mut self.probation,
            Part::Protected => &mut self.protected,
        };
        (queue, &mut self.links)
    }

    /// Makes the slot the newest of `part`.
    fn push(&mut self, slot: u32, part: Part) {
        self.part[slot as usize] = part;
        let (queue, links) = self.queue(part);
        queue.push(links, slot);
    }

    fn take(&mut self, slot: u32) {
        let (queue, links) = self.queue(self.part[slot as usize]);
        queue.remove(links, slot);
    }
}

impl Replacement for WTinyLfu {
    fn inserted(&mut self, slot: u32, unit: u64) {
        self.units[slot as usize] = unit;
        self.sketch.add(unit);
        self.push(slot, Part::Window);
        if self.window.len() > self.window_most
            && let Some(oldest) = self.window.oldest()
        {
            self.take(oldest);
            self.push(oldest, Part::Probation);
        }
    }

    fn accessed(&mut self, slot: u32) {
        self.sketch.add(self.units[slot as usize]);
        self.take(slot);
        match self.part[slot as usize] {
            Part::Window => self.push(slot, Part::Window),
            Part::Probation | Part::Protected => self.push(slot, Part::Protected),
        }
        if self.protected.len() > self.protected_most
            && let Some(oldest) = self.protected.oldest()
        {
            self.take(oldest);
            self.push(oldest, Part::Probation);
        }
    }

    fn removed(&mut self, slot: u32) {
        self.take(slot);
    }

    fn victim(
        &mut self,
        _incoming: u64,
        _set: u32,
        may_evict: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        let oldest = |queue: &Queue| queue.iter(&self.links).find(|slot| may_evict(*slot));
        let main = oldest(&self.probation).or_else(|| oldest(&self.protected));
        // While the window has room, it evicts nothing.
        let full = self.window.len() >= self.window_most;
        let candidate = if full || main.is_none() { oldest(&self.window) } else { None };
        let (Some(candidate), Some(resident)) = (candidate, main) else {
            return candidate.or(main);
        };
        let count = |slot: u32| self.sketch.count(self.units[slot as usize]);
        Some(if count(candidate) > count(resident) { resident } else { candidate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_close_and_halved_after_a_period() {
        let mut sketch = Sketch::new(1000);
        for unit in 0..1000 {
            (0..=unit % 7).for_each(|_| sketch.add(unit));
        }
        let wrong = (0..1000).filter(|u| u64::from(sketch.count(*u)) != u % 7 + 1).count();
        assert!(wrong < 50, "{wrong}");
        (0..10_000).for_each(|_| sketch.add(5000));
        assert!(sketch.count(6) <= 4 && sketch.count(5000) > 100);
    }

    #[test]
    fn a_scan_does_not_displace_frequent_units() {
        let mut policy = WTinyLfu::new(100);
        (0..100).for_each(|slot| policy.inserted(slot, u64::from(slot)));
        for _ in 0..3 {
            (0..99).for_each(|slot| policy.accessed(slot));
        }
        let mut displaced = 0;
        for unit in 1000..1100 {
            let slot = policy.victim(unit, 0, &|_| true).unwrap();
            displaced += u32::from(policy.part[slot as usize] != Part::Window);
            policy.removed(slot);
            policy.inserted(slot, unit);
        }
        // Only units that share all four counters with frequent ones.
        assert!(displaced <= 5, "{displaced}");
    }
}
