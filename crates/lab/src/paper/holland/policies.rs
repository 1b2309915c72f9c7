// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figure 2: seven policies for RAM, seven for flash, three architectures.

use anyhow::Result;
use larder_report::number;
use serde_json::json;

use super::super::runs::{Runs, always, at, either, median, rounded};
use super::super::{Asked, At, Kind, Row};
use super::values::{ARCHITECTURE, ARCHITECTURES, READ, WRITE};
use crate::scenario_file;

const RAM: &str = "cache.ram_policy";
const FLASH: &str = "cache.flash_policy";
/// Those that the paper finds alike: no request waits for the filer.
const CALM: [&str; 5] = ["async", "1s", "5s", "15s", "30s"];

/// How far a calm pair's latency may be from the middle of all. What is written back shares the
/// network with what is read, and a policy decides in which bursts it goes and how many writes die in
/// the cache; the surfaces of Figure 2 show differences up to about this.
const ALIKE: f64 = 0.10;
/// How far H3's mean may be from its expectation.
const EXPECTED: f64 = 0.02;

pub(super) fn run(asked: &Asked) -> Result<Vec<Row>> {
    let runs = Runs::of(asked, scenario_file!("holland-fig2"))?;
    Ok(vec![alike(&runs)?, unified_writes(&runs)?, convoys(&runs)?, never_dirty(&runs)?])
}

fn pair(runs: &Runs, architecture: &str, ram: &str, flash: &str, what: &str) -> Result<Vec<f64>> {
    runs.at(&[(ARCHITECTURE, architecture), (RAM, ram), (FLASH, flash)], what)
}

/// How far the farthest calm pair is from the middle one, of each seed.
fn spread(runs: &Runs, architecture: &str, what: &str) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for ram in CALM {
        for flash in CALM {
            all.push(pair(runs, architecture, ram, flash, what)?);
        }
    }
    let seeds = all.first().map_or(0, Vec::len);
    let of = |seed: usize| {
        let one: Vec<f64> = all.iter().filter_map(|pair| pair.get(seed).copied()).collect();
        let middle = median(&one);
        one.iter().map(|v| (v / middle - 1.0).abs()).fold(0.0, f64::max)
    };
    Ok((0..seeds).map(of).collect())
}

fn alike(runs: &Runs) -> Result<Row> {
    let (mut points, mut holds) = (Vec::new(), true);
    for architecture in ARCHITECTURES {
        for (what, name) in [(READ, "reads"), (WRITE, "writes")] {
            let spread = spread(runs, architecture, what)?;
            holds &= spread.iter().all(|s| *s <= ALIKE);
            let at_ = format!("{architecture}, {name}: farthest of 25 pairs from the middle");
            points.push(at(at_, None, &spread));
        }
    }
    let worst = points.iter().filter_map(|p| p.ours).fold(0.0, f64::max);
    let asked = "The 25 pairs of asynchronous and periodic policies of an architecture are within 10 % of the one in the middle, \
                 on every seed: the surfaces of Figure 2, which has no printed values, show differences up to about that.";
    Ok(Row::new("H2", Kind::Shape)?
        .ours(json!(worst))
        .points(points)
        .at_scale(runs.scale())
        .judged(
            holds,
            asked,
            either(
                holds,
                "No request waits for the filer under any of them.",
                "The pairs decide in which bursts the filer is written and how many writes die in the cache, and what is \
                 written back shares the network with what is read.",
            ),
        ))
}

fn unified_writes(runs: &Runs) -> Result<Row> {
    let paper = 8.0 / 9.0 * 21.0 + 1.0 / 9.0 * 0.4;
    let mut points = Vec::new();
    let mut holds = true;
    for (architecture, paper) in ARCHITECTURES.into_iter().zip([0.4, 0.4, paper]) {
        let ours = pair(runs, architecture, "1s", "async", WRITE)?;
        holds &= ours.iter().all(|us| (us / paper - 1.0).abs() <= EXPECTED);
        points.push(at(architecture, paper, &ours));
    }
    let unified = pair(runs, "unified", "1s", "async", WRITE)?;
    let asked = "RAM every second, flash asynchronously. Within 2 % of the expectation that the paper prints, since a block's \
                 place in the unified chain is a matter of chance.";
    Ok(Row::new("H3", Kind::Absolute)?
        .ours(rounded(&unified))
        .points(points)
        .at_scale(runs.scale())
        .judged(
            holds,
            asked,
            either(
                holds,
                "Eight of nine blocks lie on flash.",
                "At least one of the three architectures is outside, see the points.",
            ),
        ))
}

fn convoys(runs: &Runs) -> Result<Row> {
    let least = 141.2;
    let ours = pair(runs, "naive", "none", "none", WRITE)?;
    let calm = pair(runs, "naive", "none", "async", WRITE)?;
    let holds = ours.iter().all(|us| *us >= least) && always(&ours, &calm, |a, b| a > b);
    let otherwise = format!(
        "A write waits for its victim only if that is dirty, and for the filer only if flash's own victim is dirty \
         too, so that the mean is {} us, and {} us with flash asynchronous.",
        number(median(&ours)),
        number(median(&calm))
    );
    let asked = "The mean write takes at least as long as one of the filer, 141.2 us, which the paper gives as a bound.";
    Ok(Row::new("H5", Kind::Shape)?
        .ours(rounded(&ours))
        .points(vec![at("none, none", least, &ours), at("none, async", None, &calm)])
        .at_scale(runs.scale())
        .judged(holds, asked, either(holds, "Writes wait for the filer.", &otherwise)))
}

fn never_dirty(runs: &Runs) -> Result<Row> {
    let most = |architecture: &str| -> f64 {
        let of = |line: &&crate::scenario::Line| line.is_at(ARCHITECTURE, architecture);
        let lines = runs.lines().filter(of);
        lines.filter_map(|line| line.number("flash_dirty_most_blocks")).fold(0.0, f64::max)
    };
    let (lookaside, naive) = (most("lookaside"), most("naive"));
    let point = |at: &str, ours| At { at: at.to_owned(), paper: None, ours: Some(ours) };
    Ok(Row::new("H17", Kind::Exact)?
        .ours(lookaside)
        .points(vec![point("lookaside", lookaside), point("naive, for scale", naive)])
        .at_scale(runs.scale())
        .judged(
            lookaside == 0.0 && naive > 0.0,
            "None at any moment, over all 49 pairs: an invariant; naive has some, so that it can be seen.",
            "Lookaside writes the filer before flash.",
        ))
}
