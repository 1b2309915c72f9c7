// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bookkeeping of every model: accepted requests, and those whose completion time is known.
//!
//! Invariants: returned times never decrease, whatever the caller's clock does; requests with equal times are returned
//! in the order of submission, independent of the order in which the model computed them.
//!
//! Why not one list in each model: each would have to implement these rules again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Nanos;

/// The position of a request among all that its model accepted.
pub(crate) type Order = u64;

#[derive(Default)]
pub(crate) struct Completions {
    due: BinaryHeap<Reverse<(Nanos, Order, u64)>>,
    now: Nanos,
    taken: u64,
    returned: u64,
}

impl Completions {
    /// The time to use: the caller's, or the latest known if that is later.
    pub(crate) fn observe(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        self.now
    }

    /// Accepts a request.
    pub(crate) fn admit(&mut self) -> Order {
        self.taken += 1;
        self.taken
    }

    /// Sets the completion time of an accepted request; it may be in the future.
    pub(crate) fn finish(&mut self, order: Order, id: u64, at: Nanos) {
        self.due.push(Reverse((at, order, id)));
    }

    /// The earliest known completion time.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.due.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Returns the earliest request that is complete by `now`.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        if self.next()? > now {
            return None;
        }
        let Reverse((at, _, id)) = self.due.pop()?;
        self.returned += 1;
        Some((id, at))
    }

    /// Requests accepted and not yet returned.
    pub(crate) fn in_flight(&self) -> usize {
        (self.taken - self.returned) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Completions;

    #[test]
    fn equal_times_are_returned_in_order_of_submission() {
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
