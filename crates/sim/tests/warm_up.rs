// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hours of warm-up in virtual time, over the device models that `slow+` uses: the engine warms
//! a cache that is larger than the data, and does so exactly alike from the same seed.

#![allow(clippy::unwrap_used)] // a test

use larder_core::config::Limits;
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_core::request::Kind;
use larder_core::stats::Counters;
use larder_model::profile;
use larder_sim::device::SimDevice;
use larder_sim::scenario::sce;
use larder_sim::world::{World, lawful};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

const UNITS: u64 = 2048;
const CLIENTS: u64 = 8;
const HOURS: u64 = 2;

fn device(name: &str, bytes: u64) -> SimDevice {
    SimDevice::new(profile(name, bytes, 1).unwrap(), None, 1, MILLISECOND)
}

/// An 87/13 load of 8 KiB requests, most of them on a tenth of the units, each client thinking
/// for 20 ms between two; the hit ratio of each half hour.
fn run(seed: u64) -> (Vec<f64>, Counters) {
    let choices = sce();
    let bytes = UNITS * choices.unit_bytes;
    let mut world =
        World::new(device("san-1g", bytes), bytes, &lawful(&choices), &Limits::default());
    world.attach(device("ssd-840pro", bytes), UNITS, 512);
    let mut rng = Pcg64Mcg::new(u128::from(seed) << 1 | 1);
    let mut ask = |world: &mut World, client: u64| {
        let hot = rng.random_bool(0.8);
        let unit = rng.random_range(0..if hot { UNITS / 10 } else { UNITS });
        let offset = unit * choices.unit_bytes + rng.random_range(0..128) * 8192;
        let read = rng.random_bool(0.87);
        let kind = if read { Kind::Read } else { Kind::Write { fua: false } };
        world.request(client, kind, offset, 8192, &[]);
    };
    let mut thinking: std::collections::VecDeque<(Nanos, u64)> =
        (0..CLIENTS).map(|c| (c * MILLISECOND, c)).collect();
    let (mut ratios, mut before) = (Vec::new(), (0, 0));
    for half_hour in 1..=HOURS * 2 {
        let until = half_hour * 1800 * SECOND;
        while world.now() < until {
            let next = thinking.front().map_or(until, |(at, _)| (*at).min(until));
            world.advance(next);
            if world.next().is_none_or(|at| at > next) && world.now() < next {
                world.idle_until(next);
            }
            while let Some(done) = world.next_finished() {
                thinking.push_back((world.now() + 20 * MILLISECOND, done.client));
            }
            while thinking.front().is_some_and(|(at, _)| *at <= world.now()) {
                if let Some((_, client)) = thinking.pop_front() {
                    ask(&mut world, client);
                }
            }
        }
        let r = world.requests();
        ratios.push((r.read_hits - before.0) as f64 / (r.reads - before.1).max(1) as f64);
        before = (r.read_hits, r.reads);
    }
    (ratios, world.counters())
}

#[test]
fn a_cache_larger_than_the_data_warms_up() {
    let (ratios, counters) = run(1);
    assert!(ratios.last().is_some_and(|r| *r > 0.99), "{ratios:?}");
    assert_eq!(counters.evictions, 0);
    assert!(counters.populations >= UNITS * 9 / 10, "{counters:?}");
}

#[test]
fn equal_seeds_warm_up_alike_and_others_do_not() {
    let first = run(7);
    assert_eq!(first, run(7));
    assert_ne!(first.1, run(8).1);
}
