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
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

/// One that waits.
struct Waiting {
    claim: Claim,
    job: Job,
    ticket: u64,
}

#[derive(Default)]
struct Table {
    held: Slab<Claim>,
    /// Exclusive ones among those held.
    exclusive: usize,
    waiting: VecDeque<Waiting>,
    /// Of the next one that waits.
    ticket: u64,
}

impl Table {
    /// Whether a claim behind the first `before` waiting ones may begin.
    fn is_free(&self, claim: &Claim, before: usize) -> bool {
        if !claim.exclusive && self.exclusive == 0 && before == 0 {
            return true;
        }
        let held = self.held.iter().any(|(_, other)| other.excludes(claim));
        !held && !self.waiting.iter().take(before).any(|other| other.claim.excludes(claim))
    }

    fn hold(&mut self, claim: Claim) -> usize {
        self.exclusive += usize::from(claim.exclusive);
        self.held.insert(claim)
    }

    /// Holds what waits and is free now; returns the jobs that may begin.
    fn begin(&mut self) -> Vec<(usize, Job)> {
        let (mut free, mut i) = (Vec::new(), 0);
        while let Some(Waiting { claim, .. }) = self.waiting.get(i) {
            if !self.is_free(claim, i) {
                i += 1;
            } else if let Some(Waiting { claim, job, .. }) = self.waiting.remove(i) {
                free.push((self.hold(claim), job));
            }
        }
        free
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
        self.enter_or_wait(Claim { range, exclusive }, Box::new(job));
    }

    /// Takes a range alone, if it is free within `bound`. Until then ranges that overlap it wait behind it; if it fails, they continue.
    pub fn take(&self, range: Range<u64>, bound: Duration) -> Option<Pass> {
        let (sender, receiver) = channel();
        // A pass that comes too late is dropped.
        let job = Box::new(move |pass| drop(sender.send(pass)));
        let ticket = self.enter_or_wait(Claim { range, exclusive: true }, job);
        if let Ok(pass) = receiver.recv_timeout(bound) {
            return Some(pass);
        }
        ticket.into_iter().for_each(|ticket| self.give_up(ticket));
        receiver.try_recv().ok()
    }

    /// The ticket of one that waits.
    fn enter_or_wait(&self, claim: Claim, job: Job) -> Option<u64> {
        let mut table = self.lock();
        let waiting = table.waiting.len();
        if !table.is_free(&claim, waiting) {
            let ticket = table.ticket;
            table.ticket += 1;
            table.waiting.push_back(Waiting { claim, job, ticket });
            return Some(ticket);
        }
        let number = table.hold(claim);
        drop(table);
        job(Pass { overlaps: self.clone(), number });
        None
    }

    /// Ends a wait, if it has not ended by itself.
    fn give_up(&self, ticket: u64) {
        let mut table = self.lock();
        table.waiting.retain(|one| one.ticket != ticket);
        let free = table.begin();
        drop(table);
        self.run(free);
    }

    fn run(&self, free: Vec<(usize, Job)>) {
        for (number, job) in free {
            job(Pass { overlaps: self.clone(), number });
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut table = self.overlaps.lock();
        let claim = table.held.remove(self.number);
        table.exclusive -= usize::from(claim.exclusive);
        let free = table.begin();
        drop(table);
        self.overlaps.run(free);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

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

    #[test]
    fn one_that_gives_up_blocks_nobody() {
        let overlaps = Overlaps::default();
        let first = enter(&overlaps, 0..4096, false).try_recv().unwrap();
        let late = std::thread::scope(|scope| {
            let taking = scope.spawn(|| overlaps.take(0..1 << 20, Duration::from_secs(1)));
            while overlaps.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            let late = enter(&overlaps, 4096..8192, false);
            assert!(late.try_recv().is_err(), "it waits behind the one that waits");
            assert!(taking.join().unwrap().is_none());
            late.try_recv().unwrap()
        });
        drop((first, late));
        let all = overlaps.take(0..1 << 20, Duration::ZERO).unwrap();
        assert!(overlaps.try_enter(&(0..4096)).is_none());
        drop(all);
        assert!(overlaps.try_enter(&(0..4096)).is_some());
    }
}
