// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long trims and zeroings, which may be gigabytes: cut into pieces, of which a worker has a few in flight.
//!
//! Invariants: at most [`MOST_FLYING`] pieces are in flight on behalf of this worker's clients, however many requests there
//! are. The clients take turns by pieces, so that one with many requests does not delay the others. The rest of a request
//! can be dropped at any time; then only its pieces in flight are waited for.
//!
//! While any worker has other requests, each worker has one piece in flight, and the next one waits [`RESTS`] times as long
//! as it took: a kernel without preemption executes a piece on a file in one go, during which no read begins on that
//! processor. A piece that takes longer than [`SLOW`] waits for a device, so [`MOST_SLOW`] are in flight then, without rests:
//! a client's time limit must be enough for gigabytes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_core::exec::{MILLISECOND, Nanos};
use larder_core::request::{Kind, Piece};

/// Pieces in flight at a time.
const MOST_FLYING: u32 = 16;
/// The same while there are other requests, and pieces take little time.
const MOST_BESIDE: u32 = 1;
/// The same if they take longer.
const MOST_SLOW: u32 = 4;
/// The rest after a piece, in times that it took.
const RESTS: u64 = 3;
const MOST_REST: Nanos = 4 * MILLISECOND;
const SLOW: Nanos = 4 * MILLISECOND;
/// Another request counts as present for so long after it arrived.
const BESIDE: Nanos = 10 * MILLISECOND;
/// A longer trim or zeroing is sent piece by piece.
const LONG_BYTES: u64 = 128 << 10;

/// Whether a request is one of those of this file.
pub(super) fn is_long(kind: Kind, len: u64) -> bool {
    matches!(kind, Kind::Trim { .. } | Kind::Zero { .. }) && len > LONG_BYTES
}

struct Bulk {
    owner: u64,
    kind: Kind,
    rest: Box<dyn Iterator<Item = Piece>>,
    count: u32,
    next: u32,
    flying: u32,
}

/// When the workers of a volume got the last request that is not a long trim or zeroing.
#[derive(Clone, Default)]
pub(crate) struct Others(Arc<AtomicU64>);

impl Others {
    /// A worker got one.
    pub(super) fn came(&self, now: Nanos) {
        // Seldom, since the workers share the word.
        if self.0.load(Ordering::Relaxed) + MILLISECOND < now {
            self.0.store(now, Ordering::Relaxed);
        }
    }

    fn are_there(&self, now: Nanos) -> bool {
        now < self.0.load(Ordering::Relaxed) + BESIDE
    }
}

/// The long requests of a worker, by their numbers on its desk.
#[derive(Default)]
pub(super) struct Bulks {
    others: Others,
    /// When the last piece was sent.
    sent: Nanos,
    /// The earliest time of the next one while there are other requests.
    rests_until: Nanos,
    /// The last piece that was answered took long.
    slow: bool,
    open: HashMap<u64, Bulk>,
    /// The requests of each client that have pieces left, in their order.
    queues: HashMap<u64, VecDeque<u64>>,
    /// Clients with such requests, in turn.
    turns: VecDeque<u64>,
    flying: u32,
}

/// A piece to send.
pub(super) struct Next {
    pub number: u64,
    pub index: u32,
    pub kind: Kind,
    pub piece: Piece,
}

impl Bulks {
    /// None yet, beside these others.
    pub fn beside(others: &Others) -> Self {
        Self { others: others.clone(), ..Self::default() }
    }

    /// Adds a request of `count` pieces.
    pub fn add(
        &mut self,
        (owner, number): (u64, u64),
        kind: Kind,
        rest: impl Iterator<Item = Piece> + 'static,
        count: u32,
    ) {
        let rest = Box::new(rest);
        self.open.insert(number, Bulk { owner, kind, rest, count, next: 0, flying: 0 });
        let queue = self.queues.entry(owner).or_default();
        if queue.is_empty() {
            self.turns.push_back(owner);
        }
        queue.push_back(number);
    }

    /// The next piece to send, if fewer than the limit are in flight.
    pub fn next(&mut self, now: Nanos) -> Option<Next> {
        let most = match self.others.are_there(now) {
            true if now < self.rests_until => 0,
            true if self.slow => MOST_SLOW,
            true => MOST_BESIDE,
            false => MOST_FLYING,
        };
        while self.flying < most {
            let owner = self.turns.pop_front()?;
            let queue = self.queues.get_mut(&owner)?;
            let number = *queue.front()?;
            let bulk = self.open.get_mut(&number)?;
            let piece = bulk.rest.next();
            if piece.is_none() || bulk.next + 1 == bulk.count {
                queue.pop_front();
            }
            if queue.is_empty() {
                self.queues.remove(&owner);
            } else {
                self.turns.push_back(owner);
            }
            let Some(piece) = piece else { continue };
            let (index, kind) = (bulk.next, bulk.kind);
            bulk.next += 1;
            bulk.flying += 1;
            self.flying += 1;
            self.sent = now;
            return Some(Next { number, index, kind, piece });
        }
        None
    }

    /// When to ask for the next piece, if none is in flight.
    pub fn deadline(&self) -> Option<Nanos> {
        (self.flying == 0 && !self.turns.is_empty()).then_some(self.rests_until)
    }

    /// A piece of this request was answered, if it is one of those here.
    pub fn answered(&mut self, number: u64, now: Nanos) {
        let Some(bulk) = self.open.get_mut(&number) else { return };
        let took = now.saturating_sub(self.sent);
        self.slow = took > SLOW;
        self.rests_until = if self.slow { now } else { now + (RESTS * took).min(MOST_REST) };
        bulk.flying -= 1;
        self.flying -= 1;
        if bulk.flying == 0 && bulk.next == bulk.count {
            self.open.remove(&number);
        }
    }

    /// Drops the rest of the requests of a client, or of all; returns their numbers with the pieces that are not sent.
    pub fn drop_rest(&mut self, owner: Option<u64>) -> Vec<(u64, u32)> {
        let of = |bulk: &Bulk| owner.is_none_or(|owner| bulk.owner == owner);
        let mut dropped = Vec::new();
        self.open.retain(|number, bulk| {
            let unsent = bulk.count - bulk.next;
            if !of(bulk) || unsent == 0 {
                return true;
            }
            bulk.next = bulk.count;
            dropped.push((*number, unsent));
            bulk.flying > 0
        });
        self.queues.retain(|of, _| owner.is_some_and(|owner| *of != owner));
        self.turns.retain(|of| owner.is_some_and(|owner| *of != owner));
        dropped
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use larder_core::exec::SECOND;
    use larder_core::request::pieces;

    use super::*;

    const KIND: Kind = Kind::Trim { fua: false };

    fn add(bulks: &mut Bulks, owner: u64, number: u64, count: u32) {
        let rest = pieces(0, u64::from(count) << 20, 1 << 20);
        bulks.add((owner, number), KIND, rest, count);
    }

    #[test]
    fn clients_take_turns_and_few_pieces_are_in_flight() {
        let mut bulks = Bulks::default();
        (0..100).for_each(|number| add(&mut bulks, 1, number, 4096));
        add(&mut bulks, 2, 100, 20);
        let (mut flying, mut of_second, mut sent) = (VecDeque::new(), 0, 0);
        while of_second < 20 {
            while let Some(next) = bulks.next(SECOND) {
                of_second += u32::from(next.number == 100);
                assert_eq!(next.number == 100, sent % 2 == 1, "the clients take turns");
                sent += 1;
                flying.push_back(next.number);
            }
            assert_eq!(flying.len(), MOST_FLYING as usize);
            bulks.answered(flying.pop_front().unwrap(), SECOND);
        }
        assert!(sent <= 41, "{sent} pieces");
    }

    #[test]
    fn every_piece_is_sent_once_and_dropped_ones_are_not() {
        let mut bulks = Bulks::default();
        add(&mut bulks, 1, 7, 40);
        add(&mut bulks, 2, 8, 40);
        let first: Vec<u64> = std::iter::from_fn(|| bulks.next(SECOND)).map(|n| n.number).collect();
        let of = |number: u64| first.iter().filter(|n| **n == number).count() as u32;
        assert_eq!(bulks.drop_rest(Some(1)), [(7, 40 - of(7))]);
        assert!(bulks.drop_rest(Some(1)).is_empty() && bulks.open.len() == 2);
        first.iter().for_each(|number| bulks.answered(*number, SECOND));
        assert_eq!(bulks.open.keys().collect::<Vec<_>>(), [&8]);
        let mut indices = Vec::new();
        while let Some(next) = bulks.next(SECOND) {
            assert_eq!(next.number, 8);
            indices.push(next.index);
            bulks.answered(8, SECOND);
        }
        assert_eq!(indices, (of(8)..40).collect::<Vec<_>>());
        assert!(bulks.is_empty() && bulks.flying == 0);
    }

    #[test]
    fn beside_other_requests_one_piece_is_in_flight_and_rests_follow() {
        let others = Others::default();
        let mut bulks = Bulks::beside(&others);
        add(&mut bulks, 1, 7, 100);
        let mut now = SECOND;
        others.came(now);
        for _ in 0..4 {
            assert!(bulks.next(now).is_some() && bulks.next(now).is_none());
            assert_eq!(bulks.deadline(), None, "its answer comes first");
            now += MILLISECOND / 2;
            bulks.answered(7, now);
            assert!(bulks.next(now).is_none());
            now += 3 * MILLISECOND / 2;
            assert_eq!(bulks.deadline(), Some(now));
        }
        // The others went.
        now += BESIDE;
        assert_eq!(std::iter::from_fn(|| bulks.next(now)).count(), MOST_FLYING as usize);
        others.came(now);
        now += 3 * MILLISECOND;
        (0..MOST_FLYING).for_each(|_| bulks.answered(7, now));
        assert_eq!(bulks.deadline(), Some(now + MOST_REST), "a rest is bounded");
    }

    #[test]
    fn pieces_that_wait_for_a_device_do_not_rest() {
        let others = Others::default();
        let mut bulks = Bulks::beside(&others);
        add(&mut bulks, 1, 7, 100);
        others.came(SECOND);
        assert!(bulks.next(SECOND).is_some() && bulks.next(SECOND).is_none());
        let now = SECOND + 7 * MILLISECOND;
        bulks.answered(7, now);
        assert_eq!(std::iter::from_fn(|| bulks.next(now)).count(), MOST_SLOW as usize);
    }
}
