// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of PostgreSQL's rows, and the sentences below it.

use anyhow::Result;
use larder_io::format_size;

use super::row::{PAGE_BYTES, PostgresRow};
use super::setup::Setup;
use crate::demo::report::{Report, mib, percent};

const HEADER: [&str; 11] = [
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
];

/// The report.
///
/// # Errors
/// A figure is no number.
pub fn report(rows: &[PostgresRow], setup: &Setup) -> Result<Report> {
    Report::new(HEADER, rows, cells, setup, &[explain(setup), READING.to_owned()])
}

fn cells(row: &PostgresRow) -> [String; 11] {
    let details = &row.details;
    let cached = |text: String| if details.policy.is_some() { text } else { "-".to_owned() };
    let saved = details.disk_writes_saved_ratio.map_or_else(String::new, |saved| {
        let words = if saved < 0.0 { "more" } else { "saved" };
        format!("\n{} {words}", percent(saved.abs()))
    });
    let flash_pages = details.flash_pages_written.unwrap_or_default();
    let flash_write = details.flash_write_mean_bytes.unwrap_or_default();
    [
        row.name.to_owned(),
        format!("{} s", details.checkpoint_seconds),
        format!("{:.0}", details.load.new_orders_per_minute),
        format!("{:.0} ms", details.load.new_order_p95_ms),
        cached(percent(row.hit_ratio)),
        percent(details.disk_read_ratio),
        format!("{:.1} /tx{saved}", details.disk_writes_per_transaction),
        cached(mib(flash_pages * PAGE_BYTES)),
        cached(format!("{} KiB", flash_write >> 10)),
        format!("{}\n+ {}", mib(details.shared_buffers_bytes), mib(row.memory_bytes)),
        format!("{:.1} s\nof {}", details.restart_seconds, mib(details.replay_bytes)),
    ]
}

/// What was measured.
fn explain(s: &Setup) -> String {
    let least = match s.scale.measured_intervals {
        0 => String::new(),
        intervals => format!(" (and {intervals} intervals of checkpoints at least)"),
    };
    format!(
        "PostgreSQL {}, TPC-C mix with {} warehouses ({}), {} of shared buffers, {} of flash ({} of the database), on a \
         modelled {} (seed {}); {} clients, {} s measured{least} after {} s. Figures are no results of the TPC.",
        s.postgresql,
        s.scale.warehouses,
        format_size(s.database_bytes),
        format_size(s.scale.shared_buffers_bytes),
        format_size(s.flash_bytes),
        percent(s.flash_bytes as f64 / s.database_bytes.max(1) as f64),
        s.scale.device,
        s.seed,
        s.scale.clients,
        s.scale.window.measured_seconds,
        s.scale.window.warm_up_seconds
    )
}

const READING: &str = "hit ratio: of the pages that the server read, those that flash held. From disk: of the same pages, those \
    read from the slow disk; no page cache lies above it. Disk writes: pages written to the data directory there \
    and pages that are dirty on flash at the end, a transaction, against the row without a cache. A flash write: \
    its mean, with batch headers. RAM: shared buffers, and the cache's own memory; the last row has both as \
    shared buffers. Restart: from the start after kill -9 of all processes until connections are taken, and the \
    log since the last checkpoint, which it replays. After each row consistency was checked, with the cache and \
    on the disk alone (full: after it was written back), and pg_amcheck found nothing.";

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::row::Kind;
    use super::super::row::tests::row;
    use super::super::setup::Scale;
    use super::*;

    #[test]
    fn the_table_says_what_was_measured() {
        let setup = Setup {
            postgresql: "15.18".to_owned(),
            database_bytes: 1 << 30,
            flash_bytes: 160 << 20,
            seed: 1,
            scale: Scale::default(),
        };
        let off = row(Kind::Off, 100).unwrap();
        let mut on = row(Kind::On("bounded"), 60).unwrap();
        on.details.disk_writes_per_transaction = 1.0;
        on.compare(&off);
        let report = report(&[off, on], &setup).unwrap();
        let text = report.text.replace('\n', " ");
        for part in ["bounded", "40.0 %", "50.0 % saved", "6 warehouses", "15.6 % of the database"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let [off, on] = &report.rows[..] else { panic!("two rows") };
        assert_eq!((&on["policy"], &off["policy"]), (&"bounded".into(), &Value::Null));
        assert_eq!(off["setup"]["device"], "cloud");
    }
}
