// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gain of more hardware: memory or flash for the same money (Figure 12), and disks (Figure 13).

use anyhow::Result;

use super::super::runs::{Runs, always, at, either, listed, over};
use super::super::{Asked, Kind, Row};
use super::lab::{CHANGED, FLASH, SYSTEM, TPMC, all, not_so, rises, said};
use crate::scenario_file;

const DISKS: [&str; 5] = ["1", "2", "4", "8", "16"];

/// F15.
pub(super) fn money(lab: &Asked) -> Result<Row> {
    let (memory, flash) = (
        Runs::of(lab, scenario_file!("face-memory"))?,
        Runs::of(lab, scenario_file!("face-money"))?,
    );
    let (mut points, mut holds) = (Vec::new(), true);
    for (mib, gib) in [("400", "2"), ("600", "4"), ("800", "6"), ("1000", "8"), ("1200", "10")] {
        let (ram, ours) =
            (memory.at(&[("pool_mib", mib)], TPMC)?, flash.at(&[(FLASH, gib)], TPMC)?);
        holds &= always(&ours, &ram, |flash, ram| flash > ram);
        points.push(at(
            format!("{gib} GB of flash over {mib} MB of memory"),
            None,
            &over(&ours, &ram),
        ));
    }
    let ours = listed(&points);
    let asked = "At each of five steps of 200 MB of memory or 2 GB of flash (ten to one by price), the database \
                 with the flash is faster than that with the memory: an order, as Figure 12 has no printed values.";
    Ok(Row::new("F15", Kind::Shape)?
        .ours(ours)
        .points(points)
        .at_scale(flash.scale())
        .changed(CHANGED)
        .judged(
            holds,
            asked,
            either(
                holds,
                "Ten times as much flash hits more than the memory does, and costs a read of flash.",
                "At one step or more the database with the memory is as fast.",
            ),
        ))
}

/// F16.
pub(super) fn disks(lab: &Asked) -> Result<Row> {
    let runs = Runs::of(lab, scenario_file!("face-disks"))?;
    let of = |system| -> Result<Vec<Vec<f64>>> {
        DISKS.iter().map(|disks| runs.at(&[(SYSTEM, system), ("disks", disks)], TPMC)).collect()
    };
    let (hdd, lc, face) = (of("hdd-only")?, of("lc")?, of("face")?);
    let mut points = Vec::new();
    for (name, values) in [("disks alone", &hdd), ("LC", &lc), ("FaCE", &face)] {
        for (disks, values) in DISKS.iter().zip(values) {
            points.push(at(format!("{name}, {disks} disks: tpmC"), None, values));
        }
    }
    let last = |values: &[Vec<f64>]| over(&values[4], &values[3]);
    let ahead = |n: usize| always(&lc[n], &face[n], |lc, face| lc > face);
    let checks = [
        ("FaCE keeps growing", rises(&face)),
        ("disks alone keep growing", rises(&hdd)),
        (
            "LC grows less than FaCE from 8 to 16",
            always(&last(&lc), &last(&face), |lc, face| lc < face),
        ),
        ("LC ahead at 1 and 2 disks", ahead(0) && ahead(1)),
        ("FaCE ahead at 16", always(&face[4], &lc[4], |face, lc| face > lc)),
    ];
    let holds = all(&checks);
    let asked = "16 GB of flash: with each doubling of the disks FaCE and the disks alone grow; from 8 to 16 LC \
                 grows by a smaller factor than FaCE; LC is ahead of FaCE with one and two disks, FaCE with \
                 sixteen: orders, as Figure 13 has no printed values.";
    Ok(Row::new("F16", Kind::Shape)?
        .ours(said(&checks))
        .points(points)
        .at_scale(runs.scale())
        .changed(CHANGED)
        .judged(
            holds,
            asked,
            either(
                holds,
                "Up to four disks are the limit of both, where LC hits more, and from eight on flash is that of LC.",
                &not_so(&checks, "which resource limits changes with the number of disks at other places than in the paper"),
            ),
        ))
}
