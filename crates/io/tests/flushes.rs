// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flushes of one file by several drivers.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod common;

use std::path::Path;
use std::thread;

use common::{DEV, OWNER, driver_for, file_in, io, next_done, open, run, turn_until, write};
use larder_core::exec::{IoId, IoKind};
use larder_core::request::Errno;
use larder_io::{Fault, Target};

#[test]
fn every_driver_learns_once_of_a_flush_that_failed() {
    let file = file_in(Path::new("/tmp"), 1 << 20);
    let fault = Fault::new();
    let device = open(file.path()).with_fault(&fault);
    let (mut one, mut other) = (driver_for(&device), driver_for(&device));
    for fua in [false, true] {
        assert_eq!((one.failed_flush(), other.failed_flush()), (None, None));
        fault.fail_next(if fua { Target::Writes } else { Target::Flushes }, 1, Errno::EIO);
        let failed = match fua {
            true => write(&mut one, 0, &[1; 4096], true),
            false => run(&mut one, io(IoKind::Flush, 0, 0)).map(drop),
        };
        assert_eq!(failed, Err(Errno::EIO));
        // It learns of it before it takes the result of a later flush.
        other.start(OWNER, io(IoKind::Flush, 0, 0));
        assert_eq!(other.failed_flush(), Some(DEV));
        assert_eq!(next_done(&mut other).result, Ok(()));
        assert_eq!((one.failed_flush(), one.failed_flush()), (Some(DEV), None));
    }
    // Writes before it was attached are not its own.
    fault.fail_next(Target::Flushes, 1, Errno::EIO);
    assert!(run(&mut one, io(IoKind::Flush, 0, 0)).is_err());
    assert_eq!(driver_for(&device).failed_flush(), None);
}

#[test]
fn flushes_of_many_drivers_all_end() {
    let file = file_in(Path::new("/tmp"), 1 << 20);
    let device = open(file.path());
    thread::scope(|scope| {
        for number in 0..4_u64 {
            let device = device.clone();
            scope.spawn(move || {
                let mut driver = driver_for(&device);
                for round in 0..50_u64 {
                    write(&mut driver, number * 4096, &[round as u8; 4096], false).unwrap();
                    let flush =
                        |id| larder_core::exec::Io { id: IoId(id), ..io(IoKind::Flush, 0, 0) };
                    (0..3).for_each(|id| driver.start(OWNER, flush(id)));
                    let mut left = vec![0, 1, 2];
                    while !left.is_empty() {
                        let done = turn_until(&mut driver, larder_io::Driver::next_done);
                        assert_eq!(done.result, Ok(()));
                        left.retain(|id| IoId(*id) != done.id);
                    }
                    let zero =
                        io(IoKind::Zero { fua: true, may_unmap: false }, number * 4096, 4096);
                    run(&mut driver, zero).unwrap();
                }
            });
        }
    });
}

/// A driver that is dropped while its flush runs, or waits, does not stop the others.
#[test]
fn a_dropped_driver_ends_its_turn() {
    let file = file_in(Path::new("/tmp"), 1 << 20);
    let device = open(file.path());
    for _ in 0..20 {
        let (mut one, mut other) = (driver_for(&device), driver_for(&device));
        write(&mut one, 0, &[7; 8192], false).unwrap();
        one.start(OWNER, io(IoKind::Flush, 0, 0));
        other.start(OWNER, io(IoKind::Flush, 0, 0));
        one.turn(Some(0)).unwrap();
        drop(one);
        assert_eq!(next_done(&mut other).result, Ok(()));
    }
}
