// SPDX-License-Identifier: MIT OR Apache-2.0
//! What needs no run: what the load covers, the size of a metadata region, a chance.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use larder_core::config::preset;
use larder_core::format::{Keeps, LOG_PERIODIC};
use larder_core::journal::layout::Layout;
use larder_core::shape::Shape;
use larder_report::number;

use super::super::runs::{at, mean, rounded};
use super::super::{Asked, At, Kind, Row};
use crate::load::desktop::{Ask, DAYS, Desktop, FITTED_RUN, SEGMENT_BYTES, Scale, USERS, User};

/// The shares that the paper prints, user by user: of the covered segments, those written.
const COVER_SHARES: [f64; 5] = [0.34, 0.40, 0.45, 0.53, 0.39];
/// Printed to two digits; the load draws its requests, and so meets the share in the mean.
const SHARE_OFF: f64 = 0.01;

/// What a user asked for in ten days: covered in GB (all, written, read), and the share of writes in
/// the bytes.
fn covered(user: &User, seed: u64) -> [f64; 4] {
    let scale = Scale::QUARTER;
    let mut desktop = Desktop::with_run(user, scale, FITTED_RUN, seed);
    let asks: Vec<Ask> = (0..DAYS).flat_map(|day| desktop.day(day)).collect();
    let gb = |wanted: fn(&&Ask) -> bool| {
        let segments: BTreeSet<u64> =
            asks.iter().filter(wanted).map(|ask| ask.offset / SEGMENT_BYTES).collect();
        segments.len() as f64 / scale.segments_per_gb as f64
    };
    let bytes = |wanted: fn(&&Ask) -> bool| asks.iter().filter(wanted).map(|a| a.len).sum::<u64>();
    let share = bytes(|a| a.writes) as f64 / bytes(|_| true) as f64;
    [gb(|_| true), gb(|a| a.writes), gb(|a| !a.writes), share]
}

/// P1: the generator's targets.
pub(super) fn load(asked: &Asked) -> Result<Vec<Row>> {
    let (mut points, mut holds) = (Vec::new(), true);
    let mut shares = vec![Vec::new(); asked.seeds().len()];
    for (user, cover_share) in USERS.iter().zip(COVER_SHARES) {
        let found: Vec<[f64; 4]> = asked.seeds().iter().map(|seed| covered(user, *seed)).collect();
        let of = |which: usize| found.iter().map(|f| f[which]).collect::<Vec<_>>();
        let share = |f: &[f64; 4]| f[1] / (f[1] + f[2]);
        // The paper prints what is written and read for users 1 and 4 alone.
        let printed = |gb: u64| [1, 4].contains(&user.number).then_some(gb as f64);
        let name = format!("U{}", user.number);
        points.push(at(format!("{name}: all, GB"), user.all as f64, &of(0)));
        points.push(at(format!("{name}: written, GB"), printed(user.written), &of(1)));
        points.push(at(format!("{name}: read, GB"), printed(user.read), &of(2)));
        points.push(at(format!("{name}: writes of the bytes"), user.write_share, &of(3)));
        let cover: Vec<f64> = found.iter().map(share).collect();
        points.push(at(format!("{name}: written of what is covered"), cover_share, &cover));
        for (f, shares) in found.iter().zip(&mut shares) {
            holds &= f[0] == user.all as f64;
            holds &= printed(1).is_none()
                || [f[1], f[2]] == [user.written, user.read].map(|gb| gb as f64);
            holds &= (f[3] - user.write_share).abs() < SHARE_OFF;
            holds &= (share(f) - cover_share).abs() < SHARE_OFF;
            shares.push(share(f));
        }
    }
    let means: Vec<f64> = shares.iter().map(|shares| mean(shares)).collect();
    holds &= means.iter().all(|share| (share - 0.42).abs() < SHARE_OFF);
    points.push(at("mean: written of what is covered", 0.42, &means));
    let row = Row::new("P1", Kind::Exact)?
        .ours({
            let gb: Vec<String> = (0..5).filter_map(|i| points[i * 5].ours).map(number).collect();
            format!(
                "{} GB; {} % written on average",
                gb.join(", "),
                number(rounded(&means) * 100.0)
            )
        })
        .points(points)
        .at_scale("1/4; equal at every scale")
        .judged(
            holds,
            "Coverages to the segment; shares, which are printed to two digits and drawn, within 0.01. Written and read \
             are printed for users 1 and 4 only; for the others the shares fix them.",
            "The inputs of the load that stands in for the traces come out of it again.",
        );
    Ok(vec![row])
}

/// The chance that a request meets the one locked segment of a million.
pub(super) fn collision(_: &Asked) -> Result<Vec<Row>> {
    let percent = 100.0 / 1e6;
    let row = Row::new("P16", Kind::Exact)?;
    let paper = row.paper_number();
    let row = row.ours(percent).at_scale("1").judged(
        (percent - paper).abs() < paper / 10.0,
        "Equal, to a tenth of the printed digit.",
        "One of a million is 0.0001 %, and the paper prints a zero too many.",
    );
    Ok(vec![row])
}

/// Table 1, in MiB: by the TiB of the disk, for 8, 16, 32 and 64 GiB of flash.
const TABLE: [(u64, [f64; 4]); 4] = [
    (1, [6.2, 6.3, 6.4, 6.6]),
    (2, [8.3, 8.4, 8.5, 8.8]),
    (4, [12.6, 12.6, 12.8, 13.0]),
    (8, [21.1, 21.1, 21.3, 21.5]),
];
const FLASH_GIB: [u64; 4] = [8, 16, 32, 64];
const UNIT: u64 = 1 << 20;

/// Bytes of a region as the paper describes it: 17 bits for each segment of the disk (a factor of 16
/// and whether it is cached), 65 for each of flash (8 bytes of mapping and whether it is dirty; by
/// 2.8.4 a sector of 512 bytes maps 64), and 4 MiB for header and log.
fn paper_bytes(disk_bytes: u64, flash_bytes: u64) -> f64 {
    ((disk_bytes / UNIT * 17 + flash_bytes / UNIT * 65) / 8 + (4 << 20)) as f64
}

/// PT1: the size of a metadata region.
pub(super) fn table(_: &Asked) -> Result<Vec<Row>> {
    let keeps = Keeps::of(&preset("prwc").context("no preset prwc")?.choices());
    let (mut points, mut own, mut exact) = (Vec::new(), Vec::new(), 0);
    for (tib, cells) in TABLE {
        for (gib, paper) in FLASH_GIB.into_iter().zip(cells) {
            let mib = paper_bytes(tib << 40, gib << 30) / (1 << 20) as f64;
            let tenths = (mib * 10.0).round() / 10.0;
            exact += usize::from((tenths - paper).abs() < 1e-9);
            let shape = Shape::new(tib << 40, UNIT, 1);
            let regions = Layout::total_bytes(&shape, (gib << 30) / UNIT, LOG_PERIODIC, keeps);
            own.push((regions as f64 / 2.0 / (1 << 20) as f64, paper));
            points.push(At {
                at: format!("{tib} TiB, {gib} GiB"),
                paper: Some(paper),
                ours: Some(tenths),
            });
        }
    }
    let below = own.iter().filter(|(own, paper)| own <= paper).count();
    let largest = own.iter().map(|(own, _)| *own).fold(0.0, f64::max);
    let row = Row::new("PT1", Kind::Exact)?
        .ours(format!("{exact} of 16 cells equal"))
        .at_scale("1")
        .judged(
            exact == points.len(),
            format!(
                "Each cell to the printed tenth. A region of Larder's prwc is no larger in {below} of the 16 cells; the \
                 largest has {} MiB (a smaller log; both copies of header and log counted).",
                number(largest)
            ),
            "17 bits a disk segment, 65 bits a flash segment and 4 MiB give the table, whose terms the paper does not print.",
        );
    Ok(vec![row.points(points)])
}
