// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that fail, hang, vanish and slow down, and modelled latency. Only lower bounds of durations are asserted.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{
    DEV, OWNER, PATIENCE, driver_for, expect_nothing, file_in, io, next_done, open, read, run,
    write,
};
use larder_core::exec::{Io, IoId, IoKind};
use larder_core::request::Errno;
use larder_io::{Access, DevSpec, Device, Driver, Fault, Target};

const SPAN: Duration = Duration::from_millis(40);

fn each(test: impl Fn(&Fault, &Device)) {
    let file = file_in(Path::new("/tmp"), 1 << 20);
    for device in [open(file.path()), Device::mem(1 << 20)] {
        let fault = Fault::new();
        test(&fault, &device.with_fault(&fault));
    }
}

#[test]
fn matching_operations_fail() {
    each(|fault, device| {
        let mut driver = driver_for(device);
        write(&mut driver, 0, &[1; 4096], false).unwrap();
        fault.fail(Target::Writes, Errno::ENOSPC);
        assert_eq!(write(&mut driver, 0, &[2; 4096], false), Err(Errno::ENOSPC));
        assert_eq!(read(&mut driver, 0, 512).unwrap()[0], 1);
        fault.heal();
        fault.fail_range(Target::Reads, 8192..12288, Errno::EIO);
        assert_eq!(read(&mut driver, 4096, 8192), Err(Errno::EIO));
        assert!(read(&mut driver, 4096, 4096).is_ok());
        assert!(write(&mut driver, 8192, &[2; 4096], false).is_ok());
        fault.heal();
        fault.fail_next(Target::Flushes, 2, Errno::EIO);
        let flush = || io(IoKind::Flush, 0, 0);
        assert!(write(&mut driver, 0, &[3; 4096], false).is_ok());
        assert_eq!(run(&mut driver, flush()).unwrap_err(), Errno::EIO);
        assert_eq!(run(&mut driver, flush()).unwrap_err(), Errno::EIO);
        assert!(run(&mut driver, flush()).is_ok());
    });
}

#[test]
fn held_operations_run_late() {
    each(|fault, device| {
        let mut driver = driver_for(device);
        write(&mut driver, 0, &[1; 4096], false).unwrap();
        fault.hang(Target::Writes);
        for value in [2, 3] {
            driver.start(OWNER, common::write_io(0, &[value; 4096], false));
        }
        expect_nothing(&mut driver, SPAN);
        assert_eq!((fault.held(), driver.in_flight()), (2, 2));
        assert_eq!(read(&mut driver, 0, 512).unwrap()[0], 1);
        // Another thread releases them while this one sleeps.
        let handle = fault.clone();
        let releaser = std::thread::spawn(move || {
            std::thread::sleep(SPAN);
            handle.release();
        });
        for _ in 0..2 {
            let deadline = driver.now() + PATIENCE.as_nanos() as u64;
            let done = loop {
                driver.turn(Some(deadline)).unwrap();
                if let Some(done) = driver.next_done() {
                    break done;
                }
                assert!(driver.now() < deadline, "the release did not wake the driver");
            };
            assert_eq!((done.result, done.buf.is_some()), (Ok(()), true));
        }
        releaser.join().unwrap();
        assert!(read(&mut driver, 0, 512).unwrap()[0] >= 2);
        assert_eq!((fault.held(), driver.in_flight()), (0, 0));
    });
}

#[test]
fn a_device_vanishes_and_returns() {
    each(|fault, device| {
        let mut driver = driver_for(device);
        write(&mut driver, 0, &[1; 4096], false).unwrap();
        fault.hang(Target::Reads);
        driver.start(OWNER, io(IoKind::Read, 0, 4096));
        expect_nothing(&mut driver, SPAN);
        fault.vanish();
        assert_eq!(next_done(&mut driver).result, Err(Errno::ENXIO));
        assert_eq!(read(&mut driver, 0, 4096), Err(Errno::ENXIO));
        assert_eq!(write(&mut driver, 0, &[2; 4096], false), Err(Errno::ENXIO));
        assert_eq!(run(&mut driver, io(IoKind::Flush, 0, 0)).unwrap_err(), Errno::ENXIO);
        fault.return_();
        fault.release();
        assert_eq!(read(&mut driver, 0, 512).unwrap()[0], 1);
    });
}

#[test]
fn completions_are_delayed() {
    each(|fault, device| {
        let mut driver = driver_for(device);
        fault.slow(SPAN);
        let start = Instant::now();
        read(&mut driver, 0, 4096).unwrap();
        assert!(start.elapsed() >= SPAN);
    });
}

#[test]
fn a_driver_is_dropped_with_operations_held() {
    each(|fault, device| {
        let mut driver = driver_for(device);
        fault.hang(Target::All);
        driver.start(OWNER, io(IoKind::Read, 0, 4096));
        drop(driver);
        assert_eq!(fault.held(), 0);
        fault.release();
        assert!(read(&mut driver_for(device), 0, 4096).is_ok());
    });
}

fn slow_disk(inner: &str) -> Device {
    let spec: DevSpec = format!("slow+{inner}?profile=hdd-15k&seed=1").parse().unwrap();
    Device::open(&spec, Access::ReadWrite).unwrap()
}

#[test]
fn a_modelled_disk_has_latency_and_keeps_its_data() {
    let file = file_in(Path::new("/tmp"), 1 << 30);
    for inner in [file.path().to_str().unwrap(), "mem:1GiB"] {
        let mut driver = driver_for(&slow_disk(inner));
        let start = Instant::now();
        for n in 0..20_u64 {
            let at = n * 7919 % 256 * (4 << 20);
            write(&mut driver, at, &[n as u8; 4096], false).unwrap();
            assert_eq!(read(&mut driver, at, 4096).unwrap()[0], n as u8);
        }
        // 20 seeks with half a revolution each at 15,000 rpm take at least a millisecond each.
        assert!(start.elapsed() >= Duration::from_millis(20), "{:?}", start.elapsed());
    }
}

#[test]
fn threads_share_one_modelled_disk() {
    const READS: u32 = 16;
    let device = slow_disk("mem:1GiB");
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..3_u32 {
            let device = device.clone();
            scope.spawn(move || {
                let mut driver = driver_for(&device);
                for n in 0..READS {
                    let offset = u64::from((n * 3 + thread) * 7919 % 256) << 22;
                    driver.start(thread, Io { id: IoId(n), ..io(IoKind::Read, offset, 4096) });
                }
                let mut seen = vec![false; READS as usize];
                for _ in 0..READS {
                    let done = next_done(&mut driver);
                    assert_eq!((done.owner, done.result), (thread, Ok(())));
                    assert!(!std::mem::replace(&mut seen[done.id.0 as usize], true));
                }
            });
        }
    });
    assert!(start.elapsed() >= Duration::from_millis(24), "{:?}", start.elapsed());
}

#[test]
fn a_dropped_driver_does_not_affect_others() {
    let device = slow_disk("mem:1GiB");
    let mut stays = driver_for(&device);
    let mut leaves: Driver = driver_for(&device);
    for n in 0..8 {
        leaves.start(OWNER, Io { id: IoId(n), ..io(IoKind::Read, u64::from(n) << 26, 4096) });
    }
    stays.start(OWNER, Io { id: IoId(1), ..io(IoKind::Read, 1 << 29, 4096) });
    drop(leaves);
    let mut comes = driver_for(&device);
    comes.start(OWNER, Io { id: IoId(2), dev: DEV, ..io(IoKind::Read, 1 << 28, 4096) });
    assert_eq!(next_done(&mut stays).result, Ok(()));
    assert_eq!(next_done(&mut comes).result, Ok(()));
    assert_eq!((stays.in_flight(), comes.in_flight()), (0, 0));
}
