// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures 3 to 5 and 7.4: sizes of caches and working sets.

use anyhow::Result;
use serde_json::json;

use super::super::runs::{Runs, always, at, either, listed, median, over, range, rounded};
use super::super::{Asked, Kind, Row};
use super::popularity::Fit;
use super::values::{ARCHITECTURE, FLASH, RAM_HIT, READ, SET, SETS};
use crate::scenario_file;

const FLASH_HIT: &str = "/flash_hit_ratio";

/// H4, H6.
pub(super) fn together(asked: &Asked) -> Result<Vec<Row>> {
    let runs = Runs::of(asked, scenario_file!("holland-fig3"))?;
    let read = |architecture, flash, is_ram, set, what| {
        let is_ram = ("devices.flash_is_ram", is_ram);
        runs.at(&[(ARCHITECTURE, architecture), (FLASH, flash), is_ram, (SET, set)], what)
    };
    let (mut gains, mut holds, mut lower) = (Vec::new(), true, true);
    // The paper's two numbers were read off a run each; three points is what a plot shows.
    for (set, paper) in [("60", 3.5), ("80", 20.0)] {
        let naive = read("naive", "64", "false", set, READ)?;
        let unified = read("unified", "64", "false", set, READ)?;
        let gain: Vec<f64> =
            naive.iter().zip(&unified).map(|(n, u)| (1.0 - u / n) * 100.0).collect();
        lower &= gain.iter().all(|g| *g > 0.0);
        holds &= gain.iter().all(|g| (g - paper).abs() <= 3.0);
        gains.push(at(format!("{set} GB"), paper, &gain));
    }
    let found = listed(&gains);
    let fit = Fit::of(asked, &found)?;
    gains.extend(fit.points);
    let otherwise = fit.words;
    let asked = "Within three points each, on every seed, which is what a plot shows; faster at both sizes.";
    let h4 = Row::new("H4", Kind::Absolute)?
        .ours(json!(found))
        .points(gains)
        .at_scale(runs.scale())
        .judged(
            holds && lower,
            asked,
            either(holds, "A unified cache holds an eighth more.", &otherwise),
        );

    let (mut points, mut same) = (Vec::new(), true);
    for set in ["60", "80"] {
        let hits = |architecture, flash| -> Result<Vec<f64>> {
            let ram = read(architecture, flash, "true", set, RAM_HIT)?;
            let flash = read(architecture, flash, "true", set, FLASH_HIT)?;
            Ok(ram.iter().zip(flash).map(|(r, f)| (r + f) * 100.0).collect())
        };
        let (naive, unified) = (hits("naive", "64")?, hits("unified", "56")?);
        same &= always(&naive, &unified, |n, u| (n - u).abs() <= 0.2);
        points.push(at(format!("{set} GB, naive 8 + 64"), None, &naive));
        points.push(at(format!("{set} GB, unified 8 + 56"), None, &unified));
    }
    let asked = "Hit ratios within 0.2 points, twice what an LRU model gives for RAM hits that do not renew flash's chain.";
    let h6 = Row::new("H6", Kind::Exact)?
        .ours(json!(listed(&points)))
        .points(points)
        .at_scale(runs.scale())
        .judged(
            same,
            asked,
            either(
                same,
                "What counts is how many different blocks are held.",
                "The chains of RAM and flash are further from one LRU than that.",
            ),
        );
    Ok(vec![h4, h6])
}

/// H7, H8.
pub(super) fn working_sets(asked: &Asked) -> Result<Vec<Row>> {
    let runs = Runs::of(asked, scenario_file!("holland-fig4"))?;
    let of = |flash, set, what| runs.at(&[(FLASH, flash), (SET, set)], what);
    let percent = |values: Vec<f64>| values.iter().map(|v| v * 100.0).collect::<Vec<_>>();
    // The paper prints one digit behind the point for RAM, none for flash.
    let ram = percent(of("64", "160", RAM_HIT)?);
    let mut holds = ram.iter().all(|v| (v - 3.4).abs() <= 0.2);
    let mut points = vec![at("RAM", 3.4, &ram)];
    for (flash, paper) in [("0", Some(0.0)), ("32", None), ("64", None), ("128", Some(47.0))] {
        let hits = percent(of(flash, "160", FLASH_HIT)?);
        holds &= paper.is_none_or(|paper| hits.iter().all(|v| (v - paper).abs() <= 1.0));
        points.push(at(format!("{flash} GB of flash"), paper, &hits));
    }
    let asked = "RAM within 0.2 points, flash within one: about twice what the last printed digit leaves open. The working set is \
                 not named; 160 GB is where the hit ratio of RAM is the paper's, so that RAM's is fitted and flash's are not.";
    let h7 = Row::new("H7", Kind::Absolute)?
        .ours(json!(listed(&points)))
        .points(points)
        .at_scale(runs.scale())
        .judged(
            holds,
            asked,
            either(
                holds,
                "Uniform access under LRU gives these hit ratios.",
                "At least one of the hit ratios is outside, see the points.",
            ),
        );
    Ok(vec![h7, helps(&runs)?])
}

fn helps(runs: &Runs) -> Result<Row> {
    let of = |flash, set| runs.at(&[(FLASH, flash), (SET, set)], READ);
    let (mut points, mut holds, mut least) = (Vec::new(), true, Vec::new());
    for set in SETS {
        let (none, large) = (of("0", set)?, of("128", set)?);
        // Even ten times too small a flash: a few percent, far more than seeds differ by. The claim is
        // about sets that RAM does not hold; that of 5 GB is shown.
        holds &= set == "5" || always(&none, &large, |none, large| large < none * 0.97);
        least.extend(over(&none, &large));
        points.push(at(
            format!("{set} GB: read latency without flash over 128 GB"),
            None,
            &over(&none, &large),
        ));
    }
    // A set that fits: less than half the latency.
    for (set, flash) in [("20", "32"), ("40", "64"), ("60", "128"), ("80", "128")] {
        holds &= always(&of("0", set)?, &of(flash, set)?, |none, fits| fits * 2.0 < none);
    }
    let asked = "At every working set above RAM's 8 GB 128 GB of flash save at least 3 %, six times what a mean moves by between \
                 seeds; where the set fits into flash and not into RAM (20 in 32, 40 in 64, 60 and 80 in 128 GB) \
                 latency is below half of what it is without ('steeply').";
    Ok(Row::new("H8", Kind::Shape)?
        .ours(format!("without flash {} times the latency", range(&least)))
        .points(points)
        .at_scale(runs.scale())
        .changed("the set of 5 GB, which RAM holds, was exempted from the 3 %")
        .judged(
            holds,
            asked,
            either(
                holds,
                "Each block that flash adds is read sometimes, whatever the working set.",
                "At least one working set gains less, see the points.",
            ),
        ))
}

/// H9.
pub(super) fn read_ahead(asked: &Asked) -> Result<Vec<Row>> {
    let runs = Runs::of(asked, scenario_file!("holland-fig5"))?;
    let of = |flash, fast, set| {
        runs.at(&[(FLASH, flash), ("devices.fast_read_share", fast), (SET, set)], READ)
    };
    let (mut points, mut wins) = (Vec::new(), Vec::new());
    for set in SETS {
        let (worse, better) = (of("64", "0.8", set)?, of("0", "0.95", set)?);
        wins.push((set, always(&worse, &better, |with, without| with < without)));
        points.push(at(
            format!("{set} GB: flash and 80 % over no flash and 95 %"),
            None,
            &over(&worse, &better),
        ));
    }
    let won: Vec<&str> = wins.iter().filter(|(_, won)| *won).map(|(set, _)| *set).collect();
    let in_pocket = |set: &&str| matches!(*set, "10" | "20" | "40" | "60");
    let holds = !won.is_empty() && won.iter().all(in_pocket);
    let asked = "With flash and 80 % fast reads latency is lower than without flash and with 95 % at some working sets, all of them \
                 above RAM's 8 GB and up to flash's 64 GB: an order, as the figure has no printed values.";
    let why = format!("It pays at {} GB alone.", won.join(", "));
    let row = Row::new("H9", Kind::Shape)?
        .ours(json!(format!("{} GB", won.join(", "))))
        .points(points)
        .at_scale(runs.scale())
        .judged(holds, asked, why);
    Ok(vec![row])
}

/// H10.
pub(super) fn growing(asked: &Asked) -> Result<Vec<Row>> {
    const SIZES: [&str; 9] = ["0", "8", "16", "32", "48", "64", "80", "96", "128"];
    let runs = Runs::of(asked, scenario_file!("holland-7.4"))?;
    let (mut points, mut holds) = (Vec::new(), true);
    for set in ["60", "80"] {
        let mut last: Option<Vec<f64>> = None;
        for flash in SIZES {
            let read = runs.at(&[(FLASH, flash), (SET, set)], READ)?;
            // 2 % is four times what a mean moves by from seed to seed.
            holds &= last.is_none_or(|last| always(&last, &read, |a, b| b <= a * 1.02));
            points.push(at(format!("{set} GB set, {flash} GB of flash"), None, &read));
            last = Some(read);
        }
        let middle = runs.at(&[(FLASH, "128"), (SET, set)], "/read_p50_us")?;
        holds &= middle.iter().all(|us| (us - 88.4).abs() <= 2.0);
    }
    let end = runs.at(&[(FLASH, "128"), (SET, "60")], "/read_p50_us")?;
    let asked = "Never more than 2 % up from one size to the next, four times what a mean moves by between seeds; with 128 GB half \
                 of all reads within 2 us of flash's 88.4. The mean stays above, as a fifth of the requests goes to the \
                 whole server.";
    let why = format!(
        "Half of all reads take {} us or less with 128 GB.",
        larder_report::number(median(&end))
    );
    let row = Row::new("H10", Kind::Shape)?
        .ours(rounded(&end))
        .points(points)
        .at_scale(runs.scale())
        .judged(holds, asked, why);
    Ok(vec![row])
}
