// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a figure shows, without how it is drawn.

/// A line: one value for each step of the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What it is of.
    pub name: String,
    /// Values, the first one step after zero.
    pub points: Vec<f64>,
}

/// Latencies of one system.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Which.
    pub name: String,
    /// Half took at most this long ...
    pub p50: f64,
    /// ... 95 % this ...
    pub p95: f64,
    /// ... and 99 % this.
    pub p99: f64,
}

/// The kinds of picture.
#[derive(Clone, Debug, PartialEq)]
pub enum Picture {
    /// Lines over time.
    Lines {
        /// What the horizontal axis counts.
        x_label: String,
        /// How much of it a step is.
        x_step: f64,
        /// What the vertical axis shows.
        y_label: String,
        /// Its end; without, a round number above all values.
        y_most: Option<f64>,
        /// The lines.
        series: Vec<Series>,
    },
    /// A bar for each system.
    Bars {
        /// Of the values.
        unit: String,
        /// Name and value.
        bars: Vec<(String, f64)>,
    },
    /// Three dots for each system, on a logarithmic axis.
    Spreads {
        /// Of the values.
        unit: String,
        /// The systems.
        spreads: Vec<Spread>,
    },
}

/// A picture with its words.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Above it.
    pub title: String,
    /// Below it.
    pub caption: String,
    /// It.
    pub picture: Picture,
}

impl Figure {
    /// A bar for each system.
    #[must_use]
    pub fn bars(title: &str, caption: &str, unit: &str, bars: Vec<(String, f64)>) -> Self {
        let picture = Picture::Bars { unit: unit.to_owned(), bars };
        Self { title: title.to_owned(), caption: caption.to_owned(), picture }
    }

    /// Latencies of each system.
    #[must_use]
    pub fn spreads(title: &str, caption: &str, unit: &str, spreads: Vec<Spread>) -> Self {
        let picture = Picture::Spreads { unit: unit.to_owned(), spreads };
        Self { title: title.to_owned(), caption: caption.to_owned(), picture }
    }
}

/// Four digits, more for large numbers, no zeroes at the end.
#[must_use]
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", digits.clamp(0, 4) as usize);
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
        let text = [0.0, 0.25, 12.5, 1234.5, 0.12345, 3.0].map(number);
        assert_eq!(text, ["0", "0.25", "12.5", "1234", "0.1235", "3"]);
    }
}
