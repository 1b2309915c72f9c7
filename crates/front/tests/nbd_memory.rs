// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions that share a budget: what a connection is doing while its request waits for memory, and what it returns when it
//! is ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_core::buf::Buf;
use larder_core::request::pieces;
use larder_front::nbd::export::Export;
use larder_front::nbd::session::{Limits, Session};
use larder_nbd::codec::{RequestHeader, cmd};
use larder_volume::budget::{Budget, CONNECTIONS, DEFAULT_BYTES, LEAST_BYTES, Purse};
use larder_volume::peer::Peer;
use larder_volume::session::{Abort, ClientRequest, Doing, Session as _, Source as _};

const UNIT: u64 = 64 << 10;
const MIB: u64 = 1 << 20;

fn session(purse: Purse) -> Session {
    Session::new(&Export::new("", 64 * MIB), true, UNIT, Limits::default()).with_purse(purse)
}

/// Receives a request.
fn feed(session: &mut Session, command: u16, len: u64) -> Option<ClientRequest> {
    let header = RequestHeader { flags: 0, command, cookie: 1, offset: 0, len: len as u32 };
    let (mut buf, at) = session.take_recv()?;
    buf[at..at + RequestHeader::LEN].copy_from_slice(&header.encode());
    session.received(buf, at, RequestHeader::LEN);
    session.next_request()
}

fn answer(session: &mut Session, request: &ClientRequest) {
    let bufs = pieces(request.offset, request.len, UNIT).map(|p| Buf::zeroed(p.len as usize));
    session.reply(request.ticket, Ok(()), bufs.collect());
}

/// Takes all of the common part but `left` for the returned purse.
fn take_all_but(budget: &Budget, left: u64) -> Purse {
    let mut purse = budget.purse(Peer::User(99));
    let mut probe = budget.purse(Peer::User(98));
    assert!(purse.spend(LEAST_BYTES / 2 - left) && !probe.spend(2 * left + MIB));
    purse
}

#[test]
fn a_connection_whose_request_waits_for_memory_is_working() {
    let budget = Budget::new(LEAST_BYTES, CONNECTIONS, 1);
    for command in [cmd::READ, cmd::WRITE] {
        let mut hog = take_all_but(&budget, MIB);
        let mut s = session(budget.purse(Peer::User(1)));
        assert_eq!(s.doing(), Doing::Silent);
        assert!(feed(&mut s, command, 4 * MIB).is_none());
        assert!(budget.has_waiting() && s.take_recv().is_none());
        assert_eq!(s.doing(), Doing::Working);
        hog.give_back(LEAST_BYTES);
        let _ = s.next_request();
        let now = if command == cmd::READ { Doing::Working } else { Doing::Receiving };
        assert_eq!(s.doing(), now);
    }
}

#[test]
fn an_aborted_connection_returns_its_memory_before_its_last_request_ends() {
    // A peer may hold both requests.
    let budget = Budget::new(DEFAULT_BYTES, CONNECTIONS, 1);
    let mut s = session(budget.purse(Peer::User(1)));
    let replied = feed(&mut s, cmd::READ, 20 * MIB).unwrap();
    let flush = feed(&mut s, cmd::FLUSH, 0).unwrap();
    let read = feed(&mut s, cmd::READ, 4 * MIB).unwrap();
    answer(&mut s, &replied);
    let before = s.common_bytes();
    assert!(before > 20 * MIB);
    s.abort(Abort::Gone);
    assert!(s.common_bytes() < before - 19 * MIB, "the reply is not sent");
    answer(&mut s, &read);
    assert_eq!((s.common_bytes(), s.in_flight()), (0, 1));
    answer(&mut s, &flush);
}

#[test]
fn an_aborted_connection_waits_for_memory_no_longer() {
    let budget = Budget::new(LEAST_BYTES, CONNECTIONS, 1);
    let mut s = session(budget.purse(Peer::User(1)));
    let flush = feed(&mut s, cmd::FLUSH, 0).unwrap();
    let mut hog = take_all_but(&budget, 4 * MIB);
    assert!(feed(&mut s, cmd::READ, 16 * MIB).is_none());
    let mut other = budget.purse(Peer::User(2));
    let woken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&woken);
    other.set_wake(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    assert!(!other.spend(2 * MIB), "the read came first");
    s.abort(Abort::Gone);
    assert!(woken.load(Ordering::SeqCst) == 1 && other.spend(2 * MIB));
    hog.give_back(LEAST_BYTES);
    assert!(!budget.has_waiting());
    answer(&mut s, &flush);
}
