// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fixed scenarios of write-back with a syncer: what random histories show rarely, or not at all.

use larder_core::config::{Choices, Durability, Limits, Placement, WritePolicy};
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_core::format::{Frame, UnitsPlan};
use larder_core::journal::entry::Entry;
use larder_core::journal::layout::Layout;
use larder_core::journal::record::{Block, LogEnd, Record, pack};
use larder_core::policy::syncer::SyncerSettings;
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_model::Jitter;

use crate::device::SimDevice;
use crate::scenario::{choices_of, plain_world, read_unit};
use crate::world::{World, lawful};

const PAGE: u64 = 4096;

/// Pages that each miss admits, without a journal, which nothing but eviction and FLUSH writes back.
fn volatile() -> Choices {
    Choices {
        write: WritePolicy::WriteBack,
        durability: Durability::Volatile,
        placement: Placement::Anywhere,
        sync: SyncerSettings::NONE,
        ..choices_of("flashcache")
    }
}

fn ask(world: &mut World, kind: Kind, page: u64) {
    let data = match kind {
        Kind::Write { .. } => vec![0; PAGE as usize],
        _ => Vec::new(),
    };
    world.request(page, kind, page * PAGE, data.len() as u64, &data);
    while world.next_finished().is_none() && world.advance(Nanos::MAX) {}
}

/// Rule 11: a cache that is full of dirty pages admits pages again.
pub fn a_cache_full_of_dirty_pages_admits_again() -> Result<(), String> {
    let (choices, slots) = (volatile(), 16);
    let mut world = plain_world(&choices, 1_000, slots);
    for page in 0..40 * slots {
        ask(&mut world, Kind::Write { fua: false }, page);
        world.idle_until(world.now() + 20 * MILLISECOND);
    }
    let hits = world.requests().read_hits;
    (39 * slots..40 * slots).for_each(|page| read_unit(&mut world, &choices, page));
    match world.requests().read_hits - hits {
        0 => Err("none of the pages that were written last is cached".into()),
        _ => Ok(()),
    }
}

/// Rule 7: without a journal a FLUSH is answered when the origin has everything.
pub fn a_flush_without_a_journal_writes_back() -> Result<(), String> {
    let mut world = plain_world(&volatile(), 1_000, 16);
    (0..8).for_each(|page| ask(&mut world, Kind::Write { fua: false }, page));
    if world.counters().write_back_bytes > 0 {
        return Err("something was written back before the FLUSH".into());
    }
    world.request(0, Kind::Flush, 0, 0, &[]);
    while world.next_finished().is_none() && world.advance(Nanos::MAX) {}
    match world.counters().write_back_bytes {
        bytes if bytes == 8 * PAGE => Ok(()),
        bytes => Err(format!("a FLUSH was answered when the origin had {bytes} bytes of 8 pages")),
    }
}

/// Rule 11: more pages than the records of the log hold are admitted before a FLUSH; it is answered, and so is the next one.
pub fn a_flush_logs_more_than_the_log_holds() -> Result<(), String> {
    let choices = Choices { durability: Durability::Journal, ..volatile() };
    let (pages, page) = (3_000, choices.unit_bytes);
    let shape = Shape::new(pages * page, page, 1);
    // 32 blocks of 21 pages.
    let plan = UnitsPlan::of(Frame::BARE, shape, pages, 512, &choices, 16 << 10);
    let device = |seed| SimDevice::new(Box::new(Jitter::new(seed, 50_000, 100_000)), None, seed, 1);
    let limits = Limits { checkpoint: 3600 * SECOND, ..Limits::default() };
    let mut world = World::new(device(1), shape.origin_bytes, &lawful(&choices), &limits);
    world.attach_journaled(device(2), &plan, 7, &[None]);
    for round in 0..2 {
        (0..pages).for_each(|page| ask(&mut world, Kind::Write { fua: false }, page));
        world.request(0, Kind::Flush, 0, 0, &[]);
        let until = world.now() + 600 * SECOND;
        let answered = loop {
            match world.next_finished() {
                Some(done) => break done.result.is_ok(),
                None if world.now() >= until || !world.advance(until) => break false,
                None => {}
            }
        };
        if !answered {
            return Err(format!(
                "FLUSH {round} of {pages} admitted pages was not answered, or failed"
            ));
        }
    }
    Ok(())
}

/// Rule 9: the two records of a dirty unit are in one block of the log, so that no crash makes it clean.
pub fn a_dirty_unit_is_logged_in_one_block() -> Result<(), String> {
    let layout = Layout {
        base: 0,
        block_bytes: 512,
        slots: 1_000,
        pages: 1,
        payload_bytes: 16 << 10,
        log_blocks: 64,
        entry: Entry::Dirty,
        factors: 0,
        slots_at: 0,
        slot_stride: PAGE,
    };
    let unit = |slot| {
        let state = Record::State { slot, unit: slot, bits: Box::default() };
        [state, Record::Touch { slot, mask: 1 }]
    };
    // Records of other sizes come between, so that pairs begin anywhere in a block.
    let dropped = |slot: u32| slot.is_multiple_of(7).then_some(Record::Drop { slot: 999 });
    let records: Vec<Record> =
        (0..500).flat_map(|slot| dropped(slot).into_iter().chain(unit(slot))).collect();
    let first = || LogEnd::first(1, 1, &layout);
    let (bytes, taken) = pack(&records, &layout, layout.log_blocks, &mut first());
    let (mut end, mut read) = (first(), 0);
    for block in bytes.chunks(512) {
        let block = Block::decode(block, &end, &layout).and_then(|block| block.follow(&mut end));
        let block = block.ok_or("a block cannot be read")?;
        read += block.len();
        if let Some(Record::State { slot, .. }) = block.last() {
            return Err(format!("a block ends between the records of slot {slot}"));
        }
    }
    if (read, taken) == (records.len(), records.len()) {
        Ok(())
    } else {
        Err("records are missing".into())
    }
}
