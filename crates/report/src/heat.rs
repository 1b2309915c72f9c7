// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ratios in a grid: a field for each, and its shade by how far it is from 1.
//!
//! Invariants: a shade is not the only sign, as a field that is not near 1 also carries a mark, and every field has its
//! value as a title; shades are mixtures with the card behind them, so that marks keep their contrast in light and
//! dark.

use std::fmt::Write as _;

use super::axes::{RIGHT, WIDTH, open, rule, text};
use super::figure::{Heat, escape, number};

/// Fields of one row or column of a grid are so high.
const FIELD_HEIGHT: f64 = 22.0;
/// The headings of groups and of columns above the fields.
const HEAD: f64 = 44.0;
const FOOT: f64 = 10.0;
/// Room for a letter of a name.
const LETTER: f64 = 7.2;
/// Room for a letter of a group's name.
const HEAD_LETTER: f64 = 6.2;
/// Size of a mark, where it has room, and of its signs in proportion to that.
const MARK: f64 = 10.0;
const SIGN: f64 = 0.62;
/// Between two groups.
const GAP: f64 = 4.0;
/// A shade: up to which ratio, its class, its mark, and its words in the legend.
const SHADES: [(f64, &str, &str, &str); 7] = [
    (0.5, "h-worst", "\u{2212}\u{2212}\u{2212}", "below 0.5"),
    (0.8, "h-worse", "\u{2212}\u{2212}", "0.5 to 0.8"),
    (0.95, "h-bad", "\u{2212}", "0.8 to 0.95"),
    (1.05, "h-same", "", "0.95 to 1.05"),
    (1.25, "h-good", "+", "1.05 to 1.25"),
    (2.0, "h-better", "++", "1.25 to 2"),
    (f64::INFINITY, "h-best", "+++", "2 and more"),
];

fn shade(ratio: f64) -> (&'static str, &'static str) {
    let [.., last] = SHADES;
    let (_, class, mark, _) = SHADES.into_iter().find(|(most, ..)| ratio < *most).unwrap_or(last);
    (class, mark)
}

/// What the shades mean.
pub(super) fn legend() -> String {
    let mut out = String::from("<ul class=\"legend\">");
    for (_, class, mark, words) in SHADES {
        let _ = write!(
            out,
            "<li><svg class=\"field\" viewBox=\"0 0 26 16\" aria-hidden=\"true\"><rect width=\"26\" height=\"16\" \
             class=\"{class}\"/><text class=\"mark-of middle\" x=\"13\" y=\"12.5\">{mark}</text></svg>{words}</li>"
        );
    }
    out.push_str("</ul>\n");
    out
}

/// The grid.
pub(super) fn chart(heat: &Heat, title: &str) -> String {
    let height = HEAD + heat.rows.len() as f64 * FIELD_HEIGHT + FOOT;
    let mut out = open(height, title);
    let longest = heat.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let left = longest as f64 * LETTER + 14.0;
    let group_width = (WIDTH - left - RIGHT) / heat.groups.len().max(1) as f64;
    let width = (group_width - GAP) / heat.columns.len().max(1) as f64;
    let x = |group: usize, column: usize| left + group as f64 * group_width + column as f64 * width;
    for (group, name) in heat.groups.iter().enumerate() {
        let middle = x(group, 0) + (group_width - GAP) / 2.0;
        let half = name.chars().count() as f64 * HEAD_LETTER / 2.0;
        // Names of neighbours are on two lines, so that long ones do not meet.
        text(
            &mut out,
            "head middle",
            middle.min(WIDTH - half),
            10.0 + 13.0 * (group % 2) as f64,
            &escape(name),
        );
        rule(&mut out, "grid", (x(group, 0), 27.0), (x(group, 0) + group_width - GAP, 27.0));
        for (column, name) in heat.columns.iter().enumerate() {
            let middle = x(group, column) + width / 2.0;
            text(&mut out, "head small middle", middle, 39.0, &escape(name));
        }
    }
    for (row, (name, values)) in heat.rows.iter().enumerate() {
        let y = HEAD + row as f64 * FIELD_HEIGHT;
        text(&mut out, "name end", left - 8.0, y + 15.0, &escape(name));
        for (place, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let (group, column) = (place / heat.columns.len(), place % heat.columns.len());
            let (Some(of), Some(at)) = (heat.groups.get(group), heat.columns.get(column)) else {
                continue;
            };
            field(&mut out, (x(group, column), y, width), *value, &format!("{name}, {of}, {at}"));
        }
    }
    out.push_str("</svg>\n");
    out
}

fn field(out: &mut String, (x, y, width): (f64, f64, f64), value: f64, place: &str) {
    let (class, mark) = shade(value);
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}: \
         {}</title></rect>",
        y + 1.0,
        (width - 1.0).max(1.0),
        FIELD_HEIGHT - 2.0,
        escape(place),
        number(value)
    );
    let signs = mark.chars().count() as f64;
    if signs > 0.0 {
        let size = MARK.min((width - 2.0) / (signs * SIGN));
        let _ = writeln!(
            out,
            "<text class=\"mark-of middle\" style=\"font-size:{size:.1}px\" x=\"{:.1}\" y=\"{:.1}\">{mark}</text>",
            x + (width - 1.0) / 2.0,
            y + 11.5 + size * 0.35
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_not_near_one_has_a_mark_and_all_have_their_value() {
        assert_eq!(shade(0.949), ("h-bad", "\u{2212}"));
        assert_eq!((shade(0.95), shade(1.0)), (("h-same", ""), ("h-same", "")));
        assert_eq!((shade(0.0).0, shade(90.0).0), ("h-worst", "h-best"));
        let heat = Heat {
            groups: vec!["oltp".into(), "scan".into()],
            columns: vec!["2 %".into(), "20 %".into()],
            rows: vec![("a&b".into(), vec![Some(1.0), Some(0.4), None, Some(1.3)])],
        };
        let drawn = chart(&heat, "t");
        assert_eq!(drawn.matches("<rect").count(), 3);
        for part in ["a&amp;b, oltp, 20 %: 0.4", "a&amp;b, scan, 20 %: 1.3", ">++<"] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
    }
}
