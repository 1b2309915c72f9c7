// SPDX-License-Identifier: MIT OR Apache-2.0
//! Torture: seeded histories of crashes and faults, in virtual time, judged by the oracle.
//!
//! A seed becomes a [`Plan`]: a volume drawn from a row of the swarm
//! ([`profile`]), and a list of steps ([`step`], [`load`]). `life` runs the plan and judges
//! power cuts (`cuts`), and what is promised under which fault is a table ([`promise`]).
//! A history that breaks a rule is shortened ([`shrink`]) and printed ([`history`]). Beside the swarm
//! there are past seeds of interest ([`corpus`]) and everything that is small ([`small`]).
//!
//! Invariants: a seed and a commit decide a run to the last bit, on any machine and with any
//! number of threads; a history counts only if it crashed, recovered and read back everything.
//!
//! Why not random decisions on the way: a list of steps can be shortened, and a person can read it.

mod bases;
pub mod caches;
mod choices;
pub mod corpus;
mod crash;
mod cuts;
mod events;
mod grow;
mod grown;
mod hang;
pub mod history;
mod identity;
mod in_order;
pub mod kinds;
mod life;
pub mod load;
mod mix;
mod moment;
pub mod mutants;
mod on_flash;
mod ordered;
mod owners;
mod places;
pub mod plan;
pub mod profile;
pub mod promise;
mod reads;
mod resize;
mod resized;
mod rot;
pub mod rows;
mod rules;
pub mod runner;
mod set;
mod settings;
pub mod setup;
pub mod shrink;
pub mod small;
pub mod step;
mod verified;
mod wanted;

use self::history::{Line, Seen, Violation};
use self::plan::Plan;

/// Runs a plan.
///
/// # Errors
/// The rule that was broken.
pub fn run(plan: &Plan) -> Result<Seen, Box<Violation>> {
    life::live(plan, false).0
}

/// As [`run`], with every step as it happened.
pub fn run_traced(plan: &Plan) -> (Result<Seen, Box<Violation>>, Vec<Line>) {
    life::live(plan, true)
}
