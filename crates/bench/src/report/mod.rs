// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: what a bench found as one HTML file, for a reader without network or script.
//!
//! Invariants: the file asks nobody for anything (no scripts, fonts, images or links; a policy in
//! its head says so to the browser too); equal findings give equal bytes; every figure is drawn
//! twice, as a picture and, below it, in the table of rows with its goal; colours differ in dash as
//! well as in hue, and text has a contrast of 4.5 : 1 or more in light and dark.
//!
//! Why not a plotting library: two kinds of picture, and neither script nor fonts can come along.

mod chart;
mod figure;

use std::fmt::Write as _;

pub use self::figure::{Figure, Picture, Series, Spread};

use crate::bench::Row;

const STYLE: &str = include_str!("style.css");

/// What is written above the figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The heading.
    pub title: String,
    /// The command that makes this very file again.
    pub command: String,
    /// Which seeds.
    pub seeds: String,
}

/// Text as HTML.
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

/// The page.
#[must_use]
pub fn html(about: &About, figures: &[Figure], rows: &[Row]) -> String {
    let mut out = String::new();
    let title = escape(&about.title);
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>{title}</h1>\n<p class=\"meta\"><code>{}</code> <span>seeds {}</span> \
         <span>Larder {}</span></p>\n</header>\n<main>\n",
        escape(&about.command),
        escape(&about.seeds),
        env!("CARGO_PKG_VERSION"),
    );
    if !figures.is_empty() {
        out.push_str("<div class=\"figures\">\n");
        figures.iter().for_each(|figure| out.push_str(&chart::figure(figure)));
        out.push_str("</div>\n");
    }
    out.push_str(&table(rows));
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "<section>\n<h2>Rows</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>bench</th>\
         <th>case</th><th>against</th><th class=\"n\">ours</th><th class=\"n\">peer</th>\
         <th>unit</th><th class=\"n\">ratio</th><th>goal</th><th></th></tr></thead>\n<tbody>\n",
    );
    for row in rows {
        let (class, word) = match row.reached {
            Some(true) => ("reached", "reached"),
            Some(false) => ("missed", "missed"),
            None => ("", ""),
        };
        let spread = match (row.min, row.max) {
            (Some(min), Some(max)) => {
                format!("<small>{} to {}</small>", figure::number(min), figure::number(max))
            }
            _ => String::new(),
        };
        let number = |value: Option<f64>| value.map(figure::number).unwrap_or_default();
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td>{}</td><td class=\"n\">{}{spread}</td><td>{}</td><td class=\"{class}\">{word}</td>\
             </tr>",
            escape(&row.name),
            escape(&row.case),
            escape(&row.against),
            number(row.ours),
            number(row.peer),
            escape(&row.unit),
            number(row.ratio),
            escape(row.goal.as_deref().unwrap_or_default()),
        );
        if !row.note.is_empty() {
            let _ = writeln!(
                out,
                "<tr class=\"note\"><td></td><td colspan=\"8\">{}</td></tr>",
                escape(&row.note)
            );
        }
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_asks_nobody_for_anything_and_is_the_same_every_time() {
        let about = About {
            title: "Warm-up <fast> & \"cold\"".into(),
            command: "larder bench x".into(),
            seeds: "1 to 3".into(),
        };
        let series = Series { name: "sce".into(), points: vec![0.1, 0.5, 1.0] };
        let lines = Picture::Lines {
            x_label: "minutes".into(),
            x_step: 0.5,
            y_label: "hit ratio".into(),
            y_most: Some(1.0),
            series: vec![series],
        };
        let bar = ("sce".to_owned(), 12.5);
        let spread = Spread { name: "a&b".into(), p50: 1.0, p95: 3.0, p99: 50.0 };
        let figures = [
            Figure { title: "one".into(), caption: "c".into(), picture: lines },
            Figure::bars("two", "", "KiB", vec![bar]),
            Figure::spreads("three", "", "ms", vec![spread]),
        ];
        let page = html(&about, &figures, &[Row::default()]);
        assert_eq!(page, html(&about, &figures, &[Row::default()]));
        for part in ["http://", "https://", "<script", "<img", "<link", "url(", "@import"] {
            assert!(!page.contains(part), "{part}");
        }
        assert!(page.contains("Warm-up &lt;fast&gt; &amp; &quot;cold&quot;"));
        assert!(page.contains("a&amp;b") && !page.contains("NaN") && !page.contains("inf"));
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }
}
