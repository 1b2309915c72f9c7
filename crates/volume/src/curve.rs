// SPDX-License-Identifier: MIT OR Apache-2.0
//! The miss-ratio curve of a served volume: what hit ratio an LRU cache of another size would have.
//!
//! Each worker keeps the sampled pages of its clients' requests, and hands them over in batches. Their order among workers
//! is that of the batches, which are small beside the sizes that are asked for.
//!
//! Invariants: a worker never waits for another one here. The curve is for caches of up to [`MOST_TIMES`] times the attached flash, or
//! as large as the volume; it begins again if another size of flash is attached.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use larder_core::buf::PAGE;
use larder_core::exec::Nanos;
use larder_core::policy::curve::{Curve, Sample};
use serde::Serialize;

use super::lock::lock;

/// How many times the attached flash the curve covers.
pub const MOST_TIMES: u64 = 10;
/// The sizes of its points, as eighths of the attached flash; the last is [`MOST_TIMES`] times as large.
const EIGHTHS: [u64; 7] = [1, 2, 4, 8, 16, 32, 8 * MOST_TIMES];
/// Sampled pages that a worker hands over at once.
const BATCH: usize = 16;
/// Beyond this a worker that finds the curve in use by another drops what it has.
const MOST_BATCH: usize = 1024;

/// References of a worker that the curve does not have yet.
#[derive(Debug)]
pub(crate) struct Batch {
    sample: Sample,
    followed: Vec<u64>,
    references: u64,
}

impl Batch {
    pub fn new() -> Self {
        Self { sample: Sample::NOTHING, followed: Vec::new(), references: 0 }
    }

    /// Forgets what it has.
    fn clear(&mut self) {
        self.followed.clear();
        self.references = 0;
    }
}

/// The curve of a volume, see the module.
#[derive(Debug)]
pub(crate) struct LiveCurve {
    /// The bound of the curve's sample, which workers read for each request.
    bound: AtomicU64,
    curve: Mutex<Curve>,
}

impl LiveCurve {
    /// A curve that follows nothing.
    pub fn none() -> Self {
        let bound = AtomicU64::new(Sample::NOTHING.bound());
        Self { bound, curve: Mutex::new(Curve::new(0)) }
    }

    /// Continues for caches of up to so many bytes. What is known of other sizes is forgotten.
    pub fn fit(&self, most_bytes: u64) {
        let most_pages = most_bytes.div_ceil(PAGE as u64);
        let mut curve = lock(&self.curve);
        if curve.most_pages() != most_pages {
            *curve = Curve::new(most_pages);
            self.bound.store(curve.sample().bound(), Ordering::Relaxed);
        }
    }

    /// Follows nothing, and forgets what is known.
    pub fn end(&self) {
        let mut curve = lock(&self.curve);
        *curve = Curve::new(0);
        self.bound.store(Sample::NOTHING.bound(), Ordering::Relaxed);
    }

    /// A client asks for these bytes. `batch` is that of the worker.
    #[inline]
    pub fn note(&self, batch: &mut Batch, now: Nanos, offset: u64, len: u64) {
        let sample = Sample::of_bound(self.bound.load(Ordering::Relaxed));
        if sample != batch.sample {
            batch.clear();
            batch.sample = sample;
        }
        if sample == Sample::NOTHING || len == 0 {
            return;
        }
        let (first, last) = (offset / PAGE as u64, (offset + len - 1) / PAGE as u64);
        batch.references += last - first + 1;
        batch.followed.extend((first..=last).filter(|page| sample.has(*page)));
        if batch.followed.len() >= BATCH {
            self.try_take(batch, now);
        }
    }

    #[cold]
    fn try_take(&self, batch: &mut Batch, now: Nanos) {
        match self.curve.try_lock() {
            Ok(mut curve) => take(&mut curve, batch, now),
            Err(_) if batch.followed.len() >= MOST_BATCH => batch.clear(),
            Err(_) => {}
        }
    }

    /// Takes what a worker has.
    pub fn take(&self, batch: &mut Batch, now: Nanos) {
        take(&mut lock(&self.curve), batch, now);
    }

    /// The curve at the sizes that an administrator may buy, with this much flash attached: at the size of the volume too, if
    /// that is the largest. `None` before the first request, and if nothing is followed.
    pub fn shown(&self, flash_bytes: Option<u64>) -> Option<Shown> {
        let curve = lock(&self.curve);
        let most_bytes = curve.most_pages() * PAGE as u64;
        let one = flash_bytes.unwrap_or(most_bytes / MOST_TIMES);
        let sizes =
            EIGHTHS.iter().map(|eighths| one / 8 * eighths).filter(|size| *size < most_bytes);
        let point = |bytes: u64| {
            let hit_ratio = curve.hit_ratio(bytes / PAGE as u64)?;
            Some(Point { flash_bytes: bytes, hit_ratio: (hit_ratio * 1e4).round() / 1e4 })
        };
        let points: Vec<Point> = sizes.chain([most_bytes]).filter_map(point).collect();
        (!points.is_empty()).then(|| Shown { references: curve.references(), points })
    }

    /// Its memory.
    pub fn memory_bytes(&self) -> u64 {
        lock(&self.curve).memory_bytes()
    }
}

fn take(curve: &mut Curve, batch: &mut Batch, now: Nanos) {
    if batch.sample == curve.sample() {
        curve.take(now, &batch.followed, batch.references);
    }
    batch.clear();
}

/// The curve of a volume at some sizes of flash.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Pages of 4 KiB in the requests that it is made of; a page that two requests ask for counts twice, and older ones less.
    pub references: u64,
    /// By size.
    pub points: Vec<Point>,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The size of flash for cached data.
    pub flash_bytes: u64,
    /// The share of the references that hit, if the cache admits each page of 4 KiB that misses and evicts by LRU.
    pub hit_ratio: f64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn sizes_are_those_of_the_attached_flash_up_to_the_volume() {
        let curve = LiveCurve::none();
        let mut batch = Batch::new();
        curve.note(&mut batch, 1, 0, 4096);
        assert_eq!((curve.shown(None), batch.references), (None, 0));
        curve.fit(10 * MIB);
        curve.note(&mut batch, 1, 4095, 2);
        curve.note(&mut batch, 1, 4096, 0);
        curve.note(&mut batch, 1, 0, 8192);
        curve.take(&mut batch, 1);
        let of = |flash| {
            let shown: Shown = curve.shown(flash).unwrap();
            assert_eq!(shown.references, 4);
            shown
                .points
                .iter()
                .map(|p| (p.flash_bytes / (MIB / 8), p.hit_ratio))
                .collect::<Vec<_>>()
        };
        let sizes = |eighths: &[u64]| eighths.iter().map(|n| (*n, 0.5)).collect::<Vec<_>>();
        assert_eq!(of(Some(MIB)), sizes(&[1, 2, 4, 8, 16, 32, 80]));
        assert_eq!(of(Some(8 * MIB)), sizes(&[8, 16, 32, 64, 80]));
        assert_eq!(of(None), sizes(&[1, 2, 4, 8, 16, 32, 80]));
    }

    #[test]
    fn another_size_begins_again_and_what_workers_have_of_the_old_one_is_dropped() {
        let (curve, mut batch) = (LiveCurve::none(), Batch::new());
        curve.fit(1 << 40);
        curve.note(&mut batch, 1, 0, 100 * MIB);
        curve.fit(MIB);
        curve.take(&mut batch, 1);
        assert_eq!(curve.shown(None), None);
        curve.note(&mut batch, 1, 0, 4096);
        curve.fit(MIB);
        curve.take(&mut batch, 1);
        assert_eq!(curve.shown(None).unwrap().references, 1);
    }
}
