// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time: jobs that do one act after the other, and whose turn is next.
//!
//! A job is an application's thread or a block on its way down. Its acts are to wait and to put a
//! packet on a wire. A wire is taken when the packet is ready, in the order of time, so no job waits
//! behind a packet of the future.
//!
//! Invariants: events come in the order of their times, those of one time in the order in which they
//! were made; a wire's packets do not overlap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use larder_model::Nanos;

/// A step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// So long.
    Wait(Nanos),
    /// A packet that takes so long.
    Packet(Nanos),
}

/// Bits of an event's second half that are the job's number.
const JOB_BITS: u32 = 24;

/// A job's acts, first to last.
#[derive(Clone, Debug, Default)]
pub(super) struct Acts {
    list: Vec<Act>,
    next: usize,
}

impl Acts {
    #[inline]
    pub(super) fn push(&mut self, act: Act) {
        if self.next == self.list.len() {
            self.list.clear();
            self.next = 0;
        }
        self.list.push(act);
    }

    #[inline]
    fn pop(&mut self) -> Option<Act> {
        let act = self.list.get(self.next).copied();
        self.next += usize::from(act.is_some());
        act
    }
}

/// The state of a job after its acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// All its acts are done.
    Over,
    /// It waits; another job is next.
    Waits,
}

/// The clock, see the module.
pub(super) struct Clock {
    pub(super) now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64)>>,
    made: u64,
    /// When each host's wire is free; without any, wires carry any number of packets.
    wires: Vec<Nanos>,
    one_at_a_time: bool,
    pub(super) packets: u64,
}

impl Clock {
    pub(super) fn new(hosts: u32, one_at_a_time: bool) -> Self {
        let wires = vec![0; hosts as usize];
        Self { now: 0, events: BinaryHeap::new(), made: 0, wires, one_at_a_time, packets: 0 }
    }

    /// Wakes a job at a time.
    #[inline]
    pub(super) fn wake(&mut self, at: Nanos, job: u32) {
        self.made += 1;
        self.events.push(Reverse((at, self.made << JOB_BITS | u64::from(job))));
    }

    /// Jumps to the next event; whose it is.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u32> {
        let Reverse((at, tag)) = self.events.pop()?;
        self.now = at;
        Some((tag & ((1 << JOB_BITS) - 1)) as u32)
    }

    /// Continues a job with its acts. As long as no other job is before it, time passes here, without
    /// an event.
    #[inline]
    pub(super) fn go_on(&mut self, job: u32, host: u32, acts: &mut Acts) -> Turn {
        while let Some(act) = acts.pop() {
            let until = match act {
                Act::Wait(span) => self.now + span,
                Act::Packet(span) => {
                    self.packets += 1;
                    let wire = &mut self.wires[host as usize];
                    let from = if self.one_at_a_time { self.now.max(*wire) } else { self.now };
                    *wire = from + span;
                    *wire
                }
            };
            if self.events.peek().is_some_and(|Reverse((at, _))| *at <= until) {
                self.wake(until, job);
                return Turn::Waits;
            }
            self.now = until;
        }
        Turn::Over
    }
}
