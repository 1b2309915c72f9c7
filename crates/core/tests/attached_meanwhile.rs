// SPDX-License-Identifier: MIT OR Apache-2.0
//! A flash device is attached while a change of the origin is in flight: a population that read the origin before the
//! change ended must not validate its pages (design rule 4).

use larder_core::config::{WritePolicy, preset};
use larder_core::exec::{DevId, MILLISECOND};
use larder_core::format::{Frame, UnitsPlan};
use larder_core::policy::admission::Schedule;
use larder_core::request::{Errno, Kind};
use larder_core::shape::Shape;
use larder_testkit::memory::{FLASH, Held, Memory, ORIGIN};

const UNIT: u64 = 64 << 10;
const PAGE: u64 = 4096;
const OLD: u8 = 1;
const NEW: u8 = 2;

/// A volume of four units in pass-through, over an origin of old bytes.
fn volume(name: &str) -> Memory {
    let mut choices = preset(name).expect("the preset exists").choices();
    if name == "slru" {
        choices.write = WritePolicy::AsyncWriteThrough;
    }
    choices.unit_bytes = UNIT;
    if let Some(settings) = choices.periodic_mut() {
        settings.schedule = Schedule::Every(MILLISECOND);
        settings.hot = 0;
    }
    let bytes = (4 * UNIT) as usize;
    Memory::new(Shape::new(4 * UNIT, UNIT, 1), choices, vec![OLD; bytes], vec![0; bytes])
}

fn attach(memory: &Memory, number: u32) {
    let plan = UnitsPlan::volatile(Frame::BARE, UNIT, 4, 512).place(DevId(number), 0);
    memory.shard.attach(plan, None);
}

fn read(memory: &mut Memory, tag: u64) {
    memory.ask(tag, Kind::Read, 0, PAGE, 0);
}

fn write(memory: &mut Memory, tag: u64, fill: u8) {
    memory.ask(tag, Kind::Write { fua: false }, 0, PAGE, fill);
}

#[test]
fn a_population_conflicts_with_an_earlier_write_in_pass_through() {
    let mut memory = volume("slru");
    memory.hold(ORIGIN, Held::Writes);
    write(&mut memory, 1, NEW);
    attach(&memory, 1);
    // The client waits for its unit: all pages but the one that is being written become valid.
    read(&mut memory, 2);
    assert_eq!(memory.answer(2), Some(OLD), "the write is not answered yet");
    memory.release(None);
    read(&mut memory, 3);
    assert_eq!(memory.answer(3), Some(NEW));
}

#[test]
fn an_exchange_conflicts_with_a_write_of_the_previous_attachment() {
    let mut memory = volume("prwc");
    attach(&memory, 1);
    memory.hold(ORIGIN, Held::Writes);
    write(&mut memory, 1, NEW);
    memory.shard.detach();
    memory.shard.fenced();
    attach(&memory, 2);
    // Updates try to admit the unit while the write is in flight, and again after its end.
    memory.pass(5 * MILLISECOND);
    memory.release(None);
    memory.pass(5 * MILLISECOND);
    let hits = memory.hits;
    read(&mut memory, 2);
    assert_eq!(memory.answer(2), Some(NEW));
    assert_eq!(memory.hits, hits + 1);
}

/// A client's read of the origin may return the bytes of a write in flight. It ends the old pages of that write also if it
/// began in the previous attachment.
#[test]
fn a_read_of_the_previous_attachment_ends_old_pages() {
    let mut memory = volume("slru");
    attach(&memory, 1);
    read(&mut memory, 0);
    memory.hold(FLASH, Held::Reads);
    read(&mut memory, 1);
    memory.shard.detach();
    memory.shard.fenced();
    attach(&memory, 2);
    read(&mut memory, 2);
    memory.hold(ORIGIN, Held::Writes);
    write(&mut memory, 3, NEW);
    let hits = memory.hits;
    read(&mut memory, 4);
    assert_eq!((memory.answer(4), memory.hits), (Some(OLD), hits + 1), "old pages");
    memory.release(Some(Errno::EIO));
    assert_eq!(memory.answer(1), Some(OLD), "from the origin");
    read(&mut memory, 5);
    assert_eq!(memory.hits, hits + 1);
}
