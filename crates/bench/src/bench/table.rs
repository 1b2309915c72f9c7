// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows for people.

use comfy_table::{CellAlignment, Table, presets};
use larder_report::{Cell, Column, Table as Sheet, TableRow, Tone};

use super::row::Row;

/// Prints rows as a table to standard output, notes below it.
pub fn print_table(rows: &[Row]) {
    println!("{}", render(rows));
}

fn render(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["bench", "case", "ours", "peer", "unit", "ratio", "goal", ""]);
    for row in rows {
        table.add_row([
            row.name.clone(),
            row.case.clone(),
            number(row.ours),
            number(row.peer),
            row.unit.clone(),
            ratio(row),
            row.goal.clone().unwrap_or_default(),
            match row.reached {
                Some(true) => "reached".to_owned(),
                Some(false) => "MISSED".to_owned(),
                None => String::new(),
            },
        ]);
    }
    for column in [2, 3, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let notes: String = rows
        .iter()
        .filter(|row| !row.note.is_empty() || !row.against.is_empty())
        .map(|row| {
            let against = if row.against.is_empty() {
                String::new()
            } else {
                format!(" peer: {}.", row.against)
            };
            format!("\n{} / {}:{against} {}", row.name, row.case, row.note)
        })
        .collect();
    format!("{table}\n{notes}")
}

/// Rows for a report.
#[must_use]
pub fn sheet(rows: &[Row]) -> Sheet {
    let words = Column::words;
    let columns = vec![
        words("bench"),
        words("case"),
        words("against"),
        Column::numbers("ours"),
        Column::numbers("peer"),
        words("unit"),
        Column::numbers("ratio"),
        words("goal"),
        words(""),
    ];
    let rows = rows.iter().map(sheet_row).collect();
    Sheet { title: "Rows".to_owned(), columns, rows }
}

fn sheet_row(row: &Row) -> TableRow {
    let number = larder_report::number;
    let small = match (row.min, row.max) {
        (Some(min), Some(max)) => format!("{} to {}", number(min), number(max)),
        _ => String::new(),
    };
    let (text, tone) = match row.reached {
        Some(true) => ("reached", Tone::Good),
        Some(false) => ("missed", Tone::Bad),
        None => ("", Tone::Plain),
    };
    let cells = vec![
        Cell::text(&row.name),
        Cell::text(&row.case),
        Cell::text(&row.against),
        Cell::number(row.ours),
        Cell::number(row.peer),
        Cell::text(&row.unit),
        Cell { small, ..Cell::number(row.ratio) },
        Cell::text(row.goal.as_deref().unwrap_or_default()),
        Cell { tone, ..Cell::text(text) },
    ];
    TableRow { cells, note: row.note.clone() }
}

fn ratio(row: &Row) -> String {
    match (row.ratio, row.min, row.max) {
        (Some(ratio), Some(min), Some(max)) => format!("{ratio:.3} ({min:.2} - {max:.2})"),
        (Some(ratio), ..) => format!("{ratio:.3}"),
        _ => "-".to_owned(),
    }
}

/// Four digits, more for large numbers.
fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let digits = if value == 0.0 { 0 } else { 3 - value.abs().log10().floor() as i32 };
    let places = digits.clamp(0, 4) as usize;
    format!("{value:.places$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::row::Goal;

    #[test]
    fn a_row_that_was_not_reached_is_there_and_says_so() {
        let row = Row::new("nbd", "memory, depth 1", "IOPS")
            .against("nbdkit memory", 31_234.5, 25_000.0)
            .goals(&[Goal::RatioAtLeast(1.3)])
            .note("bound by the socket");
        let text = render(&[row]);
        for part in ["31234", "25000", "1.249", "ratio >= 1.3", "MISSED", "bound by the socket"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn numbers_have_four_digits() {
        let text = [0.60431, 13.61, 1234.5, 0.0].map(|n| number(Some(n)));
        assert_eq!(text, ["0.6043", "13.61", "1234", "0"]);
    }
}
