// SPDX-License-Identifier: MIT OR Apache-2.0
//! The admission policy of a shard, and the reports that it gets from the paths.
//!
//! Heat lists, streams and reference factors survive a change of the flash device.

use std::cell::RefCell;

use larder_policy::admission::{
    Benefit, ExtendedReads, Investment, OnMiss, Periodic, Selective, SelectiveSettings, Sequence,
    Sequential, Singles,
};

use crate::cache::units::mixed::directory_bytes_each;
use crate::config::AdmissionChoice;
use crate::exec::{Exec, Guard, Nanos, Signal};
use crate::shape::{Place, Shape};

/// How units are admitted.
pub(crate) enum Population {
    /// By no policy: a page log admits the pages that are written and read.
    None,
    /// By background workers, which take the hottest of the recent misses.
    Workers(Box<Workers>),
    /// With the request that misses.
    Inline(RefCell<OnMiss>),
    /// By a periodic exchange.
    Exchange(RefCell<Periodic>),
}

/// Background workers: their candidates, and a signal that wakes each.
pub(crate) struct Workers {
    pub policy: RefCell<Selective>,
    pub wake: Vec<Signal>,
    extended: Option<Box<RefCell<ExtendedReads>>>,
    pub(super) benefit: Option<Box<RefCell<Benefit>>>,
    investment: Option<Box<RefCell<Investment>>>,
    pub(super) singles: Option<Box<RefCell<Singles>>>,
    pub(super) sequential: Option<Box<RefCell<Sequential>>>,
}

impl Workers {
    fn new(settings: &SelectiveSettings, shape: &Shape) -> Self {
        let policy = Selective::new(settings, shape.shards);
        let extended = settings.extended.as_ref();
        Self {
            wake: (0..policy.workers()).map(|_| Signal::default()).collect(),
            policy: RefCell::new(policy),
            extended: extended
                .map(|s| Box::new(RefCell::new(ExtendedReads::new(s, shape.unit_bytes)))),
            benefit: settings
                .by_benefit
                .then(|| Box::new(RefCell::new(Benefit::new(shape.units() as u32)))),
            investment: settings
                .investment
                .as_ref()
                .map(|s| Box::new(RefCell::new(Investment::new(s, shape.unit_bytes)))),
            singles: settings.singles.as_ref().map(|s| Box::new(RefCell::new(Singles::new(s)))),
            sequential: settings.sequential.as_ref().map(|s| {
                Box::new(RefCell::new(Sequential::new(s, shape.unit_bytes, shape.shards)))
            }),
        }
    }

    /// Whether a worker without a candidate completes units that are valid in part, while this share of the slots is free.
    pub(crate) fn completes(&self, free_ratio: f64) -> bool {
        self.extended.as_ref().is_some_and(|extended| extended.borrow().admits(free_ratio))
    }

    /// Whether the hits of extended reads save more time than they cost.
    pub(super) fn extensions_pay(&self) -> bool {
        self.extended.as_ref().is_some_and(|extended| extended.borrow().pays())
    }

    /// Whether more units are read than the cache has slots.
    pub(super) fn is_scarce(&self) -> bool {
        self.benefit.as_ref().is_some_and(|benefit| benefit.borrow().is_scarce())
    }

    /// How often a unit is read, per window of the policy.
    pub(super) fn frequency(&self, unit: u32) -> f64 {
        self.benefit.as_ref().map_or(0.0, |benefit| benefit.borrow().frequency(unit))
    }

    /// How scattered hits are, from 0 to 1.
    pub(super) fn scatter(&self) -> f64 {
        self.investment.as_ref().map_or(1.0, |investment| investment.borrow().scatter())
    }

    /// A client read; `unit`: what it read, if a slot for the whole unit would serve it and nothing else does.
    fn requested(&self, unit: Option<u32>) {
        if let Some(benefit) = &self.benefit {
            benefit.borrow_mut().requested(unit);
        }
        if let Some(singles) = &self.singles {
            singles.borrow_mut().requested();
        }
    }

    /// A read was served by flash, or by an extended read in flight.
    fn served(&self, place: &Place, single: bool) {
        let unit = place.unit;
        // What a mixed slot serves is no reason to cache the whole unit.
        self.requested((!single).then_some(unit));
        if let Some(benefit) = &self.benefit {
            benefit.borrow_mut().hit();
        }
        if let Some(extended) = &self.extended {
            extended.borrow_mut().hit(u64::from(unit), place.within);
        }
        if let Some(investment) = &self.investment {
            investment.borrow_mut().hit(u64::from(unit), (place.within, place.len));
        }
    }
}

/// A unit is admitted with the request that missed it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Inline {
    /// Whether the client's answer waits until flash has the data.
    pub client_waits: bool,
}

impl Population {
    pub(crate) fn new(choice: &AdmissionChoice, shape: &Shape) -> Self {
        match choice {
            AdmissionChoice::Selective(settings) => {
                Self::Workers(Box::new(Workers::new(settings, shape)))
            }
            AdmissionChoice::OnMiss(settings) => {
                Self::Inline(RefCell::new(OnMiss::new(settings, shape.shards)))
            }
            AdmissionChoice::Periodic(settings) => {
                Self::Exchange(RefCell::new(Periodic::new(settings, shape.units())))
            }
            AdmissionChoice::OnExit(_) => Self::None,
        }
    }

    pub(super) fn workers(&self) -> Option<&Workers> {
        match self {
            Self::Workers(workers) => Some(workers),
            _ => None,
        }
    }

    /// A client requests `bytes` of a unit; called before the lookup.
    pub(crate) fn requested(&self, unit: u32, bytes: u64) {
        match self {
            Self::Inline(policy) => policy.borrow_mut().requested(u64::from(unit), bytes),
            Self::Exchange(policy) => policy.borrow_mut().requested(u64::from(unit)),
            Self::None | Self::Workers(_) => {}
        }
    }

    /// A flash device was attached, with so many slots for this shard.
    pub(crate) fn attached(&self, slots: u32, shape: &Shape) {
        self.sized(slots, shape, Singles::attached);
    }

    /// The attached flash device has another number of slots for this shard.
    pub(crate) fn resized(&self, slots: u32, shape: &Shape) {
        self.sized(slots, shape, Singles::resized);
    }

    fn sized(&self, slots: u32, shape: &Shape, tell: fn(&mut Singles, u32, u64, u32)) {
        if let Self::Exchange(policy) = self {
            policy.borrow_mut().attached(slots);
        }
        let Self::Workers(workers) = self else { return };
        if let Some(benefit) = &workers.benefit {
            benefit.borrow_mut().attached(slots);
        }
        if let Some(singles) = &workers.singles {
            let each = directory_bytes_each(shape.pages_per_unit());
            tell(&mut singles.borrow_mut(), slots, each, shape.shards);
        }
    }

    /// A read was served from flash; `single`: from a mixed slot.
    pub(crate) fn hit(&self, place: &Place, single: bool, now: Nanos) {
        if let Self::Workers(workers) = self {
            workers.policy.borrow_mut().served(true, now);
            workers.served(place, single);
        }
    }

    /// A read was served from the memory of an extended read.
    pub(crate) fn joined(&self, place: &Place) {
        if let Self::Workers(workers) = self {
            workers.served(place, false);
        }
    }

    /// Bytes of the aligned blocks that a miss reads, `None` for a plain read; `free`: the share of slots that are free,
    /// `None` if the unit has a slot already. A read of a stream that returns is admitted in this way whatever its size.
    pub(crate) fn extends(
        &self,
        (place, sequence): (&Place, Sequence),
        free: Option<f64>,
    ) -> Option<u64> {
        let extended = self.workers().and_then(|workers| workers.extended.as_ref())?;
        let mut extended = extended.borrow_mut();
        if !free.is_none_or(|free| extended.admits(free)) {
            return None;
        }
        match sequence {
            Sequence::None => extended.blocks(place.len),
            Sequence::Returns => extended.ahead(),
            Sequence::New => None,
        }
    }

    /// A read of the origin by a client that missed took so long; `block`: the bytes of the unit that it covered, if it
    /// was extended. Reads of streams are not compared: a disk serves them without a seek.
    pub(crate) fn read_origin(
        &self,
        (place, sequence): (&Place, Sequence),
        block: Option<(u64, u64)>,
        took: Nanos,
    ) {
        let extended = self.workers().and_then(|workers| workers.extended.as_ref());
        let Some(extended) = extended.filter(|_| sequence == Sequence::None) else { return };
        match block {
            Some(block) => {
                let unit = u64::from(place.unit);
                extended.borrow_mut().extended_ended(place.len, unit, block, took);
            }
            None => extended.borrow_mut().plain_ended(place.len, took),
        }
    }

    /// A unit was populated as a whole.
    pub(crate) fn populated(&self, unit: u32, now: Nanos) {
        if let Some(investment) = self.workers().and_then(|workers| workers.investment.as_ref()) {
            investment.borrow_mut().populated(u64::from(unit), now);
        }
    }

    /// The share of the origin that population may take, if that is not the usual share. `cost`: the reads of a client
    /// that take as long as the population of a unit.
    pub(crate) fn share(&self, cost: Option<f64>, now: Nanos) -> Option<f64> {
        let investment = self.workers().and_then(|workers| workers.investment.as_ref())?;
        investment.borrow().share(cost?, now)
    }

    /// How often a unit is read, by the policy's measure.
    pub(crate) fn frequency(&self, unit: u32) -> f64 {
        match self {
            Self::Workers(workers) => workers.frequency(unit),
            Self::Exchange(policy) => policy
                .borrow()
                .factors()
                .get(unit as usize)
                .map_or(0.0, |factor| f64::from(*factor)),
            Self::None | Self::Inline(_) => 0.0,
        }
    }

    /// Whether a unit may displace another.
    pub(crate) fn prefers(&self, unit: u32, victim: u32) -> bool {
        let benefit = self.workers().and_then(|workers| workers.benefit.as_ref());
        benefit.is_none_or(|benefit| benefit.borrow().prefers(unit, victim))
    }

    /// A read missed. `free`: the share of slots that are free, `None` without slots. Returns whether to admit the unit
    /// with this request.
    pub(crate) fn missed<G: Guard>(
        &self,
        (unit, sequence): (u32, Sequence),
        free: Option<f64>,
        exec: &Exec<G>,
    ) -> Option<Inline> {
        match self {
            Self::Workers(workers) => {
                if sequence == Sequence::New {
                    workers.passed(unit);
                    return None;
                }
                workers.requested(Some(unit));
                let mut policy = workers.policy.borrow_mut();
                policy.served(false, exec.now());
                if sequence == Sequence::Returns && workers.completes(free?) {
                    return None; // the extended read admits it
                }
                if let Some(worker) = policy.missed(u64::from(unit), free?, exec.now()) {
                    workers.wake[worker as usize].set(exec);
                }
                None
            }
            Self::Inline(policy) => {
                let policy = policy.borrow();
                let client_waits = policy.client_waits();
                (free.is_some() && policy.admits_read()).then_some(Inline { client_waits })
            }
            Self::None | Self::Exchange(_) => None,
        }
    }

    /// Whether a write to a unit that is not resident admits it.
    pub(crate) fn admits_write(&self) -> bool {
        matches!(self, Self::Inline(policy) if policy.borrow().admits_write())
    }

    /// Whether a read that misses admits its unit at once.
    pub(crate) fn admits_misses(&self) -> bool {
        matches!(self, Self::Inline(_))
    }

    /// Wakes all workers.
    pub(crate) fn wake<G: Guard>(&self, exec: &Exec<G>) {
        if let Self::Workers(workers) = self {
            workers.wake.iter().for_each(|worker| worker.set(exec));
        }
    }

    /// Appends the reference factors of so many units.
    pub(crate) fn factors(&self, units: u32, out: &mut Vec<u8>) {
        if let Self::Exchange(policy) = self
            && units > 0
        {
            let factors = policy.borrow();
            let own = factors.factors().iter().take(units as usize);
            out.extend(own.flat_map(|rf| rf.to_le_bytes()));
        }
    }

    /// Restores the reference factors of an earlier run.
    pub(crate) fn restore(&self, factors: impl Iterator<Item = u16>) {
        if let Self::Exchange(policy) = self {
            policy.borrow_mut().restore(factors);
        }
    }
}
