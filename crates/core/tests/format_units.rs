// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flash images of caches of units: format version 1, version 3 (its label names several volumes) and version 4 (checksums).
//! `fixtures/vVERSION/NAME.zst` is the beginning of a flash device, up to the slots, and `NAME.txt` is its content as text.
//!
//! The tests check that each image is read as its text, that its blocks are written again byte for byte, and that the same
//! steps give the same state. A change of the format needs a new version with new fixtures; these never change, since
//! released programs wrote the format.
//!
//! `cargo test -p larder-core --test format_units -- --ignored` writes missing fixtures with [`make`] and changes none.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fmt::Write as _;

use larder_core::checksum::crc32c;
use larder_core::config::{Choices, Durability, preset};
use larder_core::exec::SECOND;
use larder_core::format::label::{Found, Label, SECOND_COPY, Section, SectionKind};
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
/// Of the names and sizes of the volumes that share a cache.
const DIGEST: u64 = 0x8877_6655_4433_2211;
const SCE_UNIT: u64 = 64 << 10;
/// Large enough for regions of two pages.
const PRWC_UNIT: u64 = 512 << 10;
const WRITE: Kind = Kind::Write { fua: false };
const TRIM: Kind = Kind::Trim { fua: false };

/// The steps that produce an image.
type Steps = fn(&mut Memory);

/// An image.
#[derive(Clone, Copy)]
struct Fixture {
    version: u32,
    name: &'static str,
    preset: &'static str,
    steps: Steps,
}

const fn of(version: u32, name: &'static str, preset: &'static str, steps: Steps) -> Fixture {
    Fixture { version, name, preset, steps }
}

const FIXTURES: [Fixture; 8] = [
    of(1, "sce-clean", "sce", sce),
    of(1, "sce-crash", "sce", sce_crash),
    of(1, "prwc-clean", "prwc", prwc),
    of(1, "prwc-crash", "prwc", prwc_crash),
    of(3, "sce-crash", "sce", sce_crash),
    of(3, "prwc-clean", "prwc", prwc),
    of(4, "sce-crash", "sce", sce_crash),
    of(4, "prwc-clean", "prwc", prwc),
];

fn sce_crash(memory: &mut Memory) {
    sce(memory);
    crash(memory, SCE_UNIT, [4, 9]);
}

fn prwc_crash(memory: &mut Memory) {
    prwc(memory);
    crash(memory, PRWC_UNIT, [11, 5]);
}

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

fn setup(of: Fixture) -> Setup {
    let Fixture { version, preset: name, .. } = of;
    let mut choices = preset(name).unwrap().choices();
    choices.verify = version == 4;
    choices.durability = Durability::Journal;
    choices.unit_bytes = if name == "sce" { SCE_UNIT } else { PRWC_UNIT };
    let unit_bytes = choices.unit_bytes;
    // The last unit is short.
    let shape = Shape::new(19 * unit_bytes + 12_288, unit_bytes, 1);
    let plan = UnitsPlan::of(Frame::DEVICE, shape, SLOTS, 512, &choices, LOG_BYTES);
    let (flash, layout) = (plan.place(FLASH, VOLUME), plan.layout(VOLUME, 0).unwrap());
    let volumes = if version == 3 { DIGEST } else { 0 };
    let label = Plan::Units(plan).shared(volumes).label(VOLUME);
    Setup { shape, choices, flash, layout, label }
}

/// The beginning of the flash after the steps.
fn make(of: Fixture) -> Vec<u8> {
    let setup = setup(of);
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
    (of.steps)(&mut memory);
    memory.flash.truncate(flash.base as usize);
    memory.flash
}

fn kept(of: Fixture) -> (Vec<u8>, String) {
    larder_testkit::fixtures::kept(&directory(of), of.name)
}

fn directory(of: Fixture) -> String {
    format!("v{}", of.version)
}

/// The image of this version and name.
fn named(version: u32, name: &str) -> Fixture {
    *FIXTURES.iter().find(|of| of.version == version && of.name == name).unwrap()
}

/// The pages that have a checksum, and the CRC-32C of the checksums, slot by slot. Read as docs/format.md states, and not by the engine.
fn sums(bytes: &[u8], section: &Section, layout: &Layout) -> String {
    const SUMS_EACH: usize = 124;
    let area = &bytes[section.offset as usize..][..section.bytes as usize];
    let mut all = Vec::new();
    for (number, sector) in (0..).zip(area.chunks(512)) {
        let at = section.offset + number * 512;
        let u64_at = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().unwrap());
        let blank = sector.iter().all(|byte| *byte == 0);
        let mut checked = sector.to_vec();
        checked[..4].fill(0);
        let crc = u32::from_le_bytes(sector[..4].try_into().unwrap());
        assert!(blank || crc == crc32c(&checked), "sector at {at}");
        assert!(blank || u64_at(8) == VOLUME.wrapping_add(at), "sector at {at}");
        let sums = sector[16..].chunks_exact(4).take(SUMS_EACH);
        all.extend(sums.map(|sum| u32::from_le_bytes(sum.try_into().unwrap())));
    }
    let pages = layout.pages as usize;
    let mut out = String::new();
    for (slot, of) in all.chunks(pages).take(layout.slots as usize).enumerate() {
        let with: Vec<u32> =
            (0..).zip(of).filter(|(_, sum)| **sum != 0).map(|(page, _)| page).collect();
        let bytes: Vec<u8> = of.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        writeln!(out, "slot {slot}: checksums of pages{}, {:08x}", runs(&with), crc32c(&bytes))
            .unwrap();
    }
    out
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
    let Label {
        volume, unit_bytes, slots, shards, log_bytes, keeps, origin_bytes, volumes, ..
    } = label;
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
    if volumes != 0 {
        writeln!(out, "volumes {volumes:016x}").unwrap();
    }
    let areas = label.sections.iter().filter(|section| section.kind == SectionKind::Sums);
    areas.for_each(|section| out += &sums(bytes, section, layout));
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
    for of in FIXTURES {
        let (bytes, text) = kept(of);
        assert_eq!(bytes[8], of.version as u8);
        assert_eq!(describe(&bytes, &setup(of).layout), text, "{} {}", of.version, of.name);
    }
}

#[test]
fn decoded_blocks_are_encoded_again_byte_for_byte() {
    for of in FIXTURES {
        let blocks = is_written_as_it_is_read(&kept(of).0, &setup(of).layout);
        assert!(blocks > 0, "{} {}: no log", of.version, of.name);
    }
}

/// The states are equal; the bytes may differ, so that the engine may change.
#[test]
fn the_same_steps_give_the_same_state() {
    for of in FIXTURES {
        let (bytes, layout) = (make(of), setup(of).layout);
        let (now, then) = (recovered(&bytes, &layout), recovered(&kept(of).0, &layout));
        assert_eq!(now.payload, then.payload, "{} {}", of.version, of.name);
        let sums = |text: String| {
            text.lines()
                .filter(|line| line.contains("checksums"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(sums(describe(&bytes, &layout)), sums(kept(of).1), "{} {}", of.version, of.name);
        is_written_as_it_is_read(&bytes, &layout);
    }
}

#[test]
fn the_fixtures_contain_the_cases_that_they_are_for() {
    let text = |name: &str| kept(named(1, name)).1;
    for name in ["sce-clean", "sce-crash"] {
        assert!(text(name).contains("region 1, generation 2 of 2"), "{name}: no checkpoint");
        assert!(text(name).contains("valid pages 0-1 "), "{name}: nothing partly valid");
        assert!(text(name).contains("slot 0: unit 9"), "{name}: nothing displaced");
    }
    assert!(text("prwc-clean").contains("dirty regions 0 63"));
    assert!(text("prwc-crash").contains("dirty regions 0 4 63"));
    assert!(text("prwc-crash").contains("factors 2="));
    assert!(kept(named(3, "prwc-clean")).1.contains("volumes 8877665544332211"));
    assert!(kept(named(4, "sce-crash")).1.contains("slot 0: checksums of pages 0-15, "));
    assert!(kept(named(4, "prwc-clean")).1.contains("checksums of pages 0-127, "));
    for (clean, crash) in [("sce-clean", "sce-crash"), ("prwc-clean", "prwc-crash")] {
        assert_ne!(text(clean), text(crash));
        // The last block of the log is there once.
        let of = named(1, crash);
        let (bytes, layout) = (kept(of).0, setup(of).layout);
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
    for of in FIXTURES {
        larder_testkit::fixtures::keep(&directory(of), of.name, || {
            let bytes = make(of);
            let text = describe(&bytes, &setup(of).layout);
            (bytes, text)
        });
    }
}
