// SPDX-License-Identifier: MIT OR Apache-2.0
//! Crashes: a volume with a journal lives several lives; between them the power fails.
//!
//! At a random moment both devices stop. Of every sector that was not flushed, either the last or
//! the last durable bytes remain: none, all, or each by chance; a crash of the process alone loses
//! nothing. Then the next life recovers from flash and everything is read back:
//! - the origin alone holds what flushes and FUA promised (design rules 1, 2, 7);
//! - a read through the cache returns exactly what the origin holds: no page on flash is stale
//!   (rule 9);
//! - what was found stays so: it is the only past that the next life may see.
//!
//! Sometimes flash fails on the way, so that the volume goes on without it; the state off the
//! flash then says so after a delay, and the next life must not use the flash.

use std::collections::HashMap;

use larder_core::buf::{PAGE, SECTOR};
use larder_core::cache::{Flash, Keeps, MetadataPlace};
use larder_core::event::Event;
use larder_core::exec::{DevId, MILLISECOND, Nanos};
use larder_core::journal::layout::Layout;
use larder_core::journal::recover::{Recovered, Unusable, recover};
use larder_core::policy::admission::{Class, OnMissSettings, SelectiveSettings};
use larder_core::preset::{AdmissionChoice, Choices, Limits, WritePolicy, preset};
use larder_core::request::{Errno, Kind};
use larder_core::shape::Shape;
use larder_model::Jitter;
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::device::SimDevice;
use crate::oracle::{Oracle, WriteId, fill, value};
use crate::store::Store;
use crate::world::{ORIGIN, World};

const MICRO: Nanos = 1_000;
const LOG_BYTES: u64 = 16 << 10;
const FLASH: DevId = DevId(1);
const BLOCK_BYTES: u32 = 512;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Client requests answered.
    pub requests: u64,
    /// Crashes.
    pub crashes: u64,
    /// States after a power cut that were recovered and checked: several at each of some moments
    /// of a life, and the one that it goes on with.
    pub recoveries: u64,
    /// Shards that were warm after a crash.
    pub warm: u64,
    /// Reads that hit flash when everything was read back after a crash.
    pub warm_hits: u64,
    /// Lives that ended with flash out of use.
    pub fenced: u64,
}

impl std::ops::AddAssign for Lived {
    fn add_assign(&mut self, more: Self) {
        self.requests += more.requests;
        self.crashes += more.crashes;
        self.recoveries += more.recoveries;
        self.warm += more.warm;
        self.warm_hits += more.warm_hits;
        self.fenced += more.fenced;
    }
}

struct Asked {
    kind: Kind,
    offset: u64,
    len: u64,
    start: Nanos,
    write: WriteId,
}

struct Life {
    rng: Pcg64Mcg,
    shape: Shape,
    slots: u64,
    choices: Choices,
    limits: Limits,
    oracle: Oracle,
    volume: u64,
    client: u64,
    /// The state off the flash says that flash is in use.
    attached: bool,
    /// When a flush was asked for that was answered.
    flushed: Option<Nanos>,
    fua: Vec<(u64, u64, WriteId)>,
    lived: Lived,
}

/// Runs a seed; an error is the violation.
///
/// # Errors
/// What rule was broken, and where.
pub fn run(seed: u64) -> Result<Lived, String> {
    let mut life = Life::new(seed);
    let (shape, slots) = (life.shape, life.slots);
    let metadata = Layout::total_bytes(&shape, slots, LOG_BYTES, Keeps::default());
    let flash_bytes = metadata + slots * shape.unit_bytes;
    let mut origin = Store::new(shape.origin_bytes, |sector, bytes| fill(sector, 0, bytes));
    let mut flash = Store::new(flash_bytes, |_, bytes| bytes.fill(0xDB));
    let lives = life.rng.random_range(2..5);
    for _ in 0..lives {
        let mut world = life.begin(origin, flash)?;
        life.read_back(&mut world)?;
        life.load(&mut world)?;
        (origin, flash) = life.crash(world)?;
    }
    let mut world = life.begin(origin, flash)?;
    life.read_back(&mut world)?;
    Ok(life.lived)
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut rng = Pcg64Mcg::new(u128::from(seed) << 64 | 0x0c4a_5511);
        let unit_bytes = [4 << 10, 64 << 10, 64 << 10, 256 << 10, 1 << 20][rng.random_range(0..5)];
        let units = if unit_bytes == 4 << 10 { 48 } else { rng.random_range(3..8) };
        let shards = [1, 1, 2][rng.random_range(0..3)];
        let origin_bytes = units * unit_bytes - rng.random_range(0..20) * SECTOR as u64;
        let slots = rng.random_range(1..=units).max(u64::from(shards));
        let mut choices = preset("sce").map_or_else(|| unreachable!(), |p| p.choices());
        choices.unit_bytes = unit_bytes;
        choices.admission = if unit_bytes == 4 << 10 {
            let client_waits = rng.random_bool(0.5);
            let settings = OnMissSettings { client_waits, on_write: true, bypass_bytes: 0 };
            AdmissionChoice::OnMiss(settings)
        } else {
            let class =
                Class { workers: 4, target_miss_ratio: 0.0, min_free_ratio: 0.0, period_ns: 0 };
            let settings = SelectiveSettings::default();
            let settings = SelectiveSettings { classes: vec![class], displace_heat: 1, ..settings };
            AdmissionChoice::Selective(settings)
        };
        if rng.random_bool(0.2) {
            choices.write = WritePolicy::WriteThrough;
        }
        let limits = Limits {
            checkpoint: rng.random_range(1..20) * MILLISECOND,
            flash_timeout: 20 * MILLISECOND,
            flash_dead_after: 100 * MILLISECOND,
            population_share: 1.0,
            ..Limits::default()
        };
        Self {
            shape: Shape { origin_bytes, unit_bytes, shards, shard: 0 },
            slots,
            choices,
            limits,
            oracle: Oracle::default(),
            volume: rng.random(),
            client: 0,
            attached: true,
            flushed: None,
            fua: Vec::new(),
            lived: Lived::default(),
            rng,
        }
    }

    fn flash(&self) -> Flash {
        let metadata = Layout::total_bytes(&self.shape, self.slots, LOG_BYTES, Keeps::default());
        let journal = Some(MetadataPlace {
            base: 0,
            volume: self.volume,
            log_bytes: LOG_BYTES,
            keeps: Keeps::default(),
        });
        Flash { dev: FLASH, base: metadata, slots: self.slots, block_bytes: BLOCK_BYTES, journal }
    }

    /// Recovers from what the devices hold, and starts the engine over them.
    fn begin(&mut self, origin: Store, flash: Store) -> Result<World, String> {
        let mut recovered: Vec<Option<Recovered>> = Vec::new();
        for shard in 0..self.shape.shards {
            match self.recover(shard, &flash) {
                _ if !self.attached => recovered.push(None),
                Ok(found) => recovered.push(Some(found)),
                Err(Unusable::Nothing) => recovered.push(None),
                Err(why) => return Err(format!("shard {shard} cannot be recovered: {why:?}")),
            }
        }
        if recovered.iter().any(Option::is_none) {
            // Formatted anew: another volume.
            recovered.fill(None);
            self.volume = self.rng.random();
        }
        self.attached = true;
        let salt = self.rng.random::<u64>();
        let device = |seed: u64, slowest: u64, store: Store| {
            let model = Box::new(Jitter::new(seed, 20 * MICRO, slowest * MICRO));
            SimDevice::new(model, Some(store.settle()), seed ^ 1, slowest * MICRO)
        };
        let origin = device(salt, self.rng.random_range(100..2_000), origin);
        let flash = device(salt ^ 2, self.rng.random_range(50..1_000), flash);
        let (bytes, shards) = (self.shape.origin_bytes, self.shape.shards);
        let mut world = World::new(origin, bytes, shards, &self.choices, &self.limits);
        world.idle_until(Oracle::PAST + 1);
        self.lived.warm += world.attach_journaled(flash, self.flash(), &recovered) as u64;
        (self.flushed, self.fua) = (None, Vec::new());
        Ok(world)
    }

    /// Reads everything through the cache, first of all.
    fn read_back(&mut self, world: &mut World) -> Result<(), String> {
        let unit = self.shape.unit_bytes.min(64 << 10);
        let hits = world.requests().read_hits;
        for offset in (0..self.shape.origin_bytes).step_by(unit as usize) {
            let len = unit.min(self.shape.origin_bytes - offset);
            world.request(0, Kind::Read, offset, len, &[]);
            let finished = loop {
                if let Some(finished) = world.next_finished() {
                    break finished;
                }
                if !world.advance(Nanos::MAX) {
                    return Err("a read after a crash is never answered".into());
                }
            };
            let seen: Vec<u8> = finished.bufs.iter().flat_map(|b| b.to_vec()).collect();
            let mut truth = vec![0; len as usize];
            let store = world.device(ORIGIN).store.as_ref().ok_or("the origin has no bytes")?;
            store.read(offset, &mut truth);
            let differs = seen.chunks(SECTOR).zip(truth.chunks(SECTOR)).position(|(a, b)| a != b);
            if let Some(at) = differs {
                let sector = offset / SECTOR as u64 + at as u64;
                let of = |bytes: &[u8]| value(sector, &bytes[at * SECTOR..(at + 1) * SECTOR]);
                return Err(format!(
                    "sector {sector}: flash returns {:?}, the origin holds {:?}",
                    of(&seen),
                    of(&truth)
                ));
            }
        }
        self.lived.warm_hits += world.requests().read_hits - hits;
        Ok(())
    }

    fn load(&mut self, world: &mut World) -> Result<(), String> {
        let (requests, most) =
            (self.rng.random_range(50..400), [1, 4, 16][self.rng.random_range(0..3)]);
        if self.rng.random_bool(0.15) {
            world.device(FLASH).faults.write_errors = 0.02;
            world.device(FLASH).faults.errno = Some(Errno::EIO);
        }
        let mut asked = HashMap::new();
        let (mut sent, mut fence_at) = (0, None);
        while sent < requests {
            if world.in_flight() < most && self.rng.random_bool(0.7) {
                self.ask(world, &mut asked);
                sent += 1;
            } else if !world.advance(Nanos::MAX) && world.in_flight() > 0 {
                // Writes may wait for the fence alone.
                match fence_at.filter(|_| self.attached) {
                    Some(at) => world.idle_until(at),
                    None => return Err("requests are never answered".into()),
                }
            }
            self.collect(world, &mut asked)?;
            if self.rng.random_bool(0.004) {
                self.probe(world)?;
            }
            if world.take_events().iter().any(|e| matches!(e, Event::FlashFailed { .. })) {
                fence_at.get_or_insert(world.now() + self.rng.random_range(0..5) * MILLISECOND);
            }
            if fence_at.is_some_and(|at| world.now() >= at) {
                self.attached = false;
                world.fence();
            }
        }
        self.lived.fenced += u64::from(!self.attached);
        Ok(())
    }

    fn ask(&mut self, world: &mut World, asked: &mut HashMap<u64, Asked>) {
        let sectors = self.shape.origin_bytes / SECTOR as u64;
        let aligned = self.rng.random_bool(0.5);
        let most = self.shape.unit_bytes.min(128 << 10) / SECTOR as u64;
        let (mut first, mut count) =
            (self.rng.random_range(0..sectors), self.rng.random_range(1..=most.min(64)));
        if aligned {
            (first, count) = (first / 8 * 8, count.next_multiple_of(8));
        }
        count = count.min(sectors - first);
        let (offset, len, now) = (first * SECTOR as u64, count * SECTOR as u64, world.now());
        let fua = self.rng.random_bool(0.1);
        let kind = match self.rng.random_range(0..20) {
            0..9 => Kind::Read,
            9..17 => Kind::Write { fua },
            17 => Kind::Zero { fua, may_unmap: true },
            _ => Kind::Flush,
        };
        self.client += 1;
        let (mut write, mut bytes) = (0, Vec::new());
        match kind {
            Kind::Write { .. } => (write, bytes) = self.oracle.write_begins(offset, len, now),
            Kind::Zero { .. } => write = self.oracle.zero_begins(offset, len, now),
            _ => {}
        }
        asked.insert(self.client, Asked { kind, offset, len, start: now, write });
        world.request(self.client, kind, offset, len, &bytes);
    }

    fn collect(
        &mut self,
        world: &mut World,
        asked: &mut HashMap<u64, Asked>,
    ) -> Result<(), String> {
        while let Some(finished) = world.next_finished() {
            let Some(request) = asked.remove(&finished.client) else { continue };
            let now = world.now();
            self.lived.requests += 1;
            if finished.result.is_err() {
                return Err(format!("{:?} failed: {:?}", request.kind, finished.result));
            }
            match request.kind {
                Kind::Read => {
                    let seen: Vec<u8> = finished.bufs.iter().flat_map(|b| b.to_vec()).collect();
                    self.oracle.read(request.offset, &seen, request.start, now)?;
                }
                Kind::Flush => self.flushed = self.flushed.max(Some(request.start)),
                Kind::Write { fua } => {
                    self.oracle.answered(request.write, request.offset, request.len, now);
                    if fua {
                        self.fua.push((request.offset, request.len, request.write));
                    }
                }
                _ => self.oracle.answered(request.write, request.offset, request.len, now),
            }
        }
        Ok(())
    }

    /// What if the power failed now? Several outcomes of it, none of which the life goes on with.
    fn probe(&mut self, world: &mut World) -> Result<(), String> {
        let origin = world.device(ORIGIN).store.clone().ok_or("no bytes")?;
        let flash = world.device(FLASH).store.clone().ok_or("no bytes")?;
        for _ in 0..4 {
            let (origin, flash) = (self.cut(origin.clone()), self.cut(flash.clone()));
            self.judge_cut(&origin, &flash)?;
        }
        Ok(())
    }

    /// What a power cut leaves of a device.
    fn cut(&mut self, store: Store) -> Store {
        match self.rng.random_range(0..5) {
            0 => store.settle(),
            1 => store.crashed(|_| false),
            2 => {
                let cut = self.rng.random::<u64>() % (store.bytes() / SECTOR as u64);
                store.crashed(|sector| sector < cut)
            }
            _ => store.crashed(|_| self.rng.random_bool(0.5)),
        }
    }

    /// The origin holds what it must, and every page that recovery finds valid is the origin's.
    fn judge_cut(&mut self, origin: &Store, flash: &Store) -> Result<(), String> {
        self.lived.recoveries += 1;
        self.judge_origin(origin)?;
        if !self.attached {
            return Ok(());
        }
        for shard in 0..self.shape.shards {
            let shape = Shape { shard, ..self.shape };
            match self.recover(shard, flash) {
                Ok(found) => self.judge_pages(&shape, &found, origin, flash)?,
                Err(Unusable::Nothing) => {}
                Err(why) => return Err(format!("shard {shard} cannot be recovered: {why:?}")),
            }
        }
        Ok(())
    }

    fn judge_pages(
        &self,
        shape: &Shape,
        found: &Recovered,
        origin: &Store,
        flash: &Store,
    ) -> Result<(), String> {
        let place = self.flash();
        let layout = Layout::of(shape, &place).ok_or("no layout")?;
        for slot in 0..layout.slots {
            let Some((unit, pages)) = found.slot(slot, &layout) else { continue };
            let number = u64::from(slot) * u64::from(shape.shards) + u64::from(shape.shard);
            for page in pages {
                let within = u64::from(page) * PAGE as u64;
                let at = shape.unit_offset(unit) + within;
                let len = shape.origin_bytes.saturating_sub(at).min(PAGE as u64) as usize;
                let (mut ours, mut truth) = ([0; PAGE], [0; PAGE]);
                flash.read(place.base + number * shape.unit_bytes + within, &mut ours[..len]);
                origin.read(at, &mut truth[..len]);
                if ours[..len] != truth[..len] {
                    return Err(format!(
                        "recovered slot {slot}: page {page} of unit {unit} is stale"
                    ));
                }
            }
        }
        Ok(())
    }

    fn recover(&self, shard: u32, flash: &Store) -> Result<Recovered, Unusable> {
        let shape = Shape { shard, ..self.shape };
        let layout = Layout::of(&shape, &self.flash()).ok_or(Unusable::Nothing)?;
        let read = &mut |at: u64, len: u64| {
            let mut bytes = vec![0; len as usize];
            flash.read(at, &mut bytes);
            Ok(bytes)
        };
        recover(&layout, self.volume, read)
    }

    fn judge_origin(&self, origin: &Store) -> Result<(), String> {
        for sector in self.oracle.touched() {
            let mut bytes = [0; SECTOR];
            origin.read(sector * SECTOR as u64, &mut bytes);
            value(sector, &bytes)?;
            if let Some(flushed) = self.flushed {
                self.oracle.durable(sector, &bytes, flushed)?;
            }
            for (offset, len, write) in &self.fua {
                let own = offset / SECTOR as u64..(offset + len) / SECTOR as u64;
                if own.contains(&sector) {
                    self.oracle.durable_fua(sector, &bytes, *write)?;
                }
            }
        }
        Ok(())
    }

    /// The power fails; what is left of the devices, and whether the origin kept its promises.
    fn crash(&mut self, mut world: World) -> Result<(Store, Store), String> {
        self.lived.crashes += 1;
        let (origin, flash) = (world.take_store(ORIGIN), world.take_store(FLASH));
        let (Some(origin), Some(flash)) = (origin, flash) else { return Err("no bytes".into()) };
        let (origin, flash) = (self.cut(origin), self.cut(flash));
        self.oracle.judge()?;
        self.judge_cut(&origin, &flash)?;
        let mut found = Vec::new();
        for sector in self.oracle.touched().collect::<Vec<_>>() {
            let mut bytes = [0; SECTOR];
            origin.read(sector * SECTOR as u64, &mut bytes);
            found.push((sector, value(sector, &bytes)?));
        }
        self.oracle.restart(&found);
        Ok((origin, flash))
    }
}
