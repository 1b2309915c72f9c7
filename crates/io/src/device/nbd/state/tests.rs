// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of the state, with neither socket nor clock.

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

/// A state with a member and connections; what is sent on each gets cookies from 1 on.
struct Bench {
    state: State,
    member: u32,
    cookies: BTreeMap<u64, u64>,
}

impl Bench {
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

    /// The one operation that ended: how, and what it learned.
    fn told(&mut self) -> (Result<(), Errno>, Vec<Extent>) {
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

    /// What goes out on a connection: cookies and offsets.
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

    /// What ended: names and whether well.
    fn ended(&mut self) -> Vec<(u32, bool)> {
        let mut finished = Vec::new();
        self.state.members.collect(self.member, &mut finished);
        finished.into_iter().map(|f| (f.key, f.result.is_ok())).collect()
    }
}

const WRITE: IoKind = IoKind::Write { fua: false };

#[test]
fn of_overlapping_writes_the_second_waits_for_the_first() {
    let mut bench = Bench::new(can::MULTI_CONN);
    let (a, b) = (bench.link(), bench.link());
    for (key, kind, offset) in
        [(0, WRITE, 0), (1, WRITE, 512), (2, WRITE, 8192), (3, IoKind::Read, 0), (4, WRITE, 4096)]
    {
        bench.ask(key, kind, offset);
    }
    // The fifth overlaps the second, which waits.
    assert_eq!(bench.sent(a, 0), [(1, 0), (2, 8192), (3, 0)]);
    assert_eq!(bench.sent(b, 0), []);
    bench.answer(a, 1);
    assert_eq!(bench.sent(b, 0), [(1, 512)]);
    bench.answer(b, 1);
    assert_eq!(bench.sent(b, 0), [(2, 4096)]);
    assert_eq!(bench.ended(), [(0, true), (1, true)]);
}

#[test]
fn what_was_not_answered_is_sent_again_in_order_and_ends_once() {
    let mut bench = Bench::new(can::MULTI_CONN);
    let a = bench.link();
    (0..3).for_each(|key| bench.ask(key, WRITE, u64::from(key) * 4096));
    assert_eq!(bench.sent(a, 0).len(), 3);
    bench.answer(a, 2);
    bench.state.over(a, "test");
    let b = bench.link();
    assert_eq!(bench.sent(b, 0), [(1, 0), (2, 8192)]);
    bench.answer(a, 1); // of a connection that is no more
    assert_eq!(bench.ended(), [(1, true)]);
    bench.answer(b, 1);
    bench.answer(b, 2);
    bench.answer(b, 2);
    assert_eq!(bench.ended(), [(0, true), (2, true)]);
    assert!(!bench.state.is_busy());
}

/// A server that does not answer may still carry the write out: others wait for that.
#[test]
fn a_ghost_keeps_later_writes_away_until_it_is_gone() {
    for ends_by_answer in [true, false] {
        let mut bench = Bench::new(can::MULTI_CONN);
        let a = bench.link();
        bench.ask(0, WRITE, 0);
        bench.ask(1, IoKind::Read, 0);
        assert_eq!(bench.sent(a, 0).len(), 2);
        bench.state.expire(LIMIT + 1, LIMIT, 10 * LIMIT);
        assert!(!bench.state.is_usable(a));
        let b = bench.link();
        assert_eq!(bench.sent(b, 0), [(1, 0), (2, 0)]);
        bench.answer(b, 1);
        bench.answer(b, 2);
        assert_eq!(bench.ended(), [(0, true), (1, true)]);
        bench.ask(2, WRITE, 0);
        bench.ask(3, WRITE, 4096);
        assert_eq!(bench.sent(b, 0), [(3, 4096)]);
        if ends_by_answer {
            bench.answer(a, 1);
        } else {
            bench.state.over(a, "test");
        }
        assert_eq!(bench.sent(b, 0), [(4, 0)]);
    }
}

#[test]
fn an_operation_that_was_given_up_leaves_a_ghost_too() {
    let mut bench = Bench::new(can::MULTI_CONN);
    let a = bench.link();
    bench.ask(0, WRITE, 0);
    assert_eq!(bench.sent(a, 5 * LIMIT).len(), 1);
    bench.state.expire(5 * LIMIT + 1, LIMIT, 5 * LIMIT);
    assert_eq!(bench.ended(), [(0, false)]);
    assert!(bench.state.is_usable(a));
    bench.ask(1, WRITE, 512);
    assert_eq!(bench.sent(a, 0), []);
    bench.answer(a, 1);
    assert_eq!(bench.sent(a, 0), [(2, 512)]);
}

#[test]
fn an_export_for_one_connection_gets_no_second_one_before_the_first_is_over() {
    for (flags, expected) in [(0, false), (can::MULTI_CONN, true)] {
        let mut bench = Bench::new(flags);
        let a = bench.link();
        bench.ask(0, WRITE, 0);
        assert_eq!(bench.sent(a, 0).len(), 1);
        bench.state.retire(a, "test");
        assert_eq!(bench.state.may_connect(), expected);
        bench.state.over(a, "test");
        assert!(bench.state.may_connect());
    }
}

#[test]
fn a_flush_fails_once_answered_writes_may_be_lost() {
    let durable = IoKind::Write { fua: true };
    // What was answered before the connection was lost, and whether a flush ends well then.
    for (kind, flush_before, well) in [
        (WRITE, false, false),
        (WRITE, true, true),
        (durable, false, true),
        (IoKind::Read, false, true),
    ] {
        let mut bench = Bench::new(0);
        let a = bench.link();
        bench.ask(0, kind, 0);
        assert_eq!(bench.sent(a, 0).len(), 1);
        bench.answer(a, 1);
        if flush_before {
            bench.ask(1, IoKind::Flush, 0);
            assert_eq!(bench.sent(a, 0).len(), 1);
            bench.answer(a, 2);
        }
        bench.state.over(a, "test");
        bench.ended();
        let b = bench.link();
        for key in 2..4 {
            bench.ask(key, IoKind::Flush, 0);
            for (cookie, _) in bench.sent(b, 0) {
                bench.answer(b, cookie);
            }
            assert_eq!(bench.ended(), [(key, well)], "{kind:?}");
        }
    }
}

/// A write that is answered while a flush is on its way is not covered by it.
#[test]
fn a_flush_covers_what_was_answered_before_it_was_sent() {
    let mut bench = Bench::new(0);
    let a = bench.link();
    bench.ask(0, WRITE, 0);
    bench.ask(1, IoKind::Flush, 0);
    assert_eq!(bench.sent(a, 0).len(), 2);
    bench.answer(a, 1);
    bench.answer(a, 2);
    bench.state.over(a, "test");
    let b = bench.link();
    bench.ask(2, IoKind::Flush, 0);
    assert_eq!(bench.sent(b, 0), []);
    assert_eq!(bench.ended(), [(0, true), (1, true), (2, false)]);
}

#[test]
fn a_flush_on_its_way_when_the_writes_are_lost_fails() {
    let mut bench = Bench::new(0);
    let a = bench.link();
    bench.ask(0, WRITE, 0);
    assert_eq!(bench.sent(a, 0).len(), 1);
    bench.answer(a, 1);
    bench.ask(1, IoKind::Flush, 0);
    assert_eq!(bench.sent(a, 0).len(), 1);
    bench.state.over(a, "test");
    let b = bench.link();
    assert_eq!(bench.sent(b, 0), []);
    assert_eq!(bench.ended(), [(0, true), (1, false)]);
}

#[test]
fn a_server_that_says_it_goes_away_is_asked_again_elsewhere() {
    let mut bench = Bench::new(can::MULTI_CONN);
    let a = bench.link();
    bench.ask(0, WRITE, 0);
    assert_eq!(bench.sent(a, 0).len(), 1);
    assert!(bench.state.answered(a, 1, Err(ESHUTDOWN)).is_none());
    assert!(!bench.state.is_usable(a));
    let b = bench.link();
    assert_eq!(bench.sent(b, 0), [(1, 0)]);
    bench.answer(b, 1);
    assert_eq!(bench.ended(), [(0, true)]);
}

/// A connection made later may be to another server, which knows nothing of earlier writes.
#[test]
fn a_flush_goes_out_where_the_server_is_known_to_have_the_writes() {
    let mut bench = Bench::new(can::MULTI_CONN);
    let a = bench.link();
    bench.ask(0, WRITE, 0);
    assert_eq!(bench.sent(a, 0).len(), 1);
    bench.answer(a, 1);
    let b = bench.link();
    bench.ask(1, IoKind::Flush, 0);
    assert_eq!(bench.sent(b, 0), []);
    assert_eq!(bench.sent(a, 0), [(2, 0)]);
    bench.answer(a, 2);
    bench.ask(2, IoKind::Flush, 0);
    assert_eq!(bench.sent(b, 0).len(), 1);
    bench.answer(b, 1);
    assert_eq!(bench.ended(), [(0, true), (1, true), (2, true)]);
}

/// A cache must not show what an amnesiac server has instead of what was written.
#[test]
fn a_cache_is_gone_once_answered_writes_may_be_lost() {
    let mut bench = Bench::new(can::MULTI_CONN);
    bench.state.vanishes = true;
    let (a, b) = (bench.link(), bench.link());
    bench.ask(0, WRITE, 0);
    assert_eq!(bench.sent(a, 0).len(), 1);
    bench.answer(a, 1);
    bench.ask(1, IoKind::Read, 0);
    assert_eq!(bench.sent(b, 0).len(), 1);
    let late = bench.link();
    bench.ask(2, IoKind::Read, 0);
    assert_eq!(bench.sent(late, 0), []);
    bench.state.over(a, "test");
    bench.answer(b, 1);
    bench.ask(3, IoKind::Read, 0);
    let mut finished = Vec::new();
    bench.state.members.collect(bench.member, &mut finished);
    let found: Vec<_> = finished.into_iter().map(|f| (f.key, f.result)).collect();
    let gone = Err(Errno::ENXIO);
    assert_eq!(found, [(0, Ok(())), (2, gone), (1, gone), (3, gone)]);
}

#[test]
fn a_question_of_status_goes_its_way_as_a_read_does() {
    let mut bench = Bench::new(can::MULTI_CONN);
    let a = bench.link();
    let list = vec![Extent::hole(1 << 19), Extent::data(1 << 18)];
    // More than a payload at once; sent again when its connection is lost.
    bench.state.ask_status(bench.member, 4096, 1 << 29, 0);
    let sent = bench.state.take(a, 1, 0);
    assert!(sent.len() == 1 && sent[0].asks_status && sent[0].step.len == 1 << 29);
    bench.state.over(a, "test");
    let b = bench.link();
    assert_eq!(bench.sent(b, 0), [(1, 4096)]);
    bench.state.learned(b, 1, list.clone());
    bench.answer(b, 1);
    assert_eq!(bench.told(), (Ok(()), list));
    // A server that says nothing of it is not asked; others that come later may be.
    bench.state.over(b, "test");
    let mute = bench.state.add_link(None, false);
    bench.cookies.insert(mute, 1);
    bench.state.ask_status(bench.member, 0, 4096, 0);
    assert_eq!(bench.sent(mute, 0), []);
    assert_eq!(bench.told(), (Err(Errno::EOPNOTSUPP), vec![]));
    // One that is never answered ends in time, and leaves no ghost.
    let c = bench.link();
    bench.state.ask_status(bench.member, 0, 4096, 0);
    assert_eq!(bench.sent(c, 0).len(), 1);
    bench.state.expire(5 * LIMIT, LIMIT, 3 * LIMIT);
    assert_eq!(bench.told(), (Err(Errno::EIO), vec![]));
    bench.ask(1, WRITE, 0);
    assert_eq!(bench.sent(mute, 0).len(), 1);
}
