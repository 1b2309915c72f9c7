// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission: who enters the cache, and when.
//!
//! The engine reports every read ([`Admission::served`]) and every miss ([`Admission::missed`]);
//! the policy says whether the unit enters within the client's own miss, or whether a background
//! worker is to look at it. Workers then ask [`Admission::turn`] and [`Admission::next`]. A policy
//! that exchanges units now and then is asked by the engine's update ([`Admission::periodic`]).

mod on_miss;
mod periodic;
mod regulator;
mod selective;

pub use on_miss::{OnMiss, OnMissSettings};
pub use periodic::{Periodic, PeriodicSettings, Slots, Step, Swap};
pub use regulator::{Class, Regulator};
pub use selective::{Selective, SelectiveSettings};

use crate::Nanos;

/// What is to happen after a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Ignore,
    /// The unit enters with this very request.
    Inline {
        /// Whether the client's answer waits until flash has it.
        client_waits: bool,
    },
    /// The given background worker has a new candidate.
    Background {
        /// The worker to wake.
        worker: u32,
    },
}

/// A unit that a worker is to populate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The unit.
    pub unit: u64,
    /// How often it missed lately.
    pub heat: u32,
}

/// Who enters, see the module.
pub trait Admission {
    /// How many background workers the policy uses.
    fn workers(&self) -> u32;

    /// A read was served, from flash (`hit`) or not.
    fn served(&mut self, hit: bool, now: Nanos);

    /// A read of `unit` missed, at a time when this share of the cache was free.
    fn missed(&mut self, unit: u64, free_ratio: f64, now: Nanos) -> Verdict;

    /// Whether `worker` may run now: how long it sleeps before it takes its next candidate, or
    /// `None` while it has to rest until woken.
    fn turn(&mut self, worker: u32, free_ratio: f64, now: Nanos) -> Option<Nanos>;

    /// The candidate that `worker` is to populate next; when there is no `room`, only one that is
    /// hot enough to displace another.
    fn next(&mut self, worker: u32, room: bool) -> Option<Candidate>;

    /// A client asks for `bytes` of `unit`, to be told before its hit or miss.
    fn asked(&mut self, _unit: u64, _bytes: u64) {}

    /// Whether a write to `unit`, which is not resident, lets it enter.
    fn written(&mut self, _unit: u64) -> Verdict {
        Verdict::Ignore
    }
    /// The policy as one that exchanges units periodically, if it does.
    fn periodic(&mut self) -> Option<&mut Periodic> {
        None
    }
}
