// SPDX-License-Identifier: MIT OR Apache-2.0
//! One device that several machines use: a model for each machine, all over one model of the device.
//!
//! Purpose: an array behind the caches of many hosts, each of which has a simulated world of its own. A host's part is a range
//! of the device, as a volume of an array is.
//!
//! Invariants: the device sees the requests of all parts in the order of their submission; a part returns its own requests
//! alone. The caller advances the worlds of all parts in order of time: whichever has the earliest event is next. So the device
//! never receives a request of the past, and a completion is never late for its part.
//!
//! Why not one world of all hosts: a world is one server with one engine, and its devices belong to it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Model, Nanos, Op};

/// A part of a device that others use too, see the module.
pub struct Joint {
    number: usize,
    /// The part's first byte on the device.
    start: u64,
    device: Arc<Mutex<Device>>,
}

struct Device {
    model: Box<dyn Model>,
    /// Of the requests in flight, by their number on the device: the part, and the part's id.
    asked: HashMap<u64, (usize, u64)>,
    submitted: u64,
    /// Of each part: what the device has completed and the part has not returned, and its requests in flight.
    done: Vec<VecDeque<(u64, Nanos)>>,
    in_flight: Vec<usize>,
}

impl Joint {
    /// As many parts as asked for, each of `part_bytes`, of a device that has at least the bytes of all.
    #[must_use]
    pub fn parts(model: Box<dyn Model>, count: u32, part_bytes: u64) -> Vec<Self> {
        let parts = count as usize;
        let device = Device {
            model,
            asked: HashMap::new(),
            submitted: 0,
            done: vec![VecDeque::new(); parts],
            in_flight: vec![0; parts],
        };
        let device = Arc::new(Mutex::new(device));
        let part = |number: usize| Self {
            number,
            start: number as u64 * part_bytes,
            device: Arc::clone(&device),
        };
        (0..parts).map(part).collect()
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model for Joint {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        let mut device = self.device();
        device.submitted += 1;
        let number = device.submitted;
        device.asked.insert(number, (self.number, id));
        device.in_flight[self.number] += 1;
        device.model.submit(now, number, Op { offset: self.start + op.offset, ..op });
    }

    fn next(&self) -> Option<Nanos> {
        let device = self.device();
        let done = device.done[self.number].front().map(|(_, at)| *at);
        done.into_iter().chain(device.model.next()).min()
    }

    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        let mut device = self.device();
        while let Some((number, at)) = device.model.poll(now) {
            if let Some((part, id)) = device.asked.remove(&number) {
                device.done[part].push_back((id, at));
            }
        }
        // The device may be ahead of this part's clock.
        device.done[self.number].front().filter(|(_, at)| *at <= now)?;
        device.in_flight[self.number] -= 1;
        device.done[self.number].pop_front()
    }

    fn in_flight(&self) -> usize {
        self.device().in_flight[self.number]
    }
}

#[cfg(test)]
mod tests {
    use super::Joint;
    use crate::{Kind, Model, Nanos, Op, profile};

    const PART: u64 = 1 << 30;

    fn device(bytes: u64) -> Box<dyn Model> {
        profile("hdd-7200", bytes, 1).unwrap_or_else(|error| unreachable!("{error}"))
    }

    fn read(offset: u64) -> Op {
        Op { kind: Kind::Read, offset, len: 4096, fua: false }
    }

    /// The ends of reads, one submitted after the other at time 0, whichever part has them.
    fn ends(parts: &mut [Joint], reads: &[(usize, u64)]) -> Vec<Nanos> {
        let mut ends = vec![0; reads.len()];
        for (id, (part, offset)) in (0..).zip(reads) {
            parts[*part].submit(0, id, read(*offset));
        }
        while let Some(at) = parts.iter().filter_map(Model::next).min() {
            for part in parts.iter_mut() {
                while let Some((id, end)) = part.poll(at) {
                    ends[id as usize] = end;
                }
            }
        }
        ends
    }

    #[test]
    fn parts_wait_for_each_other_as_ranges_of_one_device_do() {
        let reads = [(0, 4096), (1, 8192), (0, 1 << 20), (2, 0), (1, 5 << 20)];
        let together = ends(&mut Joint::parts(device(3 * PART), 3, PART), &reads);
        let alone = reads.map(|(part, offset)| (0, part as u64 * PART + offset));
        assert_eq!(together, ends(&mut Joint::parts(device(3 * PART), 1, 3 * PART), &alone));
        // Each with a device of its own: sooner.
        let apart = ends(&mut Joint::parts(device(PART), 1, PART), &[(0, 0)]);
        assert!(together[3] > apart[0], "{together:?} {apart:?}");
    }

    #[test]
    fn a_part_returns_its_own_requests_and_none_before_its_time() {
        let mut parts = Joint::parts(device(2 * PART), 2, PART);
        parts[1].submit(0, 7, read(4096));
        assert_eq!((parts[0].in_flight(), parts[1].in_flight()), (0, 1));
        let end = parts[0].next().unwrap_or_else(|| unreachable!("an event"));
        // The first part advances the device; the completion stays for the second.
        let mut at = end;
        loop {
            assert_eq!(parts[0].poll(at), None);
            match parts[0].next().filter(|next| *next > at) {
                Some(next) => at = next,
                None => break,
            }
        }
        let due = parts[1].next().unwrap_or_else(|| unreachable!("it is complete"));
        assert_eq!(parts[1].poll(due - 1), None);
        assert_eq!(parts[1].poll(due), Some((7, due)));
        assert_eq!((parts[1].in_flight(), parts[1].poll(due)), (0, None));
    }
}
