// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder resize`, and starts with flash of another size.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::path::Path;

use larder_testkit::command::{Ended, make_initial, one_json};
use larder_testkit::load;
use larder_testkit::place::Place;
use larder_testkit::server::Server;

const MIB: u64 = 1 << 20;
const BYTES: u64 = 24 * MIB;

/// Arguments of a server of `origin` behind `flash_mib` of the file `flash`.
fn words(place: &Place, preset: &str, flash_mib: u64, more: &[&str]) -> Vec<String> {
    let (origin, flash) = (place.word("origin"), place.word("flash"));
    let size = format!("{flash_mib}MiB");
    let own = ["--origin", &origin, "--flash", &flash, "--flash-size", &size, "--preset", preset];
    let state = place.word("state");
    place.serve(&[&own[..], &["--state", &state, "--workers", "2"], more].concat())
}

fn resize(place: &Place, mib: u64) -> u64 {
    let said = place.ask(&["resize", "--flash-size", &format!("{mib}MiB"), "--json"]).ok();
    one_json(&said)["units_total"].as_u64().unwrap()
}

fn refused(ended: &Ended, code: i32, says: &str) {
    assert_eq!((ended.code, ended.err.lines().count()), (code, 1), "{ended:?}");
    assert!(ended.err.contains(says) && ended.err.contains("accepted"), "{ended:?}");
}

fn cached(place: &Place) -> u64 {
    let said = place.ask(&["cached", "--all", "--json"]).ok();
    one_json(&said)["cached_bytes"].as_u64().unwrap()
}

fn units_dirty(place: &Place) -> u64 {
    place.status()["units_dirty"].as_u64().unwrap()
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

const UNITS: [(&str, &[&str]); 5] = [
    ("larder", &[]),
    ("larder", &["--verify", "on"]),
    ("slru", &[]),
    ("prwc", &[]),
    ("bcache", &["--write-policy", "write-back", "--verify", "on", "--flash-most", "64MiB"]),
];

#[test]
fn flash_grows_and_shrinks_under_a_load_and_keeps_what_it_has() {
    for (preset, more) in UNITS {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let words = words(&place, preset, 8, more);
        let server = Server::start(&words);
        let mut truth = load::initial(0, BYTES);
        let mut change = |page: u64, place: &Place| {
            let bytes = load::initial(page + 1, 4096);
            place.client().write_at(page * 4096, &bytes, false).unwrap();
            truth[page as usize * 4096..][..4096].copy_from_slice(&bytes);
            place.client().flush().unwrap();
        };

        place.ask(&["warm", "0+4MiB"]).ok();
        let before = cached(&place);
        assert!(before > 3 * MIB, "{preset}: {before}");
        change(3, &place);
        let grown = resize(&place, 28);
        assert!(cached(&place) >= 3 * MIB, "{preset}: growing keeps what is cached");
        assert_eq!(length(&place.path("flash")), 28 * MIB);
        let in_use = place.status()["flash_bytes"].as_u64().unwrap();
        assert!(in_use > 23 * MIB && in_use <= 28 * MIB, "{preset}: {in_use}");
        place.ask(&["warm", "--all"]).ok();
        assert!(cached(&place) > 20 * MIB, "{preset}: {}", cached(&place));
        (0..200).for_each(|page| change(page * 29, &place));
        let shrunk = resize(&place, 8);
        assert!(shrunk < grown / 2, "{preset}: {shrunk} of {grown}");
        assert_eq!(length(&place.path("flash")), 8 * MIB, "{preset}");
        let left = cached(&place);
        assert!(left > 2 * MIB && left < 8 * MIB, "{preset}: {left}");
        change(5, &place);
        resize(&place, 28);
        (200..300).for_each(|page| change(page * 17, &place));
        server.kill();
        let server = Server::restart(&words);
        assert!(place.read_all(BYTES) == truth, "{preset} {more:?}");
        server.stop();
    }
}

#[test]
fn a_start_with_another_size_is_warm() {
    for (preset, more) in [UNITS[0], UNITS[1], UNITS[3], UNITS[4]] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let serve = |mib| Server::start(&words(&place, preset, mib, more));
        let server = serve(16);
        place.ask(&["warm", "0+12MiB"]).ok();
        let before = cached(&place);
        assert_eq!(server.stop().code, 0);
        let server = serve(8);
        let smaller = cached(&place);
        assert!(smaller > 3 * MIB && smaller < before, "{preset}: {smaller} of {before}");
        assert!(place.read_all(BYTES) == load::initial(0, BYTES));
        server.stop();
        let file = std::fs::File::options().write(true).open(place.path("flash")).unwrap();
        file.set_len(28 * MIB).unwrap();
        let server = serve(28);
        let status = place.status();
        let units =
            status["units_total"].as_u64().unwrap() * status["unit_bytes"].as_u64().unwrap();
        assert!(units >= 23 * MIB && cached(&place) > 3 * MIB, "{preset}: {status}");
        assert!(place.read_all(BYTES) == load::initial(0, BYTES));
        server.stop();
    }
}

#[test]
fn dirty_data_is_on_the_origin_before_flash_is_cut_and_is_not_cut_at_a_start() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let own = [
        "--write-policy",
        "write-back",
        "--write-back-after",
        "never",
        "--write-back-above",
        "100%",
    ];
    let serve =
        |mib| words(&place, "bcache", mib, &[&own[..], &["--flash-most", "64MiB"]].concat());
    let server = Server::start(&serve(24));
    let new = load::initial(9, 16 * MIB);
    let mut client = place.client();
    // Scattered: sequential writes bypass flash.
    for page in (0..4096_u64).map(|n| n * 1009 % 4096 * 4096) {
        client.write_at(page, &new[page as usize..][..4096], false).unwrap();
    }
    client.flush().unwrap();
    server.kill();
    let server = Server::restart(&serve(6));
    assert!(server.log().contains("its dirty data takes"), "{}", server.log());
    let dirty = units_dirty(&place);
    assert!(dirty > 6 * 256, "{dirty}");
    assert!(place.read_all(16 * MIB) == new);
    server.kill();
    let flash = place.path("flash");
    std::fs::copy(&flash, place.path("whole")).unwrap();
    let cut = std::fs::File::options().write(true).open(&flash).unwrap();
    cut.set_len(6 * MIB).unwrap();
    let cut = Server::try_start(&serve(6)).err().expect("dirty data would be lost");
    assert!(cut.code == 4 && cut.err.contains("its dirty data takes"), "{cut:?}");
    std::fs::copy(place.path("whole"), &flash).unwrap();
    let server = Server::restart(&serve(24));
    assert_eq!(units_dirty(&place), dirty);
    resize(&place, 6);
    assert!(units_dirty(&place) <= 6 * 256);
    drop(client);
    assert!(place.read_all(16 * MIB) == new);
    server.kill();
    let server = Server::restart(&serve(6));
    assert!(place.read_all(16 * MIB) == new);
    server.stop();
    let origin = std::fs::read(place.path("origin")).unwrap();
    assert!(origin[..16 * MIB as usize] == new[..]);
}

#[test]
fn sizes_that_cannot_be_are_refused_and_change_nothing() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&words(&place, "larder", 8, &["--flash-most", "16MiB"]));
    place.ask(&["warm", "0+4MiB"]).ok();
    let before = (place.status()["units_total"].clone(), cached(&place));
    refused(&place.ask(&["resize", "--flash-size", "64MiB"]), 2, "flash_most");
    refused(&place.ask(&["resize", "--flash-size", "1MiB"]), 2, "at least");
    place.ask(&["pin", "0+4MiB"]).ok();
    refused(&place.ask(&["resize", "--flash-size", "4MiB"]), 4, "pinned");
    assert_eq!((place.status()["units_total"].clone(), cached(&place)), before);
    assert_eq!(length(&place.path("flash")), 8 * MIB);
    place.ask(&["detach"]).ok();
    refused(&place.ask(&["resize"]), 4, "no flash device");
    server.stop();
    for most in ["4MiB", "1EiB"] {
        let words = words(&place, "larder", 8, &["--flash-most", most]);
        refused(&Server::try_start(&words).err().unwrap(), 2, "flash-most");
    }
    for (preset, says) in [("face", "page log"), ("flashcache", "sets")] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = Server::start(&words(&place, preset, 16, &[]));
        refused(&place.ask(&["resize", "--flash-size", "8MiB"]), 4, says);
        server.stop();
    }
}

#[test]
fn a_shrink_that_is_late_leaves_the_size() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let flash = format!("slow+{}?profile=ssd-s3500", place.file("flash", 24 * MIB).display());
    let origin = format!("slow+{}?profile=hdd-7200", place.word("origin"));
    let own = ["--write-policy", "write-back", "--write-back-after", "never"];
    let dev = ["--origin", &origin, "--flash", &flash, "--preset", "bcache", "--workers", "1"];
    let server = Server::start(&place.serve(&[&dev[..], &own].concat()));
    let mut client = place.client();
    for page in (0..3000_u64).map(|n| n * 1009 % (BYTES / 4096)) {
        client.write_at(page * 4096, &[7; 4096], false).unwrap();
    }
    let before = place.status()["units_total"].clone();
    let late = place.ask(&["resize", "--flash-size", "4MiB", "--bound", "1s"]);
    assert_eq!(late.code, 3, "{late:?}");
    assert!(late.err.contains("the size stays as it was"), "{late:?}");
    assert_eq!(place.status()["units_total"], before);
    client.write_at(0, &[8; 4096], false).unwrap();
    server.kill();
}
