// SPDX-License-Identifier: MIT OR Apache-2.0
//! Claims on pages: detect overlapping writes, trims and populations (design rules 3 and 4).
//!
//! A task that changes the flash or origin copy of pages holds a [`Claim`] on them from before its first device operation
//! until its last one has ended. Two claims that share a page at any moment conflict there, and neither may make a
//! conflicting page valid. So the order in which the devices executed overlapping operations does not matter: no read
//! gets such a page from flash.
//!
//! Invariants: a claim lives at least as long as every device operation that it covers, also after the task timed out
//! (the operation's guard holds it). Only units with claims have entries, so the operations in flight bound the table.
//!
//! Why not make every later operation wait: a hung flash write would stall a client. Writes of cached pages wait, for a limited
//! time ([`in_flight`](crate::cache::in_flight)). Why not SCE's duplicate-write bitmap
//! (3.3): it validates when the last write ends, although flash and origin may have ordered the two differently, and takes
//! 32 bytes for every fragment.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::mutant;
use crate::pages::{PageSet, Pages, overlap};

struct Entry {
    id: u64,
    pages: Pages,
    conflicts: PageSet,
}

#[derive(Default)]
struct Table {
    units: HashMap<u64, Vec<Entry>, UnitHash>,
    next_id: u64,
}

/// The claims of a shard.
#[derive(Clone, Default)]
pub(crate) struct Claims(Rc<RefCell<Table>>);

/// A claim on pages of one unit; dropping it ends it.
pub(crate) struct Claim {
    claims: Claims,
    unit: u64,
    id: u64,
}

impl Claims {
    /// Claims pages; an overlap is a conflict of both claims.
    pub(crate) fn claim(&self, unit: u64, pages: Pages) -> Rc<Claim> {
        let mut table = self.0.borrow_mut();
        let id = table.next_id;
        table.next_id += 1;
        let mut entry = Entry { id, conflicts: PageSet::at(pages.start), pages };
        let others = table.units.entry(unit).or_default();
        for other in others.iter_mut().filter(|o| overlap(&o.pages, &entry.pages)) {
            if !mutant::is_active("overlap-unnoticed") {
                other.conflicts.add(&entry.pages);
                entry.conflicts.add(&other.pages);
            }
        }
        others.push(entry);
        drop(table);
        Rc::new(Claim { claims: self.clone(), unit, id })
    }

    /// Whether a page of these is claimed.
    pub(crate) fn any(&self, unit: u64, pages: &Pages) -> bool {
        let table = self.0.borrow();
        table.units.get(&unit).is_some_and(|all| all.iter().any(|e| overlap(&e.pages, pages)))
    }

    /// How many claims there are.
    pub(crate) fn count(&self) -> usize {
        self.0.borrow().units.values().map(Vec::len).sum()
    }
}

impl Claim {
    /// The pages that another claim shared while this one lived.
    pub(crate) fn conflicts(&self) -> PageSet {
        let table = self.claims.0.borrow();
        let entries = table.units.get(&self.unit).map_or(&[][..], Vec::as_slice);
        entries.iter().find(|e| e.id == self.id).map(|e| e.conflicts).unwrap_or_default()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = self.claims.0.borrow_mut();
        if let Some(entries) = table.units.get_mut(&self.unit) {
            entries.retain(|e| e.id != self.id);
            if entries.is_empty() {
                table.units.remove(&self.unit);
            }
        }
    }
}

/// Hashes unit numbers by one multiplication: no client chooses them freely.
#[derive(Clone, Copy, Default)]
struct UnitHash;

impl std::hash::BuildHasher for UnitHash {
    type Hasher = UnitHasher;
    fn build_hasher(&self) -> UnitHasher {
        UnitHasher(0)
    }
}

struct UnitHasher(u64);

impl std::hash::Hasher for UnitHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_is_a_conflict_of_both_claims() {
        let claims = Claims::default();
        let first = claims.claim(7, 0..8);
        let second = claims.claim(7, 6..10);
        let elsewhere = claims.claim(8, 0..8);
        assert!(first.conflicts().has(6) && first.conflicts().has(7) && !first.conflicts().has(5));
        assert!(second.conflicts().has(6) && !second.conflicts().has(8));
        assert!(elsewhere.conflicts().is_empty());
        drop(first);
        assert!(second.conflicts().has(6), "the conflict stays when the other claim ends");
        assert!(claims.claim(7, 0..6).conflicts().is_empty());
        drop((second, elsewhere));
        assert_eq!(claims.count(), 0);
    }
}
