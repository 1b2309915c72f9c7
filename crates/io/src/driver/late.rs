// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations whose end is told later than it comes, or that do not even begin: injected delay,
//! `slow+` and held operations.
//!
//! Invariants: an operation has one gate for the device itself and one for each reason to wait; it
//! ends when the last gate opens, whichever that is. A plain device never comes here.
//!
//! Why operations behind a model run at once: the real device is meant to be much faster than the
//! model, so what is measured is the model, not their sum.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use larder_core::exec::{Io, Nanos};

use super::ops::Op;
use super::{DeviceEntry, Driver, earlier};
use crate::clock;
use crate::fault::Verdict;

/// Everything that is not the ring's to report.
#[derive(Default)]
pub(super) struct Late {
    /// When to open a gate of which operation. An operation that has such a gate cannot end
    /// before, so its key is not used again meanwhile.
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Operations that have not begun, in order.
    pub(super) held: Vec<u32>,
    /// How many operations are with a model.
    pub(super) modelled: usize,
    /// Kept for its memory.
    pub(super) finished: Vec<u32>,
}

impl Late {
    pub(super) fn is_empty(&self) -> bool {
        self.timers.is_empty() && self.held.is_empty() && self.modelled == 0
    }

    pub(super) fn at(&mut self, time: Nanos, key: u32) {
        self.timers.push(Reverse((time, key)));
    }

    /// The next operation with a gate that is due.
    pub(super) fn due(&mut self, now: Nanos) -> Option<u32> {
        self.timers.peek().filter(|Reverse((time, _))| *time <= now)?;
        self.timers.pop().map(|Reverse((_, key))| key)
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.timers.peek().map(|Reverse((time, _))| *time)
    }
}

impl Driver {
    /// Starts an operation on a device with faults or a model.
    pub(super) fn start_late(&mut self, owner: u32, io: Io, index: u32) {
        let device = &self.devices[index as usize].device;
        let verdict = device.fault().map_or(Verdict::Run(0), |fault| fault.judge(&io));
        match verdict {
            Verdict::Fail(errno) => self.push_done(owner, io, Err(errno)),
            Verdict::Hold => {
                let key = self.insert(Op::new(owner, io, index));
                self.late.held.push(key as u32);
            }
            Verdict::Run(delay) => {
                let key = self.insert(Op::new(owner, io, index));
                self.begin_late(key, delay);
            }
        }
    }

    /// Begins an operation that has more than the device itself to wait for.
    fn begin_late(&mut self, key: usize, delay: Nanos) {
        let now = clock::now();
        let op = &mut self.ops[key];
        if delay > 0 {
            op.gates += 1;
            self.late.at(now.saturating_add(delay), key as u32);
        }
        let DeviceEntry { device, member, .. } = &self.devices[op.device as usize];
        if let Some(slow) = device.slow() {
            op.gates += 1;
            self.late.modelled += 1;
            slow.submit(*member, key as u32, now, &op.io);
        }
        self.begin(key);
    }

    /// Opens gates that are due and begins what is not held any more; returns when to come again.
    pub(super) fn run_late(&mut self) -> Option<Nanos> {
        let now = clock::now();
        while let Some(key) = self.late.due(now) {
            self.open_gate(key as usize, Ok(()));
        }
        for key in std::mem::take(&mut self.late.held) {
            let op = &self.ops[key as usize];
            let fault = self.devices[op.device as usize].device.fault();
            match fault.map_or(Verdict::Run(0), |fault| fault.judge_held(&op.io)) {
                Verdict::Hold => self.late.held.push(key),
                Verdict::Fail(errno) => self.open_gate(key as usize, Err(errno)),
                Verdict::Run(delay) => self.begin_late(key as usize, delay),
            }
        }
        let modelled = if self.late.modelled > 0 { self.run_models(now) } else { None };
        earlier(self.late.next(), modelled)
    }

    /// Opens the gates of what models are done with.
    fn run_models(&mut self, now: Nanos) -> Option<Nanos> {
        let mut finished = std::mem::take(&mut self.late.finished);
        let mut next = None;
        for (_, entry) in self.devices.iter().filter(|(_, entry)| entry.in_flight > 0) {
            if let Some(slow) = entry.device.slow() {
                next = earlier(next, slow.collect(entry.member, now, &mut finished));
            }
        }
        self.late.modelled -= finished.len();
        for key in finished.drain(..) {
            self.open_gate(key as usize, Ok(()));
        }
        self.late.finished = finished;
        next
    }
}
