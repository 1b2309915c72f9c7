// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every profile meets its nominal figures, and the papers' measurements where they exist. With `-- --nocapture` it
//! prints the results.

mod common;

use common::{
    CAPACITY_BYTES, CHUNK_BYTES, PAGE_BYTES, assert_near, closed_loop, device,
    device_filled_in_order, disk_spec, one, random_ops, sequential_ops, ssd_spec,
};
use larder_model::{Disk, Kind, Op, ProfileInfo, Ssd, profile, profiles};

/// Enough writes to fill any profile's write cache, or to overwrite a drive with a page map once.
fn warm_up(name: &str, bytes: u64) -> u64 {
    let cache_bytes = match name {
        "hdd-7200" | "hdd-prwc" => 64 << 20,
        "array-16" => 640 << 20,
        name if name.ends_with("-ftl") => 1 << 30,
        _ => 0,
    };
    cache_bytes / bytes + 100
}

fn random_iops(name: &str, kind: Kind, depth: u64, requests: u64) -> f64 {
    let mut model = device(name);
    let mut ops = random_ops(kind, PAGE_BYTES, 5);
    let warm = if kind == Kind::Write { warm_up(name, PAGE_BYTES) } else { 100 };
    let start = closed_loop(&mut model, 0, depth, warm, &mut ops).end;
    closed_loop(&mut model, start, depth, requests, &mut ops).iops()
}

fn sequential_rate(name: &str, kind: Kind, depth: u64) -> f64 {
    let mut model = device_filled_in_order(name);
    let mut ops = sequential_ops(kind, CHUNK_BYTES, 1 << 30);
    let warm = if kind == Kind::Write { warm_up(name, CHUNK_BYTES) } else { 100 };
    let start = closed_loop(&mut model, 0, depth, warm, &mut ops).end;
    closed_loop(&mut model, start, depth, 5_000, &mut ops).bytes_per_second(CHUNK_BYTES)
}

#[test]
fn every_profile_meets_its_nominal_figures() {
    for info in profiles().iter().filter(|info| info.name != "none") {
        let ProfileInfo { name, rated, .. } = info;
        let figures = [
            ("read IOPS QD1", random_iops(name, Kind::Read, 1, 5_000), rated.read_iops_qd1),
            ("read IOPS QD32", random_iops(name, Kind::Read, 32, 20_000), rated.read_iops_qd32),
            ("write IOPS QD32", random_iops(name, Kind::Write, 32, 60_000), rated.write_iops_qd32),
            ("read B/s", sequential_rate(name, Kind::Read, 32), rated.read_bytes_per_second),
            ("write B/s", sequential_rate(name, Kind::Write, 32), rated.write_bytes_per_second),
        ];
        for (what, got, want) in figures {
            println!("{name:11} {what:15} {got:13.0} nominal {want:13}");
        }
        for (what, got, want) in figures {
            assert_near(&format!("{name} {what}"), got, want as f64, 0.03);
        }
    }
}

#[test]
fn a_random_read_takes_average_seek_half_a_revolution_and_its_transfer() {
    let cases = [
        (disk_spec("hdd-7200"), 8_500_000.0 + 60e9 / 7_200.0 / 2.0 + 4096.0 / 0.160),
        (disk_spec("hdd-15k"), 3_500_000.0 + 60e9 / 15_000.0 / 2.0 + 4096.0 / 0.155),
    ];
    for (spec, want_ns) in cases {
        let mut disk = Disk::new(&spec, CAPACITY_BYTES, 9);
        let run = closed_loop(&mut disk, 0, 1, 20_000, random_ops(Kind::Read, PAGE_BYTES, 2));
        println!("{} rpm: mean {:.0} ns, expected {want_ns:.0} ns", spec.rpm, run.mean_ns);
        assert_near("mean latency", run.mean_ns, want_ns, 0.01);
    }
}

#[test]
fn disks_stream_at_shallow_depths() {
    for (name, rate) in [("hdd-7200", 160e6), ("hdd-15k", 155e6)] {
        for depth in [1, 2] {
            let got = sequential_rate(name, Kind::Read, depth);
            println!("{name} sequential read QD{depth} {got:.0} B/s");
            assert!(got >= 0.9 * rate && got <= 1.001 * rate);
        }
    }
    for (name, rate) in [("san-1g", 60e6), ("array-16", 250e6)] {
        let got = sequential_rate(name, Kind::Read, 1);
        println!("{name} sequential read QD1 {got:.0} B/s");
        assert!(got >= rate);
    }
}

/// In real time the next request arrives slightly late; that must not cost a revolution.
#[test]
fn disks_stream_to_a_slightly_late_reader() {
    for (name, rate) in [("hdd-7200", 160e6), ("hdd-15k", 155e6)] {
        let mut model = device(name);
        let mut now = 0;
        for chunk in 0..2_000 {
            let late_ns = 20_000 + chunk % 7 * 40_000;
            let read = Op::read(chunk * CHUNK_BYTES, CHUNK_BYTES);
            now = one(&mut model, now + late_ns, read).1;
        }
        let got = (2_000 * CHUNK_BYTES) as f64 * 1e9 / now as f64;
        println!("{name} sequential read QD1, each up to 0.26 ms late: {got:.0} B/s");
        assert!(got >= 0.9 * rate && got <= rate);
    }
}

/// FaCE, Table 1: a disk 409/343, sixteen of them 5,166/5,169.
#[test]
fn disks_and_array_are_close_to_the_measured_ones() {
    let disk_read = random_iops("hdd-15k", Kind::Read, 32, 20_000);
    let disk_write = random_iops("hdd-15k", Kind::Write, 32, 20_000);
    let array_read = random_iops("array-16", Kind::Read, 256, 40_000);
    let array_write = random_iops("array-16", Kind::Write, 256, 40_000);
    let array_deep = random_iops("array-16", Kind::Read, 32 * 16, 80_000);
    println!("hdd-15k QD32 read {disk_read:.0} write {disk_write:.0}");
    println!("array-16 QD256 read {array_read:.0} write {array_write:.0}");
    println!("array-16 QD512 read {array_deep:.0}, {:.1} disks' worth", array_deep / disk_read);
    assert_near("disk reads", disk_read, 409.0, 0.03);
    assert_near("disk writes", disk_write, 343.0, 0.03);
    assert_near("array reads", array_read, 5_166.0, 0.15);
    assert_near("array writes", array_write, 5_169.0, 0.15);
    assert_near("stripe parallelism", array_deep / disk_read, 16.0, 0.06);
}

#[test]
fn ssds_meet_all_four_ratings_exactly() {
    for name in ["ssd-840pro", "ssd-850evo", "ssd-s3500", "ssd-p3700", "ssd-prwc"] {
        let spec = ssd_spec(name);
        let run = |bytes, kind| {
            let mut ssd = Ssd::new(&spec, CAPACITY_BYTES, 1);
            closed_loop(&mut ssd, 0, 32, 50_000, random_ops(kind, bytes, 4))
        };
        let random = |kind| run(PAGE_BYTES, kind).iops();
        let sequential = |kind| run(CHUNK_BYTES, kind).bytes_per_second(CHUNK_BYTES);
        assert_near("reads", random(Kind::Read), spec.read_iops as f64, 1e-6);
        assert_near("writes", random(Kind::Write), spec.write_iops as f64, 1e-6);
        assert_near("read", sequential(Kind::Read), spec.read_bytes_per_second as f64, 1e-6);
        assert_near("write", sequential(Kind::Write), spec.write_bytes_per_second as f64, 1e-6);
    }
}

#[test]
fn errors_of_unknown_names_list_the_known_ones() {
    for info in profiles() {
        assert!(profile(info.name, 1 << 20, 0).is_ok());
        assert!(!info.about.is_empty() && !info.about.contains('\n'));
    }
    let message = profile("floppy", CAPACITY_BYTES, 0).err().unwrap().to_string();
    assert_eq!(
        message,
        "unknown device profile \"floppy\"; accepted: hdd-7200, hdd-15k, san-1g, array-16, \
         cloud, ssd-840pro, ssd-850evo, ssd-s3500, ssd-p3700, none, ssd-840pro-ftl, \
         ssd-s3500-ftl, ssd-prwc, hdd-prwc, holland-ram, holland-flash, holland-filer, and array-1 \
         to array-15"
    );
}
