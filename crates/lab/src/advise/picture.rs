// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice as a page: both curves over the size of flash, with the knee marked, below what is advised and above
//! all numbers.

use larder_report::{
    About, Axis, Cell, Column, Curve, Figure, Section, Table, TableRow, html, number,
};

use super::advice::Advice;
use super::points::MIB;
use super::words::size;
use crate::replays::Point;

/// The page.
#[must_use]
pub fn page(about: &About, advice: &Advice) -> String {
    let figures = Section::of(vec![latencies(advice), misses(advice)]);
    html(about, &[Section::table(says(advice)), figures, Section::table(points(advice))])
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}

fn curve(name: &str, ours: Vec<(f64, f64)>) -> Curve {
    Curve { name: name.to_owned(), ours, paper: Vec::new() }
}

/// Latency by size: the presets, the origin alone, and the knee.
fn latencies(advice: &Advice) -> Figure {
    let mut curves: Vec<Curve> = Vec::new();
    for point in &advice.points {
        let at = (mib(point.flash_bytes), point.us());
        match curves.iter_mut().find(|curve| curve.name == point.system) {
            Some(curve) => curve.ours.push(at),
            None => curves.push(curve(&point.system, vec![at])),
        }
    }
    let ends = [advice.points.first(), advice.points.last()].into_iter().flatten();
    let alone = ends.map(|point| (mib(point.flash_bytes), advice.alone.us())).collect();
    curves.push(curve("no-cache", alone));
    if let Some(advised) = &advice.advised {
        let at = (mib(advised.point.flash_bytes), advised.point.us());
        curves.push(curve("knee", vec![at]));
    }
    let what = if advice.alone.read_us_mean.is_some() { "read" } else { "write" };
    let (x, y) = (Axis::log("flash, MiB"), Axis::linear(&format!("mean {what}, us")));
    Figure::curves("What a client waits", &advice.verdict, x, y, curves)
}

fn misses(advice: &Advice) -> Figure {
    let at = advice.miss_ratio_curve.iter().map(|m| (mib(m.flash_bytes), m.miss_ratio));
    let y = Axis { most: Some(1.0), ..Axis::linear("miss ratio") };
    let caption = "Of accesses to pages of 4 KiB, reads and writes.";
    let curves = vec![curve("LRU", at.collect())];
    Figure::curves("What LRU misses", caption, Axis::log("flash, MiB"), y, curves)
}

/// What is advised, and what it rests on.
fn says(advice: &Advice) -> Table {
    let row = |what: &str, text: &str| TableRow {
        cells: vec![Cell::text(what), Cell::text(text)],
        note: String::new(),
    };
    let mut rows = vec![row("advice", &advice.verdict)];
    rows.extend(advice.assumptions.iter().map(|text| row("assumed", text)));
    let lines = advice.toml.iter().flat_map(|toml| toml.lines());
    rows.extend(lines.map(|line| row("configuration", line)));
    Table { title: "Advice".to_owned(), columns: vec![Column::words(""), Column::words("")], rows }
}

fn points(advice: &Advice) -> Table {
    let titles = ["hit ratio", "read, us", "read p99, us", "write, us", "flash written, MiB"];
    let words = ["system", "flash"].map(Column::words);
    let columns = words.into_iter().chain(titles.map(Column::numbers)).collect();
    let row = |point: &Point| {
        let flash = if point.flash_bytes > 0 { size(point.flash_bytes) } else { String::new() };
        let numbers = [point.hit_ratio, point.read_us_mean, point.read_us_p99, point.write_us_mean];
        let written = Cell::text(&number(mib(point.flash_write_bytes)));
        let cells = [Cell::text(&point.system), Cell::text(&flash)].into_iter();
        let cells = cells.chain(numbers.map(Cell::number)).chain([written]).collect();
        TableRow { cells, note: String::new() }
    };
    let rows = [&advice.alone].into_iter().chain(&advice.points).map(row).collect();
    Table { title: "Points".to_owned(), columns, rows }
}
