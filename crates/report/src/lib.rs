// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: the results of a bench or a study as one HTML file that needs no network and no script.
//!
//! Invariants: the file loads nothing (no scripts, fonts, images or style sheets; a policy in its head makes the browser refuse
//! them) and links to itself alone; equal results give equal bytes; every value in a picture is also in a table below it; series
//! differ in dash or hatching as well as in colour, and text has a contrast of 4.5 : 1 or more in light and dark.
//!
//! Why not a plotting library: a report has few kinds of picture, and may carry neither scripts nor fonts.

#![forbid(unsafe_code)]

mod axes;
mod chart;
mod columns;
mod figure;
mod heat;

use std::fmt::Write as _;

use self::figure::escape;
pub use self::figure::{Axis, Bar, Columns, Curve, Figure, Heat, Picture, Series, Spread, number};

const STYLE: &str = include_str!("style.css");

/// The header of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The heading.
    pub title: String,
    /// The command that creates this file.
    pub command: String,
    /// The seeds.
    pub seeds: String,
}

/// The emphasis of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// None.
    #[default]
    Plain,
    /// A goal that was reached, or a claim that holds.
    Good,
    /// A goal that was missed, or a claim that does not hold.
    Bad,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The text.
    pub text: String,
    /// Small text below it.
    pub small: String,
    /// The emphasis.
    pub tone: Tone,
    /// The name by which a [`Link`] finds it.
    pub anchor: String,
    /// Links after the text.
    pub links: Vec<Link>,
}

/// A link to a place of the same page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The text.
    pub text: String,
    /// The anchor of a cell or a section; the text alone without one.
    pub to: String,
}

/// A line of a section's list: a link, an emphasised word, and text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// The link.
    pub link: Link,
    /// The word after it.
    pub word: String,
    /// The emphasis of the word.
    pub tone: Tone,
    /// The text.
    pub text: String,
}

impl Cell {
    /// A cell with text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    /// A cell with a number, empty for `None`.
    #[must_use]
    pub fn number(value: Option<f64>) -> Self {
        Self { text: value.map(number).unwrap_or_default(), ..Self::default() }
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub title: String,
    /// Whether the column has numbers, which are right-aligned.
    pub number: bool,
}

impl Column {
    /// A column of text.
    #[must_use]
    pub fn words(title: &str) -> Self {
        Self { title: title.to_owned(), number: false }
    }

    /// A column of numbers.
    #[must_use]
    pub fn numbers(title: &str) -> Self {
        Self { title: title.to_owned(), number: true }
    }
}

/// A row, with an optional note below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRow {
    /// A cell for each column.
    pub cells: Vec<Cell>,
    /// The note.
    pub note: String,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The heading.
    pub title: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<TableRow>,
}

/// Figures that belong together, with tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// The heading, where the parts' own headings do not suffice.
    pub title: String,
    /// The name by which a [`Link`] finds it.
    pub anchor: String,
    /// Text below the heading.
    pub text: String,
    /// Lines below the text.
    pub items: Vec<Item>,
    /// Links below these, in one line.
    pub links: Vec<Link>,
    /// Tables, before the figures.
    pub tables: Vec<Table>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Tables that are collapsed to their title.
    pub folded: Vec<Table>,
}

impl Section {
    /// A section of figures.
    #[must_use]
    pub fn of(figures: Vec<Figure>) -> Self {
        Self { figures, ..Self::default() }
    }

    /// A section of one table.
    #[must_use]
    pub fn table(table: Table) -> Self {
        Self { tables: vec![table], ..Self::default() }
    }
}

/// The report as an HTML page.
#[must_use]
pub fn html(about: &About, parts: &[Section]) -> String {
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
    parts.iter().for_each(|one| part(&mut out, one));
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn section(out: &mut String, one: &Table) {
    let _ = writeln!(out, "<section>\n<h2>{}</h2>", escape(&one.title));
    table(out, one);
    out.push_str("</section>\n");
}

/// Heading, text and links of a section.
fn head(out: &mut String, part: &Section) {
    if !part.title.is_empty() {
        let (anchor, title) = (id(&part.anchor), escape(&part.title));
        let _ = writeln!(out, "<h2 class=\"part\"{anchor}>{title}</h2>");
    }
    if !part.text.is_empty() {
        let _ = writeln!(out, "<p class=\"words\">{}</p>", escape(&part.text));
    }
    if !part.items.is_empty() {
        out.push_str("<ul class=\"items\">\n");
        for item in &part.items {
            let (word, text) = (escape(&item.word), escape(&item.text));
            let class = tone(item.tone);
            let word = format!("<span{class}>{word}</span>");
            let _ = writeln!(out, "<li>{} {word}: {text}</li>", link(&item.link));
        }
        out.push_str("</ul>\n");
    }
    if !part.links.is_empty() {
        let links: Vec<String> = part.links.iter().map(link).collect();
        let _ = writeln!(out, "<p class=\"words\">{}</p>", links.join(", "));
    }
}

fn link(link: &Link) -> String {
    match link.to.as_str() {
        "" => escape(&link.text),
        to => format!("<a href=\"#{}\">{}</a>", escape(to), escape(&link.text)),
    }
}

fn tone(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => " class=\"reached\"",
        Tone::Bad => " class=\"missed\"",
        Tone::Plain => "",
    }
}

fn part(out: &mut String, part: &Section) {
    head(out, part);
    part.tables.iter().for_each(|one| section(out, one));
    if !part.figures.is_empty() {
        out.push_str("<div class=\"figures\">\n");
        part.figures.iter().for_each(|figure| out.push_str(&chart::figure(figure)));
        out.push_str("</div>\n");
    }
    for one in &part.folded {
        let _ = writeln!(out, "<details>\n<summary>{}</summary>", escape(&one.title));
        table(out, one);
        out.push_str("</details>\n");
    }
}

fn id(anchor: &str) -> String {
    if anchor.is_empty() { String::new() } else { format!(" id=\"{}\"", escape(anchor)) }
}

fn content(cell: &Cell) -> String {
    let small = match cell.small.as_str() {
        "" => String::new(),
        small => format!("<small>{}</small>", escape(small)),
    };
    let links: Vec<String> = cell.links.iter().map(link).collect();
    format!("{}{small}{}", escape(&cell.text), links.join(" "))
}

fn table(out: &mut String, table: &Table) {
    out.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    for column in &table.columns {
        let class = if column.number { " class=\"n\"" } else { "" };
        let _ = write!(out, "<th{class}>{}</th>", escape(&column.title));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (i, cell) in row.cells.iter().enumerate() {
            let number = table.columns.get(i).is_some_and(|c| c.number);
            let class = if number { " class=\"n\"" } else { tone(cell.tone) };
            let _ = write!(out, "<td{}{class}>{}</td>", id(&cell.anchor), content(cell));
        }
        out.push_str("</tr>\n");
        if !row.note.is_empty() {
            let span = table.columns.len().saturating_sub(1).max(1);
            let _ = writeln!(
                out,
                "<tr class=\"note\"><td></td><td colspan=\"{span}\">{}</td></tr>",
                escape(&row.note)
            );
        }
    }
    out.push_str("</tbody>\n</table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_loads_nothing_and_is_reproducible() {
        let about = About {
            title: "Warm-up <fast> & \"cold\"".into(),
            command: "larder bench x".into(),
            seeds: "1 to 3".into(),
        };
        let series = Series { name: "sce".into(), points: vec![0.1, 0.5, 1.0] };
        let hits = Axis::linear("hit ratio").up_to(1.0);
        let bar = ("sce".to_owned(), 12.5);
        let spread = Spread { name: "a&b".into(), p50: 1.0, p95: 3.0, p99: 50.0 };
        let ours = vec![(0.0, 2.0), (8.0, 1.0)];
        let curve = Curve { name: "64 <GB>".into(), ours, paper: vec![(64.0, 0.5)] };
        let (ours, paper) = (vec![Some(1.0)], vec![Some(2.0)]);
        let columns = vec![Columns { name: "a".into(), ours, paper }];
        let heat = Heat {
            groups: vec!["oltp".into()],
            columns: vec!["2 %".into()],
            rows: vec![("sce".into(), vec![Some(0.7)])],
        };
        let figures = [
            Figure::lines("one", "c", ("minutes", 0.5), hits, vec![series]),
            Figure::bars("two", "", "KiB", vec![bar]),
            Figure::spreads("three", "", "ms", vec![spread]),
            Figure::heat("five", "", heat),
            Figure::curves("four", "", Axis::log("GB"), Axis::linear("us"), vec![curve]),
            Figure::columns("six", "", Axis::names("", &["S<1>"]), Axis::linear("us"), columns),
            Figure::missing("seven", "not run & not drawn"),
        ];
        let linked = Cell {
            anchor: "S1".into(),
            links: vec![Link { text: "six".into(), to: "figures".into() }],
            ..Cell::text("<b>")
        };
        let row = TableRow { cells: vec![linked], note: "why & how".into() };
        let columns = vec![Column::words("case")];
        let rows = Table { title: "Rows".into(), columns, rows: vec![row] };
        let points = Table { title: "P1: & more".into(), ..rows.clone() };
        let link = Link { text: "S1".into(), to: "S1".into() };
        let item = Item { link, word: "holds".into(), tone: Tone::Good, text: "a < b".into() };
        let drawn = Section {
            title: "Figure 1".into(),
            anchor: "figures".into(),
            items: vec![item],
            figures: figures.to_vec(),
            folded: vec![points],
            ..Section::default()
        };
        let parts = [Section::table(rows), drawn];
        let page = html(&about, &parts);
        assert_eq!(page, html(&about, &parts));
        for part in ["http://", "https://", "<script", "<img", "<link", "url(", "@import"] {
            assert!(!page.contains(part), "{part}");
        }
        assert!(page.contains("Warm-up &lt;fast&gt; &amp; &quot;cold&quot;"));
        assert!(page.contains("a&amp;b") && !page.contains("NaN") && !page.contains("inf"));
        assert!(page.contains("64 &lt;GB&gt;, the paper: 0.5 at 64") && page.contains("s-64--gb-"));
        assert!(page.contains("<details>\n<summary>P1: &amp; more</summary>\n<div"));
        for part in [
            "<h2 class=\"part\" id=\"figures\">Figure 1</h2>",
            "<li><a href=\"#S1\">S1</a> <span class=\"reached\">holds</span>: a &lt; b</li>",
            "<td id=\"S1\">&lt;b&gt;<a href=\"#figures\">six</a></td>",
            "not run &amp; not drawn",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for tag in ["svg", "details", "section", "table", "figure"] {
            let count = |end: &str| page.matches(&format!("<{end}")).count();
            let begins = count(&format!("{tag} ")) + count(&format!("{tag}>"));
            assert!(begins > 0 && begins == count(&format!("/{tag}>")), "{tag}");
        }
    }
}
