// SPDX-License-Identifier: MIT OR Apache-2.0
//! The admission policy of a shard, and the reports that it gets from the paths.
//!
//! Heat lists, streams and reference factors survive a change of the flash device.

use std::cell::RefCell;

use larder_policy::admission::{OnMiss, Periodic, Selective};

use crate::config::AdmissionChoice;
use crate::exec::{Exec, Guard, Nanos, Signal};
use crate::shape::Shape;

/// How units are admitted.
pub(crate) enum Population {
    /// By no policy: a page log admits the pages that are written and read.
    None,
    /// By background workers, which take the hottest of the recent misses.
    Workers(Workers),
    /// With the request that misses.
    Inline(RefCell<OnMiss>),
    /// By a periodic exchange.
    Exchange(RefCell<Periodic>),
}

/// Background workers: their candidates, and a signal that wakes each.
pub(crate) struct Workers {
    pub policy: RefCell<Selective>,
    pub wake: Vec<Signal>,
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
                let policy = Selective::new(settings, shape.shards);
                let wake = (0..policy.workers()).map(|_| Signal::default()).collect();
                Self::Workers(Workers { policy: RefCell::new(policy), wake })
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

    /// A client requests `bytes` of a unit; called before the lookup.
    pub(crate) fn requested(&self, unit: u32, bytes: u64) {
        match self {
            Self::Inline(policy) => policy.borrow_mut().requested(u64::from(unit), bytes),
            Self::Exchange(policy) => policy.borrow_mut().requested(u64::from(unit)),
            Self::None | Self::Workers(_) => {}
        }
    }

    /// A read was served from flash.
    pub(crate) fn hit(&self, now: Nanos) {
        if let Self::Workers(workers) = self {
            workers.policy.borrow_mut().served(true, now);
        }
    }

    /// A read missed. `free`: the share of slots that are free, `None` without slots. Returns whether to admit the unit
    /// with this request.
    pub(crate) fn missed<G: Guard>(
        &self,
        unit: u32,
        free: Option<f64>,
        exec: &Exec<G>,
    ) -> Option<Inline> {
        match self {
            Self::Workers(workers) => {
                let mut policy = workers.policy.borrow_mut();
                policy.served(false, exec.now());
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

    /// Wakes all workers.
    pub(crate) fn wake<G: Guard>(&self, exec: &Exec<G>) {
        if let Self::Workers(workers) = self {
            workers.wake.iter().for_each(|worker| worker.set(exec));
        }
    }

    /// Appends the reference factors of all units, unless `units` is 0.
    pub(crate) fn factors(&self, units: u32, out: &mut Vec<u8>) {
        if let Self::Exchange(policy) = self
            && units > 0
        {
            out.extend(policy.borrow().factors().iter().flat_map(|rf| rf.to_le_bytes()));
        }
    }

    /// Restores the reference factors of an earlier run.
    pub(crate) fn restore(&self, factors: impl Iterator<Item = u16>) {
        if let Self::Exchange(policy) = self {
            policy.borrow_mut().restore(factors);
        }
    }
}
