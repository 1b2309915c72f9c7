// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts over one array, as scenarios.

#![allow(clippy::unwrap_used)]

use serde_json::Value as Json;

use crate::scenario::{Scenario, Sweep, sweep};

const TINY: &str = "kind = 'volume'\nscale = '1/1024'\ndata_gib = 16\nflash_gib = 16\nhours = 4\nsystem = 'sce'\n\
    origin = 'array-16'\n";

fn run(more: &str) -> Json {
    let scenario = Scenario::parse("tiny", &format!("{TINY}{more}")).unwrap();
    sweep(&scenario, Sweep::default()).unwrap().remove(0).result
}

fn number(value: &Json) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn hosts_wait_for_each_other_at_the_origin_alone() {
    let (one, many) = (run("hosts.count = 1"), run("hosts.count = 12"));
    let cold = |found: &Json| number(&found["early"]["hours"][0]["read_us_mean"]);
    assert!(cold(&many) > 1.5 * cold(&one), "{} {}", cold(&many), cold(&one));
    // Warm caches do not need the array: each host has what it has alone.
    let warm = |found: &Json| number(&found["early"]["hours"][3]["hit_ratio"]);
    assert!(warm(&one) > 0.9 && warm(&many) > warm(&one) - 0.05, "{} {}", warm(&one), warm(&many));
    let read = |found: &Json| number(&found["early"]["hours"][3]["read_us_p50"]);
    assert!((read(&many) / read(&one) - 1.0).abs() < 0.05, "{} {}", read(&many), read(&one));
}

#[test]
fn late_hosts_begin_cold_and_count_from_their_first_hour() {
    let found = run("hosts = { count = 4, late = 2, late_hour = 2 }");
    let again = run("hosts = { count = 4, late = 2, late_hour = 2 }");
    assert_eq!(found.to_string(), again.to_string(), "equal seeds, equal bytes");
    let hours = |group: &str| found[group]["hours"].as_array().unwrap().len();
    assert_eq!((hours("early"), hours("late")), (4, 2));
    let ratio = |group: &str, hour: usize| number(&found[group]["hours"][hour]["hit_ratio"]);
    assert!(ratio("late", 0) < ratio("early", 2) && ratio("late", 1) > ratio("late", 0), "{found}");
    assert!(number(&found["late"]["warm_up_seconds"]) > 0.0);
}

#[test]
fn a_smaller_share_warms_caches_later() {
    let populated = |share: &str| number(&run(share)["early"]["hours"][0]["hit_ratio"]);
    let (all, little) =
        ("hosts.count = 8\npopulation_share = 1.0", "hosts.count = 8\npopulation_share = 0.02");
    assert!(populated(little) < populated(all), "{} {}", populated(little), populated(all));
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let bad = [
        ("hosts.count = 0", "hosts.count = '0' cannot be; accepted: 1 to 256"),
        (
            "hosts = { count = 2, late = 3, late_hour = 1 }",
            "hosts.late = '3' cannot be; accepted: 0 to 1",
        ),
        ("hosts = { count = 2, late = 1 }", "hosts.late = '1' cannot be; accepted: with late_hour"),
        (
            "hosts = { count = 2, late = 1, late_hour = 4 }",
            "hosts.late_hour = '4' cannot be; accepted: 0 to 3",
        ),
        ("hosts = { count = 2, slow = 1 }", "unknown field `slow`"),
        ("hosts = { late = 1 }", "missing field `count`"),
        (
            "load = 'passes'\npasses.mib = 1\nhosts.count = 2",
            "accepted: oltp, scattered, with hosts",
        ),
        ("population_share = 0.0", "population_share = '0' cannot be; accepted: 0.01 to 1"),
        ("hosts.count = 2\n[[volumes]]", "hosts and volumes exclude each other"),
        ("hosts.count = 2\nturn_hours = 1", "hosts and turn_hours exclude each other"),
        ("hosts.count = 2\nsystem = 'all-flash'", "accepted: a preset or no-cache, with hosts"),
    ];
    for (more, expected) in bad {
        let other = more.contains("system = ");
        let tiny = if other { TINY.replace("system = 'sce'\n", "") } else { TINY.to_owned() };
        refused(&format!("{tiny}{more}"), expected);
    }
    let more_data = TINY.replace("data_gib = 16", "data_gib = 17");
    refused(
        &format!("{more_data}hosts.count = 256"),
        "the hosts have too much data; accepted: 4096 GiB",
    );
}

fn refused(text: &str, expected: &str) {
    let error = match Scenario::parse("tiny", text) {
        Ok(scenario) => sweep(&scenario, Sweep::default()).map(drop).unwrap_err(),
        Err(error) => error.into(),
    };
    assert!(format!("{error:#}").contains(expected), "{text}: {error:#}");
}
