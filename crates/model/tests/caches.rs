// SPDX-License-Identifier: MIT OR Apache-2.0
//! Write caches: what they absorb, what a flush costs, and which requests wait.

mod common;

use common::{CAPACITY_BYTES, CHUNK_BYTES, PAGE_BYTES, closed_loop, device, one, random_ops};
use larder_model::{Kind, Model, Nanos, Op};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MS;

fn fill(model: &mut dyn Model, now: Nanos, pages: u64) -> Nanos {
    closed_loop(model, now, 1, pages, random_ops(Kind::Write, PAGE_BYTES, 11)).end
}

#[test]
fn writes_are_absorbed_until_the_cache_is_full() {
    let mut disk = device("hdd-7200");
    let run = closed_loop(&mut disk, 0, 1, 16_384, random_ops(Kind::Write, PAGE_BYTES, 1));
    println!("hdd-7200 absorbs 64 MiB of 4 KiB writes: {:.0} ns each", run.mean_ns);
    assert!(run.max_ns < 200_000, "{}", run.max_ns);
    // The first of these use the room that was drained meanwhile.
    let more = closed_loop(&mut disk, run.end, 4, 1_000, random_ops(Kind::Write, PAGE_BYTES, 2));
    let full = closed_loop(&mut disk, more.end, 4, 2_000, random_ops(Kind::Write, PAGE_BYTES, 3));
    println!("hdd-7200 full: {:.0} writes a second", full.iops());
    assert!(full.iops() < 200.0);
}

#[test]
fn a_flush_waits_for_the_drain() {
    for (pages, at_least, at_most) in [(0, 0, MS / 5), (1, 0, 30 * MS), (100, 300 * MS, SECOND)] {
        let mut disk = device("hdd-7200");
        let now = fill(&mut disk, 0, pages.max(1)) + if pages == 0 { SECOND } else { 0 };
        let (took_ns, end) = one(&mut disk, now, Op::flush());
        println!("hdd-7200 flush of {pages} random pages: {} us", took_ns / 1000);
        assert!((at_least..=at_most).contains(&took_ns), "{pages}: {took_ns}");
        assert!(one(&mut disk, end, Op::flush()).0 <= MS / 5, "nothing left to flush");
    }
}

#[test]
fn a_full_cache_takes_long_to_flush() {
    let mut disk = device("hdd-7200");
    let now = fill(&mut disk, 0, 16_384);
    let (random_ns, _) = one(&mut disk, now, Op::flush());
    let mut disk = device("hdd-7200");
    let mut offset = 0;
    let run = closed_loop(&mut disk, 0, 1, 512, || {
        offset += CHUNK_BYTES;
        Op::write(offset, CHUNK_BYTES)
    });
    let (sequential_ns, _) = one(&mut disk, run.end, Op::flush());
    println!("hdd-7200 flush of 64 MiB: random {random_ns} ns, sequential {sequential_ns} ns");
    assert!((60 * SECOND..120 * SECOND).contains(&random_ns));
    assert!((SECOND / 5..SECOND / 2).contains(&sequential_ns));
}

#[test]
fn fua_waits_for_the_medium_and_for_earlier_writes() {
    let mut disk = device("hdd-7200");
    let (alone_ns, end) = one(&mut disk, 0, Op::write_fua(CAPACITY_BYTES / 2, PAGE_BYTES));
    assert!((MS..30 * MS).contains(&alone_ns), "{alone_ns}");
    let now = fill(&mut disk, end, 50);
    let (behind_ns, end) = one(&mut disk, now, Op::write_fua(0, PAGE_BYTES));
    assert!(behind_ns > 100 * MS, "{behind_ns}");
    assert!(one(&mut disk, end, Op::flush()).0 <= MS / 5, "FUA has drained all");
}

#[test]
fn without_a_volatile_cache_flush_and_fua_are_cheap() {
    let mut disk = device("hdd-15k");
    let (write_ns, end) = one(&mut disk, 0, Op::write(CAPACITY_BYTES / 2, PAGE_BYTES));
    assert!(write_ns > MS, "writes go to the medium");
    assert!(one(&mut disk, end, Op::flush()).0 <= MS / 5);

    let mut array = device("array-16");
    let now = fill(&mut array, 0, 5_000);
    let (flush_ns, end) = one(&mut array, now, Op::flush());
    let (fua_ns, _) = one(&mut array, end, Op::write_fua(0, PAGE_BYTES));
    println!("array-16 with 5,000 dirty pages: flush {flush_ns} ns, FUA write {fua_ns} ns");
    assert!(flush_ns <= MS / 5 && fua_ns <= MS / 5);
}

#[test]
fn the_array_absorbs_half_a_gibibyte() {
    let mut array = device("array-16");
    let mut offset = 0;
    let run = closed_loop(&mut array, 0, 8, 1_000, || {
        offset += 512 << 10;
        Op::write(offset, 512 << 10)
    });
    println!("array-16 absorbs 500 MiB at {:.0} B/s", run.bytes_per_second(512 << 10));
    assert!(run.bytes_per_second(512 << 10) > 1.5e9);
}

#[test]
fn dirty_bytes_are_read_from_the_cache() {
    let mut disk = device("hdd-7200");
    let (_, end) = one(&mut disk, 0, Op::read(0, PAGE_BYTES));
    let (_, end) = one(&mut disk, end, Op::write(CAPACITY_BYTES / 2, PAGE_BYTES));
    let (hit_ns, end) = one(&mut disk, end, Op::read(CAPACITY_BYTES / 2, PAGE_BYTES));
    assert!(hit_ns < MS / 5, "{hit_ns}");
    let later = end + SECOND;
    assert!(disk.poll(later).is_none());
    let (_, end) = one(&mut disk, later, Op::read(0, PAGE_BYTES));
    let (drained_ns, _) = one(&mut disk, end, Op::read(CAPACITY_BYTES / 2, PAGE_BYTES));
    assert!(drained_ns > 5 * MS, "{drained_ns}");
}

#[test]
fn the_cache_drains_when_idle() {
    let mut disk = device("hdd-7200");
    let now = fill(&mut disk, 0, 200);
    let (flush_ns, _) = one(&mut disk, now + 5 * SECOND, Op::flush());
    assert!(flush_ns <= MS / 5, "{flush_ns}");
}

#[test]
fn reads_precede_the_drain_and_do_not_stop_it() {
    let reads = |seed| random_ops(Kind::Read, PAGE_BYTES, seed);
    let mut clean = device("hdd-7200");
    let quiet = closed_loop(&mut clean, 0, 1, 2_000, reads(1));
    let mut dirty = device("hdd-7200");
    let now = fill(&mut dirty, 0, 200);
    let busy = closed_loop(&mut dirty, now, 1, 2_000, reads(1));
    println!("hdd-7200 reads: {:.0} ns, while it drains {:.0} ns", quiet.mean_ns, busy.mean_ns);
    assert!(busy.mean_ns < quiet.mean_ns * 1.1);
    // Of 200 pages one drained with every 16 reads.
    let now = fill(&mut dirty, busy.end, 1);
    let (flush_ns, _) = one(&mut dirty, now, Op::flush());
    assert!((100 * MS..800 * MS).contains(&flush_ns), "{flush_ns}");
}

/// A flush must end even if reads and writes never stop.
#[test]
fn a_flush_ends_under_load() {
    let mut disk = device("hdd-7200");
    let now = fill(&mut disk, 0, 300);
    let (mut reads, mut place) = (random_ops(Kind::Read, PAGE_BYTES, 3), 0);
    let mut op = |id| {
        place += PAGE_BYTES;
        if id < 8 { reads() } else { Op::write(place, PAGE_BYTES) }
    };
    disk.submit(now, 99, Op::flush());
    for id in 0..16 {
        disk.submit(now, id, op(id));
    }
    let mut flushed = None;
    while flushed.is_none() {
        let at = disk.next().unwrap();
        while let Some((id, at)) = disk.poll(at) {
            if id == 99 {
                flushed = Some(at - now);
            } else {
                disk.submit(at, id, op(id));
            }
        }
        assert!(at < now + 600 * SECOND, "the flush starves");
    }
    println!("hdd-7200 flush of 300 pages under load: {} ms", flushed.unwrap() / MS);
}
