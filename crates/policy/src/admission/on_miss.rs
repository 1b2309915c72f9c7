// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission on every miss, inline: what flashcache, EnhanceIO and bcache do with 4 KiB blocks, and
//! a read-only segment cache (`slru`) with whole segments.
//!
//! A sequential stream is let through without entering once it is longer than the bypass (bcache;
//! a backup would push everything out). Streams are told by requests that begin where an earlier
//! one of the last 128 ended; units are those of one shard, so a stream that is spread over
//! shards is seen by each of them at its own length.

use alloc::collections::VecDeque;

/// How many streams are followed at a time (bcache: 128).
const STREAMS: usize = 128;

/// Settings of admission on miss.
#[derive(Clone, Debug, PartialEq)]
pub struct OnMissSettings {
    /// Whether the client's answer waits until flash has what it missed (flashcache, EnhanceIO:
    /// yes; bcache answers first).
    pub client_waits: bool,
    /// Whether writes to what is not resident let it enter.
    pub on_write: bool,
    /// Streams longer than so many bytes do not enter; 0: all enter.
    pub bypass_bytes: u64,
}

/// A run of requests, each of which began where the one before ended.
#[derive(Clone, Copy, Debug)]
struct Stream {
    next_unit: u64,
    bytes: u64,
}

/// The policy, see the module.
#[derive(Debug)]
pub struct OnMiss {
    settings: OnMissSettings,
    /// The bypass in one shard's bytes.
    bypass_bytes: u64,
    streams: VecDeque<Stream>,
    bypassing: bool,
}

impl OnMiss {
    /// The policy for one of `shards` shards.
    #[must_use]
    pub fn new(settings: &OnMissSettings, shards: u32) -> Self {
        let bypass_bytes = settings.bypass_bytes / u64::from(shards.max(1));
        let streams = VecDeque::with_capacity(STREAMS);
        Self { settings: settings.clone(), bypass_bytes, streams, bypassing: false }
    }

    /// Whether the client's answer waits until flash has what it missed.
    #[must_use]
    pub fn client_waits(&self) -> bool {
        self.settings.client_waits
    }

    /// A client asks for `bytes` of `unit`, to be told before its hit or miss.
    pub fn asked(&mut self, unit: u64, bytes: u64) {
        if self.settings.bypass_bytes == 0 {
            return;
        }
        let known = self.streams.iter().position(|s| s.next_unit == unit);
        let before = known.and_then(|at| self.streams.remove(at)).map_or(0, |s| s.bytes);
        if self.streams.len() == STREAMS {
            self.streams.pop_front();
        }
        let stream = Stream { next_unit: unit + 1, bytes: before + bytes };
        self.bypassing = stream.bytes > self.bypass_bytes;
        self.streams.push_back(stream);
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
        policy.asked(unit, 4096);
        policy.admits_read()
    }

    #[test]
    fn a_long_stream_does_not_enter_while_others_do() {
        let mut policy = policy(64 << 10);
        let entered = (1000..1064).filter(|u| miss(&mut policy, *u)).count();
        assert_eq!(entered, 16, "the first 64 KiB");
        assert!(miss(&mut policy, 7));
        assert!(!miss(&mut policy, 1064), "it goes on after another's request");
    }

    #[test]
    fn without_a_bypass_everything_enters() {
        let mut policy = policy(0);
        assert!((0..100_000).all(|u| miss(&mut policy, u)));
        assert!(policy.admits_write() && !policy.client_waits());
    }
}
