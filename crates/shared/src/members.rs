// SPDX-License-Identifier: MIT OR Apache-2.0
//! Members, detection of dead ones, and the completion of burials that they left unfinished.
//!
//! A member holds the mutex of its entry for life. Its name combines the entry and how often the entry was taken, so no
//! name repeats. A member whose mutex is free is dead.
//!
//! A burial is the only operation that a repair of the log cannot complete: its tombstone is valid while the origin
//! still has the old bytes. So a member records the range before it buries, while it has the holds of the pages, with
//! one bit for each hold. The first member that takes such a hold from the dead one zeroes the origin there, and clears
//! the bit.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::locked::Locked;
use crate::memory::{Control, HOLDS, LATCHES, MEMBERS, Memory, WRITERS};

const TAKEN: usize = 0;
const FIRST: usize = 1;
const COUNT: usize = 2;
/// A bit for each hold whose pages are still to be zeroed.
const OPEN: usize = 3;

/// The mutex of the log.
pub(crate) const LOG: usize = 0;

/// Neighbours share a hold: pages whose numbers divided by this are equal. They are written to the origin together.
pub const NEIGHBOURS: u64 = 16;

/// The hold of a page.
pub(crate) fn hold_of(page: u64) -> usize {
    // The upper bits of the product are the well-mixed ones.
    ((page / NEIGHBOURS).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - HOLDS.ilog2())) as usize
}

pub(crate) fn hold_mutex(hold: usize) -> usize {
    1 + hold
}

/// The mutex of a latch.
pub(crate) fn latch_mutex(key: u64) -> usize {
    let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - LATCHES.ilog2());
    1 + HOLDS + MEMBERS + hash as usize
}

fn member_mutex(index: usize) -> usize {
    1 + HOLDS + index
}

/// An entry taken by this thread.
pub(crate) struct Entry {
    pub name: u64,
    index: usize,
    memory: Arc<Memory>,
    _alive: Locked,
}

impl Entry {
    /// Takes a free entry, if there is one.
    pub fn take(memory: &Arc<Memory>) -> Option<Self> {
        Self::take_of(memory, 0..MEMBERS - WRITERS)
    }

    /// Takes a free entry for a thread that writes pages for another member.
    pub fn take_for_writer(memory: &Arc<Memory>) -> Option<Self> {
        Self::take_of(memory, MEMBERS - WRITERS..MEMBERS)
    }

    fn take_of(memory: &Arc<Memory>, mut indexes: Range<usize>) -> Option<Self> {
        indexes.find_map(|index| {
            let alive = Locked::try_lock(memory, member_mutex(index))?;
            let words = memory.member(index);
            if words[OPEN].load(Acquire) != 0 {
                return None; // a dead member's open burial is recorded here
            }
            let taken = words[TAKEN].fetch_add(1, AcqRel) + 1;
            let name = taken * MEMBERS as u64 + index as u64;
            Some(Self { name, index, memory: Arc::clone(memory), _alive: alive })
        })
    }

    /// Records that these pages, whose holds the caller has, are about to be buried.
    pub fn begin_burial(&self, pages: &Range<u64>) {
        let words = self.memory.member(self.index);
        words[FIRST].store(pages.start, Release);
        words[COUNT].store(pages.end - pages.start, Release);
        words[OPEN].store(holds_of(pages), Release);
    }

    /// Ends the record: the burial is complete, or it had no effect.
    pub fn end_burial(&self) {
        count_burial(&self.memory);
        self.memory.member(self.index)[OPEN].store(0, Release);
    }
}

/// Counts the end of a burial. The caller clears the record afterwards, so a flush that finds no record finds the count.
fn count_burial(memory: &Memory) {
    memory.control(Control::BurialsEnded).fetch_add(1, AcqRel);
}

/// The holds of these pages, one bit each.
pub(crate) fn holds_of(pages: &Range<u64>) -> u64 {
    pages.clone().fold(0, |all, page| all | 1 << hold_of(page))
}

/// Whether the member of this name is dead.
pub(crate) fn is_gone(memory: &Arc<Memory>, name: u64) -> bool {
    let index = (name % MEMBERS as u64) as usize;
    if memory.member(index)[TAKEN].load(Acquire) != name / MEMBERS as u64 {
        return true;
    }
    // Another member that checks at this moment holds the mutex briefly; then the answer is "alive", and the next is
    // right.
    Locked::try_lock(memory, member_mutex(index)).is_some()
}

/// Whether a process is a member.
pub(crate) fn has_any(memory: &Arc<Memory>) -> bool {
    let is_taken = |index| Locked::try_lock(memory, member_mutex(index)).is_none();
    (0..MEMBERS - WRITERS).any(is_taken)
}

/// Completes burials after a hold was taken from a dead member: calls `bury` for their pages in this hold. A living
/// member has no open burial there, because it would have the hold.
pub(crate) fn end_burials(memory: &Memory, hold: usize, mut bury: impl FnMut(u64)) {
    for index in 0..MEMBERS {
        let words = memory.member(index);
        if words[OPEN].load(Acquire) & 1 << hold == 0 {
            continue;
        }
        let first = words[FIRST].load(Acquire);
        let pages = first..first + words[COUNT].load(Acquire);
        pages.filter(|page| hold_of(*page) == hold).for_each(&mut bury);
        count_burial(memory);
        words[OPEN].fetch_and(!(1 << hold), AcqRel);
    }
}

/// The holds with an open burial, of a running or of a dead member.
pub(crate) fn open_burials(memory: &Arc<Memory>) -> u64 {
    let open = |index| memory.member(index)[OPEN].load(Acquire);
    (0..MEMBERS).fold(0, |all, index| all | open(index))
}

#[cfg(test)]
mod tests {
    use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};

    use super::*;
    use crate::memory::Shape;

    #[test]
    fn threads_that_write_take_no_room_of_processes() {
        let log = Geometry { base: 0, blocks: 0, page_bytes: 4096, batch_pages: 4, volume: 1 };
        let settings = LogSettings { policy: LogPolicy::Bounded, second_chance: true };
        let log = log.grown_to(4 << 20).unwrap();
        let memory = Memory::anonymous(Shape { log, settings, user_words: 0 }).unwrap();
        let writers: Vec<Entry> = std::iter::from_fn(|| Entry::take_for_writer(&memory)).collect();
        assert_eq!(writers.len(), WRITERS);
        let members: Vec<Entry> = std::iter::from_fn(|| Entry::take(&memory)).collect();
        assert_eq!(members.len(), MEMBERS - WRITERS);
        drop(writers);
        assert!(Entry::take(&memory).is_none(), "an entry of a writer");
        assert!(Entry::take_for_writer(&memory).is_some());
    }
}
