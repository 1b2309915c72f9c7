// SPDX-License-Identifier: MIT OR Apache-2.0
//! A start repeats the tombstones of a page log on the origin, which may have lost their trims.

use larder_core::buf::PAGE;
use larder_core::config::{AdmissionChoice, Choices, WritePolicy, preset};
use larder_core::exec::SECOND;
use larder_core::pagelog::{Geometry, LogPolicy, Seat};
use larder_core::request::{Kind, MAX_PIECE_BYTES};
use larder_core::shape::Shape;
use larder_testkit::memory::{FLASH, Memory};

const BATCH_PAGES: u32 = 4;
/// The last page is short.
const ORIGIN_BYTES: u64 = 5 * MAX_PIECE_BYTES / 2 + 1024;

/// A volume of a page log that may hold dirty pages.
fn volume() -> (Choices, Shape, Geometry) {
    let mut choices = preset("face").expect("the preset exists").choices();
    choices.write = WritePolicy::Logged(LogPolicy::Full);
    if let AdmissionChoice::OnExit(settings) = &mut choices.admission {
        settings.batch_pages = BATCH_PAGES;
    }
    let shape = Shape::new(ORIGIN_BYTES, choices.unit_bytes, 1).wide();
    let (page_bytes, batch_pages) = (PAGE as u32, BATCH_PAGES);
    let empty = Geometry { base: 64 << 10, blocks: 0, page_bytes, batch_pages, volume: 7 };
    (choices, shape, Geometry { blocks: empty.least_blocks(), ..empty })
}

fn start(flash: Vec<u8>) -> Memory {
    let (choices, shape, log) = volume();
    let mut memory = Memory::new(shape, choices, vec![0x11; ORIGIN_BYTES as usize], flash);
    memory.shard.attach_log(FLASH, (log, Seat::alone()), Vec::new());
    memory.shard.all_logs_open();
    memory.pass(SECOND);
    memory
}

#[test]
fn tombstones_of_the_whole_volume_are_repeated_in_pieces() {
    let (_, _, log) = volume();
    let mut flash = vec![0; (log.base + log.bytes()) as usize];
    for (at, bytes) in log.blank() {
        flash[at as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    let mut memory = start(flash);
    assert_eq!(memory.zeroed, []);
    for at in (0..ORIGIN_BYTES).step_by(MAX_PIECE_BYTES as usize) {
        let len = MAX_PIECE_BYTES.min(ORIGIN_BYTES - at);
        // Without a page in the log a trim needs no tombstone.
        memory.ask(1, Kind::Write { fua: true }, at, PAGE as u64, 0x22);
        memory.pass(SECOND);
        memory.ask(1, Kind::Trim { fua: true }, at, len, 0);
        memory.pass(SECOND);
    }
    memory.lands = 0;
    memory.pass(SECOND);

    let again = start(memory.flash);
    let pieces = [
        (0, MAX_PIECE_BYTES),
        (MAX_PIECE_BYTES, MAX_PIECE_BYTES),
        (2 * MAX_PIECE_BYTES, ORIGIN_BYTES - 2 * MAX_PIECE_BYTES),
    ];
    assert_eq!(again.zeroed, pieces);
    assert!(again.origin.iter().all(|byte| *byte == 0));
}
