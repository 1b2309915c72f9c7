// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long recovery takes after a crash in the update of the first night (Table 2).
//!
//! Method: as in the paper, user 1's first day, then the update, which is stopped at parts of the
//! segments that it copies; the contents of flash are recovered by the engine's own
//! function. Its reads take the time of the flash's model, one after the other; what it computes
//! takes none here, and is measured by `larder bench recovery`.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow};
use larder_core::exec::{DevId, MILLISECOND, Nanos, SECOND};
use larder_core::journal::recover::recover;
use larder_model::{Model, Op, profile};
use larder_sim::device::SimDevice;
use larder_sim::store::Store;

use super::super::runs::{at, either, range, rounded};
use super::super::{Asked, At, Kind, Row};
use crate::load::desktop::{FITTED_RUN, Scale, USERS};
use crate::scenario::desktop::{Run, Setup};
use crate::scenario::volume::{System, VOLUME};

/// The paper's Table 2: how much of the update was done, and seconds.
const TABLE: [(f64, f64); 5] = [(0.0, 0.74), (0.25, 2.41), (0.5, 4.05), (0.75, 5.62), (0.99, 7.15)];
/// An eighth: the update copies some thousand segments.
const SCALE: Scale = Scale { segments_per_gb: 128 };
/// A recovery is tried after so many segments.
const EVERY: u64 = 4;
/// How far from a line points may be, as a part of the highest: Table 2's own are at most 0.8 % off.
const OFF: f64 = 0.02;
/// The flash device of a world.
const FLASH: DevId = DevId(1);

/// A recovery.
#[derive(Clone, Copy, Debug)]
struct Tried {
    /// Blocks of the log that it found.
    blocks: f64,
    /// What its reads took.
    seconds: f64,
}

/// A flash device that is read one range after the other.
struct Timed<'a> {
    store: &'a Store,
    model: Box<dyn Model>,
    now: Nanos,
}

impl Timed<'_> {
    fn read(&mut self, at: u64, len: u64) -> Vec<u8> {
        self.model.submit(self.now, 0, Op::read(at, len));
        while self.model.in_flight() > 0 {
            match self.model.poll(self.now) {
                Some((_, done)) => self.now = self.now.max(done),
                None => self.now = self.model.next().unwrap_or(self.now + 1),
            }
        }
        let mut bytes = vec![0; len as usize];
        self.store.read(at, &mut bytes);
        bytes
    }
}

fn try_recovery(setup: &Setup, store: &Store) -> Result<Tried> {
    let layout = setup.plan()?.layout(VOLUME, 0).context("prwc keeps metadata")?;
    let model = profile(&setup.flash, setup.scale.bytes(setup.flash_gb), setup.seed)?;
    let mut flash = Timed { store, model, now: 0 };
    let found = recover(&layout, VOLUME, &mut |at, len| Ok(flash.read(at, len)));
    let found = found.map_err(|e| anyhow!("nothing to recover: {e:?}"))?;
    Ok(Tried { blocks: found.reached().1 as f64, seconds: flash.now as f64 / SECOND as f64 })
}

/// A night of user 1: recoveries by the segments that the update had brought, the last when it was
/// about to end.
fn night(seed: u64) -> Result<BTreeMap<u64, Tried>> {
    let setup = Setup::paper(System::Preset("prwc"), USERS[0], seed);
    let setup = Setup { scale: SCALE, visit: FITTED_RUN, ..setup };
    // Metadata only: what slots hold, recovery does not read.
    let store = Store::new(setup.plan()?.slots_at, |_, bytes| bytes.fill(0));
    let model = profile(&setup.flash, setup.scale.bytes(setup.flash_gb), seed)?;
    let flash = SimDevice::new(model, Some(store), seed, MILLISECOND);
    let mut run = Run::over(&setup, flash)?;
    run.day()?;
    let (world, mut tried) = (run.world(), BTreeMap::new());
    while world.counters().updates == 0 {
        let brought = world.counters().populations;
        if brought.is_multiple_of(EVERY) && !tried.contains_key(&brought) {
            let store = world.store(FLASH).context("flash has no bytes")?;
            tried.insert(brought, try_recovery(&setup, store)?);
        }
        anyhow::ensure!(world.advance(2 * setup.scale.day()), "the update does not end");
    }
    Ok(tried)
}

/// What lies at this part of the way.
fn at_part(tried: &BTreeMap<u64, Tried>, part: f64) -> Tried {
    let most = tried.keys().next_back().copied().unwrap_or(0) as f64;
    let near = |brought: &u64| (*brought as f64 - part * most).abs();
    let nearest = tried.iter().min_by(|(a, _), (b, _)| near(a).total_cmp(&near(b)));
    nearest.map_or(Tried { blocks: f64::NAN, seconds: f64::NAN }, |(_, tried)| *tried)
}

/// The farthest of points from the line that is nearest to them (least squares), and its slope.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let both: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let square: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let slope = if square > 0.0 { both / square } else { 0.0 };
    let off = |(px, py): &(f64, f64)| (py - y - slope * (px - x)).abs();
    (points.iter().map(off).fold(0.0, f64::max), slope)
}

/// Whether points rise along a line.
fn rises_along_a_line(points: &[(f64, f64)]) -> bool {
    let (off, slope) = line(points);
    let most = points.iter().map(|p| p.1).fold(0.0, f64::max);
    // A rise that the tolerance would hide is none.
    off <= OFF * most && slope > OFF * most
}

/// P15.
pub(super) fn rows(asked: &Asked) -> Result<Vec<Row>> {
    let nights: Vec<_> = asked.seeds().into_iter().map(night).collect::<Result<_>>()?;
    let of = |part: f64, figure: fn(Tried) -> f64| -> Vec<f64> {
        nights.iter().map(|tried| figure(at_part(tried, part))).collect()
    };
    let mut points: Vec<At> = Vec::new();
    for (part, paper) in TABLE {
        let percent = format!("{} %", (part * 100.0) as u32);
        points.push(at(format!("{percent}, s"), paper, &of(part, |t| t.seconds)));
        points.push(at(format!("{percent}, log blocks"), None, &of(part, |t| t.blocks)));
    }
    let each = |figure: fn(Tried) -> f64, tried: &BTreeMap<u64, Tried>| {
        TABLE.map(|(part, _)| (part, figure(at_part(tried, part))))
    };
    let holds = nights.iter().all(|tried| rises_along_a_line(&each(|t| t.seconds, tried)));
    let logs = nights.iter().all(|tried| rises_along_a_line(&each(|t| t.blocks, tried)));
    let (clean, full) = (of(0.0, |t| t.seconds), of(0.99, |t| t.seconds));
    let asked = format!(
        "The five times on a line that rises, none farther from it than 2 % of the highest, on every seed: Table 2's own \
         are within 0.8 %. The log has {} blocks at 99 %; a clean start is one load of the metadata in both.",
        range(&of(0.99, |t| t.blocks)),
    );
    let otherwise = if logs {
        "The log grows along a line and the time does not, as recovery reads each log in one go, whatever it holds, and \
         virtual time leaves out the processor (in real time: larder bench recovery)."
    } else {
        "Neither the log nor the time grows along a line."
    };
    let row = Row::new("P15", Kind::Shape)?
        .ours(format!("{} s clean, {} s at 99 %", rounded(&clean), rounded(&full)))
        .at_scale("1/8")
        .judged(
            holds,
            asked,
            either(holds, "Recovery reads a record of each copied segment.", otherwise),
        );
    Ok(vec![row.points(points)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_own_times_rise_along_a_line() {
        assert!(rises_along_a_line(&TABLE));
        assert!(!rises_along_a_line(&TABLE.map(|(part, _)| (part, 0.74))));
        assert!(!rises_along_a_line(&TABLE.map(|(part, _)| (part, part * part))));
    }
}
