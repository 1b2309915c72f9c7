// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures as inline SVG.
//!
//! Invariants: everything drawn lies within the view box; coordinates have one decimal, so equal
//! values give equal text; a system has the same colour and dash in every picture (`style.css`,
//! classes `s-NAME`), whatever else is in it.

use std::fmt::Write as _;

use super::escape;
use super::figure::{Figure, Picture, Series, Spread, number};

const WIDTH: f64 = 720.0;
const LINES_HEIGHT: f64 = 330.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 48.0;
/// Room for names left of bars.
const NAMES: f64 = 96.0;
const ROW: f64 = 30.0;
/// The most points of a line that are drawn; more are averaged.
const POINTS: usize = 240;

/// A figure with its title, legend, picture and caption.
pub(super) fn figure(figure: &Figure) -> String {
    let title = escape(&figure.title);
    let (legend, picture) = match &figure.picture {
        Picture::Lines { x_label, x_step, y_label, y_most, series } => {
            let axes = Axes::new(x_label, *x_step, y_label, *y_most, series);
            (legend(series), lines(&axes, series, &title))
        }
        Picture::Bars { unit, bars } => (String::new(), bar_chart(unit, bars, &title)),
        Picture::Spreads { unit, spreads } => (marks(), spread_chart(unit, spreads, &title)),
    };
    let caption = escape(&figure.caption);
    format!(
        "<figure>\n<h2>{title}</h2>\n{legend}<div class=\"scroll\">{picture}</div>\n<figcaption>{caption}</figcaption>\n\
         </figure>\n"
    )
}

fn legend(series: &[Series]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for one in series {
        let name = escape(&one.name);
        let _ = write!(
            out,
            "<li><svg class=\"swatch\" viewBox=\"0 0 30 10\" aria-hidden=\"true\"><line x1=\"1\" \
             y1=\"5\" x2=\"29\" y2=\"5\" class=\"line s-{name}\"/></svg>{name}</li>"
        );
    }
    out.push_str("</ul>\n");
    out
}

fn marks() -> String {
    let mark = |class: &str, name: &str| {
        format!(
            "<li><svg class=\"mark\" viewBox=\"0 0 12 12\" aria-hidden=\"true\"><circle cx=\"6\" \
             cy=\"6\" r=\"4.5\" class=\"dot {class}\"/></svg>{name}</li>"
        )
    };
    let all = [("p50", "half"), ("p95", "95 %"), ("p99", "99 % take at most this long")];
    let items: String = all.iter().map(|(class, name)| mark(class, name)).collect();
    format!("<ul class=\"legend s-legend\">{items}</ul>\n")
}

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{title}\">\n"
    )
}

fn text(out: &mut String, class: &str, x: f64, y: f64, words: &str) {
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
}

fn rule(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

/// 1, 2 or 5 times a power of ten, so that at most `most` of them make up `span`.
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
fn ticks(most: f64, count: f64) -> Vec<f64> {
    let step = step(most, count);
    (0..=(most / step + 1e-9) as usize).map(|i| i as f64 * step).collect()
}

/// 1, 2 and 5 times the powers of ten from a thousandth to a million.
fn decades() -> Vec<f64> {
    let of = |power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power));
    (-3..6).flat_map(of).collect()
}

struct Axes<'a> {
    x_label: &'a str,
    y_label: &'a str,
    x_step: f64,
    x_most: f64,
    y_most: f64,
}

impl<'a> Axes<'a> {
    fn new(
        x_label: &'a str,
        x_step: f64,
        y_label: &'a str,
        y_most: Option<f64>,
        series: &[Series],
    ) -> Self {
        let longest = series.iter().map(|s| s.points.len()).max().unwrap_or(0);
        let highest = series.iter().flat_map(|s| &s.points).copied().fold(1e-6, f64::max);
        let round = step(highest, 5.0);
        let y_most = y_most.unwrap_or((highest / round).ceil() * round);
        Self { x_label, y_label, x_step, x_most: (longest as f64 * x_step).max(1e-6), y_most }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let across = (WIDTH - LEFT - RIGHT) * (x / self.x_most).clamp(0.0, 1.0);
        let up = (LINES_HEIGHT - TOP - BOTTOM) * (y / self.y_most).clamp(0.0, 1.0);
        (LEFT + across, LINES_HEIGHT - BOTTOM - up)
    }

    fn draw(&self, out: &mut String) {
        for y in ticks(self.y_most, 5.0) {
            let (x0, at) = self.at(0.0, y);
            rule(out, if y == 0.0 { "axis" } else { "grid" }, (x0, at), (WIDTH - RIGHT, at));
            text(out, "tick end", x0 - 8.0, at + 4.5, &number(y));
        }
        for x in ticks(self.x_most, 10.0) {
            let (at, y0) = self.at(x, 0.0);
            rule(out, "axis", (at, y0), (at, y0 + 5.0));
            text(out, "tick middle", at, y0 + 20.0, &number(x));
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        text(out, "label middle", middle, LINES_HEIGHT - 8.0, &escape(self.x_label));
        let up = (TOP + LINES_HEIGHT - BOTTOM) / 2.0;
        let _ = writeln!(
            out,
            "<text class=\"label middle\" transform=\"translate(15 {up:.1}) rotate(-90)\">{}</text>",
            escape(self.y_label)
        );
    }
}

/// As few points as are drawn: means over equally many neighbours.
fn thinned(points: &[f64]) -> (usize, Vec<f64>) {
    let together = points.len().div_ceil(POINTS).max(1);
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
    (together, points.chunks(together).map(mean).collect())
}

fn lines(axes: &Axes<'_>, series: &[Series], title: &str) -> String {
    let mut out = open(LINES_HEIGHT, title);
    axes.draw(&mut out);
    // The first is drawn last, above the others; of those, dashed lines come after solid ones.
    let order = series.iter().skip(1).chain(series.first());
    for one in order {
        let (together, points) = thinned(&one.points);
        let mut path = String::new();
        for (i, y) in points.iter().enumerate() {
            let x = (i as f64 + 0.5) * together as f64 * axes.x_step;
            let (x, y) = axes.at(x, *y);
            let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        }
        let name = escape(&one.name);
        let _ = writeln!(
            out,
            "<path class=\"line s-{name}\" d=\"{path}\"><title>{name}</title></path>"
        );
    }
    out.push_str("</svg>\n");
    out
}

fn bar_chart(unit: &str, bars: &[(String, f64)], title: &str) -> String {
    let height = bars.len() as f64 * ROW + 50.0;
    let mut out = open(height, title);
    let most = bars.iter().map(|(_, value)| *value).fold(1e-6, f64::max);
    // Room for the number behind the longest bar.
    let room = WIDTH - NAMES - RIGHT - 64.0;
    let foot = height - 44.0;
    for value in ticks(most, 6.0) {
        let x = NAMES + value / most * room;
        rule(&mut out, if value == 0.0 { "axis" } else { "grid" }, (x, 4.0), (x, foot));
        text(&mut out, "tick middle", x, foot + 17.0, &number(value));
    }
    for (row, (name, value)) in bars.iter().enumerate() {
        let (y, width) = (row as f64 * ROW + 8.0, value / most * room);
        let name = escape(name);
        text(&mut out, "name end", NAMES - 10.0, y + 15.0, &name);
        let _ = writeln!(
            out,
            "<rect class=\"bar s-{name}\" x=\"{NAMES:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"20\"/>"
        );
        text(&mut out, "value", NAMES + width + 7.0, y + 15.0, &number(*value));
    }
    text(&mut out, "label middle", NAMES + room / 2.0, height - 8.0, &escape(unit));
    out.push_str("</svg>\n");
    out
}

fn spread_chart(unit: &str, spreads: &[Spread], title: &str) -> String {
    let height = spreads.len() as f64 * ROW + 50.0;
    let mut out = open(height, title);
    let (least, most) = spreads
        .iter()
        .flat_map(|s| [s.p50, s.p99])
        .fold((f64::MAX, 1e-6), |(least, most), v| (v.min(least), v.max(most)));
    let all = decades();
    let low = all.iter().copied().rfind(|v| *v <= least).unwrap_or(least);
    let high = all.iter().copied().find(|v| *v >= most).unwrap_or(most);
    let room = WIDTH - NAMES - RIGHT - 12.0;
    let wide = (high / low).max(1.1).log10();
    let at = |value: f64| NAMES + (value.max(low) / low).log10() / wide * room;
    let foot = height - 44.0;
    for value in all.into_iter().filter(|v| (low..=high).contains(v)) {
        rule(&mut out, "grid", (at(value), 4.0), (at(value), foot));
        text(&mut out, "tick middle", at(value), foot + 17.0, &number(value));
    }
    for (row, spread) in spreads.iter().enumerate() {
        let y = row as f64 * ROW + 18.0;
        let name = escape(&spread.name);
        text(&mut out, "name end", NAMES - 10.0, y + 5.0, &name);
        rule(&mut out, &format!("span s-{name}"), (at(spread.p50), y), (at(spread.p99), y));
        for (class, value) in [("p50", spread.p50), ("p95", spread.p95), ("p99", spread.p99)] {
            let _ = writeln!(
                out,
                "<circle class=\"dot {class} s-{name}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5.5\">\
                 <title>{name} {class}: {} {}</title></circle>",
                at(value),
                number(value),
                escape(unit)
            );
        }
    }
    let label = format!("{} (logarithmic)", escape(unit));
    text(&mut out, "label middle", NAMES + room / 2.0, height - 8.0, &label);
    out.push_str("</svg>\n");
    out
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
    fn many_points_are_averaged() {
        let (together, points) = thinned(&[1.0; 480]);
        assert_eq!((together, points.len()), (2, 240));
        assert_eq!(thinned(&[1.0, 2.0]), (1, vec![1.0, 2.0]));
    }
}
