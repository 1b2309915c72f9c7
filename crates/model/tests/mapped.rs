// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drives with a flash translation layer: write amplification as a result, and its cost. With `-- --nocapture` it
//! prints the figures beside those of FaCE, Tables 2 and 7.

mod common;

use common::{CHUNK_BYTES, PAGE_BYTES, Run, assert_near, closed_loop, one, ssd_spec};
use larder_model::{
    FtlSpec, Kind, Link, LinkSpec, Model, Op, SplitMix64, Ssd, SsdSpec, Wear, profile,
};

const CAPACITY: u64 = 1 << 30;
/// The size of a batch of FaCE's flash cache, and of a flash block.
const BATCH: u64 = 256 << 10;

/// A drive: new, filled (`Some(0)`), or overwritten this many times.
fn drive(name: &str, overwrites: Option<u64>) -> Ssd {
    let spec = ssd_spec(name);
    let ftl = spec.ftl.map(|ftl| FtlSpec { overwrites, ..ftl });
    Ssd::new(&SsdSpec { ftl, ..spec }, CAPACITY, 1)
}

/// Random writes of a size until the drive's capacity was written `rounds` times.
fn random_writes(ssd: &mut Ssd, bytes: u64, rounds: u64) -> Run {
    let mut random = SplitMix64::new(17);
    let op = || Op::write(random.below(CAPACITY / bytes) * bytes, bytes);
    closed_loop(ssd, 0, 32, rounds * CAPACITY / bytes, op)
}

fn wear(ssd: &Ssd) -> Wear {
    ssd.wear().expect("a drive with a map")
}

/// FaCE, Table 2: writes of 256 KiB have a write amplification of 1.03 and 1.08, those of 4 KiB 5.15 and 3.04. The
/// results here follow from the amount of built-in flash alone; the bounds state the deviation.
#[test]
fn large_writes_amplify_little_and_small_ones_much() {
    for (name, paper, off) in
        [("ssd-840pro-ftl", [1.03, 5.15], 0.35), ("ssd-s3500-ftl", [1.08, 3.04], 0.1)]
    {
        let mut used = drive(name, Some(0));
        random_writes(&mut used, BATCH, 4);
        let large = wear(&used).write_amplification();
        let mut used = drive(name, Some(3));
        random_writes(&mut used, PAGE_BYTES, 1);
        let small = wear(&used).write_amplification();
        println!(
            "{name}: 256 KiB {large:.2} (paper {}), 4 KiB {small:.2} (paper {})",
            paper[0], paper[1]
        );
        assert_eq!(large, 1.0);
        assert_near(name, small, paper[1], off);
    }
}

/// FaCE, Table 7: a cache of 4 % of the drive, as a queue written in batches (1.02 and 1.08), or replaced page by page
/// in place (5.13 and 2.47). The rest of the drive is not written. Greedy garbage collection leaves the spare flash
/// scattered over it in place, so a small cache in place is no better off than one of the whole drive.
#[test]
fn a_queue_on_flash_amplifies_nothing() {
    const CACHE: u64 = CAPACITY / 25 / BATCH * BATCH;
    for name in ["ssd-840pro-ftl", "ssd-s3500-ftl"] {
        let rounds = |bytes, mut next: Box<dyn FnMut() -> u64>| {
            let mut used = drive(name, Some(3));
            let mut amplification = [0.0; 2];
            for half in &mut amplification {
                let before = wear(&used);
                for _ in 0..20 * CACHE / bytes {
                    one(&mut used, 0, Op::write(next() * bytes, bytes));
                }
                *half = wear(&used).since(&before).write_amplification();
            }
            amplification
        };
        let mut turn = 0;
        let queue = rounds(
            BATCH,
            Box::new(move || {
                turn += 1;
                turn % (CACHE / BATCH)
            }),
        );
        let mut random = SplitMix64::new(9);
        let pages = CACHE / PAGE_BYTES;
        let in_place = rounds(PAGE_BYTES, Box::new(move || random.below(pages)));
        println!("{name}, 20 rounds and 20 more: in batches {queue:.2?}, in place {in_place:.2?}");
        assert_eq!(queue[1], 1.0);
        assert!(in_place[1] > 2.0);
    }
}

/// Both ratings hold, each in the state in which it is measured.
#[test]
fn ratings_hold_in_the_state_they_were_measured_in() {
    for name in ["ssd-840pro-ftl", "ssd-s3500-ftl"] {
        let rated = ssd_spec(name);
        let mut used = drive(name, Some(3));
        let steady = random_writes(&mut used, PAGE_BYTES, 1).iops();
        let mut filled = drive(name, Some(0));
        let mut at = 0;
        let mut in_order = || {
            at += CHUNK_BYTES;
            Op::write(at, CHUNK_BYTES)
        };
        let start = closed_loop(&mut filled, 0, 32, CAPACITY / CHUNK_BYTES, &mut in_order).end;
        let stream = closed_loop(&mut filled, start, 32, CAPACITY / CHUNK_BYTES, &mut in_order);
        let stream = stream.bytes_per_second(CHUNK_BYTES);
        let mut new = drive(name, None);
        let mut random = SplitMix64::new(3);
        let few = || Op::write(random.below(CAPACITY / PAGE_BYTES) * PAGE_BYTES, PAGE_BYTES);
        let new = closed_loop(&mut new, 0, 32, 50_000, few).iops();
        println!(
            "{name}: steady {steady:.0} writes/s, in order {stream:.0} B/s; new {new:.0} writes/s"
        );
        assert_near("random", steady, rated.write_iops as f64, 0.01);
        assert_near("in order", stream, rated.write_bytes_per_second as f64, 0.001);
        assert!(new > 3.0 * steady, "nothing is relocated yet");
    }
}

/// A write does the work of one write: no request pays for a whole block.
#[test]
fn no_write_waits_for_a_whole_block() {
    let mut used = drive("ssd-840pro-ftl", Some(3));
    let run = random_writes(&mut used, PAGE_BYTES, 1);
    println!("32 at once: mean {:.0} ns, longest {} ns", run.mean_ns, run.max_ns);
    assert!(run.max_ns < 2 * run.mean_ns as u64);
}

#[test]
fn flushes_trims_and_reads_wear_nothing() {
    let mut used = drive("ssd-840pro-ftl", Some(1));
    assert_eq!(wear(&used), Wear::default(), "counted from the preconditioned state");
    let mut now = 0;
    for op in [Op::flush(), Op::read(0, BATCH), Op::trim(0, CAPACITY), Op::write(0, 0)] {
        now = one(&mut used, now, op).1;
    }
    assert_eq!(wear(&used), Wear::default());
    // Everything is trimmed: garbage collection only erases.
    for at in 0..CAPACITY / BATCH {
        now = one(&mut used, now, Op::write(at * BATCH, BATCH)).1;
    }
    assert_eq!(wear(&used).relocated_pages, 0);
    one(&mut used, now, Op::write(4095, 2));
    assert_eq!(wear(&used).host_pages, CAPACITY / PAGE_BYTES + 2, "two pages are touched");
}

#[test]
fn wear_is_readable_through_a_link() {
    let spec = LinkSpec { bytes_per_second: 1_000_000_000, latency_ns: 0, packet_ns: 0 };
    let mut linked = Link::new(profile("ssd-s3500-ftl", 1 << 26, 1).unwrap(), spec);
    one(&mut linked, 0, Op::write(0, BATCH));
    assert_eq!(linked.wear().map(|wear| wear.host_pages), Some(64));
    assert_eq!(profile("ssd-s3500", 1 << 26, 1).unwrap().wear(), None);
}

/// A drive without a map costs the same, whatever was done to it before.
#[test]
fn without_a_map_nothing_depends_on_the_past() {
    let spec = ssd_spec("ssd-840pro");
    let (mut small, mut large) = (Ssd::new(&spec, 1, 1), Ssd::new(&spec, 1 << 50, 9));
    for turn in 0..1_000 {
        let op = Op { kind: Kind::Write, offset: turn * 7_000, len: 512 * turn, fua: false };
        assert_eq!(one(&mut small, turn << 30, op), one(&mut large, turn << 30, op));
    }
}
