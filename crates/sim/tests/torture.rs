// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeded histories of crashes and faults over the engine (design rules 1-11).

use std::sync::atomic::AtomicBool;

use larder_core::config::presets;
use larder_sim::torture::caches::CACHES;
use larder_sim::torture::history::Seen;
use larder_sim::torture::plan::Plan;
use larder_sim::torture::profile::Profile;
use larder_sim::torture::promise::{PROMISES, Promise};
use larder_sim::torture::rows::{PROFILES, profile};
use larder_sim::torture::runner::{Outcome, Task, torture};
use larder_sim::torture::{corpus, run, small};

fn row(name: &str) -> &'static Profile {
    profile(name).unwrap_or_else(|| panic!("{name}"))
}

/// Seeds of a row; no rule is broken, and every history counts.
fn sweep(name: &str, seeds: std::ops::Range<u64>) -> Seen {
    let mut all = Seen::default();
    for seed in seeds {
        let plan = Plan::of(seed, Some(row(name)));
        match run(&plan) {
            Ok(seen) => {
                assert!(seen.counts(), "seed {seed} of {name} is too short: {seen:?}");
                all += seen;
            }
            Err(violation) => panic!("seed {seed}: {violation}\n{}", plan.headline()),
        }
    }
    println!("{name}: {all:?}");
    all
}

#[test]
fn every_row_of_the_swarm() {
    for row in PROFILES {
        sweep(row.name, 0..8);
    }
}

#[test]
fn a_journaled_cache_is_warm_after_a_crash_and_never_stale() {
    let seen = sweep("log-edge", 100..130);
    assert!(seen.warm > 60 && seen.warm_hits > 100 && seen.pages > 100_000, "{seen:?}");
}

#[test]
fn dirty_data_is_never_lost() {
    let seen = sweep("write-back", 100..150);
    assert!(seen.dirty > 1_000 && seen.warm > 100 && seen.errors > 10, "{seen:?}");
}

#[test]
fn crash_after_crash() {
    let seen = sweep("restart-loop", 100..130);
    assert!(seen.crashes > 270 && seen.warm > 200, "{seen:?}");
}

#[test]
fn failed_flash_is_fenced() {
    let seen = sweep("flash-fails", 100..140);
    assert!(seen.flash_failed > 30 && seen.errors == 0, "{seen:?}");
}

#[test]
fn flash_is_detached_and_attached_under_load() {
    let seen = sweep("attach", 100..160);
    assert!(seen.attached > 150 && seen.flash_failed > 20 && seen.cleared > 50, "{seen:?}");
    assert!(seen.warm > 200 && seen.dirty > 1_000, "{seen:?}");
}

#[test]
fn volumes_leave_the_cache_they_share_and_join_it_again() {
    let seen = sweep("shared-leaves", 100..140);
    assert!(seen.departed > 200 && seen.warm > 100 && seen.dirty > 100, "{seen:?}");
}

#[test]
fn flash_grows_and_shrinks() {
    let seen = sweep("resized", 100..140);
    assert!(seen.resized > 400 && seen.warm > 100 && seen.dirty > 100, "{seen:?}");
    sweep("resized-verified", 100..120);
}

#[test]
fn the_origin_grows_between_lives() {
    let seen = sweep("grown", 100..140);
    assert!(seen.grown > 50 && seen.warm > 100 && seen.dirty > 100, "{seen:?}");
    sweep("grown-verified", 100..120);
}

#[test]
fn an_origin_in_order_is_an_older_state() {
    let seen = sweep("page-log-ordered", 100..180);
    assert!(seen.dirty > 10_000 && seen.cleared > 50 && seen.errors > 100, "{seen:?}");
}

#[test]
fn any_choices_that_go_together() {
    let seen = sweep("lawful", 100..160);
    assert!(seen.attached > 20 && seen.flash_failed > 20 && seen.errors > 50, "{seen:?}");
    assert!(seen.warm > 200 && seen.dirty > 1_000 && seen.warm_hits > 1_000, "{seen:?}");
}

#[test]
fn every_preset_is_tortured() {
    for preset in presets() {
        assert!(CACHES.iter().any(|cache| cache.preset == preset.name), "{}", preset.name);
    }
    for cache in CACHES {
        assert!(PROFILES.iter().any(|row| row.takes(cache.kind)), "{}", cache.kind.name);
    }
}

#[test]
fn an_origin_that_fails_is_passed_on_and_nothing_hangs() {
    let seen = sweep("origin-fails", 100..140);
    assert!(seen.errors > 100, "{seen:?}");
}

#[test]
fn one_rotten_copy_of_the_metadata_never_yields_a_wrong_byte() {
    let seen = sweep("metadata-rot", 100..160);
    assert!(seen.undetected == 0 && seen.cold > 50 && seen.warm > 100, "{seen:?}");
}

#[test]
fn rotten_cached_data_is_counted_as_undetected_by_contract() {
    let seen = sweep("data-rot", 100..110);
    assert!(seen.undetected > 100, "{seen:?}");
}

#[test]
fn only_rows_whose_promise_allows_it_count_wrong_bytes_as_undetected() {
    for row in PROFILES {
        for trouble in row.troubles {
            assert!(PROMISES.iter().any(|(t, ..)| t == trouble), "{trouble:?} has no promise");
            let undetected =
                row.takes.iter().any(|kind| kind.promise(*trouble) == Promise::Undetected);
            let undetected = undetected && row.sums.is_empty();
            assert_eq!(undetected, row.name == "data-rot", "{}", row.name);
        }
    }
}

fn torture_all(jobs: usize, runs: u64) -> Outcome {
    let task = Task { first_seed: 40, runs, span: None, profile: None, jobs, mutant: None };
    torture(&task, &AtomicBool::new(false), |_| {})
}

#[test]
fn threads_change_nothing() {
    let (one, three) = (torture_all(1, 24), torture_all(3, 24));
    assert_eq!(one.seeds, 24);
    assert_eq!(one.seen, three.seen);
    assert!(one.seen.digest != torture_all(2, 23).seen.digest);
}

#[test]
fn a_stop_leaves_whole_seeds() {
    let task = Task { first_seed: 0, runs: 50, span: None, profile: None, jobs: 2, mutant: None };
    let outcome = torture(&task, &AtomicBool::new(true), |_| {});
    assert_eq!((outcome.seeds, outcome.violations.len()), (0, 0));
}

#[test]
fn past_seeds_of_interest() {
    let entries = corpus::entries().unwrap_or_else(|e| panic!("{e}"));
    assert!(entries.len() > 20, "{}", entries.len());
    for entry in entries {
        if let Err(violation) = run(&entry.plan()) {
            panic!("seed {} ({}): {violation}", entry.seed, entry.why);
        }
    }
}

#[test]
fn everything_that_is_small() {
    for slots in [1, 2] {
        match small::exhaust(&small::setup(slots)) {
            Ok(tried) => assert!(tried.histories == 1_168 && tried.states > 15_000, "{tried:?}"),
            Err((steps, violation)) => panic!("{slots} slots, {steps:?}: {violation}"),
        }
    }
}
