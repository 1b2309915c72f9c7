// SPDX-License-Identifier: MIT OR Apache-2.0
//! Belady's MIN evicts the unit whose next access is the farthest. No policy that admits every miss has fewer misses.
//!
//! It needs the future: all accesses are kept, 8 bytes each ([`memory_bytes`]), so it is no policy
//! of the engine.

use std::collections::BinaryHeap;

use larder_trace::watch;

use super::Hits;
use super::units::Units;

/// Never asked for again.
const NEVER: u32 = u32::MAX;

/// Accesses between two checks of the watch.
const WATCHED: usize = 1 << 16;

/// Bytes that [`Future`] takes at most.
#[must_use]
pub fn memory_bytes(accesses: u64, unique: u64) -> u64 {
    // A unit: its cell and group, its last access and next access, and two places in the heap.
    accesses * 8 + unique * (90 + 8 + 32)
}

/// The accesses of a trace, in order.
#[derive(Default)]
pub struct Future {
    units: Units,
    unique: u32,
    /// The unit of each access, numbered in the order of appearance.
    accesses: Vec<u32>,
}

impl Future {
    /// The most accesses that it can hold.
    pub const MOST: u64 = NEVER as u64 - 1;

    /// Adds the next access.
    pub fn push(&mut self, unit: u64) {
        let cell = self.units.cell(unit);
        let number = &mut self.units.cells[cell];
        if *number == Units::NEW {
            *number = self.unique;
            self.unique += 1;
        }
        self.accesses.push(*number);
    }

    /// Replays them through a cache of so many units. If the work is stopped, the counts are those of a part.
    #[must_use]
    pub fn replay(self, capacity: u32) -> Hits {
        let Self { units, unique, accesses } = self;
        drop(units);
        let mut next = vec![NEVER; accesses.len()];
        let mut last = vec![NEVER; unique as usize];
        for (at, unit) in accesses.iter().enumerate().rev() {
            next[at] = std::mem::replace(&mut last[*unit as usize], at as u32);
        }
        // From now on: when a resident unit is asked for next, and nothing for the others.
        let mut resident: Vec<Option<u32>> = vec![None; unique as usize];
        let mut heap = BinaryHeap::new();
        let (mut used, mut misses) = (0, 0);
        let watch = watch::current();
        for (at, unit) in accesses.iter().enumerate() {
            if at % WATCHED == 0 && watch.as_ref().is_some_and(|watch| watch.is_stopped()) {
                break;
            }
            if resident[*unit as usize].is_none() {
                misses += 1;
                if used < capacity {
                    used += 1;
                } else if let Some(victim) = last_of_all(&mut heap, &resident) {
                    resident[victim as usize] = None;
                }
            }
            resident[*unit as usize] = Some(next[at]);
            heap.push((next[at], *unit));
            // Entries of the past sink to the bottom; clear them out now and then.
            if heap.len() > 2 * used as usize + 64 {
                heap.retain(|(next, unit)| resident[*unit as usize] == Some(*next));
            }
        }
        Hits { accesses: accesses.len() as u64, unique: unique.into(), misses }
    }
}

fn last_of_all(heap: &mut BinaryHeap<(u32, u32)>, resident: &[Option<u32>]) -> Option<u32> {
    while let Some((next, unit)) = heap.pop() {
        if resident[unit as usize] == Some(next) {
            return Some(unit);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_textbooks_example() {
        let mut future = Future::default();
        let units = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
        units.iter().for_each(|unit| future.push(*unit));
        assert_eq!(future.replay(3), Hits { accesses: 20, unique: 6, misses: 9 });
    }

    /// Against all ways to choose victims, on short sequences over few units.
    #[test]
    fn no_choice_of_victims_has_fewer_misses() {
        fn least(accesses: &[u64], resident: &[u64]) -> u64 {
            let Some((first, rest)) = accesses.split_first() else { return 0 };
            if resident.contains(first) {
                return least(rest, resident);
            }
            let with = |out: Option<usize>| {
                let mut next = resident.to_vec();
                out.map(|at| next.remove(at));
                next.push(*first);
                1 + least(rest, &next)
            };
            if resident.len() < 2 {
                return with(None);
            }
            (0..2).map(|at| with(Some(at))).min().unwrap()
        }
        let mut seed = 1_u64;
        for _ in 0..300 {
            let accesses: Vec<u64> = (0..12)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 33) % 5
                })
                .collect();
            let mut future = Future::default();
            accesses.iter().for_each(|unit| future.push(*unit));
            assert_eq!(future.replay(2).misses, least(&accesses, &[]), "{accesses:?}");
        }
    }
}
