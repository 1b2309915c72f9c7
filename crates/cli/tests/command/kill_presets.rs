// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kill -9` under judged load with every preset that writes through, through every front and over every kind of
//! origin: the origin alone holds, in every sector, the last answered write or a later one, whole,
//! and a new server on the same files serves just that. More lives of one volume are in `kill.rs`.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use larder_nbd::uri::Uri;
use larder_testkit::command::{PATIENCE, PRESETS, connect, make_initial};
use larder_testkit::fuse::{self, Mounted, can_mount};
use larder_testkit::load::{Judge, Load, Shape, eventually};
use larder_testkit::place::Place;
use larder_testkit::server::{Server, only_child};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, kill_process};

const BYTES: u64 = 4 << 20;
/// Lives of each volume.
const LIVES: u64 = 3;

/// A way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Unix,
    Tcp,
    Fuse,
}

fn start(place: &Place, front: Front, server: &Server, seed: u64, judge: &Arc<Judge>) -> Load {
    let (clients, depth, reads) = (4, 8, 30);
    let shape = Shape { bytes: BYTES, hot_bytes: BYTES / 3, clients, depth, reads, seed };
    match front {
        Front::Unix => Load::start(&place.uri(), &shape, judge),
        Front::Tcp => Load::start(&door(server), &shape, judge),
        Front::Fuse => Load::over_file(&place.path("vol"), &shape, judge),
    }
}

/// The second listener's address, which is one of NBD.
fn door(server: &Server) -> Uri {
    server.addresses()[1].parse().unwrap()
}

/// What lies in the file once nothing of the dead server writes to it any more.
fn settled(place: &Place) -> Vec<u8> {
    let file = File::open(place.path("origin")).unwrap();
    eventually("its lock goes", || flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
    std::fs::read(place.path("origin")).unwrap()
}

/// Some lives of a volume; `origin` brings what lies on the origin, when the server is dead.
fn lives(place: &Place, words: &[String], front: Front, seed: u64, origin: impl Fn() -> Vec<u8>) {
    let judge = Judge::new();
    judge.may_break.store(true, Ordering::SeqCst);
    let mut random = Pcg64::seed_from_u64(seed);
    for round in 0..LIVES {
        let server = Server::restart(words);
        assert_eq!(place.stat("units_used"), 0, "flash is cold");
        let load = start(place, front, &server, seed << 8 | round, &judge);
        load.progress(3);
        std::thread::sleep(Duration::from_micros(random.random_range(0..150_000)));
        server.kill();
        load.finish();
        let found = origin();
        judge.seen(0, &found);
        let server = Server::restart(words);
        let mut served = vec![0; BYTES as usize];
        place.client().read_at(0, &mut served).unwrap();
        assert!(served == found, "what is served is not what lies on the origin");
        if front == Front::Fuse {
            assert_eq!(Mounted::count(&place.path("vol")), 1);
        }
        // The last server ends well, and leaves no mount.
        if round + 1 < LIVES { server.kill() } else { drop(server.stop()) }
    }
    judge.verdict();
}

/// Every preset through one front, its origin a file.
fn presets(front: Front, seed: u64) {
    let begin = Instant::now();
    for (n, preset) in (0..).zip(PRESETS) {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let file = format!("fuse:{}", place.word("vol"));
        let more = match front {
            Front::Unix => &[][..],
            Front::Tcp => &["--listen", "nbd://127.0.0.1:0"],
            Front::Fuse => &["--listen", &file],
        };
        let words = place.serve_preset(preset, &[&["--workers", "2"], more].concat());
        lives(&place, &words, front, seed + n, || settled(&place));
    }
    println!("{front:?}: {:?}", begin.elapsed());
}

#[test]
fn every_preset_by_a_unix_socket() {
    presets(Front::Unix, 100);
}

#[test]
fn every_preset_by_tcp() {
    presets(Front::Tcp, 200);
}

#[test]
fn every_preset_by_a_file() {
    if can_mount() {
        presets(Front::Fuse, 300);
    }
}

/// The words for another origin than the file itself.
fn over(mut words: Vec<String>, origin: &str) -> Vec<String> {
    let at = words.iter().position(|word| word == "--origin").unwrap();
    words[at + 1] = origin.to_owned();
    words
}

#[test]
fn every_preset_over_a_slow_origin() {
    for (n, preset) in (0..).zip(PRESETS) {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let slow = format!("slow+{}?profile=ssd-s3500", place.word("origin"));
        let words = over(place.serve_preset(preset, &[]), &slow);
        lives(&place, &words, Front::Unix, 400 + n, || settled(&place));
    }
}

/// The origin is the export of a server that lives on.
#[test]
fn every_preset_over_an_export() {
    for (n, preset) in (0..).zip(PRESETS) {
        let (far, place) = (Place::new(), Place::new());
        make_initial(&far.path("origin"), BYTES);
        let server = Server::start(&far.serve(&["--origin", &far.word("origin")]));
        let words = over(place.serve_preset(preset, &[]), &far.uri_word());
        lives(&place, &words, Front::Unix, 500 + n, || {
            // Until the dead server's requests have ended.
            eventually("its connections end", || far.status()["connections"] == 0);
            let mut found = vec![0; BYTES as usize];
            connect(&far.uri()).read_at(0, &mut found).unwrap();
            assert!(std::fs::read(far.path("origin")).unwrap() == found);
            found
        });
        server.stop();
    }
}

/// A server that is killed with its helper leaves its mount, and below it the empty file that the helper made. The next
/// server accepts both, also after a user unmounted the dead mount.
#[test]
fn what_a_killed_server_leaves_at_its_path_is_used_again() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let words = fuse::fuse_words(&place, "vol", &["--origin", "mem:1MiB"]);
    let path = place.path("vol");
    for by_hand in [false, true] {
        let server = Server::start(&words);
        let helper = only_child(place.status()["pid"].as_u64().unwrap());
        kill_process(helper, Signal::KILL).unwrap();
        server.kill();
        if by_hand {
            while Mounted::count(&path) > 0 {
                fuse::output("umount", &["-l", path.to_str().unwrap()]);
            }
            assert_eq!(path.metadata().unwrap().len(), 0, "an empty file is left");
        }
        let begin = Instant::now();
        let server = Server::start(&words);
        assert!(begin.elapsed() < PATIENCE / 4);
        assert_eq!(fuse::open(&place, "vol").metadata().unwrap().len(), 1 << 20);
        server.stop();
        assert_eq!(Mounted::count(&path), 0);
        // What it did not make itself it leaves as it was.
        assert_eq!(path.metadata().unwrap().len(), 0);
        std::fs::remove_file(&path).unwrap();
    }
}
