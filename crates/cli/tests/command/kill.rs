// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server that is killed loses nothing that it answered: after `kill -9` at any moment the
//! origin file alone holds, in every sector, the last answered write or a later one, whole; and a
//! new server on the same files, cold, serves just that. Sockets that were left behind are
//! replaced.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use larder_testkit::command::{PATIENCE, make_initial};
use larder_testkit::load::{Judge, Load, Shape};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::{FlockOperation, flock};

const BYTES: u64 = 4 << 20;

fn shape(clients: usize, depth: usize, seed: u64) -> Shape {
    Shape { bytes: BYTES, hot_bytes: BYTES / 3, clients, depth, reads: 30, seed }
}

/// Reads the origin file once nothing of the dead server writes to it any more; how long that
/// took. Its locks end with the last of its operations in the kernel.
fn read_origin(place: &Place) -> (Vec<u8>, Duration) {
    let path = place.path("origin");
    let (file, begin) = (File::open(&path).unwrap(), Instant::now());
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        assert!(begin.elapsed() < PATIENCE, "the dead server's lock stays");
        std::thread::sleep(Duration::from_millis(1));
    }
    (std::fs::read(&path).unwrap(), begin.elapsed())
}

/// A dozen lives of one volume, each ended at a random moment.
fn lives(workers: &str, depth: usize, seed: u64) {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = place.serve_cached(4, &["--workers", workers]);
    let judge = Judge::new();
    judge.may_break.store(true, Ordering::SeqCst);
    let mut random = Pcg64::seed_from_u64(seed);
    let mut longest = Duration::ZERO;
    for round in 0..12 {
        let server = Server::restart(&words);
        assert_eq!(place.stat("units_used"), 0, "flash is cold");
        let shape = shape(4, depth, seed << 8 | round);
        let load = Load::start(&place.uri(), &shape, &judge);
        if round % 3 > 0 {
            load.progress(1);
        }
        std::thread::sleep(Duration::from_micros(random.random_range(0..250_000)));
        server.kill();
        load.finish();
        let (origin, waited) = read_origin(&place);
        longest = longest.max(waited);
        judge.seen(0, &origin);
        // A new server replaces the sockets that the dead one left, and serves what is there.
        assert!(place.path("nbd").exists() && place.path("control").exists());
        let server = Server::restart(&words);
        let served = place.read_all(BYTES);
        assert!(served == origin, "what is served is not what lies on the origin");
        server.kill();
        assert!(std::fs::read(place.path("origin")).unwrap() == origin, "reads changed the origin");
    }
    judge.verdict();
    println!("locks of a killed server lasted up to {longest:?}");
}

#[test]
fn a_killed_server_loses_nothing_that_it_answered() {
    lives("1", 4, 1);
}

#[test]
fn three_killed_workers_lose_nothing_that_they_answered() {
    lives("3", 32, 2);
}

/// With devices in the page cache's way (no direct I/O) a kill keeps the same promise.
#[test]
fn a_killed_server_on_a_file_system_in_memory_loses_nothing() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return println!("skipped: no /dev/shm") };
    let place = Place::new();
    let origin = dir.path().join("origin");
    make_initial(&origin, BYTES);
    let (origin_word, flash) = (origin.to_str().unwrap(), dir.path().join("flash"));
    let words = place.serve(&[
        "--origin",
        origin_word,
        "--flash",
        flash.to_str().unwrap(),
        "--flash-size",
        "4MiB",
        "--unit",
        "64KiB",
        "--workers",
        "2",
    ]);
    let judge = Judge::new();
    judge.may_break.store(true, Ordering::SeqCst);
    for round in 0..4 {
        let server = Server::restart(&words);
        let load = Load::start(&place.uri(), &shape(4, 8, round), &judge);
        load.progress(20);
        server.kill();
        load.finish();
        judge.seen(0, &std::fs::read(&origin).unwrap());
    }
    judge.verdict();
}

/// A supervisor restarts at once; what the kernel still has of the dead server must not be taken
/// for another server.
#[test]
fn a_restart_at_once_works() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = place.serve_cached(4, &["--workers", "2"]);
    let judge = Judge::new();
    judge.may_break.store(true, Ordering::SeqCst);
    for round in 0..8 {
        let server = Server::start(&words);
        let load = Load::start(&place.uri(), &shape(4, 16, round), &judge);
        load.progress(20);
        server.kill();
        load.finish();
    }
    judge.seen(0, &read_origin(&place).0);
    judge.verdict();
}

/// Devices and sockets that another server uses are refused, with exit code 4.
#[test]
fn what_a_live_server_holds_is_refused() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    place.file("other", BYTES);
    let server = Server::start(&place.serve_cached(4, &[]));
    let refused = |words: &[String], what: &str| {
        let Err(ended) = Server::try_start(words) else { panic!("{words:?} was served") };
        assert_eq!(ended.code, 4, "{ended:?}");
        assert!(ended.err.lines().last().unwrap().contains(what), "{ended:?}");
    };
    refused(&place.serve_cached(4, &[]), "in use");
    let elsewhere = |listen: &str, control: &str, more: &[&str]| {
        let listen = format!("nbd+unix:{}", place.word(listen));
        let control = place.word(control);
        let mut words = vec!["serve", "--listen", &listen, "--control", &control];
        words.extend(more);
        words.iter().map(|&w| w.to_owned()).collect::<Vec<_>>()
    };
    let (other, flash) = (place.word("other"), place.word("flash"));
    let with_flash = ["--origin", &other, "--flash", &flash];
    refused(&elsewhere("nbd2", "control2", &with_flash), "in use");
    refused(&elsewhere("nbd", "control2", &["--origin", &other]), "another server listens there");
    refused(&elsewhere("nbd2", "control", &["--origin", &other]), "another server listens there");
    for left in ["nbd2", "control2"] {
        assert!(!place.path(left).exists(), "{left} was left behind by a refused start");
    }
    let judge = Judge::new();
    let load = Load::start(&place.uri(), &shape(2, 2, 9), &judge);
    load.progress(20);
    let judge: Arc<Judge> = load.finish();
    judge.verdict();
    server.stop();
}
