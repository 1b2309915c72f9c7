// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a log under the write policy `ordered` keeps beside its words (`replay.rs`): its place among the logs of the volume, what
//! reads as zero until its tombstone is replayed, and since when changes wait. It is memory of one thread: processes do not share
//! such a log.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use super::epochs::Seat;
use crate::config::LimitsInUse;
use crate::exec::Nanos;

/// Moments that are remembered within the longest time that changes may wait.
const MOMENTS: Nanos = 16;

/// See the module.
pub struct Order {
    pub(super) seat: Seat,
    buried: RefCell<Buried>,
    limits: LimitsInUse,
    waits: RefCell<Waits>,
}

impl Order {
    /// Of a log whose changes wait for the origin no longer than the limits allow.
    #[must_use]
    pub(crate) fn new(seat: Seat, limits: &LimitsInUse) -> Self {
        let (buried, waits) = (RefCell::default(), RefCell::default());
        Self { seat, buried, limits: Rc::clone(limits), waits }
    }

    /// How long changes may wait.
    fn lag(&self) -> Nanos {
        self.limits.get().ordered_lag
    }

    pub(super) fn bury(&self, pages: Range<u64>, position: u64) {
        self.buried.borrow_mut().add(pages, position);
    }

    pub(super) fn is_buried(&self, page: u64) -> bool {
        self.buried.borrow().has(page)
    }

    pub(super) fn has_buried(&self) -> bool {
        !self.buried.borrow().0.is_empty()
    }

    /// A change of this epoch was put. Returns whether it is the first one that is not replayed.
    pub(super) fn entered(&self, epoch: u64, now: Nanos) -> bool {
        self.waits.borrow_mut().add(epoch, now, self.lag());
        self.seat.entered(epoch)
    }

    /// The log was opened: changes of this epoch wait, from now on as far as is known.
    pub(super) fn resume(&self, next: Option<u64>, last: u64, now: Nanos) {
        self.seat.resume(next, last);
        if let Some(epoch) = next {
            self.waits.borrow_mut().add(epoch, now, self.lag());
        }
    }

    /// The changes before this position are replayed.
    pub(super) fn replayed(&self, position: u64, next: Option<u64>) {
        self.buried.borrow_mut().end(position);
        self.waits.borrow_mut().end(next);
        self.seat.replayed(next);
    }

    /// For how long the oldest change has waited.
    #[must_use]
    pub fn waits_for(&self, now: Nanos) -> Option<Nanos> {
        self.waits.borrow().since.front().map(|(_, since)| now.saturating_sub(*since))
    }

    /// Whether the oldest change has waited as long as it may.
    pub(super) fn is_behind(&self, now: Nanos) -> bool {
        self.waits_for(now).is_some_and(|waited| waited >= self.lag())
    }

    /// Whether the oldest change has waited for half of that.
    pub(super) fn ends_soon(&self, now: Nanos) -> bool {
        self.waits_for(now).is_some_and(|waited| waited >= self.lag() / 2)
    }
}

/// The pages that are zero by a tombstone: first page; end, and position of the newest tombstone. The ranges are disjoint.
#[derive(Default)]
struct Buried(BTreeMap<u64, (u64, u64)>);

impl Buried {
    fn add(&mut self, pages: Range<u64>, position: u64) {
        if pages.is_empty() {
            return;
        }
        let before = self.0.range(..pages.start).next_back();
        let first = before.filter(|(_, (end, _))| *end > pages.start).map_or(pages.start, |b| *b.0);
        let met: Vec<u64> = self.0.range(first..pages.end).map(|(start, _)| *start).collect();
        for start in met {
            let Some((end, older)) = self.0.remove(&start) else { continue };
            if start < pages.start {
                self.0.insert(start, (pages.start, older));
            }
            if pages.end < end {
                self.0.insert(pages.end, (end, older));
            }
        }
        self.0.insert(pages.start, (pages.end, position));
    }

    fn has(&self, page: u64) -> bool {
        self.0.range(..=page).next_back().is_some_and(|(_, (end, _))| page < *end)
    }

    /// Tombstones before this position are replayed.
    fn end(&mut self, position: u64) {
        self.0.retain(|_, (_, of)| *of >= position);
    }
}

/// Since when changes wait.
#[derive(Default)]
struct Waits {
    /// Epochs with the time of their first change, a few of those that are not replayed.
    since: VecDeque<(u64, Nanos)>,
}

impl Waits {
    /// `lag`: how long they may.
    fn add(&mut self, epoch: u64, now: Nanos, lag: Nanos) {
        let due = |(last, at): &(u64, Nanos)| *last < epoch && now - at >= lag / MOMENTS;
        if self.since.back().is_none_or(due) {
            self.since.push_back((epoch, now));
        }
    }

    fn end(&mut self, next: Option<u64>) {
        let Some(next) = next else { return self.since.clear() };
        while self.since.get(1).is_some_and(|(epoch, _)| *epoch <= next) {
            self.since.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::config::Limits;

    #[test]
    fn a_newer_tombstone_covers_parts_of_older_ones() {
        let mut buried = Buried::default();
        buried.add(10..20, 1);
        buried.add(30..40, 2);
        buried.add(15..35, 3);
        buried.add(17..18, 4);
        let pages = |buried: &Buried| (0..50).filter(|p| buried.has(*p)).collect::<Vec<_>>();
        assert_eq!(pages(&buried), (10..40).collect::<Vec<_>>());
        buried.end(3);
        assert_eq!(pages(&buried), (15..35).collect::<Vec<_>>());
        buried.end(4);
        assert_eq!(pages(&buried), [17]);
        buried.add(5..5, 9);
        buried.end(5);
        assert!(buried.0.is_empty());
    }

    #[test]
    fn changes_wait_since_the_first_of_the_oldest_epoch() {
        let limits = Limits { ordered_lag: 1600, ..Limits::default() };
        let order = Order::new(Seat::alone(), &Rc::new(Cell::new(limits)));
        order.resume(None, 3, 0);
        assert_eq!((order.seat.current(), order.waits_for(9)), (4, None));
        for (epoch, now) in [(4, 100), (5, 150), (6, 900), (7, 1000)] {
            order.entered(epoch, now);
        }
        assert_eq!(order.waits_for(1000), Some(900));
        assert!(order.ends_soon(900) && !order.ends_soon(899));
        assert!(order.is_behind(1700) && !order.is_behind(1699));
        // What was not remembered counts as older.
        order.replayed(10, Some(5));
        assert_eq!(order.waits_for(1000), Some(900));
        order.replayed(20, Some(7));
        assert_eq!(order.waits_for(1000), Some(0));
        order.replayed(30, None);
        assert_eq!(order.waits_for(1000), None);
    }
}
