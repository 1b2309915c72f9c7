// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cases of ordered write-back that random histories rarely have.

use super::tests::{Log, Rig, bytes_of};
use super::words::{Kind, Mark, kind_of};
use super::*;
use crate::buf::PAGE;
use crate::request::Errno;

fn put(log: &Log, page: u64, dirty: bool) {
    now(log.put(page, &bytes_of(page + 1), dirty)).expect("fits");
}

/// Whether the origin has what [`put`] wrote.
fn origin_has(rig: &Rig, page: u64) -> bool {
    let mut found = [0; PAGE];
    rig.devices.borrow().origin.read(page * PAGE as u64, &mut found);
    found == bytes_of(page + 1)
}

fn replay(log: &Log) {
    while now(log.replay_next()) {}
}

/// A crash of the process: what was written to the devices stays.
fn crash(rig: &Rig) {
    let mut devices = rig.devices.borrow_mut();
    devices.flash.unflushed.clear();
    devices.origin.unflushed.clear();
}

/// A log beside another one, the seat of which has a change that is not replayed, in an epoch that has ended.
fn beside_another(rig: &Rig) -> (Log, Seat, Seat) {
    let epochs = Epochs::of(2);
    let [other, seat] = [0, 1].map(|log| Seat::new(&epochs, log));
    let (log, _) = rig.open_at(&seat).expect("opens");
    other.resume(None, 0);
    other.entered(other.current());
    seat.end();
    (log, other, seat)
}

/// Clean pages leave the mark where their batch begins; a dirty one behind them has the epoch of that batch, and waits.
#[test]
fn a_change_in_a_batch_of_clean_pages_waits_for_other_logs() {
    let rig = Rig::new(LogPolicy::Ordered, false, 1);
    let (log, other, seat) = beside_another(&rig);
    (0..3).for_each(|page| put(&log, page, false));
    replay(&log);
    put(&log, 9, true);
    seat.end();
    replay(&log);
    let mark = log.words.get(Mark::Replayed);
    assert_eq!(kind_of(log.words.slot(log.geometry().slot(mark))), Kind::Header);
    assert!(!origin_has(&rig, 9), "the other log has an earlier epoch");
    other.replayed(None);
    replay(&log);
    assert!(origin_has(&rig, 9) && !log.has_unreplayed());
    assert_eq!(log.words.get(Mark::Replayed), log.words.get(Mark::Last));
}

/// What a log has after a life under another policy is one epoch, before all new ones.
#[test]
fn a_log_of_another_policy_is_one_epoch() {
    let mut rig = Rig::new(LogPolicy::Ordered, false, 1);
    let seat = Seat::alone();
    let (log, _) = rig.open_at(&seat).expect("opens");
    for page in 0..20 {
        put(&log, page, true);
        seat.end();
    }
    now(log.flush()).expect("is written");
    crash(&rig);
    rig.settings.policy = LogPolicy::Full;
    let (log, _) = rig.open();
    put(&log, 30, true);
    now(log.flush()).expect("is written");
    crash(&rig);
    rig.settings.policy = LogPolicy::Ordered;
    // The first epoch of the new life is in the other log.
    let (log, other, seat) = beside_another(&rig);
    put(&log, 40, true);
    seat.end();
    replay(&log);
    assert!((0..20).chain([30]).all(|page| origin_has(&rig, page)) && log.has_unreplayed());
    other.replayed(None);
    replay(&log);
    assert!(origin_has(&rig, 40) && !log.has_unreplayed());
}

/// A page that flash lost is an error after a crash too, although its epoch counts as replayed.
#[test]
fn a_lost_page_stays_lost_after_a_crash() {
    let rig = Rig::new(LogPolicy::Ordered, false, 1);
    let seat = Seat::alone();
    let (log, _) = rig.open_at(&seat).expect("opens");
    (0..4).for_each(|page| put(&log, page, true));
    now(log.flush()).expect("is written");
    let (_, at, _) = log.valid_pages().find(|(page, ..)| *page == 2).expect("is in the log");
    rig.devices.borrow_mut().flash.blocks.insert(at / PAGE as u64, vec![7; PAGE]);
    seat.end();
    replay(&log);
    assert!([0, 1, 3].iter().all(|page| origin_has(&rig, *page)) && !origin_has(&rig, 2));
    assert!(matches!(now(log.get(2)), Err(Errno::EIO)));
    // Later batches, so that the damaged one is not taken for the torn end of the log.
    for page in 10..13 {
        put(&log, page, true);
        now(log.flush()).expect("is written");
    }
    crash(&rig);
    let (log, _) = rig.open();
    assert!(matches!(now(log.get(2)), Err(Errno::EIO)));
    assert_eq!(log.lost_pages().collect::<Vec<_>>(), [2]);
    put(&log, 2, true);
    assert!(matches!(now(log.get(2)), Ok(Got::Hit(..))));
}
