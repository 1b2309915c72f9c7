// SPDX-License-Identifier: MIT OR Apache-2.0
//! S3-FIFO (Yang et al., SOSP 2023): new units go to a small queue, and those used there move to a main queue. Ghosts
//! remember what the small queue evicted.
//!
//! Variant: the small queue has 10 % of the slots, the ghosts 90 % (in entries). A unit is promoted at a frequency of
//! 2, and frequencies are capped at 3.

use alloc::vec;
use alloc::vec::Vec;

use super::Replacement;
use super::ghost::Ghosts;
use super::list::{Links, Queue};

const CAP: u8 = 3;
const PROMOTE: u8 = 2;
const IN_MAIN: u8 = 0x80;

/// State of S3-FIFO.
#[derive(Debug)]
pub struct S3Fifo {
    links: Links,
    small: Queue,
    main: Queue,
    ghosts: Ghosts,
    /// Frequency, and whether the slot is in the main queue.
    state: Vec<u8>,
    units: Vec<u64>,
    main_most: u32,
    small_most: u32,
    /// Whether a victim was ever requested. Until then units that overflow the small queue go to main.
    displaced: bool,
    /// The slot of the small queue chosen last as victim; it becomes a ghost if the engine removes it.
    evicting: Option<u32>,
}

impl S3Fifo {
    /// S3-FIFO over `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            links: Links::new(slots),
            small: Queue::default(),
            main: Queue::default(),
            ghosts: Ghosts::new(slots as usize * 9 / 10),
            state: vec![0; slots as usize],
            units: vec![0; slots as usize],
            main_most: slots - (slots / 10),
            small_most: slots / 10,
            displaced: false,
            evicting: None,
        }
    }

    /// The oldest evictable slot of the small queue. Slots at the promotion frequency move to main on the way.
    fn oldest_of_small(&mut self, may_evict: &dyn Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..self.small.len() {
            let slot = self.small.oldest()?;
            let state = &mut self.state[slot as usize];
            if *state >= PROMOTE {
                *state = IN_MAIN;
                self.small.remove(&mut self.links, slot);
                self.main.push(&mut self.links, slot);
            } else if may_evict(slot) {
                return Some(slot);
            } else {
                self.small.remove(&mut self.links, slot);
                self.small.push(&mut self.links, slot);
            }
        }
        None
    }

    fn oldest_of_main(&mut self, may_evict: &dyn Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..self.main.len() * u32::from(CAP + 1) {
            let slot = self.main.oldest()?;
            let state = &mut self.state[slot as usize];
            if *state == IN_MAIN && may_evict(slot) {
                return Some(slot);
            }
            *state = IN_MAIN | (*state & !IN_MAIN).saturating_sub(1);
            self.main.remove(&mut self.links, slot);
            self.main.push(&mut self.links, slot);
        }
        None
    }
}

impl Replacement for S3Fifo {
    fn inserted(&mut self, slot: u32, unit: u64) {
        self.units[slot as usize] = unit;
        let overflow = !self.displaced && self.small.len() >= self.small_most;
        if self.ghosts.take(unit) || overflow {
            self.state[slot as usize] = IN_MAIN;
            self.main.push(&mut self.links, slot);
        } else {
            self.state[slot as usize] = 0;
            self.small.push(&mut self.links, slot);
        }
    }

    fn accessed(&mut self, slot: u32) {
        let state = &mut self.state[slot as usize];
        if *state & !IN_MAIN < CAP {
            *state += 1;
        }
    }

    fn removed(&mut self, slot: u32) {
        if self.state[slot as usize] & IN_MAIN != 0 {
            self.main.remove(&mut self.links, slot);
            return;
        }
        self.small.remove(&mut self.links, slot);
        if self.evicting.take() == Some(slot) {
            self.ghosts.add(self.units[slot as usize]);
        }
    }

    fn victim(
        &mut self,
        _incoming: u64,
        _set: u32,
        may_evict: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        self.displaced = true;
        self.evicting = None;
        // Promotions from the small queue may make main too long, so both are examined twice.
        for _ in 0..2 {
            let main_first = self.main.len() > self.main_most || self.small.len() == 0;
            if !main_first {
                self.evicting = self.oldest_of_small(may_evict);
            }
            let victim = self
                .evicting
                .or_else(|| if main_first { self.oldest_of_main(may_evict) } else { None });
            if victim.is_some() {
                return victim;
            }
        }
        self.oldest_of_main(may_evict)
    }
}
