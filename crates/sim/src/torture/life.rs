// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a history: lives of a volume, with a crash between them.
//!
//! After each stop the next life recovers from flash, and what it reports is compared with the origin:
//! the origin by itself holds what flushes and FUA promised (design rules 1, 2, 7), a read through the
//! cache returns what the origin holds (rule 9), and what was found becomes the only past.

use std::collections::HashMap;

use larder_core::buf::Buf;
use larder_core::config::AdmissionChoice;
use larder_core::exec::{DevId, MILLISECOND, Nanos};
use larder_core::request::{Errno, Kind};
use larder_core::shard::Shard;
use larder_model::Jitter;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::cuts;
use super::history::{Judged, Line, Seen, Violation, wrong};
use super::identity::{Identity, Last, Meets, Taken, foreign};
use super::moment::Moment;
use super::on_flash::{Found, on_flash};
use super::owners::Owners;
use super::plan::Plan;
use super::promise::{Promise, Trouble};
use super::reads::{Answer, Judge, Reads, against_history};
use super::rot::places;
use super::setup::Setup;
use super::step::{Step, Stop};
use crate::device::SimDevice;
use crate::oracle::{Oracle, WriteId, fill};
use crate::store::{Image, Store};
use crate::world::{ORIGIN, World, lawful};

const MICRO: Nanos = 1_000;
/// Within which everything ends, at the end of a history.
const REST: Nanos = 10_000 * MILLISECOND;

/// A request in flight.
pub(super) struct Asked {
    pub kind: Kind,
    pub offset: u64,
    pub len: u64,
    pub start: Nanos,
    pub write: WriteId,
}

/// A history in progress, see the module.
pub(super) struct Life<'a> {
    pub setup: &'a Setup,
    pub world: World,
    pub oracle: Oracle,
    pub rng: Pcg64Mcg,
    /// The id of the volume on flash.
    pub volume: u64,
    /// The flash device that was attached last.
    pub flash: DevId,
    /// What the state file records of it.
    pub identity: Identity,
    /// The state file records that flash is in use.
    pub attached: bool,
    /// When the state file will durably record that it is out of use.
    pub fence_at: Option<Nanos>,
    /// When a flush was asked for that was answered.
    pub flushed: Option<Nanos>,
    /// When a write-back of all dirty data was asked for, and whether to detach afterwards.
    pub clearing: Option<(Nanos, bool)>,
    /// The last completed write-back: when it was asked for, and when it ended.
    pub given: Option<(Nanos, Nanos)>,
    /// When the last write-back was asked for that a flush made durable on the origin.
    pub cleared: Option<Nanos>,
    pub asked: HashMap<u64, Asked>,
    client: u64,
    /// Events since a request was last answered.
    silent: u64,
    pub seen: Seen,
    pub trace: Option<Vec<Line>>,
    /// Images that are reused.
    scratch: (Image, Image),
}

/// A volume at the beginning of its first life.
pub(super) fn start(setup: &Setup, salt: u64) -> Judged<Life<'_>> {
    let mut rng = Pcg64Mcg::seed_from_u64(salt);
    let origin = Store::new(setup.shape.origin_bytes, |sector, bytes| fill(sector, 0, bytes));
    let mut life = Life {
        setup,
        world: empty(setup),
        oracle: Oracle::default(),
        volume: rng.random(),
        rng,
        flash: ORIGIN,
        identity: Identity::default(),
        attached: false,
        fence_at: None,
        flushed: None,
        clearing: None,
        given: None,
        cleared: None,
        asked: HashMap::new(),
        client: 0,
        silent: 0,
        seen: Seen::default(),
        trace: None,
        scratch: (Vec::new(), Vec::new()),
    };
    let taken = life.take_up(foreign(setup), Meets::Last)?;
    life.begin(origin, taken);
    Ok(life)
}

/// Runs a plan.
pub(super) fn live(plan: &Plan, trace: bool) -> (Judged<Seen>, Vec<Line>) {
    let mut life = match start(&plan.setup, plan.salt) {
        Ok(life) => life,
        Err(violation) => return (Err(violation), Vec::new()),
    };
    life.trace = trace.then(Vec::new);
    let result = life.all(plan);
    (result, life.trace.unwrap_or_default())
}

fn empty(setup: &Setup) -> World {
    let origin = SimDevice::new(Box::new(Jitter::new(0, 0, 0)), None, 0, 1);
    World::shaped(origin, setup.shape, &lawful(&setup.choices), &setup.limits)
}

impl Life<'_> {
    fn all(&mut self, plan: &Plan) -> Judged<Seen> {
        for (number, step) in plan.steps.iter().enumerate() {
            self.note(number, step);
            self.step(step).map_err(|mut violation| {
                violation.step = number;
                violation.at = self.world.now();
                violation
            })?;
        }
        if let Some(Step::Crash(..)) = plan.steps.last() {
            self.come_to_rest()?;
        }
        Ok(self.seen)
    }

    fn note(&mut self, number: usize, step: &Step) {
        let now = self.world.now();
        if let Some(trace) = &mut self.trace {
            trace.push(Line::of(number, now, step));
        }
    }

    pub(super) fn step(&mut self, step: &Step) -> Judged<()> {
        match *step {
            Step::Ask(kind, offset, len) => self.ask(kind, offset, len),
            Step::Go(events) => (0..events).try_for_each(|_| self.turn().map(drop)),
            Step::Rest(span) => self.rest(span),
            Step::Cut(salt, outcomes) => self.probe(salt, outcomes),
            Step::Crash(salt, stop, read_back) => self.crash(salt, stop, read_back),
            Step::Fault(fault) => {
                self.fault(fault);
                Ok(())
            }
            Step::Settle => {
                self.world.shards().iter().for_each(Shard::settle_journal);
                Ok(())
            }
            Step::Flush => {
                self.clear(false);
                Ok(())
            }
            Step::Leave => {
                self.clear(true);
                Ok(())
            }
            Step::Detach => {
                self.detach();
                Ok(())
            }
            Step::Attach(same) => self.attach_again(same),
        }
    }

    /// Starts the engine over the devices.
    fn begin(&mut self, origin: Store, Taken { flash, found, .. }: Taken) {
        let setup = self.setup;
        let origin = self.device(setup.origin_slowest, origin);
        let flash = self.device(setup.flash_slowest, flash);
        self.world = World::shaped(origin, setup.shape, &lawful(&setup.choices), &setup.limits);
        self.world.idle_until(Oracle::PAST + 1);
        self.attach(flash, &found);
        (self.flushed, self.fence_at) = (None, None);
        (self.clearing, self.given, self.cleared) = (None, None, None);
        self.asked.clear();
    }

    fn take_up(&mut self, flash: Store, meets: Meets) -> Judged<Taken> {
        let last = Last { flash, volume: self.volume, attached: self.attached };
        let taken = self.identity.take_up(self.setup, last, meets, &mut self.rng)?;
        self.volume = taken.volume;
        Ok(taken)
    }

    fn device(&mut self, slowest: Nanos, store: Store) -> SimDevice {
        let seed = self.rng.random::<u64>();
        let model = Box::new(Jitter::new(seed, 20 * MICRO, slowest));
        SimDevice::new(model, Some(store), seed ^ 1, slowest)
    }

    /// Attaches a flash device, once the state file records that it is in use.
    fn attach(&mut self, flash: SimDevice, found: &Found) {
        self.attached = true;
        let kept = on_flash(&self.setup.plan);
        self.seen.warm += kept.attach(&mut self.world, flash, self.volume, found) as u64;
        self.flash = self.world.newest();
        if self.setup.trouble.rots() {
            self.world.device(self.flash).faults.rot.places = places(self.setup);
        }
    }

    /// While requests are in flight a flash device is attached, if there is none: another, or the one that was attached
    /// last, with what it held then.
    fn attach_again(&mut self, same: bool) -> Judged<()> {
        if self.attached {
            return Ok(());
        }
        let last = self.world.store(self.flash).filter(|_| same);
        let flash = last.map_or_else(|| foreign(self.setup), |s| s.clone().after(&s.image()));
        let Taken { flash, found, .. } = self.take_up(flash, Meets::Last)?;
        let flash = self.device(self.setup.flash_slowest, flash);
        // Shards for which the last device did not fail detach it too.
        self.world.detach();
        self.world.fence();
        self.attach(flash, &found);
        self.seen.attached += 1;
        Ok(())
    }

    /// Rule 11: without faults and new requests, everything in progress ends.
    fn come_to_rest(&mut self) -> Judged<()> {
        if matches!(self.setup.choices.admission, AdmissionChoice::Periodic(_)) {
            // Updates as frequent as these leave no moment between them.
            return Ok(());
        }
        let end = self.world.now() + REST;
        for shard in 0..self.world.shards().len() {
            while !self.world.shards()[shard].is_idle() {
                if !self.world.advance(end) {
                    let what = format!("shard {shard} of {}", self.world.shards().len());
                    return wrong("11: work in progress never ends", what);
                }
                self.follow();
            }
        }
        Ok(())
    }

    fn ask(&mut self, kind: Kind, offset: u64, len: u64) -> Judged<()> {
        while self.world.in_flight() >= self.setup.in_flight {
            self.turn()?;
        }
        let now = self.world.now();
        let (mut write, mut bytes) = (0, Vec::new());
        match kind {
            Kind::Write { .. } => (write, bytes) = self.oracle.write_begins(offset, len, now),
            Kind::Trim { .. } | Kind::Zero { .. } => {
                write = self.oracle.zero_begins(offset, len, now);
            }
            Kind::Read | Kind::Flush => {}
        }
        if let Some(line) = self.trace.as_mut().and_then(|t| t.last_mut()) {
            line.write = write;
        }
        self.client += 1;
        self.asked.insert(self.client, Asked { kind, offset, len, start: now, write });
        self.world.request(self.client, kind, offset, len, &bytes);
        Ok(())
    }

    /// Continues to the next event; false if there is none.
    pub(super) fn turn(&mut self) -> Judged<bool> {
        let moved = self.world.advance(self.fence_at.unwrap_or(Nanos::MAX));
        if !moved {
            match self.fence_at {
                Some(at) => self.world.idle_until(at),
                // Nothing but a release ends a hang of everything.
                None if self.setup.trouble == Trouble::FlashHangs => self.world.release_all(),
                None if self.world.in_flight() > 0 => {
                    return wrong("11: a request is never answered", "no event is left");
                }
                None => return Ok(false),
            }
        }
        if self.world.in_flight() == 0 {
            self.silent = 0;
        }
        self.silent += 1;
        let patience = self.setup.patience();
        if self.silent > patience {
            let what = format!("{} are in flight for {patience} events", self.world.in_flight());
            return wrong("11: a request is never answered", what);
        }
        self.collect()?;
        self.follow();
        Ok(true)
    }

    fn rest(&mut self, span: Nanos) -> Judged<()> {
        let until = self.world.now() + span;
        loop {
            let stop = self.fence_at.map_or(until, |at| at.min(until));
            if !self.world.advance(stop) {
                self.world.idle_until(stop);
            }
            self.collect()?;
            self.follow();
            if self.world.now() >= until {
                return Ok(());
            }
        }
    }

    fn collect(&mut self) -> Judged<()> {
        while let Some(finished) = self.world.next_finished() {
            let Some(request) = self.asked.remove(&finished.client) else {
                return wrong("11: a request is answered twice", String::new());
            };
            let now = self.world.now();
            self.seen.requests += 1;
            self.silent = 0;
            self.seen.mix(finished.client ^ now);
            let Asked { kind, offset, len, start, write } = request;
            if let Err(errno) = finished.result {
                let passes = self.setup.promise() == Promise::ErrorsPass;
                if passes && errno == Errno::EIO {
                    self.seen.errors += 1;
                    continue;
                }
                let what = format!("{kind:?} at {offset} failed: {errno}");
                return wrong("1: a client sees an error", what);
            }
            match kind {
                Kind::Read => {
                    self.judge_latency(now - start)?;
                    self.judge_read(offset, &finished.bufs, (start, now), against_history)?;
                }
                Kind::Flush => {
                    self.flushed = self.flushed.max(Some(start));
                    let given = self.given.filter(|(_, done)| *done <= start);
                    self.cleared = self.cleared.max(given.map(|(asked, _)| asked));
                }
                Kind::Write { fua } | Kind::Trim { fua } | Kind::Zero { fua, .. } => {
                    self.oracle.answered(write, offset, len, now);
                    if fua {
                        self.oracle.answered_fua(write, offset, len);
                    }
                }
            }
        }
        Ok(())
    }

    fn judge_read(
        &mut self,
        mut offset: u64,
        bufs: &[Buf],
        (start, end): (Nanos, Nanos),
        judge: Judge,
    ) -> Judged<()> {
        let excuses_rot = self.setup.promise() == Promise::Undetected;
        let (oracle, world, seen) = (&mut self.oracle, &self.world, &mut self.seen);
        let mut reads = Reads { oracle, world, seen, excuses_rot };
        for bytes in bufs {
            judge(&mut reads, &Answer { offset, bytes, start, end })?;
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    /// Rule 6: a miss costs one read of the origin, and no more.
    fn judge_latency(&self, took: Nanos) -> Judged<()> {
        let setup = self.setup;
        let AdmissionChoice::Selective(_) = &setup.choices.admission else { return Ok(()) };
        let bound = match setup.trouble {
            // Another read follows one that the origin failed.
            Trouble::OriginErrors | Trouble::OriginFlushErrors if setup.reads_again() => {
                2 * setup.origin_slowest.max(setup.flash_slowest)
            }
            // The origin answers reads that flash failed.
            Trouble::FlashErrors => setup.origin_slowest + setup.flash_slowest,
            trouble if trouble.spares_flash() => setup.origin_slowest.max(setup.flash_slowest),
            _ => Nanos::MAX,
        };
        if took > bound {
            let what = format!("it took {took} ns of at most {bound} ns");
            return wrong("6: a read took longer than a miss may", what);
        }
        Ok(())
    }

    /// Judges what a power cut left of the devices.
    pub(super) fn judge_cut(&mut self, origin: &Image, flash: &Image) -> Judged<Owners> {
        let mut moment = Moment {
            setup: self.setup,
            world: &self.world,
            oracle: &self.oracle,
            flash: self.flash,
            volume: self.volume,
            attached: self.attached,
            flushed: self.flushed,
            cleared: self.cleared,
            seen: &mut self.seen,
        };
        cuts::judge_cut(&mut moment, origin, flash)
    }

    /// What if the power failed now? Judges several outcomes; the life continues with none of them.
    fn probe(&mut self, salt: u64, outcomes: u32) -> Judged<()> {
        let mut rng = Pcg64Mcg::seed_from_u64(salt);
        for _ in 0..outcomes {
            let (mut origin, mut flash) = std::mem::take(&mut self.scratch);
            cuts::cut(self.world.device(ORIGIN), &mut rng, &mut origin);
            cuts::cut(self.world.device(self.flash), &mut rng, &mut flash);
            let judged = self.judge_cut(&origin, &flash);
            self.scratch = (origin, flash);
            judged.map(drop)?;
        }
        Ok(())
    }

    /// A crash; the next life begins from what is left of the devices.
    fn crash(&mut self, salt: u64, stop: Stop, read_back: bool) -> Judged<()> {
        let mut rng = Pcg64Mcg::seed_from_u64(salt);
        self.seen.crashes += 1;
        self.oracle.judge().map_err(|w| Violation::of("3: a history has no order", w))?;
        let (mut left, mut flash_left) = std::mem::take(&mut self.scratch);
        if stop == Stop::Process {
            cuts::keep(self.world.device(ORIGIN), &mut left);
            cuts::keep(self.world.device(self.flash), &mut flash_left);
        } else {
            cuts::cut(self.world.device(ORIGIN), &mut rng, &mut left);
            cuts::cut(self.world.device(self.flash), &mut rng, &mut flash_left);
        }
        let owners = self.judge_cut(&left, &flash_left)?;
        let (origin, flash) = (self.world.take_store(ORIGIN), self.world.take_store(self.flash));
        let (Some(origin), Some(flash)) = (origin, flash) else {
            return wrong("a device has no bytes", String::new());
        };
        let values = |owners: &Owners| {
            let value = |sector| owners.value(sector, (&origin, &left), (&flash, &flash_left));
            let all = self.oracle.touched().map(|sector| Ok((sector, value(sector)?)));
            all.collect::<Judged<Vec<_>>>()
        };
        // Data that is not promised without flash is lost with it.
        let outlives = self.setup.kind.outlives_flash;
        let without = if outlives { &Owners::none(self.setup) } else { &owners };
        let (with, without) = (values(&owners)?, values(without)?);
        let (flash, meets) = match stop {
            Stop::FlashLost => {
                self.attached = false;
                (foreign(self.setup), Meets::Last)
            }
            _ => (flash.after(&flash_left), Meets::draw(self.setup, salt)),
        };
        let origin = origin.after(&left);
        self.scratch = (left, flash_left);
        let taken = self.take_up(flash, meets)?;
        self.oracle.restart(if taken.warm { &with } else { &without });
        self.begin(origin, taken);
        if read_back { self.read_back() } else { Ok(()) }
    }

    /// Reads everything through the cache, and compares with the origin.
    fn read_back(&mut self) -> Judged<()> {
        let (bytes, step) = (self.setup.shape.origin_bytes, self.setup.shape.unit_bytes);
        let step = step.clamp(16 << 10, 64 << 10);
        let hits = self.world.requests().read_hits;
        for offset in (0..bytes).step_by(step as usize) {
            let len = step.min(bytes - offset);
            let start = self.world.now();
            self.world.request(0, Kind::Read, offset, len, &[]);
            let finished = loop {
                if let Some(finished) = self.world.next_finished() {
                    break finished;
                }
                if !self.world.advance(Nanos::MAX) {
                    return wrong("11: a read after a crash is never answered", String::new());
                }
            };
            self.follow();
            if let Err(errno) = finished.result {
                return wrong("1: a read after a crash failed", errno.to_string());
            }
            let span = (start, self.world.now());
            self.judge_read(offset, &finished.bufs, span, self.setup.kind.read_back)?;
        }
        self.seen.warm_hits += self.world.requests().read_hits - hits;
        Ok(())
    }
}
