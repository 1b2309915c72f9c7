// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures 6 and 7: little RAM above flash.

use anyhow::Result;

use super::super::runs::{Runs, always, at, either, over, range, rounded};
use super::super::{Asked, Kind, Row};
use super::values::{ALL_RAM, FLASH, READ, SET, WRITE};
use crate::scenario_file;

const RAM: &str = "cache.ram_mib";
const POLICY: &str = "cache.ram_policy";

/// H11.
pub(super) fn large_sets(asked: &Asked) -> Result<Vec<Row>> {
    let runs = Runs::of(asked, scenario_file!("holland-fig6"))?;
    let of = |ram, policy, set, what| runs.at(&[(RAM, ram), (POLICY, policy), (SET, set)], what);
    let (mut points, mut holds, mut little) = (Vec::new(), true, Vec::new());
    for (set, name) in [("3.75", "60"), ("5", "80")] {
        let tiny = of("0.25", "async", set, WRITE)?;
        let periodic = of("0.25", "1s", set, WRITE)?;
        let some = of("64", "1s", set, WRITE)?;
        let none = of("0", "async", set, WRITE)?;
        let (reads, all) = (of("0.25", "async", set, READ)?, of(ALL_RAM, "async", set, READ)?);
        // "Comparable": writes at RAM's speed, a few microseconds at most, where flash takes 21; reads
        // lose the hits of RAM, 7 to 9 %, and no more than twice that in time.
        little.extend(&tiny);
        holds &= tiny.iter().all(|us| *us < 5.0) && some.iter().all(|us| *us < 5.0);
        holds &= none.iter().all(|us| *us >= 21.0);
        holds &= always(&periodic, &tiny, |p, t| p > t * 2.0);
        holds &= over(&reads, &all).iter().all(|r| *r < 1.2);
        points.push(at(format!("{name} GB: write, 256 KiB, async"), None, &tiny));
        points.push(at(format!("{name} GB: write, 256 KiB, 1 s"), None, &periodic));
        points.push(at(format!("{name} GB: write, 64 MiB, 1 s"), None, &some));
        points.push(at(format!("{name} GB: write, no RAM"), None, &none));
        points.push(at(format!("{name} GB: read, 256 KiB over 8 GB"), None, &over(&reads, &all)));
    }
    let asked = "Writes below 5 us with 256 KiB under async and with 64 MiB under 1 s ('comparable' to RAM's 0.4, where \
                 flash takes 21), more than twice as long with 256 KiB under 1 s, flash's 21 us without RAM; reads at \
                 most 20 % slower with 256 KiB than with 8 GB, twice of what the hits that RAM had are worth (7 to \
                 9 %).";
    let row = Row::new("H11", Kind::Shape)?
        .ours(format!("writes {} us with 256 KiB", range(&little)))
        .points(points)
        .at_scale("1/16; RAM below 8 GB unscaled")
        .judged(
            holds,
            asked,
            either(
                holds,
                "RAM of 256 KiB takes a write at once, and flash serves what RAM no longer hits.",
                "At least one of these latencies is outside, see the points.",
            ),
        );
    Ok(vec![row])
}

/// H12.
pub(super) fn small_set(asked: &Asked) -> Result<Vec<Row>> {
    let runs = Runs::of(asked, scenario_file!("holland-fig7"))?;
    let of = |ram, flash| runs.at(&[(RAM, ram), (FLASH, flash)], READ);
    let with = over(&of("0.25", "4")?, &of(ALL_RAM, "4")?);
    let without = over(&of("0.25", "0")?, &of(ALL_RAM, "4")?);
    // Read off two plots: ten points, and a fifth.
    let holds = with.iter().all(|r| (1.15..=1.40).contains(r))
        && without.iter().all(|r| (4.0..=6.0).contains(r));
    let asked = "256 KiB of RAM against 8 GB. The penalty within ten points of 25 to 30 %, the factor without flash within a \
                 fifth of five: both are read off plots.";
    let otherwise = "After a warm-up of two working sets many blocks are still read for the first time, which is in both \
                     latencies and makes their ratio smaller.";
    let row = Row::new("H12", Kind::Absolute)?
        .ours(format!("{}; {}", rounded(&with), rounded(&without)))
        .points(vec![at("with flash", 1.275, &with), at("without flash", 5.0, &without)])
        .at_scale("1/16; RAM below 8 GB unscaled")
        .judged(holds, asked, either(holds, "Flash takes the place of RAM.", otherwise));
    Ok(vec![row])
}
