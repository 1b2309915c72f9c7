// SPDX-License-Identifier: MIT OR Apache-2.0
//! The session over bytes in memory: the requests and replies do not depend on how the bytes are split, and each rule
//! of the protocol has its reply. The chaos test is `nbd_session_chaos.rs`.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::collections::VecDeque;

use larder_core::buf::Buf;
use larder_core::extent::Extent;
use larder_core::request::{Errno, Kind, pieces};
use larder_front::nbd::export::Export;
use larder_front::nbd::session::{Limits, Session, State, Why};
use larder_io::SendBatch;
use larder_nbd::codec::{ChunkHeader, RequestHeader, SimpleReply, chunk, cmd};
use larder_nbd::status::FLAG_REQ_ONE;
use larder_testkit::sent::{Batch, take_send};
use larder_volume::session::{ClientRequest, Session as _, Source as _, What};

const UNIT: u64 = 64 << 10;
const BYTES: u64 = 64 << 20;

fn header(command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    RequestHeader { flags: 0, command, cookie, offset, len }.encode().to_vec()
}

fn write(cookie: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let mut bytes = header(cmd::WRITE, cookie, offset, data.len() as u32);
    bytes.extend(data);
    bytes
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..len).map(|_| next()).collect()
}

fn session(structured: bool, limits: Limits) -> Session {
    Session::new(&Export::new("", BYTES), structured, UNIT, limits)
}

fn bytes_of(batch: &Batch) -> Vec<u8> {
    batch.iter().flat_map(|(buf, used)| buf[used.clone()].to_vec()).collect()
}

/// The data of a read.
fn content(offset: u64, len: u64) -> Vec<Buf> {
    let byte = |at: u64| (at / 512 % 251) as u8;
    pieces(offset, len, UNIT)
        .map(|p| Buf::copy_of(&(p.offset..p.offset + p.len).map(byte).collect::<Vec<_>>()))
        .collect()
}

fn answer(session: &mut Session, request: &ClientRequest) {
    let bufs = match request.what {
        What::Io(Kind::Read) | What::PassiveRead => content(request.offset, request.len),
        _ => Vec::new(),
    };
    session.reply(request.ticket, Ok(()), bufs);
}

type Seen = (Kind, u64, u64, Vec<Vec<u8>>);

/// Feeds all of `input` in steps and completes each request at once; returns the requests and the replies.
fn run(
    session: &mut Session,
    input: &[u8],
    mut step: impl FnMut() -> usize,
) -> (Vec<Seen>, Vec<u8>) {
    let (mut at, mut seen, mut out) = (0, Vec::new(), Vec::new());
    loop {
        while let Some(mut request) = session.next_request() {
            answer(session, &request);
            let bufs = request.bufs.drain(..).map(|b| b.to_vec()).collect();
            let What::Io(kind) = request.what else { panic!("a status") };
            seen.push((kind, request.offset, request.len, bufs));
        }
        if let Some(batch) = take_send(session) {
            out.extend(bytes_of(&batch));
            session.sent(SendBatch::default(), Ok(()));
            continue;
        }
        let Some((mut buf, from)) = session.take_recv() else { break };
        let n = step().min(buf.len() - from).min(input.len() - at);
        buf[from..from + n].copy_from_slice(&input[at..at + n]);
        at += n;
        session.received(buf, from, n);
    }
    (seen, out)
}

/// A stream with every kind of request, ending with a disconnect.
fn script() -> Vec<u8> {
    let mut s = Vec::new();
    s.extend(header(cmd::READ, 1, 0, 4096));
    s.extend(write(2, 4096, &noise(4096, 2)));
    s.extend(write(3, UNIT - 512, &noise(1024, 3)));
    s.extend(header(cmd::FLUSH, 4, 0, 0));
    s.extend(write(5, 12 << 10, &noise(300 << 10, 5)));
    s.extend(header(cmd::READ, 6, 512, 200 << 10));
    s.extend(write(7, BYTES, &noise(20 << 10, 7))); // beyond the end
    s.extend(write(8, 1, &noise(333, 8))); // not aligned
    s.extend(header(cmd::READ, 9, 0, 0));
    s.extend(write(10, 0, &[]));
    s.extend(header(cmd::TRIM, 11, 0, 1 << 20));
    s.extend(header(cmd::WRITE_ZEROES, 12, 0, 32 << 20));
    s.extend(header(99, 13, 0, 512));
    s.extend(header(cmd::CACHE, 14, 0, 4096));
    s.extend(write(15, 512, &noise(17 << 10, 15)));
    s.extend(header(cmd::READ, 16, 0, 33 << 20));
    s.extend(header(cmd::DISC, 17, 0, 0));
    s.extend(b"bytes after a disconnect are ignored");
    s
}

#[test]
fn requests_do_not_depend_on_how_the_bytes_are_split() {
    let input = script();
    for structured in [false, true] {
        let mut first = session(structured, Limits::default());
        let (seen, out) = run(&mut first, &input, || usize::MAX);
        assert_eq!(first.state(), State::Closed(Why::Disconnect));
        assert_eq!(seen.len(), 9);
        let lens = |i: usize| seen[i].3.iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(lens(2), [512, 512]);
        assert_eq!(lens(4), [52 << 10, 64 << 10, 64 << 10, 64 << 10, 56 << 10]);
        assert!(seen[4].3.concat() == noise(300 << 10, 5));

        let mut cuts: Vec<Box<dyn FnMut() -> usize>> = vec![Box::new(|| 1)];
        for n in [27, 28, 29, 511, 4096, 65_536] {
            cuts.push(Box::new(move || n));
        }
        for seed in 1..20 {
            let mut steps = noise(2048, seed).into_iter().map(usize::from).cycle();
            cuts.push(Box::new(move || {
                let (a, b) = (steps.next().unwrap(), steps.next().unwrap());
                1 + if b < 64 { a } else { a * b * 4 }
            }));
        }
        for recv_bytes in [4096, 256 << 10] {
            for cut in &mut cuts {
                let limits = Limits { recv_bytes, ..Limits::default() };
                let mut other = session(structured, limits);
                let (other_seen, other_out) = run(&mut other, &input, cut);
                assert!(other_seen == seen && other_out == out);
                assert_eq!(other.state(), State::Closed(Why::Disconnect));
            }
        }
    }
}

/// Splits replies into cookie, error and data. `lens`: the length of the read with this cookie.
fn parse_replies(mut out: &[u8], lens: impl Fn(u64) -> usize) -> Vec<(u64, u32, Vec<u8>)> {
    let mut replies = Vec::new();
    let be32 = |b: &[u8]| u32::from_be_bytes(b[..4].try_into().unwrap());
    let be64 = |b: &[u8]| u64::from_be_bytes(b[..8].try_into().unwrap());
    while !out.is_empty() {
        if be32(out) == 0x6744_6698 {
            let (error, cookie) = (be32(&out[4..]), be64(&out[8..]));
            let len = if error == 0 { lens(cookie) } else { 0 };
            replies.push((cookie, error, out[16..16 + len].to_vec()));
            out = &out[16 + len..];
            continue;
        }
        assert_eq!(be32(out), 0x668e_33ef);
        assert_eq!(out[5], 1, "the chunk is not the last of its reply");
        let (cookie, len) = (be64(&out[8..]), be32(&out[16..]) as usize);
        let body = &out[20..20 + len];
        match u16::from_be_bytes([out[6], out[7]]) {
            0 => replies.push((cookie, 0, Vec::new())),
            1 => replies.push((cookie, 0, body[8..].to_vec())),
            0x8001 => {
                assert_eq!(usize::from(u16::from_be_bytes([body[4], body[5]])), len - 6);
                replies.push((cookie, be32(body), Vec::new()));
            }
            kind => panic!("chunk type {kind}"),
        }
        out = &out[20 + len..];
    }
    replies
}

#[test]
fn replies_follow_the_protocol() {
    for structured in [false, true] {
        let mut s = session(structured, Limits::default());
        let (_, out) = run(&mut s, &script(), || usize::MAX);
        // A structured reply states its length; a simple one does not.
        let lens = |cookie| match cookie {
            1 if !structured => 4096,
            6 if !structured => 200 << 10,
            _ => 0,
        };
        let mut replies = parse_replies(&out, lens);
        replies.sort_by_key(|r| r.0);
        let errors: Vec<_> = replies.iter().map(|r| (r.0, r.1)).collect();
        let bad = [(7, 28), (8, 22), (13, 22), (16, 22)];
        let want: Vec<_> =
            (1..=16).map(|c| bad.iter().find(|b| b.0 == c).copied().unwrap_or((c, 0))).collect();
        assert_eq!(errors, want);
        let data: Vec<u8> = content(512, 200 << 10).iter().flat_map(|b| b.to_vec()).collect();
        assert!(replies[5].2 == data);
    }
}

/// Feeds the session as much of `input` as it accepts; returns the requests that it passes on.
fn feed(session: &mut Session, input: &mut VecDeque<u8>) -> Vec<ClientRequest> {
    let mut requests = Vec::new();
    loop {
        while let Some(request) = session.next_request() {
            requests.push(request);
        }
        if input.is_empty() {
            return requests;
        }
        let Some((mut buf, at)) = session.take_recv() else { return requests };
        let n = input.len().min(buf.len() - at);
        for (place, byte) in buf[at..].iter_mut().zip(input.drain(..n)) {
            *place = byte;
        }
        session.received(buf, at, n);
    }
}

#[test]
fn input_stops_while_a_client_reads_no_replies() {
    let mut s = session(true, Limits { requests: 8, ..Limits::default() });
    // Rejected requests need no engine, and still each holds its reply.
    let mut input: VecDeque<u8> = (0..100_000).flat_map(|i| header(99, i, 0, 512)).collect();
    assert!(feed(&mut s, &mut input).is_empty());
    let left = input.len();
    assert!(left > 2_000_000 && s.take_recv().is_none());
    let batch = take_send(&mut s).unwrap();
    assert_eq!(parse_replies(&bytes_of(&batch), |_| 0).len(), 8);
    assert!(s.next_request().is_none() && s.take_recv().is_none() && take_send(&mut s).is_none());
    s.sent(SendBatch::default(), Ok(()));
    assert!(s.next_request().is_none());
    assert_eq!(parse_replies(&bytes_of(&take_send(&mut s).unwrap()), |_| 0).len(), 8);
    assert_eq!(input.len(), left);
}

#[test]
fn payload_in_flight_is_bounded() {
    let mut s = session(false, Limits { payload_bytes: 1 << 20, ..Limits::default() });
    let reads = (0..10).flat_map(|i| header(cmd::READ, i, 0, 512 << 10));
    let mut input: VecDeque<u8> = reads.chain(header(cmd::READ, 10, 0, 8 << 20)).collect();
    let mut served = Vec::new();
    for _ in 0..5 {
        let requests = feed(&mut s, &mut input);
        assert_eq!(requests.len(), 2);
        assert!(s.take_recv().is_none());
        for r in &requests {
            answer(&mut s, r);
        }
        assert!(s.next_request().is_none(), "the data of two reads is not sent yet");
        while let Some(batch) = take_send(&mut s) {
            served.extend(bytes_of(&batch));
            s.sent(SendBatch::default(), Ok(()));
        }
    }
    let last = feed(&mut s, &mut input);
    assert_eq!((last.len(), last[0].len), (1, 8 << 20), "one request is always admitted");
    assert_eq!(parse_replies(&served, |_| 512 << 10).len(), 10);
}

#[test]
fn equal_cookies_and_late_results_are_kept_apart() {
    let mut s = session(true, Limits::default());
    let twice = [header(cmd::READ, 7, 0, 512), header(cmd::READ, 7, 1024, 512)].concat();
    let requests = feed(&mut s, &mut twice.into());
    assert_eq!(requests.len(), 2);
    assert_ne!(requests[0].ticket, requests[1].ticket);
    s.reply(requests[1].ticket, Ok(()), content(1024, 512));
    s.reply(requests[1].ticket, Err(Errno::EIO), Vec::new());
    s.reply(requests[0].ticket, Err(Errno::ETIMEDOUT), Vec::new());
    s.reply(12345, Ok(()), Vec::new());
    let replies = parse_replies(&bytes_of(&take_send(&mut s).unwrap()), |_| 0);
    assert_eq!(replies, [(7, 0, content(1024, 512)[0].to_vec()), (7, 5, Vec::new())]);
}

#[test]
fn a_read_with_wrong_data_becomes_an_error() {
    let mut s = session(false, Limits::default());
    let requests = feed(&mut s, &mut header(cmd::READ, 1, 0, 4096).into());
    s.reply(requests[0].ticket, Ok(()), content(0, 512));
    let replies = parse_replies(&bytes_of(&take_send(&mut s).unwrap()), |_| 4096);
    assert_eq!(replies, [(1, 5, Vec::new())]);
}

#[test]
fn requests_in_flight_complete_before_the_end() {
    for (end, why) in [
        (header(cmd::DISC, 9, 0, 0), Why::Disconnect),
        (Vec::new(), Why::PeerClosed),
        (header(cmd::WRITE, 9, 0, 4096), Why::PeerClosedInRequest),
        (write(9, 4096, &[1; 5000])[..3000].to_vec(), Why::PeerClosedInRequest),
        (header(cmd::WRITE, 9, BYTES, 40 << 10), Why::PeerClosedInRequest),
        (vec![0x25], Why::PeerClosedInRequest),
    ] {
        let mut s = session(true, Limits::default());
        let mut input = [header(cmd::READ, 1, 0, 512), end].concat().into();
        let requests = feed(&mut s, &mut input);
        if s.state() == State::Open {
            let (buf, at) = s.take_recv().unwrap();
            s.received(buf, at, 0);
            assert!(s.next_request().is_none());
        }
        assert_eq!((s.state(), s.in_flight()), (State::Closing(why), 1));
        assert!(s.take_recv().is_none());
        answer(&mut s, &requests[0]);
        assert!(take_send(&mut s).is_some());
        assert_eq!(s.state(), State::Closing(why));
        s.sent(SendBatch::default(), Ok(()));
        assert_eq!((s.state(), s.memory_out()), (State::Closed(why), false));
    }
}

#[test]
fn requests_that_waited_for_room_are_served_after_the_peer_closed() {
    let mut s = session(true, Limits { requests: 1, ..Limits::default() });
    let reads: Vec<u8> = (0..3).flat_map(|i| header(cmd::READ, i, 0, 512)).collect();
    let (mut buf, at) = s.take_recv().unwrap();
    buf[..reads.len()].copy_from_slice(&reads);
    s.received(buf, at, reads.len() - 28);
    let mut open = s.next_request();
    assert!(s.take_recv().is_none());
    let mut served = 0;
    while let Some(request) = open {
        answer(&mut s, &request);
        assert!(take_send(&mut s).is_some());
        s.sent(SendBatch::default(), Ok(()));
        served += 1;
        open = s.next_request();
        if open.is_none()
            && let Some((buf, at)) = s.take_recv()
        {
            s.received(buf, at, 0);
            open = s.next_request();
        }
    }
    assert_eq!((served, s.state()), (2, State::Closed(Why::PeerClosed)));
}

#[test]
fn violations_cut_the_connection() {
    for (input, why) in [
        (b"GET / HTTP/1.1\r\nHost: example.com\r\n".to_vec(), Why::BadMagic(0x4745_5420)),
        (header(cmd::WRITE, 2, 0, u32::MAX), Why::Oversize(u32::MAX)),
    ] {
        let mut s = session(true, Limits::default());
        let requests = feed(&mut s, &mut [header(cmd::READ, 1, 0, 512), input].concat().into());
        assert_eq!((s.state(), s.in_flight()), (State::Closed(why), 1));
        answer(&mut s, &requests[0]);
        assert!(take_send(&mut s).is_none() && s.take_recv().is_none());
        assert_eq!((s.state(), s.in_flight(), s.memory_out()), (State::Closed(why), 0, false));
    }
}

#[test]
fn stopping_drains_and_a_failed_send_closes() {
    let mut s = session(true, Limits::default());
    let requests = feed(&mut s, &mut header(cmd::READ, 1, 0, 512).into());
    let (buf, at) = s.take_recv().unwrap();
    s.stop();
    assert_eq!((s.state(), s.memory_out()), (State::Closing(Why::Stopped), true));
    s.received(buf, at, 0); // a cancelled receive
    assert!(s.next_request().is_none());
    assert_eq!(s.state(), State::Closing(Why::Stopped));
    answer(&mut s, &requests[0]);
    assert!(take_send(&mut s).is_some());
    s.sent(SendBatch::default(), Err(Errno(32)));
    assert_eq!(s.state(), State::Closed(Why::Send(Errno(32))));
}

#[test]
fn long_payload_is_received_and_sent_without_a_copy() {
    let mut s = session(true, Limits::default());
    let request = write(1, 0, &noise(200 << 10, 9));
    let (mut buf, _) = s.take_recv().unwrap();
    buf[..1000].copy_from_slice(&request[..1000]);
    s.received(buf, 0, 1000);
    assert!(s.next_request().is_none());
    let (piece, at) = s.take_recv().unwrap();
    assert_eq!((piece.len() as u64, at), (UNIT, 1000 - 28));
    let place = piece.as_ptr();
    s.received(piece, at, 0);
    assert!(s.next_request().is_none());
    assert_eq!(s.state(), State::Closed(Why::PeerClosedInRequest));

    let mut s = session(true, Limits::default());
    let (mut buf, _) = s.take_recv().unwrap();
    buf[..28].copy_from_slice(&header(cmd::WRITE, 1, 0, 64 << 10));
    s.received(buf, 0, 28);
    assert!(s.next_request().is_none());
    let (piece, at) = s.take_recv().unwrap();
    s.received(piece, at, 64 << 10);
    assert!(s.take_recv().is_none(), "a complete request is waiting");
    drop(s.next_request().unwrap());

    let mut s = session(true, Limits::default());
    let requests = feed(&mut s, &mut request.into());
    assert_eq!(requests[0].bufs.len(), 4);
    assert_eq!(requests[0].bufs[0].as_ptr(), place, "the thread's spare buffer is reused");
    let requests = feed(&mut s, &mut header(cmd::READ, 2, 0, 64 << 10).into());
    let data = content(0, 64 << 10);
    let place = data[0].as_ptr();
    s.reply(requests[0].ticket, Ok(()), data);
    let batch = take_send(&mut s).unwrap();
    assert_eq!((batch.len(), batch[1].0.as_ptr()), (2, place));
}

#[test]
fn a_status_is_one_chunk_of_descriptors() {
    let export = Export::new("", BYTES);
    let chosen = |structured| {
        Session::new(&export, structured, UNIT, Limits::default()).with_allocation(true)
    };
    let mut s = chosen(true);
    let ask = |cookie, flags: u16, len| {
        let mut bytes = header(cmd::BLOCK_STATUS, cookie, 4096, len);
        bytes[4..6].copy_from_slice(&flags.to_be_bytes());
        bytes
    };
    let mut input: VecDeque<u8> = ask(1, 0, 65536).into();
    input.extend(ask(2, FLAG_REQ_ONE, 4096));
    input.extend(ask(3, 0, 4096));
    input.extend(ask(4, 0, 0));
    let requests = feed(&mut s, &mut input);
    let asked: Vec<_> = requests.iter().map(|r| (r.what, r.offset, r.len)).collect();
    let status = |one| What::Status { one };
    let expected = [(status(false), 65536), (status(true), 4096), (status(false), 4096)];
    assert_eq!(asked, expected.map(|(what, len)| (what, 4096, len)));
    // A result without extents is an error, and a duplicate result is ignored.
    let list = [Extent::data(4096), Extent::hole(512)];
    s.reply_status(requests[0].ticket, &list);
    s.reply_status(requests[0].ticket, &list);
    s.reply(requests[1].ticket, Ok(()), Vec::new());
    s.reply_status(requests[2].ticket, &[]);
    assert_eq!(s.in_flight(), 0);
    let out = bytes_of(&take_send(&mut s).unwrap());
    let error = |cookie, errno: u32, text: usize| {
        let (flags, kind, len) = (chunk::FLAG_DONE, chunk::ERROR, 6 + text as u32);
        let head = ChunkHeader { flags, kind, cookie, len }.encode();
        [&head[..], &errno.to_be_bytes()].concat()
    };
    let refused = error(4, 22, "the length of a block status must not be zero".len());
    assert!(out.starts_with(&refused));
    let rest = &out[refused.len() + 2 + "the length of a block status must not be zero".len()..];
    let (flags, kind) = (chunk::FLAG_DONE, 5);
    let chunk = ChunkHeader { flags, kind, cookie: 1, len: 20 }.encode();
    let words = [1u32, 4096, 0, 512, 3].map(u32::to_be_bytes);
    let chunk = [&chunk[..], words.as_flattened()].concat();
    assert!(rest.starts_with(&chunk));
    let failed = [error(2, 5, 0), vec![0; 2], error(3, 5, 0), vec![0; 2]].concat();
    assert_eq!(rest[chunk.len()..], failed);
    // Without structured replies the context is void.
    let mut plain = chosen(false);
    assert!(feed(&mut plain, &mut ask(1, 0, 4096).into()).is_empty());
    let out = bytes_of(&take_send(&mut plain).unwrap());
    assert_eq!(out, SimpleReply { error: 22, cookie: 1 }.encode());
}
