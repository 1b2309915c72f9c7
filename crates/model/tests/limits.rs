// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links, cloud limits, solid state drives and jitter: fixed latencies and rates.

mod common;

use common::{
    CAPACITY_BYTES, CHUNK_BYTES, PAGE_BYTES, assert_near, closed_loop, device, disk_spec,
    link_spec, one, random_ops,
};
use larder_model::{Disk, Jitter, Kind, Link, LinkSpec, Model, Nanos, Op};

const MS: Nanos = 1_000_000;

#[test]
fn a_link_adds_its_latency_and_the_transfer() {
    let read = Op::read(CAPACITY_BYTES / 2, 1 << 20);
    let mut disk = Disk::new(&disk_spec("hdd-15k"), CAPACITY_BYTES, 3);
    // Submitted such that it reaches the disk at the same time as the direct one.
    let (direct_ns, _) = one(&mut disk, MS, read);
    let disk = Disk::new(&disk_spec("hdd-15k"), CAPACITY_BYTES, 3);
    let mut link = Link::new(disk, link_spec("san-1g"));
    let (linked_ns, _) = one(&mut link, MS - 50_000, read);
    assert_eq!(linked_ns, direct_ns + 100_000 + (1 << 20) * 1_000 / 118);
}

#[test]
fn reads_and_writes_share_the_link() {
    let mut san = device("san-1g");
    let (mut at, mut turn) = (0, 0);
    let run = closed_loop(&mut san, 0, 32, 4_000, || {
        turn += 1;
        at += CHUNK_BYTES * (turn % 2);
        let offset = at + (turn % 2) * CAPACITY_BYTES / 2;
        if turn % 2 == 0 { Op::read(offset, CHUNK_BYTES) } else { Op::write(offset, CHUNK_BYTES) }
    });
    println!("san-1g mixed: {:.0} B/s", run.bytes_per_second(CHUNK_BYTES));
    assert!(run.bytes_per_second(CHUNK_BYTES) <= 118e6 * 1.005);
}

/// Holland, Table 1: 8.2 us a packet and 1 ns a bit, one packet each way.
#[test]
fn packets_give_hollands_round_trip() {
    let segment = LinkSpec { bytes_per_second: 125_000_000, latency_ns: 0, packet_ns: 8_200 };
    for op in [Op::read(0, PAGE_BYTES), Op::write(0, PAGE_BYTES)] {
        let mut link = Link::new(Jitter::new(1, 0, 0), segment);
        assert_eq!(one(&mut link, 5, op).0, 49_168);
    }
}

#[test]
fn a_lone_cloud_request_has_only_the_latency() {
    let mut cloud = device("cloud");
    let mut now = 0;
    for op in [
        Op::read(0, PAGE_BYTES),
        Op::write(0, CHUNK_BYTES),
        Op::write_fua(0, PAGE_BYTES),
        Op::flush(),
        Op::trim(0, 1 << 40),
    ] {
        let (took_ns, end) = one(&mut cloud, now, op);
        assert_eq!(took_ns, 1_500_000, "{op:?}");
        now = end + 10 * MS;
    }
    // 1 MiB takes 8.39 ms at 125 MB/s, less the 1.05 ms that the bucket holds.
    assert_eq!(one(&mut cloud, now, Op::read(0, 1 << 20)).0, 1_500_000 + 8 * (7 << 17));
}

#[test]
fn cloud_requests_below_the_rate_are_not_delayed() {
    let mut cloud = device("cloud");
    for at in (0..3_000).map(|count| count * 340_000) {
        cloud.submit(at, at, Op::read(0, PAGE_BYTES));
        while let Some((id, done)) = cloud.poll(at) {
            assert_eq!(done - id, 1_500_000);
        }
    }
}

#[test]
fn cloud_requests_above_the_rate_are_spaced_evenly() {
    let mut cloud = device("cloud");
    for id in 0..100 {
        cloud.submit(0, id, Op::write(0, PAGE_BYTES));
    }
    let mut ends = Vec::new();
    while let Some(now) = cloud.next() {
        while let Some((id, at)) = cloud.poll(now) {
            assert_eq!(id, ends.len() as u64, "in order");
            ends.push(at);
        }
    }
    assert!(ends[..8].iter().all(|&at| at == 1_500_000), "the burst");
    assert!(ends[8..].windows(2).all(|pair| pair[1] - pair[0] == 333_333), "then evenly");
}

#[test]
fn cloud_limits_apply_to_reads_and_writes_together() {
    let mut cloud = device("cloud");
    let mut writes = random_ops(Kind::Write, PAGE_BYTES, 1);
    let mut reads = random_ops(Kind::Read, PAGE_BYTES, 2);
    let mut turn = 0;
    let run = closed_loop(&mut cloud, 0, 64, 20_000, || {
        turn += 1;
        if turn % 2 == 0 { reads() } else { writes() }
    });
    assert_near("mixed IOPS", run.iops(), 3_000.0, 0.001);
}

#[test]
fn a_small_request_to_an_ssd_takes_latency_and_occupancy() {
    for (name, read_ns, write_ns, flush_ns) in [
        ("ssd-840pro", 60_000 + 15_197, 25_000 + 71_536, 400_000),
        ("ssd-850evo", 60_000 + 10_143, 25_000 + 164_096, 500_000),
        ("ssd-s3500", 60_000 + 16_581, 25_000 + 46_356, 200_000),
        ("ssd-p3700", 50_000 + 2_186, 10_000 + 11_501, 100_000),
    ] {
        let mut ssd = device(name);
        assert_near(
            "read",
            one(&mut ssd, MS, Op::read(0, PAGE_BYTES)).0 as f64,
            read_ns as f64,
            1e-4,
        );
        let (took_ns, end) = one(&mut ssd, 2 * MS, Op::write(0, PAGE_BYTES));
        assert_near("write", took_ns as f64, write_ns as f64, 1e-4);
        let (flushed_ns, end) = one(&mut ssd, end, Op::flush());
        assert!(flushed_ns <= flush_ns && flushed_ns + 25_000 >= flush_ns, "{flushed_ns}");
        let (fua_ns, _) = one(&mut ssd, end + MS, Op::write_fua(0, PAGE_BYTES));
        assert_near("FUA", fua_ns as f64, (write_ns + flush_ns) as f64, 1e-4);
    }
}

#[test]
fn jitter_stays_in_its_range_and_overtakes() {
    let mut jitter = Jitter::new(3, 100_000, 200_000);
    for id in 0..1_000 {
        jitter.submit(50, id, Op::read(0, 1));
    }
    let (mut previous, mut overtaken) = (0, 0);
    let (mut earliest, mut latest) = (u64::MAX, 0);
    while let Some((id, at)) = jitter.poll(1_000_000) {
        overtaken += u64::from(id < previous);
        previous = id;
        earliest = earliest.min(at);
        latest = latest.max(at);
    }
    assert!((100_050..101_000).contains(&earliest) && (199_000..=200_050).contains(&latest));
    assert!(overtaken > 400);
}

#[test]
fn none_takes_no_time() {
    assert_eq!(one(&mut device("none"), 7, Op::write_fua(0, 1 << 30)), (0, 7));
}
