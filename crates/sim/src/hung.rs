// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed scenarios of volumes that share a cache, and of which one has an origin that does not answer (design rule 14).
//!
//! In each the second volume's origin hangs. What the first volume needs must end in time; afterwards the origin answers, and what
//! waited for it continues.

use larder_core::config::{Choices, Durability, Limits, Placement, WritePolicy};
use larder_core::event::Event;
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_core::format::{Frame, UnitsPlan};
use larder_core::policy::admission::{PeriodicSettings, Schedule};
use larder_core::policy::syncer::SyncerSettings;
use larder_core::request::{Errno, Kind};
use larder_core::shape::Shape;
use larder_core::shard::Clear;
use larder_core::volumes::Volumes;
use larder_model::Jitter;

use crate::device::SimDevice;
use crate::scenario::{choices_of, sce};
use crate::world::{ORIGIN, World, lawful};

/// Units of each of the two volumes.
const UNITS: u64 = 256;
const SLOTS: u64 = 32;
/// The first unit of each volume.
const FIRST: u64 = 0;
const SECOND_VOLUME: u64 = UNITS;
const PATIENCE: Nanos = 10 * MILLISECOND;
/// How long a request to an origin that answers takes at most.
const BOUND: Nanos = 100 * MILLISECOND;
const WRITE: Kind = Kind::Write { fua: false };

/// Pages that each miss admits, anywhere on flash, with a journal.
fn pages() -> Choices {
    let placement = Placement::Anywhere;
    Choices { durability: Durability::Journal, placement, ..choices_of("flashcache") }
}

/// The same under write-back.
fn owned(sync: SyncerSettings) -> Choices {
    Choices { write: WritePolicy::WriteBack, sync, ..pages() }
}

struct Scene {
    world: World,
    unit_bytes: u64,
    next: u64,
}

impl Scene {
    /// Two volumes over one flash.
    fn new(choices: &Choices, checkpoint: Nanos) -> Self {
        let unit_bytes = choices.unit_bytes;
        let volumes = Volumes::placed(&[UNITS * unit_bytes; 2], unit_bytes);
        let shape = Shape::new(volumes.bytes(), unit_bytes, 1);
        let plan = UnitsPlan::of(Frame::BARE, shape, SLOTS, 512, choices, 16 << 10);
        let model = |seed| Box::new(Jitter::new(seed, 50_000, 100_000));
        let device = |seed| SimDevice::new(model(seed), None, seed, 1);
        let limits = Limits { checkpoint, origin_patience: PATIENCE, ..Limits::default() };
        let space = (shape, &volumes);
        let mut world = World::shared(device(1), space, &lawful(choices), &limits);
        world.attach_journaled(device(2), &plan, 7, &[None]);
        Self { world, unit_bytes, next: 0 }
    }

    fn idle(&mut self, span: Nanos) {
        self.world.idle_until(self.world.now() + span);
    }

    /// Asks for a page of a unit; returns the result, or `None` if there is none in time.
    fn ask(&mut self, kind: Kind, unit: u64, span: Nanos) -> Option<Result<(), Errno>> {
        let len = if kind == Kind::Flush { 0 } else { 4096 };
        self.next += 1;
        self.world.request(self.next, kind, unit * self.unit_bytes, len, &[]);
        let until = self.world.now() + span;
        loop {
            let moved = self.world.advance(until);
            while let Some(done) = self.world.next_finished() {
                if done.client == self.next {
                    return Some(done.result);
                }
            }
            if !moved {
                return None;
            }
        }
    }

    /// Requests for a page of each of some units of the first volume, which are answered in time.
    fn all(&mut self, kind: Kind, units: std::ops::Range<u64>) -> Result<(), String> {
        for unit in units {
            match self.ask(kind, unit, BOUND) {
                Some(Ok(())) => {}
                Some(Err(errno)) => return Err(format!("{kind:?} of unit {unit} failed: {errno}")),
                None => return Err(format!("{kind:?} of unit {unit} was not answered in time")),
            }
        }
        Ok(())
    }

    /// Hits of a read of each of some units.
    fn hits(&mut self, units: std::ops::Range<u64>) -> Result<u64, String> {
        let before = self.world.requests().read_hits;
        self.all(Kind::Read, units)?;
        Ok(self.world.requests().read_hits - before)
    }

    /// Units of the second volume are logged and then changed, and its origin stops to answer.
    fn changed_and_hung() -> Result<Self, String> {
        let mut scene = Self::new(&pages(), 20 * MILLISECOND);
        scene.all(Kind::Read, SECOND_VOLUME..SECOND_VOLUME + 4)?;
        scene.idle(SECOND);
        scene.all(WRITE, SECOND_VOLUME..SECOND_VOLUME + 4)?;
        scene.hang();
        Ok(scene)
    }

    /// The second origin stops to answer.
    fn hang(&mut self) {
        let range = self.world.volumes().range(1);
        let faults = &mut self.world.device(ORIGIN).faults;
        (faults.within, faults.hang) = (Some(range), true);
    }

    /// The second origin answers again.
    fn answer(&mut self) {
        let now = self.world.now();
        self.world.device(ORIGIN).release(now);
        self.idle(SECOND);
    }

    fn logged(&self) -> u64 {
        self.world.shards()[0].cache_status().map_or(0, |status| status.units_logged)
    }

    fn generation(&self) -> u64 {
        self.world.shards()[0].cache_status().map_or(0, |status| status.reached.0)
    }
}

/// The journal logs the units of the other volume; those of its own when the origin answers, which it reports.
pub fn the_journal_continues() -> Result<(), String> {
    let mut scene = Scene::changed_and_hung()?;
    for half in [FIRST..FIRST + 4, FIRST + 4..FIRST + 8] {
        scene.all(Kind::Read, half)?;
        scene.idle(SECOND);
    }
    let logged = scene.logged();
    let overdue = scene.world.take_events().contains(&Event::OriginOverdue { volume: 1 });
    scene.answer();
    let answers = scene.world.take_events().contains(&Event::OriginAnswers { volume: 1 });
    match (logged, scene.logged(), overdue && answers) {
        (12, 12, true) if scene.ask(Kind::Flush, SECOND_VOLUME, BOUND) == Some(Ok(())) => Ok(()),
        other => Err(format!("units logged, when it answers, and both events: {other:?}")),
    }
}

/// A log that fills is continued in the other half of the metadata.
pub fn a_checkpoint_continues() -> Result<(), String> {
    let mut scene = Scene::changed_and_hung()?;
    let before = scene.generation();
    for _ in 0..4 {
        scene.all(Kind::Read, FIRST..FIRST + UNITS)?;
        scene.all(WRITE, FIRST..FIRST + UNITS)?;
    }
    scene.idle(SECOND);
    match scene.generation() - before {
        0 | 1 => Err("there was no further checkpoint".into()),
        _ => Ok(()),
    }
}

/// Workers populate units of the other volume.
pub fn population_continues() -> Result<(), String> {
    let mut scene = Scene::new(&sce(), 20 * MILLISECOND);
    scene.hang();
    for unit in SECOND_VOLUME..SECOND_VOLUME + 2 * SLOTS {
        scene.ask(Kind::Read, unit, MILLISECOND);
    }
    scene.idle(SECOND);
    for _ in 0..4 {
        scene.all(Kind::Read, FIRST..FIRST + 8)?;
        scene.idle(60 * SECOND);
    }
    match scene.hits(FIRST..FIRST + 8)? {
        0 => Err("no unit of the other volume was populated".into()),
        _ => Ok(()),
    }
}

/// An update exchanges units of the other volume.
pub fn exchanges_continue() -> Result<(), String> {
    let mut choices = choices_of("prwc");
    if let Some(settings) = choices.periodic_mut() {
        *settings = PeriodicSettings { schedule: Schedule::Every(SECOND), idle: 0, hot: 2 };
    }
    let mut scene = Scene::new(&choices, 20 * MILLISECOND);
    for _ in 0..8 {
        scene.all(Kind::Read, SECOND_VOLUME..SECOND_VOLUME + 8)?;
    }
    scene.hang();
    scene.idle(2 * SECOND);
    for _ in 0..8 {
        scene.all(Kind::Read, FIRST..FIRST + 8)?;
    }
    scene.idle(10 * SECOND);
    match scene.hits(FIRST..FIRST + 8)? {
        0 => Err("no unit of the other volume was exchanged".into()),
        _ => Ok(()),
    }
}

/// A clear of its own volume fails in time, one of the other succeeds; and its own when the origin answers.
pub fn clears_end() -> Result<(), String> {
    let mut scene = Scene::new(&owned(SyncerSettings::NONE), 20 * MILLISECOND);
    scene.all(WRITE, FIRST..FIRST + 4)?;
    scene.all(WRITE, SECOND_VOLUME..SECOND_VOLUME + 4)?;
    scene.hang();
    let clear = |volume| Clear { volume: Some(volume), evict: true };
    let clear_both = |scene: &mut Scene| {
        [0, 1].map(|volume| {
            scene.world.shards()[0].clear(clear(volume));
            scene.idle(BOUND);
            scene.world.shards()[0].cleared(clear(volume))
        })
    };
    let hung = clear_both(&mut scene);
    scene.world.shards()[0].join(1);
    scene.answer();
    match (hung, clear_both(&mut scene)) {
        ([Some(Ok(())), Some(Err(Errno::ETIMEDOUT))], [Some(Ok(())), Some(Ok(()))]) => Ok(()),
        other => Err(format!("clears of both volumes, and when it answers: {other:?}")),
    }
}

/// Dirty data of its own takes no slot from the other volume.
pub fn it_takes_no_slot() -> Result<(), String> {
    let sync = SyncerSettings { period_ns: Some(0), ..SyncerSettings::NONE };
    let mut scene = Scene::new(&owned(sync), 20 * MILLISECOND);
    scene.all(Kind::Read, FIRST..FIRST + 8)?;
    scene.hang();
    scene.ask(WRITE, SECOND_VOLUME, BOUND);
    scene.idle(SECOND);
    for unit in SECOND_VOLUME + 1..SECOND_VOLUME + 4 * SLOTS {
        scene.ask(WRITE, unit, MILLISECOND);
    }
    match scene.hits(FIRST..FIRST + 8)? {
        8 => Ok(()),
        hits => Err(format!("{hits} of 8 pages of the other volume are still cached")),
    }
}

/// Dirty data of the other volume is written back when its clients are idle.
pub fn idle_write_back_continues() -> Result<(), String> {
    let sync = SyncerSettings { idle_ns: Some(5 * MILLISECOND), ..SyncerSettings::NONE };
    let mut scene = Scene::new(&owned(sync), 20 * MILLISECOND);
    scene.hang();
    scene.ask(Kind::Read, SECOND_VOLUME, MILLISECOND);
    scene.all(WRITE, FIRST..FIRST + 8)?;
    scene.idle(10 * SECOND);
    match scene.world.counters().write_back_bytes {
        0 => Err("nothing was written back".into()),
        _ => Ok(()),
    }
}
