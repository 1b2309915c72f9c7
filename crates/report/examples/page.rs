// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws a report from a description in JSON, for measurements that scripts make: `page FILE.json >FILE.html`.
//!
//! Invariants: the description has the parts of the report under their own names, and a name that no part has is an error.
//!
//! Why not a command of `larder`: operators have no use for it, and the names of the description are no interface of a release.
//! Why no drawing in the scripts: a second drawing of charts would differ from this one in looks and in what it promises.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::{env, fs};

use larder_report::{
    About, Axis, Cell, Column, Columns, Figure, Heat, Section, Series, Spread, Table, TableRow,
    Tone, html,
};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    title: String,
    command: String,
    seeds: String,
    sections: Vec<Part>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Part {
    title: String,
    text: String,
    tables: Vec<Sheet>,
    figures: Vec<Drawn>,
    folded: Vec<Sheet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sheet {
    title: String,
    columns: Vec<Heading>,
    rows: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Heading {
    title: String,
    number: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    cells: Vec<Field>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Field {
    Text(String),
    Toned { text: String, tone: Mood },
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mood {
    Good,
    Bad,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Points {
    name: String,
    points: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    name: String,
    values: Vec<Option<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Latencies {
    name: String,
    p50: f64,
    p95: f64,
    p99: f64,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
enum Drawn {
    Bars {
        title: String,
        caption: String,
        unit: String,
        bars: Vec<(String, f64)>,
    },
    Lines {
        title: String,
        caption: String,
        x: String,
        step: f64,
        y: String,
        series: Vec<Points>,
    },
    Columns {
        title: String,
        caption: String,
        groups: Vec<String>,
        y: String,
        series: Vec<Values>,
    },
    Spreads {
        title: String,
        caption: String,
        unit: String,
        spreads: Vec<Latencies>,
    },
    Heat {
        title: String,
        caption: String,
        groups: Vec<String>,
        columns: Vec<String>,
        rows: Vec<Values>,
    },
}

fn cell(field: Field) -> Cell {
    match field {
        Field::Text(text) => Cell { text, ..Cell::default() },
        Field::Toned { text, tone: Mood::Good } => {
            Cell { text, tone: Tone::Good, ..Cell::default() }
        }
        Field::Toned { text, tone: Mood::Bad } => Cell { text, tone: Tone::Bad, ..Cell::default() },
    }
}

fn table(sheet: Sheet) -> Table {
    let row = |line: Line| TableRow {
        cells: line.cells.into_iter().map(cell).collect(),
        note: String::new(),
    };
    let column = |Heading { title, number }| Column { title, number };
    Table {
        title: sheet.title,
        columns: sheet.columns.into_iter().map(column).collect(),
        rows: sheet.rows.into_iter().map(row).collect(),
    }
}

fn figure(drawn: Drawn) -> Figure {
    match drawn {
        Drawn::Bars { title, caption, unit, bars } => Figure::bars(&title, &caption, &unit, bars),
        Drawn::Lines { title, caption, x, step, y, series } => {
            let series = series.into_iter().map(|Points { name, points }| Series { name, points });
            Figure::lines(&title, &caption, (&x, step), Axis::linear(&y), series.collect())
        }
        Drawn::Columns { title, caption, groups, y, series } => {
            let names: Vec<&str> = groups.iter().map(String::as_str).collect();
            let one = |Values { name, values }| Columns { name, ours: values, paper: Vec::new() };
            let columns = series.into_iter().map(one).collect();
            Figure::columns(&title, &caption, Axis::names("", &names), Axis::linear(&y), columns)
        }
        Drawn::Spreads { title, caption, unit, spreads } => {
            let one = |Latencies { name, p50, p95, p99 }| Spread { name, p50, p95, p99 };
            Figure::spreads(&title, &caption, &unit, spreads.into_iter().map(one).collect())
        }
        Drawn::Heat { title, caption, groups, columns, rows } => {
            let rows = rows.into_iter().map(|Values { name, values }| (name, values)).collect();
            Figure::heat(&title, &caption, Heat { groups, columns, rows })
        }
    }
}

fn section(part: Part) -> Section {
    Section {
        title: part.title,
        text: part.text,
        tables: part.tables.into_iter().map(table).collect(),
        figures: part.figures.into_iter().map(figure).collect(),
        folded: part.folded.into_iter().map(table).collect(),
        ..Section::default()
    }
}

fn page(file: &str) -> Result<String, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let page: Page = serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
    let about = About { title: page.title, command: page.command, seeds: page.seeds };
    let parts: Vec<Section> = page.sections.into_iter().map(section).collect();
    Ok(html(&about, &parts))
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (Some(file), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: page FILE.json");
        return ExitCode::from(2);
    };
    let written = page(&file).and_then(|html| {
        io::stdout().write_all(html.as_bytes()).map_err(|error| format!("standard output: {error}"))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
