// SPDX-License-Identifier: MIT OR Apache-2.0
//! The working set over time: distinct pages in each of [`WINDOWS`] equal spans of time or, in a trace without times,
//! of accesses.

use super::Totals;

/// Spans into which a trace is divided.
const WINDOWS: u64 = 48;

/// A span of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Its beginning: microseconds after the first request, or accesses.
    pub begin: u64,
    /// Accesses in the window.
    pub accesses: u64,
    /// Distinct pages in the window.
    pub unique: u64,
}

pub(super) struct WorkingSet {
    windows: Vec<Window>,
    /// The window of each page's last access.
    last: Vec<u8>,
    begin_us: u64,
    /// Microseconds, or accesses in a trace without times.
    length: u64,
    timed: bool,
    accesses: u64,
}

impl WorkingSet {
    pub(super) fn new(totals: &Totals) -> Self {
        let timed = totals.duration_us() > 0;
        let length =
            if timed { totals.duration_us().saturating_add(1) } else { totals.all.accesses.max(1) };
        let begin = |n| Window { begin: length_before(length, n), ..Window::default() };
        let windows = (0..WINDOWS.min(length)).map(begin).collect();
        let begin_us = totals.begin_us().unwrap_or(0);
        Self { windows, last: Vec::new(), begin_us, length, timed, accesses: 0 }
    }

    /// Records an access; `page` is the page's number if it is sampled.
    pub(super) fn access(&mut self, ts_us: u64, page: Option<u32>) {
        let at = if self.timed { ts_us.saturating_sub(self.begin_us) } else { self.accesses };
        self.accesses += 1;
        let window = u128::from(at) * self.windows.len() as u128 / u128::from(self.length);
        let now = (window as usize).min(self.windows.len() - 1);
        self.windows[now].accesses += 1;
        let Some(page) = page.map(|page| page as usize) else { return };
        if self.last.len() <= page {
            self.last.resize(page + 1, u8::MAX);
        }
        if std::mem::replace(&mut self.last[page], now as u8) != now as u8 {
            self.windows[now].unique += 1;
        }
    }

    pub(super) fn finish(self, ratio: f64) -> Vec<Window> {
        let scaled = |w: Window| Window { unique: (w.unique as f64 / ratio).round() as u64, ..w };
        self.windows.into_iter().map(scaled).collect()
    }
}

fn length_before(length: u64, window: u64) -> u64 {
    (u128::from(length) * u128::from(window)).div_ceil(u128::from(WINDOWS.min(length))) as u64
}
