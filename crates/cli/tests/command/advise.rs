// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder sim --trace T --preset P` and `larder advise` as a user meets them.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::collections::BTreeSet;

use larder_testkit::command::{larder_says, one_json};
use larder_testkit::place::Place;
use serde_json::Value;

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/data/pg15_zipf_update.btr.zst");
const DEVICES: [&str; 4] = ["--origin-profile", "san-1g", "--flash-profile", "ssd-s3500"];

/// The output of a command that succeeds.
fn fine(words: &[&str]) -> (String, String) {
    let ended = larder_says(words);
    assert_eq!(ended.code, 0, "{words:?}: {}", ended.err);
    (ended.out, ended.err)
}

fn advice(trace: &str, more: &[&str]) -> Value {
    let words = [&["advise", "--trace", trace, "--json"], &DEVICES[..], more].concat();
    one_json(&fine(&words).0)
}

#[test]
fn flags_and_a_scenario_are_the_same_run() {
    let place = Place::new();
    let scenario = format!(
        "kind = 'volume'\nload = 'trace'\nsystem = 'sce'\norigin = 'hdd-7200'\nunit_kib = 512\nseed = 3\n\
         [trace]\npath = '{TRACE}'\nrequests = 3000\nflash_share = 0.05\noutstanding = 4\ndev = 0\n"
    );
    std::fs::write(place.path("s.toml"), scenario).unwrap();
    let page = place.word("page.html");
    let of_file = fine(&["sim", &place.word("s.toml"), "--json"]).0;
    let flags = "--preset sce --origin-profile hdd-7200 --unit 512KiB --seed 3 --requests 3000 \
                 --flash-size 5% --outstanding 4 --dev 0 --json --report";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let (of_flags, told) = fine(&[&["sim", "--trace", TRACE], &flags[..], &[&page]].concat());
    assert_eq!(of_file, of_flags);
    assert!(told.contains(": 1 of 1: in "), "{told}");
    let found = one_json(&of_flags);
    for key in ["hit_ratio", "read_us_mean", "read_us_p99", "write_us_p95", "span_seconds"] {
        assert!(found[key].as_f64() > Some(0.0), "{key}: {found}");
    }
    assert_eq!(found["pace"], "outstanding");
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("read_us_mean over time") && html.contains("hit_ratio over time"));
    assert!(html.contains("flash_write_bytes"));
}

#[test]
fn a_file_describes_a_device_as_a_name_does() {
    let place = Place::new();
    let cloud = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/devices/cloud.toml");
    let mine = place.word("mine.toml");
    std::fs::copy(cloud, &mine).unwrap();
    let flags = "--preset larder --requests 3000 --outstanding 4 --json --origin-profile";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let run = |origin: &str| fine(&[&["sim", "--trace", TRACE], &flags[..], &[origin]].concat()).0;
    let of_file = run(&mine);
    assert_eq!(of_file, run("cloud"));
    assert_ne!(of_file, run("san-1g"));

    let words = [
        "advise",
        "--trace",
        TRACE,
        "--json",
        "--requests",
        "2000",
        "--flash-profile",
        "none",
        "--origin-profile",
    ];
    let advice = one_json(&fine(&[&words[..], &[&mine]].concat()).0);
    let configuration = advice["toml"].as_str().unwrap();
    assert!(configuration.contains(&mine), "{configuration}");

    // In a scenario the keys of a device can be varied.
    let grid = format!(
        "kind = 'volume'\nload = 'trace'\norigin = {{ about = 'a', source = 'b', device = {{ fixed = {{ read_ns = 1, write_ns = 1 }} }} }}\n\
         [trace]\npath = '{TRACE}'\nrequests = 500\noutstanding = 4\n[grid]\n'origin.device.fixed.read_ns' = [100_000, 9_000_000]\n"
    );
    std::fs::write(place.path("grid.toml"), grid).unwrap();
    let points = one_json(&fine(&["sim", &place.word("grid.toml"), "--json"]).0);
    let mean = |point: usize| points[point]["result"]["read_us_mean"].as_f64().unwrap();
    assert!(mean(1) > 10.0 * mean(0), "{points}");
}

#[test]
fn each_progress_line_is_printed_once() {
    let words = ["advise", "--trace", TRACE, "--json", "--requests", "2000"];
    let told = fine(&[&words[..], &DEVICES[..]].concat()).1;
    assert!(told.contains(": origin alone: 1 of 1: in "), "{told}");
    let lines = told.lines().filter_map(|line| line.split_once(" in ")).map(|(run, _)| run);
    let (runs, different) = (lines.clone().count(), lines.collect::<BTreeSet<_>>().len());
    assert!(runs > 4 && runs == different, "{told}");
}

#[test]
fn advice_is_complete_equal_for_equal_seeds_and_its_configuration_is_one() {
    let place = Place::new();
    let (page, few) = (place.word("page.html"), ["--requests", "4000"]);
    let found = advice(TRACE, &[&few[..], &["--report", &page]].concat());
    assert_eq!(found, advice(TRACE, &[&few[..], &["--jobs", "1"]].concat()));
    assert_eq!(
        (found["requests"].as_u64(), found["replayed_requests"].as_u64()),
        (Some(238_118), Some(4000))
    );
    let assumed = found["assumptions"].to_string();
    assert!(assumed.contains("the first 4000 of 238118 requests"), "{assumed}");
    let points = found["points"].as_array().unwrap();
    assert!(points.iter().any(|p| p["system"] == "prwc") && points.len() >= 8, "{points:?}");
    let curve = found["miss_ratio_curve"].as_array().unwrap();
    let misses: Vec<f64> = curve.iter().map(|m| m["miss_ratio"].as_f64().unwrap()).collect();
    assert!(misses.is_sorted_by(|a, b| a >= b) && misses[0] > misses[misses.len() - 1]);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("What LRU misses") && html.contains("knee"), "the knee is marked");
    // Serving takes it.
    let (advised, toml) = (&found["advised"], found["toml"].as_str().unwrap());
    std::fs::write(place.path("advised.toml"), toml).unwrap();
    let printed = fine(&["serve", &place.word("advised.toml"), "--print-config"]).0;
    let preset = format!("preset = {}", advised["point"]["system"]);
    assert!(printed.contains(&preset), "{printed}");
    let mib = advised["device_bytes"].as_u64().unwrap() >> 20;
    assert!(printed.contains(&format!("flash_size = \"{mib}MiB\"")), "{printed}");
    let text = fine(&[&["advise", "--trace", TRACE], &DEVICES[..], &few[..]].concat()).0;
    assert!(text.contains(found["verdict"].as_str().unwrap()) && text.contains("<- advised"));
    assert!(text.contains(toml.trim_end()), "{text}");
}

#[test]
fn small_and_odd_traces_get_advice_too() {
    let place = Place::new();
    let write = |name: &str, lines: &mut dyn Iterator<Item = String>| {
        let text =
            lines.fold("ts_us,op,offset_bytes,length_bytes\n".to_owned(), |t, l| t + &l + "\n");
        std::fs::write(place.path(name), text).unwrap();
        place.word(name)
    };
    // Four MiB, read again and again, without times: smaller than any flash.
    let tiny =
        write("tiny.csv", &mut (0..3000).map(|n| format!("0,r,{},4096", n * 7919 % 1024 * 4096)));
    let found = advice(&tiny, &[]);
    assert_eq!(
        (found["keeps_times"].as_bool(), found["duration_seconds"].is_null()),
        (Some(false), true)
    );
    assert_eq!(found["points"].as_array().unwrap().len(), 1, "nothing is written, so sce alone");
    assert!(found["assumptions"].to_string().contains("has no times"));
    // Written alone, at its times: no cache of reads helps.
    let writes =
        (0..2000_u64).map(|n| format!("{},w,{},4096", n * 50_000, n * 104_729 % 8192 * 4096));
    let found = advice(&write("writes.csv", &mut writes.into_iter()), &[]);
    assert!(found["alone"]["read_us_mean"].is_null() && found["keeps_times"] == true);
    assert!(found["verdict"].as_str().unwrap().contains("for a write"), "{}", found["verdict"]);
    // Every page once: nothing comes again.
    let once =
        (0..3000_u64).map(|n| format!("{},r,{},4096", n * 20_000, n * 7919 % 4096 * (1 << 20)));
    let found = advice(&write("once.csv", &mut once.into_iter()), &["--requests", "3000"]);
    assert_eq!(found["pays"], false, "{}", found["verdict"]);
    assert!(found["verdict"].as_str().unwrap().starts_with("no: "), "{}", found["verdict"]);
}

#[test]
fn what_is_wrong_is_one_line() {
    let place = Place::new();
    std::fs::write(place.path("empty.csv"), "offset,length\n").unwrap();
    std::fs::write(place.path("bad.csv"), "offset,length\n0,4096\n512,x\n").unwrap();
    let (empty, bad) = (place.word("empty.csv"), place.word("bad.csv"));
    let advise = |trace: &str, more: &str| format!("advise --trace {trace} {more}");
    let both = DEVICES.join(" ");
    for (words, why) in [
        (advise(&empty, &both), "has no requests; accepted"),
        (advise(&bad, &both), "bad.csv: line 3: length 'x'"),
        (advise("/nowhere", &both), "/nowhere: cannot be opened"),
        (advise(TRACE, "--origin-profile san-1g"), "--flash-profile"),
        (
            advise(TRACE, "--origin-profile tape --flash-profile none"),
            "unknown device profile \"tape\"; accepted: hdd-7200",
        ),
        (
            advise(TRACE, &format!("{both} --endurance much")),
            "accepted bytes, as 600TB, or as 0.3DWPD",
        ),
        (advise(TRACE, &format!("{both} --requests 0")), "0"),
        (
            advise(TRACE, "--origin-profile ./tape.toml --flash-profile none"),
            "./tape.toml: cannot be read: No such file",
        ),
        (format!("sim --trace {TRACE} --preset sce --flash-profile {empty}"), "empty.csv:1: "),
        (format!("sim --trace {TRACE} --preset zfs"), "system = 'zfs' cannot be; accepted: sce"),
        (format!("sim --trace {empty} --preset sce"), "has no requests; accepted"),
        (format!("sim --trace {bad} --preset sce"), "line 3: length 'x'"),
        (format!("sim --trace {bad} --preset sce --speed 2"), "line 3"),
        (
            format!("sim --trace {TRACE} --preset sce --unit 4KiB"),
            "accepted: a power of two from 64",
        ),
        (
            format!("sim --trace {TRACE} --preset sce --flash-size 4KiB"),
            "accepted: room for a unit",
        ),
        (
            format!("sim --trace {TRACE} --preset sce --speed 2 --outstanding 3"),
            "cannot be used with",
        ),
        (format!("sim --trace {TRACE}"), "--preset"),
        ("sim --preset sce".to_owned(), "--trace"),
        ("sim s.toml --unit 4KiB".to_owned(), "--preset"),
        ("sim s.toml --dev 1".to_owned(), "accepted: --set"),
        ("sim s.toml --hits".to_owned(), "cannot be used with"),
        (format!("sim --trace {TRACE} --preset sce --set x"), "as load.working_set_gib=80"),
    ] {
        let ended = larder_says(&words.split_whitespace().collect::<Vec<_>>());
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{words}: {}", ended.err);
        let last = ended.err.lines().last().unwrap();
        assert!(last.contains(why), "{words}: {last}");
    }
}
