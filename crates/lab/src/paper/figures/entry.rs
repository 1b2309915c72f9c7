// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tables of figures consist of: figures, their pictures, series, and where the points of a series are.
//!
//! Invariant: an entry is data; it holds no function, and nothing of a run.

/// A setting of a scenario and its value.
pub(super) type Setting = (&'static str, &'static str);

/// The figures of a paper, and its name as they are cited.
pub(in super::super) struct Table {
    /// As in `larder paper NAME`.
    pub(in super::super) paper: &'static str,
    /// As in the headings.
    pub(in super::super) name: &'static str,
    /// The figures.
    pub(in super::super) figures: Vec<Figure>,
}

/// A figure of a paper, or a table that is drawn as one.
pub(in super::super) struct Figure {
    /// "Figure 7".
    pub(in super::super) label: String,
    /// What it shows, in our own words.
    pub(in super::super) title: &'static str,
    /// What the paper concludes from it, and what differs in ours.
    pub(in super::super) caption: &'static str,
    /// The claims that it belongs to.
    pub(in super::super) claims: Vec<&'static str>,
    /// The pictures, or why there is none.
    pub(in super::super) shows: Shows,
}

/// The pictures of a figure.
pub(in super::super) enum Shows {
    /// One for each part of the figure.
    Panels(Vec<Panel>),
    /// None, for this reason: one sentence.
    Nothing(&'static str),
}

/// A part of a figure: one picture.
pub(in super::super) struct Panel {
    pub(in super::super) title: String,
    pub(in super::super) picture: Kind,
    pub(in super::super) series: Vec<Series>,
}

/// How it is drawn.
pub(in super::super) enum Kind {
    /// Curves over a quantity.
    Curves(X, Y),
    /// Columns in groups, which the axis names.
    Columns(X, Y),
    /// A bar for each series, with this unit.
    Bars(Unit),
}

/// The horizontal axis.
pub(in super::super) struct X {
    pub(in super::super) label: &'static str,
    pub(in super::super) at: Places,
}

/// Where the values of a series lie on it.
pub(in super::super) enum Places {
    /// At the number that the setting has.
    Numbers {
        /// On a logarithmic axis.
        log: bool,
        /// What the numbers are multiplied by.
        times: f64,
    },
    /// At a name for each value.
    Names(Vec<&'static str>),
    /// In the middle of equal steps, so long each.
    Steps(f64),
}

/// The unit of values.
#[derive(Clone, Copy)]
pub(in super::super) struct Unit {
    pub(in super::super) label: &'static str,
    /// What the values of the points are multiplied by.
    pub(in super::super) times: f64,
}

/// The vertical axis.
#[derive(Clone, Copy)]
pub(in super::super) struct Y {
    pub(in super::super) unit: Unit,
    pub(in super::super) log: bool,
    pub(in super::super) most: Option<f64>,
}

/// A series: ours and the paper's.
pub(in super::super) struct Series {
    /// The paper's name of it.
    pub(in super::super) name: String,
    /// Where ours is.
    pub(in super::super) of: Of,
    /// The paper's values, by place; a row brings its own.
    pub(in super::super) paper: Vec<(f64, f64)>,
    /// Where the paper prints these, if no claim of the figure states them.
    pub(in super::super) printed: Option<&'static str>,
}

/// Where a series is.
pub(in super::super) enum Of {
    /// A number of each point at which a setting has one of these values.
    Along {
        file: &'static str,
        fixed: Vec<Setting>,
        path: &'static str,
        values: Vec<&'static str>,
        pointer: String,
    },
    /// One number, the same everywhere on the axis.
    Level { file: &'static str, fixed: Vec<Setting>, pointer: String },
    /// A list of numbers in one point.
    List { file: &'static str, fixed: Vec<Setting>, pointer: String },
    /// A number of each of ten days, in the mean of the points at which a setting has these values, if there are any.
    Days {
        file: &'static str,
        fixed: Vec<Setting>,
        pointer: &'static str,
        mean: Option<(&'static str, &'static [&'static str])>,
    },
    /// Points of a row, by their names.
    Row { id: &'static str, at: Vec<String> },
}

impl Of {
    /// The scenario file that it needs.
    pub(super) fn file(&self) -> Option<&'static str> {
        match self {
            Self::Along { file, .. }
            | Self::Level { file, .. }
            | Self::List { file, .. }
            | Self::Days { file, .. } => Some(file),
            Self::Row { .. } => None,
        }
    }
}

/// A figure with pictures.
pub(super) fn figure(
    number: u32,
    title: &'static str,
    caption: &'static str,
    claims: &[&'static str],
    panels: Vec<Panel>,
) -> Figure {
    let (label, claims) = (format!("Figure {number}"), claims.to_vec());
    Figure { label, title, caption, claims, shows: Shows::Panels(panels) }
}

/// A figure without one.
pub(super) fn without(
    number: u32,
    title: &'static str,
    claims: &[&'static str],
    why: &'static str,
) -> Figure {
    Figure { shows: Shows::Nothing(why), ..figure(number, title, "", claims, Vec::new()) }
}

impl Figure {
    /// The same of a table, or of a section.
    pub(super) fn labelled(self, label: &str) -> Self {
        Self { label: label.to_owned(), ..self }
    }

    /// Its part of the page: `sce-figure-7`.
    pub(in super::super) fn anchor(&self, paper: &str) -> String {
        format!("{paper}-{}", self.label.to_lowercase().replace([' ', '.'], "-"))
    }
}

pub(super) fn curves(title: impl Into<String>, x: X, y: Y, series: Vec<Series>) -> Panel {
    Panel { title: title.into(), picture: Kind::Curves(x, y), series }
}

pub(super) fn columns(title: impl Into<String>, x: X, y: Y, series: Vec<Series>) -> Panel {
    Panel { title: title.into(), picture: Kind::Columns(x, y), series }
}

pub(super) fn bars(title: impl Into<String>, unit: Unit, series: Vec<Series>) -> Panel {
    Panel { title: title.into(), picture: Kind::Bars(unit), series }
}

/// An axis of the numbers of a setting.
pub(super) fn numbers(label: &'static str) -> X {
    X { label, at: Places::Numbers { log: false, times: 1.0 } }
}

/// A logarithmic one.
pub(super) fn logarithmic(label: &'static str) -> X {
    X { label, at: Places::Numbers { log: true, times: 1.0 } }
}

pub(super) fn names(label: &'static str, names: &[&'static str]) -> X {
    X { label, at: Places::Names(names.to_vec()) }
}

pub(super) fn steps(label: &'static str, step: f64) -> X {
    X { label, at: Places::Steps(step) }
}

/// A unit in which values of points count so many times.
pub(super) fn unit(label: &'static str, times: f64) -> Unit {
    Unit { label, times }
}

pub(super) fn linear(label: &'static str, times: f64) -> Y {
    Y { unit: unit(label, times), log: false, most: None }
}

/// A logarithmic axis of values.
pub(super) fn log(label: &'static str, times: f64) -> Y {
    Y { log: true, ..linear(label, times) }
}

/// Per cent, of ratios.
pub(super) fn percent(label: &'static str) -> Y {
    Y { most: Some(100.0), ..linear(label, 100.0) }
}

pub(super) fn series(name: impl Into<String>, of: Of) -> Series {
    Series { name: name.into(), of, paper: Vec::new(), printed: None }
}

impl Series {
    /// The paper's values, which claims of the figure also state.
    pub(super) fn paper(self, paper: &[(f64, f64)]) -> Self {
        Self { paper: paper.to_vec(), ..self }
    }

    /// Where the paper prints the values that a row brings, if its claim does not state them.
    pub(super) fn stated(self, place: &'static str) -> Self {
        Self { printed: Some(place), ..self }
    }

    /// The paper's values, which it prints there, and no claim states.
    pub(super) fn printed(self, place: &'static str, paper: &[(f64, f64)]) -> Self {
        Self { printed: Some(place), ..self.paper(paper) }
    }
}

pub(super) fn along(
    file: &'static str,
    fixed: &[Setting],
    (path, values): (&'static str, &[&'static str]),
    pointer: &str,
) -> Of {
    let (fixed, values) = (fixed.to_vec(), values.to_vec());
    Of::Along { file, fixed, path, values, pointer: pointer.to_owned() }
}

pub(super) fn level(file: &'static str, fixed: &[Setting], pointer: &str) -> Of {
    Of::Level { file, fixed: fixed.to_vec(), pointer: pointer.to_owned() }
}

pub(super) fn list(file: &'static str, fixed: &[Setting], pointer: &str) -> Of {
    Of::List { file, fixed: fixed.to_vec(), pointer: pointer.to_owned() }
}

pub(super) fn row<S: Into<String>>(id: &'static str, at: impl IntoIterator<Item = S>) -> Of {
    Of::Row { id, at: at.into_iter().map(Into::into).collect() }
}

/// The same of several series.
pub(super) fn stated(place: &'static str, all: Vec<Series>) -> Vec<Series> {
    all.into_iter().map(|one| one.stated(place)).collect()
}

/// Bars of the points of a row: their names in the picture and in the row.
pub(super) fn row_bars(id: &'static str, points: &[(&'static str, &'static str)]) -> Vec<Series> {
    points.iter().map(|(name, at)| series(*name, row(id, [*at]))).collect()
}
