// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tier of RAM over flash: it serves hits, and never older bytes than flash.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use larder_testkit::command::{larder_says, make_initial};
use larder_testkit::place::Place;
use larder_testkit::server::Server;

const BYTES: u64 = 4 << 20;
const PAGE: u64 = 4096;

#[test]
fn reads_that_hit_come_from_ram_and_have_what_was_written_last() {
    for preset in ["flashcache", "prwc"] {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let state = place.word("state");
        let more = ["--state", &state, "--workers", "2", "--ram", "8MiB"];
        let server = Server::start(&place.serve_preset(preset, &more));
        let mut client = place.client();
        let mut expected = place.read_all(BYTES);
        for round in 0..40_u8 {
            for page in (u64::from(round) % 4..BYTES / PAGE).step_by(4) {
                let bytes = vec![round ^ page as u8; PAGE as usize];
                client.write_at(page * PAGE, &bytes, false).unwrap();
                let at = (page * PAGE) as usize;
                expected[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            for _ in 0..2 {
                assert!(place.read_all(BYTES) == expected, "{preset}, round {round}");
            }
        }
        if preset == "flashcache" {
            let mut bytes = vec![0; PAGE as usize];
            let before = place.stat("ram_reads");
            (0..200).for_each(|_| client.read_at(0, &mut bytes).unwrap());
            let served = place.stat("ram_reads") - before;
            assert!(served > 100 && served <= place.stat("read_hits"), "{served} of 200 reads");
        }
        drop(server.stop());
    }
}

#[test]
fn a_page_log_has_no_tier_of_ram() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = place.serve_preset("face", &["--ram", "1MiB"]);
    let ended = larder_says(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(ended.err.contains("--ram: a page log has no tier of RAM"), "{ended:?}");
}
