// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that take places, memory or time from others: half-open, silent, slow, greedy, gone. Others get in and are
//! served, memory stays within the documented bound, and a stop does not wait for them.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use larder_front::listen::MOST_NEGOTIATING;
use larder_nbd::client::{Client, ClientError, Options};
use larder_nbd::codec::RequestHeader;
use larder_testkit::command::{PATIENCE, make_initial};
use larder_testkit::load::{eventually, initial};
use larder_testkit::place::Place;
use larder_testkit::raw::{READ, WRITE, ZERO, connect_from, negotiate, request};
use larder_testkit::server::Server;
use larder_volume::budget::{Budget, CONNECTIONS, LEAST_BYTES};
use larder_volume::peer::{MOST_CONNECTIONS, reserved};

const BYTES: u64 = 64 << 20;
const MIB: u64 = 1 << 20;
/// Address of the attackers, and of others.
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A server on a unix socket and on TCP.
struct Rig {
    place: Place,
    server: Server,
    tcp: SocketAddrV4,
}

impl Rig {
    fn new(more: &[&str]) -> Self {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let mut words = vec!["--workers", "2", "--listen", "nbd://127.0.0.1:0"];
        words.extend(more);
        let server = Server::start(&place.serve_cached(8, &words));
        let log = server.log();
        let address = log.lines().find_map(|l| l.strip_prefix("larder: ready at nbd://127.0.0.1:"));
        let port = address.unwrap().trim_end_matches('/').parse().unwrap();
        Self { place, server, tcp: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port) }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.place.path("nbd")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        stream
    }

    fn negotiated(&self) -> UnixStream {
        let mut stream = self.connect();
        assert_eq!(negotiate(&mut stream).unwrap(), BYTES);
        stream
    }

    /// A new client by the unix socket, which gets answers.
    fn enter(&self) -> Result<Client, ClientError> {
        let mut client = Client::connect(&self.place.uri(), &options())?;
        client.read_at(0, &mut [0; 4096])?;
        Ok(client)
    }

    fn tcp_from(&self, from: Ipv4Addr) -> Result<Client, ClientError> {
        let mut client = Client::over(connect_from(from, self.tcp), "", &options())?;
        client.read_at(0, &mut [0; 4096])?;
        Ok(client)
    }

    fn end(mut self) {
        assert!(self.server.is_alive(), "{}", self.server.log());
        assert!(!self.server.log().contains("panicked"), "{}", self.server.log());
        self.server.stop();
    }
}

fn options() -> Options {
    Options { connect_timeout: PATIENCE, io_timeout: Some(PATIENCE), ..Options::default() }
}

#[test]
fn half_open_connections_exclude_no_other_client() {
    let rig = Rig::new(&[]);
    let mut held = Vec::new();
    for round in 0..40 {
        while held.len() < (round + 1) * 2 * MOST_NEGOTIATING / 40 + MOST_NEGOTIATING {
            held.push(rig.connect());
        }
        drop(rig.enter().unwrap_or_else(|e| panic!("client {round}: {e}")));
    }
    let tcp: Vec<TcpStream> =
        (0..2 * MOST_NEGOTIATING).map(|_| connect_from(HOSTILE, rig.tcp)).collect();
    for from in [HOSTILE, HONEST] {
        drop(rig.tcp_from(from).unwrap_or_else(|e| panic!("from {from}: {e}")));
    }
    drop((held, tcp));
    rig.end();
}

#[test]
fn a_client_without_a_seat_is_told_the_limit_and_others_have_reserved_seats() {
    let rig = Rig::new(&[]);
    let inside: Vec<Client> =
        (0..MOST_CONNECTIONS).map(|_| rig.tcp_from(HOSTILE).unwrap()).collect();
    let refused = rig.tcp_from(HOSTILE).err().unwrap().to_string();
    assert!(
        refused.contains("64 connections of this peer are open; accepted: at most 64"),
        "{refused}"
    );
    let others: Vec<Client> = (0..reserved(MOST_CONNECTIONS))
        .map(|n| if n % 2 == 0 { rig.enter().unwrap() } else { rig.tcp_from(HONEST).unwrap() })
        .collect();
    let refused = rig.enter().err().unwrap().to_string();
    assert!(refused.contains("80 connections are open; accepted: at most 80"), "{refused}");
    // The oldest way to choose an export brings no error to the client. The log has one line about it.
    let lines = || rig.server.log().matches("80 connections are open").count();
    let before = lines();
    negotiate(&mut rig.connect()).unwrap_err();
    rig.enter().err().unwrap();
    assert_eq!(lines(), before + 2, "{}", rig.server.log());
    drop((inside, others));
    rig.end();
}

#[test]
fn the_number_of_connections_is_a_setting() {
    let rig = Rig::new(&["--connections", "4"]);
    let inside: Vec<Client> = (0..4).map(|_| rig.tcp_from(HOSTILE).unwrap()).collect();
    let refused = rig.tcp_from(HOSTILE).err().unwrap().to_string();
    assert!(
        refused.contains("4 connections of this peer are open; accepted: at most 4"),
        "{refused}"
    );
    let other = rig.enter().unwrap();
    let refused = rig.tcp_from(HONEST).err().unwrap().to_string();
    assert!(refused.contains("5 connections are open; accepted: at most 5"), "{refused}");
    drop((inside, other));
    rig.end();
}

/// Clients that finished the negotiation and ask for nothing give way, even to clients of the same user.
#[test]
fn silent_clients_give_way() {
    let rig = Rig::new(&[]);
    let silent: Vec<UnixStream> = (0..MOST_CONNECTIONS).map(|_| rig.negotiated()).collect();
    let mut inside = Vec::new();
    for n in 0..8 {
        eventually(&format!("client {n} gets in"), || match rig.enter() {
            Ok(client) => {
                inside.push(client);
                true
            }
            Err(_) => false,
        });
    }
    inside.iter_mut().for_each(|client| client.read_at(0, &mut [0; 512]).unwrap());
    drop((silent, inside));
    rig.end();
}

#[test]
fn an_idle_client_is_disconnected_if_a_limit_is_set() {
    let rig = Rig::new(&["--client-idle", "1s"]);
    let mut idle = rig.negotiated();
    let mut busy = rig.enter().unwrap();
    let gone = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ended = idle.read(&mut [0; 1]);
            gone.store(true, Ordering::SeqCst);
            assert_eq!(ended.unwrap(), 0);
        });
        eventually("the idle client is gone", || {
            busy.read_at(0, &mut [0; 512]).unwrap();
            gone.load(Ordering::SeqCst)
        });
    });
    rig.end();
}

/// Zeroings of hundreds of GiB, and their clients gone: their seats are free again, and the server stops.
#[test]
fn long_zeroings_end_with_their_clients() {
    let place = Place::new();
    place.file("origin", 600 << 30);
    let words =
        place.serve(&["--origin", &place.word("origin"), "--unit", "64KiB", "--drain", "5s"]);
    let server = Server::start(&words);
    let attack = || {
        let mut stream = UnixStream::connect(place.path("nbd")).unwrap();
        negotiate(&mut stream).unwrap();
        (0..128).for_each(|n| stream.write_all(&request(ZERO, n << 32, u32::MAX - 511)).unwrap());
        stream
    };
    let attackers: Vec<UnixStream> = (0..MOST_CONNECTIONS - 1).map(|_| attack()).collect();
    let open = || place.status()["requests_open"].as_u64().unwrap();
    eventually("the requests are there", || open() >= 128 * (MOST_CONNECTIONS as u64 - 1));
    let mut honest = place.client();
    honest.read_at(0, &mut [0; 4096]).unwrap();
    drop(attackers);
    eventually("their seats are free", || place.status()["connections"] == 1);
    assert_eq!(open(), 0);
    honest.write_at(0, &[1; 4096], false).unwrap();
    drop(honest);
    let ended = server.stop();
    assert!(ended.err.contains("all acknowledged writes are on the origin"), "{ended:?}");
}

/// Replies that clients do not read, of the lengths whose buffers are much larger than the data: reads of a page more than
/// 256 KiB, and reads whose first piece is short.
#[test]
fn unread_replies_stay_within_the_budget_and_their_memory_returns() {
    unread_replies(|n| request(READ, n % 100 * 4096, 257 << 10));
    unread_replies(|_| request(READ, MIB - 512, 17 << 10));
}

fn unread_replies(read: impl Fn(u64) -> [u8; RequestHeader::LEN]) {
    let rig = Rig::new(&["--client-memory", "96MiB"]);
    drop(rig.enter().unwrap());
    let before = rig.server.memory("VmRSS");
    let floods: Vec<UnixStream> = (0..MOST_CONNECTIONS)
        .map(|_| {
            let mut stream = rig.connect();
            negotiate(&mut stream).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
            for n in 0..2000 {
                if stream.write_all(&read(n)).is_err() {
                    break;
                }
            }
            stream
        })
        .collect();
    eventually("requests wait for memory", || rig.place.stat("memory_waits") > 0);
    let bound = Budget::new(LEAST_BYTES, CONNECTIONS, 2).bound_bytes();
    let shown = rig.place.stat("client_bytes");
    assert!(shown > 16 * MIB && shown <= bound, "{shown} of {bound}");
    // Another user would have its own share; this one is of the same, and its small requests are served.
    let mut honest = rig.tcp_from(HONEST).unwrap();
    let mut bytes = vec![0; 64 << 10];
    for _ in 0..50 {
        honest.read_at(0, &mut bytes).unwrap();
        assert!(bytes == initial(0, 64 << 10));
    }
    let grown = rig.server.memory("VmHWM").saturating_sub(before);
    println!("{} MiB for clients, bound {} MiB", grown / MIB, bound / MIB);
    assert!(grown <= bound, "{} MiB over {} MiB", grown / MIB, bound / MIB);
    drop((floods, honest));
    eventually("all connections are gone", || rig.place.status()["connections"] == 0);
    eventually("kept buffers are returned", || rig.place.stat("kept_bytes") == 0);
    let left = rig.server.memory("VmRSS").saturating_sub(before);
    assert!(left < 24 * MIB, "{} MiB stay", left / MIB);
    rig.end();
}

#[test]
fn a_worker_without_connections_returns_its_buffers_too() {
    let rig = Rig::new(&[]);
    let mut client = rig.enter().unwrap();
    // Both workers read and populate, and one of them has no connection.
    for round in 0..4 {
        for at in (0..BYTES).step_by(MIB as usize) {
            let mut bytes = vec![round; MIB as usize];
            client.read_at(at, &mut bytes).unwrap();
        }
    }
    eventually("kept buffers are returned", || rig.place.stat("kept_bytes") == 0);
    client.read_at(0, &mut [0; 512]).unwrap();
    drop(client);
    rig.end();
}

/// Write-back that begins long after the last request uses buffers too.
#[test]
fn buffers_of_late_write_back_are_returned() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let late = ["--write-policy", "write-back", "--write-back-after", "5s"];
    let server = Server::start(&place.serve_preset("bcache", &late));
    let mut client = place.client();
    client.write_at(0, &[1; 256 << 10], false).unwrap();
    eventually("the write's own buffers are returned", || place.stat("kept_bytes") == 0);
    eventually("its data is written back", || place.stat("origin_write_bytes") >= 256 << 10);
    eventually("kept buffers are returned", || place.stat("kept_bytes") == 0);
    drop(client);
    server.stop();
}

/// What one attacker does until the end.
fn attack(kind: usize, mut stream: UnixStream, over: &AtomicBool) {
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let (mut n, mut negotiated) = (0_u64, false);
    while !over.load(Ordering::SeqCst) {
        let sent = match kind % 4 {
            _ if kind % 4 > 1 && !negotiated => negotiate(&mut stream).map(|_| negotiated = true),
            // Silent.
            0 => Ok(()),
            // Drips bytes of a negotiation.
            1 => stream.write_all(&[3_u32.to_be_bytes(), [0; 4]].concat()[n as usize % 8..][..1]),
            // Leaves replies unread.
            2 => stream.write_all(&request(READ, n % 100 * 4096, 257 << 10)),
            // Long zeroings of ranges that the honest client does not read.
            _ => stream.write_all(&request(ZERO, 32 << 20, 32 << 20)),
        };
        n += 1;
        if sent.is_err() || kind % 4 < 2 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_crowd_of_attackers_leaves_others_served() {
    let rig = Rig::new(&["--client-memory", "96MiB"]);
    let mut honest = rig.enter().unwrap();
    let before = rig.server.memory("VmRSS");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for kind in 0..MOST_CONNECTIONS {
            let (stream, over) = (rig.connect(), &over);
            scope.spawn(move || attack(kind, stream, over));
        }
        eventually("they are at work", || {
            let status = rig.place.status();
            status["connections"].as_u64().unwrap() > 16 && rig.place.stat("memory_waits") > 0
        });
        let mut bytes = vec![0; 64 << 10];
        for n in 0..200 {
            honest.read_at(n * 4096, &mut bytes).unwrap();
            assert!(bytes == initial(n * 4096, 64 << 10));
            honest.write_at(MIB, &initial(MIB, 4096), n % 20 == 0).unwrap();
            if n % 20 == 0 {
                drop(rig.tcp_from(HONEST).unwrap_or_else(|e| panic!("round {n}: {e}")));
            }
        }
        let grown = rig.server.memory("VmHWM").saturating_sub(before);
        let bound = Budget::new(LEAST_BYTES, CONNECTIONS, 2).bound_bytes() + 8 * MIB;
        over.store(true, Ordering::SeqCst);
        assert!(grown <= bound, "{} MiB over {} MiB", grown / MIB, bound / MIB);
    });
    drop(honest);
    rig.end();
}

#[test]
fn a_peer_that_connects_in_a_loop_does_not_fill_the_log() {
    let rig = Rig::new(&[]);
    let inside: Vec<Client> = (0..MOST_CONNECTIONS).map(|_| rig.enter().unwrap()).collect();
    for _ in 0..300 {
        assert!(rig.enter().is_err());
    }
    let log = rig.server.log();
    let lines = log.lines().filter(|line| line.contains("refused")).count();
    assert!((1..200).contains(&lines), "{lines} lines");
    drop(inside);
    rig.end();
}

/// A stop beside a client that does not read and one whose write does not arrive: every acknowledged write is present after
/// the restart, in each mode.
#[test]
fn a_stop_beside_a_client_that_does_not_read_loses_nothing() {
    let modes: [(&str, &[&str]); 5] = [
        ("larder", &["--unit", "64KiB"]),
        ("sce", &[]),
        ("prwc", &[]),
        ("face", &["--write-policy", "bounded"]),
        ("face", &["--write-policy", "full"]),
    ];
    for (preset, more) in modes {
        let place = Place::new();
        make_initial(&place.path("origin"), BYTES);
        let state = place.word("state");
        let mut more = more.to_vec();
        more.extend(["--state", &state, "--workers", "2"]);
        let words = place.serve_preset(preset, &more);
        let mut server = Server::start(&words);
        let mut honest = place.client();
        for n in 0..64 {
            honest.write_at(n * 128 * 1024, &[n as u8 + 1; 4096], false).unwrap();
        }
        let mut deaf = UnixStream::connect(place.path("nbd")).unwrap();
        negotiate(&mut deaf).unwrap();
        (0..24).for_each(|_| deaf.write_all(&request(READ, 0, 1 << 20)).unwrap());
        let mut slow = UnixStream::connect(place.path("nbd")).unwrap();
        negotiate(&mut slow).unwrap();
        slow.write_all(&request(WRITE, 0, 1 << 20)).unwrap();
        slow.write_all(&[9; 1000]).unwrap();
        eventually("the requests are there", || place.stat("reads") >= 24);
        server.signal(rustix::process::Signal::TERM);
        let ended = server.wait(PATIENCE);
        assert_eq!(ended.code, 0, "{preset} {more:?}: {ended:?}");
        drop((deaf, slow, honest));
        let server = Server::start(&words);
        let mut client = place.client();
        for n in 0..64 {
            let mut page = [0; 4096];
            client.read_at(n * 128 * 1024, &mut page).unwrap();
            assert_eq!(page, [n as u8 + 1; 4096], "{preset} {more:?}: page {n}");
        }
        drop(client);
        server.stop();
    }
}
