// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume in words: what the screen shows and what is printed where there is no screen.

use super::sample::Watched;

/// A number of people's size: `999`, `12.3k`, `4.5M`.
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

/// The state, and why somebody should look.
pub fn state(w: &Watched) -> String {
    match (&w.error, w.text("alarm")) {
        (Some(error), _) => format!("does not answer: {error}"),
        (None, _) if w.last.is_none() => "asking ...".to_owned(),
        (None, alarm) if alarm.is_empty() => w.text("state"),
        (None, alarm) => format!("{}  ALARM: {alarm}", w.text("state")),
    }
}

/// Three lines: clients, devices, cache.
pub fn lines(w: &Watched) -> [String; 3] {
    let (used, total) = (w.figure("units_used"), w.figure("units_total"));
    let full = if total > 0 { Some(used as f64 / total as f64) } else { None };
    [
        format!(
            "clients  read {}/s {}  write {}/s {}  hits {}  connections {}  files {}  open {}",
            count(w.rate("reads")),
            traffic(w, "read_bytes"),
            count(w.rate("writes")),
            traffic(w, "write_bytes"),
            share(w.hit_ratio()),
            w.figure("connections"),
            w.length("files"),
            w.figure("requests_open"),
        ),
        format!(
            "devices  origin read {} write {}  flash read {} write {}",
            traffic(w, "origin_read_bytes"),
            traffic(w, "origin_write_bytes"),
            traffic(w, "flash_read_bytes"),
            traffic(w, "flash_write_bytes"),
        ),
        format!(
            "cache    units {used} of {total} ({})  dirty {}  populated {}/s  evicted {}/s  memory {}",
            share(full),
            w.figure("units_dirty"),
            count(w.rate("populations")),
            count(w.rate("evictions")),
            larder_io::rough_size(w.figure("memory_bytes")),
        ),
    ]
}
