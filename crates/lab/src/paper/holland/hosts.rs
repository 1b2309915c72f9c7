// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures 11 and 12: two hosts that share a working set.

use anyhow::Result;

use super::super::runs::{Runs, always, at, over, range};
use super::super::{Asked, Kind, Row};
use super::values::{FLASH, READ, SET};
use crate::scenario_file;

const SHARE: &str = "load.write_share";
const VANISHED: &str = "/invalidating_write_ratio";

/// H16.
pub(super) fn run(asked: &Asked) -> Result<Vec<Row>> {
    let by_share = Runs::of(asked, scenario_file!("holland-fig11"))?;
    let by_set = Runs::of(asked, scenario_file!("holland-fig12"))?;
    let of = |flash, set, what| by_set.at(&[(FLASH, flash), (SET, set)], what);
    let (mut points, mut more, mut less) = (Vec::new(), true, Vec::new());
    for set in ["5", "10", "20", "40", "60", "80", "160", "320"] {
        let (with, without) = (of("64", set, VANISHED)?, of("0", set, VANISHED)?);
        // Larger caches have more to lose.
        more &= always(&with, &without, |with, without| with >= without);
        less.extend(with.iter().zip(&without).map(|(with, without)| with - without));
        points.push(at(format!("{set} GB: with flash"), None, &with));
        points.push(at(format!("{set} GB: without"), None, &without));
    }
    // High where the set fits, even against RAM that fits; lost more slowly as sets outgrow the cache
    // by the same factor: 160 GB over 72 GB of cache, 20 GB over 8 GB, are 2.2 and 2.5 times.
    let fits = of("64", "20", VANISHED)?;
    let as_many = always(&fits, &of("0", "5", VANISHED)?, |flash, ram| flash > ram * 0.9);
    let kept = over(&of("64", "160", VANISHED)?, &fits);
    let kept_ram = over(&of("0", "20", VANISHED)?, &of("0", "5", VANISHED)?);
    let slower = always(&kept, &kept_ram, |flash, ram| flash > ram);
    points.push(at("with flash: 160 GB over 20 GB", None, &kept));
    points.push(at("without: 20 GB over 5 GB", None, &kept_ram));
    // Reads get slower the more is invalidated.
    let mut suffer = true;
    for set in ["60", "80"] {
        let read = |share| by_share.at(&[(FLASH, "64"), (SHARE, share), (SET, set)], READ);
        suffer &= always(&read("0.1")?, &read("0.5")?, |few, many| many > few);
        points.push(at(
            format!("{set} GB: read, 50 % writes over 10 %"),
            None,
            &over(&read("0.5")?, &read("0.1")?),
        ));
    }
    let asked = [
        (more, "with flash no fewer writes invalidate than without, at every working set"),
        (as_many, "where the set fits flash nearly as many as where it fits RAM"),
        (slower, "the share falls off less as sets outgrow the cache twice"),
        (suffer, "reads are slower at 50 % writes than at 10 %"),
    ];
    let holds = asked.iter().all(|(is_so, _)| *is_so);
    let not: Vec<&str> = asked.iter().filter(|(is_so, _)| !is_so).map(|(_, what)| *what).collect();
    let why = match not.as_slice() {
        [] => {
            "Larger caches hold more copies that a write of the other host invalidates.".to_owned()
        }
        not => format!("Not so on every seed: {}.", not.join("; ")),
    };
    let all: Vec<&str> = asked.iter().map(|(_, what)| *what).collect();
    let row = Row::new("H16", Kind::Shape)?
        .ours(format!("with flash less without: {} of the writes", range(&less)))
        .points(points)
        .at_scale(by_set.scale())
        .judged(
            holds,
            format!(
                "On every seed: {}. Orders, as the figures have no printed values; 'nearly' is nine tenths.",
                all.join("; ")
            ),
            why,
        );
    Ok(vec![row])
}
