// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder quiesce`: while writes are held the origin has every acknowledged write, and does not change.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use larder_testkit::command::{larder, larder_says, make_initial, one_json};
use larder_testkit::load::eventually;
use larder_testkit::place::Place;
use larder_testkit::server::Server;

const BYTES: u64 = 2 << 20;
const PAGES: u64 = 64;

/// A client that writes a counter to the first pages in turn, each once the one before is answered.
fn write(place: &Place, done: &AtomicU64, stop: &AtomicBool) {
    let mut client = place.client();
    while !stop.load(Ordering::SeqCst) {
        let next = done.load(Ordering::SeqCst) + 1;
        client.write_at(next % PAGES * 4096, &next.to_le_bytes().repeat(512), false).unwrap();
        done.store(next, Ordering::SeqCst);
    }
}

/// The counter in each of the first pages of a copy.
fn counters(copy: &[u8]) -> Vec<u64> {
    let page = |at: u64| u64::from_le_bytes(copy[at as usize * 4096..][..8].try_into().unwrap());
    (0..PAGES).map(page).collect()
}

fn quiesce(place: &Place, words: &[&str]) -> larder_testkit::command::Ended {
    let control = place.word("control");
    larder_says(&[&["quiesce", "--control", &control], words].concat())
}

#[test]
fn the_origin_has_what_was_acknowledged_and_does_not_change_while_writes_are_held() {
    for preset in ["larder", "prwc", "face"] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let policy = ["--workers", "2", "--write-policy", "full"];
        let more = if preset == "face" { &policy[..] } else { &policy[..2] };
        let server = Server::start(&place.serve_preset(preset, more));
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| write(&place, &done, &stop));
            eventually("the client writes", || done.load(Ordering::SeqCst) > 2 * PAGES);
            for round in ["a", "b"] {
                let (origin, copy) = (place.word("origin"), place.word(round));
                let script = format!("cp {origin} {copy}.1; sleep 0.3; cp {origin} {copy}.2");
                let before = done.load(Ordering::SeqCst);
                quiesce(&place, &["--", "sh", "-c", &script]).ok();
                let after = done.load(Ordering::SeqCst);
                let copies =
                    ["1", "2"].map(|n| std::fs::read(place.path(&format!("{round}.{n}"))).unwrap());
                assert!(copies[0] == copies[1], "{preset}: the origin changed");
                let found = counters(&copies[0]);
                let newest = *found.iter().max().unwrap();
                assert!((before..=after).contains(&newest), "{preset}: {before} {newest} {after}");
                for number in newest.saturating_sub(PAGES - 1)..=newest {
                    assert_eq!(found[(number % PAGES) as usize], number, "{preset}: {found:?}");
                }
                eventually("the client continues", || done.load(Ordering::SeqCst) > after + PAGES);
            }
            stop.store(true, Ordering::SeqCst);
        });
        server.stop();
    }
}

#[test]
fn a_hold_ends_after_its_time_with_its_client_and_with_its_command() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&place.serve_cached(4, &["--workers", "2"]));
    let late = quiesce(&place, &["--for", "1s", "--", "sleep", "2"]);
    assert_eq!((late.code, late.err.lines().count()), (1, 1), "{late:?}");
    assert!(late.err.contains("before the command"), "{late:?}");
    let failed = quiesce(&place, &["--", "false"]);
    assert_eq!((failed.code, failed.err.lines().count()), (1, 1), "{failed:?}");
    let missing = quiesce(&place, &["--", "/no/such/program"]);
    assert_eq!((missing.code, missing.err.lines().count()), (2, 1), "{missing:?}");
    let told = one_json(&quiesce(&place, &["--json", "--", "true"]).ok());
    assert_eq!((&told["expired"], &told["exit_code"]), (&false.into(), &0.into()));
    let held = quiesce(&place, &["--for", "1s"]).ok();
    assert!(held.starts_with("writes were held for 1."), "{held}");

    let control = place.word("control");
    let words = ["quiesce", "--control", &control, "--for", "60s"];
    let mut client = larder(words).stderr(Stdio::piped()).spawn().unwrap();
    let (began, mut writer) = (Instant::now(), place.client());
    let mut told = String::new();
    BufReader::new(client.stderr.take().unwrap()).read_line(&mut told).unwrap();
    assert!(told.contains("writes are held"), "{told}");
    client.kill().unwrap();
    client.wait().unwrap();
    writer.write_at(0, &[1; 4096], false).unwrap();
    assert!(began.elapsed() < Duration::from_secs(30));
    server.stop();
}
