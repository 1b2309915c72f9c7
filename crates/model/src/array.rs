// SPDX-License-Identifier: MIT OR Apache-2.0
//! Disks striped into one volume (RAID 0).
//!
//! A request becomes at most one part for each disk, because its bytes on one disk are contiguous there; it completes
//! when its last part does. A flush goes to every disk.
//!
//! A battery-backed controller cache is modelled as an equal share before each disk ([`crate::WriteCacheSpec`] with
//! `battery_backed`): stripes spread writes evenly, so the shares fill evenly, and each drains in its disk's own order.
//! A workload that concentrates on one stripe gets one share instead of the whole cache.
//!
//! Invariants: the parts of a request cover it exactly. Disks share no state, so each can be advanced separately.
//! Completions are ordered by time and then by submission, not by disk.
//!
//! Why not parity: the papers have none, and the write cost of RAID 5 would be another model.

use serde::Deserialize;

use crate::bounds;
use crate::completions::{Completions, Order};
use crate::disk::{Disk, DiskSpec, WriteCacheSpec};
use crate::{Kind, Model, Nanos, Op, SplitMix64};

const NEVER: Nanos = Nanos::MAX;

/// The parameters of an array.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct ArraySpec {
    /// Number of disks.
    #[serde(deserialize_with = "bounds::some")]
    pub disks: u64,
    /// Consecutive bytes on one disk.
    #[serde(deserialize_with = "bounds::bytes")]
    pub stripe_bytes: u64,
    /// The parameters of each disk. Its cache, if any, is its share of the controller's.
    pub disk: DiskSpec,
}

impl ArraySpec {
    /// The same controller with another number of disks, which share all of its cache.
    #[must_use]
    pub fn with_disks(&self, disks: u64) -> Self {
        let share = |cache: WriteCacheSpec| WriteCacheSpec {
            size_bytes: cache.size_bytes.saturating_mul(self.disks) / disks.max(1),
            ..cache
        };
        Self { disks, disk: DiskSpec { cache: self.disk.cache.map(share), ..self.disk }, ..*self }
    }
}

/// A request with parts in flight.
struct Parent {
    id: u64,
    order: Order,
    parts: u64,
    done_at: Nanos,
}

/// A striped volume.
pub struct Array {
    stripe_bytes: u64,
    disks: Vec<Disk>,
    /// Each disk's next event, or NEVER.
    events: Vec<Nanos>,
    parents: Vec<Parent>,
    free: Vec<usize>,
    done: Completions,
}

impl Array {
    /// An idle array. The seed determines the initial angles of the platters.
    #[must_use]
    pub fn new(spec: &ArraySpec, capacity_bytes: u64, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let count = spec.disks.max(1);
        let each_bytes = capacity_bytes.div_ceil(count);
        let disk = |_| Disk::new(&spec.disk, each_bytes, random.next_u64());
        Self {
            stripe_bytes: spec.stripe_bytes.max(1),
            disks: (0..count).map(disk).collect(),
            events: vec![NEVER; count as usize],
            parents: Vec::new(),
            free: Vec::new(),
            done: Completions::default(),
        }
    }

    fn add_parent(&mut self, parent: Parent) -> usize {
        if let Some(at) = self.free.pop() {
            self.parents[at] = parent;
            return at;
        }
        self.parents.push(parent);
        self.parents.len() - 1
    }

    fn submit_part(&mut self, now: Nanos, disk: usize, parent: usize, op: Op) {
        self.parents[parent].parts += 1;
        self.disks[disk].submit(now, parent as u64, op);
        self.events[disk] = self.disks[disk].next().unwrap_or(NEVER);
    }

    fn collect(&mut self, now: Nanos) {
        for (disk, event) in self.disks.iter_mut().zip(&mut self.events) {
            if *event > now {
                continue;
            }
            while let Some((part, at)) = disk.poll(now) {
                let index = part as usize;
                let parent = &mut self.parents[index];
                parent.parts -= 1;
                parent.done_at = parent.done_at.max(at);
                if parent.parts == 0 {
                    self.done.finish(parent.order, parent.id, parent.done_at);
                    self.free.push(index);
                }
            }
            *event = disk.next().unwrap_or(NEVER);
        }
    }

    fn next_event(&self) -> Nanos {
        self.events.iter().copied().min().unwrap_or(NEVER)
    }
}

/// The parts of a request: the disk and the range on it. At least one, also for zero bytes.
fn split(op: Op, disks: u64, stripe_bytes: u64) -> impl Iterator<Item = (usize, Op)> {
    let last_byte = op.offset.saturating_add(op.len.max(1) - 1);
    let (first, last) = (op.offset / stripe_bytes, last_byte / stripe_bytes);
    (first..=last.min(first.saturating_add(disks - 1))).map(move |stripe| {
        let skipped_bytes = if stripe == first { op.offset % stripe_bytes } else { 0 };
        let last_here = last - (last - stripe) % disks;
        let ends_at = if last_here == last { last_byte % stripe_bytes } else { stripe_bytes - 1 };
        let offset = stripe / disks * stripe_bytes + skipped_bytes;
        let last_byte_here = last_here / disks * stripe_bytes + ends_at;
        let len = if op.len == 0 { 0 } else { last_byte_here - offset + 1 };
        ((stripe % disks) as usize, Op { offset, len, ..op })
    })
}

impl Model for Array {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        let now = self.done.observe(now);
        let order = self.done.admit();
        let parent = self.add_parent(Parent { id, order, parts: 0, done_at: 0 });
        if op.kind == Kind::Flush {
            for disk in 0..self.disks.len() {
                self.submit_part(now, disk, parent, op);
            }
        } else {
            for (disk, part) in split(op, self.disks.len() as u64, self.stripe_bytes) {
                self.submit_part(now, disk, parent, part);
            }
        }
    }

    fn next(&self) -> Option<Nanos> {
        let event = self.next_event();
        let end = self.done.next().unwrap_or(NEVER);
        Some(event.min(end)).filter(|&at| at != NEVER)
    }

    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let now = self.done.observe(now);
        if self.next_event() <= now {
            self.collect(now);
        }
        self.done.take(now)
    }

    fn in_flight(&self) -> usize {
        self.done.in_flight()
    }
}

#[cfg(test)]
mod tests {
    use super::split;
    use crate::{Op, SplitMix64};

    /// Compares each byte with the definition of striping.
    #[test]
    fn parts_cover_a_request_exactly() {
        let mut random = SplitMix64::new(1);
        for _ in 0..2_000 {
            let (disks, stripe) = (1 + random.below(5), 1 + random.below(7));
            let op = Op::read(random.below(100), 1 + random.below(100));
            let mut want: Vec<(usize, u64)> = (op.offset..op.offset + op.len)
                .map(|at| (at / stripe, at % stripe))
                .map(|(row, within)| ((row % disks) as usize, row / disks * stripe + within))
                .collect();
            let mut got = Vec::new();
            let mut used = Vec::new();
            for (disk, part) in split(op, disks, stripe) {
                used.push(disk);
                got.extend((part.offset..part.offset + part.len).map(|at| (disk, at)));
            }
            want.sort_unstable();
            got.sort_unstable();
            assert_eq!(got, want, "{op:?} over {disks} disks by {stripe}");
            used.sort_unstable();
            assert!(
                used.windows(2).all(|pair| pair[0] < pair[1]),
                "at most one part for each disk"
            );
        }
    }

    #[test]
    fn extremes_make_few_parts() {
        assert_eq!(split(Op::read(5, 0), 3, 4).count(), 1);
        assert_eq!(split(Op::trim(0, u64::MAX), 3, 4).count(), 3);
        assert_eq!(split(Op::trim(u64::MAX, u64::MAX), 3, 4).count(), 1);
    }
}
