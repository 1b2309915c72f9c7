// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was measured of a served volume, as a row and as a line of a table.
//!
//! Invariants: on flash alone the server's origin is the flash, so its writes count as written to
//! flash and its reads as none of the slow device.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::way::{Medium, Way};
use crate::demo::report::{latency, mib, percent};
use crate::demo::row::{self, Row};
use crate::demo::server::Stats;
use crate::demo::tally::Tally;
use crate::demo::window::Window;

/// What happened in one second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Second {
    /// Requests or transactions answered.
    pub throughput: u64,
    /// The share of reads served wholly from flash.
    pub hit_ratio: f64,
}

/// What a row is put together from.
#[derive(Clone, Debug)]
pub struct Measured {
    /// How the volume was served.
    pub way: Way,
    /// The clients' counts.
    pub tally: Tally,
    /// The server's counters at the start and after each second.
    pub samples: Vec<Stats>,
    /// How long the load ran.
    pub window: Window,
    /// The server's resident memory at the end.
    pub rss_bytes: u64,
}

/// What the rows of served volumes have besides; a load adds its own.
#[derive(Clone, Debug, Serialize)]
pub struct Details<L> {
    /// How the volume was served.
    #[serde(skip)]
    pub way: Way,
    /// Of requests or transactions that read.
    pub read_p50_us: f64,
    /// Of those that read.
    pub read_p99_us: f64,
    /// Bytes read from the slow device, as a share of those that clients asked for.
    pub device_read_ratio: f64,
    /// Bytes written to flash since the start of the row.
    pub flash_write_since_start_bytes: u64,
    /// Resident memory of the server's process.
    pub rss_bytes: u64,
    /// Requests or transactions that read.
    pub reads: u64,
    /// Every second since the start of the row.
    pub seconds: Vec<Second>,
    /// The server's counters over the measured window, as it gives them.
    pub counters: Stats,
    /// What the load counts besides.
    #[serde(flatten)]
    pub load: L,
}

impl Measured {
    /// What the server counted in the first seconds.
    #[must_use]
    pub fn first(&self, seconds: u64) -> Stats {
        self.at(seconds).since(&self.at(0))
    }

    /// What the server counted in the measured window.
    #[must_use]
    pub fn counters(&self) -> Stats {
        self.at(self.window.end_seconds()).since(&self.at(self.window.warm_up_seconds))
    }

    fn at(&self, second: u64) -> Stats {
        self.samples.get(second as usize).copied().unwrap_or_default()
    }

    /// The row, of clients that asked for so many bytes.
    ///
    /// # Errors
    /// Nothing was measured, or what was measured is not what the row stands for.
    pub fn row<L>(&self, asked_bytes: u64, load: L) -> Result<Row<Details<L>>> {
        let Self { way, tally, window, .. } = self;
        let counters = self.counters();
        ensure!(
            tally.reads.count() > 0 && tally.writes.count() > 0,
            "row {}: nothing was read or nothing written in {} s",
            way.name,
            window.measured_seconds
        );
        let flash_alone = way.medium == Medium::Flash;
        let device_reads = if flash_alone { 0 } else { counters.origin_read_bytes };
        let flash_writes =
            |s: &Stats| if flash_alone { s.origin_write_bytes } else { s.flash_write_bytes };
        if way.medium == Medium::Device {
            row::ensure_uncached(way.name, device_reads, asked_bytes)?;
        }
        let all = tally.all();
        Ok(Row {
            name: way.name,
            throughput: self.per_second(tally.requests()),
            p50_us: all.quantile_us(0.50),
            p95_us: all.quantile_us(0.95),
            p99_us: all.quantile_us(0.99),
            hit_ratio: counters.hit_ratio(),
            device_reads,
            flash_write_bytes: flash_writes(&counters),
            memory_bytes: counters.memory_bytes,
            details: Details {
                way: *way,
                read_p50_us: tally.reads.quantile_us(0.50),
                read_p99_us: tally.reads.quantile_us(0.99),
                device_read_ratio: device_reads as f64 / asked_bytes.max(1) as f64,
                flash_write_since_start_bytes: flash_writes(&self.first(window.end_seconds())),
                rss_bytes: self.rss_bytes,
                reads: tally.reads.count(),
                seconds: self.seconds(),
                counters,
                load,
            },
        })
    }

    /// A count of the measured window, a second.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.window.measured_seconds.max(1) as f64
    }

    fn seconds(&self) -> Vec<Second> {
        let hits = self.samples.windows(2).map(|pair| pair[1].since(&pair[0]).hit_ratio());
        let throughput = self.tally.seconds.iter().copied().chain(std::iter::repeat(0));
        let second = |(hit_ratio, throughput)| Second { throughput, hit_ratio };
        hits.zip(throughput).map(second).collect()
    }
}

/// The header of the table.
pub const HEADER: [&str; 8] =
    ["row", "throughput", "p50", "p99", "hit ratio", "device reads", "flash written", "RAM"];

/// What the table calls what a load does.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Of its throughput.
    pub unit: &'static str,
    /// What is not a read.
    pub change: &'static str,
    /// Of what it asked for.
    pub asked: &'static str,
}

/// The line of a row, whose changes have these 50th and 99th percentiles.
#[must_use]
pub fn cells<L>(row: &Row<Details<L>>, words: Words, change_us: (f64, f64)) -> [String; 8] {
    let details = &row.details;
    let latencies = |all, read, change| {
        let name = words.change;
        format!("{}\nread {}\n{name} {}", latency(all), latency(read), latency(change))
    };
    let only = |shown: bool, text: String| if shown { text } else { "-".to_owned() };
    let share = percent(details.device_read_ratio);
    let reads = format!("{}\n{share} of {}", mib(row.device_reads), words.asked);
    let in_all = mib(details.flash_write_since_start_bytes);
    let written = format!("{}\nin all {in_all}", mib(row.flash_write_bytes));
    [
        row.name.to_owned(),
        format!("{:.0} {}", row.throughput, words.unit),
        latencies(row.p50_us, details.read_p50_us, change_us.0),
        latencies(row.p99_us, details.read_p99_us, change_us.1),
        only(details.way.is_cached(), percent(row.hit_ratio)),
        only(details.way.medium != Medium::Flash, reads),
        only(details.way.medium != Medium::Device, written),
        format!("declared {}\nprocess {}", mib(row.memory_bytes), mib(details.rss_bytes)),
    ]
}

#[cfg(test)]
pub(in crate::demo) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::demo::tally::Class;

    const DEVICE: Way = Way { name: "no-cache", medium: Medium::Device };
    const FLASH: Way = Way { name: "all-flash", medium: Medium::Flash };

    /// Eight seconds, the last three measured, of ten reads and ten writes each: half of the reads
    /// hit in the first four seconds, then all of them.
    pub fn measured(way: Way) -> Measured {
        let window = Window { warm_up_seconds: 5, measured_seconds: 3 };
        let mut tally = Tally::new(window.span());
        for tenth in 0..80 {
            let ended = Duration::from_millis(tenth * 100);
            tally.add(Class::Read, 4096, ended, Duration::from_micros(100));
            tally.add(Class::Write, 4096, ended, Duration::from_micros(900));
        }
        let sample = |second: u64| Stats {
            reads: second * 100,
            read_hits: second.min(4) * 50 + second.saturating_sub(4) * 100,
            read_bytes: second * 100 * 4096,
            write_bytes: second * 4096,
            flash_write_bytes: second * 8192,
            origin_read_bytes: second * 50 * 4096,
            origin_write_bytes: second * 4096,
            memory_bytes: 77,
            ..Stats::default()
        };
        Measured { way, tally, samples: (0..9).map(sample).collect(), window, rss_bytes: 5 << 20 }
    }

    #[derive(Debug, Serialize)]
    struct NoMore {}

    fn row(way: Way, asked_pages: u64) -> Result<Row<Details<NoMore>>> {
        measured(way).row(asked_pages * 4096, NoMore {})
    }

    #[test]
    fn figures_are_of_the_window() {
        let row = row(Way::LARDER, 300).unwrap();
        assert!((row.throughput - 20.0).abs() < 1e-9 && (row.hit_ratio - 1.0).abs() < 1e-9);
        assert!((row.p99_us / 900.0 - 1.0).abs() < 0.01);
        assert_eq!((row.device_reads, row.flash_write_bytes), (150 * 4096, 3 << 13));
        let details = row.details;
        assert!((details.read_p50_us / 100.0 - 1.0).abs() < 0.01);
        assert!((details.device_read_ratio - 0.5).abs() < 1e-9);
        assert_eq!((details.reads, details.flash_write_since_start_bytes), (30, 8 << 13));
        assert_eq!(details.seconds.len(), 8);
        assert_eq!(details.seconds[7], Second { throughput: 20, hit_ratio: 1.0 });
    }

    #[test]
    fn without_a_slow_device_what_is_written_is_written_to_flash() {
        let row = row(FLASH, 300).unwrap();
        assert_eq!((row.device_reads, row.flash_write_bytes), (0, 3 << 12));
        assert_eq!(row.details.counters.origin_read_bytes, 150 * 4096);
    }

    #[test]
    fn a_row_without_cache_that_is_cached_fails() {
        assert!(row(DEVICE, 600).is_ok() && row(Way::LARDER, 601).is_ok());
        let error = row(DEVICE, 601).unwrap_err().to_string();
        assert!(error.contains("less than a quarter"), "{error}");
    }

    #[test]
    fn a_figure_that_a_way_does_not_have_is_a_dash() {
        let words = Words { unit: "IOPS", change: "write", asked: "reads" };
        let line = |way| cells(&row(way, 300).unwrap(), words, (900.0, 900.0));
        let dashes = |way| {
            let line = line(way);
            (0..line.len()).filter(|at| line[*at] == "-").collect::<Vec<_>>()
        };
        assert_eq!((dashes(DEVICE), dashes(FLASH)), (vec![4, 6], vec![4, 5]));
        let line = line(Way::LARDER);
        assert_eq!((&*line[1], &*line[2]), ("20 IOPS", "100 µs\nread 100 µs\nwrite 900 µs"));
        assert_eq!(line[7], "declared 0.0 MiB\nprocess 5.0 MiB");
    }
}
