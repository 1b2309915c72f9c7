// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume in this process: one shard over the real driver, and requests of one page.
//!
//! Purpose: everything that a served volume does per request except its front: the desk, the
//! shard, the driver's ring. The bare device runs through the same loop with a request handed
//! straight to the driver, so that what differs is the cache alone.

use anyhow::{Result, bail, ensure};
use larder_core::buf::{Buf, PAGE};
use larder_core::config::{Choices, Limits};
use larder_core::desk::Desk;
use larder_core::exec::{DevId, Io, IoId, IoKind, Nanos, SECOND};
use larder_core::format::{Frame, UnitsPlan};
use larder_core::request::{Kind, Reply, Request, pieces};
use larder_core::shape::Shape;
use larder_core::shard::Shard;
use larder_io::{Device, Driver};

const ORIGIN: DevId = DevId(0);
const FLASH: DevId = DevId(1);
/// How often a unit is read, and how long its population may take each time, before it is an
/// error that it is not cached.
const ATTEMPTS: u32 = 5;
const PATIENCE: Nanos = 5 * SECOND;

/// Something that answers reads of one page.
pub(super) trait Target {
    /// Starts a read; its answer carries `client`.
    fn read(&mut self, client: u32, offset: u64);

    /// One system call: hands over what was started, and waits until there is something to report
    /// or the clock reaches `until`.
    fn turn(&mut self, until: Option<Nanos>) -> Result<()>;

    /// The next answer. To be called until there is none; what it reads next is best started in
    /// between, so that the device is not kept waiting for the rest.
    fn next(&mut self) -> Result<Option<u32>>;

    /// The driver's clock.
    fn now(&self) -> Nanos;
}

/// A device and nothing before it.
pub(super) struct Bare {
    driver: Driver,
    spare: Vec<Buf>,
}

impl Bare {
    pub(super) fn new(device: &Device) -> Result<Self> {
        let mut driver = Driver::new()?;
        driver.attach(ORIGIN, device.clone());
        Ok(Self { driver, spare: Vec::new() })
    }
}

impl Target for Bare {
    fn read(&mut self, client: u32, offset: u64) {
        let buf = Some(self.spare.pop().unwrap_or_else(|| Buf::with_len(PAGE)));
        let (id, kind, len) = (IoId(client), IoKind::Read, PAGE as u64);
        self.driver.start(0, Io { id, dev: ORIGIN, kind, offset, len, buf, at: 0 });
    }

    fn turn(&mut self, until: Option<Nanos>) -> Result<()> {
        Ok(self.driver.turn(until)?)
    }

    fn next(&mut self) -> Result<Option<u32>> {
        let Some(done) = self.driver.next_done() else { return Ok(None) };
        if let Err(errno) = done.result {
            bail!("the bare device answered: {errno}");
        }
        self.spare.extend(done.buf);
        Ok(Some(done.id.0))
    }

    fn now(&self) -> Nanos {
        self.driver.now()
    }
}

/// A cached volume, see the module.
pub(super) struct Volume {
    driver: Driver,
    shard: Shard,
    desk: Desk<u32>,
    spare: Vec<Buf>,
    /// The time of this turn.
    at: Nanos,
    /// A reply that was found before it was asked for.
    reply: Option<Reply>,
    unit_bytes: u64,
    units: u64,
}

impl Volume {
    /// A volume over `origin` with `flash` in front of it.
    pub(super) fn new(
        origin: &Device,
        flash: Option<&Device>,
        choices: &Choices,
        limits: &Limits,
    ) -> Result<Self> {
        let (origin_bytes, unit_bytes) = (origin.geometry().bytes, choices.unit_bytes);
        let mut driver = Driver::new()?;
        driver.attach(ORIGIN, origin.clone());
        let shape = Shape::new(origin_bytes, unit_bytes, 1);
        let shard = Shard::new(shape, &choices.try_into()?, *limits, ORIGIN);
        if let Some(flash) = flash {
            driver.attach(FLASH, flash.clone());
            let geometry = flash.geometry();
            let (slots, block_bytes) = (geometry.bytes / unit_bytes, geometry.block_bytes);
            let plan = UnitsPlan::volatile(Frame::BARE, unit_bytes, slots, block_bytes);
            shard.attach(plan.place(FLASH, 0), None);
        }
        let (desk, units, at) = (Desk::default(), origin_bytes / unit_bytes, driver.now());
        Ok(Self { driver, shard, desk, spare: Vec::new(), at, reply: None, unit_bytes, units })
    }

    /// Runs the shard and starts what it asks for.
    fn step(&mut self) {
        self.shard.run(self.at);
        while let Some(io) = self.shard.next_io() {
            self.driver.start(0, io);
        }
        if self.reply.is_none() {
            self.reply = self.shard.next_reply();
        }
    }

    fn answer(&mut self, reply: Reply) -> Result<u32> {
        let Some(mut finished) = self.desk.take(reply) else { bail!("half a page was answered") };
        if let Err(errno) = finished.result {
            bail!("the volume answered: {errno}");
        }
        self.spare.append(&mut finished.bufs);
        Ok(finished.client)
    }

    /// Has the engine populate every unit of the volume, one after the other, by reads that miss;
    /// returns once every unit was read from flash.
    pub(super) fn populate_all(&mut self) -> Result<()> {
        for unit in 0..self.units {
            let page = unit % (self.unit_bytes / PAGE as u64);
            for attempt in 0.. {
                ensure!(attempt < ATTEMPTS, "unit {unit} does not become cached");
                let (hits, done) = (self.reads().1, self.shard.counters().populations);
                self.read(unit as u32, unit * self.unit_bytes + page * PAGE as u64);
                while self.next()?.is_none() {
                    self.turn(None)?;
                }
                if self.reads().1 > hits {
                    break;
                }
                let limit = self.now() + PATIENCE;
                while self.shard.counters().populations == done && self.now() < limit {
                    self.turn(Some(limit))?;
                    self.next()?;
                }
            }
        }
        Ok(())
    }

    /// Client reads, and those served from flash.
    pub(super) fn reads(&self) -> (u64, u64) {
        let requests = self.desk.requests();
        (requests.reads, requests.read_hits)
    }

    /// Bytes that population has read from the origin.
    pub(super) fn populated_bytes(&self) -> u64 {
        self.shard.counters().population_bytes
    }

    /// Flash operations that took longer than the engine waits for them.
    pub(super) fn flash_timeouts(&self) -> u64 {
        self.shard.counters().flash_timeouts
    }

    /// Fails if the flash device has failed or answered with errors.
    pub(super) fn check(&self) -> Result<()> {
        let counters = self.shard.counters();
        ensure!(self.shard.cache_status().is_some(), "the flash device has failed");
        ensure!(counters.flash_errors == 0, "{} errors of the flash device", counters.flash_errors);
        Ok(())
    }
}

impl Target for Volume {
    fn read(&mut self, client: u32, offset: u64) {
        let len = PAGE as u64;
        let number = self.desk.open(client, Kind::Read, len, 1);
        for (i, piece) in pieces(offset, len, self.unit_bytes).enumerate() {
            let buf = Some(self.spare.pop().unwrap_or_else(|| Buf::with_len(PAGE)));
            let request = Request {
                kind: Kind::Read,
                offset: piece.offset,
                len: piece.len,
                buf,
                passive: false,
            };
            self.shard.submit(Desk::<u32>::tag(number, i as u32), request);
        }
    }

    fn turn(&mut self, until: Option<Nanos>) -> Result<()> {
        // The last call may be long ago, and time limits count from the shard's clock.
        self.at = self.driver.now();
        self.step();
        let limit = match (until, self.shard.next_deadline()) {
            // A reply is waiting.
            _ if self.reply.is_some() => Some(0),
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.driver.turn(limit)?;
        self.at = self.driver.now();
        Ok(())
    }

    fn next(&mut self) -> Result<Option<u32>> {
        loop {
            if let Some(reply) = self.reply.take().or_else(|| self.shard.next_reply()) {
                return self.answer(reply).map(Some);
            }
            let done = self.driver.next_done();
            let last = done.is_none();
            if let Some(done) = done {
                self.shard.complete(done.id, done.result, done.buf);
            }
            self.step();
            if last && self.reply.is_none() {
                return Ok(None);
            }
        }
    }

    fn now(&self) -> Nanos {
        self.driver.now()
    }
}
