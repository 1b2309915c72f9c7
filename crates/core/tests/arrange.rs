// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges that a command warms and evicts, in each kind of cache of units; a page log does neither.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use larder_core::config::{Choices, Durability, WritePolicy, preset};
use larder_core::exec::MILLISECOND;
use larder_core::format::{Frame, UnitsPlan};
use larder_core::request::{Errno, Kind};
use larder_core::shape::Shape;
use larder_core::shard::Arrangement;
use larder_core::shard::Arrangement::{Evict, Warm};
use larder_testkit::memory::{FLASH, Held, Memory, ORIGIN};

const UNITS: u64 = 8;
const SLOTS: u64 = 4;

fn choices(name: &str) -> Choices {
    let mut choices = preset(name).expect("the preset exists").choices();
    choices.durability = Durability::Volatile;
    choices
}

/// An origin whose units have their number in each byte, and flash for half of it.
fn memory(choices: Choices) -> Memory {
    let unit = choices.unit_bytes;
    let origin = (0..UNITS).flat_map(|number| vec![number as u8; unit as usize]).collect();
    let shape = Shape::new(UNITS * unit, unit, 1);
    let memory = Memory::new(shape, choices, origin, vec![0; (SLOTS * unit) as usize]);
    let plan = UnitsPlan::volatile(Frame::BARE, unit, SLOTS, 512).place(FLASH, 0);
    memory.shard.attach(plan, None);
    memory
}

/// Each kind of cache of units, with the bytes of a unit.
fn kinds() -> impl Iterator<Item = (String, Memory, u64)> {
    let names = ["slru", "sce", "larder", "proc", "enhanceio", "flashcache"];
    let clean = names.map(|name| (name.to_owned(), choices(name)));
    let mut on_miss = choices("flashcache");
    on_miss.write = WritePolicy::WriteBack;
    let with = [("flashcache, write-back".to_owned(), on_miss)];
    clean.into_iter().chain(with).map(|(name, choices)| {
        let unit = choices.unit_bytes;
        (name, memory(choices), unit)
    })
}

fn arrange(memory: &mut Memory, what: Arrangement, range: Range<u64>) -> Result<(), Errno> {
    let done = Rc::new(Cell::new(None));
    let sets = Rc::clone(&done);
    memory.shard.arrange(what, vec![range], move |result| sets.set(Some(result)));
    for _ in 0..500 {
        memory.pass(10 * MILLISECOND);
        if let Some(result) = done.get() {
            return result;
        }
    }
    panic!("{what:?} does not end");
}

fn reads(memory: &mut Memory, offset: u64, expected: u8) -> bool {
    let (tag, hits) = (1000 + memory.replies.len() as u64, memory.hits);
    memory.ask(tag, Kind::Read, offset, 4096, 0);
    memory.pass(10 * MILLISECOND);
    assert_eq!(memory.answer(tag), Some(expected));
    memory.hits > hits
}

#[test]
fn what_is_warmed_is_hit_and_what_is_evicted_is_not() {
    for (name, mut memory, unit) in kinds() {
        let range = unit..3 * unit;
        assert_eq!(memory.shard.cached(&range), 0, "{name}");
        assert_eq!(arrange(&mut memory, Warm, range.clone()), Ok(()), "{name}");
        assert_eq!(memory.shard.cached(&range), 2 * unit, "{name}");
        assert_eq!(memory.shard.cached(&(0..UNITS * unit)), 2 * unit, "{name}");
        assert!(reads(&mut memory, unit, 1) && reads(&mut memory, 3 * unit - 4096, 2), "{name}");
        assert_eq!(arrange(&mut memory, Evict, range.clone()), Ok(()), "{name}");
        assert_eq!(memory.shard.cached(&range), 0, "{name}");
        assert!(!reads(&mut memory, unit, 1), "{name}");
    }
}

#[test]
fn a_full_cache_makes_room_for_what_is_warmed() {
    for (name, mut memory, unit) in kinds() {
        assert_eq!(arrange(&mut memory, Warm, 0..SLOTS * unit), Ok(()), "{name}");
        assert_eq!(memory.shard.cached(&(0..UNITS * unit)), SLOTS * unit, "{name}");
        let last = (UNITS - 1) * unit..UNITS * unit;
        // Of the same list, or of one that begins.
        let of_one_list = name != "flashcache, write-back";
        if of_one_list {
            assert_eq!(arrange(&mut memory, Warm, last.clone()), Ok(()), "{name}");
            assert_eq!(memory.shard.cached(&last), 0, "{name}: a unit of the list was evicted");
        }
        memory.shard.begin_list();
        assert_eq!(arrange(&mut memory, Warm, last.clone()), Ok(()), "{name}");
        assert_eq!(memory.shard.cached(&last), unit, "{name}");
        assert!(reads(&mut memory, last.start, UNITS as u8 - 1), "{name}");
        assert_eq!(memory.shard.cached(&(0..UNITS * unit)), SLOTS * unit, "{name}");
    }
}

/// Those that flash had before the list began too, although what clients read is not of the list.
#[test]
fn no_unit_of_a_list_is_evicted_for_another() {
    for (name, mut memory, unit) in kinds().filter(|(name, ..)| name != "flashcache, write-back") {
        assert_eq!(arrange(&mut memory, Warm, 0..SLOTS * unit), Ok(()), "{name}");
        for _ in 0..20 {
            assert!(reads(&mut memory, 0, 0) && reads(&mut memory, unit, 1), "{name}");
        }
        memory.shard.begin_list();
        let list = 2 * unit..6 * unit;
        assert_eq!(arrange(&mut memory, Warm, list.clone()), Ok(()), "{name}");
        assert_eq!(memory.shard.cached(&list), 4 * unit, "{name}");
    }
}

#[test]
fn a_range_counts_in_pages_and_is_extended_to_units() {
    let mut memory = memory(choices("slru"));
    let unit = choices("slru").unit_bytes;
    assert_eq!(arrange(&mut memory, Warm, unit + 8192..unit + 8193), Ok(()));
    assert_eq!(memory.shard.cached(&(0..UNITS * unit)), unit);
    assert_eq!(memory.shard.cached(&(unit - 4096..unit + 4096)), 4096);
    assert_eq!(memory.shard.cached(&(unit + 1..unit + 2)), 4096);
    assert_eq!(memory.shard.cached(&(unit..unit)), 0);
}

#[test]
fn dirty_data_reaches_the_origin_before_it_is_evicted() {
    let mut on_miss = choices("flashcache");
    on_miss.write = WritePolicy::WriteBack;
    let (unit, mut memory) = (on_miss.unit_bytes, memory(on_miss));
    memory.ask(1, Kind::Write { fua: false }, 0, unit, 77);
    memory.pass(10 * MILLISECOND);
    assert_eq!((memory.shard.units_of(0).1, memory.origin[0]), (1, 0), "it is dirty");
    assert_eq!(arrange(&mut memory, Evict, 0..unit), Ok(()));
    assert_eq!((memory.shard.units_of(0), memory.origin[0]), ((0, 0), 77));
    assert!(!reads(&mut memory, 0, 77));
}

#[test]
fn a_unit_that_a_client_reads_leaves_when_the_read_has_ended() {
    let mut memory = memory(choices("slru"));
    let unit = choices("slru").unit_bytes;
    assert_eq!(arrange(&mut memory, Warm, 0..unit), Ok(()));
    memory.hold(FLASH, Held::Reads);
    memory.ask(1, Kind::Read, 0, 4096, 0);
    let done = Rc::new(Cell::new(None));
    let sets = Rc::clone(&done);
    let first = 0..unit;
    memory.shard.arrange(Evict, vec![first], move |result| sets.set(Some(result)));
    memory.pass(20 * MILLISECOND);
    assert_eq!(done.get(), None);
    memory.release(None);
    memory.pass(20 * MILLISECOND);
    assert_eq!((done.get(), memory.answer(1)), (Some(Ok(())), Some(0)));
    assert_eq!(memory.shard.cached(&(0..unit)), 0);
}

/// As of the journal, which uses many slots while it logs what they hold.
#[test]
fn a_unit_waits_for_a_slot_whose_unit_is_in_use() {
    for (name, mut memory, unit) in kinds().filter(|(name, ..)| name != "flashcache, write-back") {
        assert_eq!(arrange(&mut memory, Warm, 0..SLOTS * unit), Ok(()), "{name}");
        memory.hold(FLASH, Held::Reads);
        for slot in 0..SLOTS {
            memory.ask(slot, Kind::Read, slot * unit, 4096, 0);
        }
        memory.shard.begin_list();
        let (done, list) = (Rc::new(Cell::new(None)), SLOTS * unit..(SLOTS + 2) * unit);
        let (sets, range) = (Rc::clone(&done), list.clone());
        memory.shard.arrange(Warm, vec![range], move |result| sets.set(Some(result)));
        memory.pass(50 * MILLISECOND);
        memory.release(None);
        for _ in 0..100 {
            memory.pass(10 * MILLISECOND);
        }
        assert_eq!((done.get(), memory.shard.cached(&list)), (Some(Ok(())), 2 * unit), "{name}");
    }
}

#[test]
fn a_write_while_a_unit_is_warmed_is_what_later_reads_return() {
    for (name, mut memory, unit) in kinds() {
        memory.hold(ORIGIN, Held::Reads);
        let first = 0..unit;
        memory.shard.arrange(Warm, vec![first], |_| ());
        memory.pass(10 * MILLISECOND);
        memory.ask(1, Kind::Write { fua: false }, 0, 4096, 99);
        memory.release(None);
        memory.pass(100 * MILLISECOND);
        reads(&mut memory, 0, 99);
        reads(&mut memory, 0, 99);
        assert!(memory.replies.iter().any(|(tag, ..)| *tag == 1), "{name}");
    }
}

#[test]
fn without_flash_nothing_is_warmed_and_nothing_while_it_is_detached() {
    let mut memory = memory(choices("slru"));
    let unit = choices("slru").unit_bytes;
    memory.shard.detach();
    assert_eq!(arrange(&mut memory, Warm, 0..unit), Err(Errno::ENODEV));
    assert_eq!(arrange(&mut memory, Evict, 0..unit), Err(Errno::ENODEV));
    assert_eq!(memory.shard.cached(&(0..unit)), 0);
    memory.shard.settle_journal();
    assert_eq!(arrange(&mut memory, Warm, 0..unit), Err(Errno::ECANCELED));
}
