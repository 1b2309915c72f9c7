// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache in memory that has all data: reads of 4 KiB at random places, which all hit. Each answer sends the next request from
//! the worker's own thread, so no socket and no client hides what a hit costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use larder_core::buf::PAGE;
use larder_core::config::{Choices, DEFAULT_PRESET, Limits, preset};
use larder_core::format::Wishes;
use larder_core::request::Kind;
use larder_core::shape::Shape;
use larder_io::Device;
use larder_model::SplitMix64;
use larder_volume::{CacheConfig, FlashDevice, Terms, Volume};

const MIB: u64 = 1 << 20;
/// How long anything may take.
pub(super) const BOUND: Duration = Duration::from_secs(60);

/// A volume whose data is all on flash.
pub(super) struct Warm {
    pub(super) volume: Arc<Volume>,
    bytes: u64,
}

impl Warm {
    /// A volume of so many bytes under the default preset.
    pub(super) fn new(bytes: u64, verify: bool, limits: Limits) -> Result<Self> {
        let preset = preset(DEFAULT_PRESET).context("no default preset")?;
        let choices = Choices { verify, ..preset.choices() };
        let flash_bytes = bytes + bytes / 4 + 16 * MIB;
        let shape = Shape::new(bytes, choices.unit_bytes, 1);
        let flash = Device::mem(flash_bytes);
        let flash = FlashDevice::prepare(flash, (None, None), shape, &choices, Wishes::default())?;
        let config = CacheConfig { limits, ..CacheConfig::of(Device::mem(bytes), choices, 1) };
        let volume = Volume::start(config)?;
        volume.cache().attach(flash)?;
        volume.warm(std::slice::from_ref(&(0..bytes)), Terms::default(), &mut |_, _| true)?;
        Ok(Self { volume, bytes })
    }

    /// Reads a second, with so many in flight.
    pub(super) fn reads(&self, span: Duration, (depth, seed): (u64, u64)) -> Result<f64> {
        let chains = Arc::new(Chains {
            volume: Arc::clone(&self.volume),
            pages: self.bytes / PAGE as u64,
            done: AtomicU64::new(0),
            open: AtomicU64::new(depth),
            ends: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        });
        let before = self.volume.stats()?.requests;
        let began = Instant::now();
        for chain in 0..depth {
            chains.next(SplitMix64::new(seed * depth + chain));
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
