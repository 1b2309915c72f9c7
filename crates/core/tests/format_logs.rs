// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flash images of format version 2: `fixtures/v2/NAME.zst` is a flash device with a page log, and `NAME.txt` is its
//! content as text.
//!
//! The tests check that each image is read as its text, and that the same steps give the same pages. A change of the format
//! needs a new version with new fixtures; these never change, since released programs wrote the format.
//!
//! `cargo test -p larder-core --test format_logs -- --ignored` writes missing fixtures with [`make`] and changes none.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fmt::Write as _;

use larder_core::buf::{Buf, PAGE};
use larder_core::config::{AdmissionChoice, Choices, WritePolicy, preset};
use larder_core::exec::SECOND;
use larder_core::format::Keeps;
use larder_core::format::label::{Found, HEADER_BYTES, Label, SECOND_COPY, Section, SectionKind};
use larder_core::pagelog::{Geometry, Inspection, LogPolicy, LogSettings, Seat};
use larder_core::request::{Errno, Kind};
use larder_core::shape::Shape;
use larder_testkit::memory::{FLASH, Held, Memory, ORIGIN};

const VOLUME: u64 = 0x1122_3344_5566_7788;
const PAGES: u64 = 300;
const BATCH_PAGES: u32 = 4;
/// Bytes after the last whole page of the volume.
const REST: u64 = 1024;
const SIZE: u64 = PAGE as u64;

/// The steps that produce an image.
type Steps = fn(&mut Memory);

/// The fixtures: name, policy, steps.
const FIXTURES: [(&str, LogPolicy, Steps); 5] = [
    ("full-clean", LogPolicy::Full, stopped),
    ("full-crash", LogPolicy::Full, crashed),
    ("through-clean", LogPolicy::Through, stopped),
    ("bounded-crash", LogPolicy::Bounded, crashed),
    ("ordered-crash", LogPolicy::Ordered, ordered),
];

fn write(memory: &mut Memory, page: u64, fill: u8) {
    memory.ask(1, Kind::Write { fua: false }, page * SIZE, SIZE, fill);
}

/// Writes more pages than the log has blocks, some of them twice; reads some, trims some; the last page is short.
fn load(memory: &mut Memory) {
    for step in 0..420_u64 {
        write(memory, step * 7 % 90, step as u8);
        memory.ask(2, Kind::Read, step % 3 * SIZE, SIZE, 0);
        memory.ask(3, Kind::Read, (200 + step % 5) * SIZE, SIZE, 0);
        if step % 16 == 0 {
            memory.pass(SECOND / 10);
        }
    }
    memory.ask(4, Kind::Write { fua: true }, PAGES * SIZE, REST, 0xee);
    memory.ask(5, Kind::Trim { fua: false }, 40 * SIZE, 5 * SIZE, 0);
    memory.ask(6, Kind::Flush, 0, 0, 0);
    write(memory, 7, 0x77);
    memory.pass(SECOND);
}

fn stopped(memory: &mut Memory) {
    load(memory);
    memory.shard.settle_journal();
    memory.pass(10 * SECOND);
    assert!(memory.shard.journal_settled());
}

/// A crash follows after one more batch.
fn crashed(memory: &mut Memory) {
    load(memory);
    memory.ask(7, Kind::Flush, 0, 0, 0);
    memory.lands = 1;
    (50..70).for_each(|page| write(memory, page, 0xcc));
    memory.pass(SECOND);
}

/// Epochs that are replayed, and two that are not when a crash follows: the origin does not answer.
fn ordered(memory: &mut Memory) {
    load(memory);
    memory.hold(ORIGIN, Held::Writes);
    for (flush, pages) in [(7, 50..60), (8, 55..65)] {
        pages.for_each(|page| write(memory, page, 0xcc + flush as u8));
        memory.ask(flush, Kind::Flush, 0, 0, 0);
    }
    memory.pass(SECOND);
}

fn choices(policy: LogPolicy) -> Choices {
    let mut choices = preset("face").unwrap().choices();
    choices.write = WritePolicy::Logged(policy);
    let AdmissionChoice::OnExit(settings) = &mut choices.admission else {
        panic!("face enters on exit")
    };
    settings.batch_pages = BATCH_PAGES;
    choices
}

fn place() -> Geometry {
    let smallest = Geometry {
        base: HEADER_BYTES,
        blocks: 0,
        page_bytes: 4096,
        batch_pages: BATCH_PAGES,
        volume: VOLUME,
    };
    Geometry { blocks: smallest.least_blocks(), ..smallest }
}

fn label(policy: LogPolicy, unit_bytes: u64) -> Label {
    let log = place();
    let (blocks, segment) = (log.blocks, log.segment() as u32);
    let kind = SectionKind::Log { blocks, segment, batch_pages: log.batch_pages };
    Label {
        volume: VOLUME,
        unit_bytes,
        slots: u64::from(log.blocks),
        shards: 1,
        log_bytes: 0,
        keeps: Keeps { dirty: policy.survives_crash(), factors: false },
        origin_bytes: PAGES * SIZE + REST,
        volumes: 0,
        sections: vec![Section { kind, offset: log.base, bytes: log.bytes() }],
    }
}

/// The flash after the steps.
fn make(policy: LogPolicy, steps: Steps) -> Vec<u8> {
    let (choices, log) = (choices(policy), place());
    let label = label(policy, choices.unit_bytes);
    let mut flash = vec![0; (log.base + log.bytes()) as usize];
    for at in [0, SECOND_COPY as usize] {
        let bytes = label.encode();
        flash[at..][..bytes.len()].copy_from_slice(&bytes);
    }
    for (at, bytes) in log.blank() {
        flash[at as usize..][..PAGE].copy_from_slice(&bytes);
    }
    let (origin_bytes, unit_bytes) = (label.origin_bytes, label.unit_bytes);
    let shape = Shape::new(origin_bytes, unit_bytes, 1);
    let mut memory = Memory::new(shape, choices, vec![0x11; origin_bytes as usize], flash);
    memory.shard.attach_log(FLASH, (log, Seat::alone()), Vec::new());
    memory.shard.all_logs_open();
    memory.pass(SECOND);
    steps(&mut memory);
    memory.flash
}

fn kept(name: &str) -> (Vec<u8>, String) {
    larder_testkit::fixtures::kept("v2", name)
}

/// The content of an image as text.
fn describe(bytes: &[u8], policy: LogPolicy) -> String {
    let Found::Label(label) = Label::find(bytes) else { panic!("no label") };
    assert_eq!(bytes[SECOND_COPY as usize..][..4096], label.encode());
    let mut out = String::new();
    let Label { volume, unit_bytes, slots, shards, keeps, origin_bytes, .. } = label;
    writeln!(out, "volume {volume:016x}, unit {unit_bytes} bytes, {slots} blocks, {shards} shard, origin {origin_bytes} bytes").unwrap();
    writeln!(out, "has dirty regions: {}", keeps.dirty).unwrap();
    for Section { kind, offset, bytes } in &label.sections {
        writeln!(out, "{kind:?} at {offset}, {bytes} bytes").unwrap();
    }
    let read = |offset: u64, mut buf: Buf| {
        let found = bytes.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(found.ok_or(Errno::EIO)?);
        Ok(buf)
    };
    let look =
        Inspection::new(place(), LogSettings { policy, second_chance: true }, PAGES + 1, read)
            .unwrap();
    let (found, (generation, _)) = (&look.found, look.found.reached());
    let warm = if found.warm { "warm" } else { "cold" };
    writeln!(out, "generation {generation}, tail {}, head {}, {warm}", found.tail, found.head)
        .unwrap();
    let redo: Vec<_> = found.redo.iter().cloned().flatten().map(|page| page..page + 1).collect();
    writeln!(out, "to be zero on the origin: {redo:?}").unwrap();
    let mut pages: Vec<_> = look.pages().collect();
    pages.sort_unstable();
    for (page, at, dirty) in pages {
        let bytes = &bytes[at as usize..][..PAGE];
        let (first, last) = (bytes[0], bytes[PAGE - 1]);
        let dirty = if dirty { ", dirty" } else { "" };
        writeln!(out, "page {page}: at {at}, bytes {first:#04x} to {last:#04x}{dirty}").unwrap();
    }
    out
}

#[test]
fn images_are_read_as_their_texts() {
    for (name, policy, _) in FIXTURES {
        let (bytes, text) = kept(name);
        assert_eq!(describe(&bytes, policy), text, "{name}");
    }
}

/// The pages are equal; places and bytes may differ, so that the engine may change.
#[test]
fn the_same_steps_give_the_same_pages() {
    let pages = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("page "));
        let short = lines.map(|line| {
            let (page, rest) = line.split_once(": at ").unwrap();
            format!("{page} {}", rest.split_once(", ").unwrap().1)
        });
        short.collect::<Vec<_>>()
    };
    for (name, policy, steps) in FIXTURES {
        let now = describe(&make(policy, steps), policy);
        assert_eq!(pages(&now), pages(&kept(name).1), "{name}");
    }
}

#[test]
fn the_fixtures_contain_the_cases_that_they_are_for() {
    let text = |name: &str| kept(name).1;
    let count = |name: &str, what: &str| text(name).matches(what).count();
    for name in ["full-clean", "full-crash"] {
        assert!(count(name, ", dirty") > 20 && text(name).contains("page 300: "), "{name}");
        assert!(!text(name).contains("page 42: "), "{name}: it was trimmed");
        let tail = text(name).split_once("tail ").unwrap().1.to_owned();
        let tail: u64 = tail.split(',').next().unwrap().parse().unwrap();
        assert!(tail > u64::from(place().blocks), "{name}: the log went round");
    }
    assert!(text("full-crash").contains("bytes 0xcc"), "the batch that landed");
    assert!(!text("full-clean").contains("bytes 0xcc"));
    assert!(count("through-clean", "page ") > 20 && count("through-clean", ", dirty") == 0);
    assert_eq!(
        count("ordered-crash", ", dirty"),
        16,
        "pages 50 to 64, and 7, which was written last before them"
    );
    assert!(count("ordered-crash", "page ") > 25, "and what was replayed");
    assert!(text("bounded-crash").contains("cold") && count("bounded-crash", "page ") == 0);
}

#[test]
#[ignore = "writes the fixtures that are missing"]
fn make_fixtures() {
    for (name, policy, steps) in FIXTURES {
        larder_testkit::fixtures::keep("v2", name, || {
            let bytes = make(policy, steps);
            let text = describe(&bytes, policy);
            (bytes, text)
        });
    }
}
