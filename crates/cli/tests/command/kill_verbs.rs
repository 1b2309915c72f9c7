// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kill -9` in the middle of a command: warm, scrub, pin, evict, resize, set, detach. Nothing that was answered is lost (of a page log:
//! that was flushed), and the next start serves it, whatever the command had done. LARDER_TEST_LIVES: kills of each command and preset (1).
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use larder_testkit::command::{larder, make_initial};
use larder_testkit::load::{Judge, Load, Shape};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const BYTES: u64 = 8 << 20;

/// The commands, some of which end the one before.
const VERBS: [&[&str]; 10] = [
    &["warm", "--all", "--bound", "5s"],
    &["scrub", "--all"],
    &["resize", "--flash-size", "6MiB"],
    &["resize", "--flash-size", "9MiB"],
    &["pin", "0+1MiB"],
    &["unpin", "--all"],
    &["evict", "0+4MiB"],
    &["set", "--populate", "off", "--flash-timeout", "1s"],
    &["detach"],
    &["flush"],
];

fn words(place: &Place, preset: &str) -> Vec<String> {
    let (origin, flash, state) = (place.word("origin"), place.word("flash"), place.word("state"));
    let mut words = place.serve(&["--origin", &origin, "--flash", &flash, "--state", &state]);
    let own = match preset {
        "face" => "--unit 64KiB --batch-pages 8",
        "prwc" => "--unit 64KiB --update-period 20ms --update-hot 30 --checkpoint 20ms --verify on",
        _ => "--unit 64KiB --checkpoint 20ms --verify on",
    };
    let all = format!("{own} --preset {preset} --flash-size 9MiB --workers 2");
    words.extend(all.split_whitespace().map(str::to_owned));
    words
}

fn rounds() -> u64 {
    std::env::var("LARDER_TEST_LIVES").map_or(1, |lives| lives.parse().unwrap())
}

/// Lives of a volume, each of which ends in the middle of the command.
fn lives(preset: &str, verb: &[&str], seed: u64) -> u64 {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let (words, judge) = (words(&place, preset), Judge::new());
    judge.may_break.store(true, Ordering::SeqCst);
    let seen = |judge: &Arc<Judge>, served: &[u8]| match preset {
        // A crash loses the open batch.
        "face" => judge.crashed(served),
        _ => judge.seen(0, served),
    };
    let (mut random, mut cut_short) = (Pcg64::seed_from_u64(seed), 0);
    for round in 0..rounds() {
        let server = Server::restart(&words);
        seen(&judge, &place.read_all(BYTES));
        let (clients, depth, reads) = (4, 4, 40);
        let shape = Shape {
            bytes: BYTES,
            hot_bytes: BYTES / 3,
            clients,
            depth,
            reads,
            seed: seed << 8 | round,
        };
        let load = Load::start(&place.uri(), &shape, &judge);
        load.progress(300);
        let socket = place.word("control");
        let asked = [verb, &["--control", &socket][..]].concat();
        let quiet = || Stdio::null();
        let mut command = larder(&asked).stdout(quiet()).stderr(quiet()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(random.random_range(1_000..40_000)));
        let ended = command.try_wait().unwrap();
        server.kill();
        cut_short += u64::from(ended.is_none());
        // A page log refuses some of them; bad usage would be another command.
        assert!(ended.is_none_or(|ended| ended.code() != Some(2)), "{preset} {verb:?}");
        // The server is dead, so the command must end.
        assert!(command.wait().unwrap().code().is_some(), "{preset} {verb:?}");
        load.finish();
    }
    let server = Server::restart(&words);
    let served = place.read_all(BYTES);
    seen(&judge, &served);
    place.ask(&["detach"]).ok();
    assert!(std::fs::read(place.path("origin")).unwrap() == served, "{preset} {verb:?}");
    server.stop();
    judge.verdict();
    cut_short
}

fn every_verb(preset: &str, seed: u64) {
    let mut cut_short = Vec::new();
    for (number, verb) in (0..).zip(VERBS) {
        cut_short.push((verb[0], lives(preset, verb, seed + number)));
    }
    println!("{preset}: commands that a kill ended, of {}: {cut_short:?}", rounds());
    assert!(cut_short.iter().any(|(_, count)| *count > 0), "the kills came after the commands");
}

#[test]
fn a_clean_cache() {
    every_verb("larder", 100);
}

#[test]
fn a_cache_that_owns_units() {
    every_verb("prwc", 200);
}

#[test]
fn a_page_log() {
    every_verb("face", 300);
}
