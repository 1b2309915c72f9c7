// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of a sweep as an HTML page: a curve for each figure that was sampled over time, and a table of all
//! numbers.

use std::collections::BTreeMap;

use larder_lab::scenario::{Line, Scenario};
use larder_report::{
    self as report, About, Axis, Cell, Column, Curve, Figure, Section, Table, TableRow,
};
use serde_json::Value as Json;

use crate::out;

/// The page.
pub(super) fn html(scenario: &Scenario, lines: &[Line]) -> String {
    let seed = lines.first().and_then(|line| line.settings.get("seed")).map(Json::to_string);
    let about = About {
        title: format!("Larder: {}", scenario.name),
        command: out::command_line(),
        seeds: seed.unwrap_or_else(|| "by default".to_owned()),
    };
    report::html(&about, &[Section::of(figures(lines)), Section::table(table(lines))])
}

/// The settings of the grid at a point.
fn name(line: &Line) -> String {
    let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let at: Vec<String> = line.at.iter().map(|(path, v)| format!("{path} {}", text(v))).collect();
    if at.is_empty() {
        let system = line.settings.get("system").and_then(Json::as_str);
        return system.unwrap_or("result").to_owned();
    }
    at.join(", ")
}

/// The sampled figures of all points, each over the time of its samples.
fn figures(lines: &[Line]) -> Vec<Figure> {
    let mut curves: BTreeMap<&str, Vec<Curve>> = BTreeMap::new();
    for line in lines {
        let Some(samples) = line.result.get("samples").and_then(Json::as_object) else { continue };
        for (key, values) in samples.iter().filter(|(key, _)| *key != "at_seconds") {
            let values = values.as_array().map(Vec::as_slice).unwrap_or_default();
            let at = |i: usize| match samples.get("at_seconds") {
                Some(at) => at.get(i)?.as_f64(),
                None => Some((i + 1) as f64 * line.number("sample_seconds")?),
            };
            let points = values.iter().enumerate();
            let ours = points.filter_map(|(i, value)| Some((at(i)?, value.as_f64()?))).collect();
            let curve = Curve { name: name(line), ours, paper: Vec::new() };
            curves.entry(key).or_default().push(curve);
        }
    }
    let figure = |(key, curves): (&str, Vec<Curve>)| {
        let most = key.ends_with("ratio").then_some(1.0);
        let (x, y) = (Axis::linear("seconds"), Axis { most, ..Axis::linear(key) });
        Figure::curves(&format!("{key} over time"), "From a cold start.", x, y, curves)
    };
    curves.into_iter().map(figure).collect()
}

/// A row for each number, a column for each point.
fn table(lines: &[Line]) -> Table {
    let mut keys: Vec<String> = Vec::new();
    lines.iter().for_each(|line| numbers(&line.result, "", &mut keys));
    let points = lines.iter().map(|line| Column::numbers(&name(line)));
    let row = |key: &String| {
        let cells = lines.iter().map(|line| Cell::number(line.number(key)));
        TableRow {
            cells: [Cell::text(key)].into_iter().chain(cells).collect(),
            note: String::new(),
        }
    };
    Table {
        title: "All numbers".to_owned(),
        columns: [Column::words("figure")].into_iter().chain(points).collect(),
        rows: keys.iter().map(row).collect(),
    }
}

/// The paths of all numbers that are not there yet.
fn numbers(value: &Json, path: &str, keys: &mut Vec<String>) {
    let Json::Object(fields) = value else { return };
    for (key, value) in fields {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if value.is_number() && !keys.contains(&path) {
            keys.push(path.clone());
        }
        numbers(value, &path, keys);
    }
}
