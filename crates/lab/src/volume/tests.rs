// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kind `volume` promises: equal seeds give equal bytes, and what cannot be is refused.

#![allow(clippy::unwrap_used)]

use serde_json::Value as Json;

use crate::scenario::{Scenario, Sweep, sweep};

const TINY: &str = "kind = 'volume'\nscale = '1/256'\ndata_gib = 8\nflash_gib = 4\nhours = 1\n";

/// The tiny run with other settings.
fn changed(more: &str) -> Scenario {
    let keys: Vec<&str> = more.lines().filter_map(|l| l.split(" = ").next()).collect();
    let kept: Vec<&str> =
        TINY.lines().filter(|l| !keys.iter().any(|key| l.starts_with(key))).collect();
    Scenario::parse("tiny", &format!("{}\n{more}", kept.join("\n"))).unwrap()
}

fn run(more: &str, seed: u64) -> Json {
    let scenario = changed(&format!("seed = {seed}\n{more}"));
    sweep(&scenario, Sweep::default()).unwrap().remove(0).result
}

#[test]
fn equal_seeds_give_equal_bytes_and_others_do_not() {
    for more in ["", "system = 'bcache'", "load = 'passes'\npasses.mib = 2"] {
        let text = |seed| run(more, seed).to_string();
        assert_eq!(text(1), text(1), "{more}");
        assert_ne!(text(1), text(2), "{more}");
    }
}

#[test]
fn every_system_serves_every_load() {
    let presets = larder_core::preset::PRESETS.iter().map(|p| p.name);
    for system in presets.chain(["no-cache", "all-flash"]) {
        for load in ["oltp", "scattered"] {
            let found = run(&format!("system = '{system}'\nload = '{load}'"), 1);
            let number = |key: &str| found[key].as_f64().unwrap();
            assert!(number("transactions_per_second_last_hour") > 50.0, "{system} {load}");
            assert_eq!(found["samples"]["hit_ratio"].as_array().unwrap().len(), 60);
            // Periodic update comes once a day.
            let cached = !["no-cache", "all-flash", "prwc", "proc"].contains(&system);
            assert_eq!(number("hit_ratio_last_hour") > 0.0, cached, "{system} {load}");
        }
    }
}

#[test]
fn all_that_was_read_once_hits_the_second_time() {
    let found = run("system = 'flashcache'\nflash_gib = 16\nload = 'passes'\npasses.mib = 2", 1);
    let ratios = found["passes"].as_array().unwrap().iter().map(|p| p["hit_ratio"].as_f64());
    assert_eq!(ratios.flatten().collect::<Vec<_>>(), [0.0, 1.0, 1.0, 1.0]);
}

#[test]
fn what_cannot_be_is_one_line_that_says_what_can() {
    let bad = [
        ("system = 'zfs'", "system = 'zfs' cannot be; accepted: sce, "),
        ("scale = '1/3'", "scale = '1/3' cannot be; accepted: 1, 1/2"),
        ("unit_kib = 4", "accepted: a power of two from 64 to 8192"),
        ("system = 'slru'\nunit_kib = 16384", "accepted: a power of two from 4 to 8192"),
        ("writes = 'back'", "accepted: async, through, around"),
        ("system = 'prwc'\ndurability = 'volatile'", "durability = 'volatile' cannot be"),
        ("system = 'flashcache'\nreplacement = 'arc'", "accepted: lru, fifo"),
        ("replacement = 'mru'", "replacement = 'mru' cannot be; accepted: gclock"),
        ("origin = 'tape'", "origin = 'tape' cannot be; accepted: hdd-7200"),
        ("hours = 0", "hours = '0' cannot be; accepted: 1 to 240"),
        ("load = 'web'", "load = 'web' cannot be; accepted: oltp, scattered, passes"),
        ("load = 'passes'", "passes.mib = '100' cannot be; accepted: 1 to 32"),
        ("plan.clients = 0", "plan.clients = '0' cannot be"),
        ("plan.computing_us = -1", "in `plan.computing_us`"),
        ("scale = 1", "expected a string in `scale`"),
        ("ours = 1", "unknown field `ours`"),
        ("scale = '1/256'\nunit_kib = 8192\nflash_gib = 1", "flash_gib = '1' cannot be"),
    ];
    for (more, expected) in bad {
        let error = changed(more).points().unwrap_err().to_string();
        assert!(error.contains(expected), "{more}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
