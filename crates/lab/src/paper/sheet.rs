// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows for a report: a table of claims, and below the figures one of the values of each row.

use larder_report::{Cell, Column, Section, Table, TableRow, Tone};

use super::{At, Found, Row, Verdict};

/// What a group found: its figures, and below them the values of its rows.
#[must_use]
pub fn part(found: &Found) -> Section {
    let rows = found.rows.iter().filter(|row| !row.points.is_empty());
    Section {
        figures: found.figures.clone(),
        folded: rows.map(points).collect(),
        ..Section::default()
    }
}

/// The values of a row: ours beside the paper's.
fn points(row: &Row) -> Table {
    let stated = row.points.iter().any(|point| point.paper.is_some());
    let mut columns = vec![Column::words("at"), Column::numbers("ours")];
    if stated {
        columns.push(Column::numbers("the paper"));
    }
    let point = |point: &At| {
        let mut cells = vec![Cell::text(&point.at), Cell::number(point.ours)];
        cells.extend(stated.then(|| Cell::number(point.paper)));
        TableRow { cells, note: String::new() }
    };
    let unit = if row.unit.is_empty() { String::new() } else { format!(" [{}]", row.unit) };
    let title = format!("{}, values: {}{unit}", row.id, row.claim);
    Table { title, columns, rows: row.points.iter().map(point).collect() }
}

/// The table of claims.
#[must_use]
pub fn sheet<'a>(rows: impl Iterator<Item = &'a Row>) -> Table {
    let words = Column::words;
    let columns = ["row", "claim", "paper", "ours", "unit", "scale", "verdict"].map(words).to_vec();
    let row = |row: &Row| {
        let tone = match row.verdict {
            Verdict::Holds => Tone::Good,
            Verdict::Differs => Tone::Bad,
            Verdict::NotMeasured | Verdict::NotReproducible => Tone::Plain,
        };
        let cells = vec![
            Cell::text(row.id),
            Cell::text(row.claim),
            Cell::text(&row.paper_text()),
            Cell::text(&row.ours_text()),
            Cell::text(row.unit),
            Cell::text(&row.scale),
            Cell { tone, ..Cell::text(row.verdict_text()) },
        ];
        TableRow { cells, note: row.notes() }
    };
    Table { title: "Claims".to_owned(), columns, rows: rows.map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, runs};
    use super::*;

    #[test]
    fn values_stand_below_the_figures_where_a_row_has_some() {
        let bare = Row::new("S4", Kind::Exact).unwrap();
        let row = Row::new("S9", Kind::Shape).unwrap();
        let row =
            row.points(vec![runs::at("8 GB", 1.49, &[1.3]), runs::at("all", None, &[1234.2])]);
        let found = Found { rows: vec![bare, row], figures: Vec::new() };
        let folded = part(&found).folded;
        assert_eq!(folded.len(), 1);
        assert_eq!(folded[0].title, format!("S9, values: {} [% of reads]", found.rows[1].claim));
        let text = |row: &TableRow| row.cells.iter().map(|c| c.text.clone()).collect::<Vec<_>>();
        let rows: Vec<_> = folded[0].rows.iter().map(text).collect();
        assert_eq!(rows, [["8 GB", "1.3", "1.49"], ["all", "1234", ""]]);
    }
}
