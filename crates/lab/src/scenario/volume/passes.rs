// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random reads, and the very same ones again and again (SCE 2, Figure 1).
//!
//! Invariants: no page twice in a pass; all passes ask for the same pages in the same order, one
//! after the other, and the next begins when the last answer of one is there.
//!
//! Why no page twice: the paper has 100 MiB of data populated by 100 MiB of reads.

use std::collections::HashSet;

use anyhow::{Context, Result};
use larder_core::desk::Requests;
use larder_core::exec::Nanos;
use larder_core::request::Kind;
use larder_core::stats::Counters;
use larder_model::SplitMix64;
use larder_sim::world::World;
use serde::{Deserialize, Serialize};

use super::{Setup, world};
use crate::load::PAGE_BYTES;

/// The reads.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Passes {
    /// How often.
    pub count: u32,
    /// How much each time, in MiB.
    pub mib: u64,
}

impl Default for Passes {
    /// The paper's.
    fn default() -> Self {
        Self { count: 4, mib: 100 }
    }
}

impl Passes {
    /// Reads of a pass.
    #[must_use]
    pub fn reads(&self) -> u64 {
        (self.mib << 20) / PAGE_BYTES
    }
}

/// What happened between the beginnings of two passes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pass {
    /// Reads served wholly from flash, of all.
    pub hit_ratio: f64,
    /// Bytes that clients read.
    pub read_bytes: u64,
    /// Bytes read from the origin, population included.
    pub origin_read_bytes: u64,
    /// Bytes read from flash.
    pub flash_read_bytes: u64,
    /// Bytes written to flash.
    pub flash_write_bytes: u64,
}

/// Runs them over the devices of a setup, whose load and spans do not count.
///
/// # Errors
/// If the choices contradict each other, or a read is never answered.
pub(super) fn run(setup: &Setup, passes: &Passes) -> Result<Vec<Pass>> {
    let mut world = world(setup)?;
    let pages = pages(setup.data_bytes / PAGE_BYTES, passes.reads(), setup.seed);
    let mut all = Vec::new();
    for _ in 0..passes.count {
        let (requests, counters) = (world.requests(), world.counters());
        for page in &pages {
            world.request(0, Kind::Read, page * PAGE_BYTES, PAGE_BYTES, &[]);
            answer(&mut world).context("a read was never answered")?;
        }
        all.push(between((requests, counters), (world.requests(), world.counters())));
    }
    Ok(all)
}

/// So many different pages of all, in random order.
fn pages(all: u64, count: u64, seed: u64) -> Vec<u64> {
    let mut random = SplitMix64::new(seed);
    let (mut pages, mut seen) = (Vec::new(), HashSet::new());
    while (pages.len() as u64) < count.min(all) {
        let page = random.below(all);
        if seen.insert(page) {
            pages.push(page);
        }
    }
    pages
}

fn answer(world: &mut World) -> Option<()> {
    while world.next_finished().is_none() {
        if !world.advance(Nanos::MAX) {
            return None;
        }
    }
    Some(())
}

fn between(before: (Requests, Counters), after: (Requests, Counters)) -> Pass {
    let reads = after.0.reads - before.0.reads;
    Pass {
        hit_ratio: (after.0.read_hits - before.0.read_hits) as f64 / reads.max(1) as f64,
        read_bytes: after.0.read_bytes - before.0.read_bytes,
        origin_read_bytes: after.1.origin_read_bytes - before.1.origin_read_bytes,
        flash_read_bytes: after.1.flash_read_bytes - before.1.flash_read_bytes,
        flash_write_bytes: after.1.flash_write_bytes - before.1.flash_write_bytes,
    }
}
