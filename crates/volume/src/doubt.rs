// SPDX-License-Identifier: MIT OR Apache-2.0
//! Doubt about the origin: it may have lost acknowledged writes, so flash may hold newer bytes.
//!
//! Each volume has its own. A failed flush of any shard and a lost connection with unflushed writes raise it for all workers, until the volume is
//! restarted. A worker looks before it runs its shard, after it took completions: so no shard sees the bytes of a new
//! connection as trusted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_io::Device;

/// What the workers of a volume know of the origin.
#[derive(Clone)]
pub(crate) struct Doubt {
    origin: Device,
    flush_failed: Arc<AtomicBool>,
}

impl Doubt {
    pub(crate) fn of(origin: &Device) -> Self {
        Self { origin: origin.clone(), flush_failed: Arc::default() }
    }

    /// A flush of the origin failed.
    pub(crate) fn flush_failed(&self) {
        self.flush_failed.store(true, Ordering::Release);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.flush_failed.load(Ordering::Acquire) || self.origin.may_have_lost_writes()
    }
}
