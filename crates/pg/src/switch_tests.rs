// SPDX-License-Identifier: MIT OR Apache-2.0
//! The switch: what flash serves, takes and keeps while the cache is disabled, and what it has afterwards.

use std::cell::Cell;

use larder_core::buf::Buf;
use larder_core::pagelog::LogPolicy;

use crate::area::Mark;
use crate::error::Failure;
use crate::pool::Use;
use crate::rig::{FORK, PAGE, Place, Run, page_of};
use crate::switch::{NotOff, Switch, after_crash};

fn run(place: &Place, policy: LogPolicy) -> Run {
    place.start(policy).unwrap()
}

fn page(run: &Run, block: u64) -> u64 {
    run.pool.page(&FORK, block).unwrap()
}

/// A write to the disk, with all that the cache hears of it.
fn write(run: &Run, block: u64, value: u8) {
    let writing = run.pool.begin_write(page(run, block), true, || 0).unwrap();
    run.pool.end_write(writing, &page_of(value));
}

/// A page is read into a frame, and leaves it.
fn pass(run: &Run, block: u64, value: u8) {
    let page = page(run, block);
    let epoch = run.pool.epoch(page);
    run.pool.filled(0, page, Use::Access, epoch, &page_of(value));
    run.pool.leaves(0, None, || Buf::copy_of(&page_of(value)));
}

#[test]
fn what_is_written_while_the_cache_is_disabled_is_not_served_afterwards() {
    for policy in [LogPolicy::Through, LogPolicy::Bounded] {
        let place = Place::new();
        let run = run(&place, policy);
        (1..4).for_each(|block| pass(&run, block, 5));
        run.pool.disable().unwrap();
        assert!(!run.pool.works());
        write(&run, 1, 6);
        run.pool.forget(&FORK, 0, 3, &|| Ok(32)).map(drop).unwrap();
        run.pool.enable();
        assert!(run.pool.works());
        assert_eq!(run.has(&FORK, 1), None, "the disk has a newer version");
        assert_eq!(run.has(&FORK, 2), Some(5), "flash stays warm");
        assert_eq!(run.has(&FORK, 3), None, "cut off");
    }
}

/// A checkpoint that flushes the file in between must find one of the versions.
#[test]
fn a_dirty_page_stays_until_the_disk_has_its_new_version() {
    let place = Place::new();
    let run = run(&place, LogPolicy::Bounded);
    run.put(&FORK, 4, 9);
    let page = page(&run, 4);
    let writing = run.pool.begin_write(page, true, || 0).unwrap();
    assert_eq!(run.pool.pages().status().dirty, 1);
    assert_eq!(run.has(&FORK, 4), Some(9));
    run.pool.end_write(writing, &page_of(7));
    assert_eq!(run.has(&FORK, 4), Some(7));
    assert_eq!(run.pool.pages().status().dirty, 0);
    // A write of a part has no end.
    run.put(&FORK, 4, 8);
    run.pool.begin_write(page, false, || 0).unwrap();
    assert_eq!(run.has(&FORK, 4), None);
}

#[test]
fn nothing_is_admitted_or_taken_while_the_cache_is_disabled() {
    let place = Place::new();
    let run = run(&place, LogPolicy::Bounded);
    run.pool.disable().unwrap();
    pass(&run, 1, 5);
    write(&run, 2, 5);
    assert_eq!(run.pool.absorb(page(&run, 3), &page_of(5)), Ok(false));
    assert_eq!(run.pool.absorbs(), Ok(false));
    assert!((1..4).all(|block| run.has(&FORK, block).is_none()));
    assert_eq!(run.pool.pages().status().put, 0);
    run.pool.enable();
    assert_eq!(run.pool.absorb(page(&run, 3), &page_of(7)), Ok(true));
    assert_eq!(run.has(&FORK, 3), Some(7));
}

#[test]
fn the_disk_has_all_changes_before_flash_is_no_longer_read() {
    let place = Place::new();
    let run = run(&place, LogPolicy::Bounded);
    run.put(&FORK, 4, 9);
    let seen = Cell::new(false);
    Switch::flash(run.pool.area())
        .off(|| {
            // A change in the middle of the drain finds flash still in use, and goes to the disk.
            assert!(run.pool.works() && run.has(&FORK, 4) == Some(9));
            assert_eq!(run.pool.absorb(page(&run, 5), &page_of(9)), Ok(false));
            seen.set(true);
            run.pool.drain()
        })
        .unwrap();
    assert!(seen.get() && !run.pool.works());
    let mut bytes = vec![0; PAGE];
    std::os::unix::fs::FileExt::read_exact_at(&place.file(), &mut bytes, 4 * PAGE as u64).unwrap();
    assert_eq!(bytes, page_of(9));
    assert_eq!(run.pool.pages().status().dirty, 0);
}

#[test]
fn a_drain_that_fails_or_is_overtaken_leaves_the_cache_enabled() {
    let place = Place::new();
    let run = run(&place, LogPolicy::Bounded);
    let (area, switch) = (run.pool.area(), Switch::flash(run.pool.area()));
    let failure = Failure::Disk(larder_core::request::Errno::EIO);
    assert_eq!(switch.off(|| Err(failure)), Err(NotOff::Failure(failure)));
    assert!(switch.is_on());
    let enabled = switch.off(|| {
        switch.on();
        Ok(())
    });
    assert_eq!(enabled, Err(NotOff::Enabled));
    // Enabled and disabled again by others in between: that drain may not have what came in between.
    let first = switch.off(|| {
        switch.on();
        area.set(Mark::Switch, area.get(Mark::Switch) + 5); // another process drains
        Ok(())
    });
    assert_eq!(first, Err(NotOff::Enabled));
    assert!(!switch.is_on() && !switch.is_off());
    assert_eq!(switch.off(|| Ok(())), Ok(()), "joins the drain");
    assert!(switch.is_off());
    assert_eq!(switch.off(|| Err(failure)), Ok(()), "it is off already");
}

#[test]
fn a_disabled_cache_stays_disabled_when_a_backend_dies_and_a_drain_does_not_last() {
    let place = Place::new();
    let run = run(&place, LogPolicy::Through);
    let area = run.pool.area();
    run.pool.disable().unwrap();
    let off = area.get(Mark::Switch);
    assert_eq!(after_crash(off), off);
    area.set(Mark::Switch, after_crash(off - 1));
    assert!(Switch::flash(area).is_on());
}
