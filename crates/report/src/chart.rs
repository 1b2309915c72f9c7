// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures as inline SVG.
//!
//! Invariants: everything is drawn within the view box; coordinates have one decimal, so equal values give equal text;
//! a known system has the same colour and dash in every picture (`style.css`, classes `s-NAME`), and other series take
//! those of their index (`n-INDEX`).

use std::fmt::Write as _;

use super::axes::{Axes, LINES_HEIGHT, RIGHT, Scale, WIDTH, open, rule, text, ticks};
use super::columns;
use super::figure::escape;
use super::figure::{Axis, Bar, Curve, Figure, Picture, Series, Spread, number};
use super::heat;

/// Least width of the names left of bars; longer names get [`LETTER`] for each character, and [`CAPITAL`] more for each
/// capital.
const NAMES: f64 = 96.0;
const LETTER: f64 = 7.2;
const CAPITAL: f64 = 2.4;
/// Between a bar and its value.
const GAP: f64 = 7.0;
/// The least between a ring and a value.
const CLEAR: f64 = 2.0;
/// Radius of the ring that marks the paper's value.
const RING: f64 = 5.0;
const ROW: f64 = 30.0;
/// Colours assigned by index.
const COLOURS: usize = 8;
/// Curves with at most this many points get a mark at each.
const FEW: usize = 40;
/// The most points of a line that are drawn; longer lines are averaged.
const POINTS: usize = 240;

/// A figure with its title, legend, picture and caption.
pub(super) fn figure(figure: &Figure) -> String {
    let title = escape(&figure.title);
    let (legend, picture) = match &figure.picture {
        Picture::Lines { x_label, x_step, y, series } => {
            let longest = series.iter().map(|s| s.points.len()).max().unwrap_or(0);
            let values = series.iter().flat_map(|s| &s.points).copied();
            let x = Scale::Linear((longest as f64 * x_step).max(1e-6));
            let axes = Axes { x_label, y_label: &y.label, x, y: scale(y, values) };
            let names = series.iter().map(|s| s.name.as_str());
            (legend(names, None), lines(&axes, *x_step, series, &title))
        }
        Picture::Curves { x, y, curves } => {
            let names = curves.iter().map(|c| c.name.as_str());
            let paper = curves.iter().any(|c| !c.paper.is_empty());
            let ring = paper.then_some("the paper's, in the line's colour");
            (legend(names, ring), curve_chart(x, y, curves, &title))
        }
        Picture::Bars { unit, bars } => {
            let paper = bars.iter().any(|b| b.paper.is_some());
            let rings = || legend(std::iter::empty(), Some("the paper's"));
            let legend = if paper { rings() } else { String::new() };
            (legend, bar_chart(unit, bars, &title))
        }
        Picture::Columns { x, y, series } => {
            (columns::legend(series), columns::chart(x, y, series, &title))
        }
        Picture::Missing(words) => {
            (String::new(), format!("<p class=\"missing\">{}</p>", escape(words)))
        }
        Picture::Heat(grid) => (heat::legend(), heat::chart(grid, &title)),
        Picture::Spreads { unit, spreads } => (marks(), spread_chart(unit, spreads, &title)),
    };
    let caption = match figure.caption.as_str() {
        "" => String::new(),
        caption => format!("<figcaption>{}</figcaption>\n", escape(caption)),
    };
    format!(
        "<figure>\n<h2>{title}</h2>\n{legend}<div class=\"scroll\">{picture}</div>\n{caption}</figure>\n"
    )
}

/// Colour and dash: by name, in lower case, for a known system, else by index.
pub(super) fn class(name: &str, place: usize) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(plain).collect();
    format!("n-{} s-{name}", place % COLOURS)
}

/// The names of the lines, and the meaning of rings.
fn legend<'a>(names: impl Iterator<Item = &'a str>, ring: Option<&str>) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (place, name) in names.enumerate() {
        let _ = write!(
            out,
            "<li><svg class=\"swatch\" viewBox=\"0 0 30 10\" aria-hidden=\"true\"><line x1=\"1\" \
             y1=\"5\" x2=\"29\" y2=\"5\" class=\"line {}\"/></svg>{}</li>",
            class(name, place),
            escape(name)
        );
    }
    if let Some(words) = ring {
        out.push_str(&mark("s-legend", words));
    }
    out.push_str("</ul>\n");
    out
}

pub(super) fn mark(class: &str, name: &str) -> String {
    format!(
        "<li><svg class=\"mark\" viewBox=\"0 0 12 12\" aria-hidden=\"true\"><circle cx=\"6\" \
         cy=\"6\" r=\"4.5\" class=\"dot {class}\"/></svg>{name}</li>"
    )
}

fn marks() -> String {
    let all = [("p50", "half"), ("p95", "95 %"), ("p99", "99 % take at most this long")];
    let items: String = all.iter().map(|(class, name)| mark(class, name)).collect();
    format!("<ul class=\"legend s-legend\">{items}</ul>\n")
}

/// Reduces points to at most [`POINTS`] means over equally many neighbours.
fn thinned(points: &[f64]) -> (usize, Vec<f64>) {
    let together = points.len().div_ceil(POINTS).max(1);
    let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
    (together, points.chunks(together).map(mean).collect())
}

fn lines(axes: &Axes<'_>, x_step: f64, series: &[Series], title: &str) -> String {
    let mut out = open(LINES_HEIGHT, title);
    axes.draw(&mut out);
    // The first line is solid and drawn first, so that it shows between the dashes of the others.
    for (place, one) in series.iter().enumerate() {
        let (together, points) = thinned(&one.points);
        let x = |i: usize| (i as f64 + 0.5) * together as f64 * x_step;
        let points = points.iter().enumerate().map(|(i, y)| (x(i), *y));
        path(&mut out, axes, points, &class(&one.name, place), &one.name);
    }
    out.push_str("</svg>\n");
    out
}

/// A line through points.
fn path(
    out: &mut String,
    axes: &Axes<'_>,
    points: impl Iterator<Item = (f64, f64)>,
    class: &str,
    name: &str,
) {
    let mut path = String::new();
    for (i, (x, y)) in points.enumerate() {
        let (x, y) = axes.at(x, y);
        let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
    }
    let name = escape(name);
    let _ = writeln!(out, "<path class=\"line {class}\" d=\"{path}\"><title>{name}</title></path>");
}

fn curve_chart(x: &Axis, y: &Axis, curves: &[Curve], title: &str) -> String {
    let all = || curves.iter().flat_map(|c| c.ours.iter().chain(&c.paper));
    let axes = Axes {
        x_label: &x.label,
        y_label: &y.label,
        x: scale(x, all().map(|(x, _)| *x)),
        y: scale(y, all().map(|(_, y)| *y)),
    };
    let mut out = open(LINES_HEIGHT, title);
    axes.draw(&mut out);
    for (place, one) in curves.iter().enumerate() {
        let class = class(&one.name, place);
        path(&mut out, &axes, one.ours.iter().copied(), &class, &one.name);
        if is_whole(one) {
            let class = format!("paper {class}");
            path(&mut out, &axes, one.paper.iter().copied(), &class, &one.name);
        }
        if one.ours.len() <= FEW {
            dots(&mut out, &axes, x, ("p99", 2.5), (one, place, &one.ours, "ours"));
        }
    }
    // After all lines, of which none may cover a ring.
    for (place, one) in curves.iter().enumerate() {
        dots(&mut out, &axes, x, ("ring", RING), (one, place, &one.paper, "the paper"));
    }
    out.push_str("</svg>\n");
    out
}

/// Marks at the points of a curve.
fn dots(
    out: &mut String,
    axes: &Axes<'_>,
    along: &Axis,
    (kind, radius): (&str, f64),
    (curve, place, points, who): (&Curve, usize, &[(f64, f64)], &str),
) {
    let (class, name) = (class(&curve.name, place), escape(&curve.name));
    for (x, y) in points {
        let (cx, cy) = axes.at(*x, *y);
        let at = along.names.get(*x as usize).map_or_else(|| number(*x), |name| escape(name));
        let _ = writeln!(
            out,
            "<circle class=\"dot {kind} {class}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" \
             r=\"{radius}\"><title>{name}, {who}: {} at {at}</title></circle>",
            number(*y)
        );
    }
}

/// Whether the paper states a value for each of ours, so that its points make a line and not single values.
fn is_whole(curve: &Curve) -> bool {
    let xs = |points: &[(f64, f64)]| points.iter().map(|(x, _)| *x).collect::<Vec<_>>();
    curve.paper.len() > 2 && xs(&curve.paper) == xs(&curve.ours)
}

pub(super) fn scale(axis: &Axis, values: impl Iterator<Item = f64>) -> Scale {
    if !axis.names.is_empty() {
        return Scale::Names(axis.names.clone());
    }
    match (axis.log, axis.most) {
        (true, _) => Scale::log(values),
        (false, Some(most)) => Scale::Linear(most),
        (false, None) => Scale::linear(values),
    }
}

/// The width of the names left of bars.
fn room_for<'a>(names: impl Iterator<Item = &'a str>) -> f64 {
    let width = |name: &str| {
        let capitals = name.chars().filter(char::is_ascii_uppercase).count();
        name.chars().count() as f64 * LETTER + capitals as f64 * CAPITAL
    };
    names.map(|name| width(name) + 12.0).fold(NAMES, f64::max)
}

fn bar_chart(unit: &str, bars: &[Bar], title: &str) -> String {
    let height = bars.len() as f64 * ROW + 50.0;
    let mut out = open(height, title);
    let names = room_for(bars.iter().map(|bar| bar.name.as_str()));
    let most = bars.iter().flat_map(|b| [b.value, b.paper]).flatten().fold(1e-6, f64::max);
    // Room for the value after the longest bar.
    let room = WIDTH - names - RIGHT - 64.0;
    let foot = height - 44.0;
    for value in ticks(most, 6.0) {
        let x = names + value / most * room;
        rule(&mut out, if value == 0.0 { "axis" } else { "grid" }, (x, 4.0), (x, foot));
        text(&mut out, "tick middle", x, foot + 17.0, &number(value));
    }
    for (row, bar) in bars.iter().enumerate() {
        let (y, width) = (row as f64 * ROW + 8.0, bar.value.unwrap_or(0.0) / most * room);
        let (name, class) = (escape(&bar.name), class(&bar.name, row));
        text(&mut out, "name end", names - 10.0, y + 15.0, &name);
        let _ = writeln!(
            out,
            "<rect class=\"bar {class}\" x=\"{names:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"20\"/>"
        );
        let value = bar.value.map_or_else(|| "not measured".to_owned(), number);
        let mut value_x = names + width + GAP;
        if let Some(paper) = bar.paper {
            let x = names + paper / most * room;
            let _ = writeln!(
                out,
                "<circle class=\"dot s-legend\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"{RING}\"><title>\
                 {name}, the paper: {}</title></circle>",
                y + 10.0,
                number(paper)
            );
            // If the ring would cover the value, the value moves to its right.
            let value_end = value_x + value.len() as f64 * LETTER;
            if x + RING + CLEAR > value_x && x - RING - CLEAR < value_end {
                value_x = x + RING + GAP;
            }
        }
        text(&mut out, "value", value_x, y + 15.0, &value);
    }
    text(&mut out, "label middle", names + room / 2.0, height - 8.0, &escape(unit));
    out.push_str("</svg>\n");
    out
}

fn spread_chart(unit: &str, spreads: &[Spread], title: &str) -> String {
    let height = spreads.len() as f64 * ROW + 50.0;
    let mut out = open(height, title);
    let names = room_for(spreads.iter().map(|spread| spread.name.as_str()));
    let scale = Scale::log(spreads.iter().flat_map(|s| [s.p50, s.p99]));
    let room = WIDTH - names - RIGHT - 12.0;
    let at = |value: f64| names + scale.share(value) * room;
    let foot = height - 44.0;
    for (value, words) in scale.ticks(f64::MAX) {
        rule(&mut out, "grid", (at(value), 4.0), (at(value), foot));
        text(&mut out, "tick middle", at(value), foot + 17.0, &words);
    }
    for (row, spread) in spreads.iter().enumerate() {
        let y = row as f64 * ROW + 18.0;
        let (name, own) = (escape(&spread.name), class(&spread.name, row));
        text(&mut out, "name end", names - 10.0, y + 5.0, &name);
        rule(&mut out, &format!("span {own}"), (at(spread.p50), y), (at(spread.p99), y));
        for (class, value) in [("p50", spread.p50), ("p95", spread.p95), ("p99", spread.p99)] {
            let _ = writeln!(
                out,
                "<circle class=\"dot {class} {own}\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5.5\">\
                 <title>{name} {class}: {} {}</title></circle>",
                at(value),
                number(value),
                escape(unit)
            );
        }
    }
    let label = format!("{} (logarithmic)", escape(unit));
    text(&mut out, "label middle", names + room / 2.0, height - 8.0, &label);
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Horizontal positions of the first bar's value and of its ring.
    fn places(value: f64, paper: f64) -> (f64, f64) {
        let bars = [(value, Some(paper)), (10.0, None)].map(|(value, paper)| Bar {
            name: String::new(),
            value: Some(value),
            paper,
        });
        let chart = bar_chart("s", &bars, "");
        let after = |mark: &str, key: &str| -> f64 {
            let from = chart.find(mark).unwrap();
            let (_, rest) = chart[from..].split_once(key).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        (after("\"value\"", " x=\""), after("<circle", "cx=\""))
    }

    #[test]
    fn no_ring_covers_a_number() {
        let (number, ring) = places(2.5, 2.9);
        assert!(number > ring + RING, "the value moved: {number} {ring}");
        for paper in [1.0, 6.0] {
            let (unmoved, ring) = places(2.5, paper);
            assert!(
                unmoved < number && (ring + RING < unmoved || ring - RING > unmoved + LETTER * 3.0)
            );
        }
    }

    #[test]
    fn rings_lie_over_all_lines_and_name_their_place() {
        let curve = |name: &str, paper: Vec<(f64, f64)>| Curve {
            name: name.into(),
            ours: vec![(0.0, 1.0), (1.0, 2.0)],
            paper,
        };
        let curves = [curve("a", vec![(1.0, 2.0)]), curve("b", Vec::new())];
        let chart =
            curve_chart(&Axis::names("x", &["one", "two"]), &Axis::linear("y"), &curves, "");
        assert!(chart.find("dot ring").unwrap() > chart.rfind("<path").unwrap());
        assert!(chart.contains("a, the paper: 2 at two") && chart.contains("b, ours: 1 at one"));
    }

    #[test]
    fn many_points_are_averaged() {
        let (together, points) = thinned(&[1.0; 480]);
        assert_eq!((together, points.len()), (2, 240));
        assert_eq!(thinned(&[1.0, 2.0]), (1, vec![1.0, 2.0]));
    }
}
