// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy in force: during recovery, after a promotion, and when the setting changes while the server runs.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use larder_core::pagelog::{Latest, LogPolicy};

use crate::control::{Control, State};
use crate::policy::{self, Begins};
use crate::pool::Use;
use crate::rig::{FORK, PAGE, Place, Run, control, page_of};
use crate::settings::Refused;

const LONG: Duration = Duration::from_secs(60);

fn policy_of(run: &Run) -> &'static str {
    run.pool.policy().name()
}

fn on_disk(place: &Place, block: u64) -> u8 {
    let mut byte = [0];
    place.file().read_exact_at(&mut byte, block * PAGE as u64 + 100).unwrap();
    byte[0]
}

/// Pages that a start writes to the disk to learn whether flash answers.
fn put_a_batch(run: &Run, first: u64) {
    (first..first + 4).for_each(|block| run.put(&FORK, block, 1));
}

/// A server under this policy dies, and begins with a changed page that only flash has, set to `through`.
fn died(place: &Place) -> Run {
    let run = place.start(LogPolicy::Bounded).unwrap();
    put_a_batch(&run, 10);
    run.put(&FORK, 4, 9);
    drop(run);
    place.begin(LogPolicy::Through, Begins::Crash).unwrap()
}

fn recovers(redo: u64) -> Control {
    Control { redo, state: State::RecoversFromCrash, ..control(2) }
}

#[test]
fn recovery_begins_with_the_dirty_pages_of_flash_and_ends_with_all_of_them_on_the_disk() {
    let place = Place::new();
    let run = died(&place);
    let page = run.pool.page(&FORK, 4).unwrap();
    assert_eq!(policy_of(&run), "recovery");
    assert_eq!(run.pool.begin_read(page, Use::Scan), Some(Latest::Log), "the disk's is older");
    assert_eq!(run.has(&FORK, 4), Some(9));
    run.put(&FORK, 5, 8);
    // The server flushes all files before it recovers, and names the same place when it begins.
    run.commit(&FORK);
    run.pool.commit_all().unwrap();
    run.pool.commit_control(&recovers(0)).unwrap();
    assert_eq!([4, 5].map(|block| on_disk(&place, block)), [0, 0]);
    // A checkpoint in the middle of recovery.
    run.pool.commit_control(&recovers(10)).unwrap();
    assert_eq!([4, 5].map(|block| on_disk(&place, block)), [9, 8]);
    assert_eq!(policy_of(&run), "recovery");
    run.put(&FORK, 6, 7);
    run.pool.commit_control(&recovers(10)).unwrap();
    assert_eq!(on_disk(&place, 6), 0);
    run.pool.commit_control(&Control { redo: 20, ..control(3) }).unwrap();
    assert_eq!(on_disk(&place, 6), 7);
    assert_eq!(policy_of(&run), "bounded", "until the background writer has looked");
    assert!(!run.pool.follow(&Ok(LogPolicy::Through), LONG));
    assert_eq!(policy_of(&run), "through");
}

#[test]
fn files_that_get_pages_during_recovery_are_flushed_before_it_ends() {
    let place = Place::new();
    let run = died(&place);
    let noted = || run.pool.area().unflushed().iter().filter(|w| w.load(Relaxed) != 0).count();
    // As an eviction does: a flush before the end would only take time.
    run.pool.flash().drain().unwrap();
    assert_eq!((on_disk(&place, 4), noted()), (9, 1));
    run.pool.commit_control(&Control { redo: 20, ..control(3) }).unwrap();
    assert_eq!(noted(), 0);
}

#[test]
fn a_crash_in_the_middle_of_recovery_keeps_what_flash_alone_has() {
    let place = Place::new();
    let run = died(&place);
    put_a_batch(&run, 20);
    run.put(&FORK, 4, 10);
    drop(run);
    let run = place.begin(LogPolicy::Through, Begins::Crash).unwrap();
    assert_eq!((run.has(&FORK, 4), on_disk(&place, 4)), (Some(10), 0));
    drop(run);
    // A standby follows another server's log, which does not have these changes.
    let run = place.begin(LogPolicy::Bounded, Begins::Archive).unwrap();
    assert_eq!((policy_of(&run), on_disk(&place, 4)), ("through", 10));
}

#[test]
fn a_standby_takes_changes_into_flash_with_its_first_checkpoint_after_the_promotion() {
    let place = Place::new();
    let run = place.begin(LogPolicy::Bounded, Begins::Archive).unwrap();
    let follow = |run: &Run| {
        assert!(!run.pool.follow(&Ok(LogPolicy::Bounded), LONG));
        let page = run.pool.page(&FORK, 4).unwrap();
        (policy_of(run), run.pool.absorb(page, &page_of(3)).unwrap())
    };
    assert_eq!(follow(&run), ("through", false));
    let runs = |redo| Control { redo, ..control(2) };
    for known in [Control { state: State::Other, ..runs(9) }, runs(10), runs(10)] {
        policy::control_is(run.pool.area(), &known);
        assert_eq!(follow(&run), ("through", false), "{known:?}");
    }
    policy::control_is(run.pool.area(), &runs(20));
    assert_eq!(follow(&run), ("bounded", true));
}

#[test]
fn the_policy_is_through_when_the_disk_has_all_pages() {
    let place = Place::new();
    let run = place.start(LogPolicy::Bounded).unwrap();
    run.put(&FORK, 4, 9);
    let page = run.pool.page(&FORK, 5).unwrap();
    let through = Ok(LogPolicy::Through);
    assert!(run.pool.follow(&through, Duration::ZERO), "there is more to do");
    assert_eq!(policy_of(&run), "bounded");
    assert_eq!(run.pool.absorbs(), Ok(false));
    assert_eq!(run.pool.absorb(page, &page_of(3)), Ok(false));
    assert!(!run.pool.follow(&through, LONG));
    assert_eq!((policy_of(&run), on_disk(&place, 4)), ("through", 9));
    assert_eq!(run.has(&FORK, 4), Some(9), "flash stays warm");
    // And back.
    assert!(!run.pool.follow(&Ok(LogPolicy::Bounded), LONG));
    assert_eq!(policy_of(&run), "bounded");
    run.put(&FORK, 5, 3);
    assert_eq!((run.has(&FORK, 5), on_disk(&place, 5)), (Some(3), 0));
}

#[test]
fn the_policy_changes_back_in_the_middle_of_a_drain() {
    let place = Place::new();
    let run = place.start(LogPolicy::Bounded).unwrap();
    run.put(&FORK, 4, 9);
    assert!(run.pool.follow(&Ok(LogPolicy::Through), Duration::ZERO));
    assert!(!run.pool.follow(&Ok(LogPolicy::Bounded), LONG));
    run.put(&FORK, 4, 10);
    assert_eq!((run.has(&FORK, 4), on_disk(&place, 4)), (Some(10), 0));
}

#[test]
fn no_change_is_taken_under_a_number_that_was_displaced() {
    let place = Place::new();
    let run = place.start(LogPolicy::Through).unwrap();
    let page = run.pool.page(&FORK, 5).unwrap();
    // While flash takes no changes, another extent may get the number.
    run.pool.flash().retire(&FORK, 0);
    assert!(!run.pool.follow(&Ok(LogPolicy::Bounded), LONG));
    assert_eq!(run.pool.absorb(page, &page_of(3)), Ok(false));
}

#[test]
fn full_and_wrong_names_wait_for_a_start() {
    let place = Place::new();
    let run = place.start(LogPolicy::Bounded).unwrap();
    let wrong = Err(Refused::new("larder.policy is \"x\"", "Say through, bounded or full."));
    for setting in [Ok(LogPolicy::Full), wrong] {
        assert!(!run.pool.follow(&setting, LONG));
        assert_eq!(policy_of(&run), "bounded");
    }
    drop(run);
    let place = Place::new();
    let run = place.start(LogPolicy::Full).unwrap();
    for setting in [LogPolicy::Through, LogPolicy::Bounded] {
        assert!(!run.pool.follow(&Ok(setting), LONG));
        assert_eq!(policy_of(&run), "full");
    }
}
