// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--verify`: bits of random places of a served flash flip under load. No wrong byte reaches a client, and what was read
//! of them is counted. LARDER_TEST_FLIPS: flips of each preset (1000).
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use larder_core::buf::Buf;
use larder_core::request::Errno;
use larder_testkit::command::make_initial;
use larder_testkit::load::{self, Judge, Load, Shape, Tolerance, eventually};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::OFlags;

const BYTES: u64 = 8 << 20;
const FLASH: u64 = 16 << 20;
/// Labels and metadata are before this.
const DATA_AT: u64 = 3 << 20;
const PAGE: u64 = 4096;
const UNIT: u64 = 64 << 10;
/// Population that a short load sees.
const UPDATE: [&str; 4] = ["--update-period", "100ms", "--update-hot", "30"];

fn flips() -> u64 {
    std::env::var("LARDER_TEST_FLIPS").map_or(1000, |flips| flips.parse().unwrap())
}

fn serve(place: &Place, preset: &str, more: &[&str]) -> Server {
    let (origin, flash) = (place.word("origin"), place.word("flash"));
    let places = ["--origin", &origin, "--flash", &flash, "--preset", preset];
    let own = ["--workers", "2", "--flash-size", "16MiB"];
    Server::start(&place.serve(&[&places[..], &own, more].concat()))
}

/// The flash file, past the page cache if its file system can do that: direct writes of the server that collide with buffered
/// ones fail.
fn open_flash(place: &Place) -> File {
    let open = |flags: OFlags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags.bits() as i32);
        options.open(place.path("flash"))
    };
    open(OFlags::DIRECT).or_else(|_| open(OFlags::empty())).unwrap()
}

/// Flips a bit of a page; returns what the page held.
fn flip(flash: &File, page: u64, bit: u64) -> Vec<u8> {
    let mut bytes = Buf::zeroed(PAGE as usize);
    flash.read_exact_at(&mut bytes, page).unwrap();
    let was = bytes.to_vec();
    bytes[(bit / 8 % PAGE) as usize] ^= 1 << (bit % 8);
    flash.write_all_at(&bytes, page).unwrap();
    was
}

/// Flips under a load of writes and judged reads.
fn under_load(place: &Place, flash: &File, only_on_flash: bool, seed: u64) {
    let judge = Judge::new();
    let any = Tolerance { range: 0..BYTES, flushes: true, errno: Errno::EIO };
    judge.tolerate(only_on_flash.then_some(any));
    let (clients, depth, reads, hot_bytes) = (4, 4, 60, BYTES / 2);
    let shape = Shape { bytes: BYTES, hot_bytes, clients, depth, reads, seed };
    let load = Load::start(&place.uri(), &shape, &judge);
    let mut random = Pcg64::seed_from_u64(seed);
    for number in 0..flips() {
        let page = random.random_range(DATA_AT / PAGE..FLASH / PAGE) * PAGE;
        flip(flash, page, random.random_range(0..PAGE * 8));
        // The clients continue meanwhile.
        if number % 20 == 19 {
            load.progress(8);
        }
    }
    load.finish().verdict();
}

/// The pages of flash.
fn pages(flash: &File) -> Vec<Vec<u8>> {
    let mut page = Buf::zeroed(PAGE as usize);
    let mut read = |at| {
        flash.read_exact_at(&mut page, at).unwrap();
        page.to_vec()
    };
    (0..FLASH).step_by(PAGE as usize).map(&mut read).collect()
}

/// Flips while no client writes, one in each unit: as many pages are counted as are written to flash again when all is read.
fn at_rest(place: &Place, flash: &File, content: &[u8], seed: u64) {
    place.ask(&["warm", "--all"]).ok();
    let settled = || {
        assert!(place.read_all(BYTES) == content);
        let before = place.stat("damaged_pages");
        assert!(place.read_all(BYTES) == content);
        place.stat("damaged_pages") == before
    };
    eventually("what was damaged before is whole", settled);
    let (before, mut random) = (place.stat("damaged_pages"), Pcg64::seed_from_u64(seed));
    let mut was = HashSet::new();
    for unit in (DATA_AT..FLASH).step_by(UNIT as usize) {
        let page = unit + random.random_range(0..UNIT / PAGE) * PAGE;
        was.insert(flip(flash, page, random.random_range(0..PAGE * 8)));
    }
    let flipped = pages(flash);
    eventually("all was read", settled);
    let counted = place.stat("damaged_pages") - before;
    assert!(counted > 20, "{counted}");
    // Some presets write them at another place, and only when they are missed.
    eventually("as many are written again as were counted", || {
        assert!(place.read_all(BYTES) == content);
        let changed = pages(flash).into_iter().zip(&flipped).filter(|(now, then)| now != *then);
        changed.filter(|(now, _)| was.contains(now)).count() as u64 == counted
    });
}

fn lives(preset: &str, more: &[&str], only_on_flash: bool, seed: u64) {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = serve(&place, preset, more);
    let flash = open_flash(&place);
    under_load(&place, &flash, only_on_flash, seed);
    let damaged = place.stat("damaged_pages");
    println!("{preset}: {} flips under load, {damaged} damaged pages read", flips());
    assert!(damaged > flips() / 100, "{preset}: {damaged}");
    // What was lost is written again, and on the origin too.
    let content = load::initial(9, BYTES);
    let mut client = place.client();
    for at in (0..BYTES).step_by(UNIT as usize) {
        client.write_at(at, &content[at as usize..][..UNIT as usize], false).unwrap();
    }
    place.ask(&["flush"]).ok();
    // A page log, and a cache with periodic update, keep no place for a page that is damaged.
    if !["face", "proc"].contains(&preset) {
        at_rest(&place, &flash, &content, seed);
    }
    assert!(place.read_all(BYTES) == content, "{preset}");
    server.stop();
}

#[test]
fn caches_whose_origin_has_all_data() {
    let verify = ["--verify", "on", "--unit", "64KiB"];
    let presets = ["larder", "sce", "slru", "flashcache", "enhanceio", "bcache"];
    for (seed, preset) in (0..).zip(presets) {
        lives(preset, &verify, false, seed);
    }
    lives("proc", &[&verify[..], &UPDATE].concat(), false, 10);
}

#[test]
fn caches_that_own_data() {
    lives("prwc", &[&["--verify", "on", "--unit", "64KiB"][..], &UPDATE].concat(), true, 20);
    let write_back = ["--verify", "on", "--write-policy", "write-back"];
    for (seed, preset) in (21..).zip(["flashcache", "bcache"]) {
        lives(preset, &write_back, true, seed);
    }
    lives("face", &["--write-policy", "full", "--batch-pages", "8"], true, 24);
}
