// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which regions under write a journal keeps touched, which it cleans, and which it touches ahead of a writer.
//!
//! A *touched* region is one that recovery treats as invalid, so that a write to it needs no new record. A crash leaves
//! the touched regions cold. To *clean* a region is to log its pages as valid again; the next write to it then waits for a
//! record. The policy knows slots, and regions as bits of a mask.
//!
//! Without settings every region is cleaned by each checkpoint, and when clients pause or many slots are touched (SCE and
//! PRWC have no rule; this is the one of the first journal). With settings a region stays touched while it is written now
//! and then. It is cleaned when it was not written for some periods, or as one of the oldest when the touched regions
//! approach their budget, a share of the valid regions. The order is that of a second chance: a region that was written
//! since it was queued is queued again. Writes that advance through a slot touch the regions ahead of them.
//!
//! To clean is to flush the origin. A disk with a write cache seeks for each page in it then, and does nothing else meanwhile.
//! So flushes rest in proportion to the time that they took. Meanwhile the touched regions may exceed their budget.
//!
//! Invariants: a region is touched or not, and every touched one is queued exactly once; queue and table are bounded by the
//! budget plus what writers touch before the next cleaning.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Without settings: touched slots are cleaned when they are more than this share of the used slots ...
const EAGER_SHARE: u32 = 16;
/// ... and more than this many.
const EAGER_LEAST: u32 = 16;
/// Advances of a writer from which it counts as sequential.
const RUN: u32 = 2;

/// Settings of lazy cleaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TouchSettings {
    /// The share of the valid regions that may be touched: what a crash leaves cold.
    pub cold_ratio: f64,
    /// The most regions that may be touched: bounds the memory.
    pub most_regions: u32,
    /// A region that was not written for so many periods is cleaned.
    pub idle_periods: u32,
    /// The most regions that are touched ahead of a sequential writer.
    pub most_ahead: u32,
    /// The share of time that flushes of the origin may take.
    pub flush_share: f64,
    /// The longest rest after a flush, in nanoseconds: what a crash may find unlogged.
    pub longest_rest: u64,
}

impl Default for TouchSettings {
    fn default() -> Self {
        Self {
            cold_ratio: 0.05,
            most_regions: 1 << 14,
            idle_periods: 30,
            most_ahead: 16,
            flush_share: 0.02,
            longest_rest: 300_000_000_000,
        }
    }
}

impl TouchSettings {
    /// How long no flush follows one that took so long.
    #[must_use]
    pub fn rest(&self, took: u64) -> u64 {
        ((took as f64 * (1.0 / self.flush_share - 1.0)) as u64).min(self.longest_rest)
    }

    /// Bytes of memory for the most regions, each in a slot of its own.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        u64::from(self.most_regions) * 128
    }
}

/// What a write needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Regions to record before the write, now touched; 0 if all of its regions were touched.
    pub now: u64,
    /// Regions to record without waiting, now touched.
    pub ahead: u64,
    /// Regions that were touched before: a write to one of them need not wait for the records of others.
    pub before: u64,
}

/// The state of the cache when regions to clean are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The number of the current period.
    pub period: u32,
    /// No client wrote for a period.
    pub quiet: bool,
    /// The volume stops: everything must be cleaned.
    pub hurry: bool,
    /// Slots in use.
    pub used: u32,
    /// Regions' worth of valid pages.
    pub valid_regions: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    touched: u64,
    /// Touched regions that were written since they were queued.
    again: u64,
    /// Distinguishes queued regions of an earlier use of the slot.
    epoch: u32,
    /// The region that the last write ended in, and how often writes in a row advanced.
    last: u32,
    run: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    slot: u32,
    region: u32,
    epoch: u32,
    since: u32,
}

/// The policy, see the module.
#[derive(Debug)]
pub struct Touched {
    settings: Option<TouchSettings>,
    /// Regions of a slot.
    regions: u32,
    slots: BTreeMap<u32, Slot>,
    queue: VecDeque<Queued>,
    /// Touched regions, and those touched since the last choice.
    count: u64,
    fresh: u64,
    epoch: u32,
    period: u32,
}

impl Touched {
    /// Nothing is touched. A slot has at most 64 regions.
    #[must_use]
    pub fn new(settings: Option<TouchSettings>, regions: u32) -> Self {
        Self {
            settings,
            regions: regions.min(u64::BITS),
            slots: BTreeMap::new(),
            queue: VecDeque::new(),
            count: 0,
            fresh: 0,
            epoch: 0,
            period: 0,
        }
    }

    /// The touched regions of a slot.
    #[must_use]
    pub fn mask(&self, slot: u32) -> u64 {
        self.slots.get(&slot).map_or(0, |s| s.touched)
    }

    /// Whether nothing is touched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Touched regions.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether a slot's changes are logged only when it is cleaned.
    #[must_use]
    pub fn defers(&self, slot: u32) -> bool {
        self.settings.is_none() && self.slots.contains_key(&slot)
    }

    /// The regions of `cleaned` whose cleaning a write may cancel.
    #[must_use]
    pub fn cancellable(&self, cleaned: u64) -> u64 {
        if self.settings.is_some() { cleaned } else { 0 }
    }

    /// A write to these regions of a slot.
    pub fn write(&mut self, slot: u32, mask: u64) -> Needs {
        let known = self.mask(slot);
        let missing = mask & !known;
        let Some(settings) = self.settings else {
            let now = if missing == 0 { 0 } else { mask };
            self.touch(slot, missing);
            return Needs { now, ahead: 0, before: 0 };
        };
        self.touch(slot, missing);
        let Some(state) = self.slots.get_mut(&slot) else { return Needs::default() };
        state.again |= mask & known;
        let first = mask.trailing_zeros();
        let last = u64::BITS - 1 - mask.leading_zeros().min(u64::BITS - 1);
        let follows = first == state.last || first == state.last + 1;
        match follows {
            true => state.run = state.run.saturating_add(last - state.last),
            false => state.run = 0,
        }
        state.last = last;
        let length = if state.run < RUN { 0 } else { (2 * state.run).min(settings.most_ahead) };
        let window = |from: u32, len: u32| {
            (from..(from + len).min(self.regions)).fold(0_u64, |mask, region| mask | 1 << region)
        };
        let near = window(last + 1, length.div_ceil(2));
        let ahead = match near & !state.touched {
            0 => 0,
            _ => window(last + 1, length) & !state.touched,
        };
        self.touch(slot, ahead);
        Needs { now: missing, ahead, before: known }
    }

    /// Whether regions should be cleaned before the period ends.
    #[must_use]
    pub fn is_due(&self, valid_regions: u64) -> bool {
        let Some(settings) = &self.settings else { return false };
        let budget = settings.budget(valid_regions);
        self.count > high(budget) && self.fresh > budget / 8
    }

    /// Whether flushes of the origin may rest.
    #[must_use]
    pub fn may_rest(&self) -> bool {
        self.settings.is_some()
    }

    /// How long no flush of the origin follows one that took so long.
    #[must_use]
    pub fn rest(&self, took: u64) -> u64 {
        self.settings.map_or(0, |settings| settings.rest(took))
    }

    /// Chooses regions of up to `most` slots to clean; they are no longer touched. `stays`: the regions of a slot stay touched.
    /// `is_busy`: a write to one of them is in flight.
    pub fn choose(
        &mut self,
        now: Now,
        most: usize,
        (stays, is_busy): (impl Fn(u32) -> bool, impl Fn(u32, u64) -> bool),
    ) -> Vec<(u32, u64)> {
        (self.period, self.fresh) = (now.period, 0);
        let Some(settings) = self.settings else {
            let many = self.slots.len() as u32 > (now.used / EAGER_SHARE).max(EAGER_LEAST);
            return if now.quiet || many { self.take_slots(most, stays) } else { Vec::new() };
        };
        if now.hurry {
            return self.take_slots(most, stays);
        }
        let budget = settings.budget(now.valid_regions);
        // From three quarters of the budget down to a half.
        let keep = if self.count > high(budget) { budget / 2 } else { u64::MAX };
        let mut chosen: BTreeMap<u32, u64> = BTreeMap::new();
        // Twice: once to use up the second chances.
        for _ in 0..2 * self.queue.len() {
            let Some(first) = self.queue.pop_front() else { break };
            let Some(state) = self.slots.get_mut(&first.slot) else { continue };
            let bit = 1_u64 << first.region;
            if state.epoch != first.epoch || state.touched & bit == 0 {
                continue;
            }
            let again = state.again & bit != 0;
            state.again &= !bit;
            let is_idle = now.period.saturating_sub(first.since) >= settings.idle_periods;
            let is_full = chosen.len() >= most && !chosen.contains_key(&first.slot);
            if !again && (is_full || !is_idle && self.count <= keep) {
                self.queue.push_front(first);
                break;
            }
            if again || stays(first.slot) || is_busy(first.slot, bit) {
                self.queue.push_back(Queued { since: now.period, ..first });
                continue;
            }
            state.touched &= !bit;
            if state.touched == 0 {
                self.slots.remove(&first.slot);
            }
            self.count -= 1;
            *chosen.entry(first.slot).or_default() |= bit;
        }
        chosen.into_iter().collect()
    }

    /// The regions that a checkpoint cleans; they are no longer touched.
    pub fn choose_at_checkpoint(&mut self) -> BTreeMap<u32, u64> {
        if self.settings.is_some() {
            return BTreeMap::new();
        }
        self.take_slots(usize::MAX, |_| false).into_iter().collect()
    }

    /// These regions are touched after all: a write or an error cancelled their cleaning.
    pub fn put_back(&mut self, slot: u32, mask: u64) {
        let missing = mask & !self.mask(slot);
        self.touch(slot, missing);
    }

    /// The slot holds another unit, or none.
    pub fn forget(&mut self, slot: u32) {
        if let Some(state) = self.slots.remove(&slot) {
            self.count -= u64::from(state.touched.count_ones());
        }
    }

    fn take_slots(&mut self, most: usize, stays: impl Fn(u32) -> bool) -> Vec<(u32, u64)> {
        let taken: Vec<(u32, u64)> = self
            .slots
            .iter()
            .filter(|(slot, _)| !stays(**slot))
            .take(most)
            .map(|(slot, state)| (*slot, state.touched))
            .collect();
        taken.iter().for_each(|(slot, _)| self.forget(*slot));
        taken
    }

    /// Marks regions that are not touched.
    fn touch(&mut self, slot: u32, mask: u64) {
        if mask == 0 {
            return;
        }
        let epoch = &mut self.epoch;
        let state = self.slots.entry(slot).or_insert_with(|| {
            *epoch = epoch.wrapping_add(1);
            Slot { epoch: *epoch, last: u64::BITS, ..Slot::default() }
        });
        state.touched |= mask;
        let count = u64::from(mask.count_ones());
        (self.count, self.fresh) = (self.count + count, self.fresh + count);
        if self.settings.is_none() {
            return;
        }
        let (epoch, since) = (state.epoch, self.period);
        let bits = (0..u64::BITS).filter(|region| mask >> region & 1 == 1);
        self.queue.extend(bits.map(|region| Queued { slot, region, epoch, since }));
        // Slots that were forgotten leave queued regions behind.
        if self.queue.len() as u64 > 2 * self.count + 64 {
            let slots = &self.slots;
            self.queue.retain(|queued| {
                let state = slots.get(&queued.slot).filter(|s| s.epoch == queued.epoch);
                state.is_some_and(|s| s.touched >> queued.region & 1 == 1)
            });
        }
    }
}

impl TouchSettings {
    fn budget(&self, valid_regions: u64) -> u64 {
        ((valid_regions as f64 * self.cold_ratio) as u64).min(u64::from(self.most_regions))
    }
}

/// Touched regions above which cleaning begins.
fn high(budget: u64) -> u64 {
    budget / 4 * 3
}

#[cfg(test)]
mod tests;
