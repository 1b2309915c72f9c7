// SPDX-License-Identifier: MIT OR Apache-2.0
//! Columns in groups, as papers draw them: a group for each case, a column for each series, and the paper's values as rings.
//!
//! Invariants: a series differs in its hatching as well as in its colour; the hatching consists of lines in the picture
//! itself, because a pattern would have to be referred to; a column has its value as a title, and above it where there is room.

use std::fmt::Write as _;

use super::axes::{Axes, LINES_HEIGHT, Scale, open, rule, text};
use super::chart::{class, mark, scale};
use super::figure::{Axis, Columns, escape, number};

/// The part of a group's width that its columns take.
const FILLED: f64 = 0.8;
/// The least width of a column that has its value above it.
const LETTERED: f64 = 27.0;
/// Between the lines of a hatching.
const HATCH: f64 = 6.0;
/// Radius of the ring that marks the paper's value.
const RING: f64 = 5.0;
/// Room above the highest column, as a part of it.
const HEAD: f64 = 1.1;

/// A rectangle: left, top, width, height.
type Area = (f64, f64, f64, f64);

/// The names of the series, and the meaning of rings.
pub(super) fn legend(series: &[Columns]) -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (place, one) in series.iter().enumerate() {
        out.push_str("<li><svg class=\"field\" viewBox=\"0 0 26 16\" aria-hidden=\"true\">");
        fill(&mut out, place, &class(&one.name, place), (0.0, 0.0, 26.0, 16.0), "");
        let _ = write!(out, "</svg>{}</li>", escape(&one.name));
    }
    if series.iter().flat_map(|one| &one.paper).any(Option::is_some) {
        out.push_str(&mark("s-legend", "the paper's"));
    }
    out.push_str("</ul>\n");
    out
}

/// A column: its area, and the hatching of its series.
fn fill(out: &mut String, place: usize, class: &str, (x, y, width, height): Area, title: &str) {
    let _ = writeln!(
        out,
        "<rect class=\"bar {class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\">{title}</rect>"
    );
    let lines = |length: f64| (1..(length / HATCH).ceil() as usize).map(|i| i as f64 * HATCH);
    if place % 4 == 1 || place % 4 == 3 {
        // From the foot, so that columns of one series look alike whatever their height.
        lines(height).for_each(|up| {
            let at = y + height - up;
            rule(out, "hatch", (x, at), (x + width, at));
        });
    }
    if place % 4 >= 2 {
        lines(width).for_each(|right| rule(out, "hatch", (x + right, y), (x + right, y + height)));
    }
}

/// The columns.
pub(super) fn chart(x: &Axis, y: &Axis, series: &[Columns], title: &str) -> String {
    let all = series.iter().flat_map(|one| one.ours.iter().chain(&one.paper).flatten());
    let axes = Axes {
        x_label: &x.label,
        y_label: &y.label,
        x: Scale::Names(x.names.clone()),
        y: scale(y, all.map(|value| value * HEAD)),
    };
    let mut out = open(LINES_HEIGHT, title);
    axes.draw(&mut out);
    let room = axes.place_width(x.names.len()) * FILLED;
    let width = room / series.len().max(1) as f64;
    for (group, words) in x.names.iter().enumerate() {
        let middle = axes.at(group as f64, 0.0).0;
        for (place, one) in series.iter().enumerate() {
            let left = middle - room / 2.0 + place as f64 * width;
            let at = |values: &[Option<f64>]| values.get(group).copied().flatten();
            let values = (at(&one.ours), at(&one.paper));
            column(&mut out, &axes, (place, &one.name, words), (left, width), values);
        }
    }
    out.push_str("</svg>\n");
    out
}

/// One column, with its ring and its value.
fn column(
    out: &mut String,
    axes: &Axes<'_>,
    (place, name, group): (usize, &str, &str),
    (left, width): (f64, f64),
    (ours, paper): (Option<f64>, Option<f64>),
) {
    let foot = axes.at(0.0, 0.0).1;
    let (class, name) = (class(name, place), format!("{}, {}", escape(group), escape(name)));
    let middle = left + width / 2.0;
    let mut above = foot;
    if let Some(value) = ours {
        let top = axes.at(0.0, value).1;
        let title = format!("<title>{name}: {}</title>", number(value));
        fill(out, place, &class, (left + 0.75, top, (width - 1.5).max(1.0), foot - top), &title);
        above = top;
    }
    if let Some(value) = paper {
        let at = axes.at(0.0, value).1;
        let _ = writeln!(
            out,
            "<circle class=\"dot s-legend\" cx=\"{middle:.1}\" cy=\"{at:.1}\" r=\"{RING}\"><title>{name}, the \
             paper: {}</title></circle>",
            number(value)
        );
        // A ring that would cover the value moves it up.
        if (at - above + 9.0).abs() < RING + 8.0 {
            above = above.min(at - RING);
        }
    }
    if let (Some(value), true) = (ours, width >= LETTERED) {
        text(out, "value small middle", middle, above - 4.0, &number(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_differ_in_hatching_and_have_their_values_and_rings() {
        let series = |name: &str, ours: Vec<Option<f64>>, paper: Vec<Option<f64>>| Columns {
            name: name.into(),
            ours,
            paper,
        };
        let all = [
            series("a&b", vec![Some(1.0), Some(40.0)], vec![None, Some(38.0)]),
            series("c", vec![Some(2.0), None], vec![None, Some(10.0)]),
        ];
        let x = Axis::names("case", &["one", "two"]);
        let drawn = chart(&x, &Axis::linear("MiB"), &all, "t");
        assert_eq!((drawn.matches("<rect").count(), drawn.matches("<circle").count()), (3, 2));
        assert!(drawn.contains("two, a&amp;b: 40<") && drawn.contains("two, c, the paper: 10<"));
        assert_eq!(drawn.matches("value small").count(), 3);
        let hatched = |place| {
            let mut out = String::new();
            fill(&mut out, place, "", (0.0, 0.0, 20.0, 20.0), "");
            out
        };
        let kinds: std::collections::BTreeSet<String> = (0..4).map(hatched).collect();
        assert_eq!(kinds.len(), 4);
        assert!(legend(&all).contains("the paper's") && !legend(&[]).contains("the paper's"));
    }

    #[test]
    fn a_value_stands_above_the_ring_that_would_cover_it() {
        let value_at = |paper: f64| -> f64 {
            let one =
                Columns { name: "a".into(), ours: vec![Some(50.0)], paper: vec![Some(paper)] };
            let y = Axis::linear("%").up_to(100.0);
            let drawn = chart(&Axis::names("", &["x"]), &y, &[one], "");
            let (_, rest) = drawn.split_once("value small middle").unwrap();
            let (_, rest) = rest.split_once("y=\"").unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        assert!(value_at(52.0) < value_at(10.0) && value_at(10.0) == value_at(90.0));
    }
}
