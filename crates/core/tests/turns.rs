// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overlapping requests for a cached page: writes wait for their turn, so that flash has the page after the last one, and reads
//! wait while flash is written; for a second at most.

use larder_core::config::{WritePolicy, preset};
use larder_core::exec::{DevId, MILLISECOND, SECOND};
use larder_core::format::{Frame, UnitsPlan};
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_testkit::memory::{FLASH, Held, Memory, ORIGIN};

const UNIT: u64 = 64 << 10;
const PAGE: u64 = 4096;

/// A volume with one unit that is cached as a whole.
fn cached() -> Memory {
    let mut choices = preset("slru").expect("the preset exists").choices();
    choices.write = WritePolicy::AsyncWriteThrough;
    choices.unit_bytes = UNIT;
    let shape = Shape::new(UNIT, UNIT, 1);
    let memory = Memory::new(shape, choices, vec![0; UNIT as usize], vec![0; UNIT as usize]);
    let mut memory = attached(memory, FLASH);
    reads_as(&mut memory, 0, false);
    reads_as(&mut memory, 0, true);
    memory
}

fn attached(memory: Memory, dev: DevId) -> Memory {
    let plan = UnitsPlan::volatile(Frame::BARE, UNIT, 1, 512).place(dev, 0);
    memory.shard.attach(plan, None);
    memory
}

/// Writes the first page, as often as `fills` has a byte.
fn write(memory: &mut Memory, fills: std::ops::RangeInclusive<u8>) {
    for fill in fills {
        memory.ask(u64::from(fill), Kind::Write { fua: false }, 0, PAGE, fill);
    }
}

fn answered(memory: &Memory, tag: u64) -> bool {
    memory.replies.iter().any(|(of, ..)| *of == tag)
}

fn reads_as(memory: &mut Memory, expected: u8, hit: bool) {
    let (tag, hits) = (100 + memory.replies.len() as u64, memory.hits);
    memory.ask(tag, Kind::Read, 0, PAGE, 0);
    assert_eq!(memory.answer(tag), Some(expected));
    assert_eq!(memory.hits - hits, u64::from(hit));
}

#[test]
fn after_overlapping_writes_a_page_is_cached() {
    let mut memory = cached();
    memory.hold(ORIGIN, Held::Writes);
    write(&mut memory, 1..=3);
    memory.release(None);
    assert!((1..=3).all(|tag| answered(&memory, tag)));
    reads_as(&mut memory, 3, true);
    let counters = memory.shard.counters();
    assert_eq!(
        (counters.write_joins, counters.origin_write_bytes),
        (1, 2 * PAGE),
        "one was not executed"
    );
}

#[test]
fn writes_that_joined_are_answered_before_flash_is_written() {
    let mut memory = cached();
    memory.hold(ORIGIN, Held::Writes);
    write(&mut memory, 1..=3);
    memory.hold(ORIGIN, Held::Writes);
    memory.release(None);
    assert!(answered(&memory, 1) && !answered(&memory, 2));
    memory.hold(FLASH, Held::Writes);
    memory.release(None);
    assert!(answered(&memory, 2) && answered(&memory, 3));
}

#[test]
fn a_read_waits_for_flash_that_is_being_written_and_hits() {
    let mut memory = cached();
    memory.hold(FLASH, Held::Writes);
    write(&mut memory, 1..=1);
    assert!(answered(&memory, 1), "the origin has the page");
    let hits = memory.hits;
    memory.ask(2, Kind::Read, 0, PAGE, 0);
    assert!(!answered(&memory, 2));
    memory.release(None);
    assert_eq!((memory.answer(2), memory.hits), (Some(1), hits + 1));
}

#[test]
fn a_wide_write_is_not_overtaken() {
    let mut memory = cached();
    memory.hold(ORIGIN, Held::Writes);
    write(&mut memory, 1..=1);
    memory.ask(2, Kind::Write { fua: false }, 0, 4 * PAGE, 2);
    memory.ask(3, Kind::Write { fua: false }, 2 * PAGE, PAGE, 3);
    memory.release(None);
    assert!((1..=3).all(|tag| answered(&memory, tag)));
    assert!(
        (0..3).map(|at| memory.replies[memory.replies.len() - 3 + at].0).eq(1..=3),
        "in this order"
    );
    reads_as(&mut memory, 2, true);
}

#[test]
fn writes_of_other_pages_do_not_wait() {
    let mut memory = cached();
    memory.hold(FLASH, Held::Writes);
    write(&mut memory, 1..=1);
    memory.ask(2, Kind::Write { fua: false }, PAGE, PAGE, 2);
    assert!(answered(&memory, 2));
}

#[test]
fn no_write_waits_longer_than_a_second_for_flash_that_hangs() {
    let mut memory = cached();
    memory.hold(FLASH, Held::Writes);
    write(&mut memory, 1..=3);
    assert!(answered(&memory, 1) && !answered(&memory, 2));
    memory.pass(SECOND - MILLISECOND);
    assert!(!answered(&memory, 2));
    memory.pass(MILLISECOND);
    assert!((2..=3).all(|tag| answered(&memory, tag)), "all continue when the first does");
    memory.ask(4, Kind::Read, 0, PAGE, 0);
    memory.pass(SECOND);
    assert_eq!(memory.answer(4), Some(3), "from the origin");
    memory.release(None);
    reads_as(&mut memory, 3, false);
}

#[test]
fn a_write_that_waited_goes_to_the_cache_that_was_attached_meanwhile() {
    let mut memory = cached();
    memory.hold(FLASH, Held::Writes);
    write(&mut memory, 1..=2);
    memory.shard.detach();
    memory.shard.fenced();
    let mut memory = attached(memory, DevId(2));
    reads_as(&mut memory, 1, false);
    memory.pass(SECOND);
    assert!(answered(&memory, 2));
    memory.release(None);
    memory.ask(3, Kind::Read, 0, PAGE, 0);
    assert_eq!(memory.answer(3), Some(2));
}
