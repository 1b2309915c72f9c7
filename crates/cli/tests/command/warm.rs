// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache with a journal starts warm, and never stale: after `kill -9` at any moment, after a
//! stop, and not at all when what is on flash may not be used.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use larder_nbd::uri::Uri;
use larder_testkit::command::{PATIENCE, connect, larder_says, make_initial};
use larder_testkit::load::{Judge, Load, Shape};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const BYTES: u64 = 4 << 20;

fn words(place: &Place, more: &[&str]) -> Vec<String> {
    let state = place.word("state");
    let mut words = place.serve_cached(8, &["--durability", "journal", "--state", &state]);
    words.extend(["--checkpoint", "20ms", "--workers", "2"].map(str::to_owned));
    words.extend(more.iter().map(|&w| w.to_owned()));
    words
}

/// Reads until everything is cached and logged.
fn warm_up(place: &Place) {
    let (mut client, begin) = (place.client(), Instant::now());
    loop {
        let (reads, hits) = (place.stat("reads"), place.stat("read_hits"));
        let mut bytes = vec![0; 4096];
        (0..BYTES / 4096).for_each(|p| client.read_at(p * 4096, &mut bytes).unwrap());
        if place.stat("read_hits") - hits == place.stat("reads") - reads {
            break std::thread::sleep(Duration::from_millis(200));
        }
        assert!(begin.elapsed() < PATIENCE, "it never becomes warm");
    }
}

/// Hits among the first reads of everything, page by page.
fn first_hits(place: &Place) -> u64 {
    let (mut client, before) = (place.client(), place.stat("read_hits"));
    let mut bytes = vec![0; 4096];
    (0..BYTES / 4096).for_each(|p| client.read_at(p * 4096, &mut bytes).unwrap());
    place.stat("read_hits") - before
}

#[test]
fn killed_at_random_moments_it_is_warm_and_never_stale() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = words(&place, &[]);
    let judge = Judge::new();
    judge.may_break.store(true, Ordering::SeqCst);
    let mut random = Pcg64::seed_from_u64(77);
    let mut warm = 0;
    for round in 0..12 {
        let server = Server::restart(&words);
        warm += u64::from(place.stat("units_used") > 0);
        // What flash returns is what the origin holds.
        let served = place.read_all(BYTES);
        let origin = std::fs::read(place.path("origin")).unwrap();
        assert!(served == origin, "round {round}: a stale page, or a lost one");
        let shape = Shape {
            bytes: BYTES,
            hot_bytes: BYTES / 3,
            clients: 4,
            depth: 8,
            reads: 60,
            seed: 7_000 + round,
        };
        let load = Load::start(&place.uri(), &shape, &judge);
        std::thread::sleep(Duration::from_millis(random.random_range(50..500)));
        server.kill();
        load.finish();
    }
    assert!(warm >= 9, "warm after {warm} of 11 kills");
}

/// Under the same name and of the same size: only its path shows that it is another.
#[test]
fn another_origin_is_cold_after_a_crash_and_after_a_stop() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    std::fs::write(place.path("second"), vec![9; BYTES as usize]).unwrap();
    let first = words(&place, &["--name", "v"]);
    let to_second = |word: &String| match *word == place.word("origin") {
        true => place.word("second"),
        false => word.clone(),
    };
    let second: Vec<String> = first.iter().map(to_second).collect();
    for (before, after) in [(&first, &second), (&second, &first), (&first, &second)] {
        let server = Server::restart(before);
        warm_up(&place);
        if before == &second {
            drop(server.stop());
        } else {
            server.kill();
        }
        let server = Server::restart(after);
        let recorded = "the state file records it for the origin";
        assert!(server.log().contains(recorded), "{}", server.log());
        let origin = std::fs::read(&after[after.iter().position(|w| w == "--origin").unwrap() + 1]);
        assert!(place.read_all(BYTES) == origin.unwrap(), "bytes of the other origin");
        server.stop();
    }
}

#[test]
fn an_earlier_copy_of_the_flash_is_not_used() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = words(&place, &[]);
    let server = Server::start(&words);
    warm_up(&place);
    server.stop();
    std::fs::copy(place.path("flash"), place.path("copy")).unwrap();
    let server = Server::start(&words);
    place.client().write_at(0, &[7; 8192], false).unwrap();
    server.stop();
    std::fs::copy(place.path("copy"), place.path("flash")).unwrap();
    let server = Server::start(&words);
    assert!(server.log().contains("a copy from before the last start or stop"), "{}", server.log());
    assert_eq!(place.read_all(BYTES)[..8192], [7; 8192]);
    server.stop();
}

#[test]
fn a_state_file_that_is_deleted_under_a_server_is_written_again() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = words(&place, &[]);
    let server = Server::start(&words);
    warm_up(&place);
    for file in std::fs::read_dir(place.path("state")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let ended = server.stop();
    assert!(ended.err.contains("was deleted; it is written again"), "{ended:?}");
    let server = Server::restart(&words);
    assert_eq!(first_hits(&place), BYTES / 4096);
    server.stop();
}

#[test]
fn after_kill_or_stop_every_read_hits() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = words(&place, &[]);
    let server = Server::start(&words);
    warm_up(&place);
    server.kill();
    let server = Server::restart(&words);
    assert_eq!(first_hits(&place), BYTES / 4096, "after kill -9");
    place.client().write_at(0, &[7; 8192], false).unwrap();
    server.stop();
    let server = Server::restart(&words);
    let hits = first_hits(&place);
    assert!(hits >= BYTES / 4096 - 2, "after a stop: {hits}: {}", server.log());
    assert_eq!(place.read_all(BYTES)[..8192], [7; 8192]);
    server.stop();
}

#[test]
fn a_volume_continues_with_the_preset_of_its_flash() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let preset = |more: &[&str]| {
        let mut words = words(&place, more);
        words.push("--print-config".to_owned());
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let printed = larder_says(&args).out;
        let line = printed.lines().find(|line| line.starts_with("preset = "));
        line.unwrap_or_else(|| panic!("no preset: {printed}")).to_owned()
    };
    assert_eq!(preset(&[]), "preset = \"larder\"");
    let server = Server::start(&words(&place, &["--preset", "sce"]));
    warm_up(&place);
    server.kill();
    assert_eq!(preset(&[]), "preset = \"sce\"");
    assert_eq!(preset(&["--preset", "larder"]), "preset = \"larder\"");
    let server = Server::restart(&words(&place, &[]));
    assert!(server.log().contains("preset sce, as at the last start"), "{}", server.log());
    assert_eq!(first_hits(&place), BYTES / 4096);
    larder_says(&["detach", "--control", &place.word("control")]);
    server.stop();
    assert_eq!(preset(&[]), "preset = \"larder\"", "the flash is out of use");
}

/// The state file names the preset; what it cannot decide is not decided by the default.
#[test]
fn a_recorded_preset_counts_only_for_its_origin_and_if_it_exists() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    make_initial(&place.path("other"), BYTES);
    let named = ["--name", "v"];
    Server::start(&words(&place, &[&named[..], &["--preset", "sce"]].concat())).stop();
    let start = |origin: &str| {
        let mut words = words(&place, &named);
        words
            .iter_mut()
            .filter(|w| **w == place.word("origin"))
            .for_each(|w| *w = place.word(origin));
        words.push("--print-config".to_owned());
        larder_says(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert!(start("origin").ok().contains("preset = \"sce\""));
    assert!(start("other").ok().contains("preset = \"larder\""));
    let file = place.path("state/v.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"sce\"", "\"later\"")).unwrap();
    let refused = start("origin");
    assert!(refused.code == 2 && refused.err.contains(file.to_str().unwrap()), "{refused:?}");
    std::fs::write(&file, "{").unwrap();
    let refused = start("origin");
    assert!(refused.code == 4 && refused.err.contains(file.to_str().unwrap()), "{refused:?}");
}

/// Each reason for a cold start, and its message.
#[test]
fn what_may_not_be_used_is_not() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let plain = words(&place, &[]);
    let cold = |what: &str, words: &[String], reason: &str| {
        let server = Server::restart(words);
        assert_eq!(place.stat("units_used"), 0, "{what}");
        assert!(server.log().contains(reason), "{what}: {}", server.log());
        assert!(place.read_all(BYTES) == std::fs::read(place.path("origin")).unwrap());
        warm_up(&place);
        server
    };
    let server = cold("the first time", &plain, "");
    assert!(!server.log().contains("starts cold"), "no warning: {}", server.log());
    server.stop();

    let mut origin = std::fs::read(place.path("origin")).unwrap();
    origin[5000] ^= 1;
    std::thread::sleep(Duration::from_millis(20));
    std::fs::write(place.path("origin"), &origin).unwrap();
    let server = cold("a changed origin", &plain, "the origin was written to");

    place.ask(&["detach"]).ok();
    place.client().write_at(4096, &[9; 4096], false).unwrap();
    server.kill();
    let server = cold("a detached flash", &plain, "it was detached");
    server.kill();

    let mut other = plain.clone();
    let at = other.iter().position(|w| w == "2").unwrap();
    other[at] = "1".to_owned();
    cold("other workers", &other, "it was formatted for --workers 2 (now 1)").kill();
    std::fs::remove_dir_all(place.path("state")).unwrap();
    cold("a lost state", &other, "no state file").kill();

    // Pass-through in between: what was written then is nowhere on flash.
    let state = place.word("state");
    let mut without = place.serve(&["--durability", "journal", "--state", &state]);
    without.extend(["--origin".to_owned(), place.word("origin")]);
    let server = Server::restart(&without);
    place.client().write_at(8192, &[3; 4096], false).unwrap();
    server.kill();
    cold("pass-through in between", &other, "writes continued without it").kill();
    let mut formatted = other.clone();
    formatted.push("--format".to_owned());
    cold("--format", &formatted, "--format was given").kill();
}

/// A run without a journal writes to the origin past the flash of the last run with one: whatever
/// its name, its flash, or the way in which the origin is named.
#[test]
fn a_run_without_a_journal_puts_the_flash_out_of_use() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let (journal, state) = (words(&place, &[]), place.word("state"));
    std::os::unix::fs::symlink(place.path("origin"), place.path("link")).unwrap();
    let slow = format!("slow+{}?profile=ssd-p3700", place.word("link"));
    let other = ["--flash", "mem:8MiB", "--unit", "64KiB", "--name", "other"];
    for (round, flash) in [&other[..], &other[4..], &[]].into_iter().enumerate() {
        let server = Server::restart(&journal);
        warm_up(&place);
        server.kill();
        let mut without = place.serve(&["--origin", &slow, "--state", &state]);
        without.extend(flash.iter().map(|&w| w.to_owned()));
        let server = Server::restart(&without);
        let name = if flash.is_empty() { "" } else { "other" };
        let uri = Uri { export: name.to_owned(), ..place.uri() };
        connect(&uri).write_at(8192, &[round as u8; 4096], false).unwrap();
        server.kill();
        let server = Server::restart(&journal);
        assert_eq!(place.stat("units_used"), 0, "round {round}");
        assert!(server.log().contains("writes continued without it"), "{}", server.log());
        assert_eq!(place.read_all(BYTES)[8192..12288], [round as u8; 4096]);
        server.kill();
    }
}

/// Writes that arrive faster than the flash writes them are admitted one after the other, and the log states the reason
/// for a cold start.
#[test]
fn a_page_log_under_through_takes_a_burst_of_writes_and_says_that_it_starts_cold() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let (origin, flash, state) = (place.word("origin"), place.word("flash"), place.word("state"));
    let words = place.serve(&[
        "--origin",
        &origin,
        "--flash",
        &flash,
        "--flash-size",
        "16MiB",
        "--state",
        &state,
        "--preset",
        "face",
        "--write-policy",
        "through",
        "--workers",
        "1",
    ]);
    let server = Server::start(&words);
    let mut client = place.client();
    (0..BYTES / 65536).for_each(|n| client.write_at(n * 65536, &[3; 65536], false).unwrap());
    let begin = Instant::now();
    while place.stat("units_used") < BYTES / 4096 {
        assert!(begin.elapsed() < PATIENCE, "{} pages entered", place.stat("units_used"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(first_hits(&place), BYTES / 4096);
    assert_eq!(place.stat("write_arounds"), 0);
    server.kill();
    let server = Server::restart(&words);
    assert!(server.log().contains("were not closed, as after a crash"), "{}", server.log());
    assert_eq!(place.stat("units_used"), 0);
    first_hits(&place);
    assert_eq!(place.stat("population_bytes"), BYTES);
    server.stop();
    let server = Server::start(&words);
    assert!(!server.log().contains("cold"), "{}", server.log());
    assert_eq!(first_hits(&place), BYTES / 4096);
    server.stop();
}
