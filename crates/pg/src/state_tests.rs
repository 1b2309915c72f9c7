// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy in force: during recovery, after a promotion, and when the setting changes while the server runs.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::pagelog::{Host, Latest, LogPolicy};
use larder_shared::now;

use crate::area::Mark;
use crate::control::{Control, State};
use crate::error::Unusable;
use crate::file::Fork;
use crate::memory::How;
use crate::policy::{self, Begins};
use crate::pool::Use;
use crate::rig::{FORK, PAGE, Place, Run, control, page_of};
use crate::settings::Refused;
use crate::switch::Switch;

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

/// Another relation, with as many pages.
fn other_file(place: &Place) -> Fork {
    let of = |name| place.data.path().join("base/5").join(name);
    std::fs::copy(of("100"), of("200")).unwrap();
    Fork { relation: 200, ..FORK }
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
    // The last checkpoint begins, and ends.
    run.pool.commit_control(&Control { state: State::Stops, ..recovers(10) }).unwrap();
    assert_eq!(on_disk(&place, 6), 0);
    run.pool.commit_control(&Control { state: State::Stopped, ..recovers(20) }).unwrap();
    assert_eq!((on_disk(&place, 6), policy_of(&run)), (7, "through"));
}

/// A flush that another process makes while the last drain runs: the drain may not see its pages.
#[test]
fn a_flush_during_the_last_drain_writes_pages_back() {
    let place = Place::new();
    let run = died(&place);
    let _ = policy::settle(run.pool.area(), &control(3));
    Switch::changes(run.pool.area()).on();
    run.put(&FORK, 5, 8);
    run.commit(&FORK);
    assert_eq!(on_disk(&place, 5), 8);
    run.put(&FORK, 5, 9);
    run.pool.commit_all().unwrap();
    assert_eq!(on_disk(&place, 5), 9);
}

/// A page that only flash has, with these bytes, is damaged there.
fn damage(place: &Place, value: u8) {
    let mut options = std::fs::File::options();
    let flash = options.read(true).write(true).open(place.flash.path().join("larder.flash"));
    let flash = flash.unwrap();
    let mut bytes = vec![0; place.flash_bytes() as usize];
    flash.read_exact_at(&mut bytes, 0).unwrap();
    let has = |at: &usize| bytes[*at..at + PAGE].iter().all(|byte| *byte == value);
    let at = (0..bytes.len() - PAGE).step_by(4096).find(has).expect("it is on flash");
    flash.write_all_at(&[value + 1], at as u64 + 5).unwrap();
}

/// One that recovery neither reads nor writes ends the drain. Then the start is repeated, without an end if it used flash again.
#[test]
fn a_dirty_page_that_flash_has_lost_does_not_end_each_recovery() {
    let place = Place::new();
    let run = place.start(LogPolicy::Bounded).unwrap();
    // The page is not among the first that a start reads.
    put_a_batch(&run, 10);
    (0..40).for_each(|_| run.put(&FORK, 20, 2));
    run.put(&FORK, 4, 77);
    (0..20).for_each(|_| run.put(&FORK, 21, 2));
    drop(run);
    damage(&place, 77);
    let run = place.begin(LogPolicy::Bounded, Begins::Crash).unwrap();
    assert_eq!(run.how, How::AsLeft);
    let ends = Control { redo: 20, ..control(3) };
    assert_eq!(signal_of(|| run.pool.commit_control(&ends).unwrap()), libc::SIGABRT);
    assert_eq!(run.pool.area().get(Mark::Failed), libc::EIO as u64);
    drop(run);
    let again = place.begin(LogPolicy::Bounded, Begins::Crash);
    assert!(matches!(again, Err(Unusable::FailedBefore)));
}

/// The signal that ends a process that runs this.
#[allow(unsafe_code)]
fn signal_of(run: impl FnOnce()) -> i32 {
    let mut status = 0;
    // SAFETY: the child runs on a copy of this thread, and ends without a return.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            run();
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
    }
    libc::WTERMSIG(status)
}

#[test]
fn a_clean_version_is_dropped_before_the_disk_gets_a_newer_one() {
    let place = Place::new();
    let run = place.start(LogPolicy::Bounded).unwrap();
    run.put(&FORK, 4, 9);
    run.commit(&FORK);
    run.put(&FORK, 5, 9);
    let page = run.pool.page(&FORK, 4).unwrap();
    assert_eq!(run.pool.begin_read(page, Use::Access), Some(Latest::Both));
    // The policy changes, so the disk takes the next write; its process dies after it.
    assert!(run.pool.follow(&Ok(LogPolicy::Through), Duration::ZERO), "there is more to do");
    let _ = run.pool.begin_write(page, true, || 0).unwrap();
    place.file().write_all_at(&page_of(10), 4 * PAGE as u64).unwrap();
    drop(run);
    let run = place.begin(LogPolicy::Bounded, Begins::Crash).unwrap();
    assert_eq!((run.how, run.has(&FORK, 4)), (How::AsLeft, None));
}

#[test]
fn a_write_back_that_comes_late_leaves_the_newer_page_on_the_disk() {
    let place = Place::new();
    let run = place.start(LogPolicy::Bounded).unwrap();
    run.put(&FORK, 4, 9);
    let page = run.pool.page(&FORK, 4).unwrap();
    // A process evicts the page: it holds it and has its bytes.
    let hold = run.pool.hold(&[page]);
    // Meanwhile the file is cut, the policy changes, the file grows, and the page is written.
    drop(run.pool.forget(&FORK, 0, 4, &|| Ok(32)).unwrap());
    assert!(!run.pool.follow(&Ok(LogPolicy::Through), LONG));
    let writing = run.pool.begin_write(page, true, || 0).unwrap();
    place.file().write_all_at(&page_of(12), 4 * PAGE as u64).unwrap();
    run.pool.end_write(writing, &page_of(12));
    let late = vec![Buf::copy_of(&page_of(9))];
    now(run.pool.flash().log().host().write_origin_run(page, late)).unwrap();
    drop(hold);
    assert_eq!(on_disk(&place, 4), 12);
}

#[test]
fn a_change_whose_process_died_before_it_was_noted_is_written_back_too() {
    let place = Place::new();
    let run = place.start(LogPolicy::Bounded).unwrap();
    put_a_batch(&run, 10);
    let other = other_file(&place);
    let page = run.pool.page(&other, 4).unwrap();
    // As far as the log: the process dies there.
    now(run.pool.flash().log().put_if(page, &page_of(9), true, || true)).unwrap().unwrap();
    drop(run);
    let run = place.begin(LogPolicy::Bounded, Begins::Crash).unwrap();
    run.pool.settle(&other, 0).unwrap();
    assert_eq!(run.pool.pages().status().dirty, 0);
}

#[test]
fn files_that_get_pages_during_recovery_are_flushed_before_it_ends() {
    let place = Place::new();
    let run = died(&place);
    // The start has noted the first file.
    let other = other_file(&place);
    run.put(&other, 4, 9);
    let noted = || run.pool.area().unflushed().iter().filter(|w| w.load(Relaxed) != 0).count();
    // As an eviction does: a flush before the end would only take time.
    run.pool.flash().drain().unwrap();
    assert_eq!((on_disk(&place, 4), noted()), (9, 2));
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
    let area = run.pool.area();
    let runs = |redo, timeline| Control { redo, timeline, ..control(2) };
    area.set(Mark::WalTimeline, 1);
    policy::control_is(area, &Control { state: State::Other, ..runs(9, 1) });
    assert_eq!(follow(&run), ("through", false), "it follows");
    // It is promoted: a restartpoint at a checkpoint of the other server ends late.
    area.set(Mark::WalTimeline, 2);
    for redo in [10, 15] {
        policy::control_is(area, &runs(redo, 1));
        assert_eq!(follow(&run), ("through", false), "{redo}");
    }
    policy::control_is(area, &runs(20, 2));
    assert_eq!(follow(&run), ("bounded", true));
}

#[test]
fn recovery_from_a_backup_ends_with_a_checkpoint_of_the_server() {
    let place = Place::new();
    let run = place.begin(LogPolicy::Bounded, Begins::Archive).unwrap();
    let area = run.pool.area();
    area.set(Mark::WalTimeline, 1);
    policy::control_is(area, &Control { state: State::Stops, ..control(2) });
    assert!(!run.pool.follow(&Ok(LogPolicy::Bounded), LONG));
    assert_eq!(policy_of(&run), "through");
    policy::control_is(area, &Control { state: State::Stopped, ..control(2) });
    assert!(!run.pool.follow(&Ok(LogPolicy::Bounded), LONG));
    assert_eq!(policy_of(&run), "bounded");
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
