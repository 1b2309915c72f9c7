// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every named mutant of the engine must be caught, by the model check (rules 3-7) and by torture
//! (all rules), and the same seed must pass without it. Run with `--features mutants`.
#![cfg(feature = "mutants")]

use std::sync::atomic::AtomicBool;

use larder_core::mutant::{MUTANTS, activate};
use larder_sim::check::{Check, TROUBLES, run};
use larder_sim::scenario;
use larder_sim::torture::plan::Plan;
use larder_sim::torture::runner::Task;
use larder_sim::torture::shrink::shrink;
use larder_sim::torture::{self, corpus, mutants, small};

/// The first of `seeds` with which the model check catches what is active.
fn first_catch(seeds: u64) -> Option<(Check, String)> {
    (0..seeds).find_map(|seed| {
        let unit_bytes = [4 << 10, 64 << 10, 256 << 10, 1 << 20][(seed % 4) as usize];
        let trouble = TROUBLES[(seed / 4 % 5) as usize];
        let in_flight = [4, 64][(seed / 20 % 2) as usize];
        let check =
            Check { seed, unit_bytes, in_flight, requests: 600, shards: 1, trouble, preset: None };
        run(&check).err().map(|violation| (check, violation))
    })
}

#[test]
fn the_model_check_catches_what_breaks_rules_3_to_7() {
    let mut survivors = Vec::new();
    // One needs a long steady load, one a flash that owns what it holds, some a page log.
    let elsewhere = ["displace-anything", "flush-skips-flash"];
    let rules = ["3", "4", "5", "6", "7"];
    let units = |name: &str| !elsewhere.contains(&name) && !name.starts_with("page-log-");
    for mutant in MUTANTS.iter().filter(|m| rules.contains(&m.rule) && units(m.name)) {
        activate(Some(mutant.name));
        let caught = first_catch(600);
        activate(None);
        match caught {
            Some((check, why)) => {
                println!("{}: seed {}: {why}", mutant.name, check.seed);
                assert!(run(&check).is_ok(), "{check:?} fails without {} too", mutant.name);
            }
            None => survivors.push(mutant.name),
        }
    }
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}

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
