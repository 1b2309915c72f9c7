// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who takes part, who is gone, and what it left half done.
//!
//! A member holds the mutex of its entry for life; a name is the entry and how often it was taken, so no name comes
//! back. Whoever is asked for and does not hold its mutex is gone.
//!
//! A burial is the one act that a repair of the log cannot end: the tombstone counts, and the origin still has the
//! old bytes. So a member writes down what it is about to bury while it holds the pages, with one bit for each
//! of their holds. The first who takes such a hold from the dead makes the origin zero there, and clears the bit.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::locked::Locked;
use crate::memory::{Control, HOLDS, LATCHES, MEMBERS, Memory};

const TAKEN: usize = 0;
const FIRST: usize = 1;
const COUNT: usize = 2;
/// Holds whose pages are still to be made zero.
const OPEN: usize = 3;

/// The mutex of the log.
pub(crate) const LOG: usize = 0;

/// Neighbours that one hold covers: pages whose numbers are the same, divided by this. They go to the origin together.
pub const NEIGHBOURS: u64 = 16;

/// The hold of a page.
pub(crate) fn hold_of(page: u64) -> usize {
    // The upper bits are the good ones.
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

/// An entry that is this thread's.
pub(crate) struct Entry {
    pub name: u64,
    index: usize,
    memory: Arc<Memory>,
    _alive: Locked,
}

impl Entry {
    /// Takes a free entry, if there is one.
    pub fn take(memory: &Arc<Memory>) -> Option<Self> {
        (0..MEMBERS).find_map(|index| {
            let alive = Locked::try_lock(memory, member_mutex(index))?;
            let words = memory.member(index);
            if words[OPEN].load(Acquire) != 0 {
                return None; // the record of a dead one is still needed
            }
            let taken = words[TAKEN].fetch_add(1, AcqRel) + 1;
            let name = taken * MEMBERS as u64 + index as u64;
            Some(Self { name, index, memory: Arc::clone(memory), _alive: alive })
        })
    }

    /// These pages, all of which are held, are about to be buried.
    pub fn begin_burial(&self, pages: &Range<u64>) {
        let words = self.memory.member(self.index);
        words[FIRST].store(pages.start, Release);
        words[COUNT].store(pages.end - pages.start, Release);
        words[OPEN].store(holds_of(pages), Release);
    }

    /// They are, or nothing has become of it.
    pub fn end_burial(&self) {
        count_burial(&self.memory);
        self.memory.member(self.index)[OPEN].store(0, Release);
    }
}

/// A burial ended. Counted before its record goes: a flush that finds no record finds the count.
fn count_burial(memory: &Memory) {
    memory.control(Control::BurialsEnded).fetch_add(1, AcqRel);
}

/// The holds of these pages, a bit each.
pub(crate) fn holds_of(pages: &Range<u64>) -> u64 {
    pages.clone().fold(0, |all, page| all | 1 << hold_of(page))
}

/// Whether the member of this name is no more.
pub(crate) fn is_gone(memory: &Arc<Memory>, name: u64) -> bool {
    let index = (name % MEMBERS as u64) as usize;
    if memory.member(index)[TAKEN].load(Acquire) != name / MEMBERS as u64 {
        return true;
    }
    // Somebody else who asks the same has it for a moment: then the next answer is right.
    Locked::try_lock(memory, member_mutex(index)).is_some()
}

/// For whoever has taken this hold from the dead: runs `bury` for pages of burials that they had begun. No living
/// member has such a record, or it would have the hold.
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

/// Holds with a burial in them, of the living or left by the dead.
pub(crate) fn open_burials(memory: &Arc<Memory>) -> u64 {
    let open = |index| memory.member(index)[OPEN].load(Acquire);
    (0..MEMBERS).fold(0, |all, index| all | open(index))
}
