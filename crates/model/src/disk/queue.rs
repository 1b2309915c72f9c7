// SPDX-License-Identifier: MIT OR Apache-2.0
//! Native command queueing: the requests among which a disk chooses.
//!
//! The first 32 requests (or as many as the disk has slots) are candidates; the others wait for a slot in order of
//! arrival. The disk serves the candidate that the head reaches first.
//!
//! Invariant: a candidate is passed over at most `patience` times; then the oldest such candidate is served. Slots are
//! assigned in order, so a candidate waits for at most `patience + depth` others.
//!
//! Why not an age in milliseconds: behind a queue of large requests everything is old, and the disk would serve in
//! order of arrival just when choosing pays off most.

use std::collections::VecDeque;

use super::platter::{MediaRange, Plan, Platter};
use crate::Nanos;
use crate::completions::Order;

/// A request that waits for the head.
pub(crate) struct Pending {
    pub(crate) id: u64,
    pub(crate) order: Order,
    pub(crate) span: MediaRange,
    pub(crate) write: bool,
}

impl Pending {
    pub(crate) fn plan(&self, platter: &Platter, now: Nanos) -> Plan {
        if self.write {
            platter.plan_write(now, &self.span)
        } else {
            platter.plan_read(now, &self.span)
        }
    }
}

struct Candidate {
    pending: Pending,
    /// The queue's `served` when the request became a candidate.
    since: u64,
}

pub(crate) struct Queue {
    candidates: Vec<Candidate>,
    depth: usize,
    patience: u64,
    backlog: VecDeque<Pending>,
    served: u64,
}

impl Queue {
    pub(crate) fn new(depth: usize, patience: u64) -> Self {
        let depth = depth.max(1);
        Self {
            candidates: Vec::with_capacity(depth),
            depth,
            patience,
            backlog: VecDeque::new(),
            served: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    pub(crate) fn push(&mut self, pending: Pending) {
        if self.candidates.len() < self.depth {
            self.candidates.push(Candidate { pending, since: self.served });
        } else {
            self.backlog.push_back(pending);
        }
    }

    /// Removes the next request to serve at `now`; returns it with its plan.
    pub(crate) fn pop(&mut self, platter: &Platter, now: Nanos) -> Option<(Pending, Plan)> {
        let (index, plan) = self.choose(platter, now)?;
        self.served += 1;
        let candidate = self.candidates.swap_remove(index);
        if let Some(pending) = self.backlog.pop_front() {
            self.candidates.push(Candidate { pending, since: self.served });
        }
        Some((candidate.pending, plan))
    }

    fn choose(&self, platter: &Platter, now: Nanos) -> Option<(usize, Plan)> {
        let oldest =
            (0..self.candidates.len()).min_by_key(|&at| self.candidates[at].pending.order)?;
        let candidate = &self.candidates[oldest];
        let mut best = (oldest, candidate.pending.plan(platter, now));
        if self.served - candidate.since >= self.patience {
            return Some(best);
        }
        let mut best_key = (best.1.start(now), candidate.pending.order);
        for (at, candidate) in self.candidates.iter().enumerate() {
            let plan = candidate.pending.plan(platter, now);
            let key = (plan.start(now), candidate.pending.order);
            if key < best_key {
                best = (at, plan);
                best_key = key;
            }
        }
        Some(best)
    }
}
