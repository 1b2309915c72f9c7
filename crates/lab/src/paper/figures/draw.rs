// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the tables of figures, the rows and the runs that they made to the sections of a report.
//!
//! Invariants: a value is the median over the seeds; equal points give equal pictures; a picture whose points were not run
//! names them in its place, and one whose runs lack a point is an error.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use larder_report::{
    Axis, Bar, Cell, Column, Columns, Curve, Figure as Drawn, Item, Link, Section, Table as Values,
    TableRow, Tone,
};

use super::super::claims::claim;
use super::super::runs::{Runs, mean, medians, rounded};
use super::super::{Asked, Row};
use super::entry::{Figure, Kind, Of, Panel, Places, Series, Shows, Table, X, Y};

const DAYS: usize = 10;
/// Series with more points have no table of values.
const FEW: usize = 60;

/// A series as it is drawn.
struct Line {
    name: String,
    ours: Vec<(f64, f64)>,
    paper: Vec<(f64, f64)>,
}

/// What a picture is drawn from.
struct Found<'a> {
    asked: &'a Asked,
    rows: &'a [Row],
}

/// Sections of the figures of a paper: one for each that has pictures, and lines of a table of the others.
pub(in super::super) fn sections(
    table: &Table,
    asked: &Asked,
    rows: &[Row],
) -> Result<(Vec<Section>, Vec<TableRow>)> {
    let (mut drawn, mut rest) = (vec![heading(table)], Vec::new());
    let found = Found { asked, rows };
    for figure in &table.figures {
        match &figure.shows {
            Shows::Panels(panels) => drawn.push(found.section(table, figure, panels)?),
            Shows::Nothing(why) => rest.push(found.missing(table, figure, why)),
        }
    }
    Ok((drawn, rest))
}

/// The heading of a paper, with links to its figures.
fn heading(table: &Table) -> Section {
    let link =
        |figure: &Figure| Link { text: figure.label.clone(), to: figure.anchor(table.paper) };
    Section {
        title: format!("The figures of {}", table.name),
        anchor: format!("{}-figures", table.paper),
        links: table.figures.iter().map(link).collect(),
        ..Section::default()
    }
}

/// The tone of a row's verdict.
pub(in super::super) fn tone(row: &Row) -> Tone {
    use super::super::Verdict::{Differs, Holds, NotMeasured, NotReproducible};
    match row.verdict {
        Holds => Tone::Good,
        Differs => Tone::Bad,
        NotMeasured | NotReproducible => Tone::Plain,
    }
}

impl Found<'_> {
    fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }

    /// A link to a claim, if its row is on the page.
    fn link(&self, id: &str) -> Link {
        let to = self.row(id).map(|row| row.id.to_owned()).unwrap_or_default();
        Link { text: id.to_owned(), to }
    }

    /// The line of a figure without a picture.
    fn missing(&self, table: &Table, figure: &Figure, why: &str) -> TableRow {
        let name = format!("{} {}", table.name, figure.label);
        let links = figure.claims.iter().map(|id| self.link(id)).collect();
        let cells = vec![
            Cell { anchor: figure.anchor(table.paper), ..Cell::text(&name) },
            Cell::text(figure.title),
            Cell::text(why),
            Cell { links, ..Cell::default() },
        ];
        TableRow { cells, note: String::new() }
    }

    fn section(&self, table: &Table, figure: &Figure, panels: &[Panel]) -> Result<Section> {
        let (mut figures, mut folded) = (Vec::new(), Vec::new());
        for panel in panels {
            let title = format!("{} {}{}", table.name, figure.label, panel.title);
            match self.lines(panel).with_context(|| title.clone())? {
                Ok(lines) => {
                    figures.push(drawn(&title, panel, &lines));
                    folded.extend(values(panel, &lines));
                }
                Err(absent) => figures.push(Drawn::missing(&title, &absent)),
            }
        }
        let columns = ["picture", "series", "at"].map(Column::words).into_iter();
        let columns = columns.chain(["ours", "the paper"].map(Column::numbers)).collect();
        let title = format!("{} {}, values", table.name, figure.label);
        let values = Values { title, columns, rows: folded };
        let items = figure.claims.iter().map(|id| self.claim(id)).collect::<Result<_>>()?;
        Ok(Section {
            title: format!("{} {}: {}", table.name, figure.label, figure.title),
            anchor: figure.anchor(table.paper),
            text: self.text(figure, panels),
            items,
            figures,
            folded: if values.rows.is_empty() { Vec::new() } else { vec![values] },
            ..Section::default()
        })
    }

    /// The caption, the scale of the runs, and where the paper's values are from.
    fn text(&self, figure: &Figure, panels: &[Panel]) -> String {
        let all = || panels.iter().flat_map(|panel| &panel.series);
        let mut text = figure.caption.to_owned();
        let runs = all().filter_map(|one| self.asked.made(one.of.file()?));
        let scales: BTreeSet<String> = runs.map(|runs| runs.scale()).collect();
        let scales: Vec<String> =
            scales.into_iter().filter(|scale| !scale.is_empty() && scale != "1").collect();
        if !scales.is_empty() {
            text.push_str(&format!(" Ours at a scale of {}.", scales.join(" and ")));
        }
        let states = |one: &Series| {
            !one.paper.is_empty()
                || matches!(&one.of, Of::Row { id, at } if self.row(id).is_some_and(|row| {
                    row.points.iter().any(|point| at.contains(&point.at) && point.paper.is_some())
                }))
        };
        let is_absent = |one: &Series| match &one.of {
            Of::Row { id, .. } => self.row(id).is_none(),
            _ => false,
        };
        let places: BTreeSet<&str> = all().filter_map(|one| one.printed).collect();
        if !places.is_empty() {
            let places: Vec<&str> = places.into_iter().collect();
            text.push_str(&format!(" The paper's values: {}.", places.join("; ")));
        } else if !all().any(|one| states(one) || is_absent(one)) {
            text.push_str(" The paper prints no values of this figure.");
        }
        text
    }

    /// A line of the claim of a figure, with its verdict.
    fn claim(&self, id: &str) -> Result<Item> {
        let (link, statement) = (self.link(id), claim(id)?.statement.clone());
        let Some(row) = self.row(id) else {
            return Ok(Item {
                link,
                word: "not run".to_owned(),
                text: statement,
                tone: Tone::Plain,
            });
        };
        let ours = match row.ours_text() {
            ours if ours.is_empty() => ours,
            ours => format!("; ours: {ours}"),
        };
        let text = format!("{statement} (the paper: {}{ours})", row.paper_text());
        Ok(Item { link, word: row.verdict_text().to_owned(), tone: tone(row), text })
    }

    /// The series of a picture; the reason if some of them were not run.
    fn lines(&self, panel: &Panel) -> Result<Result<Vec<Line>, String>> {
        let (mut lines, mut absent) = (Vec::new(), BTreeSet::new());
        for series in &panel.series {
            match self.line(panel, series)? {
                Some(line) => lines.push(line),
                None => {
                    absent.insert(match &series.of {
                        Of::Row { id, .. } => format!("row {id}"),
                        of => format!("scenario {}", of.file().unwrap_or_default()),
                    });
                }
            }
        }
        if !absent.is_empty() {
            let absent: Vec<String> = absent.into_iter().collect();
            return Ok(Err(format!("Not run: {}.", absent.join(", "))));
        }
        spread_levels(panel, &mut lines);
        Ok(Ok(lines))
    }

    /// A series; `None` if its points were not run.
    fn line(&self, panel: &Panel, series: &Series) -> Result<Option<Line>> {
        let name = series.name.clone();
        if let Of::Row { id, at } = &series.of {
            return self.row_line(name, id, at, panel.times());
        }
        let mut line = Line { name, ours: Vec::new(), paper: series.paper.clone() };
        let Some(file) = series.of.file() else { return Ok(Some(line)) };
        let Some(runs) = self.asked.made(file) else { return Ok(None) };
        let times = panel.times();
        let ours = numbers(&runs, &series.of)?.into_iter().map(|value| value * times);
        line.ours = panel.places(&series.of).zip(ours).collect();
        Ok(Some(line))
    }

    /// Points of a row, which bring the paper's values.
    fn row_line(&self, name: String, id: &str, at: &[String], times: f64) -> Result<Option<Line>> {
        let Some(row) = self.row(id) else { return Ok(None) };
        let mut line = Line { name, ours: Vec::new(), paper: Vec::new() };
        for (place, at) in at.iter().enumerate() {
            let point = row.points.iter().find(|point| point.at == *at);
            let point = point.with_context(|| format!("row {id} has no point '{at}'"))?;
            let place = place as f64;
            line.ours.extend(point.ours.map(|value| (place, value * times)));
            line.paper.extend(point.paper.map(|value| (place, value * times)));
        }
        Ok(Some(line))
    }
}

/// The medians over seeds of the numbers of a series.
fn numbers(runs: &Runs, of: &Of) -> Result<Vec<f64>> {
    let one = |fixed: &[(&str, &str)], pointer: &str| Ok(rounded(&runs.at(fixed, pointer)?));
    match of {
        Of::Along { fixed, path, values, pointer, .. } => {
            let at = |value: &&str| {
                let mut set = fixed.clone();
                set.push((path, value));
                one(&set, pointer)
            };
            values.iter().map(at).collect()
        }
        Of::Level { fixed, pointer, .. } => Ok(vec![one(fixed, pointer)?]),
        Of::List { fixed, pointer, .. } => {
            let (path, value) = fixed.first().copied().unwrap_or_default();
            Ok(medians(&runs.lists(path, value, pointer)?))
        }
        Of::Days { fixed, pointer, mean: over, .. } => {
            let day = |day: usize| {
                let pointer = format!("/days/{day}/{pointer}");
                let Some((path, values)) = over else { return one(fixed, &pointer) };
                let each = runs.each(|seed| {
                    let of = |value: &&'static str| {
                        let mut set = fixed.clone();
                        set.push((path, value));
                        seed.number(&set, &pointer)
                    };
                    Ok(mean(&values.iter().map(of).collect::<Result<Vec<_>>>()?))
                })?;
                Ok(rounded(&each))
            };
            (0..DAYS).map(day).collect()
        }
        Of::Row { .. } => Ok(Vec::new()),
    }
}

/// A level goes from the first place of the other series to the last.
fn spread_levels(panel: &Panel, lines: &mut [Line]) {
    if !matches!(panel.picture, Kind::Curves(..)) {
        return;
    }
    let is_level = |series: &Series| matches!(series.of, Of::Level { .. });
    let places = || {
        let drawn = panel.series.iter().zip(lines.iter()).filter(|(series, _)| !is_level(series));
        drawn.flat_map(|(_, line)| line.ours.iter().map(|(x, _)| *x))
    };
    let (first, last) =
        (places().fold(f64::INFINITY, f64::min), places().fold(f64::NEG_INFINITY, f64::max));
    for (series, line) in panel.series.iter().zip(lines) {
        if let (true, [(_, value)]) = (is_level(series), line.ours.as_slice()) {
            line.ours = vec![(first, *value), (last, *value)];
        }
    }
}

impl Panel {
    /// What the values of the points are multiplied by.
    fn times(&self) -> f64 {
        match &self.picture {
            Kind::Curves(_, y) | Kind::Columns(_, y) => y.unit.times,
            Kind::Bars(unit) => unit.times,
        }
    }

    /// The places of the values of a series.
    fn places(&self, of: &Of) -> Box<dyn Iterator<Item = f64>> {
        let at = match &self.picture {
            Kind::Curves(x, _) | Kind::Columns(x, _) => &x.at,
            Kind::Bars(_) => &Places::Names(Vec::new()),
        };
        match (at, of) {
            (Places::Numbers { times, .. }, Of::Along { values, .. }) => {
                let numbers: Vec<f64> =
                    values.iter().map(|v| v.parse().unwrap_or(f64::NAN) * times).collect();
                Box::new(numbers.into_iter())
            }
            (Places::Steps(step), _) => {
                let step = *step;
                Box::new((0..).map(move |i| (f64::from(i) + 0.5) * step))
            }
            _ => Box::new((0..).map(f64::from)),
        }
    }
}

/// The picture of a panel.
fn drawn(title: &str, panel: &Panel, lines: &[Line]) -> Drawn {
    let x_axis = |x: &X| match &x.at {
        Places::Numbers { log: true, .. } => Axis::log(x.label),
        Places::Names(names) => Axis::names(x.label, names),
        Places::Numbers { .. } | Places::Steps(_) => Axis::linear(x.label),
    };
    let y_axis = |y: &Y| Axis {
        log: y.log,
        most: y.most,
        ..Axis::linear(&format!("{}{}", y.unit.label, if y.log { " (logarithmic)" } else { "" }))
    };
    match &panel.picture {
        Kind::Curves(x, y) => {
            let curve = |line: &Line| Curve {
                name: line.name.clone(),
                ours: line.ours.clone(),
                paper: line.paper.clone(),
            };
            Drawn::curves(title, "", x_axis(x), y_axis(y), lines.iter().map(curve).collect())
        }
        Kind::Columns(x, y) => {
            let groups = match &x.at {
                Places::Names(names) => names.len(),
                Places::Numbers { .. } | Places::Steps(_) => 0,
            };
            let of = |line: &Line| Columns {
                name: line.name.clone(),
                ours: (0..groups).map(|group| at(&line.ours, group)).collect(),
                paper: (0..groups).map(|group| at(&line.paper, group)).collect(),
            };
            Drawn::columns(title, "", x_axis(x), y_axis(y), lines.iter().map(of).collect())
        }
        Kind::Bars(unit) => {
            let bar = |line: &Line| Bar {
                name: line.name.clone(),
                value: at(&line.ours, 0),
                paper: at(&line.paper, 0),
            };
            Drawn::bars_beside(title, "", unit.label, lines.iter().map(bar).collect())
        }
    }
}

/// The value at a place that is counted.
fn at(points: &[(f64, f64)], place: usize) -> Option<f64> {
    points.iter().find(|(x, _)| *x == place as f64).map(|(_, y)| *y)
}

/// Lines of the table of values of a figure, where a picture has few.
fn values(panel: &Panel, lines: &[Line]) -> Vec<TableRow> {
    if lines.iter().any(|line| line.ours.len() > FEW) {
        return Vec::new();
    }
    let place = |x: f64| match &panel.picture {
        Kind::Bars(_) => String::new(),
        Kind::Curves(axis, _) | Kind::Columns(axis, _) => match &axis.at {
            Places::Names(names) => names.get(x as usize).copied().unwrap_or_default().to_owned(),
            Places::Numbers { .. } | Places::Steps(_) => larder_report::number(x),
        },
    };
    let unit = match &panel.picture {
        Kind::Bars(unit) => unit.label,
        Kind::Curves(_, y) | Kind::Columns(_, y) => y.unit.label,
    };
    let picture = match panel.title.trim_start_matches([',', ':', ' ']) {
        "" => unit.to_owned(),
        title => format!("{title} [{unit}]"),
    };
    let same = |points: &[(f64, f64)], x: f64| {
        points.iter().find(|(other, _)| *other == x).map(|(_, y)| *y)
    };
    let mut rows = Vec::new();
    for line in lines {
        let alone = line.paper.iter().filter(|(x, _)| same(&line.ours, *x).is_none());
        let mut places: Vec<f64> = line.ours.iter().chain(alone).map(|(x, _)| *x).collect();
        places.sort_by(f64::total_cmp);
        rows.extend(places.into_iter().map(|x| {
            let mut cells = [&picture, &line.name, &place(x)].map(|text| Cell::text(text)).to_vec();
            cells.extend([same(&line.ours, x), same(&line.paper, x)].map(Cell::number));
            TableRow { cells, note: String::new() }
        }));
    }
    rows
}
