// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets and wake-ups on the ring, and drivers that are dropped with operations in flight.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod common;

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{OWNER, PATIENCE, driver_for, file_in, io, next_net, open, pattern, turn_until};
use larder_core::buf::Buf;
use larder_core::exec::IoKind;
use larder_core::request::Errno;
use larder_io::{Driver, NetEvent, SendBatch};

fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_read_timeout(Some(PATIENCE)).unwrap();
    theirs.set_write_timeout(Some(PATIENCE)).unwrap();
    (ours, theirs)
}

#[test]
fn receives_into_the_middle_of_a_buffer_and_sees_the_end() {
    let (ours, mut theirs) = pair();
    let mut driver = Driver::new().unwrap();
    driver.recv(4, ours.as_fd(), Buf::copy_of(&[1; 64]), 16);
    theirs.write_all(b"hello").unwrap();
    let NetEvent::Received { conn: 4, buf, at: 16, result: Ok(5) } = next_net(&mut driver) else {
        panic!("an unexpected event")
    };
    assert!(buf[..16].iter().all(|b| *b == 1) && &buf[16..21] == b"hello");
    driver.recv(4, ours.as_fd(), buf, 21);
    drop(theirs);
    let event = next_net(&mut driver);
    assert!(matches!(event, NetEvent::Received { result: Ok(0), at: 21, .. }), "{event:?}");
    driver.recv(4, ours.as_fd(), Buf::with_len(8), 8);
    let event = next_net(&mut driver);
    assert!(matches!(event, NetEvent::Received { result: Err(Errno::EINVAL), .. }), "{event:?}");
}

/// Batches much larger than the socket's buffer, to a slow reader.
#[test]
fn sends_everything_in_order_through_a_small_socket() {
    let (ours, mut theirs) = pair();
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4096).unwrap();
    let mut expected = Vec::new();
    let mut batches = Vec::new();
    for round in 0..3_u64 {
        let mut batch = SendBatch::default();
        for part in 0..400 {
            let data = pattern(round * 1000 + part, 1 + (part as usize * 37) % 5000);
            let range = data.len() / 4..data.len();
            expected.extend_from_slice(&data[range.clone()]);
            batch.push(Buf::copy_of(&data), range);
        }
        batches.push(batch);
    }
    let total = expected.len();
    assert_eq!(batches.iter().map(SendBatch::len).sum::<usize>(), total);
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; total];
        for (n, chunk) in got.chunks_mut(50_000).enumerate() {
            if n % 8 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            theirs.read_exact(chunk).unwrap();
        }
        got
    });
    let mut driver = Driver::new().unwrap();
    for batch in batches {
        driver.send(9, ours.as_fd(), batch);
        let NetEvent::Sent { conn: 9, result: Ok(()), mut batch } = next_net(&mut driver) else {
            panic!("not sent")
        };
        batch.clear();
        assert!(batch.is_empty());
    }
    assert!(reader.join().unwrap() == expected);
}

/// A server of one connection on the ring, against a client with blocking calls.
#[test]
fn echoes() {
    const ROUNDS: u64 = 200;
    let (ours, theirs) = pair();
    let mut theirs_out = theirs.try_clone().unwrap();
    let mut theirs_in = theirs;
    let writer = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            theirs_out.write_all(&pattern(round, 3000)).unwrap();
        }
        theirs_out.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let reader = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            let mut got = vec![0; 3000];
            theirs_in.read_exact(&mut got).unwrap();
            assert!(got == pattern(round, 3000));
        }
    });
    let mut driver = Driver::new().unwrap();
    let mut echoed = 0;
    loop {
        driver.recv(1, ours.as_fd(), Buf::with_len(8192), 0);
        let NetEvent::Received { buf, result, .. } = next_net(&mut driver) else { panic!() };
        let got = result.unwrap();
        if got == 0 {
            break;
        }
        echoed += got;
        let mut batch = SendBatch::default();
        batch.push(buf, 0..got);
        driver.send(1, ours.as_fd(), batch);
        assert!(matches!(next_net(&mut driver), NetEvent::Sent { result: Ok(()), .. }));
    }
    assert_eq!(echoed as u64, ROUNDS * 3000);
    writer.join().unwrap();
    reader.join().unwrap();
}

#[test]
fn sending_to_a_closed_socket_is_an_error_and_no_signal() {
    let (ours, theirs) = pair();
    drop(theirs);
    let mut driver = Driver::new().unwrap();
    let mut batch = SendBatch::default();
    batch.push(Buf::with_len(4096), 0..4096);
    driver.send(2, ours.as_fd(), batch);
    let NetEvent::Sent { result, batch, .. } = next_net(&mut driver) else { panic!() };
    assert_eq!(result, Err(Errno(32)));
    assert_eq!(batch.len(), 4096);
    driver.send(2, ours.as_fd(), SendBatch::default());
    assert!(matches!(next_net(&mut driver), NetEvent::Sent { result: Ok(()), .. }));
}

#[test]
fn cancelled_receives_and_sends_are_returned() {
    let (ours, _theirs) = pair();
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 4096).unwrap();
    let mut driver = Driver::new().unwrap();
    let mut batch = SendBatch::default();
    batch.push(Buf::with_len(1 << 20), 0..1 << 20);
    driver.recv(5, ours.as_fd(), Buf::with_len(4096), 0);
    driver.send(5, ours.as_fd(), batch);
    driver.recv(6, ours.as_fd(), Buf::with_len(4096), 0);
    for _ in 0..3 {
        driver.turn(Some(driver.now() + 5_000_000)).unwrap();
    }
    assert!(driver.next_net().is_none());
    driver.cancel(5);
    for _ in 0..2 {
        match next_net(&mut driver) {
            NetEvent::Received { conn: 5, result: Err(Errno(125)), .. }
            | NetEvent::Sent { conn: 5, result: Err(Errno(125)), .. } => {}
            other => panic!("{other:?}"),
        }
    }
    driver.turn(Some(driver.now() + 5_000_000)).unwrap();
    assert!(driver.next_net().is_none());
}

#[test]
fn one_turn_serves_sockets_and_disks() {
    let file = file_in(Path::new("/tmp"), 1 << 20);
    let (ours, mut theirs) = pair();
    let mut driver = driver_for(&open(file.path()));
    driver.recv(1, ours.as_fd(), Buf::with_len(4096), 0);
    driver.start(OWNER, io(IoKind::Read, 0, 4096));
    theirs.write_all(b"x").unwrap();
    let (mut done, mut received) = (0, 0);
    turn_until(&mut driver, |driver| {
        done += usize::from(driver.next_done().is_some());
        received += usize::from(driver.next_net().is_some());
        (done == 1 && received == 1).then_some(())
    });
}

#[test]
fn a_turn_ends_at_its_deadline() {
    let mut driver = Driver::new().unwrap();
    let until = driver.now() + 30_000_000;
    while driver.now() < until {
        driver.turn(Some(until)).unwrap();
    }
    driver.turn(Some(0)).unwrap();
    driver.turn(Some(driver.now())).unwrap();
}

/// While a connection waits for its client, turns poll before they sleep. A notice ends one turn, not all that follow.
#[test]
fn a_notice_ends_one_turn_beside_a_connection() {
    let (ours, _theirs) = pair();
    let mut driver = Driver::new().unwrap();
    driver.recv(1, ours.as_fd(), Buf::with_len(8), 0);
    driver.waker().wake();
    driver.turn(Some(driver.now() + PATIENCE.as_nanos() as u64)).unwrap();
    let (begun, pause) = (driver.now(), 30_000_000);
    let mut turns = 0;
    while driver.now() < begun + pause {
        driver.turn(Some(begun + pause)).unwrap();
        turns += 1;
    }
    assert!(turns < 100, "{turns} turns");
}

/// Two threads wake each other through an inbox and a waker: no wake may be lost.
#[test]
fn wakes_are_never_lost() {
    const ROUNDS: u64 = 20_000;
    let inbox = Arc::new(AtomicU64::new(0));
    let (send, receive) = std::sync::mpsc::channel();
    let sleeper = {
        let inbox = Arc::clone(&inbox);
        std::thread::spawn(move || {
            let mut driver = Driver::new().unwrap();
            send.send(driver.waker()).unwrap();
            let deadline = Instant::now() + PATIENCE;
            while inbox.load(Ordering::Acquire) < ROUNDS {
                // A lost wake-up would make this turn last until the deadline.
                driver.turn(Some(driver.now() + PATIENCE.as_nanos() as u64)).unwrap();
                assert!(Instant::now() < deadline, "a wake was lost");
            }
        })
    };
    let waker = receive.recv().unwrap();
    for round in 0..ROUNDS {
        inbox.fetch_add(1, Ordering::Release);
        waker.wake();
        if round % 64 == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    sleeper.join().unwrap();
    // Waking a dropped driver has no effect.
    waker.wake();
}

/// After a driver is dropped, neither a disk nor a socket may write to its memory, which may belong to something else.
#[test]
fn a_dropped_driver_does_not_write_to_freed_memory() {
    const LEN: usize = 64 << 10;
    let (ours, mut theirs) = pair();
    let file = file_in(Path::new("/tmp"), 4 << 20);
    let device = open(file.path());
    common::write(&mut driver_for(&device), 0, &[0xCD; 4 << 20], true).unwrap();
    for _ in 0..20 {
        let mut driver = driver_for(&device);
        driver.recv(1, ours.as_fd(), Buf::with_len(LEN), 0);
        let mut batch = SendBatch::default();
        batch.push(Buf::with_len(1 << 20), 0..1 << 20);
        driver.send(1, ours.as_fd(), batch);
        driver.start(OWNER, io(IoKind::Flush, 0, 0));
        for n in 0..64 {
            driver.start(OWNER, io(IoKind::Read, n * LEN as u64, LEN as u64));
        }
        driver.turn(Some(driver.now())).unwrap();
        let start = Instant::now();
        drop(driver);
        assert!(start.elapsed() < Duration::from_secs(4), "dropping took too long");
        // These come from the pool to which the driver's buffers returned.
        let mut again: Vec<Buf> = (0..65).map(|_| Buf::with_len(LEN)).collect();
        again.iter_mut().for_each(|buf| buf.fill(0xAB));
        theirs.write_all(&[0xCD; 1000]).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        assert!(again.iter().all(|buf| buf.iter().all(|b| *b == 0xAB)));
        drain(&ours, &theirs);
    }
}

/// Reads everything in both directions.
fn drain(a: &UnixStream, b: &UnixStream) {
    for mut stream in [a, b] {
        stream.set_nonblocking(true).unwrap();
        let mut sink = vec![0; 1 << 16];
        while stream.read(&mut sink).is_ok_and(|n| n > 0) {}
        stream.set_nonblocking(false).unwrap();
    }
}
