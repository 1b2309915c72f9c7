// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flash that fails every operation for a while under verified load: no wrong byte, and service returns without a restart.
//! A cache that may hold dirty data retries; a clean cache continues without flash and attaches it again.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_core::buf::Buf;
use larder_core::config::{Durability, Limits, WritePolicy, preset};
use larder_core::format::Wishes;
use larder_core::pagelog::LogPolicy;
use larder_core::request::{Errno, Kind};
use larder_io::{Access, DevSpec, Device, Fault, Target};
use larder_testkit::load::{PATIENCE, Tolerance, eventually};
use larder_testkit::rig::{BYTES, Rig, Setup, read};
use larder_volume::{CacheConfig, FlashDevice, StateFile, Volume};

/// How long a log retries here.
const DEAD_AFTER: Duration = Duration::from_millis(500);

fn setups() -> [Setup; 5] {
    let base = Setup { in_flight: 16, flash_dead_after: DEAD_AFTER, ..Setup::default() };
    let log = |log, workers| Setup { preset: "face", log, workers, ..base };
    [
        Setup { workers: 2, ..base },
        log(LogPolicy::Through, 2),
        log(LogPolicy::Bounded, 1),
        log(LogPolicy::Full, 3),
        Setup { preset: "prwc", workers: 2, ..base },
    ]
}

/// Ends an outage, and waits until the cache is used as before.
fn heal(rig: &Rig) {
    rig.flash_fault.heal();
    rig.await_state("caching");
    // The requests that began before.
    rig.load.progress(20);
    rig.load.judge.tolerate(None);
    rig.hits();
}

#[test]
fn an_outage_that_is_shorter_than_the_retries_is_a_delay() {
    for (seed, setup) in (0..).zip(setups()) {
        let rig = Rig::start(setup, 400 + seed);
        for errno in [Errno::EIO, Errno::ENOSPC] {
            rig.flash_fault.fail(Target::All, errno);
            std::thread::sleep(Duration::from_millis(100));
            if setup.holds_dirty() {
                assert!(rig.stats().counters.flash_errors > 0, "nothing failed");
            }
            heal(&rig);
        }
        rig.finish();
    }
}

#[test]
fn service_returns_after_a_longer_outage() {
    for (seed, setup) in (0..).zip(setups()) {
        let rig = Rig::start(setup, 410 + seed);
        if setup.holds_dirty() {
            let (range, flushes, errno) = (0..BYTES, true, Errno::EIO);
            rig.load.judge.tolerate(Some(Tolerance { range, flushes, errno }));
        }
        rig.flash_fault.fail(Target::All, Errno::EIO);
        rig.await_state("failed");
        std::thread::sleep(2 * DEAD_AFTER);
        // Under `bounded` a FLUSH may have drained every dirty page before.
        if setup.holds_dirty() && setup.log != LogPolicy::Bounded {
            let what = format!("clients of {} {:?} see errors", setup.preset, setup.log);
            eventually(&what, || rig.load.judge.errors() > 0);
        }
        heal(&rig);
        assert_eq!(rig.status().alarm, None);
        rig.finish();
    }
}

/// A device that was detached is not attached again, and its failure is no longer reported.
#[test]
fn a_detach_ends_the_retries_of_a_clean_cache() {
    let rig = Rig::start(Setup { flash_dead_after: DEAD_AFTER, ..Setup::default() }, 420);
    rig.flash_fault.fail(Target::All, Errno::EIO);
    rig.await_state("failed");
    eventually("the device is released", || rig.status().flash.is_none());
    rig.volume.cache().detach(PATIENCE, |_| {}).unwrap();
    assert_eq!(rig.stats().state, "pass-through");
    rig.flash_fault.heal();
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(rig.stats().state, "pass-through");
    rig.finish();
}

/// Otherwise writes to flash would fail once its file system is full.
#[test]
fn a_flash_file_has_its_blocks_once_it_is_formatted() {
    let rig = Rig::start_cold(Setup::default(), 430);
    rig.volume.cache().detach(PATIENCE, |_| {}).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let bytes = 4 << 20;
    for sparse in [true, false] {
        let path = dir.path().join(format!("flash-{sparse}"));
        std::fs::File::create_new(&path).unwrap().set_len(bytes).unwrap();
        let device = Device::open(&DevSpec::Path(path.clone()), Access::ReadWrite).unwrap();
        let (shape, choices) = (rig.volume.cache().shape(), &rig.volume.cache().config().choices);
        let flash =
            FlashDevice::prepare(device, (None, None), shape, choices, Wishes::default()).unwrap();
        let needed = flash.plan.end();
        rig.volume.cache().attach(flash.sparse(sparse)).unwrap();
        let allocated = std::fs::metadata(&path).unwrap().blocks() * 512;
        assert_eq!(allocated >= needed, !sparse, "{allocated} of {needed}");
        rig.volume.cache().detach(PATIENCE, |_| {}).unwrap();
    }
    rig.finish();
}

/// A volume with a page log under `full` whose flash and state file stay, started again.
fn full(dir: &Path, fault: &Fault, flash_dead_after: Duration) -> Arc<Volume> {
    let mut choices = preset("face").unwrap().choices();
    choices.write = WritePolicy::Logged(LogPolicy::Full);
    choices.durability = Durability::Log;
    let open = |name: &str, bytes| {
        let path = dir.join(name);
        // Its modification time shows whether it was written to.
        if !path.exists() {
            std::fs::File::create_new(&path).unwrap().set_len(bytes).unwrap();
        }
        Device::open(&DevSpec::Path(path), Access::ReadWrite).unwrap()
    };
    let origin = dir.join("origin").to_str().unwrap().to_owned();
    let config = CacheConfig {
        limits: Limits {
            flash_timeout: flash_dead_after.as_nanos() as u64,
            flash_dead_after: flash_dead_after.as_nanos() as u64,
            ..Limits::default()
        },
        state: Some(StateFile::new(&dir.join("state"), "v", &origin)),
        ..CacheConfig::of(open("origin", 4 << 20), choices, 2).named("v")
    };
    let volume = Volume::start(config).unwrap();
    let flash = open("flash", 16 << 20).with_fault(fault);
    let (shape, choices) = (volume.cache().shape(), &volume.cache().config().choices);
    let flash =
        FlashDevice::prepare(flash, (None, None), shape, choices, Wishes::default()).unwrap();
    volume.cache().attach(flash).unwrap();
    volume
}

fn ask(volume: &Volume, kind: Kind, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
    let (done, is_done) = std::sync::mpsc::channel();
    let bufs = if bytes.is_empty() { Vec::new() } else { vec![Buf::copy_of(bytes)] };
    volume.call(kind, offset, bytes.len() as u64, bufs, move |result| {
        done.send(result.map(drop)).unwrap();
    });
    is_done.recv_timeout(PATIENCE).unwrap()
}

/// The schedule that a record off the flash is for: a page is written and flushed, so the log has it; flash fails; a new
/// write goes to the origin; the volume stops, and flash works again at the next start.
#[test]
fn a_write_past_failed_flash_outlives_a_stop_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let page = |value: u8| [value; 4096];
    let write = Kind::Write { fua: false };
    let fault = Fault::new();
    let volume = full(dir.path(), &fault, DEAD_AFTER);
    for number in 0..64 {
        ask(&volume, write, number * 4096, &page(1)).unwrap();
    }
    ask(&volume, Kind::Flush, 0, &[]).unwrap();
    // Acknowledged, and in memory only.
    ask(&volume, write, 5 * 4096, &page(2)).unwrap();
    fault.fail(Target::All, Errno::EIO);
    // It waits until the log fails.
    let _ = ask(&volume, Kind::Flush, 0, &[]);
    assert_eq!(volume.stats().unwrap().state, "failed");
    eventually("writes go to the origin", || ask(&volume, write, 7 * 4096, &page(3)).is_ok());
    // Dirty on flash, and covered in part: the rest of the page is needed, which flash does not return.
    assert_eq!(ask(&volume, write, 9 * 4096, &[4; 512]), Err(Errno::EIO));
    assert_eq!(ask(&volume, Kind::Flush, 0, &[]), Ok(()));
    let began = Instant::now();
    volume.cache().stop(PATIENCE, |_| {}, || false).unwrap();
    assert!(began.elapsed() < PATIENCE / 2, "the stop waited for flash");
    drop(volume);
    let volume = full(dir.path(), &Fault::new(), DEAD_AFTER);
    let bytes = read(&volume, 0, 64 * 4096);
    let found: Vec<u8> = bytes.chunks(4096).map(|page| page[0]).collect();
    let mut expected = vec![1; 64];
    (expected[5], expected[7]) = (2, 3);
    assert_eq!(found, expected);
    volume.cache().stop(PATIENCE, |_| {}, || false).unwrap();
}

/// A stop that has less time than the log retries writes what only memory has to the origin.
#[test]
fn a_stop_during_an_outage_loses_no_answered_write() {
    let dir = tempfile::tempdir().unwrap();
    let fault = Fault::new();
    let volume = full(dir.path(), &fault, 10 * PATIENCE);
    fault.fail(Target::All, Errno::EIO);
    ask(&volume, Kind::Write { fua: false }, 4096, &[7; 4096]).unwrap();
    volume.cache().stop(Duration::from_secs(8), |_| {}, || false).unwrap();
    drop(volume);
    let volume = full(dir.path(), &Fault::new(), DEAD_AFTER);
    assert_eq!(read(&volume, 4096, 4096), [7; 4096]);
    volume.cache().stop(PATIENCE, |_| {}, || false).unwrap();
}
