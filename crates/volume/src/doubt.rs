// SPDX-License-Identifier: MIT OR Apache-2.0
//! Doubt about the devices: the origin may have lost acknowledged writes, so flash may hold newer bytes; or flash may have
//! lost what no flush covered.
//!
//! A failed flush of any shard and a lost connection with unflushed writes raise it for all workers, until the volume is
//! restarted. A failed flush of flash concerns the shards of all workers too, since the device reports a loss once. A worker
//! looks before it runs its shard, after it took completions: so no shard sees the bytes of a new connection as trusted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use larder_core::exec::DevId;
use larder_io::Device;

/// What the workers of a volume know of its devices.
#[derive(Clone)]
pub(crate) struct Doubt {
    origin: Device,
    flush_failed: Arc<AtomicBool>,
    /// Number of failed flushes of flash, and the device of the last one: `number << 32 | device`.
    flash: Arc<AtomicU64>,
}

impl Doubt {
    pub(crate) fn of(origin: &Device) -> Self {
        Self { origin: origin.clone(), flush_failed: Arc::default(), flash: Arc::default() }
    }

    /// A flush of the origin failed.
    pub(crate) fn flush_failed(&self) {
        self.flush_failed.store(true, Ordering::Release);
    }

    /// A flush of this flash device failed.
    pub(crate) fn flash_flush_failed(&self, dev: DevId) {
        let next = |last: u64| Some(((last >> 32) + 1) << 32 | u64::from(dev.0));
        let _ = self.flash.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// The flash device of which a flush failed since the caller's last question, which `seen` remembers.
    pub(crate) fn of_flash(&self, seen: &mut u64) -> Option<DevId> {
        let now = self.flash.load(Ordering::Acquire);
        (std::mem::replace(seen, now) != now).then_some(DevId(now as u32))
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.flush_failed.load(Ordering::Acquire) || self.origin.may_have_lost_writes()
    }
}
