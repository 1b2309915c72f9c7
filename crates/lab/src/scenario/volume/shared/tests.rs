// SPDX-License-Identifier: MIT OR Apache-2.0
//! Volumes that share a flash, as scenarios: what must come out of them, and what is refused.

#![allow(clippy::unwrap_used)]

use serde_json::Value as Json;
use toml::Value;

use crate::scenario::{Scenario, Sweep, sweep};

const FILE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/shared-flash.toml"));
const TINY: &str =
    "kind = 'volume'\nscale = '1/256'\ndata_gib = 8\nflash_gib = 4\nhours = 4\nsystem = 'sce'\n";

fn results(scenario: &Scenario) -> Vec<Json> {
    sweep(scenario, Sweep::default()).unwrap().into_iter().map(|line| line.result).collect()
}

fn run(more: &str) -> Json {
    results(&Scenario::parse("tiny", &format!("{TINY}{more}")).unwrap()).remove(0)
}

fn hit_ratio(result: &Json, volume: usize) -> f64 {
    result["volumes"][volume]["hit_ratio"].as_f64().unwrap()
}

#[test]
fn the_scenario_of_two_volumes_that_take_turns_runs() {
    let mut scenario = Scenario::parse("shared-flash.toml", FILE).unwrap();
    assert_eq!(scenario.points().unwrap().len(), 12);
    for (key, value) in [
        ("scale", Value::from("1/256")),
        ("hours", 4.into()),
        ("load", "oltp".into()),
        ("system", "sce".into()),
    ] {
        scenario.set(key, value).unwrap();
    }
    let found = results(&scenario);
    assert_eq!(found, results(&scenario), "equal seeds give equal figures");
    let [shared, least, apart] = &found[..] else { panic!("{} points", found.len()) };
    for result in [shared, least, apart] {
        for volume in result["volumes"].as_array().unwrap() {
            assert_eq!(volume["turn_hit_ratios"].as_array().unwrap().len(), 2);
            assert!(volume["transactions_per_second"].as_f64() > Some(50.0), "{volume}");
        }
    }
    assert!(shared["hit_ratio"].as_f64() > apart["hit_ratio"].as_f64(), "{shared} {apart}");
    assert_ne!(shared, least, "a least share has an effect");
}

/// The clients of a volume, its origin and its devices are those of a scenario without volumes.
#[test]
fn a_volume_alone_is_as_without_volumes() {
    let plain = run("");
    let one = run("volumes = [{}]");
    for key in ["reads", "read_hits", "writes", "write_hits", "flash_write_bytes", "memory_bytes"] {
        assert_eq!(plain[key], one[key], "{key}");
    }
    let apart = run("volumes = [{}, {}]\nsharing.apart = true");
    let half = Scenario::parse("half", &TINY.replace("flash_gib = 4", "flash_gib = 2")).unwrap();
    let half = results(&half).remove(0);
    let last = apart["volumes"][0]["turn_hit_ratios"][3].as_f64().unwrap();
    let alone = half["hit_ratio_last_hour"].as_f64().unwrap();
    // A setup alone counts reads when they begin: four clients may have one each in flight.
    let (reads, turns) = (apart["volumes"][0]["reads"].as_f64().unwrap(), 3.0);
    assert!((last - alone).abs() < 8.0 * turns / reads, "{last} {alone}");
}

#[test]
fn a_volume_is_what_its_table_and_the_scenario_say() {
    let found = run("volumes = [{ origin = 'hdd-7200' }, { origin = 'none', data_gib = 1 }]");
    let us = |volume: usize| found["volumes"][volume]["read_us_mean"].as_f64().unwrap();
    assert!(us(0) > 4.0 * us(1), "each has an origin of its own: {} {}", us(0), us(1));
    let bound = run("volumes = [{ most = 0.05 }, {}]");
    assert!(hit_ratio(&bound, 0) < 0.8 * hit_ratio(&bound, 1), "{bound}");
}

#[test]
fn bad_volumes_are_refused_in_one_line() {
    let many = format!("volumes = [{}]", vec!["{}"; 65].join(", "));
    for (more, expected) in [
        ("volumes = []", "number of volumes = '0' cannot be; accepted: 1 to 64"),
        (many.as_str(), "number of volumes = '65' cannot be; accepted: 1 to 64"),
        ("volumes = [{}, { least = 1.5 }]", "volume 2: least = '1.5' cannot be; accepted: 0 to 1"),
        ("volumes = [{ most = 2.0 }]", "volume 1: most = '2' cannot be; accepted: 0 to 1"),
        ("volumes = [{ least = nan }]", "volume 1: least = 'NaN' cannot be"),
        (
            "volumes = [{ least = 0.5, most = 0.25 }]",
            "volume 1: least = '0.5' cannot be; accepted: at most 0.25, its most",
        ),
        (
            "sharing.least = 0.75\nvolumes = [{}, {}]",
            "sum of least = '1.5' cannot be; accepted: at most 1",
        ),
        ("volumes = [{ system = 'sce' }]", "unknown field `system`"),
        (
            "volumes = [{ origin = 'tape' }]",
            "volume 1: unknown device profile \"tape\"; accepted: hdd",
        ),
        (
            "volumes = [{}, { load = 'passes' }]",
            "volume 2: load = 'passes' cannot be; accepted: oltp",
        ),
        ("volumes = [{ data_gib = 4096 }, {}]", "too much data; accepted: 4096 GiB in all"),
        (
            "turn_hours = 2\nvolumes = [{}, {}]",
            "hours = '4' cannot be; accepted: two turns of each",
        ),
        ("turn_hours = 0\nvolumes = [{}]", "turn_hours = '0' cannot be; accepted: 1 to 240"),
        ("turn_hours = 1", "turn_hours is for volumes that share a flash; accepted: with [[vol"),
        ("sharing.apart = true", "sharing is for volumes that share a flash"),
        (
            "sharing = { apart = true, least = 0.1 }\nvolumes = [{}, {}]",
            "volume 1: least and most are shares of one flash; accepted: without sharing.apart",
        ),
        (
            "unit_kib = 8192\nvolumes = [{}, {}, {}]\nsharing.apart = true",
            "sharing.apart = 'true' cannot be; accepted: room for a unit in each part",
        ),
    ] {
        let scenario = Scenario::parse("tiny", &format!("{TINY}{more}")).unwrap();
        let error = scenario.points().unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{more}: {error}");
    }
    // A page log serves one volume, and needs a device that stores data.
    let log = TINY.replace("'sce'", "'face'");
    let error = Scenario::parse("log", &format!("{log}volumes = [{{}}, {{}}]")).unwrap();
    let error = error.points().unwrap_err().to_string();
    assert!(error.contains("system = 'face' cannot be; accepted: sce") && !error.contains('\n'));
}
