// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kind `volume` promises: equal seeds give equal bytes, and what cannot be is refused.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use larder_core::config::{PRESETS, Preset};
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
    let presets = PRESETS.iter().map(|p| p.name);
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
        ("writes = 'up'", "accepted: async, through, around, back"),
        ("writes = 'back'", "accepted: write-back with periodic admission, or with units of 4 KiB"),
        ("sync_seconds = 1", "sync_seconds is for systems that write back"),
        (
            "system = 'prwc'\nsync_seconds = -2",
            "sync_seconds = '-2' cannot be; accepted: -1 to 86400",
        ),
        ("system = 'prwc'\ndirty_share = 2", "dirty_share = '2' cannot be; accepted: 0 to 1"),
        ("durability = 'log'", "durability = 'log' cannot be; accepted: journal, volatile"),
        ("system = 'flashcache'\nreplacement = 'arc'", "accepted: lru, fifo"),
        ("replacement = 'mru'", "replacement = 'mru' cannot be; accepted: gclock"),
        ("origin = 'tape'", "unknown device profile \"tape\"; accepted: hdd-7200"),
        ("flash = { about = 'ours' }", "missing field `source` in `flash`"),
        ("hours = 0", "hours = '0' cannot be; accepted: 1 to 240"),
        ("load = 'web'", "load = 'web' cannot be; accepted: oltp, scattered, passes, trace"),
        ("load = 'trace'", "no [trace]; accepted: one with a path"),
        ("update_seconds = 5", "accepted: systems with periodic update"),
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

/// The trace that the project ships, as a scenario with other settings.
fn of_trace(more: &[(&str, toml::Value)]) -> Scenario {
    const PG15: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/data/pg15_zipf_update.btr.zst");
    let mut scenario = Scenario::parse("t", "kind = 'volume'\nload = 'trace'").unwrap();
    let base = [("trace.path", PG15.into()), ("trace.requests", 4000.into())];
    for (key, value) in base.iter().chain(more) {
        scenario.set(key, value.clone()).unwrap();
    }
    scenario
}

fn replayed(more: &[(&str, toml::Value)]) -> Json {
    sweep(&of_trace(more), Sweep::default()).unwrap().remove(0).result
}

#[test]
fn a_trace_is_replayed_as_it_was_recorded_and_equal_seeds_give_equal_bytes() {
    let slow = ("trace.speed", 0.01.into());
    let run = |seed: i64| replayed(&[("seed", seed.into()), slow.clone()]);
    let found = run(1);
    assert_eq!(found.to_string(), run(1).to_string());
    assert_ne!(found.to_string(), run(2).to_string());
    assert_eq!((found["pace"].as_str(), found["keeps_up"].as_bool()), (Some("times"), Some(true)));
    let count = |key: &str| found[key].as_u64().unwrap();
    assert_eq!(
        (count("requests"), count("warm_up_requests"), count("late_requests")),
        (4000, 2000, 0)
    );
    assert_eq!(count("reads") + count("writes"), 2000);
    assert_eq!(found["samples"]["at_seconds"].as_array().unwrap().len(), 100);
    // A hundred times as slow, the half of some seconds is some minutes.
    assert!(found["span_seconds"].as_f64() > Some(60.0), "{}", found["span_seconds"]);
}

#[test]
fn an_origin_that_cannot_keep_up_says_so_and_a_closed_loop_has_no_times() {
    let fast = ("trace.speed", 1000.0.into());
    let late =
        replayed(&[("system", "no-cache".into()), fast, ("trace.most_outstanding", 16.into())]);
    assert_eq!(late["keeps_up"], false);
    assert!(
        late["late_requests"].as_u64() > Some(3000)
            && late["late_seconds_most"].as_f64() > Some(1.0)
    );
    // Requests that wait outside have waited too.
    assert!(late["read_us_mean"].as_f64() > Some(500_000.0), "{}", late["read_us_mean"]);
    let closed = replayed(&[("system", "no-cache".into()), ("trace.outstanding", 4.into())]);
    assert_eq!(
        (closed["pace"].as_str(), closed["keeps_up"].as_bool()),
        (Some("outstanding"), Some(true))
    );
    assert!(closed["read_us_mean"].as_f64() < Some(50_000.0), "{}", closed["read_us_mean"]);
    assert!(closed["flash_bytes"].is_null() && closed["flash_write_bytes"] == 0);
}

#[test]
fn all_that_flash_has_room_for_hits_when_it_comes_again() {
    let all = [
        ("system", "slru".into()),
        ("unit_kib", 4.into()),
        ("trace.flash_share", 1.0.into()),
        ("trace.outstanding", 1.into()),
        ("trace.dev", 0.into()),
    ];
    let large = replayed(&all);
    let small = replayed(&[&all[..], &[("trace.flash_share", 0.02.into())]].concat());
    assert!(large["hit_ratio"].as_f64() > small["hit_ratio"].as_f64(), "{large} {small}");
    assert_eq!(large["evictions"].as_u64(), Some(0));
    assert_eq!(large["touched_unit_bytes"], large["footprint_bytes"]);
    assert!(small["evictions"].as_u64() > Some(0));
}

#[test]
fn a_share_is_the_same_bytes_for_every_system() {
    let sizes = |share: f64| -> BTreeSet<u64> {
        let size = |preset: &Preset| {
            let found = replayed(&[
                ("system", preset.name.into()),
                ("trace.flash_share", share.into()),
                ("trace.requests", 1000.into()),
            ]);
            let [flash, footprint] =
                ["flash_bytes", "footprint_bytes"].map(|key| found[key].as_u64().unwrap());
            let least = (footprint as f64 * share) as u64;
            assert!((least..least + (1 << 20)).contains(&flash), "{}: {found}", preset.name);
            flash
        };
        PRESETS.iter().map(size).collect()
    };
    for share in [0.2, 0.5, 1.0] {
        assert_eq!(sizes(share).len(), 1, "{share}");
    }
}

#[test]
fn what_a_trace_cannot_be_is_one_line() {
    for (key, value, expected) in [
        ("scale", "1/4".into(), "scale is not for the load 'trace'; accepted: trace.flash_mib"),
        ("hours", 3.into(), "hours is not for the load"),
        ("trace.path", "/nowhere".into(), "/nowhere: cannot be opened"),
        ("trace.flash_share", 2.0.into(), "trace.flash_share = '2' cannot be; accepted: above 0"),
        ("trace.flash_mib", 0.into(), "trace.flash_mib = '0' cannot be"),
        ("trace.flash_mib", 0.5.into(), "accepted: room for a unit of 1048576 bytes"),
        ("trace.outstanding", 0.into(), "accepted: 1 to 65536"),
        ("trace.warm_up_share", 1.0.into(), "accepted: 0 to 0.99"),
        ("trace.speed", (-1.0).into(), "accepted: 0.001 to 1000000"),
        ("trace.format", "tape".into(), "accepted: btr, fio"),
        ("trace.dev", 9.into(), "has no requests"),
        ("load", "oltp".into(), "accepted: trace, where there is a [trace]"),
    ] {
        let error = sweep(&of_trace(&[(key, value)]), Sweep::default()).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(expected) && !error.contains('\n'), "{key}: {error}");
    }
}
