// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table, the sentences below it, and its JSON.

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use larder_io::format_size;
use serde::Serialize;
use serde_json::Value;

use super::super::report::{mib, percent, wrap};
use super::row::Row;

/// What was measured, the same for all rows.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Which PostgreSQL.
    pub postgresql: String,
    /// Warehouses of the load.
    pub warehouses: u32,
    /// The database's size at the start of each row.
    pub database_bytes: u64,
    /// Shared buffers of the rows but the last.
    pub shared_buffers_bytes: u64,
    /// The flash file.
    pub flash_bytes: u64,
    /// The model of the slow disk.
    pub device: String,
    /// Its seed, and that of the load.
    pub seed: u64,
    /// Clients.
    pub clients: usize,
    /// Seconds of each row before anything counts.
    pub warm_up_seconds: u64,
    /// Seconds that count ...
    pub measured_seconds: u64,
    /// ... and intervals of checkpoints, at least.
    pub measured_intervals: u64,
}

#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    row: &'a Row,
    setup: &'a Setup,
}

/// The rows as JSON values.
///
/// # Errors
/// A figure is no number.
pub fn json(rows: &[Row], setup: &Setup) -> Result<Vec<Value>> {
    let value = |row| serde_json::to_value(Entry { row, setup });
    rows.iter().map(value).collect::<Result<_, _>>().context("cannot write the rows as JSON")
}

/// The rows for people, and how to read them.
#[must_use]
pub fn text(rows: &[Row], setup: &Setup) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL);
    table.set_header([
        "row",
        "checkpoints",
        "new-orders/min",
        "p95 new-order",
        "hit ratio",
        "from disk",
        "disk writes",
        "flash written",
        "a flash write",
        "RAM",
        "restart",
    ]);
    for row in rows {
        table.add_row(cells(row));
    }
    table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    format!("{table}\n\n{}\n{}", wrap(&measured(setup)), wrap(READING))
}

fn cells(row: &Row) -> [String; 11] {
    let dash = || "-".to_owned();
    let saved = row.disk_writes_saved_ratio.map_or_else(String::new, |saved| {
        let words = if saved < 0.0 { "more" } else { "saved" };
        format!("\n{} {words}", percent(saved.abs()))
    });
    [
        row.name.to_owned(),
        format!("{} s", row.checkpoint_seconds),
        format!("{:.0}", row.load.new_orders_per_minute),
        format!("{:.0} ms", row.load.new_order_p95_ms),
        row.hit_ratio.map_or_else(dash, percent),
        percent(row.disk_read_ratio),
        format!("{:.1} /tx{saved}", row.disk_writes_per_transaction),
        row.flash_pages_written.map_or_else(dash, |pages| mib(pages * super::row::PAGE_BYTES)),
        row.flash_write_bytes.map_or_else(dash, |bytes| format!("{} KiB", bytes >> 10)),
        format!("{}\n+ {}", mib(row.shared_buffers_bytes), mib(row.memory_bytes)),
        format!("{:.1} s\nof {}", row.restart_seconds, mib(row.replay_bytes)),
    ]
}

fn measured(s: &Setup) -> String {
    let least = match s.measured_intervals {
        0 => String::new(),
        intervals => format!(" (and {intervals} intervals of checkpoints at least)"),
    };
    format!(
        "PostgreSQL {}, TPC-C mix with {} warehouses ({}), {} of shared buffers, {} of flash ({} of the database), on a \
         modelled {} (seed {}); {} clients, {} s measured{least} after {} s. Figures are no results of the TPC.",
        s.postgresql,
        s.warehouses,
        format_size(s.database_bytes),
        format_size(s.shared_buffers_bytes),
        format_size(s.flash_bytes),
        percent(s.flash_bytes as f64 / s.database_bytes.max(1) as f64),
        s.device,
        s.seed,
        s.clients,
        s.measured_seconds,
        s.warm_up_seconds
    )
}

const READING: &str = "hit ratio: pages that flash had, of those that the server read. From disk: pages read from the \
    slow disk, of the same; no page cache lies above it. Disk writes: pages written to the data directory there, and those \
    that flash owes it in the end, a transaction, against the row without a cache. A flash write: its mean, with heads. \
    RAM: shared buffers, and the cache's own memory; the last row has both as shared buffers. Restart: from the start \
    after kill -9 of all processes until connections are taken, and the log since the last checkpoint, which it replays. \
    After each row consistency was checked, with the cache and on the disk alone (full: once it was brought there), and \
    pg_amcheck found nothing.";

#[cfg(test)]
mod tests {
    use super::super::row::Kind;
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn the_table_says_what_was_measured() {
        let setup = Setup {
            postgresql: "15.18".to_owned(),
            warehouses: 10,
            database_bytes: 1 << 30,
            shared_buffers_bytes: 64 << 20,
            flash_bytes: 160 << 20,
            device: "cloud".to_owned(),
            seed: 1,
            clients: 8,
            warm_up_seconds: 20,
            measured_seconds: 40,
            measured_intervals: 2,
        };
        let off = row(Kind::Off, 100).unwrap();
        let mut on = row(Kind::On("bounded"), 60).unwrap();
        on.disk_writes_per_transaction = 1.0;
        on.compare(&off);
        let rows = [off, on];
        let text = text(&rows, &setup);
        for part in ["bounded", "40.0 %", "50.0 % saved", "10 warehouses", "15.6 % of the database"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let values = json(&rows, &setup).unwrap();
        assert_eq!(
            (&values[1]["policy"], &values[0]["hit_ratio"]),
            (&"bounded".into(), &Value::Null)
        );
        assert_eq!(values[0]["setup"]["device"], "cloud");
    }
}
