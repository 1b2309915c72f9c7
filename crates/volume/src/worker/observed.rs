// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a worker notes of its clients' requests: for a recording, for the miss-ratio curves, and in the flight recorder.
//!
//! Invariants: without a recording, and with the recorder off, a request costs a few tests of fields. Reads that leave the cache
//! as it is are not part of a curve: a cache of another size would not serve them either.

use larder_core::exec::Nanos;
use larder_core::request::Kind;

use crate::curve::Batch;
use crate::part::Part;
use crate::recent::{Answered, Asked, Ring};
use crate::tap::{self, Tap};

/// What a worker notes, see the module.
pub(crate) struct Observed {
    /// Receives client requests while they are recorded.
    pub tap: Option<Tap>,
    /// By volume.
    batches: Vec<Batch>,
    rings: Vec<Ring>,
}

impl Observed {
    /// Of so many volumes; a ring takes at most so many bytes.
    pub fn new(volumes: usize, ring_bytes: u64) -> Self {
        let batches = (0..volumes).map(|_| Batch::new()).collect();
        let rings = (0..volumes).map(|_| Ring::of(ring_bytes)).collect();
        Self { tap: None, batches, rings }
    }

    /// A request of a client of this volume; `offset` is in the space of all volumes.
    #[inline]
    pub fn arrives(
        &mut self,
        (volume, part): (u32, &Part),
        now: Nanos,
        (kind, passive): (Kind, bool),
        offset: u64,
        len: u64,
    ) {
        tap::tell(&mut self.tap, now, kind, offset, len);
        if matches!(kind, Kind::Write { .. }) || kind == Kind::Read && !passive {
            let within = offset - part.range.start;
            part.curve.note(&mut self.batches[volume as usize], now, within, len);
        }
    }

    /// The answer to a request.
    #[inline]
    pub fn answered(&mut self, volume: u32, asked: Asked, took: Nanos, hit: bool, ok: bool) {
        self.rings[volume as usize].note(asked, took, hit, ok);
    }

    /// Rings of another size.
    pub fn resize(&mut self, ring_bytes: u64) {
        self.rings.iter_mut().for_each(|ring| ring.resize(ring_bytes));
    }

    /// The last requests of a volume that this worker answered, and whether it answered more.
    pub fn recent(&self, volume: u32) -> (Vec<Answered>, bool) {
        let ring = &self.rings[volume as usize];
        (ring.requests(), ring.has_dropped())
    }

    /// Hands the curves what it has for them.
    pub fn hand_over(&mut self, parts: &[Part], now: Nanos) {
        for (part, batch) in parts.iter().zip(&mut self.batches) {
            part.curve.take(batch, now);
        }
    }

    /// The memory of the rings.
    pub fn memory_bytes(&self) -> u64 {
        self.rings.iter().map(Ring::memory_bytes).sum()
    }
}
