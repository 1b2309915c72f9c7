// SPDX-License-Identifier: MIT OR Apache-2.0

use serde_json::Value as Json;

use crate::scenario::{Scenario, run_point};

/// A run of a small hierarchy with some settings changed.
fn small(changes: &[(&str, &str)]) -> Json {
    let mut scenario = Scenario::parse(
        "small",
        "kind = \"hierarchy\"\nscale = \"1/1024\"\nseed = 1\n[load]\nworking_set_gib = 60\n",
    )
    .unwrap();
    for (path, value) in changes {
        let table: toml::Table = format!("value = {value}").parse().unwrap();
        scenario.set(path, table["value"].clone()).unwrap();
    }
    let points = scenario.points().unwrap();
    run_point(&points[0].settings).unwrap()
}

fn number(result: &Json, key: &str) -> f64 {
    result[key].as_f64().unwrap()
}

#[test]
fn equal_seeds_give_equal_results_and_others_others() {
    assert_eq!(small(&[]).to_string(), small(&[]).to_string());
    assert_ne!(small(&[]), small(&[("seed", "2")]));
}

/// Paper-tables 2.5: LRU under uniform access, without queueing.
#[test]
fn latencies_are_those_of_the_hit_ratios_where_nobody_queues() {
    let calm = ("devices.one_packet_at_a_time", "false");
    // Large enough that the slow reads, one in ten of those at the filer, are within 2 % of a tenth.
    let scale = ("scale", "\"1/128\"");
    for flash in ["0", "32", "64", "128"] {
        let found =
            small(&[calm, scale, ("cache.flash_gib", flash), ("cache.flash_policy", "\"async\"")]);
        let (ram, flash) = (number(&found, "ram_hit_ratio"), number(&found, "flash_hit_ratio"));
        let expected = ram * 0.4 + flash * 88.4 + (1.0 - ram - flash) * 927.6;
        let read = number(&found, "read_us");
        assert!((read / expected - 1.0).abs() < 0.05, "{read} {expected}");
    }
}

#[test]
fn lookaside_has_nothing_dirty_in_flash_and_naive_has() {
    let dirty = |architecture| {
        let policy = ("cache.flash_policy", "\"5s\"");
        let found = small(&[("cache.architecture", architecture), policy]);
        number(&found, "flash_dirty_most_blocks")
    };
    assert_eq!(dirty("\"lookaside\""), 0.0);
    assert!(dirty("\"naive\"") > 0.0);
}

#[test]
fn without_caches_everything_is_the_filers() {
    let none = [("cache.ram_mib", "0"), ("cache.flash_gib", "0")];
    let found = small(&none);
    assert_eq!((number(&found, "ram_hit_ratio"), number(&found, "flash_hit_ratio")), (0.0, 0.0));
    assert!(number(&found, "write_us") > 141.0);
    assert_eq!(found["writes"], found["filer_write_blocks"]);
}

#[test]
fn bad_settings_get_a_line() {
    for (text, said) in [
        ("[cache]\nram_policy = \"5\"", "is no policy; accepted: sync, async, none"),
        ("[cache]\narchitecture = \"odd\"", "accepted: naive, lookaside, unified"),
        ("[cache]\nflash_gib = -1", "cache.flash_gib cannot be; accepted: 0 to 8192 GiB"),
        ("[load]\nwrite_share = 2", "load.write_share 2 is no share; accepted: 0 to 1"),
        ("[load]\nfoo = 2", "unknown field `foo`"),
        ("scale = \"2\"", "scale '2' cannot be"),
    ] {
        let (top, tables) = if text.starts_with('[') { ("", text) } else { (text, "") };
        let text = format!("kind = \"hierarchy\"\n{top}\n{tables}\n");
        let error = Scenario::parse("x.toml", &text).unwrap().points().unwrap_err().to_string();
        assert!(error.starts_with("x.toml: ") && error.contains(said), "{error}");
    }
}
