// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order of overlapping writes on a volume that is also a file.
//!
//! Purpose: a write of part of a block is a read and a write of the block. If another write touched the block between
//! them, its bytes would be lost. Writes of whole blocks need no order here: the engine orders them (design rule 3).
//!
//! Invariants: of two overlapping ranges in flight, neither is exclusive. No overlapping range overtakes one that waits, so
//! that no range waits without end. Jobs run outside of the lock, on the thread that found their range free.
//!
//! NBD writes take part from the moment when the volume first becomes a file ([`Overlaps::begin`]); a volume that is not a
//! file has no cost.
//!
//! Why not one lock a block: a write of whole blocks would take hundreds. Why not a thread that waits: the reader threads
//! must continue to read requests.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slab::Slab;

/// A range of bytes, and whether it is exclusive.
#[derive(Clone, Debug)]
struct Claim {
    range: Range<u64>,
    exclusive: bool,
}

impl Claim {
    fn excludes(&self, other: &Self) -> bool {
        (self.exclusive || other.exclusive)
            && self.range.start < other.range.end
            && other.range.start < self.range.end
    }
}

type Job = Box<dyn FnOnce(Pass) + Send>;

#[derive(Default)]
struct Table {
    held: Slab<Claim>,
    /// Exclusive ones among those held.
    exclusive: usize,
    waiting: VecDeque<(Claim, Job)>,
}

impl Table {
    /// Whether a claim behind the first `before` waiting ones may begin.
    fn is_free(&self, claim: &Claim, before: usize) -> bool {
        if !claim.exclusive && self.exclusive == 0 && before == 0 {
            return true;
        }
        let held = self.held.iter().any(|(_, other)| other.excludes(claim));
        !held && !self.waiting.iter().take(before).any(|(other, _)| other.excludes(claim))
    }

    fn hold(&mut self, claim: Claim) -> usize {
        self.exclusive += usize::from(claim.exclusive);
        self.held.insert(claim)
    }
}

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    /// The volume is a file, or has been one.
    begun: AtomicBool,
}

/// The table of a volume, see the module.
#[derive(Clone, Default)]
pub struct Overlaps(Arc<Shared>);

/// A range that is held until this is dropped.
pub struct Pass {
    overlaps: Overlaps,
    number: usize,
}

impl Overlaps {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits writes of parts of blocks from now on.
    pub fn begin(&self) {
        self.0.begun.store(true, Ordering::SeqCst);
    }

    /// Whether writes of whole blocks need a pass.
    pub fn has_begun(&self) -> bool {
        self.0.begun.load(Ordering::SeqCst)
    }

    /// A pass for whole blocks, if it is free at once.
    pub fn try_enter(&self, range: &Range<u64>) -> Option<Pass> {
        let claim = Claim { range: range.clone(), exclusive: false };
        let mut table = self.lock();
        let waiting = table.waiting.len();
        if !table.is_free(&claim, waiting) {
            return None;
        }
        let number = table.hold(claim);
        Some(Pass { overlaps: self.clone(), number })
    }

    /// Runs `job` once the range may be written: at once on this thread, or later on the thread that releases the last
    /// conflicting range.
    pub fn enter(
        &self,
        range: Range<u64>,
        exclusive: bool,
        job: impl FnOnce(Pass) + Send + 'static,
    ) {
        let claim = Claim { range, exclusive };
        let mut table = self.lock();
        let waiting = table.waiting.len();
        if !table.is_free(&claim, waiting) {
            return table.waiting.push_back((claim, Box::new(job)));
        }
        let number = table.hold(claim);
        drop(table);
        job(Pass { overlaps: self.clone(), number });
    }

    /// Releases a range; returns the jobs that may begin.
    fn leave(&self, number: usize) -> Vec<(usize, Job)> {
        let mut table = self.lock();
        let claim = table.held.remove(number);
        table.exclusive -= usize::from(claim.exclusive);
        let (mut free, mut i) = (Vec::new(), 0);
        while let Some((claim, _)) = table.waiting.get(i) {
            if !table.is_free(claim, i) {
                i += 1;
            } else if let Some((claim, job)) = table.waiting.remove(i) {
                free.push((table.hold(claim), job));
            }
        }
        free
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        for (number, job) in self.overlaps.leave(self.number) {
            job(Pass { overlaps: self.overlaps.clone(), number });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn enter(overlaps: &Overlaps, range: Range<u64>, exclusive: bool) -> Receiver<Pass> {
        let (sender, receiver) = channel();
        overlaps.enter(range, exclusive, move |pass| sender.send(pass).unwrap());
        receiver
    }

    #[test]
    fn whole_blocks_go_side_by_side_and_parts_alone() {
        let overlaps = Overlaps::default();
        let first = enter(&overlaps, 0..8192, false).try_recv().unwrap();
        let second = enter(&overlaps, 4096..12288, false).try_recv().unwrap();
        let part = enter(&overlaps, 4096..8192, true);
        let elsewhere = enter(&overlaps, 1 << 20..(1 << 20) + 512, true);
        assert!(part.try_recv().is_err() && elsewhere.try_recv().is_ok());
        drop(first);
        assert!(part.try_recv().is_err());
        drop(second);
        assert!(part.try_recv().is_ok());
        assert!(overlaps.lock().held.is_empty());
    }

    #[test]
    fn nobody_overtakes_one_that_waits_for_the_same_place() {
        let overlaps = Overlaps::default();
        let first = enter(&overlaps, 0..4096, false).try_recv().unwrap();
        let part = enter(&overlaps, 0..4096, true);
        let late = enter(&overlaps, 0..4096, false);
        let other = enter(&overlaps, 4096..8192, false);
        assert!(late.try_recv().is_err(), "it would keep the part waiting for ever");
        assert!(other.try_recv().is_ok());
        drop(first);
        let part = part.try_recv().unwrap();
        assert!(late.try_recv().is_err());
        drop(part);
        assert!(late.try_recv().is_ok());
    }
}
