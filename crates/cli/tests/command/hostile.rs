// SPDX-License-Identifier: MIT OR Apache-2.0
//! A live server against hostile clients: garbage, handshakes that hang, crowds, broken writes, absurd lengths, floods
//! of requests whose replies the client does not read. Other clients are served meanwhile, memory stays bounded, and
//! the server works afterwards as before.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use larder_core::request::Kind;
use larder_front::listen::MOST_NEGOTIATING;
use larder_nbd::client::{Client, Options};
use larder_testkit::command::{PATIENCE, make_initial};
use larder_testkit::load::{eventually, initial};
use larder_testkit::place::Place;
use larder_testkit::raw::{READ, TRIM, WRITE, ZERO, negotiate, option, request};
use larder_testkit::server::Server;
use larder_volume::peer::MOST_CONNECTIONS;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

const BYTES: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

struct Rig {
    place: Place,
    server: Server,
}

impl Rig {
    fn new() -> Self {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = Server::start(&place.serve_cached(8, &["--workers", "2"]));
        Self { place, server }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.place.path("nbd")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// A connection behind the handshake of the oldest kind, ready for raw requests.
    fn negotiated(&self) -> UnixStream {
        let mut stream = self.connect();
        assert_eq!(negotiate(&mut stream).unwrap(), BYTES);
        stream
    }

    /// An honest client is served: what is asked here is answered, and right.
    fn others_are_served(&self) {
        let mut client = self.place.client();
        let mut bytes = vec![0; 64 << 10];
        client.read_at(0, &mut bytes).unwrap();
        assert!(bytes == initial(0, 64 << 10));
        client.write_at(BYTES - MIB, &initial(BYTES - MIB, MIB), true).unwrap();
        client.flush().unwrap();
        client.disconnect().unwrap();
    }

    /// Nothing is left of the hostile, nothing is broken, nothing was changed.
    fn end(mut self) {
        assert!(self.server.is_alive(), "{}", self.server.log());
        eventually("all connections are gone", || self.place.status()["connections"] == 0);
        let status = self.place.status();
        assert_eq!((&status["state"], &status["requests_open"]), (&"caching".into(), &0.into()));
        self.others_are_served();
        assert!(!self.server.log().contains("panicked"), "{}", self.server.log());
        self.server.stop();
        assert!(std::fs::read(self.place.path("origin")).unwrap() == initial(0, BYTES));
    }
}

/// Whether the server closes the connection in time.
fn is_closed(mut stream: UnixStream, patience: Duration) -> bool {
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(e) => !matches!(e.kind(), std::io::ErrorKind::WouldBlock),
    }
}

#[test]
fn garbage_in_place_of_a_handshake_ends_its_connection_only() {
    let rig = Rig::new();
    let mut random = Pcg64::seed_from_u64(1);
    for round in 0..200 {
        let mut stream = rig.connect();
        let mut bytes = vec![0; random.random_range(1..5000)];
        random.fill_bytes(&mut bytes);
        let mut start = Vec::new();
        match round % 6 {
            0 => {}
            1 => start.extend(b"GET / HTTP/1.1\r\nHost: larder\r\n\r\n"),
            2 => start.extend(3_u32.to_be_bytes()),
            3 => start.extend([&3_u32.to_be_bytes()[..], &option(7, u32::MAX)].concat()),
            4 => start.extend([&3_u32.to_be_bytes()[..], &option(7, 600)].concat()),
            _ => {
                start.extend(3_u32.to_be_bytes());
                (0..500).for_each(|_| start.extend(option(random.random_range(0..30), 0)));
            }
        }
        start.extend(bytes);
        let _ = stream.write_all(&start);
        let _ = stream.shutdown(Shutdown::Write);
        if round % 10 == 0 {
            assert!(is_closed(stream, PATIENCE), "round {round}");
            rig.others_are_served();
        }
    }
    rig.end();
}

#[test]
fn garbage_behind_the_handshake_ends_its_connection_only() {
    let rig = Rig::new();
    let mut random = Pcg64::seed_from_u64(2);
    for round in 0..100 {
        let mut stream = rig.negotiated();
        let mut bytes = vec![0; random.random_range(28..5000)];
        random.fill_bytes(&mut bytes);
        if round % 2 == 0 {
            stream.write_all(&request(READ, 0, 4096)).unwrap();
        }
        let _ = stream.write_all(&bytes);
        assert!(is_closed(stream, PATIENCE), "round {round}");
    }
    rig.end();
}

/// A client that hangs in the handshake delays no other, and is disconnected after ten seconds, even if it sends a byte
/// from time to time.
#[test]
fn hanging_handshakes_are_cut_off_and_others_are_served() {
    let rig = Rig::new();
    let mut random = Pcg64::seed_from_u64(3);
    let hanging: Vec<UnixStream> = (0..MOST_NEGOTIATING - 8)
        .map(|_| {
            let mut stream = rig.connect();
            let words = [&3_u32.to_be_bytes()[..], &option(7, 100), &[0; 50]].concat();
            let n = random.random_range(0..words.len());
            stream.write_all(&words[..n]).unwrap();
            stream
        })
        .collect();
    let mut dripping = rig.connect();
    dripping.write_all(&3_u32.to_be_bytes()).unwrap();
    let mut drips = option(3, 60_000).into_iter().chain(std::iter::repeat(0));
    let begin = Instant::now();
    let mut cut_off = false;
    while begin.elapsed() < Duration::from_secs(13) {
        rig.others_are_served();
        std::thread::sleep(Duration::from_millis(250));
        cut_off |= dripping.write_all(&[drips.next().unwrap()]).is_err();
    }
    for stream in hanging {
        assert!(is_closed(stream, Duration::from_secs(5)), "a hanging handshake is still there");
    }
    assert!(cut_off, "a dripping handshake is still there");
    rig.end();
}

/// More hanging handshakes than there is room for: clients that are served already notice nothing,
/// and new ones get in when the first have had their ten seconds.
#[test]
fn a_house_full_of_hanging_handshakes_empties_itself() {
    let rig = Rig::new();
    let mut inside = rig.place.client();
    // Its negotiation has ended for the server too when it gets an answer.
    inside.read_at(0, &mut [0; 4096]).unwrap();
    let hanging: Vec<UnixStream> = (0..2 * MOST_NEGOTIATING).map(|_| rig.connect()).collect();
    eventually("a new client gets in", || {
        inside.read_at(0, &mut [0; 4096]).unwrap();
        enter(&rig).is_some()
    });
    drop((hanging, inside));
    rig.end();
}

/// A client that was let in: it gets answers.
fn enter(rig: &Rig) -> Option<Client> {
    let options =
        Options { connect_timeout: PATIENCE, io_timeout: Some(PATIENCE), ..Options::default() };
    let mut client = Client::connect(&rig.place.uri(), &options).ok()?;
    client.read_at(0, &mut [0; 4096]).ok()?;
    Some(client)
}

#[test]
fn a_crowd_is_bounded_and_those_inside_are_served() {
    let rig = Rig::new();
    let mut inside: Vec<Client> = (0..MOST_CONNECTIONS + 44).filter_map(|_| enter(&rig)).collect();
    assert_eq!(inside.len(), MOST_CONNECTIONS);
    for client in &mut inside {
        client.read_at(0, &mut [0; 4096]).unwrap();
    }
    assert_eq!(rig.place.status()["connections"], MOST_CONNECTIONS);
    // Places are given back, however their holders leave.
    inside.truncate(MOST_CONNECTIONS / 2);
    inside.pop().unwrap().disconnect().unwrap();
    eventually("a place is free", || enter(&rig).is_some());
    rig.others_are_served();
    drop(inside);
    rig.end();
}

/// Thousands of short connections leave no thread, descriptor or memory behind.
#[test]
fn thousands_of_short_connections_leave_nothing_behind() {
    let rig = Rig::new();
    rig.others_are_served();
    let before = rig.server.memory("VmRSS");
    for round in 0..2000 {
        // Some disconnect at once, some after the handshake, some with a request in flight. A
        // connection that is too early may find the server full.
        let mut stream = rig.connect();
        if round % 4 == 0 && stream.read_exact(&mut [0; 18]).is_ok() {
            let words = [&3_u32.to_be_bytes()[..], &option(1, 0), &request(READ, 0, 65536)];
            let _ = stream.write_all(&words.concat());
        }
    }
    eventually("all connections are gone", || rig.place.status()["connections"] == 0);
    let grown = rig.server.memory("VmRSS").saturating_sub(before);
    assert!(grown < 100 * MIB, "{} MiB of memory stay", grown / MIB);
    rig.end();
}

/// A write whose payload breaks off writes nothing at all.
#[test]
fn broken_writes_write_nothing() {
    let rig = Rig::new();
    let mut random = Pcg64::seed_from_u64(4);
    let payload = vec![0xbd; 4 << 20];
    for _ in 0..200 {
        let mut stream = rig.negotiated();
        let len = random.random_range(1..=payload.len() / 512) * 512;
        let sent = random.random_range(0..len);
        stream.write_all(&request(WRITE, 512 * random.random_range(0..1000), len as u32)).unwrap();
        stream.write_all(&payload[..sent]).unwrap();
        if random.random() {
            stream.shutdown(Shutdown::Both).unwrap();
        }
    }
    rig.others_are_served();
    rig.end();
}

#[test]
fn absurd_lengths_are_answered_or_end_their_connection() {
    let rig = Rig::new();
    let most = u32::MAX;
    for (command, offset, len) in [
        (READ, 0, most),
        (READ, 0, most - 511),
        (READ, 0, 0),
        (READ, u64::MAX, 512),
        (READ, u64::MAX - 511, 512),
        (READ, BYTES, 512),
        (READ, 1, 512),
        (WRITE, u64::MAX - 511, 512),
        (WRITE, 0, most),
        (WRITE, 0, 33 << 20),
        (TRIM, 0, most),
        (TRIM, u64::MAX - 511, 512),
        (ZERO, BYTES - 512, most - 511),
        (ZERO, 0, 0),
        (99, 0, 512),
        (u16::MAX, u64::MAX, most),
    ] {
        let mut stream = rig.negotiated();
        stream.write_all(&request(command, offset, len)).unwrap();
        if command == WRITE && len < 64 << 20 {
            let _ = stream.write_all(&vec![0xbd; len as usize]);
        }
        // A lawful request behind it: either answered after an error, or the end.
        let _ = stream.write_all(&request(READ, 0, 512));
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        if command != WRITE || len < 64 << 20 {
            let error = u32::from_be_bytes(answer[4..8].try_into().unwrap());
            assert!(error > 0 || len == 0, "command {command} at {offset}+{len} succeeded");
            assert_eq!(answer.len(), 16 + 16 + 512, "command {command} at {offset}+{len}");
        }
        rig.others_are_served();
    }
    rig.end();
}

/// Sends requests until the server takes no more, and reads no reply; how many it took.
fn flood(stream: &mut UnixStream, command: u16, len: u32, count: usize) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut random = Pcg64::seed_from_u64(5);
    for n in 0..count {
        let offset = random.random_range(0..=(BYTES - u64::from(len)) / 512) * 512;
        if stream.write_all(&request(command, offset, len)).is_err() {
            return n;
        }
    }
    count
}

#[test]
fn floods_of_requests_without_reading_cost_bounded_memory() {
    let rig = Rig::new();
    rig.others_are_served();
    let before = rig.server.memory("VmRSS");
    let mut floods = Vec::new();
    for (len, count) in [(512, 50_000), (4096, 50_000), (64 << 10, 20_000), (1 << 20, 5000)] {
        let mut stream = rig.negotiated();
        let taken = flood(&mut stream, READ, len, count);
        assert!(taken < count, "{count} requests of {len} bytes were taken in");
        floods.push(stream);
        rig.others_are_served();
    }
    let mut stream = rig.negotiated();
    flood(&mut stream, READ, 32 << 20, 1000);
    floods.push(stream);
    rig.others_are_served();
    let grown = rig.server.memory("VmHWM").saturating_sub(before);
    println!("floods on five connections cost {} MiB", grown / MIB);
    assert!(grown < 300 * MIB, "{} MiB", grown / MIB);
    assert_eq!(rig.place.status()["connections"], 5);
    drop(floods);
    rig.end();
}

/// Floods of requests that carry nothing: trims and zeroings of whole gigabytes, and flushes.
#[test]
fn floods_of_long_trims_let_others_through() {
    let place = Place::new();
    place.file("origin", 64 << 30);
    let words = place.serve(&["--origin", &place.word("origin"), "--unit", "64KiB"]);
    let server = Server::start(&words);
    let before = server.memory("VmRSS");
    let (mut sender, mut receiver) = place.client().split();
    for i in 0..60 {
        let kind = if i % 2 == 0 {
            Kind::Trim { fua: false }
        } else {
            Kind::Zero { fua: false, may_unmap: true }
        };
        sender.submit(kind, i << 30, 1 << 30, &[]).unwrap();
    }
    let mut other = place.client();
    for _ in 0..10 {
        other.read_at(63 << 30, &mut [0; 4096]).unwrap();
        other.write_at(63 << 30, &[1; 4096], false).unwrap();
    }
    for _ in 0..60 {
        receiver.wait().unwrap().result.unwrap();
    }
    let grown = server.memory("VmHWM").saturating_sub(before);
    assert!(grown < 100 * MIB, "{} MiB", grown / MIB);
    drop((sender, receiver, other));
    server.stop();
}
