// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder sim --shard` and `--merge` as a user meets them: a sweep on several machines gives the bytes of one.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use larder_testkit::command::{Ended, larder, larder_says, one_json};
use larder_testkit::place::Place;

/// Six points that take no time.
const SMALL: &str = "kind = \"hierarchy\"\nseed = 1\nscale = \"1/4096\"\n\n[load]\nworking_set_gib = 20\n\n\
    [grid]\n\"cache.flash_gib\" = [0, 32, 64]\n\"load.write_share\" = [0.1, 0.3]\n";

/// Runs `larder sim` over the scenario, into a file.
fn run(place: &Place, out: &str, more: &[&str]) -> Ended {
    let (scenario, out) = (place.word("small.toml"), place.word(out));
    larder_says(&[&["sim", scenario.as_str(), "--out", out.as_str()][..], more].concat())
}

/// The same; its standard output.
fn sim(place: &Place, out: &str, more: &[&str]) -> String {
    run(place, out, more).ok()
}

/// The same, which must fail with one line that has these words.
fn refused(place: &Place, out: &str, more: &[&str], has: &[&str]) {
    let ended = run(place, out, more);
    assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    for has in has {
        assert!(ended.err.contains(has), "'{has}' is missing: {}", ended.err);
    }
}

fn place() -> Place {
    let place = Place::new();
    fs::write(place.word("small.toml"), SMALL).unwrap();
    place
}

#[test]
fn merged_shards_are_byte_by_byte_the_sweep() {
    let place = place();
    let whole = sim(&place, "whole.jsonl", &["--json"]);
    let mut points = 0;
    for shard in ["4/4", "2/4", "1/4", "3/4"] {
        let own = sim(&place, "all.jsonl", &["--shard", shard, "--jobs", "1", "--json"]);
        points += one_json(&own).as_array().unwrap().len();
    }
    assert_eq!(points, 6);
    assert_eq!(sim(&place, "all.jsonl", &["--merge", "--json"]), whole);
    let bytes = fs::read(place.word("whole.jsonl")).unwrap();
    assert!(fs::read(place.word("all.jsonl")).unwrap() == bytes);
    // Without --json, and over a file that is complete.
    assert!(sim(&place, "all.jsonl", &["--merge"]).contains("cache.flash_gib=64"));
    assert!(fs::read(place.word("all.jsonl")).unwrap() == bytes);
}

#[test]
fn a_killed_shard_continues_where_it_stopped() {
    let place = place();
    sim(&place, "whole.jsonl", &["--shard", "1/2"]);
    let whole = fs::read(place.word("whole.jsonl.1-of-2")).unwrap();
    let (scenario, out) = (place.word("small.toml"), place.word("all.jsonl"));
    let mut command = larder(["sim", scenario.as_str(), "--out", out.as_str(), "--shard", "1/2"]);
    let mut killed = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(30));
    killed.kill().unwrap();
    killed.wait().unwrap();
    sim(&place, "all.jsonl", &["--shard", "1/2"]);
    assert!(fs::read(place.word("all.jsonl.1-of-2")).unwrap() == whole);
}

#[test]
fn other_shards_and_parts_are_refused_in_one_line() {
    let place = place();
    for bad in ["0/4", "5/4", "x", "1/0", "4"] {
        let accepted = format!("--shard: got '{bad}', accepted i/n, from 1/n to n/n");
        refused(&place, "all.jsonl", &["--shard", bad], &[&accepted]);
    }
    refused(&place, "all.jsonl", &["--shard", "1/2", "--merge"], &["--shard", "--merge"]);
    refused(&place, "all.jsonl", &["--merge", "--jobs", "2"], &["--merge", "--jobs"]);
    for flag in [&["--merge"][..], &["--shard", "1/2"]] {
        let scenario = place.word("small.toml");
        let ended = larder_says(&[&["sim", scenario.as_str()][..], flag].concat());
        assert!(ended.code == 2 && ended.err.contains("--out"), "{}", ended.err);
    }
    refused(&place, "all.jsonl", &["--merge"], &["all.jsonl: has no parts", "accepted: the --out"]);
    sim(&place, "all.jsonl", &["--shard", "1/3"]);
    sim(&place, "all.jsonl", &["--shard", "3/3", "--seed", "7"]);
    refused(&place, "all.jsonl", &["--merge"], &["all.jsonl.3-of-3: line 1", "shard 3/3 of"]);
    sim(&place, "all.jsonl", &["--shard", "2/3"]);
    fs::remove_file(place.word("all.jsonl.3-of-3")).unwrap();
    let missing = ["of 3 parts, 1 incomplete: 3/3 (no file ", "accepted: complete parts"];
    refused(&place, "all.jsonl", &["--merge"], &missing);
    // A part of another seed is not continued, and unchanged.
    let before = fs::read(place.word("all.jsonl.2-of-3")).unwrap();
    refused(&place, "all.jsonl", &["--shard", "2/3", "--seed", "7"], &["2-of-3: line 1"]);
    assert!(fs::read(place.word("all.jsonl.2-of-3")).unwrap() == before);
    sim(&place, "all.jsonl", &["--shard", "3/3"]);
    fs::write(place.word("all.jsonl"), "notes").unwrap();
    refused(&place, "all.jsonl", &["--merge"], &["all.jsonl: line 1: is no line of a sweep"]);
    assert_eq!(fs::read(place.word("all.jsonl")).unwrap(), b"notes");
    let scenario = place.word("small.toml");
    let ended = larder_says(&["sim", &scenario, "--out", "/proc/none/all.jsonl", "--merge"]);
    assert!(ended.code == 2 && ended.err.contains("cannot read /proc/none"), "{}", ended.err);
}
