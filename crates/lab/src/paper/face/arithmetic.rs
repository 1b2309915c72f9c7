// SPDX-License-Identifier: MIT OR Apache-2.0
//! What needs no database: Equation 1, the segments of the directory, the drives of Table 1.

use anyhow::{Context, Result};
use larder_core::pagelog::{BATCH_PAGES, Geometry};
use larder_model::{Kind as OpKind, Op, SplitMix64, described, profile};
use larder_report::number;

use super::super::runs::at;
use super::super::{Asked, Kind, Row};

/// FE1: (1 + theta) = (1 + delta)^x with x = Cdisk / (Cdisk - Cflash), by the drives' rated figures.
pub(super) fn break_even(_: &Asked) -> Result<Vec<Row>> {
    let (disk, flash) = (described("hdd-15k")?.rated, described("ssd-840pro")?.rated);
    let exponent = |disk: u64, flash: u64| {
        let (disk, flash) = (1.0 / disk as f64, 1.0 / flash as f64);
        disk / (disk - flash)
    };
    let reads = exponent(disk.read_iops_qd32, flash.read_iops_qd32);
    let writes = exponent(disk.write_iops_qd32, flash.write_iops_qd32);
    let printed = |value: f64| (value * 1000.0).round() / 1000.0;
    let holds = printed(reads) == 1.006 && printed(writes) == 1.025;
    let row = Row::new("FE1", Kind::Exact)?
        .ours(format!("{} reads; {} writes", number(reads), number(writes)))
        .points(vec![at("reads", 1.006, &[reads]), at("writes", 1.025, &[writes])])
        .at_scale("1")
        .judged(
            holds,
            "To the printed digit.",
            "The equation and the rated operations a second of Table 1 agree.",
        );
    Ok(vec![row])
}

/// FM1.
pub(super) fn segments(_: &Asked) -> Result<Vec<Row>> {
    const ENTRIES: u64 = 65_536;
    const MIB: u64 = 1 << 20;
    let frames = (10_u64 << 30) / 4096;
    let (segments, bytes) = (frames / ENTRIES, ENTRIES * 32);
    let (kept, rescanned) = (segments * bytes / MIB, 2 * ENTRIES * 4096 / MIB);
    let seconds = (kept + rescanned) as f64 * MIB as f64 / 400e6;
    let scan = 20e9 / 400e6;
    let near = (seconds - 1.5).abs() <= 0.1;
    let holds = (segments, kept, rescanned) == (40, 80, 512) && near && scan == 50.0;
    let own = Geometry::fit(0, 10 << 30, BATCH_PAGES, 1).context("10 GiB hold a log")?;
    let row = Row::new("FM1", Kind::Exact)?
        .ours(format!("{segments}; {kept} and {rescanned}; {} s; {scan} s", number(seconds)))
        .points(vec![
            at("segments", 40.0, &[segments as f64]),
            at("directory, MiB", 80.0, &[kept as f64]),
            at("pages read for two segments, MiB", 512.0, &[rescanned as f64]),
            at("read at 400 MB/s, s", 1.5, &[seconds]),
            at("blocks of our log, million", None, &[f64::from(own.blocks) / 1e6]),
        ])
        .at_scale("1")
        .judged(
            holds,
            "Equal; seconds to a tenth, as printed; the paper loads 38 segments and rebuilds two.",
            "Segments of 65,536 entries of 32 bytes give all of it, and the 64,000 entries and 1.5 MB that the text also has do \
             not.",
        );
    Ok(vec![row])
}

/// Table 1: operations a second, reads and writes at random; MB/s in order.
const TABLE: [(&str, &str, [f64; 4]); 6] = [
    ("840 Pro", "ssd-840pro", [65_803.0, 13_979.0, 534.0, 398.0]),
    ("850 Evo", "ssd-850evo", [98_591.0, 6_094.0, 518.0, 300.0]),
    ("S3500", "ssd-s3500", [60_311.0, 21_572.0, 470.0, 425.0]),
    ("P3700", "ssd-p3700", [457_355.0, 86_949.0, 2_671.0, 676.0]),
    ("one disk", "hdd-15k", [409.0, 343.0, 156.0, 154.0]),
    ("16 disks", "array-16", [5_166.0, 5_169.0, 1_723.0, 1_645.0]),
];
const CAPACITY: u64 = 128 << 30;

/// Operations a second of a device with so many in flight, for so many after as many.
fn measured(
    name: &str,
    kind: OpKind,
    len: u64,
    random: bool,
    depth: u64,
    count: u64,
    seed: u64,
) -> Result<f64> {
    let mut device = profile(name, CAPACITY, seed)?;
    let mut places = SplitMix64::new(seed);
    let mut next = |number: u64| match random {
        true => places.below(CAPACITY / len) * len,
        false => number * len % CAPACITY,
    };
    let (mut asked, mut ended, mut now, mut begin) = (0, 0, 0, 0);
    while ended < 2 * count {
        while asked - ended < depth {
            device.submit(now, asked, Op { kind, offset: next(asked), len, fua: false });
            asked += 1;
        }
        now =
            device.next().context("a device with operations in flight has no next event")?.max(now);
        while device.poll(now).is_some() {
            ended += 1;
            if ended == count {
                begin = now;
            }
        }
    }
    Ok((ended - count) as f64 * 1e9 / (now - begin).max(1) as f64)
}

/// FT1.
pub(super) fn drives(asked: &Asked) -> Result<Vec<Row>> {
    let (mut points, mut off) = (Vec::new(), Vec::new());
    for (name, device, paper) in TABLE {
        // Sixteen disks with 32 each; their cache holds 131,072 pages, so that many are written first.
        let array = device == "array-16";
        let (depth, writes) = if array { (512, 150_000) } else { (32, 10_000) };
        let cells = [
            ("random reads/s", OpKind::Read, 4096, true, 10_000),
            ("random writes/s", OpKind::Write, 4096, true, writes),
            ("MB/s read", OpKind::Read, 128 << 10, false, 10_000),
            ("MB/s written", OpKind::Write, 128 << 10, false, 10_000),
        ];
        for ((what, kind, len, random, count), paper) in cells.into_iter().zip(paper) {
            let rate = measured(device, kind, len, random, depth, count, asked.seed)?;
            let ours = if random { rate } else { rate * len as f64 / 1e6 };
            points.push(at(format!("{name}: {what}"), paper, &[ours]));
            off.push((format!("{name} {what}"), ours / paper));
        }
    }
    let holds = off.iter().all(|(_, ratio)| (0.9..=1.1).contains(ratio));
    let far: Vec<&str> = off
        .iter()
        .filter(|(_, ratio)| !(0.9..=1.1).contains(ratio))
        .map(|(what, _)| what.as_str())
        .collect();
    let ours = match far.len() {
        0 => format!("{} of {} within a tenth", off.len(), off.len()),
        _ => format!(
            "{} of {} within a tenth; not: {}",
            off.len() - far.len(),
            off.len(),
            far.join(", ")
        ),
    };
    let row = Row::new("FT1", Kind::Absolute)?
        .ours(ours)
        .points(points)
        .at_scale("1")
        .judged(
            holds,
            "Each cell within a tenth, 32 operations in flight (512 on sixteen disks; the paper does not state how many), all \
             of the device in use. A drive's model is built from its four cells, so it returns what was put in; the disks' \
             follow from mechanics.",
            "Sixteen of the one disk's 409 reads make 6,544, and the array of the paper does less than its disks, ours does not.",
        );
    Ok(vec![row])
}
