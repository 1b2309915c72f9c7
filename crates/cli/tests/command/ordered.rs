// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--write-policy ordered`: what the origin alone holds while the volume is served, after a kill and after a stop.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::os::unix::fs::FileExt;

use larder_testkit::command::{larder_says, make_initial};
use larder_testkit::load;
use larder_testkit::place::Place;
use larder_testkit::server::Server;

const BYTES: u64 = 16 << 20;
/// Pages that are written, each once.
const PAGES: u64 = 600;

/// Arguments of a server of `origin` behind the file `flash`.
fn words(place: &Place, more: &[&str]) -> Vec<String> {
    let (origin, flash, state) = (place.word("origin"), place.word("flash"), place.word("state"));
    let own = ["--origin", &origin, "--flash", &flash, "--flash-size", "64MiB", "--preset", "face"];
    let ordered = ["--write-policy", "ordered", "--state", &state, "--workers", "2"];
    place.serve(&[&own[..], &ordered, more].concat())
}

/// The place of the nth page that is written: neighbours belong to different workers.
fn place_of(n: u64) -> u64 {
    n * 37 % (BYTES / 4096) * 4096
}

fn bytes_of(n: u64) -> Vec<u8> {
    load::initial(1000 + n, 4096)
}

/// Writes pages, each with a FLUSH or FUA behind it.
fn write(place: &Place, truth: &mut [u8], pages: std::ops::Range<u64>) {
    for n in pages {
        let (at, bytes) = (place_of(n), bytes_of(n));
        place.client().write_at(at, &bytes, n % 3 == 0).unwrap();
        if n % 3 > 0 {
            place.client().flush().unwrap();
        }
        truth[at as usize..][..4096].copy_from_slice(&bytes);
    }
}

/// How many of the first `written` pages the origin has: all up to one of them, and none behind it. The last ones are read first, so
/// that a page that arrives meanwhile does not matter.
fn reached(place: &Place, written: u64) -> u64 {
    let origin = File::open(place.path("origin")).unwrap();
    let has = |n: u64| {
        let mut found = vec![0; 4096];
        origin.read_exact_at(&mut found, place_of(n)).unwrap();
        found == bytes_of(n)
    };
    let end = (0..written).rev().find(|n| has(*n)).map_or(0, |n| n + 1);
    assert!((0..end).rev().all(has), "the origin has page {} and not all before it", end - 1);
    end
}

#[test]
fn the_origin_has_a_prefix_of_what_was_flushed() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let mut truth = load::initial(0, BYTES);
    // Short, so that epochs wait for each other.
    let words = words(&place, &["--ordered-lag", "100ms"]);
    let server = Server::start(&words);
    for n in 0..PAGES / 2 {
        write(&place, &mut truth, n..n + 1);
        if n % 10 == 0 {
            reached(&place, n + 1);
        }
    }
    server.kill();
    let before = reached(&place, PAGES / 2);
    let server = Server::restart(&words);
    assert!(place.read_all(BYTES) == truth);
    write(&place, &mut truth, PAGES / 2..PAGES);
    assert!(reached(&place, PAGES) >= before);
    place.ask(&["flush"]).ok();
    assert_eq!(reached(&place, PAGES), PAGES);
    assert_eq!(place.status()["units_dirty"], 0);
    assert_eq!(place.status()["origin_behind_ns"], 0);
    assert!(std::fs::read(place.path("origin")).unwrap() == truth);
    assert_eq!(server.stop().code, 0);
    // A policy without epochs takes over what they left, and the other way round.
    let full: Vec<String> = words
        .iter()
        .map(|w| w.replace("ordered", "full").replace("--full-lag", "--ordered-lag"))
        .collect();
    for (words, pages) in [(&full, 0..40), (&words, 40..80), (&full, 80..120), (&words, 120..160)] {
        let server = Server::restart(words);
        assert!(place.read_all(BYTES) == truth);
        // Both workers, and other bytes than before.
        for n in pages {
            let (at, bytes) = (place_of(n), bytes_of(2 * PAGES + n));
            place.client().write_at(at, &bytes, false).unwrap();
            place.client().flush().unwrap();
            truth[at as usize..][..4096].copy_from_slice(&bytes);
        }
        server.kill();
    }
    let server = Server::restart(&words);
    place.ask(&["flush"]).ok();
    assert!(std::fs::read(place.path("origin")).unwrap() == truth);
    assert_eq!(server.stop().code, 0);
}

#[test]
fn a_detach_replays_everything() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let mut truth = load::initial(0, BYTES);
    let server = Server::start(&words(&place, &[]));
    write(&place, &mut truth, 0..PAGES);
    place.client().zero(40 * 4096, 20 * 4096, true).unwrap();
    truth[40 * 4096..60 * 4096].fill(0);
    assert!(place.read_all(BYTES) == truth);
    place.ask(&["detach"]).ok();
    assert!(std::fs::read(place.path("origin")).unwrap() == truth);
    assert_eq!(server.stop().code, 0);
}

#[test]
fn what_ordered_needs_is_stated() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let said = larder_says(&refs(&words(&place, &["--ordered-lag", "5ms"])));
    assert!(said.err.contains("--ordered-lag: got 5ms, accepted 100ms to 31 years"), "{said:?}");
    let larder: Vec<String> =
        words(&place, &[]).iter().map(|w| w.replace("face", "larder")).collect();
    let said = larder_says(&refs(&larder));
    assert!(said.err.contains("accepted with page logs only"), "{said:?}");
}

fn refs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}
