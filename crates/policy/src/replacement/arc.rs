// SPDX-License-Identifier: MIT OR Apache-2.0
//! ARC (Megiddo and Modha, FAST 2003): one list for recency, one for frequency. Hits on the ghosts of either list move
//! the boundary between them.

use alloc::vec;
use alloc::vec::Vec;

use super::Replacement;
use super::ghost::Ghosts;
use super::list::{Links, Queue};

/// State of ARC.
#[derive(Debug)]
pub struct Arc {
    links: Links,
    once: Queue,
    often: Queue,
    once_ghosts: Ghosts,
    often_ghosts: Ghosts,
    is_often: Vec<bool>,
    units: Vec<u64>,
    slots: u32,
    /// How many slots the units seen once may occupy.
    target: f64,
    /// The slot chosen last as victim; it becomes a ghost if the engine removes it.
    evicting: Option<u32>,
    /// The unit for which the boundary was already moved when its victim was chosen.
    adapted: Option<u64>,
}

impl Arc {
    /// ARC over `slots` slots.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        Self {
            links: Links::new(slots),
            once: Queue::default(),
            often: Queue::default(),
            once_ghosts: Ghosts::new(slots as usize),
            often_ghosts: Ghosts::new(slots as usize),
            is_often: vec![false; slots as usize],
            units: vec![0; slots as usize],
            slots,
            target: 0.0,
            evicting: None,
            adapted: None,
        }
    }

    /// Grows the list whose ghost `unit` is: it evicted the unit too early.
    fn adapt(&mut self, unit: u64) {
        if self.adapted == Some(unit) {
            return;
        }
        self.adapted = Some(unit);
        let (once, often) = (self.once_ghosts.len() as f64, self.often_ghosts.len() as f64);
        if self.once_ghosts.has(unit) {
            let step = (often / once).max(1.0);
            self.target = (self.target + step).min(f64::from(self.slots));
        } else if self.often_ghosts.has(unit) {
            let step = (once / often).max(1.0);
            self.target = (self.target - step).max(0.0);
        }
    }
}

impl Replacement for Arc {
    fn inserted(&mut self, slot: u32, unit: u64) {
        self.adapt(unit);
        self.adapted = None;
        self.units[slot as usize] = unit;
        let known = self.once_ghosts.take(unit) | self.often_ghosts.take(unit);
        self.is_often[slot as usize] = known;
        let queue = if known { &mut self.often } else { &mut self.once };
        queue.push(&mut self.links, slot);
        // The paper's bounds: |T1| + |B1| <= c, and all four lists <= 2c.
        while self.once_ghosts.len() > 0
            && self.once.len() as usize + self.once_ghosts.len() > self.slots as usize
        {
            self.once_ghosts.forget_oldest();
        }
        let ghosts = |arc: &Self| arc.once_ghosts.len() + arc.often_ghosts.len();
        while self.often_ghosts.len() > 0 && ghosts(self) > self.slots as usize {
            self.often_ghosts.forget_oldest();
        }
    }

    fn accessed(&mut self, slot: u32) {
        let queue = if self.is_often[slot as usize] { &mut self.often } else { &mut self.once };
        queue.remove(&mut self.links, slot);
        self.is_often[slot as usize] = true;
        self.often.push(&mut self.links, slot);
    }

    fn removed(&mut self, slot: u32) {
        let ghost = self.evicting.take() == Some(slot);
        let unit = self.units[slot as usize];
        if self.is_often[slot as usize] {
            self.often.remove(&mut self.links, slot);
            if ghost {
                self.often_ghosts.add(unit);
            }
        } else {
            self.once.remove(&mut self.links, slot);
            if ghost {
                self.once_ghosts.add(unit);
            }
        }
    }

    fn victim(&mut self, incoming: u64, _set: u32, may_evict: &dyn Fn(u32) -> bool) -> Option<u32> {
        self.adapt(incoming);
        let (once, target) = (f64::from(self.once.len()), self.target);
        let tie = self.often_ghosts.has(incoming) && once == target;
        let from_once = once > 0.0 && (once > target || tie);
        let oldest = |queue: &Queue| queue.iter(&self.links).find(|s| may_evict(*s));
        let (first, second) =
            if from_once { (&self.once, &self.often) } else { (&self.often, &self.once) };
        self.evicting = oldest(first).or_else(|| oldest(second));
        self.evicting
    }
}
