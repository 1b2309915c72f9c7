// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGTERM stops a server cleanly: requests in flight are finished, acknowledged writes are on the origin, sockets are
//! removed, the exit code is 0. A second signal, or the end of the time limit, stops it at once.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use larder_core::request::Kind;
use larder_nbd::client::{Receiver, Sender};
use larder_testkit::command::{PATIENCE, larder, make_initial};
use larder_testkit::load::{Judge, Load, Shape, eventually, initial};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::process::{Pid, Signal, kill_process};

const BYTES: u64 = 4 << 20;

/// Stops a server a dozen times under load.
fn stops(workers: &str, clients: usize, depth: usize, signal: Signal) {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let words = place.serve_cached(4, &["--workers", workers]);
    let judge = Judge::new();
    judge.may_break.store(true, Ordering::SeqCst);
    let mut random = Pcg64::seed_from_u64(depth as u64);
    for seed in 0..12 {
        let mut server = Server::start(&words);
        let shape = Shape { bytes: BYTES, hot_bytes: BYTES / 3, clients, depth, reads: 30, seed };
        let load = Load::start(&place.uri(), &shape, &judge);
        load.progress(2);
        std::thread::sleep(Duration::from_micros(random.random_range(0..100_000)));
        let begin = Instant::now();
        server.signal(signal);
        let ended = server.wait(PATIENCE);
        assert_eq!(ended.code, 0, "{ended:?}");
        // A drain without requests to wait for ends long before its 30 s.
        assert!(begin.elapsed() < Duration::from_secs(15), "{:?}: {ended:?}", begin.elapsed());
        assert!(ended.err.contains("larder: stopping"), "{ended:?}");
        let last = ended.err.lines().last().unwrap();
        assert!(last.contains("all acknowledged writes are on the origin"), "{ended:?}");
        for socket in ["nbd", "control"] {
            assert!(!place.path(socket).exists(), "{socket} is left behind");
        }
        load.finish();
        judge.seen(0, &std::fs::read(place.path("origin")).unwrap());
    }
    judge.verdict();
}

#[test]
fn sigterm_under_load_is_a_good_end() {
    stops("1", 4, 4, Signal::TERM);
}

#[test]
fn sigterm_of_three_workers_under_load_is_a_good_end() {
    stops("3", 8, 32, Signal::TERM);
}

#[test]
fn sigint_is_as_good() {
    stops("2", 4, 8, Signal::INT);
}

#[test]
fn an_idle_server_with_idle_clients_stops_at_once() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let server = Server::start(&place.serve_cached(4, &["--workers", "3"]));
    let clients: Vec<_> = (0..5).map(|_| place.client()).collect();
    let half = std::os::unix::net::UnixStream::connect(place.path("nbd")).unwrap();
    let begin = Instant::now();
    server.stop();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    drop((clients, half));
}

/// A server with many seconds of reads in flight on a modelled disk.
fn busy_server(place: &Place, more: &[&str]) -> (Server, Vec<(Sender, Receiver)>) {
    let bytes: u64 = 64 << 30;
    place.file("disk", bytes);
    let disk = format!("slow+{}?profile=hdd-7200", place.word("disk"));
    let mut words = place.serve(&["--origin", &disk, "--workers", "2"]);
    words.extend(more.iter().map(|&w| w.to_owned()));
    let server = Server::start(&words);
    let mut random = Pcg64::seed_from_u64(1);
    let halves = (0..40).map(|_| {
        let (mut sender, receiver) = place.client().split();
        for _ in 0..100 {
            let offset = random.random_range(0..bytes / 4096) * 4096;
            sender.queue(Kind::Read, offset, 4096, &[]).unwrap();
        }
        sender.push().unwrap();
        (sender, receiver)
    });
    let halves = halves.collect();
    eventually("the requests are there", || {
        place.status()["requests_open"].as_u64().unwrap() > 3000
    });
    (server, halves)
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let place = Place::new();
    let (mut server, clients) = busy_server(&place, &[]);
    server.signal(Signal::TERM);
    eventually("it reports progress", || server.log().contains("have requests in flight"));
    assert!(server.is_alive(), "{}", server.log());
    assert!(!place.path("nbd").exists(), "a stopping server takes no new clients");
    let begin = Instant::now();
    server.signal(Signal::TERM);
    let ended = server.wait(PATIENCE);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}: {ended:?}", begin.elapsed());
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.err.lines().last().unwrap().starts_with("larder: stopped"), "{ended:?}");
    assert!(!place.path("control").exists());
    drop(clients);
}

#[test]
fn a_drain_that_takes_too_long_is_given_up() {
    let place = Place::new();
    let (mut server, clients) = busy_server(&place, &["--drain", "1s"]);
    let begin = Instant::now();
    server.signal(Signal::TERM);
    let ended = server.wait(PATIENCE);
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}: {ended:?}", begin.elapsed());
    assert_eq!(ended.code, 3, "{ended:?}");
    drop(clients);
}

/// A request of thousands of pieces is answered to its end: no worker leaves while another may
/// still send it work.
#[test]
fn a_long_request_is_answered_before_the_end() {
    let place = Place::new();
    place.file("origin", 64 << 30);
    let origin = place.word("origin");
    let words = place.serve(&["--origin", &origin, "--unit", "64KiB", "--workers", "4"]);
    for _ in 0..4 {
        let mut server = Server::start(&words);
        let (mut sender, mut receiver) = place.client().split();
        let kind = Kind::Zero { fua: false, may_unmap: true };
        sender.submit(kind, 0, (4 << 30) - (64 << 10), &[]).unwrap();
        eventually("it is there", || place.status()["requests_open"].as_u64().unwrap() > 0);
        server.signal(Signal::TERM);
        receiver.wait().unwrap().result.unwrap();
        let ended = server.wait(PATIENCE);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
}

/// A client with replies to read who sends more than the server takes in, and does not read.
fn stuck_client(place: &Place) -> (std::thread::JoinHandle<()>, Receiver) {
    let (mut sender, receiver) = place.client().split();
    for _ in 0..24 {
        sender.submit(Kind::Read, 0, 1 << 20, &[]).unwrap();
    }
    eventually("the requests are there", || place.stat("reads") >= 24);
    let sends = std::thread::spawn(move || {
        let data = initial(0, 1 << 20);
        while sender.submit(Kind::Write { fua: false }, 0, 1 << 20, &data).is_ok() {}
    });
    eventually("the server takes no more in", || {
        let before = place.stat("writes");
        std::thread::sleep(Duration::from_millis(100));
        place.stat("writes") == before
    });
    (sends, receiver)
}

/// A client that does not read while it sends, as the server does not read while it stops: neither
/// waits for ever.
#[test]
fn clients_that_send_before_they_read_are_given_up_in_time() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let origin = place.word("origin");
    let mut server = Server::start(&place.serve(&["--origin", &origin, "--drain", "2s"]));
    let (sends, receiver) = stuck_client(&place);
    let begin = Instant::now();
    server.signal(Signal::TERM);
    let ended = server.wait(PATIENCE);
    assert!(ended.code == 0 || ended.code == 3, "{ended:?}");
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}: {ended:?}", begin.elapsed());
    sends.join().unwrap();
    drop(receiver);
}

/// The second signal works when nothing else happens, too.
#[test]
fn a_second_signal_ends_it_while_a_client_does_not_read() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let mut server = Server::start(&place.serve(&["--origin", &place.word("origin")]));
    let (sends, receiver) = stuck_client(&place);
    server.signal(Signal::TERM);
    eventually("it stops", || server.log().contains("larder: stopping"));
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    server.signal(Signal::TERM);
    let ended = server.wait(PATIENCE);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}: {ended:?}", begin.elapsed());
    sends.join().unwrap();
    drop(receiver);
}

/// The reader of the log is gone (a supervisor that restarts, `| head`): the server stops cleanly.
#[test]
fn a_lost_log_changes_nothing() {
    let place = Place::new();
    let words = place.serve(&["--origin", "mem:8MiB"]);
    let mut command = larder(&words);
    let mut child = command.env("LARDER_LOG", "info").stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("ready at") {
        line.clear();
        assert!(log.read_line(&mut line).unwrap() > 0, "it ended before it was ready");
    }
    drop(log);
    place.client().flush().unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let begin = Instant::now();
    let status = loop {
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    assert!(!place.path("nbd").exists() && !place.path("control").exists());
}

/// Replies that are on their way when the signal comes reach a client that is slow to read.
#[test]
fn replies_under_way_are_sent_to_their_end() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let mut server = Server::start(&place.serve(&["--origin", &place.word("origin")]));
    let (mut sender, mut receiver) = place.client().split();
    for _ in 0..24 {
        sender.submit(Kind::Read, 0, 1 << 20, &[]).unwrap();
    }
    eventually("the requests are there", || place.stat("reads") >= 24);
    server.signal(Signal::TERM);
    eventually("it stops", || server.log().contains("larder: stopping"));
    std::thread::sleep(Duration::from_millis(100));
    for n in 0..24 {
        let completion = receiver.wait().unwrap_or_else(|e| panic!("reply {n}: {e}"));
        assert!(completion.result.unwrap() == initial(0, 1 << 20));
    }
    let ended = server.wait(PATIENCE);
    assert_eq!(ended.code, 0, "{ended:?}");
}

/// Clients that neither read their replies nor go away do not keep a server.
#[test]
fn clients_that_do_not_read_do_not_keep_it() {
    let place = Place::new();
    place.file("origin", 64 << 20);
    let words = place.serve(&["--origin", &place.word("origin"), "--drain", "2s"]);
    let mut server = Server::start(&words);
    let (mut sender, receiver) = place.client().split();
    for _ in 0..24 {
        sender.submit(Kind::Read, 0, 1 << 20, &[]).unwrap();
    }
    eventually("the requests are there", || place.stat("reads") >= 24);
    let begin = Instant::now();
    server.signal(Signal::TERM);
    let ended = server.wait(PATIENCE);
    assert!(begin.elapsed() < Duration::from_secs(12), "{:?}: {ended:?}", begin.elapsed());
    assert!(ended.code == 0 || ended.code == 3, "{ended:?}");
    assert!(!ended.err.contains("panicked"), "{ended:?}");
    drop((sender, receiver));
}
