// SPDX-License-Identifier: MIT OR Apache-2.0
//! The second part's table, the sentences below it, and its JSON.

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use larder_io::format_size;
use serde::Serialize;
use serde_json::Value;

use super::super::report::{latency, mib, percent, wrap};
use super::load::{READ_ROWS, UPDATE_EVERY, ZIPF};
use super::row::{Kind, Row};

/// What was measured, the same for both rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// Which SQLite.
    pub sqlite: String,
    /// Rows of its table.
    pub rows: u32,
    /// The size of its file at the start.
    pub database_bytes: u64,
    /// The memory that it is allowed.
    pub memory_bytes: u64,
    /// How that is seen to.
    pub memory: String,
    /// The size of the volume.
    pub volume_bytes: u64,
    /// The size of the flash.
    pub flash_bytes: u64,
    /// The model of the slow device.
    pub profile: String,
    /// Its seed, and that of the load.
    pub seed: u64,
    /// Clients.
    pub clients: usize,
    /// Seconds of each row before anything counts.
    pub warm_up_seconds: u64,
    /// Seconds that count.
    pub measured_seconds: u64,
}

/// A row with what it was measured on: an element of `oltp.json`.
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
        "throughput",
        "p50",
        "p99",
        "hit ratio",
        "device reads",
        "flash written",
        "RAM",
    ]);
    for row in rows {
        table.add_row(cells(row));
    }
    table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    format!("{table}\n\n{}\n{}", wrap(&measured(rows, setup)), wrap(&reading(rows)))
}

fn cells(row: &Row) -> [String; 8] {
    let latencies = |all, read, update| {
        format!("{}\nread {}\nupdate {}", latency(all), latency(read), latency(update))
    };
    let cached = |words: String| if row.name == Kind::Direct { "-".to_owned() } else { words };
    let written = || {
        format!("{}\nin all {}", mib(row.flash_write_bytes), mib(row.flash_write_since_start_bytes))
    };
    [
        row.name.name().to_owned(),
        format!("{:.0} tx/s", row.throughput),
        latencies(row.p50_us, row.read_p50_us, row.update_p50_us),
        latencies(row.p99_us, row.read_p99_us, row.update_p99_us),
        cached(percent(row.hit_ratio)),
        format!("{}\n{} of pages", mib(row.device_reads), percent(row.device_read_ratio)),
        cached(written()),
        format!("declared {}\nprocess {}", mib(row.memory_bytes), mib(row.rss_bytes)),
    ]
}

/// What was measured.
fn measured(rows: &[Row], s: &Setup) -> String {
    let verified: u64 = rows.iter().map(|r| r.verified_rows).sum();
    let updates: u64 = rows.iter().map(|r| r.updates_since_start).sum();
    format!(
        "Measured: SQLite {} (WAL, synchronous=FULL) in an ext4 on a loop device on the FUSE file of \
         `larder serve`; {} of data, the database may use {}. {} clients, one transaction at a time \
         each: {} of {UPDATE_EVERY} read {READ_ROWS} rows by key (Zipf {ZIPF}, popular ones \
         anywhere), one updates a row and is answered when that is on the slow device; {} s of \
         warm-up, then {} s that count, for both rows. The slow device is a file of {} behind the \
         modelled latency of `{}`, the flash a file of {}. All {verified} rows read held what was \
         last written; after each row, with Larder gone, the slow device alone had a clean file \
         system, an intact database and all of the {updates} updates that were acknowledged.",
        s.sqlite,
        mib(s.database_bytes),
        s.memory,
        s.clients,
        UPDATE_EVERY - 1,
        s.warm_up_seconds,
        s.measured_seconds,
        format_size(s.volume_bytes),
        s.profile,
        format_size(s.flash_bytes),
    )
}

fn reading(rows: &[Row]) -> String {
    let row = |kind| rows.iter().find(|r| r.name == kind);
    let (Some(direct), Some(larder)) = (row(Kind::Direct), row(Kind::Larder)) else {
        return String::new();
    };
    format!(
        "How to read it: the database finds {} of its pages neither in its memory nor in the page \
         cache of `direct`, and waits for the slow device. With `larder` {} of what it asks the \
         volume for comes from flash: {:.1} times the transactions, half of the reading ones within \
         {} instead of {}. A commit waits for the slow device in both rows.",
        percent(direct.device_read_ratio),
        percent(larder.hit_ratio),
        larder.throughput / direct.throughput,
        latency(larder.read_p50_us),
        latency(direct.read_p50_us),
    )
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn every_row_and_figure_is_in_the_table_and_the_file() {
        let setup = Setup {
            sqlite: "3.40.1".into(),
            rows: 1000,
            database_bytes: 3 << 20,
            memory_bytes: 1 << 20,
            memory: "1MiB, somehow".into(),
            volume_bytes: 8 << 20,
            flash_bytes: 9 << 20,
            profile: "san-1g".into(),
            seed: 1,
            clients: 4,
            warm_up_seconds: 5,
            measured_seconds: 3,
        };
        let rows = [row(Kind::Direct, 40).unwrap(), row(Kind::Larder, 4).unwrap()];
        let text = text(&rows, &setup);
        for part in [
            "direct",
            "11 tx/s",
            "read 500 µs",
            "update 3.0 ms",
            "75.0 %",
            "97.6 % of pages",
            "process 5.0 MiB",
            "3.0 MiB of data, the database may use 1MiB, somehow",
            "9 of 10 read 4 rows",
            "the 4 updates",
            "1.0 times",
        ] {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(part) || text.contains(part), "{part}: {text}");
        }
        let values = json(&rows, &setup).unwrap();
        assert_eq!((&values[0]["name"], &values[1]["name"]), (&"direct".into(), &"larder".into()));
        assert_eq!(values[1]["setup"]["profile"], "san-1g");
    }
}
