// SPDX-License-Identifier: MIT OR Apache-2.0
//! S3-FIFO (Yang et al., SOSP 2023): a small queue that new units must survive, a main queue, and
//! ghosts. Variant: small queue 10 % of the slots, ghosts 90 % (in entries), promotion at a
//! frequency of 2, frequencies capped at 3.

use alloc::vec;
use alloc::vec::Vec;

use super::Replacement;
use super::ghost::Ghosts;
use super::list::{Links, Queue};

const CAP: u8 = 3;
const PROMOTE: u8 = 2;
const IN_MAIN: u8 = 0x80;

/// The policy, see the module.
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
    /// Whether anybody has been displaced; until then what the small queue cannot take goes to main.
    displaced: bool,
    /// The slot that is about to leave the small queue, and becomes a ghost if it does.
    leaving: Option<u32>,
}

impl S3Fifo {
    /// The policy over `slots` slots.
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
            leaving: None,
        }
    }

    /// The oldest of the small queue that may leave; who proved itself moves to main.
    fn oldest_of_small(&mut self, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..self.small.len() {
            let slot = self.small.oldest()?;
            let state = &mut self.state[slot as usize];
            if *state >= PROMOTE {
                *state = IN_MAIN;
                self.small.remove(&mut self.links, slot);
                self.main.push(&mut self.links, slot);
            } else if may_leave(slot) {
                return Some(slot);
            } else {
                self.small.remove(&mut self.links, slot);
                self.small.push(&mut self.links, slot);
            }
        }
        None
    }

    fn oldest_of_main(&mut self, may_leave: &dyn Fn(u32) -> bool) -> Option<u32> {
        for _ in 0..self.main.len() * u32::from(CAP + 1) {
            let slot = self.main.oldest()?;
            let state = &mut self.state[slot as usize];
            if *state == IN_MAIN && may_leave(slot) {
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
        if self.leaving.take() == Some(slot) {
            self.ghosts.add(self.units[slot as usize]);
        }
    }

    fn victim(
        &mut self,
        _incoming: u64,
        _set: u32,
        may_leave: &dyn Fn(u32) -> bool,
    ) -> Option<u32> {
        self.displaced = true;
        self.leaving = None;
        // Who is promoted from the small queue may make main too long: look again.
        for _ in 0..2 {
            let main_first = self.main.len() > self.main_most || self.small.len() == 0;
            if !main_first {
                self.leaving = self.oldest_of_small(may_leave);
            }
            let victim = self
                .leaving
                .or_else(|| if main_first { self.oldest_of_main(may_leave) } else { None });
            if victim.is_some() {
                return victim;
            }
        }
        self.oldest_of_main(may_leave)
    }
}
