// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of a trace: operation mix, sizes, sequentiality, reuse, working set and LRU miss ratios.
//!
//! The trace is read twice. The first pass computes what needs no memory per page and chooses a sample of pages
//! (`sample.rs`). The second computes reuse distances (`distances.rs`) of the sample and, if the estimated memory
//! allows, of all pages.
//!
//! Invariant: without the exact part, memory is bounded whatever the length of the trace.

mod curve;
mod distances;
mod json;
mod sample;
mod totals;
mod working_set;

pub use curve::{Curve, percent_of};
pub use json::{QUANTILES, json};
pub use totals::{Sizes, Totals, Traffic};
pub use working_set::Window;

use crate::error::TraceError;
use crate::open::Trace;
use crate::record::LONG_BYTES;
use crate::watch;
use distances::{BYTES_PER_PAGE, Distances};
use sample::Sample;
use working_set::WorkingSet;

/// Memory that exact distances may take unless the user requests them: 1 GiB.
pub const EXACT_MOST_BYTES: u64 = 1 << 30;

/// Requests between two progress reports.
const REPORT_EVERY: u64 = 1 << 20;

/// A progress report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This many requests of a pass are processed.
    Requests {
        /// The pass, 1 or 2.
        pass: u32,
        /// Requests of this pass.
        requests: u64,
    },
    /// Exact distances will take about this many bytes of memory.
    Exact(u64),
    /// Exact distances are omitted: they would take about this many bytes, above [`EXACT_MOST_BYTES`].
    TooLarge(u64),
}

/// Reuse of pages, of all pages or estimated from a sample.
#[derive(Clone, Debug)]
pub struct Reuse {
    /// Whether all pages were examined.
    pub exact: bool,
    /// Distinct pages.
    pub unique: u64,
    /// Distinct pages of each device, in the order of [`Totals::devices`].
    pub unique_of: Vec<u64>,
    /// Miss ratios of LRU and reuse distances.
    pub curve: Curve,
    /// Distinct pages over time.
    pub working_set: Vec<Window>,
}

/// All statistics of a trace.
#[derive(Clone, Debug)]
pub struct Info {
    /// Statistics that need no memory per page.
    pub totals: Totals,
    /// Reuse, exact or from the sample.
    pub reuse: Reuse,
    /// Miss ratios of LRU from the sample.
    pub sampled: Curve,
    /// Share of the pages in the sample.
    pub sample_ratio: f64,
    /// Pages in the sample.
    pub sample_pages: u64,
    /// Mean absolute error of the sample's miss ratios, if the exact ones are known.
    pub sample_error: Option<f64>,
}

/// Computes the statistics of a trace; `exact` requests exact reuse, however much memory it takes.
///
/// # Errors
/// The trace is malformed.
pub fn info(
    trace: &Trace,
    exact: bool,
    mut report: impl FnMut(Progress),
) -> Result<Info, TraceError> {
    let (mut totals, mut sample) = (Totals::default(), Sample::default());
    each(trace, 1, &mut report, |record| {
        totals.add(record);
        record.pages().for_each(|page| sample.add(page));
    })?;
    let bytes = sample.estimated_pages().saturating_mul(BYTES_PER_PAGE);
    let exact = exact || bytes <= EXACT_MOST_BYTES;
    report(if exact { Progress::Exact(bytes) } else { Progress::TooLarge(bytes) });

    let mut all = exact.then(|| Side::new(&totals, 1.0));
    let mut some = Side::new(&totals, sample.ratio());
    each(trace, 2, &mut report, |record| {
        for page in record.pages() {
            if let Some(all) = &mut all {
                all.access(page, record.ts_us);
            }
            some.skip_or_access(sample.has(page), page, record.ts_us);
        }
    })?;
    let sample_pages = some.distances.pages();
    let sampled = some.finish(&totals);
    let reuse =
        all.map_or_else(|| sampled.clone(), |all| Reuse { exact: true, ..all.finish(&totals) });
    let sample_error =
        reuse.exact.then(|| reuse.curve.mean_difference(&sampled.curve, reuse.unique));
    Ok(Info {
        totals,
        sample_error,
        reuse,
        sampled: sampled.curve,
        sample_ratio: sample.ratio(),
        sample_pages,
    })
}

fn each(
    trace: &Trace,
    pass: u32,
    report: &mut impl FnMut(Progress),
    mut see: impl FnMut(&crate::Record),
) -> Result<(), TraceError> {
    let (mut records, mut requests, mut reported) = (trace.records()?, 0_u64, 0);
    while let Some(batch) = records.next_batch()? {
        for record in batch {
            see(record);
            if record.len_bytes >= LONG_BYTES {
                watch::check(trace.path())?;
            }
        }
        requests += batch.len() as u64;
        if requests / REPORT_EVERY > reported {
            reported = requests / REPORT_EVERY;
            report(Progress::Requests { pass, requests });
        }
    }
    Ok(())
}

/// The second pass, over all pages or over the sample.
struct Side {
    distances: Distances,
    counts: Vec<u64>,
    first: u64,
    unique_of: [u64; 256],
    working_set: WorkingSet,
    ratio: f64,
}

impl Side {
    fn new(totals: &Totals, ratio: f64) -> Self {
        Self {
            distances: Distances::default(),
            counts: Vec::new(),
            first: 0,
            unique_of: [0; 256],
            working_set: WorkingSet::new(totals),
            ratio,
        }
    }

    fn access(&mut self, page: u64, ts_us: u64) {
        let (id, distance) = self.distances.access(page);
        self.working_set.access(ts_us, Some(id));
        let Some(distance) = distance else {
            self.first += 1;
            self.unique_of[(page >> 32) as usize & 0xff] += 1;
            return;
        };
        if self.counts.len() <= distance as usize {
            self.counts.resize(distance as usize + 1, 0);
        }
        self.counts[distance as usize] += 1;
    }

    /// A page outside the sample only advances time.
    fn skip_or_access(&mut self, sampled: bool, page: u64, ts_us: u64) {
        if sampled {
            self.access(page, ts_us);
        } else {
            self.working_set.access(ts_us, None);
        }
    }

    fn finish(self, totals: &Totals) -> Reuse {
        let scaled = |n: u64| (n as f64 / self.ratio).round() as u64;
        Reuse {
            exact: false,
            unique: scaled(self.first),
            unique_of: totals
                .devices
                .keys()
                .map(|n| scaled(self.unique_of[usize::from(*n)]))
                .collect(),
            curve: Curve::new(&self.counts, self.first, totals.all.accesses, self.ratio),
            working_set: self.working_set.finish(self.ratio),
        }
    }
}
