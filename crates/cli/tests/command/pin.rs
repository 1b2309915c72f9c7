// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges that are pinned and excluded: `larder pin`, `unpin` and `exclude`, and the same in a configuration.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use larder_testkit::command::{Ended, larder_says, make_initial, one_json};
use larder_testkit::load::{self, eventually};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rustix::process::Signal;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
/// Four times the flash of `serve_preset`.
const BYTES: u64 = 16 * MIB;
const UNITS: [&str; 6] = ["larder", "sce", "slru", "prwc", "flashcache", "bcache"];

fn ask(place: &Place, words: &[&str]) -> Value {
    one_json(&place.ask(&[words, &["--json"]].concat()).ok())
}

fn cached(place: &Place, of: &str) -> u64 {
    ask(place, &["cached", of])["cached_bytes"].as_u64().unwrap()
}

fn says(words: &[String]) -> Ended {
    larder_says(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Refused with one line, which contains these words.
fn refused(place: &Place, words: &[&str], code: i32, says: &str) {
    let said = place.ask(words);
    assert_eq!((said.code, said.err.lines().count()), (code, 1), "{words:?}: {said:?}");
    assert!(said.err.contains(says) && said.err.contains("accepted"), "{words:?}: {said:?}");
}

/// Reads all of the volume a few times, beginning behind the first MiB.
fn read_much(place: &Place) {
    let mut client = place.client();
    for _ in 0..4 {
        for offset in (MIB..BYTES).step_by(64 << 10) {
            client.read_at(offset, &mut [0; 4096]).unwrap();
        }
    }
}

#[test]
fn what_is_pinned_is_copied_and_stays_through_a_load_and_a_kill() {
    for preset in UNITS {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let words = place.serve_preset(preset, &["--workers", "1"]);
        let server = Server::start(&words);
        assert_eq!(ask(&place, &["pin", "0+1MiB"])["range_bytes"], MIB, "{preset}");
        eventually("it is on flash", || cached(&place, "0+1MiB") == MIB);
        read_much(&place);
        assert_eq!(cached(&place, "0+1MiB"), MIB, "{preset}: evicted");
        refused(&place, &["evict", "512KiB+4KiB"], 4, "larder unpin");
        server.kill();
        let server = Server::restart(&words);
        let status = ask(&place, &["status"]);
        assert_eq!(status["pinned"], json!({ "bytes": MIB, "ranges": [[0, MIB]] }), "{preset}");
        // A cold cache, or what was not durable, is copied again.
        eventually("it is on flash again", || cached(&place, "0+1MiB") == MIB);
        place.ask(&["unpin", "0+1MiB"]).ok();
        assert_eq!(ask(&place, &["status"])["units_pinned"], 0, "{preset}");
        place.ask(&["evict", "0+1MiB"]).ok();
        assert_eq!(cached(&place, "0+1MiB"), 0, "{preset}");
        assert_eq!(place.read_all(BYTES), load::initial(0, BYTES), "{preset}");
        server.stop();
    }
}

#[test]
fn what_is_excluded_leaves_and_is_not_admitted_until_that_is_undone() {
    for preset in UNITS {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let words = place.serve_preset(preset, &["--workers", "1"]);
        let server = Server::start(&words);
        place.ask(&["warm", "1MiB+1MiB"]).ok();
        place.client().write_at(MIB + 4096, &[7; 8192], false).unwrap();
        let excluded = ask(&place, &["exclude", "1MiB+1MiB"]);
        assert_eq!(excluded["cached_bytes"], 0, "{preset}");
        assert_eq!(
            std::fs::read(place.path("origin")).unwrap()[MIB as usize + 4096],
            7,
            "{preset}"
        );
        read_much(&place);
        place.client().write_at(MIB, &[8; 65536], false).unwrap();
        assert_eq!(cached(&place, "1MiB+1MiB"), 0, "{preset}: admitted");
        server.kill();
        let server = Server::restart(&words);
        read_much(&place);
        assert_eq!(cached(&place, "1MiB+1MiB"), 0, "{preset}: admitted after a restart");
        place.ask(&["exclude", "--undo", "1MiB+1MiB"]).ok();
        place.ask(&["warm", "1MiB+1MiB"]).ok();
        assert_eq!(cached(&place, "1MiB+1MiB"), MIB, "{preset}");
        let mut client = place.client();
        let mut bytes = vec![0; 65536];
        client.read_at(MIB, &mut bytes).unwrap();
        assert_eq!(bytes, [8; 65536], "{preset}");
        server.stop();
    }
}

#[test]
fn more_than_flash_can_keep_and_ranges_beyond_the_volume_are_refused() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&place.serve_preset("sce", &["--workers", "2"]));
    refused(&place, &["pin", "--all"], 4, "more than three quarters of the flash");
    refused(&place, &["pin", "15MiB+2MiB"], 2, "a range of the volume");
    refused(&place, &["exclude", "15MiB+2MiB"], 2, "a range of the volume");
    refused(&place, &["pin"], 2, "no range is given");
    assert_eq!(ask(&place, &["status"]).get("pinned"), None);
    server.stop();
}

#[test]
fn a_page_log_pins_and_excludes_nothing() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&place.serve_preset("face", &[]));
    refused(&place, &["pin", "0+1MiB"], 4, "page log");
    refused(&place, &["exclude", "0+1MiB"], 4, "page log");
    server.stop();
    let said = says(&place.serve_preset("face", &["--pin", "0+1MiB"]));
    assert_eq!((said.code, said.err.lines().count()), (2, 1), "{said:?}");
    assert!(said.err.contains("pin") && said.err.contains("accepted"), "{said:?}");
}

#[test]
fn ranges_of_the_configuration_are_in_force_and_reloaded() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let config = place.path("larder.toml");
    let at = |name: &str| place.word(name);
    let write = |ranges: &str| {
        let text = format!(
            "origin = \"{}\"\nflash = \"{}\"\nflash_size = \"5MiB\"\npreset = \"sce\"\nunit = \"64KiB\"\n\
             listen = [\"nbd+unix:{}\"]\ncontrol = \"{}\"\nstate = \"{}\"\n{ranges}",
            at("origin"),
            at("flash"),
            at("nbd"),
            at("control"),
            at("state")
        );
        std::fs::write(&config, text).unwrap();
    };
    write("pin = [\"0+1MiB\"]\nexclude = [\"1MiB+1MiB\"]\n");
    let server = Server::start_config(&config, 1);
    eventually("it is on flash", || cached(&place, "0+1MiB") == MIB);
    read_much(&place);
    assert_eq!((cached(&place, "0+1MiB"), cached(&place, "1MiB+1MiB")), (MIB, 0));
    refused(&place, &["unpin", "0+4KiB"], 4, "of the configuration");
    refused(&place, &["exclude", "--undo", "1MiB+4KiB"], 4, "of the configuration");
    write("pin = [\"2MiB+64KiB\"]\n");
    server.signal(Signal::HUP);
    eventually("the new ranges are in force", || {
        let status = ask(&place, &["status"]);
        status["pinned"]["ranges"] == json!([[2 * MIB, 65536]]) && status.get("excluded").is_none()
    });
    eventually("it is on flash", || cached(&place, "2MiB+64KiB") == 65536);
    server.stop();
    write("pin = [\"0+1MiB\"]\nexclude = [\"512KiB+4KiB\"]\n");
    let said = larder_says(&["serve", &at("larder.toml")]);
    assert!(said.code == 2 && said.err.contains("exclude: got 524288+4096, has bytes"), "{said:?}");
    write("pin = [\"15MiB+2MiB\"]\n");
    let said = larder_says(&["serve", &at("larder.toml")]);
    assert_eq!((said.code, said.err.lines().count()), (2, 1), "{said:?}");
    assert!(said.err.contains("pin: got 15728640+2097152"), "{said:?}");
}

#[test]
fn a_file_of_ranges_that_cannot_be_used_blocks_no_start() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = place.serve_preset("sce", &["--state", &place.word("state")]);
    let server = Server::start(&words);
    place.ask(&["pin", "0+1MiB"]).ok();
    server.stop();
    let ranges = || {
        let files = std::fs::read_dir(place.path("state")).unwrap();
        let mut paths = files.map(|entry| entry.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|e| e == "ranges")).unwrap()
    };
    for bad in [
        "",
        "{",
        "[1]",
        "{\"format\":2,\"volumes\":{}}",
        "{\"format\":1,\"volumes\":{\"\":{\"pinned\":[{\"start\":5,\"end\":1}]}}}",
    ] {
        std::fs::write(ranges(), bad).unwrap();
        let server = Server::restart(&words);
        assert_eq!(ask(&place, &["status"]).get("pinned"), None, "{bad}");
        server.stop();
    }
    let aside = place.path("state").read_dir().unwrap().map(|entry| entry.unwrap().path());
    assert!(!aside.into_iter().any(|path| path.extension().is_some_and(|e| e == "unusable")));
    let server = Server::restart(&words);
    ask(&place, &["pin", "0+64KiB"]);
    server.stop();
    let mut aside = place.path("state").read_dir().unwrap().map(|entry| entry.unwrap().path());
    assert!(aside.any(|path| path.extension().is_some_and(|e| e == "unusable")), "it is kept");
    let server = Server::restart(&words);
    assert_eq!(ask(&place, &["status"])["pinned"]["bytes"], 65536);
    server.stop();
}

#[test]
fn the_last_command_decides_about_whole_units() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&place.serve_preset("sce", &[]));
    let status = || ask(&place, &["status"]);
    place.ask(&["exclude", "64KiB+64KiB"]).ok();
    place.ask(&["pin", "64KiB+4KiB"]).ok();
    let pinned = json!({ "bytes": 65536, "ranges": [[65536, 65536]] });
    assert_eq!((&status()["pinned"], status().get("excluded")), (&pinned, None));
    assert_eq!(ask(&place, &["pin", "64KiB+4KiB"])["rest"], "follows");
    assert_eq!(ask(&place, &["unpin", "--all"])["range_bytes"], 65536, "what was pinned");
    assert_eq!(status().get("pinned"), None);
    place.ask(&["set", "--populate", "off"]).ok();
    assert_eq!(ask(&place, &["pin", "0+64KiB"])["rest"], "needs_population");
    place.ask(&["detach"]).ok();
    place.ask(&["set", "--populate", "on"]).ok();
    assert_eq!(ask(&place, &["pin", "0+64KiB"])["rest"], "needs_flash");
    place.ask(&["attach", &place.word("flash"), "--flash-size", "4MiB"]).ok();
    eventually("it is on flash", || cached(&place, "0+64KiB") == 65536);
    server.stop();
}

#[test]
fn ranges_of_another_preset_are_not_in_force_under_a_page_log() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let state = place.word("state");
    let server = Server::start(&place.serve_preset("sce", &["--state", &state]));
    place.ask(&["pin", "0+1MiB"]).ok();
    server.stop();
    let server = Server::restart(&place.serve_preset("face", &["--state", &state, "--format"]));
    assert_eq!(ask(&place, &["status"]).get("pinned"), None);
    server.stop();
}
