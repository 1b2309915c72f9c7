// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a life: power cuts that are judged, crashes, and what is read back in the next life.

use std::ops::Range;

use larder_core::exec::Nanos;
use larder_core::request::Kind;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::cuts;
use super::history::{Judged, Violation, wrong};
use super::identity::{Meets, foreign};
use super::life::Life;
use super::moment::Moment;
use super::owners::Owners;
use super::promise::Trouble;
use super::step::Stop;
use crate::store::Image;
use crate::world::ORIGIN;

impl Life<'_> {
    /// Judges what a power cut left of the devices.
    pub(super) fn judge_cut(&mut self, origin: &Image, flash: &Image) -> Judged<Owners> {
        let mut moment = Moment {
            setup: self.setup,
            space: self.space(),
            world: &self.world,
            oracle: &self.oracle,
            earlier: &self.earlier,
            flash: self.flash,
            volume: self.volume,
            attached: self.attached,
            ignored: self.identity.ignored(self.setup),
            flushed: &self.flushed,
            cleared: &self.cleared,
            outside: &self.outside,
            seen: &mut self.seen,
        };
        cuts::judge_cut(&mut moment, origin, flash)
    }

    /// Rule 18: what flash returns as it was given never counts as damaged.
    pub(super) fn judge_damage(&self) -> Judged<()> {
        let damaged: u64 = self.world.shards().iter().map(|s| s.counters().damaged_pages).sum();
        if damaged == 0 || self.setup.may_damage() {
            return Ok(());
        }
        wrong("18: intact pages count as damaged", format!("{damaged} pages"))
    }

    /// Continues until every request is answered.
    fn answer_all(&mut self) -> Judged<()> {
        while !self.asked.is_empty() {
            if !self.turn()? {
                return wrong("11: a request is never answered", String::new());
            }
        }
        Ok(())
    }

    /// What if the power failed now? Judges several outcomes; the life continues with none of them.
    pub(super) fn probe(&mut self, salt: u64, outcomes: u32) -> Judged<()> {
        if !self.setup.judges_crashes() {
            return Ok(());
        }
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
    pub(super) fn crash(&mut self, salt: u64, stop: Stop, read_back: bool) -> Judged<()> {
        if !self.setup.judges_crashes() {
            self.seen.left_out += 1;
            return self.answer_all();
        }
        let mut rng = Pcg64Mcg::seed_from_u64(salt);
        self.seen.crashes += 1;
        self.judge_damage()?;
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
            let found = |sector| Ok(value(sector)?.map(|value| (sector, value)));
            self.oracle.touched().filter_map(|s| found(s).transpose()).collect::<Judged<Vec<_>>>()
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
        self.grow();
        let taken = self.take_up(flash, meets)?;
        if self.setup.kind.in_order {
            self.earlier.push(self.oracle.clone());
        }
        self.oracle.restart(if taken.warm { &with } else { &without });
        self.begin(origin, taken);
        if read_back { self.read_back() } else { Ok(()) }
    }

    /// Reads everything through the cache, and compares with the origin.
    fn read_back(&mut self) -> Judged<()> {
        let step = self.setup.shape.unit_bytes.clamp(16 << 10, 64 << 10);
        let hits = self.world.requests().read_hits;
        let reads = |volume: Range<u64>| {
            let end = volume.end;
            volume.step_by(step as usize).map(move |offset| (offset, step.min(end - offset)))
        };
        for (offset, len) in self.space().1.ranges().flat_map(reads) {
            let start = self.world.now();
            self.world.request(0, Kind::Read, offset, len, &[]);
            let mut stuck = false;
            let finished = loop {
                let moved = self.world.advance(Nanos::MAX);
                self.follow();
                match self.world.next_finished() {
                    Some(finished) => break finished,
                    None if !moved && std::mem::replace(&mut stuck, true) => {
                        let rule = "11: a read after a crash is never answered";
                        return wrong(rule, String::new());
                    }
                    None => {}
                }
            };
            if let Err(errno) = finished.result {
                let forgets = self.setup.trouble == Trouble::FlashForgets;
                if forgets && self.passes(errno, (offset, start)) {
                    continue;
                }
                return wrong("1: a read after a crash failed", errno.to_string());
            }
            let span = (start, self.world.now());
            self.judge_read(offset, &finished.bufs, span, self.setup.kind.read_back)?;
        }
        self.seen.warm_hits += self.world.requests().read_hits - hits;
        Ok(())
    }
}
