// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of the state, without sockets and clocks.

use larder_core::exec::{DevId, IoId};
use larder_nbd::client::Info;

use super::super::members::Notice;
use super::*;

const LIMIT: Nanos = 100;

fn export(flags: u16) -> ExportInfo {
    let info = Info {
        bytes: 1 << 20,
        flags: flags | can::HAS_FLAGS | can::FLUSH | can::FUA,
        min_block_bytes: 512,
        preferred_block_bytes: 4096,
        max_payload_bytes: 1 << 20,
        structured: true,
        allocation: None,
        name: None,
        description: None,
    };
    ExportInfo::of(&info, 512, 4096).unwrap()
}

/// A state with a member and connections; cookies of each connection count from 1.
struct Fixture {
    state: State,
    member: u32,
    cookies: BTreeMap<u64, u64>,
}

impl Fixture {
    fn new(flags: u16) -> Self {
        let mut state = State::new(export(flags));
        let member = state.members.join(Notice::Thread(std::thread::current()));
        Self { state, member, cookies: BTreeMap::new() }
    }

    fn link(&mut self) -> u64 {
        let link = self.state.add_link(None, true);
        self.cookies.insert(link, 1);
        link
    }

    /// The single completed operation: its result and extents.
    fn completion(&mut self) -> (Result<(), Errno>, Vec<Extent>) {
        let mut finished = Vec::new();
        self.state.members.collect(self.member, &mut finished);
        let last = finished.pop().unwrap();
        assert!(finished.is_empty());
        (last.result, last.extents)
    }

    fn ask(&mut self, key: u32, kind: IoKind, offset: u64) {
        let len = if kind == IoKind::Flush { 0 } else { 4096 };
        let buf = (len > 0).then(|| Buf::zeroed(4096));
        let mut io = Io { id: IoId(0), dev: DevId(0), kind, offset, len, buf, at: 0 };
        self.state.submit(self.member, key, &mut io, 0);
    }

    /// The requests sent on a connection: cookies and offsets.
    fn sent(&mut self, link: u64, now: Nanos) -> Vec<(u64, u64)> {
        let first = self.cookies[&link];
        let mut sent = Vec::new();
        loop {
            let taken = self.state.take(link, self.cookies[&link], now);
            if taken.is_empty() {
                break;
            }
            *self.cookies.get_mut(&link).unwrap() += taken.len() as u64;
            sent.extend(taken.iter().map(|s| s.step.offset));
        }
        assert!(self.state.is_live(link));
        sent.into_iter().enumerate().map(|(i, offset)| (first + i as u64, offset)).collect()
    }

    fn answer(&mut self, link: u64, cookie: u64) {
        if let Some(mut answered) = self.state.answered(link, cookie, Ok(())) {
            if answered.has_memory() {
                answered.fill(&[7; 4096]);
            }
            self.state.settle(answered);
        }
    }

    /// Completed operations: key and success.
    fn ended(&mut self) -> Vec<(u32, bool)> {
        let mut finished = Vec::new();
        self.state.members.collect(self.member, &mut finished);
        finished.into_iter().map(|f| (f.key, f.result.is_ok())).collect()
    }
}

const WRITE: IoKind = IoKind::Write { fua: false };

#[test]
fn an_overlapping_write_waits_for_the_first() {
    let mut fixture = Fixture::new(can::MULTI_CONN);
    let (a, b) = (fixture.link(), fixture.link());
    for (key, kind, offset) in
        [(0, WRITE, 0), (1, WRITE, 512), (2, WRITE, 8192), (3, IoKind::Read, 0), (4, WRITE, 4096)]
    {
        fixture.ask(key, kind, offset);
    }
    // The fifth overlaps the second, which waits.
    assert_eq!(fixture.sent(a, 0), [(1, 0), (2, 8192), (3, 0)]);
    assert_eq!(fixture.sent(b, 0), []);
    fixture.answer(a, 1);
    assert_eq!(fixture.sent(b, 0), [(1, 512)]);
    fixture.answer(b, 1);
    assert_eq!(fixture.sent(b, 0), [(2, 4096)]);
    assert_eq!(fixture.ended(), [(0, true), (1, true)]);
}

#[test]
fn unanswered_requests_are_sent_again_in_order_and_end_once() {
    let mut fixture = Fixture::new(can::MULTI_CONN);
    let a = fixture.link();
    (0..3).for_each(|key| fixture.ask(key, WRITE, u64::from(key) * 4096));
    assert_eq!(fixture.sent(a, 0).len(), 3);
    fixture.answer(a, 2);
    fixture.state.over(a, "test");
    let b = fixture.link();
    assert_eq!(fixture.sent(b, 0), [(1, 0), (2, 8192)]);
    fixture.answer(a, 1); // of a closed connection
    assert_eq!(fixture.ended(), [(1, true)]);
    fixture.answer(b, 1);
    fixture.answer(b, 2);
    fixture.answer(b, 2);
    assert_eq!(fixture.ended(), [(0, true), (2, true)]);
    assert!(!fixture.state.is_busy());
}

/// A server that does not reply may still execute the write, so overlapping writes wait.
#[test]
fn a_ghost_delays_overlapping_writes_until_it_ends() {
    for ends_by_answer in [true, false] {
        let mut fixture = Fixture::new(can::MULTI_CONN);
        let a = fixture.link();
        fixture.ask(0, WRITE, 0);
        fixture.ask(1, IoKind::Read, 0);
        assert_eq!(fixture.sent(a, 0).len(), 2);
        fixture.state.expire(LIMIT + 1, LIMIT, 10 * LIMIT);
        assert!(!fixture.state.is_usable(a));
        let b = fixture.link();
        assert_eq!(fixture.sent(b, 0), [(1, 0), (2, 0)]);
        fixture.answer(b, 1);
        fixture.answer(b, 2);
        assert_eq!(fixture.ended(), [(0, true), (1, true)]);
        fixture.ask(2, WRITE, 0);
        fixture.ask(3, WRITE, 4096);
        assert_eq!(fixture.sent(b, 0), [(3, 4096)]);
        if ends_by_answer {
            fixture.answer(a, 1);
        } else {
            fixture.state.over(a, "test");
        }
        assert_eq!(fixture.sent(b, 0), [(4, 0)]);
    }
}

#[test]
fn a_timed_out_operation_leaves_a_ghost_too() {
    let mut fixture = Fixture::new(can::MULTI_CONN);
    let a = fixture.link();
    fixture.ask(0, WRITE, 0);
    assert_eq!(fixture.sent(a, 5 * LIMIT).len(), 1);
    fixture.state.expire(5 * LIMIT + 1, LIMIT, 5 * LIMIT);
    assert_eq!(fixture.ended(), [(0, false)]);
    assert!(fixture.state.is_usable(a));
    fixture.ask(1, WRITE, 512);
    assert_eq!(fixture.sent(a, 0), []);
    fixture.answer(a, 1);
    assert_eq!(fixture.sent(a, 0), [(2, 512)]);
}

#[test]
fn a_single_connection_export_gets_no_second_one_before_the_first_is_closed() {
    for (flags, expected) in [(0, false), (can::MULTI_CONN, true)] {
        let mut fixture = Fixture::new(flags);
        let a = fixture.link();
        fixture.ask(0, WRITE, 0);
        assert_eq!(fixture.sent(a, 0).len(), 1);
        fixture.state.retire(a, "test");
        assert_eq!(fixture.state.may_connect(), expected);
        fixture.state.over(a, "test");
        assert!(fixture.state.may_connect());
    }
}

#[test]
fn a_flush_fails_once_acknowledged_writes_may_be_lost() {
    let durable = IoKind::Write { fua: true };
    // The request acknowledged before the connection was lost, and whether a flush succeeds afterwards.
    for (kind, flush_before, well) in [
        (WRITE, false, false),
        (WRITE, true, true),
        (durable, false, true),
        (IoKind::Read, false, true),
    ] {
        let mut fixture = Fixture::new(0);
        let a = fixture.link();
        fixture.ask(0, kind, 0);
        assert_eq!(fixture.sent(a, 0).len(), 1);
        fixture.answer(a, 1);
        if flush_before {
            fixture.ask(1, IoKind::Flush, 0);
            assert_eq!(fixture.sent(a, 0).len(), 1);
            fixture.answer(a, 2);
        }
        fixture.state.over(a, "test");
        fixture.ended();
        let has_lost = fixture.state.has_lost.load(std::sync::atomic::Ordering::Acquire);
        assert_eq!(has_lost, !well, "{kind:?}");
        let b = fixture.link();
        for key in 2..4 {
            fixture.ask(key, IoKind::Flush, 0);
            for (cookie, _) in fixture.sent(b, 0) {
                fixture.answer(b, cookie);
            }
            assert_eq!(fixture.ended(), [(key, well)], "{kind:?}");
        }
    }
}

/// A flush does not cover a write that is acknowledged while it is in flight.
#[test]
fn a_flush_covers_writes_acknowledged_before_it_was_sent() {
    let mut fixture = Fixture::new(0);
    let a = fixture.link();
    fixture.ask(0, WRITE, 0);
    fixture.ask(1, IoKind::Flush, 0);
    assert_eq!(fixture.sent(a, 0).len(), 2);
    fixture.answer(a, 1);
    fixture.answer(a, 2);
    fixture.state.over(a, "test");
    let b = fixture.link();
    fixture.ask(2, IoKind::Flush, 0);
    assert_eq!(fixture.sent(b, 0), []);
    assert_eq!(fixture.ended(), [(0, true), (1, true), (2, false)]);
}

#[test]
fn a_flush_in_flight_when_writes_are_lost_fails() {
    let mut fixture = Fixture::new(0);
    let a = fixture.link();
    fixture.ask(0, WRITE, 0);
    assert_eq!(fixture.sent(a, 0).len(), 1);
    fixture.answer(a, 1);
    fixture.ask(1, IoKind::Flush, 0);
    assert_eq!(fixture.sent(a, 0).len(), 1);
    fixture.state.over(a, "test");
    let b = fixture.link();
    assert_eq!(fixture.sent(b, 0), []);
    assert_eq!(fixture.ended(), [(0, true), (1, false)]);
}

#[test]
fn a_request_to_a_server_that_shuts_down_is_sent_again() {
    let mut fixture = Fixture::new(can::MULTI_CONN);
    let a = fixture.link();
    fixture.ask(0, WRITE, 0);
    assert_eq!(fixture.sent(a, 0).len(), 1);
    assert!(fixture.state.answered(a, 1, Err(ESHUTDOWN)).is_none());
    assert!(!fixture.state.is_usable(a));
    let b = fixture.link();
    assert_eq!(fixture.sent(b, 0), [(1, 0)]);
    fixture.answer(b, 1);
    assert_eq!(fixture.ended(), [(0, true)]);
}

/// A later connection may be to another server, which does not know the earlier writes.
#[test]
fn a_flush_is_sent_where_the_server_is_known_to_have_the_writes() {
    let mut fixture = Fixture::new(can::MULTI_CONN);
    let a = fixture.link();
    fixture.ask(0, WRITE, 0);
    assert_eq!(fixture.sent(a, 0).len(), 1);
    fixture.answer(a, 1);
    let b = fixture.link();
    fixture.ask(1, IoKind::Flush, 0);
    assert_eq!(fixture.sent(b, 0), []);
    assert_eq!(fixture.sent(a, 0), [(2, 0)]);
    fixture.answer(a, 2);
    fixture.ask(2, IoKind::Flush, 0);
    assert_eq!(fixture.sent(b, 0).len(), 1);
    fixture.answer(b, 1);
    assert_eq!(fixture.ended(), [(0, true), (1, true), (2, true)]);
}

/// A cache must not return the data of a server that lost writes.
#[test]
fn a_cache_fails_once_acknowledged_writes_may_be_lost() {
    let mut fixture = Fixture::new(can::MULTI_CONN);
    fixture.state.vanishes = true;
    let (a, b) = (fixture.link(), fixture.link());
    fixture.ask(0, WRITE, 0);
    assert_eq!(fixture.sent(a, 0).len(), 1);
    fixture.answer(a, 1);
    fixture.ask(1, IoKind::Read, 0);
    assert_eq!(fixture.sent(b, 0).len(), 1);
    let late = fixture.link();
    fixture.ask(2, IoKind::Read, 0);
    assert_eq!(fixture.sent(late, 0), []);
    fixture.state.over(a, "test");
    fixture.answer(b, 1);
    fixture.ask(3, IoKind::Read, 0);
    let mut finished = Vec::new();
    fixture.state.members.collect(fixture.member, &mut finished);
    let found: Vec<_> = finished.into_iter().map(|f| (f.key, f.result)).collect();
    let gone = Err(Errno::ENXIO);
    assert_eq!(found, [(0, Ok(())), (2, gone), (1, gone), (3, gone)]);
}

#[test]
fn a_status_request_is_handled_as_a_read() {
    let mut fixture = Fixture::new(can::MULTI_CONN);
    let a = fixture.link();
    let list = vec![Extent::hole(1 << 19), Extent::data(1 << 18)];
    // Longer than a payload; sent again when its connection is lost.
    fixture.state.ask_status(fixture.member, 4096, 1 << 29, 0);
    let sent = fixture.state.take(a, 1, 0);
    assert!(sent.len() == 1 && sent[0].asks_status && sent[0].step.len == 1 << 29);
    fixture.state.over(a, "test");
    let b = fixture.link();
    assert_eq!(fixture.sent(b, 0), [(1, 4096)]);
    fixture.state.learned(b, 1, list.clone());
    fixture.answer(b, 1);
    assert_eq!(fixture.completion(), (Ok(()), list));
    // A server without block status is not asked; one that connects later may be.
    fixture.state.over(b, "test");
    let without = fixture.state.add_link(None, false);
    fixture.cookies.insert(without, 1);
    fixture.state.ask_status(fixture.member, 0, 4096, 0);
    assert_eq!(fixture.sent(without, 0), []);
    assert_eq!(fixture.completion(), (Err(Errno::EOPNOTSUPP), vec![]));
    // A request without a reply ends in time, and leaves no ghost.
    let c = fixture.link();
    fixture.state.ask_status(fixture.member, 0, 4096, 0);
    assert_eq!(fixture.sent(c, 0).len(), 1);
    fixture.state.expire(5 * LIMIT, LIMIT, 3 * LIMIT);
    assert_eq!(fixture.completion(), (Err(Errno::EIO), vec![]));
    fixture.ask(1, WRITE, 0);
    assert_eq!(fixture.sent(without, 0).len(), 1);
}
