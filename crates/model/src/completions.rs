// SPDX-License-Identifier: MIT OR Apache-2.0
//! The books that every model keeps: requests taken, and those whose end is known.
//!
//! Invariants: what is returned never goes back in time, whatever clock the caller has; equal
//! times come back in the order of submission, so that the order of finding out does not show.
//! Why not one list a model: the rules above would then be kept, or not, in eight places.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Nanos;

/// The place of a request among all that its model has taken.
pub(crate) type Order = u64;

#[derive(Default)]
pub(crate) struct Completions {
    due: BinaryHeap<Reverse<(Nanos, Order, u64)>>,
    now: Nanos,
    taken: u64,
    returned: u64,
}

impl Completions {
    /// The time to work with: the caller's, or the latest known if that is later.
    pub(crate) fn observe(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        self.now
    }

    /// Counts a request in.
    pub(crate) fn admit(&mut self) -> Order {
        self.taken += 1;
        self.taken
    }

    /// States when an admitted request is done: `at` this time, which may lie ahead.
    pub(crate) fn finish(&mut self, order: Order, id: u64, at: Nanos) {
        self.due.push(Reverse((at, order, id)));
    }

    /// When the earliest known end is.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.due.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Returns the earliest request that is done by `now`.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        if self.next()? > now {
            return None;
        }
        let Reverse((at, _, id)) = self.due.pop()?;
        self.returned += 1;
        Some((id, at))
    }

    /// Admitted and not yet returned.
    pub(crate) fn in_flight(&self) -> usize {
        (self.taken - self.returned) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Completions;

    #[test]
    fn equal_times_come_back_in_order_of_submission() {
        let mut done = Completions::default();
        let orders: Vec<_> = (0..3).map(|_| done.admit()).collect();
        for (order, id) in [(orders[2], 7), (orders[0], 9), (orders[1], 8)] {
            done.finish(order, id, 50);
        }
        assert_eq!(done.take(49), None);
        assert_eq!(done.in_flight(), 3);
        let ids: Vec<_> = std::iter::from_fn(|| done.take(50)).map(|(id, _)| id).collect();
        assert_eq!(ids, [9, 8, 7]);
        assert_eq!((done.in_flight(), done.next()), (0, None));
    }

    #[test]
    fn a_clock_that_steps_back_stands_still() {
        let mut done = Completions::default();
        assert_eq!([10, 5, 12].map(|now| done.observe(now)), [10, 10, 12]);
    }
}
