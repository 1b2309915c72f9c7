// SPDX-License-Identifier: MIT OR Apache-2.0
//! A live server against many hostile clients, one after the other: handshakes, requests after a handshake, and control
//! lines. Their bytes are inputs of the fuzz corpus, changed, and random pieces, the same in every run. Each connection
//! ends within a time limit, an honest client is served in between, and the server's memory stays bounded.
//!
//! Without variables a few hundred of each. `LARDER_HOSTILE_CLIENTS=100000 LARDER_HOSTILE_LINES=1000 cargo test --release -p
//! larder --test hostile_clients` sends so many.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use larder_front::control::wire::{Command, read_command};
use larder_testkit::command::{PATIENCE, make_initial};
use larder_testkit::fuzz::campaign::{Campaign, damaged};
use larder_testkit::fuzz::corpus;
use larder_testkit::load::eventually;
use larder_testkit::place::Place;
use larder_testkit::raw::negotiate;
use larder_testkit::server::Server;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

const BYTES: u64 = 16 << 20;
const MIB: u64 = 1 << 20;
const CLIENTS: Campaign = Campaign { variable: "LARDER_HOSTILE_CLIENTS", few: 300 };
const LINES: Campaign = Campaign { variable: "LARDER_HOSTILE_LINES", few: 300 };
/// Hostile clients between two honest ones.
const BETWEEN: u64 = 100;

struct Rig {
    place: Place,
    server: Server,
    before: u64,
}

impl Rig {
    fn new() -> Self {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let server = Server::start(&place.serve_cached(8, &["--workers", "2"]));
        let rig = Self { before: 0, place, server };
        rig.serves();
        Self { before: rig.server.memory("VmRSS"), ..rig }
    }

    fn connect(&self, socket: &str) -> UnixStream {
        let stream = UnixStream::connect(self.place.path(socket)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// An honest client reads, and what it writes is there.
    fn serves(&self) {
        let mut client = self.place.client();
        let mut bytes = vec![0; 64 << 10];
        client.read_at(0, &mut bytes).unwrap();
        client.write_at(BYTES - MIB, &[0x5a; 4096], true).unwrap();
        client.read_at(BYTES - MIB, &mut bytes[..4096]).unwrap();
        assert!(bytes[..4096].iter().all(|byte| *byte == 0x5a));
        client.disconnect().unwrap();
    }

    fn between(&mut self, number: u64) {
        if number.is_multiple_of(BETWEEN) {
            assert!(self.server.is_alive(), "before client {number}: {}", self.server.log());
            self.serves();
        }
    }

    fn end(mut self, what: &str, count: u64) {
        assert!(self.server.is_alive(), "{}", self.server.log());
        eventually("all connections are gone", || self.place.status()["connections"] == 0);
        self.serves();
        assert!(!self.server.log().contains("panicked"), "{}", self.server.log());
        let grown = self.server.memory("VmHWM").saturating_sub(self.before);
        assert!(grown < 200 * MIB, "{} MiB", grown / MIB);
        println!("{what}: {count} clients, {} MiB more than at the start", grown / MIB);
        self.server.stop();
    }
}

/// Sends the bytes while it reads, and waits for the end of the connection.
fn send(mut stream: UnixStream, bytes: &[u8], what: &str) -> Vec<u8> {
    let mut writer = stream.try_clone().unwrap();
    let mut answer = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The server may close before it has read all of it.
            let _ = writer.write_all(bytes);
            let _ = writer.shutdown(Shutdown::Write);
        });
        if let Err(e) = stream.read_to_end(&mut answer) {
            assert_ne!(e.kind(), std::io::ErrorKind::WouldBlock, "{what} does not end");
        }
    });
    answer
}

fn inputs(target: &str, count: u64) -> impl Iterator<Item = (u64, Vec<u8>)> {
    let corpus = corpus(target);
    (0..count).map(move |number| (number, damaged(&corpus, &mut Pcg64Mcg::seed_from_u64(number))))
}

#[test]
fn hostile_handshakes_end() {
    let mut rig = Rig::new();
    for (number, input) in inputs("nbd_handshake", CLIENTS.count()) {
        rig.between(number);
        // The first byte is not sent in the fuzz target.
        send(rig.connect("nbd"), &input[1..], &format!("handshake {number}"));
    }
    rig.end("handshakes", CLIENTS.count());
}

#[test]
fn hostile_sessions_end() {
    let mut rig = Rig::new();
    for (number, input) in inputs("nbd_requests", CLIENTS.count()) {
        rig.between(number);
        let mut stream = rig.connect("nbd");
        assert_eq!(negotiate(&mut stream).unwrap(), BYTES);
        // The first nine bytes are the setup of the fuzz target.
        send(stream, input.get(9..).unwrap_or(&input), &format!("session {number}"));
    }
    rig.end("sessions", CLIENTS.count());
}

/// Requests that change flash are not sent: their files are not those of the test.
fn is_harmless(bytes: &[u8]) -> bool {
    !matches!(read_command(bytes), Ok(Command::Attach { .. } | Command::Detach { .. }))
}

#[test]
fn hostile_control_lines_get_one_answer_or_none() {
    let mut rig = Rig::new();
    for (number, input) in inputs("control_lines", LINES.count()) {
        rig.between(number);
        if !is_harmless(&input[1..]) {
            continue;
        }
        let answer = send(rig.connect("control"), &input[1..], &format!("line {number}"));
        let answer = String::from_utf8(answer).unwrap();
        for line in answer.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }
    rig.end("control lines", LINES.count());
}
