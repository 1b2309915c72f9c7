// SPDX-License-Identifier: MIT OR Apache-2.0
//! HT1: what Table 1 adds up to. H0, H1: hardware that is not at hand.

use anyhow::Result;
use larder_model::Holland;

use super::super::{Asked, At, Kind, Row};

pub(super) fn run(_: &Asked) -> Result<Vec<Row>> {
    Ok(vec![sums()?, mercury()?, drive()?])
}

/// The paper states sums to a tenth of a microsecond or less, so equal means equal when rounded like
/// its own.
fn sums() -> Result<Row> {
    let times = Holland::table_1();
    let us = |ns: u64| ns as f64 / 1e3;
    let trip = times.packet_with(0) + times.packet_with(4096);
    let (fast, slow) = (trip + times.filer_fast_read_ns, trip + times.filer_slow_read_ns);
    let write = trip + times.filer_write_ns;
    let mean = |share: f64| share * us(fast) + (1.0 - share) * us(slow);
    let at = |at: &str, paper: f64, ours: &[f64]| At {
        at: at.to_owned(),
        paper: Some(paper),
        ours: ours.first().map(|us| (us * 100.0).round() / 100.0),
    };
    let points = vec![
        at("network, there and back with 4 KiB", 49.17, &[us(trip)]),
        at("fast read", 141.2, &[us(fast)]),
        at("slow read", 8001.2, &[us(slow)]),
        at("write", 141.2, &[us(write)]),
        at("mean read, 90 % fast", 927.2, &[mean(0.9)]),
        at("mean read, 80 % fast", 1713.2, &[mean(0.8)]),
        at("mean read, 95 % fast", 534.2, &[mean(0.95)]),
    ];
    let holds = [
        (us(trip), 49.17, 0.005),
        (us(fast), 141.2, 0.05),
        (us(slow), 8001.2, 0.05),
        (us(write), 141.2, 0.05),
        (mean(0.9), 927.2, 0.05),
        (mean(0.8), 1713.2, 0.05),
        (mean(0.95), 534.2, 0.05),
    ];
    let equal = holds.iter().filter(|(ours, paper, half)| (ours - paper).abs() <= *half).count();
    Ok(Row::new("HT1", Kind::Exact)?
        .ours(format!("{equal} of {} sums equal", holds.len()))
        .points(points)
        .at_scale("1")
        .judged(
            equal == holds.len(),
            "Equal when rounded to the digits of the published sums.",
            "Network and filer of Table 1, added up.",
        ))
}

fn mercury() -> Result<Row> {
    Row::not_reproducible(
        "H0",
        "It compares with hardware by a trace of four days, neither of which can be had.",
    )
}

fn drive() -> Result<Row> {
    Row::not_reproducible(
        "H1",
        "It is a measurement of drives of 2013 that are not named, and a model of a drive shows what was put in.",
    )
}
