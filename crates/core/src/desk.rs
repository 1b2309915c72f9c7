// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the pieces of a client's request together again.
//!
//! Purpose: a front cuts a request with [`pieces`](crate::request::pieces), opens it here, sends
//! each piece to its shard under the tag it gets, and is told when the last one is back. Every
//! front and the virtual-time driver use this one desk, and client requests are counted here.
//!
//! Invariants: the answer is the first error in the order of completion, if there was one; a
//! request is a hit only when every piece was.

use slab::Slab;

use crate::buf::Buf;
use crate::request::{Errno, Kind, Reply};

/// Counters of client requests; a hit is a read served wholly from flash, or a write all of
/// whose units were cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Requests {
    /// Client reads.
    pub reads: u64,
    /// Client reads served wholly from flash.
    pub read_hits: u64,
    /// Client writes.
    pub writes: u64,
    /// Client writes that found all their units cached.
    pub write_hits: u64,
    /// Bytes of client reads.
    pub read_bytes: u64,
    /// Bytes of client writes.
    pub write_bytes: u64,
}

impl std::ops::AddAssign for Requests {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.read_hits += other.read_hits;
        self.writes += other.writes;
        self.write_hits += other.write_hits;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
    }
}

/// A client request that is complete.
#[derive(Debug)]
pub struct Finished<C> {
    /// What the front knows it by.
    pub client: C,
    /// The request's kind.
    pub kind: Kind,
    /// How it went.
    pub result: Result<(), Errno>,
    /// Served wholly from flash.
    pub hit: bool,
    /// Data of a read, in order.
    pub bufs: Vec<Buf>,
}

struct Open<C> {
    client: C,
    kind: Kind,
    left: u32,
    result: Result<(), Errno>,
    hit: bool,
    bufs: Vec<Option<Buf>>,
}

/// The desk, see the module. `C` is what the front knows its request by.
pub struct Desk<C> {
    open: Slab<Open<C>>,
    requests: Requests,
}

impl<C> Default for Desk<C> {
    fn default() -> Self {
        Self { open: Slab::new(), requests: Requests::default() }
    }
}

/// Bits of a tag that number the piece.
const PIECE_BITS: u32 = 24;

impl<C> Desk<C> {
    /// Opens a request of `pieces` pieces (at least one). Piece `i` is sent under tag
    /// `Desk::tag(number, i)`.
    pub fn open(&mut self, client: C, kind: Kind, len: u64, pieces: u32) -> u64 {
        match kind {
            Kind::Read => {
                self.requests.reads += 1;
                self.requests.read_bytes += len;
            }
            Kind::Write { .. } => {
                self.requests.writes += 1;
                self.requests.write_bytes += len;
            }
            _ => {}
        }
        let wants_data = matches!(kind, Kind::Read);
        let bufs = (0..if wants_data { pieces } else { 0 }).map(|_| None).collect();
        let open = Open { client, kind, left: pieces, result: Ok(()), hit: true, bufs };
        self.open.insert(open) as u64
    }

    /// The tag of a piece.
    #[must_use]
    pub fn tag(number: u64, piece: u32) -> u64 {
        number << PIECE_BITS | u64::from(piece)
    }

    /// The request's number that a tag names.
    #[must_use]
    pub fn number(tag: u64) -> u64 {
        tag >> PIECE_BITS
    }

    /// Takes a piece's reply; the whole request, if this was its last piece.
    pub fn take(&mut self, reply: Reply) -> Option<Finished<C>> {
        let number = Self::number(reply.tag) as usize;
        let piece = (reply.tag & ((1 << PIECE_BITS) - 1)) as usize;
        let open = self.open.get_mut(number)?;
        open.left -= 1;
        open.hit &= reply.hit;
        if open.result.is_ok() {
            open.result = reply.result;
        }
        if let Some(place) = open.bufs.get_mut(piece) {
            *place = reply.buf;
        }
        if open.left > 0 {
            return None;
        }
        let Open { client, kind, result, hit, bufs, .. } = self.open.remove(number);
        if hit && result.is_ok() {
            match kind {
                Kind::Read => self.requests.read_hits += 1,
                Kind::Write { .. } => self.requests.write_hits += 1,
                _ => {}
            }
        }
        let bufs = bufs.into_iter().flatten().collect();
        Some(Finished { client, kind, result, hit, bufs })
    }

    /// How many requests are open.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// The counters of client requests.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.requests
    }
}
