// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--verify`: bits of a served flash flip, and no wrong byte reaches a client.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use larder_testkit::command::{larder_says, make_initial, one_json};
use larder_testkit::load::{self, eventually};
use larder_testkit::place::Place;
use larder_testkit::server::Server;

const BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;

/// A server whose flash has room for all of the origin.
fn serve(place: &Place, preset: &str, more: &[&str]) -> Server {
    let (origin, flash) = (place.path("origin"), place.path("flash"));
    let at = |path: &Path| path.display().to_string();
    let own = ["--workers", "1", "--verify", "on", "--flash-size", "40MiB", "--preset", preset];
    let (origin, flash) = (at(&origin), at(&flash));
    let places = ["--origin", &origin, "--flash", &flash];
    Server::start(&place.serve(&[&places[..], &own, more].concat()))
}

/// Flips a bit of every page of the flash beyond labels and metadata; the server reads it again.
fn flip(flash: &Path, from: u64) {
    let end = std::fs::metadata(flash).unwrap().len();
    flip_in(flash, from..end - end % PAGE);
}

/// Flips a bit of every page of a range.
fn flip_in(flash: &Path, range: std::ops::Range<u64>) {
    let file = OpenOptions::new().read(true).write(true).open(flash).unwrap();
    for page in range.step_by(PAGE as usize) {
        let at = page + (page / PAGE * 811) % PAGE;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << (page / PAGE % 8)], at).unwrap();
    }
    file.sync_all().unwrap();
}

#[test]
fn pages_that_rot_are_read_from_the_origin_counted_and_written_again() {
    for preset in ["larder", "sce", "slru", "flashcache", "bcache"] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = serve(&place, preset, &[]);
        let read = || place.read_all(BYTES) == load::initial(0, BYTES);
        place.ask(&["warm", "--all"]).ok();
        assert!(read());
        assert_eq!(place.stat("damaged_pages"), 0, "{preset}");
        flip(&place.path("flash"), 3 << 20);
        assert!(read(), "{preset}");
        let damaged = place.stat("damaged_pages");
        assert!(damaged > 1000, "{preset}: {damaged}");
        eventually("flash has them again", || {
            let before = place.stat("damaged_pages");
            assert!(read(), "{preset}");
            place.stat("damaged_pages") == before
        });
        let ended = server.stop();
        let lines = ended.err.matches("flash returned wrong data for the page at byte").count();
        assert!((1..10).contains(&lines), "{preset}: {ended:?}");
    }
}

#[test]
fn dirty_pages_that_rot_are_errors_and_never_wrong_bytes() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = serve(&place, "flashcache", &["--write-policy", "write-back"]);
    let new = load::initial(7, BYTES);
    let mut client = place.client();
    for page in (0..BYTES).step_by(PAGE as usize) {
        client.write_at(page, &new[page as usize..][..PAGE as usize], false).unwrap();
    }
    flip(&place.path("flash"), 3 << 20);
    let (mut right, mut errors) = (0, 0);
    for page in (0..BYTES).step_by(PAGE as usize) {
        let mut found = [0; PAGE as usize];
        match client.read_at(page, &mut found) {
            Ok(()) => {
                assert!(found == new[page as usize..][..PAGE as usize], "page at {page}");
                right += 1;
            }
            Err(_) => errors += 1,
        }
    }
    assert!(place.stat("damaged_pages") > 1000 && errors > 0, "{right} right, {errors} errors");
    let alarm = || place.status()["alarm"].as_str().unwrap_or_default().to_owned();
    eventually("an alarm", || alarm().contains("dirty data on flash is damaged, noticed first at"));
    let flushed = place.ask(&["flush"]);
    let why = "copying its dirty data, part of which is damaged (larder scrub lists it), failed";
    assert!(flushed.code == 3 && flushed.err.contains(&format!("flash: {why}")), "{flushed:?}");
    for page in (0..BYTES).step_by(PAGE as usize) {
        client.write_at(page, &new[page as usize..][..PAGE as usize], false).unwrap();
    }
    assert!(place.read_all(BYTES) == new, "what is written again is whole");
    assert!(!alarm().is_empty());
    place.ask(&["scrub", "--all"]);
    place.ask(&["scrub", "--all"]).ok();
    assert_eq!(alarm(), "");
    server.stop();
}

#[test]
fn a_scrub_finds_what_no_client_reads() {
    for preset in ["larder", "slru", "bcache"] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = serve(&place, preset, &[]);
        place.ask(&["warm", "--all"]).ok();
        let scrub = || one_json(&place.ask(&["scrub", "--all", "--json"]).out);
        assert_eq!(
            (scrub()["damaged_pages"].as_u64(), scrub()["places"].as_array().unwrap().len()),
            (Some(0), 0)
        );
        flip(&place.path("flash"), 3 << 20);
        let found = scrub();
        let damaged = found["damaged_pages"].as_u64().unwrap();
        assert!(damaged > 1000 && found["lost_pages"] == 0, "{preset}: {found}");
        assert_eq!(place.stat("damaged_pages"), damaged, "{preset}: each is counted once");
        assert_eq!(place.status()["damaged_pages"], damaged);
        assert_eq!(scrub()["damaged_pages"], 0, "{preset}: they were written again");
        let before = place.stat("read_hits");
        assert!(place.read_all(BYTES) == load::initial(0, BYTES));
        assert!(place.stat("read_hits") > before, "{preset}");
        server.stop();
    }
}

#[test]
fn a_scrub_names_what_only_flash_had() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = serve(
        &place,
        "flashcache",
        &["--write-policy", "write-back", "--write-back-after", "never"],
    );
    let mut client = place.client();
    client.write_at(8 << 20, &[7; 8192], false).unwrap();
    flip(&place.path("flash"), 1 << 20);
    let ended = place.ask(&["scrub", "--all"]);
    let said = ended.out;
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(said.contains("2 of them lost") && said.contains("lost: 8388608+8192"), "{said}");
    server.stop();
}

#[test]
fn a_scrub_needs_checksums() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&place.serve_preset("sce", &[]));
    let ended = place.ask(&["scrub", "--all"]);
    let said = ended.err;
    assert_ne!(ended.code, 0);
    assert!(said.contains("has no checksums") && said.contains("--verify on"), "{said}");
    server.stop();
}

#[test]
fn checksums_survive_a_restart_and_a_kill() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let mut server = serve(&place, "sce", &["--checkpoint", "100ms"]);
    for kills in [false, true] {
        place.ask(&["warm", "--all"]).ok();
        std::thread::sleep(std::time::Duration::from_millis(500));
        if kills {
            server.kill();
        } else {
            server.stop();
        }
        server = serve(&place, "sce", &["--checkpoint", "100ms"]);
        assert!(place.stat("units_used") > 12);
        assert!(place.read_all(BYTES) == load::initial(0, BYTES));
        assert_eq!(place.stat("damaged_pages"), 0, "killed: {kills}");
        assert!(place.stat("read_hits") > 0);
    }
    server.stop();
}

/// The first slot of a flash of 40 MiB, or a page of it: nothing but a label follows the last one.
fn slots_at(place: &Place) -> u64 {
    let report = one_json(&larder_says(&["check", &place.word("flash"), "--json"]).out);
    (40 << 20) - report["slots"].as_u64().unwrap() * report["unit_bytes"].as_u64().unwrap()
}

#[test]
fn a_check_compares_what_flash_has() {
    // Whole units, and single pages in mixed slots.
    for (preset, warm) in [("sce", &["--all"][..]), ("larder", &["0+20KiB", "5MiB+8KiB"])] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = serve(&place, preset, &[]);
        place.ask(&[&["warm"], warm].concat()).ok();
        let cached =
            one_json(&place.ask(&["cached", "--all", "--json"]).ok())["cached_bytes"].clone();
        server.stop();
        let check = || {
            let ended = larder_says(&["check", &place.word("flash"), "--data", "--json"]);
            (ended.code, one_json(&ended.out)["data"].clone())
        };
        let (code, data) = check();
        assert_eq!((code, &data["damaged_pages"]), (0, &0.into()), "{preset}: {data}");
        assert_eq!(data["compared_pages"].as_u64().map(|pages| pages * PAGE), cached.as_u64());
        assert!(data["compared_pages"].as_u64() > Some(5), "{preset}: {data}");
        let from = slots_at(&place);
        // The last page of a slot of single pages lists them.
        flip_in(&place.path("flash"), from..from + 16 * PAGE);
        let (code, data) = check();
        assert!(code == 1 && data["damaged_pages"].as_u64() > Some(0), "{preset}: {data}");
        let said = larder_says(&["check", &place.word("flash"), "--data"]).out;
        assert!(said.contains("\ndamaged: "), "{said}");
        let server = serve(&place, preset, &[]);
        assert!(place.read_all(BYTES) == load::initial(0, BYTES));
        server.stop();
    }
}

#[test]
fn a_check_of_dirty_data_lists_it_apart() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let more = ["--write-policy", "write-back", "--write-back-after", "never"];
    let server = serve(&place, "flashcache", &more);
    place.client().write_at(8 << 20, &[7; 8192], true).unwrap();
    server.kill();
    flip(&place.path("flash"), slots_at(&place));
    let ended = larder_says(&["check", &place.word("flash"), "--data"]);
    assert!(ended.out.contains("2 dirty pages do not match"), "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("dirty: 8388608+8192"), "{}", ended.out);
}

#[test]
fn a_check_of_data_needs_checksums() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    Server::start(&place.serve_preset("sce", &[])).stop();
    let ended = larder_says(&["check", &place.word("flash"), "--data"]);
    assert!(ended.code != 0 && ended.err.contains("has no checksums"), "{}", ended.err);
}
