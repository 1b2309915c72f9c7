// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a report: the table of claims, the papers' figures, the values of each row, and the figures without a picture.
//!
//! Invariant: a claim and each figure that it belongs to are linked in both directions.

use anyhow::Result;
use larder_report::{Cell, Column, Link, Section, Table, TableRow};

use super::figures::{sections, tables, tone};
use super::{Asked, At, Row};

/// The parts of the report of a paper, or of all.
///
/// # Errors
/// If a run lacks a point that a figure names.
pub fn report(paper: &str, asked: &Asked, rows: &[Row]) -> Result<Vec<Section>> {
    let chosen = |name: &str| paper == "all" || paper == name;
    let mut parts = vec![Section::table(claims(rows))];
    let mut without = Vec::new();
    for table in tables().iter().filter(|table| chosen(table.paper)) {
        let (drawn, rest) = sections(table, asked, rows)?;
        parts.extend(drawn);
        without.extend(rest);
    }
    let valued = rows.iter().filter(|row| !row.points.is_empty());
    parts.push(Section {
        title: "The values of the rows".to_owned(),
        folded: valued.map(points).collect(),
        ..Section::default()
    });
    let columns =
        ["figure", "shows", "why it has no picture", "claims"].map(Column::words).to_vec();
    let title = "Figures without a picture".to_owned();
    parts.push(Section::table(Table { title, columns, rows: without }));
    Ok(parts)
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
fn claims(rows: &[Row]) -> Table {
    let columns = ["row", "claim", "paper", "ours", "unit", "scale", "verdict", "figures"];
    let tables = tables();
    let links = |row: &Row| -> Vec<Link> {
        let all = tables.iter().flat_map(|table| table.figures.iter().map(move |f| (table, f)));
        let of = all.filter(|(_, figure)| figure.claims.contains(&row.id));
        let link = |(table, figure): (&super::figures::Table, &super::figures::Figure)| Link {
            text: figure.label.clone(),
            to: figure.anchor(table.paper),
        };
        of.map(link).collect()
    };
    let row = |row: &Row| {
        let cells = vec![
            Cell { anchor: row.id.to_owned(), ..Cell::text(row.id) },
            Cell::text(row.claim),
            Cell::text(&row.paper_text()),
            Cell::text(&row.ours_text()),
            Cell::text(row.unit),
            Cell::text(&row.scale),
            Cell { tone: tone(row), ..Cell::text(row.verdict_text()) },
            Cell { links: links(row), ..Cell::default() },
        ];
        TableRow { cells, note: row.notes() }
    };
    let rows = rows.iter().map(row).collect();
    Table { title: "Claims".to_owned(), columns: columns.map(Column::words).to_vec(), rows }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, runs};
    use super::*;

    #[test]
    fn values_stand_below_the_figures_where_a_row_has_some() {
        let bare = Row::new("S4", Kind::Exact).unwrap();
        let row = Row::new("S10", Kind::Shape).unwrap();
        let row =
            row.points(vec![runs::at("8 GB", 1.49, &[1.3]), runs::at("all", None, &[1234.2])]);
        let rows = [bare, row];
        let parts = report("sce", &Asked::default(), &rows).unwrap();
        let folded: Vec<&Table> = parts.iter().flat_map(|part| &part.folded).collect();
        assert_eq!(folded.len(), 1);
        assert_eq!(
            folded[0].title,
            format!("S10, values: {} [times the transactions]", rows[1].claim)
        );
        let text = |row: &TableRow| row.cells.iter().map(|c| c.text.clone()).collect::<Vec<_>>();
        let rows: Vec<_> = folded[0].rows.iter().map(text).collect();
        assert_eq!(rows, [["8 GB", "1.3", "1.49"], ["all", "1234", ""]]);
    }
}
