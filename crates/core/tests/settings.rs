// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that change while a cache is in use: when writes are copied to flash, what is evicted, and time limits.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use larder_core::config::{
    CacheSpec, Choices, Limits, ReplacementChoice, WritePolicy, preset, presets,
};
use larder_core::exec::{MILLISECOND, SECOND};
use larder_core::format::{Frame, UnitsPlan};
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_testkit::memory::{FLASH, Held, Memory};

const UNIT: u64 = 64 << 10;
const PAGE: u64 = 4096;
const HOUR: u64 = 3600 * SECOND;

fn choices(write: WritePolicy) -> Choices {
    Choices { write, unit_bytes: UNIT, ..preset("slru").unwrap().choices() }
}

/// A volume with one unit that is cached as a whole.
fn cached(write: WritePolicy) -> Memory {
    let shape = Shape::new(UNIT, UNIT, 1);
    let mut memory =
        Memory::new(shape, choices(write), vec![0; UNIT as usize], vec![0; UNIT as usize]);
    memory.shard.attach(UnitsPlan::volatile(Frame::BARE, UNIT, 1, 512).place(FLASH, 0), None);
    read(&mut memory, 0);
    assert!(read(&mut memory, 0));
    memory
}

/// Reads a page; returns whether it hit.
fn read(memory: &mut Memory, page: u64) -> bool {
    let hits = memory.hits;
    memory.ask(9, Kind::Read, page * PAGE, PAGE, 0);
    memory.hits > hits
}

fn choose(memory: &Memory, write: WritePolicy) {
    assert!(memory.shard.choose(&choices(write).try_into().unwrap()));
}

fn adjust(memory: &Memory, change: impl Fn(&mut Limits)) {
    let mut limits = Limits::default();
    change(&mut limits);
    memory.shard.adjust(&limits);
}

/// Writes a page while flash holds its writes back; returns whether it was answered, and whether a read hits afterwards.
fn write(memory: &mut Memory, tag: u64) -> (bool, bool) {
    memory.hold(FLASH, Held::Writes);
    memory.ask(tag, Kind::Write { fua: false }, 0, PAGE, tag as u8);
    let answered = memory.replies.iter().any(|(of, ..)| *of == tag);
    memory.release(None);
    let hit = read(memory, 0);
    assert_eq!(memory.replies.last().unwrap().2[0], tag as u8);
    (answered, hit)
}

#[test]
fn the_write_policy_in_use_decides_each_write() {
    let mut memory = cached(WritePolicy::AsyncWriteThrough);
    assert_eq!(write(&mut memory, 1), (true, true));
    choose(&memory, WritePolicy::WriteThrough);
    assert_eq!(write(&mut memory, 2), (false, true));
    choose(&memory, WritePolicy::WriteAround);
    assert_eq!(write(&mut memory, 3), (true, false));
    choose(&memory, WritePolicy::AsyncWriteThrough);
    assert_eq!(write(&mut memory, 4), (true, true));
    // Without a buffer a write is not copied, and it is with one again.
    adjust(&memory, |limits| limits.write_through_bytes = 0);
    assert_eq!(write(&mut memory, 5), (true, false));
    adjust(&memory, |_| ());
    assert_eq!(write(&mut memory, 6), (true, true));
}

#[test]
fn a_policy_that_is_chosen_holds_after_the_next_attach() {
    let mut memory = cached(WritePolicy::AsyncWriteThrough);
    choose(&memory, WritePolicy::WriteAround);
    memory.shard.detach();
    memory.shard.fenced();
    memory.shard.attach(UnitsPlan::volatile(Frame::BARE, UNIT, 1, 512).place(FLASH, 0), None);
    read(&mut memory, 0);
    assert_eq!(write(&mut memory, 1), (true, false));
}

/// Only what memory has may change: each preset becomes itself, none becomes another, and units keep their size.
#[test]
fn choices_that_concern_flash_do_not_change() {
    let spec = |name| preset(name).unwrap().choices();
    for from in presets() {
        let shape = Shape::new(1 << 20, from.choices().unit_bytes, 1);
        let memory = Memory::new(shape, from.choices(), vec![0; 1 << 20], Vec::new());
        let becomes = |choices: Choices| memory.shard.choose(&choices.try_into().unwrap());
        let others = presets().filter(|to| to.name != from.name);
        let taken: Vec<&str> = others.map(|to| to.name).filter(|to| becomes(spec(to))).collect();
        assert!(taken.is_empty(), "{}: {taken:?}", from.name);
        assert!(becomes(spec(from.name)), "{}", from.name);
        let unit_bytes = 2 * from.choices().unit_bytes;
        let larger: Result<CacheSpec, _> = Choices { unit_bytes, ..spec(from.name) }.try_into();
        assert!(larger.is_err() || !memory.shard.choose(&larger.unwrap()), "{}", from.name);
    }
}

#[test]
fn a_read_waits_for_flash_as_long_as_the_limit_in_use() {
    let mut memory = cached(WritePolicy::WriteAround);
    let waits = |memory: &mut Memory, limit| {
        memory.hold(FLASH, Held::Reads);
        memory.replies.clear();
        memory.ask(9, Kind::Read, 0, PAGE, 0);
        memory.pass(limit - MILLISECOND);
        let early = memory.answer(9).is_some();
        memory.pass(MILLISECOND);
        let late = memory.answer(9).is_some();
        memory.release(None);
        (early, late)
    };
    assert_eq!(waits(&mut memory, 2 * SECOND), (false, true));
    adjust(&memory, |limits| limits.flash_timeout = SECOND / 4);
    assert!(read(&mut memory, 0) || read(&mut memory, 0));
    assert_eq!(waits(&mut memory, SECOND / 4), (false, true));
    adjust(&memory, |limits| limits.flash_timeout = 5 * SECOND);
    assert!(read(&mut memory, 0) || read(&mut memory, 0));
    assert_eq!(waits(&mut memory, 5 * SECOND), (false, true));
}

/// A limit that was raised and lowered again holds for later reads, although the first one still waits.
#[test]
fn a_read_does_not_wait_for_one_with_a_longer_limit() {
    let mut memory = cached(WritePolicy::WriteAround);
    memory.hold(FLASH, Held::Reads);
    adjust(&memory, |limits| (limits.flash_timeout, limits.flash_dead_after) = (HOUR, 2 * HOUR));
    memory.ask(7, Kind::Read, 0, PAGE, 0);
    adjust(&memory, |_| ());
    memory.ask(8, Kind::Read, PAGE, PAGE, 0);
    memory.pass(2 * SECOND);
    assert_eq!((memory.answer(7), memory.answer(8)), (None, Some(0)));
    memory.pass(28 * SECOND);
    assert!(!memory.shard.uses(FLASH), "it has not answered for as long as the limit in use");
}

/// An operator who expects a long pause of the device has time until it counts as failed.
#[test]
fn a_device_that_is_silent_fails_after_the_limit_in_use() {
    for (limit, timeout) in [(30, 2), (60, 2), (60, 60), (60, 30), (20, 1)] {
        let mut memory = cached(WritePolicy::WriteAround);
        memory.hold(FLASH, Held::Reads);
        memory.ask(9, Kind::Read, 0, PAGE, 0);
        memory.pass(10 * SECOND);
        adjust(&memory, |limits| {
            (limits.flash_timeout, limits.flash_dead_after) = (timeout * SECOND, limit * SECOND);
        });
        memory.pass((limit - 10) * SECOND - MILLISECOND);
        assert!(memory.shard.uses(FLASH), "{limit} {timeout}");
        memory.pass(MILLISECOND);
        assert!(!memory.shard.uses(FLASH), "{limit} {timeout}");
    }
}

#[test]
fn what_is_evicted_follows_the_policy_in_use() {
    const UNITS: u64 = 4;
    let shape = Shape::new(UNITS * UNIT, UNIT, 1);
    let own = choices(WritePolicy::WriteAround);
    let mut memory = Memory::new(
        shape,
        own.clone(),
        vec![0; (UNITS * UNIT) as usize],
        vec![0; (2 * UNIT) as usize],
    );
    memory.shard.attach(UnitsPlan::volatile(Frame::BARE, UNIT, 2, 512).place(FLASH, 0), None);
    let page = |unit: u64| unit * UNIT / PAGE;
    // Whether unit 0, which was cached first and read last, is evicted for unit 2.
    let evicts_the_oldest = |memory: &mut Memory, policy| {
        let spec = own.clone().with_replacement(policy).unwrap().try_into().unwrap();
        assert!(memory.shard.choose(&spec));
        for unit in [3, 2, 0, 1, 0, 2] {
            read(memory, page(unit));
        }
        !read(memory, page(0))
    };
    assert!(!evicts_the_oldest(&mut memory, ReplacementChoice::Lru));
    assert!(evicts_the_oldest(&mut memory, ReplacementChoice::Fifo));
    assert!(!evicts_the_oldest(&mut memory, ReplacementChoice::Lru));
}
