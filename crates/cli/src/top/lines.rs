// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume in words, for the screen and for standard output without one.

use super::sample::Watched;

/// A number in a short form: `999`, `12.3k`, `4.5M`.
fn count(n: f64) -> String {
    match n {
        n if n >= 1e6 => format!("{:.1}M", n / 1e6),
        n if n >= 1e4 => format!("{:.1}k", n / 1e3),
        n if n >= 10.0 || n == 0.0 => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

/// Megabytes a second.
fn traffic(w: &Watched, key: &str) -> String {
    format!("{:.1} MB/s", w.rate(key) / 1e6)
}

/// A share, where there is one.
pub fn share(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |r| format!("{:.1} %", r * 100.0))
}

/// The state, with the alarm if there is one.
pub fn state(w: &Watched) -> String {
    match (&w.error, w.text("alarm")) {
        (Some(error), _) => format!("does not answer: {error}"),
        (None, _) if w.last.is_none() => "asking ...".to_owned(),
        (None, alarm) if alarm.is_empty() => w.text("state"),
        (None, alarm) => format!("{}  ALARM: {alarm}", w.text("state")),
    }
}

/// How many lines [`lines`] gives.
pub const LINES: u16 = 6;

/// The figures of clients, cache and devices, none wider than a terminal of 80 columns with a border.
pub fn lines(w: &Watched) -> [String; LINES as usize] {
    let (used, total) = (w.figure("units_used"), w.figure("units_total"));
    let full = if total > 0 { Some(used as f64 / total as f64) } else { None };
    let megabytes = |key| w.rate(key) / 1e6;
    [
        format!(
            "clients  read {}/s {}  write {}/s {}  hits {}",
            count(w.rate("reads")),
            traffic(w, "read_bytes"),
            count(w.rate("writes")),
            traffic(w, "write_bytes"),
            share(w.hit_ratio()),
        ),
        format!(
            "         connections {}  files {}  in flight {}  memory {}",
            w.figure("connections"),
            w.length("files"),
            w.figure("requests_open"),
            larder_io::rough_size(w.figure("memory_bytes")),
        ),
        format!(
            "cache    units {used} of {total} ({})  dirty {}",
            share(full),
            w.figure("units_dirty")
        ),
        format!(
            "flash    read {:.1} write {:.1} MB/s  admitted {}/s  evicted {}/s",
            megabytes("flash_read_bytes"),
            megabytes("flash_write_bytes"),
            count(w.rate("populations")),
            count(w.rate("evictions")),
        ),
        format!(
            "origin   read {:.1} write {:.1} MB/s",
            megabytes("origin_read_bytes"),
            megabytes("origin_write_bytes"),
        ),
        // The hit ratio of LRU by the size of flash.
        format!("by size  {}", w.curve().map_or_else(|| "-".to_owned(), |curve| curve.short())),
    ]
}
