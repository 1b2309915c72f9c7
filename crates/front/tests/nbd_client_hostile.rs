// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client against servers that break the protocol: the result is always an error, never a panic, a hang or memory
//! beyond the request.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use larder_core::extent::Extent;
use larder_core::request::{Errno, Kind};
use larder_nbd::client::{Client, ClientError, Options};
use larder_nbd::codec::{
    ChunkHeader, Greeting, OptionReply, SimpleReply, can, chunk, info, opt, rep,
};
use larder_nbd::status::{BASE_ALLOCATION, encode};
use proptest::prelude::*;

const OPTIONS: Options = Options {
    connect_timeout: Duration::from_secs(5),
    io_timeout: Some(Duration::from_secs(5)),
    structured: true,
    allocation: false,
};

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    [&OptionReply { option, kind, len: data.len() as u32 }.encode(), data].concat()
}

fn export_fact(flags: u16) -> Vec<u8> {
    let facts = [&info::EXPORT.to_be_bytes()[..], &(1u64 << 30).to_be_bytes()];
    let data = [facts.concat(), flags.to_be_bytes().to_vec()].concat();
    reply(opt::GO, rep::INFO, &data)
}

/// A valid negotiation, including the reply to `GO`.
fn valid(structured: bool) -> Vec<u8> {
    let mut bytes = Greeting { flags: 3 }.encode().to_vec();
    if structured {
        bytes.extend(reply(opt::STRUCTURED_REPLY, rep::ACK, &[]));
    } else {
        bytes.extend(reply(opt::STRUCTURED_REPLY, rep::ERR_UNSUP, b"no"));
    }
    bytes.extend(export_fact(can::HAS_FLAGS | can::FLUSH));
    bytes.extend(reply(opt::GO, rep::ACK, &[]));
    bytes
}

/// A client whose server sends `bytes`, whatever it receives, and then nothing more.
fn against(bytes: &[u8]) -> Result<Client, ClientError> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let bytes = bytes.to_vec();
    std::thread::spawn(move || {
        let _ = theirs.write_all(&bytes);
        let _ = theirs.shutdown(std::net::Shutdown::Write);
        let _ = theirs.read_to_end(&mut Vec::new());
    });
    Client::over(ours, "x", &OPTIONS)
}

/// The result of one read of 4 KiB at 8192 (cookie 1) when the server sends `bytes`.
fn read_against(structured: bool, bytes: &[u8]) -> Result<Result<Vec<u8>, Errno>, ClientError> {
    let mut client = against(&[&valid(structured), bytes].concat())?;
    client.submit(Kind::Read, 8192, 4096, &[])?;
    let first = client.wait();
    if first.is_err() {
        assert!(client.wait().is_err(), "a failed connection keeps failing");
    }
    Ok(first?.result)
}

fn chunk_of(flags: u16, kind: u16, cookie: u64, body: &[u8]) -> Vec<u8> {
    [&ChunkHeader { flags, kind, cookie, len: body.len() as u32 }.encode(), body].concat()
}

fn data_chunk(flags: u16, offset: u64, len: usize) -> Vec<u8> {
    let body = [&offset.to_be_bytes()[..], &vec![9; len]].concat();
    chunk_of(flags, chunk::OFFSET_DATA, 1, &body)
}

fn hole_chunk(flags: u16, offset: u64, len: u32) -> Vec<u8> {
    let body = [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
    chunk_of(flags, chunk::OFFSET_HOLE, 1, &body)
}

const DONE: u16 = chunk::FLAG_DONE;

#[test]
fn invalid_negotiations_are_rejected() {
    let greeting = Greeting { flags: 3 }.encode().to_vec();
    let ack = reply(opt::STRUCTURED_REPLY, rep::ACK, &[]);
    let go = |data: &[&[u8]]| [&greeting[..], &ack, &data.concat()].concat();
    let sizes = |min: u32, preferred: u32, max: u32| {
        let sizes = [min, preferred, max].map(u32::to_be_bytes);
        let fact = [&info::BLOCK_SIZE.to_be_bytes()[..], sizes.as_flattened()].concat();
        go(&[&export_fact(1), &reply(opt::GO, rep::INFO, &fact), &reply(opt::GO, rep::ACK, &[])])
    };
    let huge = OptionReply { option: opt::GO, kind: rep::INFO, len: u32::MAX }.encode();
    for bytes in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        Greeting { flags: 0 }.encode().to_vec(),
        [&greeting[..], &[0; 20]].concat(),
        [&greeting[..], &reply(opt::GO, rep::ACK, &[])].concat(),
        [&greeting[..], &reply(opt::STRUCTURED_REPLY, rep::INFO, &[])].concat(),
        go(&[&reply(opt::GO, rep::ACK, &[])]),
        go(&[&huge]),
        go(&[&reply(opt::GO, rep::INFO, &[0])]),
        go(&[&reply(opt::GO, rep::INFO, &[0; 11])]),
        go(&[&reply(opt::GO, 77, &[])]),
        go(&[&export_fact(0), &reply(opt::GO, rep::ACK, &[])]),
        go(&[&export_fact(1).repeat(5000)]),
        sizes(0, 4096, 1 << 20),
        sizes(3, 4096, 1 << 20),
        sizes(4096, 512, 1 << 20),
        sizes(4096, 4096, 512),
        sizes(1 << 17, 1 << 17, 1 << 20),
    ] {
        let e = against(&bytes).unwrap_err();
        assert!(matches!(e, ClientError::Protocol(_)), "{e:?}");
    }
    let refused = against(&go(&[&reply(opt::GO, rep::ERR_POLICY, b"not\x1b[2Jyou")])).unwrap_err();
    assert!(refused.to_string().ends_with(r#"forbidden by policy ("not\u{1b}[2Jyou")"#));
    for n in 0..valid(true).len() {
        assert!(matches!(against(&valid(true)[..n]), Err(ClientError::Closed)));
    }
    assert!(against(&sizes(1, 512, u32::MAX)).unwrap().info().max_payload_bytes == 32 << 20);
}

#[test]
fn a_silent_server_times_out() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let options = Options { connect_timeout: Duration::from_millis(50), ..OPTIONS };
    assert!(matches!(Client::over(ours, "x", &options), Err(ClientError::TimedOut)));
}

#[test]
fn valid_replies_in_unusual_order() {
    let read = |bytes: &[&[u8]]| read_against(true, &bytes.concat()).unwrap();
    let parts = [data_chunk(0, 8192 + 1024, 512), hole_chunk(0, 8192, 1024)].concat();
    let rest = data_chunk(0, 8192 + 1536, 4096 - 1536);
    let none = chunk_of(DONE, chunk::NONE, 1, &[]);
    let whole = read(&[&parts, &rest, &none]).unwrap();
    assert!(whole[..1024].iter().all(|b| *b == 0) && whole[1024..].iter().all(|b| *b == 9));
    assert_eq!(read(&[&data_chunk(DONE, 8192, 4096)]), Ok(vec![9; 4096]));
    assert_eq!(read(&[&hole_chunk(DONE, 8192, 4096)]), Ok(vec![0; 4096]));
    let error = |flags| chunk_of(flags, chunk::ERROR, 1, b"\0\0\0\x1c\0\x02no");
    assert_eq!(read(&[&error(DONE)]), Err(Errno::ENOSPC));
    assert_eq!(read(&[&error(0), &rest, &none]), Err(Errno::ENOSPC));
    let unknown = chunk_of(DONE, chunk::ERR + 99, 1, b"\0\0\0\x05\0\0more of it");
    assert_eq!(read(&[&unknown]), Err(Errno::EIO));
}

#[test]
fn invalid_replies_are_rejected() {
    let simple = |error, cookie| SimpleReply { error, cookie }.encode().to_vec();
    let head = |kind, len| ChunkHeader { flags: DONE, kind, cookie: 1, len }.encode().to_vec();
    for bytes in [
        vec![0; 64],
        simple(0, 1),
        simple(0, 2),
        simple(22, u64::MAX),
        head(chunk::NONE, 4),
        chunk_of(0, chunk::NONE, 1, &[]),
        chunk_of(DONE, chunk::NONE, 1, &[]),
        chunk_of(DONE, chunk::NONE, 7, &[]),
        head(chunk::OFFSET_DATA, 8),
        [head(chunk::OFFSET_DATA, u32::MAX), vec![0; 100]].concat(),
        head(chunk::OFFSET_HOLE, 11),
        head(chunk::ERROR, 5),
        head(chunk::ERROR, u32::MAX),
        chunk_of(DONE, chunk::ERROR, 1, b"\0\0\0\x05\0\x09short"),
        head(5, 12),
        data_chunk(DONE, 0, 4096),
        data_chunk(DONE, 8192, 4097),
        data_chunk(DONE, 8192, 4095),
        data_chunk(DONE, 8193, 4096),
        data_chunk(DONE, u64::MAX, 1),
        hole_chunk(DONE, 8192, u32::MAX),
        hole_chunk(DONE, 8192, 0),
        [data_chunk(0, 8192, 4096), data_chunk(DONE, 8192, 4096)].concat(),
        [data_chunk(0, 8192, 2048), hole_chunk(DONE, 8192 + 2047, 2049)].concat(),
        [data_chunk(0, 8192 + 2048, 2048), data_chunk(DONE, 8192, 2049)].concat(),
        // The lengths add up, but one part arrives twice and another never.
        [(0, 2048, 1024), (0, 1024, 2048), (DONE, 0, 1024)]
            .map(|(flags, at, len)| data_chunk(flags, 8192 + at, len))
            .concat(),
        [(0, 0, 2048), (0, 1024, 1024), (DONE, 3072, 1024)]
            .map(|(flags, at, len)| data_chunk(flags, 8192 + at, len))
            .concat(),
    ] {
        let result = read_against(true, &bytes);
        assert!(matches!(result, Err(ClientError::Protocol(_))), "{result:?}");
    }
    let result = read_against(false, &data_chunk(DONE, 8192, 4096));
    assert!(matches!(result, Err(ClientError::Protocol(_))));
    assert_eq!(read_against(false, &simple(u32::MAX, 1)).unwrap(), Err(Errno::EINVAL));
    let whole = [simple(0, 1), vec![7; 4096]].concat();
    assert_eq!(read_against(false, &whole).unwrap(), Ok(vec![7; 4096]));
    let short = [simple(0, 1), vec![7; 4095]].concat();
    assert!(matches!(read_against(false, &short), Err(ClientError::Closed)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_after_any_part_of_a_negotiation(
        cut in 0usize..200,
        junk in proptest::collection::vec(any::<u8>(), 0..200),
        chunks in proptest::collection::vec(
            (0u16..4, prop_oneof![0u16..7, 0x8000u16..0x8004], 0u64..3,
             proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
    ) {
        let mut bytes = valid(true);
        bytes.truncate(cut);
        for (flags, kind, cookie, body) in chunks {
            bytes.extend(chunk_of(flags, kind, cookie, &body));
        }
        bytes.extend(junk);
        if let Ok(mut client) = against(&bytes) {
            for _ in 0..2 {
                let _ = client.submit(Kind::Read, 0, 4096, &[]);
            }
            while client.open() > 0 && client.wait().is_ok() {}
        }
    }
}

/// The reply to a block status of 8 KiB at 4096 (cookie 1) in context 7, when the server sends `bytes`.
fn status_against(bytes: &[u8]) -> Result<Vec<Extent>, ClientError> {
    let mut talk = Greeting { flags: 3 }.encode().to_vec();
    talk.extend(reply(opt::STRUCTURED_REPLY, rep::ACK, &[]));
    let context = [&[0, 0, 0, 7], BASE_ALLOCATION.as_bytes()].concat();
    talk.extend(reply(opt::SET_META_CONTEXT, rep::META_CONTEXT, &context));
    talk.extend(reply(opt::SET_META_CONTEXT, rep::ACK, &[]));
    talk.extend(export_fact(can::HAS_FLAGS));
    talk.extend(reply(opt::GO, rep::ACK, &[]));
    talk.extend(bytes);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        let _ = theirs.write_all(&talk);
        let _ = theirs.shutdown(std::net::Shutdown::Write);
        let _ = theirs.read_to_end(&mut Vec::new());
    });
    let options = Options { allocation: true, ..OPTIONS };
    Client::over(ours, "x", &options)?.extents(4096, 8192, false)
}

#[test]
fn invalid_block_statuses_end_the_connection() {
    let list = [Extent::hole(4096), Extent::data(4096)];
    let good = encode(7, &list);
    let status = |flags, body: &[u8]| chunk_of(flags, 5, 1, body);
    assert_eq!(status_against(&status(DONE, &good)).unwrap(), list);
    let late = [status(0, &good), chunk_of(DONE, chunk::NONE, 1, &[])].concat();
    assert_eq!(status_against(&late).unwrap(), list);
    let error = [&5u32.to_be_bytes()[..], &[0, 0]].concat();
    let refused = status_against(&chunk_of(DONE, chunk::ERROR, 1, &error));
    assert!(matches!(refused, Err(ClientError::Remote(Errno::EIO))));
    let huge = ChunkHeader { flags: DONE, kind: 5, cookie: 1, len: u32::MAX }.encode();
    let empty = encode(7, &[Extent::data(0)]);
    for bytes in [
        status(DONE, &encode(1, &list)),
        status(DONE, &good[..4]),
        status(DONE, &good[..11]),
        status(DONE, &empty),
        [status(0, &good), status(DONE, &good)].concat(),
        chunk_of(DONE, chunk::NONE, 1, &[]),
        chunk_of(DONE, 5, 2, &good),
        data_chunk(DONE, 4096, 8192),
        huge.to_vec(),
        SimpleReply { error: 0, cookie: 1 }.encode().to_vec(),
    ] {
        let result = status_against(&bytes);
        assert!(matches!(result, Err(ClientError::Protocol(_))), "{result:?}");
    }
}
