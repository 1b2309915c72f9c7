// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual-time driver: shards and modelled devices under one clock that jumps from event to
//! event.
//!
//! Purpose: the same engine code as in production, in a world where a seed decides everything.
//! Invariants: single-threaded; shards and devices are served in the order of their numbers;
//! equal seeds and requests give equal runs.

use std::collections::VecDeque;
use std::ops::Range;

use larder_core::buf::Buf;
use larder_core::config::{CacheSpec, Choices, Limits};
use larder_core::desk::{Desk, Finished, Requests};
use larder_core::event::Event;
use larder_core::exec::{DevId, Nanos};
use larder_core::format::{Frame, LogsPlan, UnitsPlan};
use larder_core::journal::recover::Recovered;
use larder_core::pagelog::{Epochs, Seat};
use larder_core::request::{Kind, Request};
use larder_core::shape::Shape;
use larder_core::shard::Shard;
use larder_core::stats::Counters;
use larder_core::volumes::Volumes;

use crate::device::SimDevice;
use crate::store::Store;

/// The origin's number among the devices.
pub const ORIGIN: DevId = DevId(0);

/// Tags of flushes that the first shard does for another: this less the volume's number times the shards, and less the other's
/// number.
const RELAYED: u64 = u64::MAX;

/// The specification that choices make which the caller knows to be lawful.
///
/// # Panics
/// If they are not.
#[must_use]
pub fn lawful(choices: &Choices) -> CacheSpec {
    CacheSpec::try_from(choices).unwrap_or_else(|why| panic!("unlawful choices: {why}"))
}

/// Hits that the origin served.
fn balanced(shards: &[Shard]) -> u64 {
    shards.iter().map(|shard| shard.counters().balanced_reads).sum()
}

/// No shard reads from the origin of a volume what flash has. In a world of one volume, counts what was read before.
fn distrust(shards: &[Shard], volumes: u32, volume: u32, doubted: &mut Option<u64>) {
    shards.iter().for_each(|shard| shard.distrust_origin(volume));
    if volumes == 1 {
        doubted.get_or_insert_with(|| balanced(shards));
    }
}

/// A volume in virtual time, see the module.
pub struct World {
    now: Nanos,
    shape: Shape,
    volumes: Volumes,
    /// A FLUSH goes to every shard.
    flush_shards: bool,
    shards: Vec<Shard>,
    devices: Vec<SimDevice>,
    desk: Desk<u64>,
    finished: VecDeque<Finished<u64>>,
    events: Vec<Event>,
    /// Shards whose page logs on the newest device are not open yet.
    logs_opening: usize,
    /// Whether open logs wait for [`serve_logs`](Self::serve_logs).
    logs_wait: bool,
    ignores: VecDeque<(usize, DevId, Vec<Range<u64>>)>,
    /// Hits that the origin had served when it could no longer be trusted.
    doubted: Option<u64>,
}

impl World {
    /// A volume of one shard in pass-through over `origin`, in the shape that a server gives it.
    #[must_use]
    pub fn new(origin: SimDevice, origin_bytes: u64, spec: &CacheSpec, limits: &Limits) -> Self {
        let shape = Shape::new(origin_bytes, spec.unit_bytes, 1).wide();
        Self::shaped(origin, shape, spec, limits)
    }

    /// A volume of this shape.
    #[must_use]
    pub fn shaped(origin: SimDevice, shape: Shape, spec: &CacheSpec, limits: &Limits) -> Self {
        Self::shared(origin, (shape, &Volumes::one(shape.origin_bytes)), spec, limits)
    }

    /// Volumes that share a cache of this shape. `origins` stands for the origins of all: a device of the whole space, of
    /// which a flush covers the range of one volume.
    #[must_use]
    pub fn shared(
        origins: SimDevice,
        (shape, volumes): (Shape, &Volumes),
        spec: &CacheSpec,
        limits: &Limits,
    ) -> Self {
        debug_assert_eq!(shape.unit_bytes, spec.unit_bytes);
        let shard =
            |shard| Shard::shared(shape.of_shard(shard), volumes.clone(), spec, *limits, ORIGIN);
        Self {
            now: 0,
            shape,
            volumes: volumes.clone(),
            flush_shards: spec.flushes_every_shard(),
            shards: (0..shape.shards).map(shard).collect(),
            devices: vec![origins],
            desk: Desk::default(),
            finished: VecDeque::new(),
            events: Vec::new(),
            logs_opening: 0,
            logs_wait: false,
            ignores: VecDeque::new(),
            doubted: None,
        }
    }

    /// The origin of a volume may have lost acknowledged writes, as after a lost connection.
    pub fn distrust_origin(&mut self, volume: u32) {
        distrust(&self.shards, self.volumes.count(), volume, &mut self.doubted);
    }

    /// The volumes.
    #[must_use]
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// Hits that the origin served after that.
    #[must_use]
    pub fn served_in_doubt(&self) -> u64 {
        self.doubted.map_or(0, |before| balanced(&self.shards) - before)
    }

    /// Attaches a flash device of `slots` slots; its number.
    pub fn attach(&mut self, flash: SimDevice, slots: u64, block_bytes: u32) -> DevId {
        self.devices.push(flash);
        let dev = DevId(self.devices.len() as u32 - 1);
        let unit_bytes = self.shape.unit_bytes;
        let plan = UnitsPlan::volatile(Frame::BARE, unit_bytes, slots, block_bytes);
        for shard in &self.shards {
            shard.attach(plan.place(dev, 0), None);
        }
        dev
    }

    /// Attaches a flash device of units of this volume, and what was recovered from it for each shard; how
    /// many shards are warm.
    pub fn attach_journaled(
        &mut self,
        flash: SimDevice,
        plan: &UnitsPlan,
        volume: u64,
        recovered: &[Option<Recovered>],
    ) -> usize {
        self.devices.push(flash);
        let place = plan.place(DevId(self.devices.len() as u32 - 1), volume);
        let shards = self.shards.iter().zip(recovered);
        shards.filter(|(shard, found)| shard.attach(place, found.as_ref())).count()
    }

    /// Attaches a flash device with a page log of this volume for each shard.
    pub fn attach_logs(&mut self, flash: SimDevice, plan: &LogsPlan, volume: u64) {
        self.attach_logs_ignoring(flash, plan, volume, &[]);
    }

    /// As [`attach_logs`](Self::attach_logs); recovery ignores some pages of each log, in order. If there are any, the
    /// caller calls [`serve_logs`](Self::serve_logs) once it has recorded that there are none any more.
    pub fn attach_logs_ignoring(
        &mut self,
        flash: SimDevice,
        plan: &LogsPlan,
        volume: u64,
        ignored: &[Vec<Range<u64>>],
    ) {
        self.devices.push(flash);
        let dev = DevId(self.devices.len() as u32 - 1);
        self.logs_opening = self.shards.len();
        self.logs_wait = ignored.iter().any(|pages| !pages.is_empty());
        let epochs = Epochs::of(self.shards.len() as u32);
        for (number, (shard, place)) in (0..).zip(self.shards.iter().zip(plan.each(volume))) {
            let ignored = ignored.get(number as usize).cloned().unwrap_or_default();
            shard.attach_log(dev, (place, Seat::new(&epochs, number)), ignored);
        }
    }

    /// All logs are open and wait for [`serve_logs`](Self::serve_logs).
    #[must_use]
    pub fn logs_wait(&self) -> bool {
        self.logs_wait && self.logs_opening == 0
    }

    /// Logs that wait serve requests.
    pub fn serve_logs(&mut self) {
        self.logs_wait = false;
        self.shards.iter().for_each(Shard::all_logs_open);
        self.settle();
    }

    /// The next pages that a shard asked to have ignored by recovery: shard, device, pages.
    pub fn take_ignores(&mut self) -> Option<(usize, DevId, Vec<Range<u64>>)> {
        self.ignores.pop_front()
    }

    /// The device that was attached last.
    #[must_use]
    pub fn newest(&self) -> DevId {
        DevId(self.devices.len() as u32 - 1)
    }

    /// Removes a device, which ends the world.
    pub fn take_store(&mut self, dev: DevId) -> Option<Store> {
        self.devices.get_mut(dev.0 as usize)?.store.take()
    }

    /// The state file durably records that flash is out of use.
    pub fn fence(&mut self) {
        self.shards.iter().for_each(Shard::fenced);
        self.settle();
    }

    /// Detaches the flash device.
    pub fn detach(&mut self) {
        self.shards.iter().for_each(Shard::detach);
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The bytes of a device.
    #[must_use]
    pub fn store(&self, dev: DevId) -> Option<&Store> {
        self.devices.get(dev.0 as usize)?.store.as_ref()
    }

    /// A device.
    pub fn device(&mut self, dev: DevId) -> &mut SimDevice {
        &mut self.devices[dev.0 as usize]
    }

    /// Whether a read of some device returned a sector of just these bytes that rot had caused.
    #[must_use]
    pub fn served_rotten(&self, sector: &[u8]) -> bool {
        self.devices.iter().any(|device| device.served_rotten(sector))
    }

    /// Releases the held operations of all devices.
    pub fn release_all(&mut self) {
        let now = self.now;
        self.devices.iter_mut().for_each(|device| device.release(now));
    }

    /// A client's request; `data` is what a write writes, zeroes if it is empty. A flush has no length, and any offset of its
    /// volume.
    pub fn request(&mut self, client: u64, kind: Kind, offset: u64, len: u64, data: &[u8]) {
        if kind == Kind::Flush {
            let count = if self.flush_shards { self.shards.len() as u32 } else { 1 };
            let number = self.desk.open(client, kind, 0, count);
            for (i, shard) in (0..count).zip(&self.shards) {
                let request = Request { kind, offset, len: 0, buf: None, passive: false };
                shard.submit(Desk::<u64>::tag(number, i), request);
            }
            return;
        }
        let count = self.shape.pieces(offset, len).count() as u32;
        let number = self.desk.open(client, kind, len, count);
        for (i, piece) in self.shape.pieces(offset, len).enumerate() {
            let from = (piece.offset - offset) as usize;
            let buf = match kind {
                Kind::Read => Some(Buf::with_len(piece.len as usize)),
                Kind::Write { .. } if data.is_empty() => Some(Buf::zeroed(piece.len as usize)),
                Kind::Write { .. } => Some(Buf::copy_of(&data[from..from + piece.len as usize])),
                _ => None,
            };
            let request =
                Request { kind, offset: piece.offset, len: piece.len, buf, passive: false };
            let shard = self.shape.shard_at(piece.offset) as usize;
            self.shards[shard].submit(Desk::<u64>::tag(number, i as u32), request);
        }
    }

    /// Processes all events of the present moment.
    pub fn settle(&mut self) {
        loop {
            let mut moved = false;
            for (number, shard) in self.shards.iter().enumerate() {
                shard.run(self.now);
                while let Some(io) = shard.next_io() {
                    self.devices[io.dev.0 as usize].submit(self.now, number, io);
                }
                while let Some(reply) = shard.next_reply() {
                    let shards = self.shards.len() as u64;
                    match RELAYED.checked_sub(reply.tag) {
                        Some(asked) if asked < shards * u64::from(self.volumes.count()) => {
                            moved = true;
                            let (volume, asker) = ((asked / shards) as u32, asked % shards);
                            self.shards[asker as usize].origin_flushed(volume, reply.result);
                        }
                        _ => self.finished.extend(self.desk.take(reply)),
                    }
                }
                while let Some(event) = shard.next_event() {
                    match event {
                        Event::NeedsOriginFlush { volume } => {
                            moved = true;
                            let asked = u64::from(volume) * self.shards.len() as u64;
                            self.shards[0].flush_origin(volume, RELAYED - asked - number as u64);
                            continue;
                        }
                        Event::OriginFlushFailed { volume, .. } => {
                            let volumes = self.volumes.count();
                            distrust(&self.shards, volumes, volume, &mut self.doubted);
                        }
                        Event::LogIgnores { dev, pages } => {
                            self.ignores.push_back((number, dev, pages));
                            continue;
                        }
                        Event::LogOpened { dev, .. } | Event::LogRefused { dev, .. }
                            if dev.0 as usize + 1 == self.devices.len() =>
                        {
                            moved = true;
                            self.logs_opening -= 1;
                            if self.logs_opening == 0 && !self.logs_wait {
                                self.shards.iter().for_each(Shard::all_logs_open);
                            }
                        }
                        _ => {}
                    }
                    self.events.push(event);
                }
            }
            for (dev, device) in (0..).map(DevId).zip(&mut self.devices) {
                while let Some(done) = device.poll(self.now) {
                    moved = true;
                    if done.flush_failed {
                        self.shards.iter().for_each(|shard| shard.flash_flush_failed(dev));
                    }
                    self.shards[done.shard].complete(done.id, done.result, done.buf);
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// The time of the next event.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        let shards = self.shards.iter().filter_map(Shard::next_deadline);
        shards.chain(self.devices.iter().filter_map(SimDevice::next)).min()
    }

    /// Jumps to the next event, if there is one no later than `until`.
    pub fn advance(&mut self, until: Nanos) -> bool {
        self.settle();
        match self.next() {
            Some(at) if at <= until => {
                self.now = self.now.max(at);
                self.settle();
                true
            }
            _ => false,
        }
    }

    /// Lets time pass without events.
    pub fn idle_until(&mut self, until: Nanos) {
        while self.advance(until) {}
        self.now = self.now.max(until);
        self.settle();
    }

    /// The next client request that is complete.
    pub fn next_finished(&mut self) -> Option<Finished<u64>> {
        self.finished.pop_front()
    }

    /// Client requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.desk.in_flight()
    }

    /// What was reported so far.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The engine's counters, over all shards.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.shards.iter().for_each(|s| sum += s.counters());
        sum
    }

    /// The counters of client requests.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.desk.requests()
    }

    /// The shards.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }
}
