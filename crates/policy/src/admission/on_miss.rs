// SPDX-License-Identifier: MIT OR Apache-2.0
//! Admission on every miss, inline: what flashcache, EnhanceIO and bcache do with 4 KiB blocks, and
//! a read-only segment cache (`slru`) with whole segments.
//!
//! A sequential stream is let through without entering once it is longer than the bypass (bcache;
//! a backup would push everything out). Streams are told by requests that begin where an earlier
//! one of the last 128 ended; units are those of one shard, so a stream that is spread over
//! shards is seen by each of them at its own length.

use std::collections::VecDeque;

use super::{Admission, Candidate, Verdict};
use crate::Nanos;

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

impl OnMissSettings {
    /// For a cache that does not ask.
    pub const NOBODY: Self = Self { client_waits: false, on_write: false, bypass_bytes: 0 };
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

    fn verdict(&self, admits: bool) -> Verdict {
        if admits && !self.bypassing {
            Verdict::Inline { client_waits: self.settings.client_waits }
        } else {
            Verdict::Ignore
        }
    }
}

impl Admission for OnMiss {
    fn workers(&self) -> u32 {
        0
    }

    fn served(&mut self, _hit: bool, _now: Nanos) {}

    fn missed(&mut self, _unit: u64, _free_ratio: f64, _now: Nanos) -> Verdict {
        self.verdict(true)
    }

    fn turn(&mut self, _worker: u32, _free_ratio: f64, _now: Nanos) -> Option<Nanos> {
        None
    }

    fn next(&mut self, _worker: u32, _room: bool) -> Option<Candidate> {
        None
    }

    fn asked(&mut self, unit: u64, bytes: u64) {
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

    fn written(&mut self, _unit: u64) -> Verdict {
        self.verdict(self.settings.on_write)
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
        policy.missed(unit, 0.0, 0) != Verdict::Ignore
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
        assert_eq!(policy.written(5), Verdict::Inline { client_waits: false });
    }
}
