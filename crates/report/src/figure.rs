// SPDX-License-Identifier: MIT OR Apache-2.0
//! The content of a figure, independent of how it is drawn.

/// A line: one value for each step of the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Values, the first one step after zero.
    pub points: Vec<f64>,
}

/// Latencies of one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// The system.
    pub name: String,
    /// The median ...
    pub p50: f64,
    /// ... the 95th percentile ...
    pub p95: f64,
    /// ... and the 99th.
    pub p99: f64,
}

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The name beside it.
    pub name: String,
    /// Larder's value; a bar without one states that it was not measured.
    pub value: Option<f64>,
    /// The paper's value, drawn as a ring.
    pub paper: Option<f64>,
}

/// Columns of one colour: at most one in each group.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    /// The name in the legend.
    pub name: String,
    /// Larder's value in each group.
    pub ours: Vec<Option<f64>>,
    /// The paper's value in each group, drawn as a ring.
    pub paper: Vec<Option<f64>>,
}

/// Ratios of rows in groups of columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// The groups, side by side.
    pub groups: Vec<String>,
    /// The columns of each group.
    pub columns: Vec<String>,
    /// The rows: a name, and a ratio for each column of each group, where there is one.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// An axis of curves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    /// Whether it is logarithmic.
    pub log: bool,
    /// The end of a linear axis; `None` for a round number above all values.
    pub most: Option<f64>,
    /// Names in the place of numbers: the value 0 is the first of them.
    pub names: Vec<String>,
}

impl Axis {
    /// A linear axis from zero.
    #[must_use]
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), ..Self::default() }
    }

    /// A logarithmic axis.
    #[must_use]
    pub fn log(label: &str) -> Self {
        Self { log: true, ..Self::linear(label) }
    }

    /// An axis of names: the value 0 is the first of them.
    #[must_use]
    pub fn names(label: &str, names: &[&str]) -> Self {
        Self { names: names.iter().map(|name| (*name).to_owned()).collect(), ..Self::linear(label) }
    }

    /// The same axis with this end, whatever the values are.
    #[must_use]
    pub fn up_to(self, most: f64) -> Self {
        Self { most: Some(most), ..self }
    }
}

/// Values over another quantity: Larder's as a line, the paper's as rings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// The name in the legend.
    pub name: String,
    /// Larder's points, in order.
    pub ours: Vec<(f64, f64)>,
    /// The paper's points, where it states them.
    pub paper: Vec<(f64, f64)>,
}

/// The kinds of picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Picture {
    /// Lines over time.
    Lines {
        /// The quantity of the horizontal axis.
        x_label: String,
        /// How much of it one step is.
        x_step: f64,
        /// The vertical axis.
        y: Axis,
        /// The lines.
        series: Vec<Series>,
    },
    /// A bar for each system.
    Bars {
        /// The unit of the values.
        unit: String,
        /// The bars.
        bars: Vec<Bar>,
    },
    /// Columns in groups.
    Columns {
        /// The groups, as names of an axis.
        x: Axis,
        /// The vertical axis.
        y: Axis,
        /// The columns, series by series.
        series: Vec<Columns>,
    },
    /// Words where a picture would be.
    Missing(String),
    /// Curves over any quantity.
    Curves {
        /// The horizontal axis.
        x: Axis,
        /// The vertical axis.
        y: Axis,
        /// The curves.
        curves: Vec<Curve>,
    },
    /// Ratios in a grid.
    Heat(Heat),
    /// Three dots for each system, on a logarithmic axis.
    Spreads {
        /// The unit of the values.
        unit: String,
        /// The systems.
        spreads: Vec<Spread>,
    },
}

/// A picture with title and caption.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Above the picture.
    pub title: String,
    /// Below the picture.
    pub caption: String,
    /// The picture.
    pub picture: Picture,
}

impl Figure {
    /// A bar for each system.
    #[must_use]
    pub fn bars(title: &str, caption: &str, unit: &str, bars: Vec<(String, f64)>) -> Self {
        let bar = |(name, value)| Bar { name, value: Some(value), paper: None };
        Self::bars_beside(title, caption, unit, bars.into_iter().map(bar).collect())
    }

    /// A bar for each system, with the paper's values.
    #[must_use]
    pub fn bars_beside(title: &str, caption: &str, unit: &str, bars: Vec<Bar>) -> Self {
        Self::new(title, caption, Picture::Bars { unit: unit.to_owned(), bars })
    }

    /// Lines over time: the horizontal quantity and its step, then the vertical axis.
    #[must_use]
    pub fn lines(
        title: &str,
        caption: &str,
        (x_label, x_step): (&str, f64),
        y: Axis,
        series: Vec<Series>,
    ) -> Self {
        Self::new(title, caption, Picture::Lines { x_label: x_label.to_owned(), x_step, y, series })
    }

    /// Curves, with the paper's points.
    #[must_use]
    pub fn curves(title: &str, caption: &str, x: Axis, y: Axis, curves: Vec<Curve>) -> Self {
        Self::new(title, caption, Picture::Curves { x, y, curves })
    }

    /// Columns in groups, which are the names of the horizontal axis.
    #[must_use]
    pub fn columns(title: &str, caption: &str, x: Axis, y: Axis, series: Vec<Columns>) -> Self {
        Self::new(title, caption, Picture::Columns { x, y, series })
    }

    /// Words where a picture would be: why there is none.
    #[must_use]
    pub fn missing(title: &str, words: &str) -> Self {
        Self::new(title, "", Picture::Missing(words.to_owned()))
    }

    /// Latencies of each system.
    #[must_use]
    pub fn spreads(title: &str, caption: &str, unit: &str, spreads: Vec<Spread>) -> Self {
        Self::new(title, caption, Picture::Spreads { unit: unit.to_owned(), spreads })
    }

    /// Ratios in a grid.
    #[must_use]
    pub fn heat(title: &str, caption: &str, heat: Heat) -> Self {
        Self::new(title, caption, Picture::Heat(heat))
    }

    fn new(title: &str, caption: &str, picture: Picture) -> Self {
        Self { title: title.to_owned(), caption: caption.to_owned(), picture }
    }
}

/// Escapes text for HTML.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// A number with four significant digits: more for large numbers, and two for numbers below 0.1. No trailing zeroes.
#[must_use]
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let first = value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", (3 - first).clamp(0, 4.max(1 - first)) as usize);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_short() {
        let text = [0.0, 0.25, 12.5, 1234.5, 0.12345, 3.0, 0.006_275, 0.000_012_3].map(number);
        assert_eq!(text, ["0", "0.25", "12.5", "1234", "0.1235", "3", "0.0063", "0.000012"]);
    }
}
