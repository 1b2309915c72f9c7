// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several devices in one space of bytes: each has a range, and its requests.
//!
//! Purpose: the origins of volumes that share a cache. A request goes to the device whose range has its first byte, at its
//! offset within that range. So does a flush, whose length is ignored as by every model. A busy device delays no request
//! of another.
//!
//! Invariants: devices advance together, in order of time; of completions at the same time that of the first device is
//! returned first.
//!
//! Why not a device number in [`Op`]: a model is one device to its caller, and no other model needs the number.

use crate::{Model, Nanos, Op};

/// The devices, see the module.
pub struct ByOffset {
    /// The first byte of each, and the device, in order.
    parts: Vec<(u64, Box<dyn Model>)>,
    now: Nanos,
}

impl ByOffset {
    /// Devices that begin at these bytes, in ascending order; the first at 0.
    ///
    /// # Panics
    /// If the first does not begin at 0, or the order is another.
    #[must_use]
    pub fn new(parts: Vec<(u64, Box<dyn Model>)>) -> Self {
        assert_eq!(parts.first().map(|(start, _)| *start), Some(0), "the space begins at 0");
        assert!(parts.windows(2).all(|pair| pair[0].0 < pair[1].0), "in ascending order");
        Self { parts, now: 0 }
    }

    /// The device with the earliest event, and its time.
    fn earliest(&self) -> Option<(Nanos, usize)> {
        let events = self.parts.iter().enumerate();
        events.filter_map(|(number, (_, model))| Some((model.next()?, number))).min()
    }
}

impl Model for ByOffset {
    fn submit(&mut self, now: Nanos, id: u64, op: Op) {
        self.now = self.now.max(now);
        let part = self.parts.partition_point(|(start, _)| *start <= op.offset) - 1;
        let (start, model) = &mut self.parts[part];
        model.submit(self.now, id, Op { offset: op.offset - *start, ..op });
    }

    fn next(&self) -> Option<Nanos> {
        self.earliest().map(|(at, _)| at)
    }

    fn poll(&mut self, now: Nanos) -> Option<(u64, Nanos)> {
        self.now = self.now.max(now);
        while let Some((at, part)) = self.earliest().filter(|(at, _)| *at <= self.now) {
            if let Some(done) = self.parts[part].1.poll(at) {
                return Some(done);
            }
        }
        None
    }

    fn in_flight(&self) -> usize {
        self.parts.iter().map(|(_, model)| model.in_flight()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::ByOffset;
    use crate::{Model, Nanos, Op, profile};

    const HALF: u64 = 1 << 30;

    fn device(name: &str) -> Box<dyn Model> {
        profile(name, HALF, 1).unwrap_or_else(|error| unreachable!("{error}"))
    }

    fn ends(model: &mut dyn Model, ops: &[Op]) -> Vec<Nanos> {
        (0..).zip(ops).for_each(|(id, op)| model.submit(0, id, *op));
        let mut ends = vec![0; ops.len()];
        while let Some(at) = model.next() {
            while let Some((id, end)) = model.poll(at) {
                ends[id as usize] = end;
            }
        }
        ends
    }

    #[test]
    fn each_device_serves_its_range_as_if_it_were_alone() {
        let [disk, cloud]: [Vec<Op>; 2] = [0, HALF].map(|start| {
            (0..50).map(|n| Op::read(start + n * 7_919 % 4096 * 4096, 4096)).collect()
        });
        let flush = Op { offset: HALF, ..Op::flush() };
        let parts = vec![(0, device("hdd-7200")), (HALF, device("cloud"))];
        let all: Vec<Op> = [&disk[..], &cloud, &[flush]].concat();
        let both = ends(&mut ByOffset::new(parts), &all);
        let own = |op: &Op| Op { offset: op.offset - HALF, ..*op };
        let alone: Vec<Op> = cloud.iter().chain([&flush]).map(own).collect();
        let alone = [ends(&mut *device("hdd-7200"), &disk), ends(&mut *device("cloud"), &alone)];
        assert_eq!(both, alone.concat());
    }
}
