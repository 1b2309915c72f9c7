// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace gen`: equal bytes everywhere, the knobs, and what is refused.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use larder_core::checksum::crc32c;
use larder_testkit::command::{larder, larder_says, one_json};
use larder_testkit::load::eventually;
use larder_testkit::place::Place;
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const KINDS: [&str; 8] =
    ["oltp", "tpcc", "desktop", "zipf", "uniform", "sequential", "loop", "holland"];

fn words<'a>(kind: &'a str, file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["trace", "gen", kind, "--out", file][..], more].concat()
}

/// The report of `trace info --json` about a generated trace.
fn info(place: &Place, kind: &str, more: &[&str]) -> Value {
    let file = place.word("t.btr.zst");
    larder_says(&words(kind, &file, more)).ok();
    one_json(&larder_says(&["trace", "info", &file, "--json"]).ok())
}

/// Bytes are the same on every machine and in every release: results are published with them.
#[test]
fn equal_seeds_give_equal_bytes_on_every_machine() {
    let place = Place::new();
    let file = place.word("t.btr");
    let sums = KINDS.map(|kind| {
        let small = ["--requests=5000", "--seed=3"];
        larder_says(&words(kind, &file, &small)).ok();
        let bytes = std::fs::read(&file).unwrap();
        assert_eq!(bytes.len(), 5000 * 24, "{kind}");
        crc32c(&bytes)
    });
    // One pass and a loop begin alike.
    let loops = 0xca4b_00bb;
    assert_eq!(
        sums,
        [
            0xa26b_99d9,
            0xd2c1_4855,
            0xcfb4_9c38,
            0x6666_75b2,
            0x7078_ffbb,
            loops,
            loops,
            0xd529_1946
        ]
    );
    larder_says(&words("oltp", &file, &["--requests=5000", "--seed=4"])).ok();
    assert_ne!(crc32c(&std::fs::read(&file).unwrap()), sums[0]);
}

#[test]
fn knobs_do_what_they_say() {
    let place = Place::new();
    let ratio = |info: &Value, key: &str| info[key].as_f64().unwrap();
    let oltp = info(&place, "oltp", &["--reads=60%", "--rate=100", "--for=100s", "--data=64MiB"]);
    assert!((ratio(&oltp, "write_ratio") - 0.4).abs() < 0.01, "{}", oltp["write_ratio"]);
    // 100 transactions a second, each of four reads and 2.67 writes.
    assert!((ratio(&oltp, "requests") / 66_667.0 - 1.0).abs() < 0.05, "{}", oltp["requests"]);
    assert!(ratio(&oltp, "footprint_bytes") <= 64.0 * 1024.0 * 1024.0);

    let few = ["--requests=50000", "--warehouses=2", "--pool=1MiB"];
    let small = info(&place, "tpcc", &few);
    let large = info(&place, "tpcc", &[&few[..2], &["--pool=8MiB"]].concat());
    let soon = |info: &Value| info["reuse_distance_pages"]["p10"].as_u64().unwrap();
    // What comes back has left the pool before.
    assert!(soon(&small) > 100 && soon(&large) > 4 * soon(&small), "{small} {large}");

    let desktop = info(&place, "desktop", &["--user=3", "--days=1", "--backup=1"]);
    assert!(ratio(&desktop, "near_sequential_ratio") > 0.8, "{desktop}");

    let zipf = info(&place, "zipf", &["--data=16MiB", "--block=16KiB", "--writes=25%"]);
    assert_eq!(zipf["requests"], 1_000_000);
    assert_eq!(zipf["request_size_bytes"]["p100"], 16 << 10);
    assert_eq!(zipf["unique"], 4096);
    assert!((ratio(&zipf, "write_ratio") - 0.25).abs() < 0.01);
    assert_eq!(info(&place, "sequential", &["--data=8MiB"])["requests"], 2048);
    let around = info(&place, "loop", &["--data=8MiB", "--requests=4096"]);
    assert_eq!((&around["unique"], &around["reuse_ratio"]), (&2048.into(), &0.5.into()));
}

#[test]
fn every_format_can_be_made_and_help_says_where_figures_come_from() {
    let place = Place::new();
    for name in ["t.csv", "t.fio", "t.oracleGeneral.zst"] {
        larder_says(&words("tpcc", &place.word(name), &["--requests=100", "--warehouses=1"])).ok();
        larder_says(&["trace", "info", &place.word(name)]).ok();
    }
    let file = place.word("plain");
    larder_says(&words("loop", &file, &["--requests=10", "--format=btr"])).ok();
    assert_eq!(std::fs::read(&file).unwrap().len(), 240);
    for (kind, source) in [("oltp", "SCE"), ("tpcc", "FaCE"), ("desktop", "PRWC")] {
        let help = larder_says(&["trace", "gen", kind, "--help-all"]).ok();
        assert!(help.contains(source) && help.contains("section"), "{help}");
    }
}

/// How a command that writes a trace ends by this signal.
fn interrupt(words: &[&str], part: &Path, signal: Signal) -> ExitStatus {
    let mut child = larder(words).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the command writes", || part.exists());
    kill_process(Pid::from_child(&child), signal).unwrap();
    let mut ended = None;
    eventually("the command ends", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap()
}

#[test]
fn an_interrupted_command_leaves_nothing() {
    let place = Place::new();
    let (file, part) = (place.word("t.btr"), place.path("t.btr.part"));
    // So many that it does not end by itself.
    let endless = words("loop", &file, &["--data=1MiB", "--requests=1000000000000"]);
    // A pipe from which no more than a record comes.
    let pipe = place.word("pipe.btr");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    let mut record = [0; 24];
    record[16] = 1; // one byte long
    let mut writer = File::options().read(true).write(true).open(&pipe).unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        writer.write_all(&record).unwrap();
        for command in [&endless[..], &["trace", "convert", &pipe, &file]] {
            let ended = interrupt(command, &part, signal);
            assert_eq!(ended.signal(), Some(signal.as_raw()), "{command:?}");
            assert!(!part.exists() && !place.path("t.btr").exists(), "{command:?}");
        }
    }
}

#[test]
fn what_a_killed_command_leaves_is_overwritten_by_the_next() {
    let place = Place::new();
    let (file, part) = (place.word("t.btr"), place.path("t.btr.part"));
    let endless = words("loop", &file, &["--data=1MiB", "--requests=1000000000000"]);
    interrupt(&endless, &part, Signal::KILL);
    assert!(part.exists() && !place.path("t.btr").exists());
    // Longer than what comes.
    std::fs::write(&part, [1; 24 * 100]).unwrap();
    larder_says(&words("loop", &file, &["--data=1MiB", "--requests=10"])).ok();
    assert!(!part.exists());
    assert_eq!(std::fs::read(&file).unwrap().len(), 24 * 10);
}

#[test]
fn what_cannot_be_is_one_line() {
    let place = Place::new();
    let file = place.word("t.btr");
    for (kind, more, why) in [
        ("oltp", &["--reads=0%"][..], "accepted 1% to 100%"),
        ("oltp", &["--data=1KiB"], "accepted 1MiB to 16TiB"),
        ("oltp", &["--pattern=scattered", "--data=16TiB"], "accepted: up to"),
        ("oltp", &["--rate=5", "--clients=3"], "cannot be used with"),
        ("tpcc", &["--warehouses=0"], "0 is not in"),
        ("tpcc", &["--pool=4KiB"], "accepted at least 256KiB"),
        ("tpcc", &["--page=5KiB"], "accepted a power of two"),
        ("tpcc", &["--think=0"], "accepted 10us to 1h"),
        ("desktop", &["--backup=11"], "11 is not in"),
        ("zipf", &["--exponent=-1"], "accepted 0 to 10"),
        ("zipf", &["--data=16TiB", "--block=512"], "accepted: up to"),
        ("uniform", &["--data=1KiB"], "accepted one block, 4KiB"),
        ("loop", &["--block=1000"], "accepted multiples of 512"),
        ("loop", &["--rate=0"], "accepted 0.001 to 1000000"),
        ("loop", &["--for=0"], "accepted: a longer span"),
        ("loop", &["--format=msr"], "only read"),
    ] {
        let ended = larder_says(&words(kind, &file, more));
        assert_eq!((ended.code, ended.err.lines().count()), (2, 1), "{kind} {more:?}: {ended:?}");
        assert!(ended.err.contains(why), "{kind} {more:?}: {ended:?}");
    }
    assert!(!place.path("t.btr").exists() && !place.path("t.btr.part").exists());
    let ended = larder_says(&["trace", "gen", "oltp"]);
    assert!(ended.code == 2 && ended.err.contains("--out"), "{ended:?}");
}
