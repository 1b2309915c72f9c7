// SPDX-License-Identifier: MIT OR Apache-2.0
//! Torture must catch every named mutant of the engine, and the same seed must pass without it. Run with
//! `--features mutants`.
#![cfg(feature = "mutants")]

use std::sync::atomic::AtomicBool;

use larder_core::mutant::activate;
use larder_sim::torture::plan::Plan;
use larder_sim::torture::runner::Task;
use larder_sim::torture::shrink::shrink;
use larder_sim::torture::{self, corpus, mutants, small};
use larder_sim::{hung, scenario, shared, synced};

#[test]
fn torture_catches_every_mutant() {
    let mut survivors = Vec::new();
    for name in mutants::names() {
        let task =
            Task { first_seed: 0, runs: 3_000, span: None, profile: None, jobs: 2, mutant: None };
        let fate = mutants::fate(name, &task, &AtomicBool::new(false));
        println!("{name}: {:?}, {:.1} s: {}", fate.seed, fate.seconds, fate.why);
        match fate.seed {
            Some(seed) => assert!(torture::run(&Plan::of(seed, None)).is_ok(), "seed {seed}"),
            None => survivors.push(name),
        }
    }
    assert!(scenario::hot_units_stay().is_ok());
    assert_eq!(synced::a_cache_full_of_dirty_pages_admits_again(), Ok(()));
    assert_eq!(synced::a_flush_without_a_journal_writes_back(), Ok(()));
    assert_eq!(synced::a_dirty_unit_is_logged_in_one_block(), Ok(()));
    assert_eq!(synced::a_flush_logs_more_than_the_log_holds(), Ok(()));
    assert_eq!(shared::a_failed_origin_leaves_the_others_their_cache(), Ok(()));
    assert_eq!(shared::a_volume_keeps_to_its_share(), Ok(()));
    assert_eq!(shared::refused_data_displaces_nothing_of_others(), Ok(()));
    assert_eq!(hung::the_journal_continues(), Ok(()));
    assert_eq!(hung::a_checkpoint_continues(), Ok(()));
    assert_eq!(hung::population_continues(), Ok(()));
    assert_eq!(hung::exchanges_continue(), Ok(()));
    assert_eq!(hung::clears_end(), Ok(()));
    assert_eq!(hung::it_takes_no_slot(), Ok(()));
    assert_eq!(hung::idle_write_back_continues(), Ok(()));
    assert_eq!(shared::a_flush_beside_a_failed_one_fails(), Ok(()));
    assert!(scenario::an_unusable_log_loses_nothing_of_the_others().is_ok());
    assert_eq!(scenario::a_refused_trim_returns_no_older_bytes(), Ok(()));
    assert_eq!(scenario::a_flush_does_not_count_on_a_replacement(), Ok(()));
    assert_eq!(scenario::a_fua_write_is_durable_or_fails(), Ok(()));
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}

#[test]
fn past_seeds_still_catch_their_mutants() {
    let entries = corpus::entries().unwrap_or_else(|e| panic!("{e}"));
    for entry in entries.iter().filter(|e| e.mutant.is_some()) {
        activate(entry.mutant);
        let result = torture::run(&entry.plan());
        activate(None);
        assert!(result.is_err(), "seed {} no longer catches {:?}", entry.seed, entry.mutant);
    }
}

#[test]
fn a_failing_history_is_made_short_and_still_fails() {
    let entries = corpus::entries().unwrap_or_else(|e| panic!("{e}"));
    for name in ["write-before-touched", "flush-skips-origin", "drop-not-logged", "trim-unclaimed"]
    {
        let entry = entries.iter().find(|e| e.mutant == Some(name));
        let entry = entry.unwrap_or_else(|| panic!("{name} is not in the corpus"));
        activate(Some(name));
        let short = shrink(&entry.plan()).unwrap_or_else(|| panic!("{name} is not caught"));
        let again = shrink(&entry.plan());
        let result = torture::run(&short.plan);
        activate(None);
        println!("{name}: {} steps, {}", short.lines.len(), short.violation);
        short.lines.iter().for_each(|line| println!("{line}"));
        assert!(short.lines.len() <= 25, "{name}: {} steps", short.lines.len());
        let text = |lines: &[_]| lines.iter().map(ToString::to_string).collect::<Vec<String>>();
        let again = again.unwrap_or_else(|| panic!("{name} is not caught again"));
        assert_eq!(text(&short.lines), text(&again.lines), "the same each time");
        assert_eq!(result.err().map(|v| v.rule), Some(short.violation.rule));
        assert!(torture::run(&short.plan).is_ok(), "{name}: it fails without the mutant too");
    }
}

#[test]
fn what_is_small_catches_what_forgets_the_log() {
    for name in ["write-before-touched", "log-not-durable", "checkpoint-no-origin-flush"] {
        activate(Some(name));
        let caught = [1, 2].iter().any(|slots| small::exhaust(&small::setup(*slots)).is_err());
        activate(None);
        assert!(caught, "{name}");
    }
}
