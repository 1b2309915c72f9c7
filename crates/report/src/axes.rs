// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame of a picture: axes, ticks, and the position of a value.
//!
//! Invariants: linear axes begin at zero. Names have places of equal width. Logarithmic axes end at 1, 2 or 5 times a power of ten; zero, which has no
//! position on them, is drawn at their beginning under its own tick.

use std::fmt::Write as _;

use super::figure::escape;
use super::figure::number;

pub(super) const WIDTH: f64 = 720.0;
pub(super) const LINES_HEIGHT: f64 = 330.0;
const LEFT: f64 = 70.0;
pub(super) const RIGHT: f64 = 18.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 48.0;

pub(super) fn open(height: f64, title: &str) -> String {
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{title}\">\n"
    )
}

pub(super) fn text(out: &mut String, class: &str, x: f64, y: f64, label: &str) {
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{label}</text>");
}

pub(super) fn rule(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

/// The smallest of 1, 2 or 5 times a power of ten of which at most `most` cover `span`.
fn step(span: f64, most: f64) -> f64 {
    let mut step = 1e-6;
    for power in -6..12 {
        for digit in [1.0, 2.0, 5.0] {
            step = digit * 10f64.powi(power);
            if step * most >= span {
                return step;
            }
        }
    }
    step
}

/// Multiples of a round step from zero to `most`.
pub(super) fn ticks(most: f64, count: f64) -> Vec<f64> {
    let step = step(most, count);
    (0..=(most / step + 1e-9) as usize).map(|i| i as f64 * step).collect()
}

/// 1, 2 and 5 times the powers of ten from a millionth to a billion.
fn decades() -> Vec<f64> {
    let of = |power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power));
    (-6..9).flat_map(of).collect()
}

/// The range of an axis.
pub(super) enum Scale {
    /// From zero to this.
    Linear(f64),
    /// Between these values; `least` also stands for zero if a value is zero.
    Log { least: f64, most: f64, zero: bool },
    /// Places with these names; the value 0 is the middle of the first.
    Names(Vec<String>),
}

impl Scale {
    /// From zero to a round number above all values.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(1e-6, f64::max);
        let round = step(most, 5.0);
        Self::Linear((most / round).ceil() * round)
    }

    /// The narrowest logarithmic range that contains all values.
    pub(super) fn log(values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high, mut zero) = (f64::MAX, 1e-6, false);
        for value in values {
            zero |= value <= 0.0;
            if value > 0.0 {
                (low, high) = (value.min(low), value.max(high));
            }
        }
        let all = decades();
        let below = |v: f64| all.iter().copied().rfind(|d| *d <= v).unwrap_or(v);
        let mut least = below(low.min(high));
        if zero {
            least = below(least * 0.6);
        }
        let most = all.iter().copied().find(|d| *d >= high && *d > least).unwrap_or(high * 2.0);
        Self::Log { least, most, zero }
    }

    /// The position of a value, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match self {
            Self::Linear(most) => value / most,
            Self::Log { least, most, .. } => {
                (value.max(*least) / least).log10() / (most / least).log10()
            }
            Self::Names(names) => (value + 0.5) / names.len().max(1) as f64,
        };
        share.clamp(0.0, 1.0)
    }

    /// About `count` ticks, each with its label.
    pub(super) fn ticks(&self, count: f64) -> Vec<(f64, String)> {
        match self {
            Self::Linear(most) => ticks(*most, count).into_iter().map(|v| (v, number(v))).collect(),
            Self::Names(names) => {
                names.iter().enumerate().map(|(i, name)| (i as f64, name.clone())).collect()
            }
            Self::Log { least, most, zero } => {
                let within: Vec<f64> =
                    decades().into_iter().filter(|v| (*least..=*most).contains(v)).collect();
                let label = |v: f64| if *zero && v == *least { "0".to_owned() } else { number(v) };
                // Only powers of ten if all ticks would not fit.
                let few = within.len() as f64 > count.max(8.0) * 1.5;
                let round = |v: f64| (v.log10() - v.log10().round()).abs() < 1e-9;
                within
                    .into_iter()
                    .filter(|v| !few || v == least || round(*v))
                    .map(|v| (v, label(v)))
                    .collect()
            }
        }
    }
}

/// Both axes of a picture.
pub(super) struct Axes<'a> {
    pub(super) x_label: &'a str,
    pub(super) y_label: &'a str,
    pub(super) x: Scale,
    pub(super) y: Scale,
}

impl Axes<'_> {
    /// The coordinates of a point.
    pub(super) fn at(&self, x: f64, y: f64) -> (f64, f64) {
        self.place(self.x.share(x), self.y.share(y))
    }

    fn place(&self, across: f64, up: f64) -> (f64, f64) {
        (
            LEFT + (WIDTH - LEFT - RIGHT) * across,
            LINES_HEIGHT - BOTTOM - (LINES_HEIGHT - TOP - BOTTOM) * up,
        )
    }

    /// The width of the place of a name.
    pub(super) fn place_width(&self, names: usize) -> f64 {
        (WIDTH - LEFT - RIGHT) / names.max(1) as f64
    }

    /// Grid, ticks and labels.
    pub(super) fn draw(&self, out: &mut String) {
        for (y, label) in self.y.ticks(5.0) {
            let (x0, at) = self.place(0.0, self.y.share(y));
            let class = if self.y.share(y) == 0.0 { "axis" } else { "grid" };
            rule(out, class, (x0, at), (WIDTH - RIGHT, at));
            text(out, "tick end", x0 - 8.0, at + 4.5, &label);
        }
        for (x, label) in self.x.ticks(10.0) {
            let (at, y0) = self.place(self.x.share(x), 0.0);
            rule(out, "axis", (at, y0), (at, y0 + 5.0));
            text(out, "tick middle", at, y0 + 20.0, &escape(&label));
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        text(out, "label middle", middle, LINES_HEIGHT - 8.0, &escape(self.x_label));
        let up = (TOP + LINES_HEIGHT - BOTTOM) / 2.0;
        let _ = writeln!(
            out,
            "<text class=\"label middle\" transform=\"translate(14 {up:.1}) rotate(-90)\">{}</text>",
            escape(self.y_label)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(30.0, 10.0), (0..=6).map(|i| f64::from(i) * 5.0).collect::<Vec<_>>());
        assert_eq!(ticks(1.0, 5.0).len(), 6);
        assert_eq!(ticks(928.0, 5.0), [0.0, 200.0, 400.0, 600.0, 800.0]);
    }

    #[test]
    fn a_logarithmic_axis_holds_all_values_and_zero() {
        let scale = Scale::log([3.0, 0.0, 70.0].into_iter());
        assert_eq!((scale.share(0.0), scale.share(100.0)), (0.0, 1.0));
        assert!(scale.share(3.0) > 0.0 && scale.share(3.0) < scale.share(70.0));
        let label: Vec<String> = scale.ticks(10.0).into_iter().map(|(_, label)| label).collect();
        assert_eq!(label, ["0", "2", "5", "10", "20", "50", "100"]);
        assert_eq!(Scale::log([5.0].into_iter()).share(5.0), 0.0);
    }
}
