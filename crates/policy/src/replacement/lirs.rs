// SPDX-License-Identifier: MIT OR Apache-2.0
//! LIRS (Jiang and Zhang, SIGMETRICS 2002). The cache keeps the LIR units, whose last two accesses were close together.
//! The other units (HIR) have 1 % of the slots and are evicted in order of their last access.
//!
//! The stack S is ordered by last access. It holds all LIR units and every unit accessed since the oldest LIR unit,
//! resident or ghost. The queue Q holds the resident HIR units. An access to a HIR unit in S makes that unit LIR and
//! makes the oldest LIR unit HIR. S has at most twice as many entries as there are slots: beyond that, the ghosts that
//! were evicted longest ago are removed from it.
//!
//! Variant (as in libcachesim): an access to a HIR unit that is only in Q also demotes a LIR unit when the LIR share is
//! full. The next inserted unit becomes LIR in its place.

use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashMap;

use super::Replacement;
use super::list::{Links, Queue};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// In S.
    Lir,
    /// In S and Q.
    Hir,
    /// In Q only.
    HirOutside,
}

/// State of LIRS. An entry of S is a slot or, from the number of slots on, a ghost.
#[derive(Debug)]
pub struct Lirs {
    slots: u32,
    lirs_most: u32,
    lirs: u32,
    stack_links: Links,
    stack: Queue,
    queue_links: Links,
    queue: Queue,
    /// Ghosts, oldest eviction first.
    ghost_links: Links,
    ghosts: Queue,
    ghost_of: HashMap<u64, u32>,
    free_ghosts: Vec<u32>,
    standing: Vec<Standing>,
    /// Units of slots and of ghosts.
    units: Vec<u64>,
    /// The slot chosen last as victim; it becomes a ghost if the engine removes it.
    evicting: Option<u32>,
}

impl Lirs {
    /// LIRS over `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        let hirs_most = (slots / 100).max(1);
        // `inserted` trims the stack last, so one ghost more than the bound may exist until then.
        let ghosts = slots + hirs_most + 2;
        let entries = slots + ghosts;
        Self {
            slots,
            lirs_most: slots.saturating_sub(hirs_most),
            lirs: 0,
            stack_links: Links::new(entries),
            stack: Queue::default(),
            queue_links: Links::new(slots),
            queue: Queue::default(),
            ghost_links: Links::new(entries),
            ghosts: Queue::default(),
            ghost_of: HashMap::new(),
            free_ghosts: (slots..entries).rev().collect(),
            standing: vec![Standing::HirOutside; slots as usize],
            units: vec![0; entries as usize],
            evicting: None,
        }
    }

    fn raise(&mut self, slot: u32) {
        self.stack.renew(&mut self.stack_links, slot);
    }

    /// Removes entries from the old end of S until its oldest entry is LIR.
    fn prune(&mut self) {
        while let Some(entry) = self.stack.oldest() {
            if entry >= self.slots {
                self.forget(entry);
            } else if self.standing[entry as usize] == Standing::Hir {
                self.standing[entry as usize] = Standing::HirOutside;
                self.stack.remove(&mut self.stack_links, entry);
            } else {
                return;
            }
        }
    }

    /// Removes a ghost from all structures.
    fn forget(&mut self, ghost: u32) {
        self.stack.remove(&mut self.stack_links, ghost);
        self.ghosts.remove(&mut self.ghost_links, ghost);
        self.ghost_of.remove(&self.units[ghost as usize]);
        self.free_ghosts.push(ghost);
    }

    /// Makes the oldest LIR units HIR until at most `most` are LIR.
    fn demote(&mut self, most: u32) {
        while self.lirs > most {
            self.prune();
            let Some(oldest) = self.stack.oldest() else { return };
            self.stack.remove(&mut self.stack_links, oldest);
            self.standing[oldest as usize] = Standing::HirOutside;
            self.queue.push(&mut self.queue_links, oldest);
            self.lirs -= 1;
        }
        self.prune();
    }

    fn become_lir(&mut self, slot: u32) {
        self.standing[slot as usize] = Standing::Lir;
        self.lirs += 1;
        self.demote(self.lirs_most.max(1));
    }
}

impl Replacement for Lirs {
    fn inserted(&mut self, slot: u32, unit: u64) {
        self.units[slot as usize] = unit;
        let ghost = self.ghost_of.get(&unit).copied();
        if let Some(ghost) = ghost {
            self.forget(ghost);
        }
        self.stack.push(&mut self.stack_links, slot);
        if ghost.is_some() || self.lirs < self.lirs_most {
            self.become_lir(slot);
        } else {
            self.standing[slot as usize] = Standing::Hir;
            self.queue.push(&mut self.queue_links, slot);
            self.prune();
        }
        while self.stack.len() > self.slots.saturating_mul(2)
            && let Some(ghost) = self.ghosts.oldest()
        {
            self.forget(ghost);
        }
    }

    fn accessed(&mut self, slot: u32) {
        match self.standing[slot as usize] {
            Standing::Lir => {
                self.raise(slot);
                self.prune();
            }
            Standing::Hir => {
                self.raise(slot);
                self.queue.remove(&mut self.queue_links, slot);
                self.become_lir(slot);
            }
            Standing::HirOutside => {
                self.queue.renew(&mut self.queue_links, slot);
                self.demote(self.lirs_most.saturating_sub(1));
                self.stack.push(&mut self.stack_links, slot);
                self.standing[slot as usize] = Standing::Hir;
                self.prune();
            }
        }
    }

    fn removed(&mut self, slot: u32) {
        let ghost = self.evicting.take() == Some(slot);
        match self.standing[slot as usize] {
            Standing::Lir => {
                self.stack.remove(&mut self.stack_links, slot);
                self.lirs -= 1;
                self.prune();
            }
            Standing::Hir => {
                self.queue.remove(&mut self.queue_links, slot);
                let free = if ghost { self.free_ghosts.pop() } else { None };
                let Some(ghost) = free else {
                    self.stack.remove(&mut self.stack_links, slot);
                    return;
                };
                self.stack.replace(&mut self.stack_links, slot, ghost);
                self.ghosts.push(&mut self.ghost_links, ghost);
                let unit = self.units[slot as usize];
                self.units[ghost as usize] = unit;
                self.ghost_of.insert(unit, ghost);
            }
            Standing::HirOutside => self.queue.remove(&mut self.queue_links, slot),
        }
    }

    fn victim(
        &mut self,
        _incoming: u64,
        _set: u32,
        may_evict: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        let hir = self.queue.iter(&self.queue_links).find(|slot| may_evict(*slot));
        let resident = |entry: &u32| *entry < self.slots && may_evict(*entry);
        self.evicting = hir.or_else(|| self.stack.iter(&self.stack_links).find(resident));
        self.evicting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(policy: &mut Lirs, slots: &mut Vec<u64>, unit: u64) -> bool {
        if let Some(slot) = slots.iter().position(|u| *u == unit) {
            policy.accessed(slot as u32);
            return true;
        }
        let slot = if slots.len() < policy.slots as usize {
            slots.push(unit);
            slots.len() - 1
        } else {
            let slot = policy.victim(unit, 0, &|_| true).unwrap();
            policy.removed(slot);
            slots[slot as usize] = unit;
            slot as usize
        };
        policy.inserted(slot as u32, unit);
        false
    }

    /// LRU never hits in a loop longer than the cache; LIRS hits for all slots but the HIR share.
    #[test]
    fn lir_units_hit_in_a_loop_longer_than_the_cache() {
        let (mut policy, mut slots) = (Lirs::new(10), Vec::new());
        let hits = (0..1000).filter(|n| access(&mut policy, &mut slots, n % 20)).count();
        assert!((440..=450).contains(&hits), "{hits}");
    }

    #[test]
    fn ghosts_and_stack_are_bounded() {
        let (mut policy, mut slots) = (Lirs::new(8), Vec::new());
        let mut unit = 1_u64;
        for n in 0..20_000_u64 {
            unit = unit.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n);
            access(&mut policy, &mut slots, (unit >> 40) % 40);
            let hir = policy.queue.len();
            assert_eq!(policy.lirs + hir, slots.len() as u32);
            assert!(policy.stack.len() <= 16 && policy.ghost_of.len() <= 11);
        }
    }
}
