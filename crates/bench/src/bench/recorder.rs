// SPDX-License-Identifier: MIT OR Apache-2.0
//! `recorder`: what the flight recorder and the miss-ratio curve cost a hit.
//!
//! Method: a cache in memory with all data on flash, whose setting `recorder` is switched between its default and 0. Reads of 4 KiB at
//! random places, 32 in flight, take turns of half a second under each, after as long without being counted. Each answer sends the
//! next request from the worker's own thread, so no socket and no client hides the cost: with them its share is smaller.
//!
//! Why not two caches: where their memory lies makes more difference than the recorder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use larder_core::buf::PAGE;
use larder_core::config::{DEFAULT_PRESET, preset};
use larder_core::format::Wishes;
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_io::Device;
use larder_model::SplitMix64;
use larder_volume::{CacheConfig, Change, FlashDevice, RECORDER_BYTES, Terms, Volume};

use super::common::{BenchOptions, progress};
use super::quiet::{Counted, Watch};
use super::row::{Goal, Row};

const NAME: &str = "recorder";
const MIB: u64 = 1 << 20;
const BOUND: Duration = Duration::from_secs(60);
const DEPTH: u64 = 32;

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let (bytes, pairs, span) = match options.quick {
        true => (16 * MIB, 2, Duration::from_millis(100)),
        false => (512 * MIB, 31, Duration::from_millis(500)),
    };
    let warm = Warm::new(bytes)?;
    let (mut ours, mut peer, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let watch = Watch::begin(None)?;
        // Which is first changes, so that a machine that slows down favours neither.
        let mut both = [(RECORDER_BYTES, &mut ours), (0, &mut peer)];
        if pair % 2 == 1 {
            both.swap(0, 1);
        }
        for (recorder, found) in both {
            let recorder_bytes = Some(recorder);
            warm.volume.cache().set(&Change { recorder_bytes, ..Change::default() })?;
            // Uncounted, until the ring is full: from then on it takes no memory.
            warm.reads(span, pair)?;
            found.push(warm.reads(span, pair)?);
            let has_curve = warm.volume.status()?.curve.is_some();
            ensure!(
                has_curve == (recorder > 0),
                "with a recorder of {recorder} bytes: curve {has_curve}"
            );
        }
        others.push(watch.others()?);
        progress(NAME, format!("{} of {pairs}", pair + 1));
    }
    warm.volume.cache().stop(BOUND, |_| (), || false)?;
    let counted = Counted::quietest(&others);
    let [ours, peer] = [ours, peer].map(|all| counted.each(&all, |iops| *iops));
    let row = Row::new(NAME, "hits, 32 in flight", "IOPS");
    Ok(vec![row.paired("--recorder 0", &ours, &peer).goals(&[Goal::RatioAtLeast(0.98)])])
}

/// A volume whose data is all on flash.
struct Warm {
    volume: Arc<Volume>,
    bytes: u64,
}

impl Warm {
    fn new(bytes: u64) -> Result<Self> {
        let choices = preset(DEFAULT_PRESET).context("no default preset")?.choices();
        let flash_bytes = bytes + bytes / 4 + 16 * MIB;
        let shape = Shape::new(bytes, choices.unit_bytes, 1);
        let flash = Device::mem(flash_bytes);
        let flash = FlashDevice::prepare(flash, None, shape, &choices, Wishes::default())?;
        let volume = Volume::start(CacheConfig::of(Device::mem(bytes), choices, 1))?;
        volume.cache().attach(flash)?;
        volume.warm(std::slice::from_ref(&(0..bytes)), Terms::default(), &mut |_, _| true)?;
        Ok(Self { volume, bytes })
    }

    /// Reads a second.
    fn reads(&self, span: Duration, seed: u64) -> Result<f64> {
        let chains = Arc::new(Chains {
            volume: Arc::clone(&self.volume),
            pages: self.bytes / PAGE as u64,
            done: AtomicU64::new(0),
            open: AtomicU64::new(DEPTH),
            ends: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        });
        let before = self.volume.stats()?.requests;
        let began = Instant::now();
        for chain in 0..DEPTH {
            chains.next(SplitMix64::new(seed * DEPTH + chain));
        }
        std::thread::sleep(span);
        let (done, took) = (chains.done.load(Ordering::Relaxed), began.elapsed());
        chains.ends.store(true, Ordering::Relaxed);
        let ended = Instant::now();
        while chains.open.load(Ordering::SeqCst) > 0 {
            ensure!(ended.elapsed() < BOUND, "reads are not answered");
            std::thread::sleep(Duration::from_millis(1));
        }
        ensure!(!chains.failed.load(Ordering::Relaxed), "a read failed");
        let after = self.volume.stats()?.requests;
        let missed = (after.reads - before.reads) - (after.read_hits - before.read_hits);
        ensure!(missed == 0, "{missed} reads missed");
        Ok(done as f64 / took.as_secs_f64())
    }
}

/// Reads each of which starts the next.
struct Chains {
    volume: Arc<Volume>,
    pages: u64,
    done: AtomicU64,
    open: AtomicU64,
    ends: AtomicBool,
    failed: AtomicBool,
}

impl Chains {
    fn next(self: &Arc<Self>, mut random: SplitMix64) {
        let offset = random.below(self.pages) * PAGE as u64;
        let chains = Arc::clone(self);
        self.volume.call(Kind::Read, offset, PAGE as u64, Vec::new(), move |result| {
            chains.done.fetch_add(1, Ordering::Relaxed);
            if result.is_err() {
                chains.failed.store(true, Ordering::Relaxed);
            }
            if chains.ends.load(Ordering::Relaxed) || result.is_err() {
                chains.open.fetch_sub(1, Ordering::SeqCst);
            } else {
                chains.next(random);
            }
        });
    }
}
