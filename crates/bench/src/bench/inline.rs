// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real shard over devices that complete at once and move nothing.
//!
//! Purpose: what the engine itself costs, in memory and in time. It is the smallest driver there
//! can be: every operation the shard asks for is reported as done, and time moves only when the caller moves it.
//!
//! Why not the virtual-time driver of `larder-sim`: its queues, models and random choices cost
//! more than the engine does, and hundreds of millions of operations go through here.

use anyhow::{Result, bail};
use larder_core::buf::{Buf, PAGE};
use larder_core::config::{CacheSpec, Limits};
use larder_core::exec::{DevId, Nanos};
use larder_core::format::{Frame, UnitsPlan};
use larder_core::request::{Kind, Reply, Request};
use larder_core::shape::Shape;
use larder_core::shard::Shard;

/// Requests that are submitted before the shard runs: as many as there are population workers.
const BATCH: u64 = 8;
/// How far time moves with every batch.
const TICK: Nanos = 1_000;
/// How often all units are read before those that are not cached are an error.
const PASSES: u32 = 8;
/// How often time may jump to the next timer while no client reads.
const PATIENCE: u32 = 1_000;

/// The driver, see the module.
pub(super) struct Inline {
    pub shard: Shard,
    now: Nanos,
    unit_bytes: u64,
}

impl Inline {
    /// One shard over an origin, with a flash device of this many slots attached.
    pub(super) fn new(origin_bytes: u64, slots: u64, spec: &CacheSpec, limits: &Limits) -> Self {
        let unit_bytes = spec.unit_bytes;
        let shape = Shape::new(origin_bytes, unit_bytes, 1);
        let shard = Shard::new(shape, spec, *limits, DevId(0));
        let plan = UnitsPlan::volatile(Frame::BARE, unit_bytes, slots, 512);
        shard.attach(plan.place(DevId(1), 0), None);
        Self { shard, now: 0, unit_bytes }
    }

    /// Processes all events of the present moment.
    pub(super) fn settle(&self, mut answered: impl FnMut(Reply)) {
        loop {
            self.shard.run(self.now);
            let mut moved = false;
            while let Some(io) = self.shard.next_io() {
                self.shard.complete(io.id, Ok(()), io.buf);
                moved = true;
            }
            while let Some(reply) = self.shard.next_reply() {
                answered(reply);
            }
            if !moved {
                return;
            }
        }
    }

    /// Has the engine's own workers populate `units`, by reads that miss, and returns once a read
    /// of every one of them is a hit. A worker that is paused forgets its list; the next pass
    /// reads those units again, as a client would.
    pub(super) fn populate(&mut self, units: impl Iterator<Item = u64> + Clone) -> Result<()> {
        for _ in 0..PASSES {
            let mut misses = 0;
            for (i, unit) in units.clone().enumerate() {
                self.page(Kind::Read, unit, i as u64);
                if (i as u64 + 1).is_multiple_of(BATCH) {
                    self.settle(|reply| misses += u64::from(!reply.hit));
                    self.tick();
                }
            }
            self.settle(|reply| misses += u64::from(!reply.hit));
            if misses == 0 {
                return Ok(());
            }
            self.rest();
        }
        bail!("after {PASSES} reads of every unit some still are not cached");
    }

    /// Lets time pass for workers that sleep between two units.
    fn rest(&mut self) {
        for _ in 0..PATIENCE {
            let Some(at) = self.shard.next_deadline() else { return };
            self.now = at.max(self.now + TICK);
            self.settle(drop);
        }
    }

    /// Writes one page of each of `units`.
    pub(super) fn write_pages(&mut self, units: impl Iterator<Item = u64>) {
        for (i, unit) in units.enumerate() {
            self.page(Kind::Write { fua: false }, unit, i as u64);
            if (i as u64 + 1).is_multiple_of(BATCH) {
                self.settle(drop);
                self.tick();
            }
        }
        self.settle(drop);
    }

    /// Submits a request for one page of a unit; which one changes from unit to unit.
    pub(super) fn page(&self, kind: Kind, unit: u64, salt: u64) {
        let pages = self.unit_bytes / PAGE as u64;
        let offset = unit * self.unit_bytes + salt % pages * PAGE as u64;
        let buf = Some(Buf::with_len(PAGE));
        self.shard.submit(salt, Request { kind, offset, len: PAGE as u64, buf, passive: false });
    }

    /// Lets a moment pass.
    pub(super) fn tick(&mut self) {
        self.now += TICK;
    }
}
