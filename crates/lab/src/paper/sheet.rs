// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows for a report: a table of claims, and one of the values of figures and tables.

use larder_report::{Cell, Column, Table, TableRow, Tone};

use super::{Row, Verdict};

/// The table of claims.
#[must_use]
pub fn sheet(rows: &[Row]) -> Table {
    let words = Column::words;
    let columns = ["row", "claim", "paper", "ours", "unit", "scale", "verdict"].map(words).to_vec();
    let row = |row: &Row| {
        let tone = match row.verdict {
            Verdict::Holds => Tone::Good,
            Verdict::Differs => Tone::Bad,
            Verdict::NotReproducible => Tone::Plain,
        };
        let cells = vec![
            Cell::text(row.id),
            Cell::text(row.claim),
            Cell::text(&row.paper_text()),
            Cell::text(&row.ours_text()),
            Cell::text(row.unit),
            Cell::text(&row.scale),
            Cell { tone, ..Cell::text(row.verdict.name()) },
        ];
        TableRow { cells, note: row.why.clone() }
    };
    Table { title: "Claims".to_owned(), columns, rows: rows.iter().map(row).collect() }
}
