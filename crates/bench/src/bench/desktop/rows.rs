// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows and pictures of `desktop`.

use larder_core::exec::SECOND;
use larder_lab::load::replay::{Part, Replayed};
use larder_lab::scenario::desktop::{Day, Outcome, SCAN_DAY};
use larder_lab::scenario::volume::System;
use larder_report::{Axis, Figure, Series};

use crate::bench::common::Findings;
use crate::bench::row::{Goal, Row, median};

pub(super) const NAME: &str = "desktop";
/// The compared systems; the rows name them by these places.
pub(super) const SYSTEMS: [System; 5] = [
    System::Preset("prwc"),
    System::Preset("proc"),
    System::Preset("slru"),
    System::Preset("sce"),
    System::NoCache,
];

/// Places in [`SYSTEMS`].
const PRWC: usize = 0;
const PROC: usize = 1;
const SLRU: usize = 2;
const SCE: usize = 3;
const NO_CACHE: usize = 4;
/// Write bandwidth of `prwc` over that of `proc`.
const WRITES_GOAL: f64 = 3.0;
/// Total bandwidth of `prwc` over that of `slru`.
const TOTAL_GOAL: f64 = 1.5;
/// Of the hit ratio before a scan.
const SCAN_GOAL: f64 = 0.95;
/// Days at the end that stand beside all.
const LAST: usize = 5;

/// Runs of each system in the order of [`SYSTEMS`]: one a user, then the one with a backup, which is
/// of the user at place `scanner`.
pub(super) fn findings(systems: &[&[Outcome]], scanner: usize, quick: bool) -> Findings {
    let plain: Vec<&[Outcome]> =
        systems.iter().filter_map(|s| s.split_last().map(|(_, plain)| plain)).collect();
    let scans: Vec<&Outcome> = systems.iter().filter_map(|s| s.last()).collect();
    let mut rows = bandwidths(&plain, quick);
    rows.extend(absolutes(&plain));
    let alone: Vec<&Outcome> = plain.iter().filter_map(|s| s.get(scanner)).collect();
    rows.extend(scan_rows(&scans, &alone, quick));
    Findings { rows, figures: pictures(&plain, &scans) }
}

/// A figure of one kind of request.
type Of = fn(&Replayed) -> Part;

fn total(r: &Replayed) -> Part {
    r.all()
}

fn reads(r: &Replayed) -> Part {
    r.reads
}

fn writes(r: &Replayed) -> Part {
    r.writes
}

fn sum(days: &[Day]) -> Replayed {
    Outcome::sum(days)
}

fn megabytes(part: Part) -> f64 {
    part.bandwidth() / 1e6
}

/// Bandwidths of a system, a user each, over all days or the last.
fn each(system: &[Outcome], of: Of, last: bool) -> Vec<f64> {
    let days = |o: &Outcome| if last { o.days.len().saturating_sub(LAST) } else { 0 };
    system.iter().map(|o| megabytes(of(&sum(&o.days[days(o)..])))).collect()
}

fn bandwidths(systems: &[&[Outcome]], quick: bool) -> Vec<Row> {
    let row = |what: &str, ours: usize, peer: usize, of: Of, last: bool| {
        let span = if last { "the last five days" } else { "all days" };
        let case = format!("{what}, {}, {span}", SYSTEMS[ours].name());
        let figures = |n: usize| systems.get(n).map_or_else(Vec::new, |s| each(s, of, last));
        Row::new(NAME, case, "MB/s").paired(SYSTEMS[peer].name(), &figures(ours), &figures(peer))
    };
    let goal = |row: Row, least| if quick { row } else { row.goals(&[Goal::RatioAtLeast(least)]) };
    let paper = |row: Row, words: &str| row.note(format!("the paper: {words}"));
    let mut rows = vec![
        goal(paper(row("write bandwidth", PRWC, PROC, writes, false), "about 3"), WRITES_GOAL),
        goal(paper(row("total bandwidth", PRWC, SLRU, total, false), "1.54"), TOTAL_GOAL),
    ];
    rows.push(row("write bandwidth", PRWC, PROC, writes, true));
    rows.push(row("total bandwidth", PRWC, SLRU, total, true));
    rows.push(paper(row("total bandwidth", PRWC, PROC, total, false), "1.48"));
    rows.push(paper(row("total bandwidth", PROC, SLRU, total, false), "1.04"));
    rows.push(paper(row("read bandwidth", PRWC, PROC, reads, false), "similar"));
    rows.push(paper(row("read bandwidth", PRWC, SLRU, reads, false), "similar"));
    rows.push(row("total bandwidth", PRWC, SCE, total, false));
    rows.push(row("total bandwidth", PRWC, NO_CACHE, total, false));
    rows
}

/// The two goals' figures without the disk's write cache: runs of `prwc`, `proc` and `slru`.
pub(super) fn uncached(systems: &[&[Outcome]]) -> Vec<Row> {
    let row = |what: &str, peer: usize, of: Of| {
        let case = format!("{what}, prwc, all days, the disk's write cache off");
        let figures = |n: usize| systems.get(n).map_or_else(Vec::new, |s| each(s, of, false));
        Row::new(NAME, case, "MB/s").paired(SYSTEMS[peer].name(), &figures(PRWC), &figures(peer))
    };
    vec![row("write bandwidth", PROC, writes), row("total bandwidth", SLRU, total)]
}

/// The figures of each system by itself.
fn absolutes(systems: &[&[Outcome]]) -> Vec<Row> {
    let row = |(system, outcomes): (&System, &&[Outcome])| {
        let mid =
            |of: &dyn Fn(&Outcome) -> f64| median(&outcomes.iter().map(of).collect::<Vec<_>>());
        let hits = |of: Of| mid(&|o: &Outcome| of(&sum(&o.days)).hit_ratio());
        let rate = |of: Of| mid(&|o: &Outcome| megabytes(of(&sum(&o.days))));
        let each_us = |of: Of| {
            mid(&|o: &Outcome| {
                let part = of(&sum(&o.days));
                part.took as f64 / 1e3 / part.requests.max(1) as f64
            })
        };
        let note = format!(
            "reads {:.1} MB/s, {:.0} us, hits {:.3}; writes {:.1} MB/s, {:.0} us, hits {:.3}; {:.1} \
             GB populated, {:.1} GB written to flash",
            rate(reads),
            each_us(reads),
            hits(reads),
            rate(writes),
            each_us(writes),
            hits(writes),
            mid(&|o| o.counters().population_bytes as f64 / 1e9),
            mid(&|o| o.counters().flash_write_bytes as f64 / 1e9),
        );
        let case = format!("all days, {}", system.name());
        Row::new(NAME, case, "MB/s").alone(rate(total)).note(note)
    };
    SYSTEMS.iter().zip(systems).map(row).collect()
}

/// The hits that remain after a backup, beside the same days without it.
fn scan_rows(scans: &[&Outcome], alone: &[&Outcome], quick: bool) -> Vec<Row> {
    let day = SCAN_DAY as usize;
    let mut rows = Vec::new();
    let hits = |r: &Replayed| r.reads.hit_ratio();
    let of_day = |o: &Outcome, day: usize| o.days.get(day).map_or(0.0, |day| hits(&day.replayed));
    for (number, (scan, plain)) in scans.iter().zip(alone).enumerate() {
        let Some(system) = SYSTEMS.get(number).filter(|_| number != NO_CACHE) else { continue };
        let before = of_day(scan, day - 1);
        let seconds = scan.backup.all().took as f64 / SECOND as f64;
        for (words, after, without) in [
            ("the rest of the day of a backup", hits(&scan.rest), hits(&plain.rest)),
            ("the day after a backup", of_day(scan, day + 1), of_day(plain, day + 1)),
        ] {
            let row = Row::new(NAME, format!("read hit ratio of {words}, {}", system.name()), "")
                .against("the day before", after, before)
                .note(format!("without a backup {without:.3}; it took {seconds:.0} s"));
            let goal = number <= PROC && !quick;
            rows.push(if goal { row.goals(&[Goal::RatioAtLeast(SCAN_GOAL)]) } else { row });
        }
    }
    let with_backup = |o: &&Outcome| {
        let mut all = o.days.get(day).map(|day| day.replayed).unwrap_or_default();
        all += o.backup;
        megabytes(all.all())
    };
    let bare = scans.get(NO_CACHE).map_or(0.0, with_backup);
    for (system, scan) in SYSTEMS.iter().zip(scans).take(NO_CACHE) {
        let case = format!("total bandwidth of the day of a backup, {}", system.name());
        let row = Row::new(NAME, case, "MB/s").against("no-cache", with_backup(scan), bare);
        rows.push(row.note("the paper: slru below the bare disk on that day"));
    }
    rows
}

fn pictures(systems: &[&[Outcome]], scans: &[&Outcome]) -> Vec<Figure> {
    let figure = |title: &str, caption: &str, y_label: &str, series: Vec<Series>| {
        Figure::lines(title, caption, ("days", 1.0), Axis::linear(y_label), series)
    };
    let bandwidth = |of: Of| -> Vec<Series> {
        let line = |(system, outcomes): (&System, &&[Outcome])| {
            let days = outcomes.first().map_or(0, |o| o.days.len());
            let at = |day: usize| -> Vec<f64> {
                outcomes
                    .iter()
                    .filter_map(|o| o.days.get(day))
                    .map(|d| megabytes(of(&d.replayed)))
                    .collect()
            };
            let points = (0..days).map(|day| median(&at(day))).collect();
            Series { name: system.name().to_owned(), points }
        };
        SYSTEMS.iter().zip(systems).map(line).collect()
    };
    let hits = SYSTEMS.iter().zip(scans).take(NO_CACHE).map(|(system, scan)| Series {
        name: system.name().to_owned(),
        points: scan.days.iter().map(|day| day.replayed.reads.hit_ratio()).collect(),
    });
    let users = "Median of the users.";
    vec![
        figure("Total bandwidth", users, "MB/s", bandwidth(total)),
        figure("Write bandwidth", users, "MB/s", bandwidth(writes)),
        figure(
            "Hit ratio of reads, with a backup on the eighth day",
            "User 5; the backup's own requests are left out.",
            "hit ratio",
            hits.collect(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: u64, seconds: u64, hits: u64) -> Part {
        Part { requests: 100, hits, bytes: bytes * 1_000_000, took: seconds * SECOND }
    }

    /// Ten equal days.
    fn outcome(read_seconds: u64, write_seconds: u64, rest_hits: u64) -> Outcome {
        let replayed = |hits| Replayed {
            reads: part(600, read_seconds, hits),
            writes: part(300, write_seconds, 0),
        };
        let day = Day { replayed: replayed(50), ..Day::default() };
        Outcome { days: vec![day; 10], rest: replayed(rest_hits), ..Outcome::default() }
    }

    #[test]
    fn write_bandwidth_is_of_the_time_of_writes_and_total_of_all() {
        let times = [[(50, 10), (50, 30)], [(50, 40), (50, 60)], [(60, 60), (60, 30)]];
        let systems: Vec<Vec<Outcome>> =
            times.iter().map(|t| t.map(|(r, w)| outcome(r, w, 50)).to_vec()).collect();
        let systems: Vec<&[Outcome]> = systems.iter().map(Vec::as_slice).collect();
        let rows = bandwidths(&systems, false);
        // 4 and 2; 120 to 60 s and 90 to 80 s.
        assert_eq!((rows[0].ratio, rows[0].reached), (Some(3.0), Some(true)));
        assert_eq!((rows[0].min, rows[0].max), (Some(2.0), Some(4.0)));
        let ratio = rows[1].ratio.unwrap();
        assert!((ratio - (2.0 + 1.125) / 2.0).abs() < 1e-9 && rows[1].reached == Some(true));
        assert_eq!(rows[1].unit, "MB/s");
        assert!((rows[0].ours.unwrap() - 20.0).abs() < 1e-9);
    }

    #[test]
    fn what_a_backup_leaves_is_held_against_the_day_before() {
        let scans = [outcome(1, 1, 48), outcome(1, 1, 47), outcome(1, 1, 10), outcome(1, 1, 50)];
        let scans: Vec<&Outcome> = scans.iter().collect();
        let rows = scan_rows(&scans, &scans, false);
        let reached: Vec<Option<bool>> = rows[..8].iter().map(|row| row.reached).collect();
        let yes = Some(true);
        assert_eq!(reached, [yes, yes, Some(false), yes, None, None, None, None]);
        assert_eq!(rows[4].ratio, Some(0.2));
    }
}
