// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a part: a table, sentences below it, and a file of rows.

use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::Value;

use super::row::Row;

/// Columns of a line of text.
const COLUMNS: usize = 100;

/// An element of a file of rows: a row with what it was measured on.
#[derive(Serialize)]
struct Entry<'a, R, S> {
    #[serde(flatten)]
    row: &'a R,
    setup: &'a S,
}

/// The rows of a part, for people and as JSON.
#[derive(Debug)]
pub struct Report {
    /// The table and the sentences.
    pub text: String,
    /// The rows, each with its setup.
    pub rows: Vec<Value>,
}

impl Report {
    /// Puts a report together: a line of the table from each row, and the paragraphs below it.
    ///
    /// # Errors
    /// A figure is no number.
    pub fn new<D: Serialize, const N: usize>(
        header: [&str; N],
        rows: &[Row<D>],
        cells: impl Fn(&Row<D>) -> [String; N],
        setup: &impl Serialize,
        paragraphs: &[String],
    ) -> Result<Self> {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL);
        table.set_header(header);
        table.add_rows(rows.iter().map(cells));
        table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
        let paragraphs: Vec<_> = paragraphs.iter().map(|text| wrap(text)).collect();
        let text = format!("{table}\n\n{}", paragraphs.join("\n"));
        let entry = |row| serde_json::to_value(Entry { row, setup });
        let rows = rows.iter().map(entry).collect::<Result<_, _>>();
        Ok(Self { text, rows: rows.context("cannot write the rows as JSON")? })
    }

    /// Writes the rows to a file, which is then either the old or the new one, whole.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let failed = || format!("cannot write {}", path.display());
        let half = path.with_extension("json.new");
        std::fs::write(&half, serde_json::to_string_pretty(&self.rows)? + "\n")
            .with_context(failed)?;
        std::fs::rename(&half, path).with_context(failed)
    }
}

/// A latency.
#[must_use]
pub fn latency(us: f64) -> String {
    if us < 1000.0 { format!("{us:.0} µs") } else { format!("{:.1} ms", us / 1e3) }
}

/// A share.
#[must_use]
pub fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// A size.
#[must_use]
pub fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Breaks a text into lines.
fn wrap(text: &str) -> String {
    let (mut wrapped, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS {
            wrapped.push('\n');
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += width;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_one_json_value_with_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("demo.json");
        let rows = ["larder", "bcache"].map(|name| serde_json::json!({ "name": name }));
        Report { text: String::new(), rows: rows.to_vec() }.write(&path).unwrap();
        let value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(value[1]["name"], "bcache");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn text_is_broken_between_words() {
        let text = "word ".repeat(100);
        let wrapped = wrap(&text);
        assert!(wrapped.lines().all(|l| l.len() <= COLUMNS && !l.ends_with(' ')));
        assert_eq!(wrapped.split_whitespace().count(), 100);
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(latency(412.4), "412 µs");
        assert_eq!(latency(8213.0), "8.2 ms");
        assert_eq!(percent(0.1234), "12.3 %");
        assert_eq!(mib(3 << 19), "1.5 MiB");
    }
}
