// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission on every miss, in the request: flashcache, EnhanceIO and bcache do this with 4 KiB blocks, and a read-only
//! segment cache (`slru`) with whole segments.
//!
//! A sequential stream that is longer than the bypass is not admitted (as in bcache); otherwise a backup would displace
//! everything. A request continues a stream if it begins where one of the last 128 streams ended. A shard sees only its
//! own units, so the bypass is divided by the number of shards.

use crate::streams::Streams;

/// Streams that are tracked at a time (as in bcache).
const STREAMS: usize = 128;

/// Settings of admission on miss.
#[derive(Clone, Debug, PartialEq)]
pub struct OnMissSettings {
    /// Whether a read that missed completes only after the flash write (flashcache, EnhanceIO); bcache completes it
    /// before.
    pub client_waits: bool,
    /// Whether a write to a unit that is not resident admits it.
    pub on_write: bool,
    /// Streams longer than this are not admitted; 0 admits all.
    pub bypass_bytes: u64,
}

/// State of admission on miss.
#[derive(Debug)]
pub struct OnMiss {
    settings: OnMissSettings,
    /// The bypass of one shard.
    bypass_bytes: u64,
    /// Bytes of each stream, by its next unit.
    streams: Streams<u64>,
    bypassing: bool,
}

impl OnMiss {
    /// The policy for one of `shards` shards.
    #[must_use]
    pub fn new(settings: &OnMissSettings, shards: u32) -> Self {
        let bypass_bytes = settings.bypass_bytes / u64::from(shards.max(1));
        Self {
            settings: settings.clone(),
            bypass_bytes,
            streams: Streams::new(STREAMS),
            bypassing: false,
        }
    }

    /// Whether a read that missed completes only after the flash write.
    #[must_use]
    pub fn client_waits(&self) -> bool {
        self.settings.client_waits
    }

    /// A client requests `bytes` of `unit`; the caller reports this before the hit or miss.
    pub fn requested(&mut self, unit: u64, bytes: u64) {
        if self.settings.bypass_bytes == 0 {
            return;
        }
        let bytes = self.streams.take(unit).unwrap_or(0) + bytes;
        self.bypassing = bytes > self.bypass_bytes;
        self.streams.put(unit + 1, bytes);
    }

    /// Whether the unit of the last request, a read that missed, is admitted.
    #[must_use]
    pub fn admits_read(&self) -> bool {
        !self.bypassing
    }

    /// Whether the unit of the last request, a write to a unit that is not resident, is admitted.
    #[must_use]
    pub fn admits_write(&self) -> bool {
        self.settings.on_write && !self.bypassing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(bypass_bytes: u64) -> OnMiss {
        OnMiss::new(&OnMissSettings { client_waits: false, on_write: true, bypass_bytes }, 1)
    }

    fn miss(policy: &mut OnMiss, unit: u64) -> bool {
        policy.requested(unit, 4096);
        policy.admits_read()
    }

    #[test]
    fn a_long_stream_is_not_admitted_while_others_are() {
        let mut policy = policy(64 << 10);
        let admitted = (1000..1064).filter(|u| miss(&mut policy, *u)).count();
        assert_eq!(admitted, 16, "the first 64 KiB");
        assert!(miss(&mut policy, 7));
        assert!(!miss(&mut policy, 1064), "the stream continues after a request of another");
    }

    #[test]
    fn without_a_bypass_every_miss_is_admitted() {
        let mut policy = policy(0);
        assert!((0..100_000).all(|u| miss(&mut policy, u)));
        assert!(policy.admits_write() && !policy.client_waits());
    }
}
