// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ghosts: the numbers of units that were evicted recently. The oldest is forgotten first.

use alloc::collections::VecDeque;

use hashbrown::HashMap;

/// A bounded set of units in order of eviction.
#[derive(Debug)]
pub(super) struct Ghosts {
    most: usize,
    /// Each unit with the turn in which it was added last.
    turns: HashMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
    turn: u64,
}

impl Ghosts {
    pub(super) fn new(most: usize) -> Self {
        Self { most, turns: HashMap::new(), order: VecDeque::new(), turn: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    pub(super) fn has(&self, unit: u64) -> bool {
        self.turns.contains_key(&unit)
    }

    /// Adds a unit; beyond the bound the oldest is forgotten.
    pub(super) fn add(&mut self, unit: u64) {
        self.turn += 1;
        self.turns.insert(unit, self.turn);
        self.order.push_back((unit, self.turn));
        while self.turns.len() > self.most {
            self.forget_oldest();
        }
        // A unit that was taken out stays in `order`; remove such entries before they dominate.
        if self.order.len() > 2 * self.turns.len() + 16 {
            let turns = &self.turns;
            self.order.retain(|(unit, turn)| turns.get(unit) == Some(turn));
        }
    }

    /// Removes a unit; returns whether it was present.
    pub(super) fn take(&mut self, unit: u64) -> bool {
        self.turns.remove(&unit).is_some()
    }

    pub(super) fn forget_oldest(&mut self) {
        while let Some((unit, turn)) = self.order.pop_front() {
            if self.turns.get(&unit) == Some(&turn) {
                self.turns.remove(&unit);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_and_a_second_eviction_renews_a_ghost() {
        let mut ghosts = Ghosts::new(2);
        ghosts.add(1);
        ghosts.add(2);
        ghosts.add(1);
        ghosts.add(3);
        assert!(ghosts.has(1) && !ghosts.has(2) && ghosts.has(3));
        assert!(ghosts.take(1) && !ghosts.take(1));
        for unit in 0..1000 {
            ghosts.add(unit);
            ghosts.take(unit);
        }
        assert!(ghosts.order.len() < 64 && ghosts.len() <= 2);
    }
}
