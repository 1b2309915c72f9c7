// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flash images of format version 1: `fixtures/v1/NAME.zst` is the beginning of a flash device, up to the slots, and
//! `NAME.txt` is its content as text.
//!
//! The tests check that each image is read as its text, that its blocks are written again byte for byte, and that the same
//! steps give the same state. A change of the format needs a new version with new fixtures; these never change, since
//! released programs wrote the format.
//!
//! `cargo test -p larder-core --test format_v1 -- --ignored` writes missing fixtures with [`make`] and changes none.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fmt::Write as _;

use larder_core::config::{Choices, Durability, preset};
use larder_core::exec::SECOND;
use larder_core::format::label::{Found, Label, SECOND_COPY, Section};
use larder_core::format::{FlashPlan, Frame, Plan, UnitsPlan};
use larder_core::journal::layout::{HEADER_BYTES, Layout};
use larder_core::journal::record::{Block, LogEnd, pack};
use larder_core::journal::recover::{Header, Recovered, format};
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_testkit::memory::{FLASH, Memory};
use larder_testkit::units::{LOG_BYTES, recover_from};

const VOLUME: u64 = 0x1122_3344_5566_7788;
const SLOTS: u64 = 5;
const SCE_UNIT: u64 = 64 << 10;
/// Large enough for regions of two pages.
const PRWC_UNIT: u64 = 512 << 10;
const WRITE: Kind = Kind::Write { fua: false };
const TRIM: Kind = Kind::Trim { fua: false };

/// The steps that produce an image.
type Steps = fn(&mut Memory);

/// The fixtures: name, preset, steps.
const FIXTURES: [(&str, &str, Steps); 4] = [
    ("sce-clean", "sce", sce),
    ("sce-crash", "sce", |memory| {
        sce(memory);
        crash(memory, SCE_UNIT, [4, 9]);
    }),
    ("prwc-clean", "prwc", prwc),
    ("prwc-crash", "prwc", |memory| {
        prwc(memory);
        crash(memory, PRWC_UNIT, [11, 5]);
    }),
];

/// Units are populated, written and logged again, until the log is full enough for a checkpoint. Then a hot unit displaces
/// another, a trim invalidates pages, and the volume stops cleanly.
fn sce(memory: &mut Memory) {
    let unit = SCE_UNIT;
    for own in [0, 4, 1, 19, 7] {
        memory.ask(1, Kind::Read, own * unit, 4096, 0);
        memory.pass(2 * SECOND);
    }
    for round in 0..6 {
        memory.ask(2, WRITE, unit + round * 8192, 4096, 3);
        memory.pass(SECOND / 100);
        memory.ask(3, WRITE, 4 * unit + round * 4096, 4096, 3);
        memory.pass(2 * SECOND);
    }
    for _ in 0..20 {
        memory.ask(4, Kind::Read, 9 * unit, 4096, 0);
        memory.pass(SECOND / 10);
    }
    memory.ask(5, TRIM, 4 * unit + 2 * 4096, 12 << 10, 0);
    memory.ask(6, TRIM, 7 * unit + 15 * 4096, 4096, 0);
    stop(memory);
}

/// An update admits units, which are written; then the volume stops cleanly, with dirty data.
fn prwc(memory: &mut Memory) {
    let unit = PRWC_UNIT;
    for own in [2, 5, 2, 11, 2, 5, 19] {
        memory.ask(1, Kind::Read, own * unit, 4096, 0);
    }
    memory.pass(3700 * SECOND);
    for (own, page) in [(5, 0), (5, 127), (2, 64), (19, 1)] {
        memory.ask(2, WRITE, own * unit + page * 4096, 4096, 3);
        memory.pass(SECOND);
    }
    stop(memory);
}

fn stop(memory: &mut Memory) {
    memory.shard.settle_journal();
    memory.pass(10 * SECOND);
    assert!(memory.shard.journal_settled());
}

/// Writes to two units; a crash follows when one copy of the second unit's log block is written.
fn crash(memory: &mut Memory, unit: u64, units: [u64; 2]) {
    memory.ask(7, WRITE, units[0] * unit + 4 * 4096, 12 << 10, 9);
    memory.lands = 1;
    memory.ask(8, WRITE, units[1] * unit + 9 * 4096, 4096, 9);
}

struct Setup {
    shape: Shape,
    choices: Choices,
    flash: FlashPlan,
    layout: Layout,
    label: Label,
}

fn setup(name: &str) -> Setup {
    let mut choices = preset(name).unwrap().choices();
    choices.durability = Durability::Journal;
    choices.unit_bytes = if name == "sce" { SCE_UNIT } else { PRWC_UNIT };
    let unit_bytes = choices.unit_bytes;
    // The last unit is short.
    let shape = Shape::new(19 * unit_bytes + 12_288, unit_bytes, 1);
    let plan = UnitsPlan::of(Frame::DEVICE, shape, SLOTS, 512, &choices, LOG_BYTES);
    let (flash, layout) = (plan.place(FLASH, VOLUME), plan.layout(VOLUME, 0).unwrap());
    let label = Plan::Units(plan).label(VOLUME);
    Setup { shape, choices, flash, layout, label }
}

/// The beginning of the flash after the steps.
fn make(preset: &str, steps: Steps) -> Vec<u8> {
    let setup = setup(preset);
    let Setup { shape, flash, layout, label, .. } = setup;
    let mut bytes = vec![0; (flash.base + SLOTS * shape.unit_bytes) as usize];
    let labels = [0, SECOND_COPY].map(|at| (at, label.encode().to_vec()));
    for (at, what) in format(&layout, VOLUME).into_iter().chain(labels) {
        bytes[at as usize..][..what.len()].copy_from_slice(&what);
    }
    let recovered = recover_from(&bytes, &layout, VOLUME).unwrap();
    let origin = vec![0; shape.origin_bytes as usize];
    let mut memory = Memory::new(shape, setup.choices, origin, bytes);
    assert!(memory.shard.attach(flash, Some(&recovered)));
    steps(&mut memory);
    memory.flash.truncate(flash.base as usize);
    memory.flash
}

fn kept(name: &str) -> (Vec<u8>, String) {
    larder_testkit::fixtures::kept("v1", name)
}

fn recovered(bytes: &[u8], layout: &Layout) -> Recovered {
    recover_from(bytes, layout, VOLUME).unwrap()
}

/// `1-3 7` for 1, 2, 3 and 7.
fn runs(numbers: &[u32]) -> String {
    let mut out = String::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let dash = if first == last { String::new() } else { format!("-{last}") };
        write!(out, " {first}{dash}").unwrap();
    }
    if out.is_empty() { " none".to_owned() } else { out }
}

/// The content of an image as text.
fn describe(bytes: &[u8], layout: &Layout) -> String {
    let Found::Label(label) = Label::find(bytes) else { panic!("no label") };
    let found = recovered(bytes, layout);
    let mut out = String::new();
    let Label { volume, unit_bytes, slots, shards, log_bytes, keeps, origin_bytes, .. } = label;
    writeln!(out, "volume {volume:016x}, unit {unit_bytes} bytes, {slots} slots, {shards} shard, log {log_bytes} bytes, origin {origin_bytes} bytes").unwrap();
    writeln!(out, "has dirty regions: {}, keeps factors: {}", keeps.dirty, keeps.factors).unwrap();
    for Section { kind, offset, bytes } in &label.sections {
        writeln!(out, "{kind:?} at {offset}, {bytes} bytes").unwrap();
    }
    let Recovered { half: region, end, newest, .. } = &found;
    let (generation, next) = (end.generation, end.sequence);
    writeln!(out, "region {region}, generation {generation} of {newest}, next log block {next}")
        .unwrap();
    for slot in 0..layout.slots {
        let Some(unit) = found.unit(slot, layout) else {
            writeln!(out, "slot {slot}: empty").unwrap();
            continue;
        };
        let valid: Vec<u32> = found.pages(slot, layout).iter().map(|page| page.page).collect();
        let dirty = found.dirty(slot, layout);
        let dirty: Vec<u32> = (0..64).filter(|region| dirty >> region & 1 == 1).collect();
        let (valid, dirty) = (runs(&valid), runs(&dirty));
        writeln!(out, "slot {slot}: unit {unit}, valid pages{valid}, dirty regions{dirty}")
            .unwrap();
    }
    let factors = (0..).zip(found.factors(layout)).filter(|(_, rf)| *rf > 0);
    let factors: Vec<String> = factors.map(|(unit, rf)| format!(" {unit}={rf}")).collect();
    writeln!(out, "factors{}", factors.concat()).unwrap();
    out
}

/// Checks that label, headers and logs, decoded and encoded again, are the same bytes; returns the number of log blocks.
fn is_written_as_it_is_read(bytes: &[u8], layout: &Layout) -> u64 {
    let Found::Label(label) = Label::find(bytes) else { panic!("no label") };
    for at in [0, SECOND_COPY as usize] {
        assert_eq!(bytes[at..at + 4096], label.encode(), "label at {at}");
    }
    let mut blocks = 0;
    for region in [0, 1] {
        let first = layout.header(region, 0) as usize;
        if bytes[first..][..8].iter().all(|b| *b == 0) {
            continue; // never written
        }
        let u64_at = |at: usize| u64::from_le_bytes(bytes[first + at..][..8].try_into().unwrap());
        let (generation, follows) = (u64_at(24), u64_at(48));
        let payload_crc = Some((u64_at(40) >> 32) as u32);
        let header = Header { volume: VOLUME, generation, follows, payload_crc };
        for at in [0, 1].map(|copy| layout.header(region, copy)) {
            let found = &bytes[at as usize..][..HEADER_BYTES as usize];
            assert_eq!(found, header.encode(layout, at), "header at {at}");
        }
        blocks += log_is_written_as_it_is_read(bytes, layout, region, generation);
    }
    blocks
}

fn log_is_written_as_it_is_read(bytes: &[u8], layout: &Layout, region: u8, generation: u64) -> u64 {
    let block = |number: u64| {
        let at = layout.log_block(region, 0, number as u32) as usize;
        &bytes[at..at + layout.block_bytes as usize]
    };
    let mut end = LogEnd::first(VOLUME, generation, layout);
    while end.sequence < u64::from(layout.log_blocks) {
        // A batch is packed as a whole.
        let (start, mut next, mut records) = (end.sequence, end, Vec::new());
        while let Some(found) = Block::decode(block(next.sequence), &next, layout)
            && found.batch == start
            && let Some(more) = found.follow(&mut next)
        {
            records.extend(more);
        }
        if next.sequence == start {
            break;
        }
        let (packed, _) = pack(&records, layout, u32::MAX / 4096, &mut end);
        let on_flash: Vec<u8> = (start..next.sequence).flat_map(block).copied().collect();
        assert_eq!(packed, on_flash, "log of region {region} from block {start}");
        assert_eq!(end, next);
    }
    end.sequence
}

#[test]
fn images_are_read_as_their_texts() {
    for (name, preset, _) in FIXTURES {
        let (bytes, text) = kept(name);
        assert_eq!(describe(&bytes, &setup(preset).layout), text, "{name}");
    }
}

#[test]
fn decoded_blocks_are_encoded_again_byte_for_byte() {
    for (name, preset, _) in FIXTURES {
        let blocks = is_written_as_it_is_read(&kept(name).0, &setup(preset).layout);
        assert!(blocks > 0, "{name}: no log");
    }
}

/// The states are equal; the bytes may differ, so that the engine may change.
#[test]
fn the_same_steps_give_the_same_state() {
    for (name, preset, steps) in FIXTURES {
        let (bytes, layout) = (make(preset, steps), setup(preset).layout);
        let (now, then) = (recovered(&bytes, &layout), recovered(&kept(name).0, &layout));
        assert_eq!(now.payload, then.payload, "{name}");
        is_written_as_it_is_read(&bytes, &layout);
    }
}

#[test]
fn the_fixtures_contain_the_cases_that_they_are_for() {
    let text = |name: &str| kept(name).1;
    for name in ["sce-clean", "sce-crash"] {
        assert!(text(name).contains("region 1, generation 2 of 2"), "{name}: no checkpoint");
        assert!(text(name).contains("valid pages 0-1 "), "{name}: nothing partly valid");
        assert!(text(name).contains("slot 0: unit 9"), "{name}: nothing displaced");
    }
    assert!(text("prwc-clean").contains("dirty regions 0 63"));
    assert!(text("prwc-crash").contains("dirty regions 0 4 63"));
    assert!(text("prwc-crash").contains("factors 2="));
    for (clean, crash, preset) in
        [("sce-clean", "sce-crash", "sce"), ("prwc-clean", "prwc-crash", "prwc")]
    {
        assert_ne!(text(clean), text(crash));
        // The last block of the log is there once.
        let (bytes, layout) = (kept(crash).0, setup(preset).layout);
        let found = recovered(&bytes, &layout);
        let last = found.end.sequence as u32 - 1;
        let [one, other] = [0, 1].map(|copy| {
            let at = layout.log_block(found.half, copy, last) as usize;
            &bytes[at..at + layout.block_bytes as usize]
        });
        assert_ne!(one, other, "{crash}");
    }
}

#[test]
#[ignore = "writes the fixtures that are missing"]
fn make_fixtures() {
    for (name, preset, steps) in FIXTURES {
        larder_testkit::fixtures::keep("v1", name, || {
            let bytes = make(preset, steps);
            let text = describe(&bytes, &setup(preset).layout);
            (bytes, text)
        });
    }
}
