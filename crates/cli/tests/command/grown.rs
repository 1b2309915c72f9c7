// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts with an origin that has grown.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::time::SystemTime;

use larder_testkit::command::{larder_says, make_initial, one_json};
use larder_testkit::load;
use larder_testkit::place::Place;
use larder_testkit::server::Server;

const MIB: u64 = 1 << 20;

/// Arguments of a server of `origin` behind the file `flash`.
fn words(place: &Place, preset: &str, more: &[&str]) -> Vec<String> {
    let (origin, flash) = (place.word("origin"), place.word("flash"));
    let own = ["--origin", &origin, "--flash", &flash, "--flash-size", "64MiB", "--preset", preset];
    let state = place.word("state");
    place.serve(&[&own[..], &["--state", &state, "--workers", "2"], more].concat())
}

/// The origin becomes one of so many bytes; as a device it has no modification time.
fn grow(place: &Place, bytes: u64) {
    let origin = File::options().write(true).open(place.path("origin")).unwrap();
    let before = origin.metadata().unwrap().modified().unwrap();
    origin.set_len(bytes).unwrap();
    origin.set_modified(before).unwrap();
}

fn used(place: &Place) -> u64 {
    place.status()["units_used"].as_u64().unwrap()
}

fn write(place: &Place, truth: &mut [u8], page: u64) {
    let bytes = load::initial(page + 1, 4096);
    place.client().write_at(page * 4096, &bytes, false).unwrap();
    truth[page as usize * 4096..][..4096].copy_from_slice(&bytes);
    place.client().flush().unwrap();
}

fn verdict(place: &Place) -> String {
    let (flash, state) = (place.word("flash"), place.word("state"));
    let said = larder_says(&["check", &flash, "--state", &state, "--json"]).ok();
    one_json(&said)["verdict"].as_str().unwrap().to_owned()
}

const KEPT: [(&str, &[&str]); 6] = [
    ("larder", &[]),
    ("larder", &["--verify", "on"]),
    ("slru", &["--durability", "journal"]),
    ("prwc", &["--verify", "on"]),
    ("bcache", &["--write-policy", "write-back"]),
    ("face", &[]),
];

#[test]
fn flash_stays_warm_when_the_origin_grows() {
    for (preset, more) in KEPT {
        let place = Place::new();
        make_initial(&place.path("origin"), 16 * MIB);
        let mut truth = load::initial(0, 16 * MIB);
        let words = words(&place, preset, more);
        let server = Server::start(&words);
        place.ask(&["warm", "--all"]).ok();
        (0..100).for_each(|page| write(&place, &mut truth, page * 40));
        server.stop();
        for (round, bytes) in [20 * MIB, 40 * MIB].into_iter().enumerate() {
            grow(&place, bytes);
            assert_eq!(verdict(&place), "starts warm", "{preset}");
            truth.resize(bytes as usize, 0);
            let server = Server::restart(&words);
            assert!(used(&place) >= 16, "{preset} {more:?}: {}", place.status());
            assert_eq!(place.status()["origin_bytes"].as_u64(), Some(bytes));
            assert!(place.read_all(bytes) == truth, "{preset} {more:?}");
            let last = bytes / 4096 - 1;
            (0..60).for_each(|page| write(&place, &mut truth, last - page * 23));
            match round {
                0 => server.kill(),
                _ => assert_eq!(server.stop().code, 0),
            }
        }
        assert_eq!(verdict(&place), "starts warm", "{preset}");
        if more.contains(&"--verify") {
            let (flash, state) = (place.word("flash"), place.word("state"));
            let said = larder_says(&["check", &flash, "--state", &state, "--data", "--json"]).ok();
            let compared = one_json(&said)["data"]["compared_pages"].as_u64().unwrap();
            assert!(compared > 100, "{said}");
        }
        let server = Server::restart(&words);
        assert!(place.read_all(40 * MIB) == truth, "{preset} {more:?}");
        server.stop();
    }
}

#[test]
fn what_may_be_old_or_is_incomplete_is_not_used() {
    let start = |preset: &str, bytes: u64| {
        let place = Place::new();
        make_initial(&place.path("origin"), bytes);
        let server = Server::start(&words(&place, preset, &[]));
        place.ask(&["warm", "--all"]).ok();
        write(&place, &mut load::initial(0, bytes), 3);
        server.stop();
        place
    };
    // It ended within a unit.
    let place = start("larder", 16 * MIB + 4096);
    grow(&place, 24 * MIB);
    let words_of = words(&place, "larder", &[]);
    let server = Server::restart(&words_of);
    assert_eq!(used(&place), 0);
    assert!(place.read_all(24 * MIB) == std::fs::read(place.path("origin")).unwrap());
    let ended = server.stop();
    let why = "an origin of 16388KiB (now 24MiB)";
    assert!(ended.err.contains(why), "{ended:?}");
    // It became smaller.
    grow(&place, 20 * MIB);
    let server = Server::restart(&words_of);
    assert_eq!(used(&place), 0);
    server.stop();
    // It was written to.
    let adopt: &[&str] = &["--adopt"];
    for (preset, decision, more) in
        [("larder", "starts cold", &[][..]), ("prwc", "is refused", adopt)]
    {
        let place = start(preset, 16 * MIB);
        grow(&place, 24 * MIB);
        let origin = File::options().write(true).open(place.path("origin")).unwrap();
        origin.set_modified(SystemTime::now()).unwrap();
        let said = verdict(&place);
        let says = said.starts_with(decision) && said.contains("the origin was written to");
        assert!(says, "{preset}: {said}");
        // The user's word counts where a cold start would lose data.
        let server = Server::restart(&words(&place, preset, more));
        assert_eq!(used(&place) > 10, more == adopt, "{preset}");
        server.stop();
    }
}
