// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume over failing devices, in real time on the real ring, under clients whose reads are all verified. Whatever
//! the flash does, no client sees an error or a wrong byte. Errors of the origin reach the client, and nothing else
//! breaks.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use std::time::{Duration, Instant};

use larder_core::request::Errno;
use larder_io::{OpenError, Target};
use larder_testkit::load::{PATIENCE, Tolerance, eventually};
use larder_testkit::rig::{BYTES, Rig, Setup, setups};
use larder_volume::VolumeError;

/// Flash timeout of tests in which a hang must be noticed quickly.
const QUICK: Duration = Duration::from_millis(50);

fn refused(result: Result<(), VolumeError>, why: &str) {
    match result {
        Err(VolumeError::Refused(text)) => assert!(text.contains(why), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_healthy_cache_hits_populates_and_evicts() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let rig = Rig::start(setup, seed as u64);
        rig.load.progress(100);
        let stats = rig.stats();
        assert_eq!(
            (stats.state, stats.counters.flash_errors, stats.counters.origin_errors),
            ("caching", 0, 0)
        );
        assert!(stats.units_used > 0 && stats.units_used <= stats.units_total);
        assert_eq!(stats.units_dirty, 0);
        rig.finish();
    }
}

/// Few and large units: some shards have no slot, and requests cross pieces within a unit.
#[test]
fn units_of_every_size_serve_the_right_bytes() {
    let units = [1 << 20, 1 << 20, 1 << 17];
    for (seed, setup) in setups().into_iter().enumerate() {
        let rig = Rig::start_cold(Setup { unit: units[seed], ..setup }, seed as u64);
        eventually("there are hits", || {
            rig.load.judge.check();
            rig.stats().requests.read_hits > 50
        });
        rig.load.progress(300);
        rig.finish();
    }
}

/// A hanging flash device does not prevent a volume from stopping.
#[test]
fn stopping_does_not_wait_for_flash() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let rig = Rig::start(Setup { flash_timeout: QUICK, ..setup }, seed as u64);
        rig.flash_fault.hang(Target::All);
        rig.await_state("suspended");
        let begin = Instant::now();
        rig.finish();
        assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
    }
}

/// Some errors are tolerated; too many fail the device, with an alarm.
#[test]
fn clients_see_no_flash_error_and_too_many_fail_the_device() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let mut rig = Rig::start(setup, seed as u64);
        for target in [Target::Reads, Target::Writes] {
            let before = rig.stats().counters.flash_errors;
            rig.flash_fault.fail_next(target, 4, Errno::EIO);
            eventually("errors are counted", || rig.stats().counters.flash_errors >= before + 4);
        }
        rig.hits();
        assert_eq!((rig.stats().state, rig.status().alarm), ("caching", None));
        rig.flash_fault.fail(Target::All, Errno::EIO);
        rig.await_state("failed");
        let status = rig.status();
        assert!(status.alarm.unwrap().contains("EIO"), "the alarm states the cause");
        eventually("the device is released", || rig.status().flash.is_none());
        rig.load.progress(50);
        rig.attach_new("another").unwrap();
        rig.await_state("caching");
        assert_eq!(rig.status().alarm, None);
        rig.hits();
        rig.finish();
    }
}

/// What clients asked before the alarm is kept, whatever comes after it.
#[test]
fn an_alarm_keeps_the_requests_before_it() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let rig = Rig::start(setup, seed as u64);
        assert!(matches!(rig.volume.recent(true), Err(VolumeError::Refused(_))));
        rig.hits();
        rig.flash_fault.fail(Target::All, Errno::EIO);
        rig.await_state("failed");
        eventually("the requests are kept", || rig.volume.recent(true).is_ok());
        let kept = rig.volume.recent(true).unwrap();
        assert!(kept.alarm.is_some_and(|why| why.contains("EIO")));
        assert!(kept.requests.is_sorted_by_key(|request| request.at_us));
        assert!(kept.requests.iter().any(|request| request.hit && request.ok));
        rig.load.progress(50);
        let now = rig.volume.recent(false).unwrap();
        assert_eq!(rig.volume.recent(true).unwrap().requests, kept.requests);
        assert!(now.alarm.is_none() && now.requests.len() > kept.requests.len());
        rig.finish();
    }
}

/// A slow device that answers within the timeout stays in use.
#[test]
fn a_slow_flash_stays_in_use() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let rig = Rig::start(Setup { flash_timeout: PATIENCE, ..setup }, seed as u64);
        rig.flash_fault.slow(Duration::from_millis(3));
        rig.hits();
        assert_eq!(rig.stats().state, "caching");
        rig.finish();
    }
}

/// Fast writes overtake slow population reads, and vice versa.
#[test]
fn devices_of_changing_speed_cause_no_wrong_data() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let rig = Rig::start(setup, seed as u64);
        for i in 0..300 {
            let fault = if i % 3 == 0 { &rig.flash_fault } else { &rig.origin_fault };
            fault.slow(Duration::from_millis(4));
            std::thread::sleep(Duration::from_millis(2));
            fault.heal();
            std::thread::sleep(Duration::from_millis(1));
        }
        rig.hits();
        assert_eq!(rig.stats().state, "caching");
        rig.finish();
    }
}

#[test]
fn a_hanging_flash_is_bypassed_and_used_again_after_its_late_answers() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let rig = Rig::start(Setup { flash_timeout: QUICK, ..setup }, seed as u64);
        for target in [Target::All, Target::Reads, Target::Writes] {
            rig.flash_fault.hang(target);
            rig.await_state("suspended");
            rig.load.progress(50);
            assert!(rig.flash_fault.held() > 0);
            assert!(rig.stats().counters.flash_timeouts > 0);
            rig.flash_fault.release();
            rig.await_state("caching");
            rig.hits();
        }
        assert_eq!(rig.status().alarm, None);
        rig.finish();
    }
}

/// A failed device with operations in the kernel is not attached again before they complete.
#[test]
fn a_silent_flash_fails_and_is_not_reused_before_it_answers() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let setup =
            Setup { flash_timeout: QUICK, flash_dead_after: Duration::from_millis(600), ..setup };
        let mut rig = Rig::start(setup, seed as u64);
        rig.flash_fault.hang(Target::All);
        rig.await_state("failed");
        assert!(rig.status().alarm.unwrap().contains("no answer"));
        rig.load.progress(50);
        assert!(rig.flash_fault.held() > 0);
        let other = larder_io::Device::mem(4 << 20);
        refused(rig.attach(&other), "still has operations in flight");
        rig.load.progress(50);
        rig.flash_fault.release();
        eventually("the device is released", || rig.status().flash.is_none());
        assert_eq!(rig.stats().state, "failed", "the alarm stays until another is attached");
        rig.attach_new("another").unwrap();
        rig.await_state("caching");
        rig.hits();
        rig.finish();
    }
}

#[test]
fn a_vanished_flash_fails_at_once_and_another_replaces_it() {
    for (seed, setup) in setups().into_iter().enumerate() {
        for hang_first in [false, true] {
            let mut rig = Rig::start(setup, seed as u64);
            if hang_first {
                rig.flash_fault.hang(Target::All);
                rig.load.progress(20);
            }
            rig.flash_fault.vanish();
            rig.await_state("failed");
            assert!(rig.status().alarm.unwrap().contains("ENXIO"));
            eventually("the device is released", || rig.status().flash.is_none());
            assert_eq!(rig.flash_fault.held(), 0);
            rig.load.progress(50);
            rig.attach_new("another").unwrap();
            rig.await_state("caching");
            rig.hits();
            rig.finish();
        }
    }
}

/// The timeout counts from the operation that is overdue now, not from one that completed earlier.
#[test]
fn a_second_hang_has_the_full_timeout() {
    let flash_dead_after = Duration::from_secs(4);
    let setup = Setup { workers: 3, flash_timeout: QUICK, flash_dead_after, ..Setup::default() };
    let rig = Rig::start(setup, 8);
    let begin = Instant::now();
    rig.flash_fault.hang(Target::All);
    rig.await_state("suspended");
    rig.flash_fault.release();
    rig.await_state("caching");
    std::thread::sleep(Duration::from_millis(3300).saturating_sub(begin.elapsed()));
    rig.flash_fault.hang(Target::All);
    rig.await_state("suspended");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(rig.stats().state, "suspended", "failed {:?} after the first hang", begin.elapsed());
    rig.flash_fault.release();
    rig.await_state("caching");
    rig.hits();
    rig.finish();
}

/// A device that is detached under load is closed: its file can be locked again, and the device attached again.
#[test]
fn a_device_detached_under_load_can_be_attached_again() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let rig = Rig::start(setup, seed as u64);
        for _ in 0..5 {
            rig.volume.cache().detach(PATIENCE, |_| {}).unwrap();
            assert_eq!(rig.stats().state, "pass-through");
            assert_eq!(rig.status().flash, None);
            refused(rig.volume.cache().detach(PATIENCE, |_| {}), "no flash device is attached");
            rig.load.progress(10);
            // Opening fails if the attached handle still locks the file.
            let device = rig.flash("flash").unwrap();
            rig.attach(&device).unwrap();
            drop(device);
            refused(rig.attach(&larder_io::Device::mem(4 << 20)), "detach it first");
            rig.await_state("caching");
            rig.hits();
        }
        rig.finish();
    }
}

/// A detach waits, reports progress and times out; the device is released when it answers.
#[test]
fn detach_of_a_hanging_flash_is_bounded_and_completes_when_it_answers() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let mut rig = Rig::start(Setup { flash_timeout: QUICK, ..setup }, seed as u64);
        rig.flash_fault.hang(Target::All);
        rig.await_state("suspended");
        let (begin, mut reported) = (Instant::now(), 0);
        let result =
            rig.volume.cache().detach(Duration::from_millis(300), |waiting| reported = waiting);
        assert!(matches!(result, Err(VolumeError::TooSlow(_))), "{result:?}");
        assert!(begin.elapsed() < PATIENCE && reported > 0);
        assert_eq!(rig.stats().state, "detaching");
        let other = larder_io::Device::mem(4 << 20);
        refused(rig.attach(&other), "still has operations in flight");
        rig.load.progress(50);
        rig.flash_fault.release();
        rig.await_state("pass-through");
        assert_eq!(rig.status().alarm, None);
        rig.attach_new("another").unwrap();
        rig.hits();
        rig.finish();
    }
}

/// An origin error goes to the client that sent the request; other clients are unaffected, and the flash never holds
/// data that the origin rejected.
#[test]
fn origin_errors_reach_only_their_client() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let rig = Rig::start(setup, seed as u64);
        let judge = &rig.load.judge;
        let range = BYTES / 8..BYTES / 4;
        for (target, errno) in [
            (Target::Reads, Errno::EIO),
            (Target::Writes, Errno::ENOSPC),
            (Target::Trims, Errno::EIO),
        ] {
            judge.tolerate(Some(Tolerance { range: range.clone(), flushes: false, errno }));
            let before = judge.errors();
            rig.origin_fault.fail_range(target, range.clone(), errno);
            eventually("clients see errors", || {
                judge.check();
                judge.errors() >= before + 10
            });
            rig.load.progress(50);
            rig.origin_fault.heal();
            // Requests in flight at the moment of healing may still fail.
            rig.load.progress(100);
            judge.tolerate(None);
            rig.hits();
        }
        assert!(rig.stats().counters.origin_errors >= 30);
        assert_eq!((rig.stats().state, rig.status().alarm), ("caching", None));
        rig.finish();
    }
}

/// A failed flush is final: every later one fails too, including the last one at the end. Reads and writes continue.
#[test]
fn a_failed_flush_of_the_origin_is_never_forgotten() {
    for (seed, setup) in setups().into_iter().enumerate() {
        let rig = Rig::start(setup, seed as u64);
        let judge = &rig.load.judge;
        judge.tolerate(Some(Tolerance { range: 0..0, flushes: true, errno: Errno::EIO }));
        rig.origin_fault.fail_next(Target::Flushes, 1, Errno::EIO);
        eventually("a client sees an error", || judge.errors() > 0);
        for _ in 0..3 {
            let before = judge.errors();
            eventually("clients see errors again", || {
                judge.check();
                judge.errors() >= before + 4
            });
            let flushed = rig.volume.flush(PATIENCE);
            assert!(matches!(flushed, Err(VolumeError::Device { .. })), "{flushed:?}");
        }
        rig.hits();
        let alarm = rig.status().alarm.unwrap();
        assert!(alarm.contains("flush") && alarm.contains("EIO"), "{alarm}");
        let stopped = rig.close();
        assert!(stopped.is_err(), "the stop reported success");
    }
}

/// Random faults, one after the other: flash fails, hangs, slows down, is detached and attached.
#[test]
fn many_faults_in_a_row() {
    use rand::{RngExt, SeedableRng};
    for (seed, setup) in setups().into_iter().enumerate() {
        let mut rig = Rig::start(Setup { flash_timeout: QUICK, ..setup }, 100 + seed as u64);
        let mut random = rand_pcg::Pcg64::seed_from_u64(seed as u64);
        for round in 0..12 {
            match random.random_range(0..6) {
                0 => rig.flash_fault.fail_next(Target::All, 3, Errno::EIO),
                1 => rig.flash_fault.hang(Target::Writes),
                2 => rig.flash_fault.hang(Target::Reads),
                3 => rig.flash_fault.vanish(),
                4 => rig.flash_fault.slow(Duration::from_millis(20)),
                _ => drop(rig.volume.cache().detach(Duration::from_millis(50), |_| {})),
            }
            std::thread::sleep(Duration::from_millis(random.random_range(1..200)));
            rig.load.progress(10);
            rig.flash_fault.heal();
            let is_out = |s: &str| s == "detaching" || s == "failed" || s == "pass-through";
            if is_out(rig.stats().state) {
                eventually("the device is released", || rig.status().flash.is_none());
                rig.attach_new(&format!("another-{round}")).unwrap();
            }
            rig.await_state("caching");
        }
        rig.hits();
        rig.finish();
    }
}

/// Checks that a lock is detected, on which other tests rely.
#[test]
fn an_attached_file_is_locked() {
    let rig = Rig::start(Setup { files: true, ..Setup::default() }, 7);
    assert!(matches!(rig.flash("flash"), Err(OpenError::InUse { .. })));
    rig.finish();
}
