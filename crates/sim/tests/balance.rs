// SPDX-License-Identifier: MIT OR Apache-2.0
//! The origin serves hits: what happens when it fails, is overdue, or can no longer be trusted.

use larder_core::config::{Choices, Durability, Limits, preset};
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_core::policy::balance::BalanceSettings;
use larder_core::request::{Errno, Kind};
use larder_sim::scenario::plain_world;
use larder_sim::world::{ORIGIN, World};

const UNITS: u64 = 8;

/// Choices under which the origin serves each hit while it serves no other client.
fn choices() -> Choices {
    let balance = BalanceSettings {
        least_in_flight: 0,
        probe_every: 1,
        remembered: 0,
        ..BalanceSettings::default()
    };
    let larder = preset("larder").expect("the table has it").choices();
    Choices { durability: Durability::Volatile, balance: Some(balance), ..larder }
}

/// Reads a page of each unit, one after the other; returns the longest time that a read took.
fn read_all(world: &mut World) -> Nanos {
    let mut longest = 0;
    for unit in 0..UNITS {
        let began = world.now();
        world.request(unit, Kind::Read, unit << 20, 4096, &[]);
        let finished = loop {
            match world.next_finished() {
                Some(finished) => break finished,
                None => assert!(world.advance(Nanos::MAX), "no answer"),
            }
        };
        assert_eq!(finished.result, Ok(()));
        longest = longest.max(world.now() - began);
    }
    longest
}

/// A volume of which flash has everything, and a read of each unit hits.
fn warm(choices: &Choices) -> World {
    let mut world = plain_world(choices, UNITS, UNITS);
    for _ in 0..20 {
        read_all(&mut world);
        world.idle_until(world.now() + 10 * SECOND);
    }
    let hits = world.requests().read_hits;
    read_all(&mut world);
    assert_eq!(world.requests().read_hits - hits, UNITS);
    world
}

/// Hits, and hits that the origin served, of one read of each unit.
fn hits(world: &mut World) -> (u64, u64) {
    let before = (world.requests().read_hits, world.counters().balanced_reads);
    read_all(world);
    (world.requests().read_hits - before.0, world.counters().balanced_reads - before.1)
}

#[test]
fn what_the_origin_serves_counts_as_a_hit() {
    let mut world = warm(&choices());
    assert_eq!(hits(&mut world), (UNITS, UNITS));
    let mut off = warm(&Choices { balance: None, ..choices() });
    assert_eq!(hits(&mut off), (UNITS, 0));
}

#[test]
fn with_its_own_settings_it_serves_none_while_flash_is_not_loaded() {
    let mut world = warm(&Choices { balance: Some(BalanceSettings::default()), ..choices() });
    assert_eq!(hits(&mut world), (UNITS, 0));
    assert_eq!(world.counters().balanced_reads, 0);
}

#[test]
fn after_an_error_flash_serves() {
    let mut world = warm(&choices());
    world.device(ORIGIN).faults.read_errors = 1.0;
    assert_eq!(hits(&mut world), (UNITS, 0));
    assert_eq!(world.counters().origin_errors, 1, "the origin is not asked afterwards");
    world.device(ORIGIN).faults.read_errors = 0.0;
    world.idle_until(world.now() + 11 * SECOND);
    assert_eq!(hits(&mut world), (UNITS, UNITS), "but it is asked later");
}

#[test]
fn an_overdue_answer_is_not_waited_for() {
    let mut world = warm(&choices());
    let limit = Limits::default().flash_timeout;
    world.device(ORIGIN).faults.hang = true;
    let before = world.requests().read_hits;
    let took = read_all(&mut world);
    assert!((limit..limit + MILLISECOND).contains(&took), "{took} ns");
    assert_eq!(world.requests().read_hits - before, UNITS);
    assert!(read_all(&mut world) < MILLISECOND, "the origin is not asked afterwards");
    assert!(!world.shards()[0].is_idle(), "the buffer stays with the operation");
    world.release_all();
    world.idle_until(world.now() + SECOND);
    assert!(world.shards()[0].is_idle());
}

#[test]
fn after_a_failed_flush_it_serves_none() {
    let mut world = warm(&choices());
    world.device(ORIGIN).faults.flush_errors = 1.0;
    world.request(99, Kind::Flush, 0, 0, &[]);
    world.idle_until(world.now() + SECOND);
    let finished = world.next_finished().expect("an answer");
    assert_eq!(finished.result, Err(Errno::EIO));
    assert_eq!(hits(&mut world), (UNITS, 0));
    world.idle_until(world.now() + 100 * SECOND);
    assert_eq!(hits(&mut world), (UNITS, 0));
    assert_eq!(world.served_in_doubt(), 0);
}

#[test]
fn a_connection_that_is_lost_meanwhile_makes_its_answer_worthless() {
    let mut world = warm(&choices());
    let before = world.counters();
    world.request(1, Kind::Read, 0, 4096, &[]);
    world.settle();
    assert_eq!(world.counters().origin_reads - before.origin_reads, 1);
    world.distrust_origin(0);
    world.idle_until(world.now() + SECOND);
    assert_eq!(world.next_finished().expect("an answer").result, Ok(()));
    let after = world.counters();
    assert_eq!(after.balanced_reads, before.balanced_reads);
    assert_eq!(after.flash_read_bytes - before.flash_read_bytes, 4096);
    assert_eq!(hits(&mut world), (UNITS, 0));
}
