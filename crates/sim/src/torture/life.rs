// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a history: lives of a volume, with a crash between them.
//!
//! After each stop the next life recovers from flash, and what it reports is compared with the origin:
//! the origin by itself holds what flushes and FUA promised (design rules 1, 2, 7), a read through the
//! cache returns what the origin holds (rule 9), and what was found becomes the only past.

use std::collections::{BTreeSet, HashMap};

use larder_core::buf::Buf;
use larder_core::config::AdmissionChoice;
use larder_core::exec::{DevId, MILLISECOND, Nanos};
use larder_core::request::{Errno, Kind};
use larder_model::Jitter;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::history::{Judged, Line, Seen, wrong};
use super::identity::{Identity, Last, Meets, Taken, foreign};
use super::on_flash::{Found, on_flash};
use super::plan::Plan;
use super::promise::{Promise, Trouble};
use super::reads::{Answer, Judge, Reads, against_history};
use super::rot::places;
use super::setup::Setup;
use super::step::Step;
use super::wanted::{Resizing, Wanted};
use crate::device::SimDevice;
use crate::oracle::{Oracle, WriteId, fill};
use crate::store::{Image, Store};
use crate::world::{ORIGIN, World};

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
    /// The histories of the lives before, if the origin must be in order.
    pub(super) earlier: Vec<Oracle>,
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
    /// For each volume: when a flush was asked for that was answered.
    pub flushed: Vec<Option<Nanos>>,
    /// When a write-back of all dirty data was asked for, and whether to detach afterwards.
    pub clearing: Option<(Nanos, bool)>,
    /// The last completed write-back: when it was asked for, and when it ended.
    pub given: Option<(Nanos, Nanos)>,
    /// For each volume: when the last write-back was asked for that a flush made durable on the origin.
    pub cleared: Vec<Option<Nanos>>,
    /// Volumes that are leaving the cache, and those that have left it.
    pub departing: BTreeSet<u32>,
    pub outside: BTreeSet<u32>,
    pub asked: HashMap<u64, Asked>,
    client: u64,
    /// When all operations on flash stop failing, or stopped.
    pub failed_until: Nanos,
    /// When the origin that hangs answers again.
    pub hangs_until: Option<Nanos>,
    /// Events since a request was last answered.
    silent: u64,
    pub seen: Seen,
    /// Lives that have begun.
    lives: u32,
    pub trace: Option<Vec<Line>>,
    /// Images that are reused.
    pub(super) scratch: (Image, Image),
    pub(super) wanted: Wanted,
    pub(super) resizing: Option<Resizing>,
    /// Bytes of the origin in this life.
    pub(super) origin_bytes: u64,
}

/// A volume at the beginning of its first life.
pub(super) fn start(setup: &Setup, salt: u64) -> Judged<Life<'_>> {
    let mut rng = Pcg64Mcg::seed_from_u64(salt);
    let mut origin = Store::new(setup.shape.origin_bytes, |sector, bytes| fill(sector, 0, bytes));
    // The padding between volumes, which reads as zeroes.
    for (before, after) in setup.volumes.ranges().zip(setup.volumes.ranges().skip(1)) {
        origin.zero(before.end, after.start - before.end, true);
    }
    let mut life = Life {
        setup,
        world: empty(setup),
        oracle: Oracle::default(),
        earlier: Vec::new(),
        volume: rng.random(),
        rng,
        flash: ORIGIN,
        identity: Identity::default(),
        attached: false,
        fence_at: None,
        flushed: Vec::new(),
        clearing: None,
        given: None,
        cleared: Vec::new(),
        departing: BTreeSet::new(),
        outside: BTreeSet::new(),
        asked: HashMap::new(),
        client: 0,
        failed_until: 0,
        hangs_until: None,
        silent: 0,
        seen: Seen::default(),
        lives: 0,
        trace: None,
        scratch: (Vec::new(), Vec::new()),
        wanted: Wanted::default(),
        resizing: None,
        origin_bytes: setup.first_bytes,
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
    World::shared(origin, (setup.shape, &setup.volumes), &setup.spec(0), &setup.limits)
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
        self.judge_damage()?;
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
            Step::Ask(kind, offset, len) => return self.ask(kind, offset, len),
            Step::Go(events) => return (0..events).try_for_each(|_| self.turn().map(drop)),
            Step::Rest(span) => return self.rest(span),
            Step::Cut(salt, outcomes) => return self.probe(salt, outcomes),
            Step::Crash(salt, stop, read_back) => return self.crash(salt, stop, read_back),
            Step::Fault(fault) => self.fault(fault),
            Step::Settle => self.settle(),
            Step::Set(salt) => self.set(salt),
            Step::Rule(rule, offset, len) => self.rule(rule, offset..offset + len),
            Step::Arrange(what, offset, len) => self.arrange(what, offset..offset + len),
            Step::Scrub(offset, len) => {
                let range = offset..offset + len;
                let shards = self.world.shards().iter();
                shards.for_each(|shard| shard.scrub(vec![range.clone()], |_| ()));
            }
            Step::Resize(tenths) => self.resize(tenths),
            Step::Flush => self.clear(false),
            Step::Leave => self.clear(true),
            Step::Depart(volume) => self.depart(volume),
            Step::Return(volume) => self.return_to_cache(volume),
            Step::Detach => self.detach(),
            Step::Attach(same) => return self.attach_again(same),
        }
        Ok(())
    }

    /// Starts the engine over the devices.
    pub(super) fn begin(&mut self, origin: Store, Taken { flash, found, .. }: Taken) {
        let setup = self.setup;
        let origin = self.device(setup.origin_slowest, origin);
        let flash = self.device(setup.flash_slowest, flash);
        let (shape, volumes) = self.space();
        let (space, spec) = ((shape, &volumes), setup.spec(self.lives));
        self.world = World::shared(origin, space, &spec, &setup.limits);
        self.lives += 1;
        self.world.idle_until(Oracle::PAST + 1);
        self.wanted.revive();
        self.follow_rules();
        self.attach(flash, &found);
        let never = vec![None; setup.volumes.count() as usize];
        (self.flushed, self.fence_at, self.failed_until) = (never.clone(), None, 0);
        (self.clearing, self.given, self.cleared) = (None, None, never);
        self.hangs_until = None;
        self.asked.clear();
    }

    /// The number of this life, counted from 0.
    pub(super) fn life(&self) -> u32 {
        self.lives - 1
    }

    pub(super) fn take_up(&mut self, flash: Store, meets: Meets) -> Judged<Taken> {
        let (volume, attached, origin_bytes) = (self.volume, self.attached, self.origin_bytes);
        let last = Last { flash, volume, attached, origin_bytes };
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
        self.wanted.begin();
        self.departing.clear();
        self.outside.clear();
        let (mut flash, mut found) = (flash, found.clone());
        let plan = self.plan_of_life(&mut flash, &mut found);
        let kept = on_flash(&plan);
        let ignored = self.identity.ignored(self.setup);
        let place = (self.volume, &ignored[..]);
        self.seen.warm += kept.attach(&mut self.world, flash, place, &found) as u64;
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
        while self.is_full(offset) {
            self.turn()?;
        }
        let (offset, len) = self.within(offset, len);
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
        self.collect_now()?;
        let next = self.fence_at.into_iter().chain(self.hangs_until).min();
        let moved = self.world.advance(next.unwrap_or(Nanos::MAX));
        if !moved {
            match next {
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
        self.follow_hang()?;
        self.judge_rules()?;
        Ok(true)
    }

    fn rest(&mut self, span: Nanos) -> Judged<()> {
        let until = self.world.now() + span;
        self.collect_now()?;
        loop {
            let stops = self.fence_at.into_iter().chain(self.hangs_until);
            let stop = stops.fold(until, Nanos::min);
            if !self.world.advance(stop) {
                self.world.idle_until(stop);
            }
            self.collect()?;
            self.follow();
            self.follow_hang()?;
            self.judge_rules()?;
            if self.world.now() >= until {
                return Ok(());
            }
        }
    }

    /// What needs no device is answered at this moment, not at that of the next event.
    fn collect_now(&mut self) -> Judged<()> {
        self.world.settle();
        self.collect()
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
                if self.passes(errno, (offset, start)) {
                    self.seen.errors += 1;
                    continue;
                }
                let what = format!("{kind:?} at {offset} failed: {errno}");
                return wrong("1: a client sees an error", what);
            }
            match kind {
                // The origin has older bytes.
                Kind::Read if self.has_forgotten(offset) => {}
                Kind::Read => {
                    self.judge_latency(now - start)?;
                    self.judge_read(offset, &finished.bufs, (start, now), against_history)?;
                }
                Kind::Flush => {
                    let volume = self.setup.volumes.at(offset) as usize;
                    self.flushed[volume] = self.flushed[volume].max(Some(start));
                    self.oracle.flushed(start, now);
                    let given = self.given.filter(|(_, done)| *done <= start);
                    let asked = given.map(|(asked, _)| asked);
                    self.cleared[volume] = self.cleared[volume].max(asked);
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

    /// Whether a client may see this error of a request at this offset that began at this time.
    pub(super) fn passes(&self, errno: Errno, (offset, start): (u64, Nanos)) -> bool {
        let setup = self.setup;
        // After an outage the last retry may have begun just before its end, and rests as long as it may.
        let grace = 2 * setup.limits.flash_dead_after;
        let over = setup.trouble == Trouble::FlashOutages && start > self.failed_until + grace;
        setup.promise() == Promise::ErrorsPass
            && errno == Errno::EIO
            && !over
            && setup.is_troubled(offset)
    }

    pub(super) fn judge_read(
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

    /// Rule 6: a miss costs one read of the origin, and no more. It may have to wait for a write of its pages on flash. With a journal
    /// that write may wait for the record of its slot's eviction, and this one for the record that is being written.
    fn judge_latency(&self, took: Nanos) -> Judged<()> {
        let setup = self.setup;
        let AdmissionChoice::Selective(_) = &setup.choices.admission else { return Ok(()) };
        let bound = match setup.trouble {
            // Another read follows one that the origin failed.
            Trouble::OriginErrors | Trouble::OriginFlushErrors | Trouble::OriginGone
                if setup.reads_again() =>
            {
                2 * setup.origin_slowest.max(setup.flash_slowest)
            }
            // The origin answers reads that flash failed.
            Trouble::FlashErrors => setup.origin_slowest + setup.flash_slowest,
            trouble if trouble.spares_flash() => setup.origin_slowest.max(setup.flash_slowest),
            _ => Nanos::MAX,
        };
        let records = if setup.plan.keeps_metadata() { 2 } else { 0 };
        // A block of checksums is evicted, and another read.
        let sums = if setup.choices.verify { 3 } else { 0 };
        let bound = bound.saturating_add((1 + records + sums) * setup.flash_slowest);
        if took > bound {
            let what = format!("it took {took} ns of at most {bound} ns");
            return wrong("6: a read took longer than a miss may", what);
        }
        Ok(())
    }
}
