// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures 8 to 10: the share of writes, the speed of flash, what a restart costs.

use anyhow::Result;

use super::super::runs::{Runs, always, at, either, over, range, rounded};
use super::super::{Asked, Kind, Row};
use super::values::{
    ARCHITECTURE, ARCHITECTURES, FLASH, FLASH_FACTORS, READ, SET, WRITE, WRITE_SHARES,
};
use crate::scenario_file;

/// H13.
pub(super) fn writes(asked: &Asked) -> Result<Vec<Row>> {
    let runs = Runs::of(asked, scenario_file!("holland-fig8"))?;
    let of = |share, set, what| runs.at(&[("load.write_share", share), (SET, set)], what);
    let (mut points, mut reads_flat, mut writes_flat) = (Vec::new(), true, true);
    let mut over_usual = Vec::new();
    for set in ["60", "80"] {
        let usual = of("0.3", set, READ)?;
        for share in WRITE_SHARES {
            let below = matches!(share, "0" | "0.1" | "0.3" | "0.5" | "0.7" | "0.8");
            if share != "1" {
                let read = of(share, set, READ)?;
                // Stable: within a tenth of what it is at 30 %.
                over_usual.extend(if below { over(&read, &usual) } else { Vec::new() });
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
    let asked = "Below 90 %: reads within a tenth of their latency at 30 % writes, which is what a plot on a linear axis shows \
                 as flat; writes within 0.1 us of RAM's 0.4, a tick of the paper's simulator.";
    let otherwise = format!(
        "Reads {} flat, writes {}: a written block takes 41 us of the network, and reads that miss wait behind it.",
        if reads_flat { "are" } else { "are not" },
        if writes_flat { "are" } else { "are not" },
    );
    let holds = reads_flat && writes_flat;
    let row = Row::new("H13", Kind::Shape)?
        .ours(format!("reads {} of those at 30 %", range(&over_usual)))
        .points(points)
        .at_scale(runs.scale())
        .judged(holds, asked, either(holds, "Writes continue in the background.", &otherwise));
    Ok(vec![row])
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
pub(super) fn timings(asked: &Asked) -> Result<Vec<Row>> {
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
    let holds = alone.min(queued) > 0.999;
    let asked = "A line through six speeds of flash, R2 above 0.999 for every architecture and working set, with queues for \
                 the network and without: the paper's word is linear, and a line leaves nothing but the scatter of seeds.";
    let otherwise = format!(
        "Without queues for the network R2 is at least {alone:.5}, with them {queued:.5}: the faster flash is, the more its \
         threads ask of the network, and wait there."
    );
    let row = Row::new("H14", Kind::Exact)?
        .ours(alone.min(queued))
        .points(points)
        .at_scale(runs.scale())
        .judged(holds, asked, either(holds, "A read that hits takes flash's time.", &otherwise));
    Ok(vec![row])
}

/// H15.
pub(super) fn persistence(asked: &Asked) -> Result<Vec<Row>> {
    let runs = Runs::of(asked, scenario_file!("holland-fig10"))?;
    let of = |persistent, warm, set, what| {
        let [persistent, warm] = [("cache.persistent", persistent), ("cache.warm", warm)];
        runs.at(&[persistent, warm, (FLASH, "64"), (SET, set)], what)
    };
    let (mut points, mut holds, mut words) = (Vec::new(), true, Vec::new());
    for set in ["60", "80"] {
        let usual = of("false", "true", set, READ)?;
        let kept = over(&of("true", "true", set, READ)?, &usual);
        let kept_writes = over(&of("true", "true", set, WRITE)?, &of("false", "true", set, WRITE)?);
        let cold = over(&of("false", "false", set, READ)?, &usual);
        // Invisible: within 2 %, four times what a mean moves by between seeds. A lot: a tenth and more.
        holds &= kept.iter().chain(&kept_writes).all(|r| (r - 1.0).abs() <= 0.02);
        holds &= cold.iter().all(|r| *r >= 1.1);
        words.push(format!("{} kept, {} cold", rounded(&kept), rounded(&cold)));
        points.push(at(format!("{set} GB: reads, kept over not kept"), 1.0, &kept));
        points.push(at(format!("{set} GB: writes, kept over not kept"), 1.0, &kept_writes));
        points.push(at(format!("{set} GB: reads, cold over warm"), None, &cold));
    }
    let row = Row::new("H15", Kind::Shape)?
        .ours(format!("{} of the usual read", words.join("; ")))
        .points(points)
        .at_scale(runs.scale())
        .judged(
            holds,
            "Invisible: within 2 % with twice the time of writes, four times what a mean moves by between seeds. A lot: \
             at least a tenth slower from cold caches, which a plot shows.",
            either(
                holds,
                "No request waits for a write of flash, and an empty cache misses.",
                "At least one of the latencies is outside, see the points.",
            ),
        );
    Ok(vec![row])
}
