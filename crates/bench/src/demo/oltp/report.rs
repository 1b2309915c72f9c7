// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the rows of the database have besides, their table, and the sentences below it.

use anyhow::Result;
use larder_io::format_size;
use serde::Serialize;

use super::load::{READ_ROWS, UPDATE_EVERY, ZIPF};
use super::setup::Setup;
use crate::demo::report::{Report, latency, mib, percent};
use crate::demo::row::Row;
use crate::demo::served::row::{Details, HEADER, Measured, Words, cells};
use crate::demo::served::way::{Medium, Way};

/// The rows, in their order.
pub const WAYS: [Way; 2] = [Way { name: "direct", medium: Medium::Device }, Way::LARDER];
const WORDS: Words = Words { unit: "tx/s", change: "update", asked: "pages" };

/// What the database's clients measure besides.
#[derive(Clone, Debug, Serialize)]
pub struct Transactions {
    /// Of transactions that update.
    pub update_p50_us: f64,
    /// Of those that update.
    pub update_p99_us: f64,
    /// Transactions that update.
    pub updates: u64,
    /// Updates acknowledged since the start of the row, all of which the database had in the end.
    pub updates_since_start: u64,
    /// Rows of the table that were read and found right since the start of the row.
    pub verified_rows: u64,
}

/// A row of `oltp.json`; throughput and latencies are of transactions.
pub type OltpRow = Row<Details<Transactions>>;

/// Puts a row together, with so many updates acknowledged since its start.
///
/// # Errors
/// Nothing was measured, or what was measured is not what the row stands for.
pub fn row(measured: &Measured, updates_since_start: u64) -> Result<OltpRow> {
    let tally = &measured.tally;
    let load = Transactions {
        update_p50_us: tally.writes.quantile_us(0.50),
        update_p99_us: tally.writes.quantile_us(0.99),
        updates: tally.writes.count(),
        updates_since_start,
        verified_rows: tally.verified,
    };
    // A page that comes from the page cache is one that the volume was not asked for.
    measured.row(tally.bytes, load)
}

/// The report.
///
/// # Errors
/// A figure is no number.
pub fn report(rows: &[OltpRow], setup: &Setup) -> Result<Report> {
    let line = |row: &OltpRow| {
        let load = &row.details.load;
        cells(row, WORDS, (load.update_p50_us, load.update_p99_us))
    };
    Report::new(HEADER, rows, line, setup, &[explain(rows, setup), reading(rows)])
}

/// What was measured.
fn explain(rows: &[OltpRow], s: &Setup) -> String {
    let verified: u64 = rows.iter().map(|r| r.details.load.verified_rows).sum();
    let updates: u64 = rows.iter().map(|r| r.details.load.updates_since_start).sum();
    format!(
        "Measured: SQLite {} (WAL, synchronous=FULL) in an ext4 on a loop device on the FUSE file of \
         `larder serve`; {} of data, the database may use {}. {} clients, one transaction at a time \
         each: {} of {UPDATE_EVERY} read {READ_ROWS} rows by key (Zipf {ZIPF}, popular ones \
         anywhere), one updates a row and is answered when the update is on the slow device; {} s of \
         warm-up, then {} s that count, for both rows. The slow device is a file of {} behind the \
         modelled latency of `{}`, the flash a file of {}. All {verified} rows read held what was \
         last written; after each row, without Larder, the slow device held a clean file \
         system, an intact database and all of the {updates} updates that were acknowledged.",
        s.sqlite,
        mib(s.database_bytes),
        s.memory,
        s.scale.clients,
        UPDATE_EVERY - 1,
        s.scale.window.warm_up_seconds,
        s.scale.window.measured_seconds,
        format_size(s.scale.volume_bytes),
        s.profile,
        format_size(s.scale.flash_bytes),
    )
}

fn reading(rows: &[OltpRow]) -> String {
    let [direct, larder] = rows else { return String::new() };
    format!(
        "How to read it: the database finds {} of its pages neither in its memory nor in the page \
         cache of `direct`, and waits for the slow device. With `larder` {} of what it asks the \
         volume for comes from flash: {:.1} times the transactions, half of the reading ones within \
         {} instead of {}. A commit waits for the slow device in both rows.",
        percent(direct.details.device_read_ratio),
        percent(larder.hit_ratio),
        larder.throughput / direct.throughput,
        latency(larder.details.read_p50_us),
        latency(direct.details.read_p50_us),
    )
}

#[cfg(test)]
mod tests {
    use super::super::setup::Scale;
    use super::*;
    use crate::demo::served::row::tests::measured;

    #[test]
    fn every_row_and_figure_is_in_the_report() {
        let setup = Setup {
            sqlite: "3.40.1".into(),
            database_bytes: 3 << 20,
            memory: "1MiB, somehow".into(),
            profile: "san-1g".into(),
            seed: 1,
            scale: Scale::default(),
        };
        let rows = WAYS.map(|way| row(&measured(way), 2).unwrap());
        assert_eq!(rows[1].details.load.updates, 30);
        let report = report(&rows, &setup).unwrap();
        let words = report.text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "direct",
            "20 tx/s",
            "read 100 µs",
            "update 900 µs",
            "100.0 %",
            "250.0 % of pages",
            "process 5.0 MiB",
            "3.0 MiB of data, the database may use 1MiB, somehow",
            "9 of 10 read 4 rows",
            "the 4 updates",
            "1.0 times",
        ] {
            assert!(words.contains(part) || report.text.contains(part), "{part}: {}", report.text);
        }
        let names = [&report.rows[0]["name"], &report.rows[1]["name"]];
        assert_eq!(names, ["direct", "larder"]);
        let setup = &report.rows[1]["setup"];
        assert_eq!((&setup["profile"], &setup["warm_up_seconds"]), (&"san-1g".into(), &8.into()));
    }
}
