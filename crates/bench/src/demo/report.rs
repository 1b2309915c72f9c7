// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo's table, the sentences below it, and its JSON.

use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::Value;

use super::row::{FIRST_SECONDS, Kind, Row};

/// Columns of a line of text.
const COLUMNS: usize = 100;

/// What was measured, the same for all rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setup {
    /// The trace.
    pub trace: String,
    /// Its requests.
    pub trace_requests: usize,
    /// Those that write.
    pub trace_writes: usize,
    /// The size of the volume.
    pub volume_bytes: u64,
    /// The part of it that the trace touches.
    pub touched_bytes: u64,
    /// The size of the flash.
    pub flash_bytes: u64,
    /// The model of the slow device.
    pub profile: String,
    /// Its seed.
    pub seed: u64,
    /// Further flags of the row with the cache.
    pub larder_flags: String,
    /// Connections.
    pub connections: usize,
    /// Requests that each keeps open.
    pub depth: usize,
    /// How long is replayed before anything counts.
    pub warm_up_seconds: u64,
    /// How long counts.
    pub measured_seconds: u64,
    /// A FLUSH follows after so many writes to the log.
    pub flush_every: u64,
}

/// A row with what it was measured on: an element of `demo.json`.
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

/// Writes a file that is either the old or the new one, whole.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let half = path.with_extension("json.new");
    std::fs::write(&half, format!("{text}\n")).with_context(failed)?;
    std::fs::rename(&half, path).with_context(failed)
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
    format!("{table}\n\n{}", sentences(rows, setup))
}

fn cells(row: &Row) -> [String; 8] {
    let latencies = |all, read, write| {
        format!("{}\nread {}\nwrite {}", latency(all), latency(read), latency(write))
    };
    let has_cache = row.name.preset().is_some();
    let has_device = row.name != Kind::AllFlash;
    let dash = || "-".to_owned();
    let first = || {
        let (hits, share) = (percent(row.hit_ratio), percent(row.first_hit_ratio));
        format!("{hits}\nfirst {FIRST_SECONDS} s: {share}")
    };
    let reads =
        || format!("{}\n{} of reads", mib(row.device_reads), percent(row.device_read_ratio));
    let written = || {
        let total = mib(row.flash_write_since_start_bytes);
        format!("{}\nin all {total}", mib(row.flash_write_bytes))
    };
    [
        row.name.name().to_owned(),
        format!("{:.0} IOPS\n{:.1} MB/s", row.throughput, row.throughput_bytes_per_second / 1e6),
        latencies(row.p50_us, row.read_p50_us, row.write_p50_us),
        latencies(row.p99_us, row.read_p99_us, row.write_p99_us),
        if has_cache { first() } else { dash() },
        if has_device { reads() } else { dash() },
        if row.name == Kind::NoCache { dash() } else { written() },
        format!("declared {}\nprocess {}", mib(row.memory_bytes), mib(row.rss_bytes)),
    ]
}

pub(super) fn latency(us: f64) -> String {
    if us < 1000.0 { format!("{us:.0} µs") } else { format!("{:.1} ms", us / 1e3) }
}

pub(super) fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

pub(super) fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// What was measured, and how to read it.
fn sentences(rows: &[Row], s: &Setup) -> String {
    let verified: u64 = rows.iter().map(|r| r.verified_pages).sum();
    let room = if s.flash_bytes > s.volume_bytes {
        "with room for all of it"
    } else {
        "smaller than that"
    };
    let flags = match s.larder_flags.as_str() {
        "" => "`larder` runs with its defaults".to_owned(),
        flags => format!("`larder` runs with `{flags}`"),
    };
    let measured = format!(
        "Measured: {} ({} requests, {:.0} % writes), replayed over NBD by {} connections with {} \
         requests open each, as fast as answers come (its timestamps are ignored), a FLUSH after \
         every {} log writes; {} s of warm-up, then {} s that count, for every row alike. The slow \
         device is a file of {} ({} touched) behind the modelled latency of `{}`, the flash a file \
         of {} on this machine's disk, {room}; {flags}. All {verified} pages read, and \
         the whole file after each row, held what was last written.",
        s.trace,
        s.trace_requests,
        s.trace_writes as f64 * 100.0 / s.trace_requests.max(1) as f64,
        s.connections,
        s.depth,
        s.flush_every,
        s.warm_up_seconds,
        s.measured_seconds,
        mib(s.volume_bytes),
        mib(s.touched_bytes),
        s.profile,
        mib(s.flash_bytes),
    );
    format!("{}\n{}", wrap(&measured), wrap(&reading(rows)))
}

fn reading(rows: &[Row]) -> String {
    let row = |kind| rows.iter().find(|r| r.name == kind);
    let (Some(bare), Some(larder), Some(flash)) =
        (row(Kind::NoCache), row(Kind::Larder), row(Kind::AllFlash))
    else {
        return String::new();
    };
    format!(
        "How to read it: `larder` answers {} of the reads from flash, half of all reads within {} \
         instead of {}, and does {:.1} times the requests of `no-cache` and {} of those of \
         `all-flash`. A write is answered when the slow device has it, so writes stay as slow as \
         that device, and whoever waits for them is bound by them; device reads of `larder` are \
         misses and what it copies to flash. `flashcache` and `bcache` are the same engine with the \
         choices of those caches (single pages, copied by whoever misses them), not their code. A \
         faster row gets further through the trace.",
        percent(larder.hit_ratio),
        latency(larder.read_p50_us),
        latency(bare.read_p50_us),
        larder.throughput / bare.throughput,
        percent(larder.throughput / flash.throughput),
    )
}

/// Breaks a text into lines.
pub(super) fn wrap(text: &str) -> String {
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
    use super::super::row::tests::{row, samples};
    use super::*;

    fn setup() -> Setup {
        Setup {
            trace: "a trace".into(),
            trace_requests: 10,
            trace_writes: 4,
            volume_bytes: 8 << 20,
            touched_bytes: 4 << 20,
            flash_bytes: 9 << 20,
            profile: "san-1g".into(),
            seed: 1,
            larder_flags: "--populate-share 90%".into(),
            connections: 4,
            depth: 4,
            warm_up_seconds: 5,
            measured_seconds: 3,
            flush_every: 16,
        }
    }

    fn rows() -> Vec<Row> {
        Kind::ALL.map(|kind| row(kind, &samples()).unwrap()).to_vec()
    }

    #[test]
    fn every_row_and_figure_is_in_the_table() {
        let text = text(&rows(), &setup());
        for part in [
            "no-cache",
            "larder",
            "all-flash",
            "20 IOPS",
            "900 µs",
            "100.0 %",
            "first 5 s: 60.0 %",
            "50.0 % of reads",
            "40 % writes",
            "8.0 MiB",
            "process 5.0 MiB",
            "1.0 times",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn the_file_holds_one_json_value_with_rows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("demo.json");
        let rows = serde_json::to_string(&json(&rows(), &setup()).unwrap()).unwrap();
        write(&path, &rows).unwrap();
        let value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let names: Vec<_> = value.as_array().unwrap().iter().map(|r| r["name"].clone()).collect();
        assert_eq!(names, ["no-cache", "larder", "flashcache", "bcache", "all-flash"]);
        assert_eq!(value[1]["setup"]["profile"], "san-1g");
        assert!(value[0]["device_reads"].is_number());
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
