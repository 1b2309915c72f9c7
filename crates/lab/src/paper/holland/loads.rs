// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures 8 to 10: the share of writes, the speed of flash, what a restart costs.

use anyhow::Result;
use serde_json::json;

use super::super::runs::{Runs, always, at, over, why};
use super::super::{Asked, Found, Kind, Row};
use super::figures;
use super::values::{
    ARCHITECTURE, ARCHITECTURES, FLASH, FLASH_FACTORS, READ, SET, WRITE, WRITE_SHARES,
};
use crate::scenario_file;

/// H13.
pub(super) fn writes(asked: &Asked) -> Result<Found> {
    let runs = Runs::of(asked, scenario_file!("holland-fig8"))?;
    let of = |share, set, what| runs.at(&[("load.write_share", share), (SET, set)], what);
    let (mut points, mut reads_flat, mut writes_flat) = (Vec::new(), true, true);
    for set in ["60", "80"] {
        let usual = of("0.3", set, READ)?;
        for share in WRITE_SHARES {
            let below = matches!(share, "0" | "0.1" | "0.3" | "0.5" | "0.7" | "0.8");
            if share != "1" {
                let read = of(share, set, READ)?;
                // Stable: within a tenth of what it is at 30 %.
                reads_flat &= !below || always(&read, &usual, |r, u| (r / u - 1.0).abs() <= 0.1);
                points.push(at(format!("{set} GB, {share}: read"), None, &read));
            }
            if share != "0" {
                let write = of(share, set, WRITE)?;
                writes_flat &= !below || write.iter().all(|us| *us <= 0.5);
                points.push(at(format!("{set} GB, {share}: write"), None, &write));
            }
        }
    }
    let asked = "Below 90 %: reads within a tenth of their latency at 30 % writes, writes within 0.1 us of \
                 RAM's 0.4.";
    let otherwise = format!(
        "Reads {}, writes {}. Every block written goes to the filer sooner or later and takes 41 us of the \
         network, which the reads that miss need as well: as the share grows, they queue. The paper states \
         that its figure is not reliable where the network saturates.",
        if reads_flat { "do" } else { "do not" },
        if writes_flat { "do" } else { "do not" },
    );
    let holds = reads_flat && writes_flat;
    let row = Row::new("H13", Kind::Shape)?
        .ours(json!(if holds { "flat" } else { "see points" }))
        .points(points)
        .at_scale(runs.scale())
        .verdict(holds, why(holds, asked, &otherwise));
    Ok(Found { rows: vec![row], figures: figures::writes(&runs)? })
}

/// How a line fits: the share of the variance that it explains.
fn fit(x: &[f64], y: &[f64]) -> f64 {
    let n = x.len() as f64;
    let mean = |v: &[f64]| v.iter().sum::<f64>() / n;
    let (mx, my) = (mean(x), mean(y));
    let sum = |f: &dyn Fn(f64, f64) -> f64| x.iter().zip(y).map(|(x, y)| f(*x, *y)).sum::<f64>();
    let (xy, xx) = (sum(&|x, y| (x - mx) * (y - my)), sum(&|x, _| (x - mx) * (x - mx)));
    let yy = sum(&|_, y| (y - my) * (y - my));
    xy * xy / (xx * yy)
}

/// H14. Exact: R2 above 0.999 for every architecture and working set, with queues on the network and without.
pub(super) fn timings(asked: &Asked) -> Result<Found> {
    let runs = Runs::of(asked, scenario_file!("holland-fig9"))?;
    let x: Vec<f64> = FLASH_FACTORS.iter().filter_map(|f| f.parse().ok()).collect();
    let (mut points, mut alone, mut queued) = (Vec::new(), 1.0f64, 1.0f64);
    for (queues, name) in [("false", "no queues"), ("true", "queues")] {
        for architecture in ARCHITECTURES {
            for set in ["60", "80"] {
                let of = |factor| {
                    let factor = ("devices.flash_factor", factor);
                    let queues = ("devices.one_packet_at_a_time", queues);
                    runs.at(&[queues, factor, (ARCHITECTURE, architecture), (SET, set)], READ)
                };
                let by_factor = FLASH_FACTORS.into_iter().map(of).collect::<Result<Vec<_>>>()?;
                let r2: Vec<f64> = (0..runs.seeds().count())
                    .map(|seed| by_factor.iter().filter_map(|all| all.get(seed).copied()).collect())
                    .map(|y: Vec<f64>| fit(&x, &y))
                    .collect();
                let worst = if queues == "false" { &mut alone } else { &mut queued };
                *worst = r2.iter().copied().fold(*worst, f64::min);
                points.push(at(format!("{architecture}, {set} GB, {name}: R2"), None, &r2));
            }
        }
    }
    let why = format!(
        "A line through six speeds, R2 above 0.999. Without queues for the network the least is {alone:.5}; \
         with queues {queued:.5}: the faster flash is, the more its threads ask of the network, and wait there.",
    );
    let row = Row::new("H14", Kind::Exact)?
        .ours(alone.min(queued))
        .points(points)
        .at_scale(runs.scale())
        .verdict(alone.min(queued) > 0.999, why);
    Ok(Found { rows: vec![row], figures: figures::timings(&runs)? })
}

/// H15.
pub(super) fn persistence(asked: &Asked) -> Result<Found> {
    let runs = Runs::of(asked, scenario_file!("holland-fig10"))?;
    let of = |persistent, warm, set, what| {
        let [persistent, warm] = [("cache.persistent", persistent), ("cache.warm", warm)];
        runs.at(&[persistent, warm, (FLASH, "64"), (SET, set)], what)
    };
    let (mut points, mut holds) = (Vec::new(), true);
    for set in ["60", "80"] {
        let usual = of("false", "true", set, READ)?;
        let kept = over(&of("true", "true", set, READ)?, &usual);
        let kept_writes = over(&of("true", "true", set, WRITE)?, &of("false", "true", set, WRITE)?);
        let cold = over(&of("false", "false", set, READ)?, &usual);
        // Invisible: within 2 %, four times what a mean moves by between seeds. A lot: a tenth and more.
        holds &= kept.iter().chain(&kept_writes).all(|r| (r - 1.0).abs() <= 0.02);
        holds &= cold.iter().all(|r| *r >= 1.1);
        points.push(at(format!("{set} GB: reads, kept over not kept"), 1.0, &kept));
        points.push(at(format!("{set} GB: writes, kept over not kept"), 1.0, &kept_writes));
        points.push(at(format!("{set} GB: reads, cold over warm"), None, &cold));
    }
    let row = Row::new("H15", Kind::Shape)?
        .ours(json!(super::super::runs::listed(&points)))
        .points(points)
        .at_scale(runs.scale())
        .verdict(
            holds,
            "Within 2 % with twice the time; at least a tenth slower from cold caches.",
        );
    Ok(Found { rows: vec![row], figures: figures::persistence(&runs)? })
}
