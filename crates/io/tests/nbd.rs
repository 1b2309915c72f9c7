// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NBD device against servers that are correct, faulty, slow, gone, or replaced.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod common;

use std::time::{Duration, Instant};

use common::server::{Act, FLAGS, Server, eventually};
use common::{DEV, OWNER, driver_for, expect_nothing, io, next_done, pattern, read, run, write};
use larder_core::exec::{Io, IoId, IoKind};
use larder_core::request::Errno;
use larder_io::{Access, Device, OpenError, Privacy, ServerBounds};
use larder_nbd::codec::{can, cmd};

const BYTES: u64 = 8 << 20;
const MULTI: u16 = FLAGS | can::MULTI_CONN;
/// Time limit in tests that stall the server.
const SOON: Duration = Duration::from_millis(150);
const LATER: Duration = Duration::from_millis(1500);

fn open_within(server: &Server, answer: Duration, give_up: Duration) -> Device {
    let remote = ServerBounds::new(answer, give_up);
    Device::open_within(&server.uri().parse().unwrap(), Access::ReadWrite, Privacy::Any, remote)
        .unwrap()
}

fn open(server: &Server) -> Device {
    open_within(server, Duration::from_secs(10), Duration::from_secs(15))
}

fn refused(server: &Server, access: Access) -> String {
    match Device::open(&server.uri().parse().unwrap(), access) {
        Err(OpenError::Remote { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn all_operations_of_a_device() {
    // All features; only flush; short payloads that split operations.
    for (flags, payload) in
        [(FLAGS, None), (MULTI, None), (can::HAS_FLAGS | can::FLUSH, None), (MULTI, Some(8192))]
    {
        let server = Server::start(BYTES, flags, payload);
        let device = open(&server);
        let geometry = device.geometry();
        assert_eq!((geometry.bytes, geometry.block_bytes), (BYTES, 512));
        assert_eq!(geometry.can_trim, flags & can::TRIM != 0);
        let mut driver = driver_for(&device);
        let data = pattern(3, 3 << 20);
        write(&mut driver, 4096, &data, true).unwrap();
        assert!(read(&mut driver, 4096, 3 << 20).unwrap() == data);
        run(&mut driver, io(IoKind::Zero { fua: true, may_unmap: true }, 8192, 2 << 20)).unwrap();
        run(&mut driver, io(IoKind::Trim { fua: true }, 4096, 4096)).unwrap();
        run(&mut driver, io(IoKind::Flush, 0, 0)).unwrap();
        let memory = server.memory();
        assert!(memory[8192..8192 + (2 << 20)].iter().all(|b| *b == 0));
        assert!(memory[8192 + (2 << 20)..4096 + (3 << 20)] == data[4096 + (2 << 20)..]);
        assert_eq!(read(&mut driver, BYTES, 512), Err(Errno::EINVAL));
        assert_eq!(read(&mut driver, 1, 512), Err(Errno::EINVAL));
        let mut blocking = io(IoKind::Read, 0, 1 << 20);
        device.run_blocking(&mut blocking).unwrap();
        assert!(blocking.buf.unwrap()[..] == memory[..1 << 20]);
    }
}

#[test]
fn several_connections_only_where_the_export_allows_them() {
    for (flags, expected) in [(FLAGS, 1), (MULTI, 4)] {
        let server = Server::start(BYTES, flags, None);
        let device = open(&server);
        eventually("the connections are made", || server.accepted() == expected);
        let mut driver = driver_for(&device);
        for n in 0..64_u32 {
            driver.start(OWNER, Io { id: IoId(n), ..io(IoKind::Read, u64::from(n) << 16, 65536) });
        }
        let mut seen: Vec<u32> = (0..64).map(|_| next_done(&mut driver).id.0).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..64).collect::<Vec<_>>());
        assert_eq!(server.accepted(), expected);
    }
}

#[test]
fn unusable_exports_are_rejected_in_one_line() {
    let server = Server::start(BYTES, FLAGS | can::READ_ONLY, None);
    assert!(refused(&server, Access::ReadWrite).contains("read-only"));
    let device = Device::open(&server.uri().parse().unwrap(), Access::ReadOnly).unwrap();
    let mut driver = driver_for(&device);
    assert!(read(&mut driver, 0, 4096).is_ok());
    assert_eq!(write(&mut driver, 0, &[1; 4096], false), Err(Errno(30)));
    let server = Server::start(BYTES, can::HAS_FLAGS, None);
    assert!(refused(&server, Access::ReadWrite).contains("FLUSH"));
    server.down();
    assert!(refused(&server, Access::ReadWrite).contains("cannot connect"));
    let tiny = Server::start(100, FLAGS, None);
    let opened = Device::open(&tiny.uri().parse().unwrap(), Access::ReadWrite);
    assert!(matches!(opened, Err(OpenError::TooSmall { .. })));
}

/// Whatever a server sends, a read returns the right data or fails.
#[test]
fn garbage_ends_the_connection_and_never_becomes_data() {
    let acts = [
        Act::Drop,
        Act::DropInReply,
        Act::WrongMagic,
        Act::WrongCookie,
        Act::TwiceTheSame,
        Act::Outside,
        Act::Overlapping,
        Act::Missing,
        Act::Oversized,
        Act::SimpleRead,
        Act::Error(108),
    ];
    for flags in [FLAGS, MULTI] {
        let server = Server::start(BYTES, flags, None);
        let device = open(&server);
        let mut driver = driver_for(&device);
        let data = pattern(1, 64 << 10);
        write(&mut driver, 0, &data, true).unwrap();
        for act in acts {
            let before = server.accepted();
            server.next(cmd::READ, 1, act);
            assert!(read(&mut driver, 0, 64 << 10).unwrap() == data, "{act:?}");
            eventually("the device reconnects", || server.accepted() > before);
            assert!(read(&mut driver, 0, 64 << 10).unwrap() == data, "after {act:?}");
        }
        for act in [Act::Drop, Act::DropInReply, Act::WrongMagic, Act::WrongCookie] {
            server.next(cmd::WRITE, 2, act);
            let data = pattern(server.accepted() as u64, 4096);
            write(&mut driver, 8192, &data, true).unwrap();
            assert!(server.memory()[8192..12288] == data, "{act:?}");
        }
        server.next(cmd::READ, 1, Act::Error(5));
        assert_eq!(read(&mut driver, 0, 4096), Err(Errno::EIO));
        assert!(read(&mut driver, 0, 64 << 10).unwrap()[..8192] == data[..8192]);
    }
}

#[test]
fn service_resumes_when_the_server_returns() {
    let server = Server::start(BYTES, MULTI, None);
    let device = open(&server);
    let mut driver = driver_for(&device);
    write(&mut driver, 0, &[7; 8192], true).unwrap();
    server.down();
    driver.start(OWNER, io(IoKind::Read, 0, 8192));
    driver.start(OWNER, common::write_io(8192, &[8; 4096], true));
    expect_nothing(&mut driver, Duration::from_millis(300));
    server.up();
    for _ in 0..2 {
        next_done(&mut driver).result.unwrap();
    }
    assert!(read(&mut driver, 0, 8192).unwrap().iter().all(|b| *b == 7));
    assert!(server.memory()[8192..12288].iter().all(|b| *b == 8));
    run(&mut driver, io(IoKind::Flush, 0, 0)).unwrap();
}

#[test]
fn without_a_server_operations_fail_within_the_bound() {
    let server = Server::start(BYTES, FLAGS, None);
    let device = open_within(&server, SOON, 4 * SOON);
    let mut driver = driver_for(&device);
    server.down();
    let begin = Instant::now();
    for io in [io(IoKind::Read, 0, 4096), common::write_io(0, &[1; 512], false)] {
        driver.start(OWNER, io);
    }
    for _ in 0..2 {
        let done = next_done(&mut driver);
        assert_eq!(done.result, Err(Errno::EIO));
        assert!(done.buf.is_some(), "the buffer is returned");
    }
    let took = begin.elapsed();
    assert!(took >= 4 * SOON && took < 4 * SOON + Duration::from_secs(5), "{took:?}");
    server.up();
    eventually("the server is back", || read(&mut driver, 0, 4096).is_ok());
}

#[test]
fn a_flush_after_lost_writes_keeps_failing() {
    for flags in [FLAGS, MULTI] {
        let server = Server::start(BYTES, flags, None);
        let device = open(&server);
        let mut driver = driver_for(&device);
        // Without unflushed writes a lost connection does no harm.
        write(&mut driver, 0, &[1; 4096], false).unwrap();
        run(&mut driver, io(IoKind::Flush, 0, 0)).unwrap();
        server.cut();
        run(&mut driver, io(IoKind::Flush, 0, 0)).unwrap();
        write(&mut driver, 0, &[2; 4096], true).unwrap();
        server.cut();
        run(&mut driver, io(IoKind::Flush, 0, 0)).unwrap();
        write(&mut driver, 0, &[3; 4096], false).unwrap();
        server.cut();
        for _ in 0..2 {
            // The end of the connection may be detected with a delay.
            eventually("the flush fails", || run(&mut driver, io(IoKind::Flush, 0, 0)).is_err());
        }
        let flush = run(&mut driver, io(IoKind::Flush, 0, 0));
        assert_eq!(flush.unwrap_err(), Errno::EIO);
        assert!(read(&mut driver, 0, 4096).is_ok());
        drop(driver);
        drop(device);
        let mut driver = driver_for(&open(&server));
        run(&mut driver, io(IoKind::Flush, 0, 0)).unwrap();
    }
}

/// A server that delays a write, and executes it after another one was acknowledged, would undo the other one.
#[test]
fn a_stalled_write_cannot_undo_a_later_one() {
    let server = Server::start(BYTES, MULTI, None);
    let device = open_within(&server, SOON, LATER);
    let mut driver = driver_for(&device);
    server.next(cmd::WRITE, 1, Act::Stall);
    write(&mut driver, 0, &[1; 4096], false).unwrap(); // sent again on another connection
    assert_eq!(server.stalled(), 1);
    write(&mut driver, 4096, &[2; 4096], false).unwrap();
    let begin = Instant::now();
    assert_eq!(write(&mut driver, 512, &[3; 512], false), Err(Errno::EIO));
    assert!(begin.elapsed() >= LATER);
    assert!(read(&mut driver, 0, 4096).unwrap().iter().all(|b| *b == 1));
    driver.start(OWNER, common::write_io(0, &[4; 4096], false));
    expect_nothing(&mut driver, Duration::from_millis(200));
    server.release();
    next_done(&mut driver).result.unwrap();
    assert!(server.memory()[..4096].iter().all(|b| *b == 4));
}

#[test]
fn a_stalled_read_is_sent_again_and_its_late_reply_is_ignored() {
    for flags in [FLAGS, MULTI] {
        let server = Server::start(BYTES, flags, None);
        let device = open_within(&server, SOON, LATER);
        let mut driver = driver_for(&device);
        write(&mut driver, 0, &[5; 4096], true).unwrap();
        server.next(cmd::READ, 1, Act::Stall);
        assert!(read(&mut driver, 0, 4096).unwrap().iter().all(|b| *b == 5));
        server.release();
        assert!(read(&mut driver, 0, 4096).unwrap().iter().all(|b| *b == 5));
        // With all reads stalled the operation fails in time.
        server.script(|_| Act::Stall);
        assert_eq!(read(&mut driver, 0, 4096), Err(Errno::EIO));
        server.script(|_| Act::Serve);
        eventually("the server serves again", || read(&mut driver, 0, 4096).is_ok());
    }
}

#[test]
fn an_export_of_another_size_is_rejected_until_it_is_restored() {
    let server = Server::start(BYTES, MULTI, None);
    let device = open_within(&server, SOON, LATER);
    let mut driver = driver_for(&device);
    server.resize(BYTES / 2);
    server.cut();
    assert_eq!(read(&mut driver, 0, 4096), Err(Errno::EIO));
    server.resize(BYTES);
    eventually("the server serves again", || read(&mut driver, 0, 4096).is_ok());
    assert_eq!(device.geometry().bytes, BYTES);
}

#[test]
fn a_driver_may_be_dropped_with_operations_in_flight() {
    let server = Server::start(BYTES, MULTI, None);
    let device = open(&server);
    server.script(|_| Act::Stall);
    let mut driver = driver_for(&device);
    driver.start(OWNER, io(IoKind::Read, 0, 4096));
    eventually("the operation is in flight", || {
        driver.turn(Some(driver.now())).unwrap();
        server.stalled() == 1
    });
    drop(driver);
    server.script(|_| Act::Serve);
    server.release();
    let mut driver = driver_for(&device);
    driver.detach(DEV);
    driver.attach(DEV, device);
    assert!(read(&mut driver, 0, 4096).is_ok());
}
