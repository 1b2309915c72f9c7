// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model check: random concurrent requests over the engine in virtual time, judged by the
//! oracle.
//!
//! One seed decides the volume's shape, the settings, the load, the faults, and every latency, so
//! it decides the schedule of the races between reads, writes, populations and evictions. The
//! volumes are tiny and the settings impatient: a few units, fewer slots, and workers that hardly
//! rest, so that a thousand requests meet more races than hours of a real load.

mod choices;

use std::collections::HashMap;

use larder_core::buf::SECTOR;
use larder_core::config::{AdmissionChoice, FRAGMENT_BYTES_LEAST, Limits};
use larder_core::event::Event;
use larder_core::exec::{DevId, MILLISECOND, Nanos};
use larder_core::request::{Errno, Kind};
use larder_model::Jitter;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use self::choices::choices;
use crate::device::SimDevice;
use crate::oracle::{Oracle, Value, WriteId, fill, value};
use crate::store::Store;
use crate::world::{ORIGIN, World, lawful};

const MICRO: Nanos = 1_000;

/// What goes wrong during a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// Flash reads and writes fail now and then.
    FlashErrors,
    /// Flash operations hang and complete late.
    FlashHangs,
    /// The flash device vanishes, and a new one is attached.
    FlashVanishes,
    /// Origin reads and writes fail now and then.
    OriginErrors,
}

/// Every kind of trouble.
pub const TROUBLES: [Trouble; 5] = [
    Trouble::None,
    Trouble::FlashErrors,
    Trouble::FlashHangs,
    Trouble::FlashVanishes,
    Trouble::OriginErrors,
];

/// One check.
#[derive(Clone, Debug)]
pub struct Check {
    /// Decides everything that the other fields do not.
    pub seed: u64,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Client requests in flight.
    pub in_flight: usize,
    /// Client requests in all.
    pub requests: u64,
    /// Shards of the volume.
    pub shards: u32,
    /// What goes wrong.
    pub trouble: Trouble,
    /// The choices of this preset, shrunk to the volume; else any that are lawful.
    pub preset: Option<&'static str>,
}

/// What a check saw, to know that it tested something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Client requests answered.
    pub requests: u64,
    /// Reads served from flash.
    pub hits: u64,
    /// Units populated.
    pub populations: u64,
    /// Units evicted.
    pub evictions: u64,
    /// Flash operations that timed out.
    pub timeouts: u64,
    /// Flash operations that failed.
    pub errors: u64,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.populations += other.populations;
        self.evictions += other.evictions;
        self.timeouts += other.timeouts;
        self.errors += other.errors;
    }
}

struct Asked {
    kind: Kind,
    offset: u64,
    len: u64,
    write: WriteId,
    start: Nanos,
}

struct Run {
    /// Whether misses wait for what enters with them.
    inline: bool,
    check: Check,
    rng: Pcg64Mcg,
    world: World,
    oracle: Oracle,
    flash: DevId,
    volume_bytes: u64,
    slots: u64,
    block_bytes: u32,
    asked: HashMap<u64, Asked>,
    clients: u64,
    answered: u64,
    origin_slowest: Nanos,
    flash_slowest: Nanos,
}

/// Runs a check; an error is the violation.
pub fn run(check: &Check) -> Result<Seen, String> {
    let mut run = Run::new(check.clone());
    run.load()?;
    run.finish()?;
    let counters = run.world.counters();
    Ok(Seen {
        requests: run.answered,
        hits: run.world.requests().read_hits,
        populations: counters.populations,
        evictions: counters.evictions,
        timeouts: counters.flash_timeouts,
        errors: counters.flash_errors,
    })
}

impl Run {
    fn new(check: Check) -> Self {
        let mut rng = Pcg64Mcg::new(u128::from(check.seed) << 64 | 0x1234_5677);
        let units = if check.unit_bytes < FRAGMENT_BYTES_LEAST {
            rng.random_range(30..80)
        } else if check.unit_bytes > 1 << 20 {
            2
        } else {
            rng.random_range(3..8)
        };
        // A volume that ends inside a unit and inside a page.
        let volume_bytes = units * check.unit_bytes - rng.random_range(0..20) * SECTOR as u64;
        let slots = rng.random_range(1..=units) * u64::from(check.shards);
        let origin_slowest = rng.random_range(100..3_000) * MICRO;
        let flash_slowest = rng.random_range(20..1_000) * MICRO;
        let limits = Limits {
            write_through_bytes: rng.random_range(1..64) * (64 << 10),
            population_io_bytes: [16 << 10, 64 << 10, 256 << 10, 1 << 20][rng.random_range(0..4)],
            population_share: [0.0, 0.25, 1.0][rng.random_range(0..3)],
            flash_timeout: flash_slowest + 2 * MILLISECOND,
            flash_dead_after: 400 * MILLISECOND,
            ..Limits::default()
        };
        let choices = choices(&check, &mut rng);
        let model = Box::new(Jitter::new(check.seed, 50 * MICRO, origin_slowest));
        let store = Store::new(volume_bytes, |sector, bytes| fill(sector, 0, bytes));
        let origin = SimDevice::new(model, Some(store), check.seed ^ 1, origin_slowest);
        let world = World::new(origin, volume_bytes, check.shards, &lawful(&choices), &limits);
        let block_bytes = if rng.random_bool(0.3) { 4096 } else { 512 };
        let inline = matches!(choices.admission, AdmissionChoice::OnMiss(_));
        let mut run = Self {
            inline,
            rng,
            world,
            oracle: Oracle::default(),
            flash: ORIGIN,
            volume_bytes,
            slots,
            block_bytes,
            asked: HashMap::new(),
            clients: 0,
            answered: 0,
            origin_slowest,
            flash_slowest,
            check,
        };
        run.attach();
        run
    }

    fn attach(&mut self) {
        let seed = self.rng.random();
        let model = Box::new(Jitter::new(seed, 5 * MICRO, self.flash_slowest));
        // Flash starts with the bytes of nobody.
        let bytes = self.slots * self.check.unit_bytes;
        let store = Store::new(bytes, |_, bytes| bytes.fill(0xAB));
        let mut flash = SimDevice::new(model, Some(store), seed ^ 2, self.flash_slowest);
        if self.check.trouble == Trouble::FlashErrors {
            flash.faults.read_errors = 0.05;
            flash.faults.write_errors = 0.05;
        }
        self.flash = self.world.attach(flash, self.slots, self.block_bytes);
        if self.check.trouble == Trouble::OriginErrors {
            let faults = &mut self.world.device(ORIGIN).faults;
            faults.read_errors = 0.03;
            faults.write_errors = 0.05;
        }
    }

    /// Keeps `in_flight` requests going until all are answered.
    fn load(&mut self) -> Result<(), String> {
        while self.answered < self.check.requests {
            while self.asked.len() < self.check.in_flight && self.clients < self.check.requests {
                self.ask();
                self.make_trouble();
            }
            if !self.world.advance(Nanos::MAX) && self.asked.is_empty() {
                break;
            }
            self.take_answers()?;
            self.follow_events();
            if !self.asked.is_empty() && self.world.next().is_none() {
                return Err(format!("{} requests are never answered", self.asked.len()));
            }
        }
        Ok(())
    }

    /// A place that others are likely to use too.
    fn place(&mut self) -> (u64, u64) {
        let units = self.volume_bytes.div_ceil(self.check.unit_bytes);
        let unit = self.rng.random_range(0..units);
        let window = (self.check.unit_bytes / SECTOR as u64).min(192);
        let sector = self.rng.random_range(0..window);
        let whole_pages = self.rng.random_bool(0.6);
        let (sector, grain) = if whole_pages { (sector / 8 * 8, 8) } else { (sector, 1) };
        let sectors = grain * self.rng.random_range(1..=if whole_pages { 6 } else { 20 });
        // Now and then across the border of two units, or at the volume's very end.
        let near_end = self.check.unit_bytes / SECTOR as u64 - 4;
        let sector = if self.rng.random_bool(0.05) { near_end } else { sector };
        let offset = unit * self.check.unit_bytes + sector * SECTOR as u64;
        let offset = offset.min(self.volume_bytes - SECTOR as u64);
        (offset, (sectors * SECTOR as u64).min(self.volume_bytes - offset))
    }

    fn ask(&mut self) {
        let (offset, len) = self.place();
        let (start, fua) = (self.world.now(), self.rng.random_bool(0.15));
        let kind = match self.rng.random_range(0..100) {
            0..55 => Kind::Read,
            55..88 => Kind::Write { fua },
            88..93 => Kind::Flush,
            93..96 => Kind::Trim { fua },
            _ => Kind::Zero { fua, may_unmap: self.rng.random_bool(0.5) },
        };
        let (mut write, mut data) = (0, Vec::new());
        match kind {
            Kind::Write { .. } => (write, data) = self.oracle.write_begins(offset, len, start),
            Kind::Trim { .. } | Kind::Zero { .. } => {
                write = self.oracle.zero_begins(offset, len, start);
            }
            Kind::Read | Kind::Flush => {}
        }
        self.clients += 1;
        self.asked.insert(self.clients, Asked { kind, offset, len, write, start });
        self.world.request(self.clients, kind, offset, len, &data);
    }

    fn make_trouble(&mut self) {
        let flash = self.flash;
        match self.check.trouble {
            Trouble::FlashHangs => {
                if self.rng.random_bool(0.02) {
                    self.world.device(flash).faults.hang_share = 0.3;
                } else if self.rng.random_bool(0.05) {
                    self.world.release(flash);
                }
            }
            Trouble::FlashVanishes if self.rng.random_bool(0.005) => {
                self.world.device(flash).faults.vanished = true;
            }
            _ => {}
        }
    }

    fn follow_events(&mut self) {
        for event in self.world.take_events() {
            if let Event::FlashFailed { dev, .. } = event
                && dev == self.flash
            {
                self.world.release(dev);
                self.world.detach();
                self.attach();
            }
        }
    }

    fn take_answers(&mut self) -> Result<(), String> {
        while let Some(done) = self.world.next_finished() {
            let now = self.world.now();
            let Some(asked) = self.asked.remove(&done.client) else {
                return Err(format!("request {} is answered twice", done.client));
            };
            self.answered += 1;
            if let Err(errno) = done.result {
                if self.check.trouble == Trouble::OriginErrors && errno == Errno::EIO {
                    continue;
                }
                return Err(format!("{:?} at {} failed: {errno}", asked.kind, asked.offset));
            }
            self.judge(&asked, &done.bufs, now)?;
        }
        Ok(())
    }

    fn judge(
        &mut self,
        asked: &Asked,
        bufs: &[larder_core::buf::Buf],
        now: Nanos,
    ) -> Result<(), String> {
        let Asked { kind, offset, len, write, start } = *asked;
        match kind {
            Kind::Read => {
                let bytes: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
                if bytes.len() as u64 != len {
                    return Err(format!("a read of {len} bytes returned {}", bytes.len()));
                }
                self.judge_latency(now - start)?;
                Ok(self.oracle.read(offset, &bytes, start, now)?)
            }
            Kind::Write { fua } => {
                self.oracle.answered(write, offset, len, now);
                if fua { self.judge_fua(write, offset, len) } else { Ok(()) }
            }
            Kind::Flush => self.judge_flush(start),
            Kind::Trim { .. } | Kind::Zero { .. } => {
                self.oracle.answered(write, offset, len, now);
                Ok(())
            }
        }
    }

    /// Rule 6: a read costs a visit to the origin at most, and one to flash where that failed.
    /// Inline admission makes it wait for more, which is why it is not the default.
    fn judge_latency(&self, took: Nanos) -> Result<(), String> {
        if self.inline {
            return Ok(());
        }
        let bound = match self.check.trouble {
            Trouble::FlashHangs | Trouble::FlashVanishes => return Ok(()),
            Trouble::FlashErrors => self.origin_slowest + self.flash_slowest,
            Trouble::None | Trouble::OriginErrors => self.origin_slowest.max(self.flash_slowest),
        };
        if took > bound {
            return Err(format!("a read took {took} ns, longer than a miss may ({bound} ns)"));
        }
        Ok(())
    }

    fn durable_sector(&mut self, sector: u64) -> Result<Value, String> {
        let store = self.world.device(ORIGIN).store.as_ref().ok_or("the origin has no bytes")?;
        value(sector, &store.durable_sector(sector))
    }

    fn judge_flush(&mut self, start: Nanos) -> Result<(), String> {
        let touched: Vec<u64> = self.oracle.touched().collect();
        for sector in touched {
            let found = self.durable_sector(sector)?;
            self.oracle.durable(sector, found, start)?;
        }
        Ok(())
    }

    fn judge_fua(&mut self, write: WriteId, offset: u64, len: u64) -> Result<(), String> {
        self.oracle.answered_fua(write, offset, len);
        for sector in offset / SECTOR as u64..(offset + len) / SECTOR as u64 {
            let found = self.durable_sector(sector)?;
            self.oracle.durable_fua(sector, found)?;
        }
        Ok(())
    }

    /// Lets everything end, reads all of it back twice (the second time mostly from flash), and
    /// judges the whole history.
    fn finish(&mut self) -> Result<(), String> {
        let flash = self.flash;
        self.world.release(flash);
        for dev in [ORIGIN, flash] {
            let faults = &mut self.world.device(dev).faults;
            (faults.read_errors, faults.write_errors) = (0.0, 0.0);
        }
        for _ in 0..2 {
            let rest = self.world.now() + 20 * MILLISECOND;
            self.world.idle_until(rest);
            let mut offset = 0;
            while offset < self.volume_bytes {
                let len = (64 << 10).min(self.volume_bytes - offset);
                let start = self.world.now();
                self.clients += 1;
                let kind = Kind::Read;
                self.asked.insert(self.clients, Asked { kind, offset, len, write: 0, start });
                self.world.request(self.clients, kind, offset, len, &[]);
                offset += len;
                // Of large units only the part that requests use.
                if offset % self.check.unit_bytes >= 256 << 10 {
                    offset = offset.next_multiple_of(self.check.unit_bytes);
                }
                while !self.asked.is_empty() && self.world.advance(Nanos::MAX) {
                    self.take_answers()?;
                }
            }
        }
        let rest = self.world.now() + 60_000 * MILLISECOND;
        self.world.idle_until(rest);
        if let Some(shard) = self.world.shards().iter().find(|s| !s.is_idle()) {
            return Err(format!("a shard never came to rest: {} open", shard.requests_open()));
        }
        Ok(self.oracle.judge()?)
    }
}
