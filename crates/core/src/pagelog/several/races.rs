// SPDX-License-Identifier: MIT OR Apache-2.0
//! A party pauses or dies at one of its operations while another continues.

use super::words::Mark;
use super::*;

/// Another party dies while it rebuilds the chains: lookups find nothing until the next repair.
fn die_in_repair(world: &Rc<World>, other: &Log) {
    world.died.set(true);
    let died = world.until_death(other.host().name, 2 * u64::from(other.log.blocks), || {
        other.status();
    });
    assert!(died);
}

#[test]
fn a_drain_looks_pages_up_under_the_lock() {
    let mut rig = Rig::new(LogPolicy::Bounded, false);
    let log = rig.open(1);
    (0..9).for_each(|page| put(&log, page, 1));
    let (other, world) = (rig.join(2), Rc::clone(&rig.world));
    rig.world.at(Op::Hold, 3, move || die_in_repair(&world, &other));
    now(log.drain()).expect("drains");
    drop(log);
    let log = rig.cut(3);
    (0..9).for_each(|page| assert_eq!(version(&log, page), 1, "page {page}"));
}

#[test]
fn a_drain_that_pauses_writes_every_page_and_no_other() {
    for (op, most) in [(Op::Lock, 60), (Op::ReadFlash, 20), (Op::Hold, 20)] {
        for skip in 0..most {
            // Enough to append the drained pages again, and enough to overwrite their slots.
            for more in [0, 30, 60, 120] {
                pause_in_a_drain(op, skip, more);
            }
        }
    }
}

fn pause_in_a_drain(op: Op, skip: u64, more: u64) {
    let mut rig = Rig::new(LogPolicy::Bounded, true);
    let log = rig.open(1);
    (0..12).for_each(|page| put(&log, page, 1));
    let other = rig.join(2);
    rig.world.at(op, skip, move || {
        (0..12).for_each(|page| assert_eq!(version(&other, page), 1));
        // Some get a newer version meanwhile.
        (0..6).for_each(|page| put(&other, page * 2, 2));
        (0..more).for_each(|i| put(&other, 12 + i % 40, 2));
    });
    now(log.drain()).expect("drains");
    drop((log, rig.world.hook.take()));
    let log = rig.cut(3);
    for page in 0..12 {
        let found = version(&log, page);
        assert!(found >= 1, "{op:?} {skip} {more}: page {page} is {found}");
    }
}

#[test]
fn the_next_party_repeats_an_interrupted_flush_of_the_origin() {
    let mut rig = Rig::new(LogPolicy::Full, false);
    let log = rig.open(1);
    (0..60).for_each(|i| put(&log, i % 40, 1 + i / 40));
    // A group is evicted, and the tail has not followed.
    while log.words.get(Mark::Evicted) == log.words.get(Mark::Tail) {
        put(&log, 50, 1);
    }
    let world = Rc::clone(&rig.world);
    rig.world.at(Op::FlushOrigin, 0, move || world.victim.set((1, 0)));
    let died = rig.world.until_death(1, u64::MAX, || {
        let _ = now(log.settle_tail());
    });
    assert!(died, "before its flush");
    let other = rig.join(2);
    now(other.settle_tail()).expect("settles");
    assert!(rig.world.origin.borrow().unflushed.is_empty(), "the tail passed unflushed pages");
}

#[test]
fn pages_evicted_before_a_repair_are_buried_with_a_tombstone() {
    let mut rig = Rig::new(LogPolicy::Full, false);
    let log = rig.open(1);
    (0..60).for_each(|page| put(&log, page, 1));
    now(log.flush()).expect("flushes");
    while log.words.get(Mark::Evicted) == log.words.get(Mark::DurableTail) {
        put(&log, 99, 1);
    }
    log.repair();
    let pages: Vec<u64> = (0..60).filter(|page| !log.has(*page)).collect();
    assert!(!pages.is_empty());
    for page in &pages {
        let recorded = now(log.bury(*page..*page + 1)).expect("is buried");
        now(log.host().zero_origin(*page..*page + 1)).expect("is zero");
        if !recorded {
            now(log.host().flush_origin()).expect("is flushed");
        }
    }
    drop(log);
    let log = rig.cut(3);
    pages.iter().for_each(|page| assert_eq!(version(&log, *page), 0, "page {page}"));
}

#[test]
fn a_party_that_holds_pages_never_waits_for_the_keeper() {
    let made = Rc::new(Cell::new(0));
    for skip in 0..30 {
        let mut rig = Rig::new(LogPolicy::Full, true);
        let log = rig.open(1);
        let (other, world) = (rig.join(2), Rc::clone(&rig.world));
        let count = Rc::clone(&made);
        rig.world.at(Op::Hold, skip, move || {
            // Party 1 makes room and waits for a page that party 2 holds.
            count.set(count.get() + act_with_pages_held(&world, &other));
        });
        (0..120).for_each(|i| put(&log, i % 50, 1));
        // No party makes room, and party 2 must not begin to.
        act_with_pages_held(&rig.world, &rig.join(2));
    }
    assert!(made.get() >= 20, "there was room for some: {}", made.get());
}

/// The acts that are allowed to party 2 while it holds pages; returns its recorded burials.
fn act_with_pages_held(world: &Rc<World>, other: &Log) -> u64 {
    let run = Box::new(|| panic!("it made room"));
    world.hook.replace(Some(Hook { name: 2, op: Op::Hold, skip: 0, run }));
    let mut recorded = 0;
    for page in 200..250 {
        now(other.put_new(page, &bytes_of(page, 1), true)).expect("has not failed");
        let buried = now(other.bury_at_once(page..page + 1)).expect("has not failed");
        recorded += u64::from(buried == Burial::Recorded);
        now(other.flush()).expect("flushes");
    }
    world.hook.replace(None);
    recorded
}

#[test]
fn of_a_version_replaced_during_its_eviction_one_is_on_the_origin_or_durable() {
    for (op, second_chance) in [(Op::Hold, false), (Op::ReadFlash, true), (Op::Lock, true)] {
        for skip in 0..40 {
            replace_during_eviction(op, skip, second_chance);
        }
    }
}

fn replace_during_eviction(op: Op, skip: u64, second_chance: bool) {
    let mut rig = Rig::new(LogPolicy::Full, second_chance);
    let log = rig.open(1);
    let end = rig.log.segment() * 6;
    (0..end / 2).for_each(|page| put(&log, page, 1));
    now(log.flush()).expect("flushes");
    // A page of the first group.
    let page = log.words.slot(log.log.slot(log.words.get(Mark::Evicted) + 2)) & 0xffff;
    version(&log, page);
    let other = rig.join(2);
    rig.world.at(op, skip, move || {
        // Only if there is room: no party makes any.
        if other.status().open_room > 0 {
            put(&other, page, 2);
        }
    });
    let start = log.words.get(Mark::Evicted);
    while log.words.get(Mark::Evicted) == start {
        put(&log, 900, 1);
    }
    rig.world.hook.replace(None);
    now(log.settle_tail()).expect("settles");
    now(log.write_header(log.words.get(Mark::Segments), None)).expect("is written");
    drop(log);
    let log = rig.cut(3);
    let found = version(&log, page);
    assert!(found >= 1, "{op:?} {skip} {second_chance}: page {page} is {found}");
}
