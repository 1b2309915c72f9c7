// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--flash-write-budget`: what is written to flash in a day.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use larder_testkit::command::{larder_says, make_initial, one_json};
use larder_testkit::load::{self, eventually};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use serde_json::{Value, json};

const BYTES: u64 = 16 << 20;

fn ask(place: &Place, words: &[&str]) -> Value {
    one_json(&place.ask(&[words, &["--json"]].concat()).ok())
}

/// Reads a part of every unit a few times; returns what that wrote to flash.
fn written_by_reads(place: &Place) -> u64 {
    let before = place.stat("flash_write_bytes");
    let mut client = place.client();
    for _ in 0..4 {
        for offset in (0..BYTES).step_by(64 << 10) {
            client.read_at(offset, &mut [0; 4096]).unwrap();
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    place.stat("flash_write_bytes") - before
}

#[test]
fn without_budget_reads_admit_nothing_until_it_is_raised() {
    for preset in ["larder", "sce", "slru", "flashcache", "bcache", "face"] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        // A fortieth of it, 25 kB a worker at most, may be owed; a unit of 1 MiB that was begun is completed.
        let words = ["--workers", "1", "--flash-write-budget", "1MB/day"];
        let server = Server::start(&place.serve_preset(preset, &words));
        let status = ask(&place, &["status"]);
        assert_eq!(status["flash_write_budget_bytes"], 1_000_000, "{preset}");
        let written = written_by_reads(&place);
        assert!(written <= 1300 << 10, "{preset}: {written}");
        assert!(written_by_reads(&place) <= 64 << 10, "{preset}: owed");
        assert!(place.stats()["flash_write_left_bytes"].as_i64().unwrap() <= 0, "{preset}");
        let set = ask(&place, &["set", "--flash-write-budget", "any"]);
        assert_eq!(set["flash_write_budget"], "any", "{preset}");
        eventually("reads admit", || written_by_reads(&place) > 256 << 10);
        let stats = place.stats();
        assert_eq!(stats["flash_write_left_bytes"], Value::Null, "{preset}");
        assert_eq!(place.read_all(BYTES), load::initial(0, BYTES), "{preset}");
        server.stop();
    }
}

#[test]
fn writes_reach_the_origin_without_a_copy_on_flash_when_much_is_owed() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = ["--workers", "1", "--flash-write-budget", "1MB/day"];
    let server = Server::start(&place.serve_preset("sce", &words));
    // What a command warms is written whatever the budget is.
    place.ask(&["warm", "0+1MiB"]).ok();
    assert_eq!(ask(&place, &["cached", "0+1MiB"])["cached_bytes"], 1 << 20);
    let before = place.stat("flash_write_bytes");
    let mut client = place.client();
    for page in 0..64 {
        client.write_at(page * 4096, &[page as u8; 4096], false).unwrap();
    }
    assert!(place.stat("write_arounds") >= 64);
    // Records of the journal.
    assert!(place.stat("flash_write_bytes") - before < 256 << 10);
    let mut bytes = vec![0; 64 * 4096];
    client.read_at(0, &mut bytes).unwrap();
    assert!(bytes.chunks(4096).enumerate().all(|(page, of)| of == [page as u8; 4096]));
    server.stop();
}

#[test]
fn a_budget_in_sizes_of_the_device_follows_the_device() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&place.serve_preset("sce", &["--flash-write-budget", "0.5DWPD"]));
    let device = std::fs::metadata(place.path("flash")).unwrap().len();
    let budget = || ask(&place, &["status"])["flash_write_budget_bytes"].clone();
    assert_eq!(budget(), device / 2);
    place.ask(&["detach"]).ok();
    assert_eq!(budget(), Value::Null);
    let printed = place.ask(&["set", "--print-config"]).ok();
    assert!(printed.contains("flash_write_budget = \"0.5DWPD\""), "{printed:?}");
    assert_eq!(ask(&place, &["set"])["flash_write_budget"], json!({ "drives": 0.5 }));
    for bad in ["1", "0DWPD", "-1DWPD", "1GB", "1GB/h", "nanDWPD", "2000DWPD", "1/day", ""] {
        let said = larder_says(&["set", &format!("--flash-write-budget={bad}")]);
        assert!(
            said.code == 2 && said.err.contains("1DWPD") || said.err.contains("accepted"),
            "{bad}: {said:?}"
        );
    }
    server.stop();
}
