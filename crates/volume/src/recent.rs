// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flight recorder: the last requests of a volume's clients, with their latencies.
//!
//! Each worker keeps those that it answered, in a ring for each volume.
//!
//! Invariants: a ring has a fixed number of requests, and takes memory as they come. Flushes, trims and zeroings are not kept, since
//! traces have no operations for them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use larder_core::exec::Nanos;
use larder_core::request::Kind;
use serde::{Deserialize, Serialize};

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct Answered {
    /// When it arrived: in a ring in microseconds on the clock of the workers, else since the beginning of 1970 (UTC).
    pub at_us: u64,
    /// Its first byte.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u32,
    /// From its arrival to its answer.
    pub took_us: u32,
    /// Whether it writes; otherwise it reads.
    pub writes: bool,
    /// Whether it hit, as in [`Stats`](super::Stats).
    pub hit: bool,
    /// Whether it succeeded.
    pub ok: bool,
}

/// The compact form of a request: there are many.
type Wire = (u64, u64, u32, u32, u8);

impl From<Wire> for Answered {
    fn from((at_us, offset_bytes, len_bytes, took_us, bits): Wire) -> Self {
        let [writes, hit, ok] = [1, 2, 4].map(|bit| bits & bit != 0);
        Self { at_us, offset_bytes, len_bytes, took_us, writes, hit, ok }
    }
}

impl From<Answered> for Wire {
    fn from(a: Answered) -> Self {
        let bits = u8::from(a.writes) | u8::from(a.hit) << 1 | u8::from(a.ok) << 2;
        (a.at_us, a.offset_bytes, a.len_bytes, a.took_us, bits)
    }
}

/// Bytes of a request in a ring.
const EACH: u64 = size_of::<Answered>() as u64;

/// The last requests that a worker answered for a volume.
#[derive(Debug)]
pub(crate) struct Ring {
    requests: VecDeque<Answered>,
    most: usize,
    dropped: bool,
}

/// A request as the worker knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub at: Nanos,
    pub kind: Kind,
    /// In the volume.
    pub offset: u64,
    pub len: u64,
}

impl Ring {
    /// For so many bytes of memory.
    pub fn of(bytes: u64) -> Self {
        Self { requests: VecDeque::new(), most: (bytes / EACH) as usize, dropped: false }
    }

    /// Takes another size: the oldest requests beyond it are forgotten.
    pub fn resize(&mut self, bytes: u64) {
        self.most = (bytes / EACH) as usize;
        let beyond = self.requests.len().saturating_sub(self.most);
        self.dropped |= beyond > 0;
        self.requests.drain(..beyond);
        self.requests.shrink_to(self.most);
    }

    /// Keeps a request that was answered after `took`.
    #[inline]
    pub fn note(&mut self, asked: Asked, took: Nanos, hit: bool, ok: bool) {
        let writes = match asked.kind {
            Kind::Read => false,
            Kind::Write { .. } => true,
            Kind::Flush | Kind::Trim { .. } | Kind::Zero { .. } => return,
        };
        if self.most == 0 {
            return;
        }
        if self.requests.len() == self.most {
            self.requests.pop_front();
            self.dropped = true;
        } else if self.requests.len() == self.requests.capacity() {
            // Doubled, but no more than the ring may have.
            let more = self.requests.len().max(1024).min(self.most - self.requests.len());
            self.requests.reserve_exact(more);
        }
        self.requests.push_back(Answered {
            at_us: asked.at / 1000,
            offset_bytes: asked.offset,
            // A request has at most megabytes.
            len_bytes: u32::try_from(asked.len).unwrap_or(u32::MAX),
            took_us: u32::try_from(took / 1000).unwrap_or(u32::MAX),
            writes,
            hit,
            ok,
        });
    }

    /// Whether older requests are not there any more.
    pub fn has_dropped(&self) -> bool {
        self.dropped
    }

    /// What it has, in the order of the answers.
    pub fn requests(&self) -> Vec<Answered> {
        self.requests.iter().copied().collect()
    }

    /// Its memory.
    pub fn memory_bytes(&self) -> u64 {
        self.requests.capacity() as u64 * EACH
    }
}

/// Requests of a volume, in the order of their arrival.
#[derive(Clone, Debug)]
pub struct Recent {
    /// The alarm for which they were kept.
    pub alarm: Option<String>,
    /// The requests: all that came after the first of them. They begin where the ring that covers the least time begins.
    pub requests: Arc<[Answered]>,
}

impl Recent {
    /// Its memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.requests.len() as u64 * EACH
    }
}

/// The requests before the last alarm, by volume.
pub(crate) type Kept = Mutex<Vec<Option<Recent>>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_the_last_reads_and_writes() {
        let mut ring = Ring::of(2 * EACH + 1);
        let asked = |at, kind| Asked { at, kind, offset: 512, len: 1024 };
        ring.note(asked(1_000, Kind::Read), 7_000, true, true);
        ring.note(asked(2_000, Kind::Flush), 7_000, true, true);
        ring.note(asked(3_000, Kind::Write { fua: false }), 8_999, false, true);
        ring.note(asked(5_000, Kind::Read), u64::MAX, false, false);
        let noted = |at_us, took_us, writes, ok| Answered {
            at_us,
            offset_bytes: 512,
            len_bytes: 1024,
            took_us,
            writes,
            hit: false,
            ok,
        };
        assert_eq!(ring.requests(), [noted(3, 8, true, true), noted(5, u32::MAX, false, false)]);
        ring.resize(EACH);
        assert_eq!(ring.requests(), [noted(5, u32::MAX, false, false)]);
        let mut none = Ring::of(EACH - 1);
        none.note(asked(1, Kind::Read), 1, true, true);
        assert!(none.requests().is_empty() && none.memory_bytes() == 0);
    }

    #[test]
    fn the_wire_keeps_every_field() {
        for bits in 0..8 {
            let wire: Wire = (1, 2, 3, 4, bits);
            assert_eq!(Wire::from(Answered::from(wire)), wire);
        }
    }
}
