// SPDX-License-Identifier: MIT OR Apache-2.0
//! S13 and S14: the other caches under write-back, in configuration B (SCE 4.4, Figure 10).
//!
//! Each has a scenario of its own, because their defaults differ: how much may be dirty, and for how long. The paper names
//! no setting, so the defaults of the three programs are taken. Their metadata is in the engine's journal, as each of the
//! programs has the state of dirty blocks on flash. Under write-through they are the runs of S9 and S10.

use std::rc::Rc;

use anyhow::Result;

use super::super::runs::{
    HIT_RATIO, RATE, Runs, always, at, either, is_like, listed, median, over, range,
};
use super::super::{Asked, Kind, Row};
use super::published::{BACK_GAINS, BACK_LEAD};

const DISK_WRITES: &str = "origin_write_bytes";
const TRANSACTIONS: &str = "transactions";

/// One of the three under write-back.
struct Back {
    /// Its name.
    name: &'static str,
    /// How many transactions it has of those under write-through, in the paper.
    gain: f64,
    runs: Rc<Runs>,
}

impl Back {
    /// A figure of each seed.
    fn figure(&self, figure: &str) -> Result<Vec<f64>> {
        self.runs.numbers("", "", &format!("/{figure}"))
    }

    /// Transactions a second in the last hour.
    fn rate(&self) -> Result<Vec<f64>> {
        self.figure(RATE)
    }

    /// Read hits of the last hour, in per cent.
    fn hits(&self) -> Result<Vec<f64>> {
        Ok(self.figure(HIT_RATIO)?.iter().map(|ratio| ratio * 100.0).collect())
    }
}

/// The rows.
pub(super) fn rows(asked: &Asked) -> Result<Vec<Row>> {
    let through = Runs::of(asked, crate::scenario_file!("sce-small"))?;
    let files = [
        crate::scenario_file!("sce-back-flashcache"),
        crate::scenario_file!("sce-back-bcache"),
        crate::scenario_file!("sce-back-enhanceio"),
    ];
    let mut back = Vec::new();
    for ((name, gain), file) in BACK_GAINS.into_iter().zip(files) {
        back.push(Back { name, gain, runs: Runs::of(asked, file)? });
    }
    Ok(vec![gains(&through, &back)?, hits(&through, &back)?])
}

/// S13. Three gains of the text, and a bound.
fn gains(through: &Runs, back: &[Back]) -> Result<Row> {
    let (mut points, mut holds) = (Vec::new(), true);
    let ours = through.rate("sce")?;
    let mut best = vec![0.0_f64; ours.len()];
    let mut written = Vec::new();
    for one in back {
        let rate = one.rate()?;
        let gain = over(&rate, &through.rate(one.name)?);
        holds &= is_like(&gain, one.gain);
        points.push(at(format!("{}, back over through", one.name), one.gain, &gain));
        let before =
            over(&through.system(one.name, DISK_WRITES)?, &through.system(one.name, TRANSACTIONS)?);
        let after = over(&one.figure(DISK_WRITES)?, &one.figure(TRANSACTIONS)?);
        written.push(median(&over(&after, &before)));
        best.iter_mut().zip(rate).for_each(|(best, rate)| *best = best.max(rate));
    }
    let lead = over(&ours, &best);
    holds &= lead.iter().all(|lead| *lead >= BACK_LEAD);
    points.push(at("SCE over the best of them", BACK_LEAD, &lead));
    for (one, written) in back.iter().zip(&written) {
        let name = format!("{}, bytes to disks a transaction, back over through", one.name);
        points.push(at(name, None, &[*written]));
    }
    let asked = "Each of the three as a gain, half to twice, because the text gives them, of one run; SCE at least 1.8 times \
                 the best of them, a bound ('at least'); transactions of the last hour, on every seed. How much may be \
                 dirty and for how long are the defaults of the three programs, because the paper names none.";
    let otherwise = format!(
        "A transaction waits for its reads alone, because cleaners write in the background, so write-back gains only \
         what fewer writes leave of the disks to misses (their bytes a transaction are {} of those under write-through).",
        range(&written)
    );
    Ok(Row::new("S13", Kind::Shape)?
        .ours(listed(points.get(..=back.len()).unwrap_or_default()))
        .points(points)
        .at_scale(through.scale())
        .judged(holds, asked, either(holds, "Writes leave the disks to reads.", &otherwise)))
}

/// S14. Two rise, and one falls.
fn hits(through: &Runs, back: &[Back]) -> Result<Row> {
    let (mut points, mut holds, mut found) = (Vec::new(), true, Vec::new());
    let mut changes = Vec::new();
    for one in back {
        let (before, after) = (through.hits(one.name)?, one.hits()?);
        let rises = always(&after, &before, |after, before| after > before);
        let falls = always(&after, &before, |after, before| after < before);
        holds &= if one.name == "bcache" { falls } else { rises };
        let word = match (rises, falls) {
            (true, _) => "up",
            (_, true) => "down",
            _ => "neither on every seed",
        };
        found.push(format!("{} {word}", one.name));
        changes.extend(after.iter().zip(&before).map(|(after, before)| after - before));
        points.push(at(format!("{}, through", one.name), None, &before));
        points.push(at(format!("{}, back", one.name), None, &after));
    }
    let asked = "Read hits of the last hour, on every seed: flashcache and EnhanceIO above their own under write-through, \
                 bcache below. An order, strict; the figure has no values.";
    let otherwise = format!(
        "The three admit by one rule here, which write-back changes only while eviction or admission meets dirty data, so their \
         hits change by {} points only.",
        range(&changes)
    );
    Ok(Row::new("S14", Kind::Shape)?
        .ours(format!("{} ({})", found.join(", "), listed(&points)))
        .points(points)
        .at_scale(through.scale())
        .judged(holds, asked, either(holds, "The directions are the paper's.", &otherwise)))
}
