// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client against the server's negotiation and session over a socket pair, with a store in memory.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::request::{Errno, Kind, pieces};
use larder_front::nbd::export::{Export, Exports};
use larder_front::nbd::handshake::negotiate;
use larder_front::nbd::session::{Limits, Session, State, Why};
use larder_io::SendBatch;
use larder_nbd::client::{Client, ClientError, Options};
use larder_nbd::codec::can;
use larder_nbd::deadline::Deadlined;
use larder_testkit::sent::take_send;
use larder_volume::session::{ClientRequest, Session as _, Source as _, What};

const UNIT: u64 = 64 << 10;
const BYTES: usize = 8 << 20;

fn exports() -> Exports {
    let mut fixed = Export::new("fixed", BYTES as u64);
    fixed.read_only = true;
    fixed.description = "no client writes here".into();
    Exports::new(vec![Export::new("", BYTES as u64), fixed]).unwrap()
}

/// Executes a request on `store`; returns the data of a read.
fn serve_one(store: &mut [u8], r: &ClientRequest) -> Vec<Buf> {
    let (at, end) = (r.offset as usize, (r.offset + r.len) as usize);
    let What::Io(kind) = r.what else { return Vec::new() };
    match kind {
        Kind::Read => pieces(r.offset, r.len, UNIT)
            .map(|p| Buf::copy_of(&store[p.offset as usize..][..p.len as usize]))
            .collect(),
        Kind::Write { .. } => {
            let mut at = at;
            for buf in &r.bufs {
                store[at..at + buf.len()].copy_from_slice(buf);
                at += buf.len();
            }
            Vec::new()
        }
        Kind::Zero { .. } => {
            store[at..end].fill(0);
            Vec::new()
        }
        Kind::Trim { .. } | Kind::Flush => Vec::new(),
    }
}

/// A blocking server of one connection. Sector 100 is unreadable, and requests that arrive together are answered in
/// reverse order.
fn serve(mut stream: UnixStream) -> Option<Why> {
    let exports = exports();
    let bounded = Deadlined::new(&stream, Duration::from_secs(10));
    let agreed = negotiate(bounded, &exports).ok()?;
    let export = exports.get(agreed.export)?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut session = Session::new(export, agreed.structured, UNIT, Limits::default());
    let mut store = vec![0u8; BYTES];
    loop {
        let requests: Vec<_> = std::iter::from_fn(|| session.next_request()).collect();
        let mut replies = Vec::new();
        for r in requests {
            let bad =
                r.what == What::Io(Kind::Read) && r.offset <= 51_200 && r.offset + r.len > 51_200;
            let result = if bad { Err(Errno::EIO) } else { Ok(()) };
            replies.push((r.ticket, result, serve_one(&mut store, &r)));
        }
        for (ticket, result, data) in replies.into_iter().rev() {
            session.reply(ticket, result, data);
        }
        if let Some(batch) = take_send(&mut session) {
            let sent =
                batch.iter().try_for_each(|(buf, used)| stream.write_all(&buf[used.clone()]));
            session.sent(SendBatch::default(), sent.map_err(|_| Errno(32)));
            continue;
        }
        if let State::Closed(why) = session.state() {
            return Some(why);
        }
        if let Some((mut buf, at)) = session.take_recv() {
            let n = stream.read(&mut buf[at..]).unwrap_or(0);
            session.received(buf, at, n);
        }
    }
}

fn options(structured: bool) -> Options {
    Options { structured, io_timeout: Some(Duration::from_secs(30)), ..Options::default() }
}

fn connect(name: &str, structured: bool) -> (Result<Client, ClientError>, JoinHandle<Option<Why>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || serve(theirs));
    (Client::over(ours, name, &options(structured)), server)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i / 512 + i) * 31 + seed) as u8).collect()
}

#[test]
fn written_data_reads_back() {
    for structured in [false, true] {
        let (client, server) = connect("", structured);
        let mut client = client.unwrap();
        assert_eq!(client.info().bytes, BYTES as u64);
        assert_eq!(client.info().structured, structured);
        assert_eq!(client.info().can(can::DF), structured);
        for (offset, len) in [(0, 512), (512, 4096), (UNIT - 512, 1024), (1 << 20, 3 << 20)] {
            let data = pattern(len, offset as usize);
            client.write_at(offset, &data, offset == 0).unwrap();
            let mut back = vec![0; len];
            client.read_at(offset, &mut back).unwrap();
            assert!(back == data);
        }
        client.flush().unwrap();
        client.trim(0, 4096).unwrap();
        client.zero(1 << 20, 4096, true).unwrap();
        let mut back = vec![1; 8192];
        client.read_at(1 << 20, &mut back).unwrap();
        assert!(back[..4096].iter().all(|b| *b == 0));
        assert!(back[4096..] == pattern(8192, 1 << 20)[4096..]);
        client.disconnect().unwrap();
        assert_eq!(server.join().unwrap(), Some(Why::Disconnect));
    }
}

#[test]
fn errors_are_returned_and_the_connection_stays_usable() {
    for structured in [false, true] {
        let (client, server) = connect("", structured);
        let mut client = client.unwrap();
        let mut sector = [0; 512];
        let errno = |r: Result<(), ClientError>| match r {
            Err(ClientError::Remote(errno)) => errno,
            other => panic!("{other:?}"),
        };
        assert_eq!(errno(client.read_at(51_200, &mut sector)), Errno::EIO);
        assert_eq!(errno(client.read_at(BYTES as u64, &mut sector)), Errno::EINVAL);
        assert_eq!(errno(client.write_at(BYTES as u64, &sector, false)), Errno::ENOSPC);
        assert_eq!(errno(client.read_at(1, &mut sector)), Errno::EINVAL);
        assert_eq!(errno(client.zero(0, 1 << 30, true)), Errno::ENOSPC);
        let too_long = client.submit(Kind::Read, 0, 33 << 20, &[]);
        assert!(matches!(too_long, Err(ClientError::Usage(_))));
        let wrong_data = client.submit(Kind::Write { fua: false }, 0, 512, &[0; 511]);
        assert!(matches!(wrong_data, Err(ClientError::Usage(_))));
        assert!(matches!(client.wait(), Err(ClientError::Usage(_))));
        client.read_at(0, &mut sector).unwrap();
        drop(client);
        assert_eq!(server.join().unwrap(), Some(Why::PeerClosed));
    }
}

#[test]
fn a_read_only_export_is_reported_and_enforced() {
    let (client, server) = connect("fixed", true);
    let mut client = client.unwrap();
    assert!(client.info().read_only());
    assert_eq!(client.info().name.as_deref(), Some("fixed"));
    assert_eq!(client.info().description.as_deref(), Some("no client writes here"));
    let refused = client.write_at(0, &[0; 512], false);
    assert!(matches!(refused, Err(ClientError::Remote(Errno(1)))));
    assert!(matches!(client.trim(0, 512), Err(ClientError::Usage(_))));
    client.read_at(0, &mut [0; 512]).unwrap();
    drop(client);
    server.join().unwrap();
}

#[test]
fn an_unknown_export_is_rejected_by_name() {
    let (client, server) = connect("nowhere", true);
    let why = client.unwrap_err().to_string();
    assert!(why.contains("\"nowhere\"") && why.contains("no such export"), "{why}");
    assert_eq!(server.join().unwrap(), None);
}

#[test]
fn many_requests_are_in_flight() {
    for structured in [false, true] {
        let (client, server) = connect("", structured);
        let mut client = client.unwrap();
        let mut open = std::collections::HashMap::new();
        for i in 0..40u64 {
            let (kind, data) = match i % 4 {
                0 => (Kind::Write { fua: false }, pattern(4096, i as usize)),
                _ => (Kind::Read, Vec::new()),
            };
            let cookie = client.submit(kind, (1 << 20) + i / 4 * 4096, 4096, &data).unwrap();
            open.insert(cookie, kind == Kind::Read);
        }
        // A blocking call in between keeps the other replies.
        client.flush().unwrap();
        while !open.is_empty() {
            let done = client.wait().unwrap();
            let read = open.remove(&done.cookie).unwrap();
            assert_eq!(done.result.unwrap().len(), if read { 4096 } else { 0 });
        }
        assert_eq!(client.open(), 0);
        drop(client);
        server.join().unwrap();
    }
}

#[test]
fn recycled_buffers_do_not_leak_content() {
    for structured in [false, true] {
        let (client, server) = connect("", structured);
        let (mut sender, mut receiver) = client.unwrap().split();
        for (len, data) in [(4096, vec![0xff; 100]), (0, vec![1; 4096]), (512, vec![2; 9000])] {
            receiver.recycle(data);
            sender.submit(Kind::Read, 0, len, &[]).unwrap();
            assert_eq!(receiver.wait().unwrap().result, Ok(vec![0; len as usize]));
        }
        sender.disconnect().unwrap();
        server.join().unwrap();
    }
}

#[test]
fn two_threads_share_a_connection() {
    let (client, server) = connect("", true);
    let (mut sender, mut receiver) = client.unwrap().split();
    let total = 2000u64;
    let reader = std::thread::spawn(move || {
        let mut bytes = 0;
        for _ in 0..total {
            bytes += receiver.wait().unwrap().result.unwrap().len();
        }
        bytes
    });
    for i in 0..total {
        let offset = (1 << 20) + i % 64 * 4096;
        if i % 2 == 0 {
            sender.queue(Kind::Write { fua: false }, offset, 4096, &[7; 4096]).unwrap();
        } else {
            sender.submit(Kind::Read, offset, 20 << 10, &[]).unwrap();
        }
    }
    sender.push().unwrap();
    assert_eq!(reader.join().unwrap(), 1000 * (20 << 10));
    assert_eq!(sender.open(), 0);
    sender.disconnect().unwrap();
    assert_eq!(server.join().unwrap(), Some(Why::Disconnect));
}
