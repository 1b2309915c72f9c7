// SPDX-License-Identifier: MIT OR Apache-2.0
//! The desk: combines the replies to the pieces of a client request.
//!
//! A front-end cuts a request with [`pieces`](crate::request::pieces), opens it here, and sends each piece to its shard
//! under its tag. The desk returns the request with its last reply. All front-ends and the virtual-time driver use it, so
//! it also counts client requests.
//!
//! Invariants: the result is the first error in order of completion, if there is one; a request is a hit only if every
//! piece is.

use slab::Slab;

use crate::buf::Buf;
use crate::request::{Errno, Kind, Reply};

/// Counters of client requests. A hit is a read served wholly from flash, or a write to units that are all cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Requests {
    /// Client reads.
    pub reads: u64,
    /// Client reads served wholly from flash.
    pub read_hits: u64,
    /// Client writes.
    pub writes: u64,
    /// Client writes to units that are all cached.
    pub write_hits: u64,
    /// Bytes of client reads.
    pub read_bytes: u64,
    /// Bytes of client writes.
    pub write_bytes: u64,
}

impl Requests {
    /// Counts a request that arrives.
    pub fn arrives(&mut self, kind: Kind, len: u64) {
        match kind {
            Kind::Read => {
                self.reads += 1;
                self.read_bytes += len;
            }
            Kind::Write { .. } => {
                self.writes += 1;
                self.write_bytes += len;
            }
            Kind::Flush | Kind::Trim { .. } | Kind::Zero { .. } => {}
        }
    }

    /// Counts a request that succeeded, and hit.
    pub fn hits(&mut self, kind: Kind) {
        match kind {
            Kind::Read => self.read_hits += 1,
            Kind::Write { .. } => self.write_hits += 1,
            Kind::Flush | Kind::Trim { .. } | Kind::Zero { .. } => {}
        }
    }
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
    /// The front-end's own identification of the request.
    pub client: C,
    /// The request's kind.
    pub kind: Kind,
    /// Its result.
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

/// The desk of one front-end. `C` is the front-end's own identification of a request.
pub struct Desk<C> {
    open: Slab<Open<C>>,
    requests: Requests,
}

impl<C> Default for Desk<C> {
    fn default() -> Self {
        Self { open: Slab::new(), requests: Requests::default() }
    }
}

/// Bits of a tag that hold the piece's number.
const PIECE_BITS: u32 = 24;

impl<C> Desk<C> {
    /// Opens a request of `pieces` pieces (at least one) and returns its number. Piece `i` has the tag
    /// `Desk::tag(number, i)`.
    pub fn open(&mut self, client: C, kind: Kind, len: u64, pieces: u32) -> u64 {
        self.requests.arrives(kind, len);
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

    /// The request's number in a tag.
    #[must_use]
    pub fn number(tag: u64) -> u64 {
        tag >> PIECE_BITS
    }

    /// Takes a piece's reply; returns the request with the reply to its last piece.
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
        self.finish(number)
    }

    /// Ends a request whose last `unsent` pieces are not sent: it fails with `errno`. Returns the request if none of its
    /// pieces is in flight.
    pub fn cut(&mut self, number: u64, unsent: u32, errno: Errno) -> Option<Finished<C>> {
        let number = number as usize;
        let open = self.open.get_mut(number)?;
        open.left -= unsent.min(open.left);
        open.result = open.result.and(Err(errno));
        self.finish(number)
    }

    /// The request, if it has the replies to all pieces.
    fn finish(&mut self, number: usize) -> Option<Finished<C>> {
        self.open.get(number).filter(|open| open.left == 0)?;
        let Open { client, kind, result, hit, bufs, .. } = self.open.remove(number);
        if hit && result.is_ok() {
            self.requests.hits(kind);
        }
        let bufs = bufs.into_iter().flatten().collect();
        Some(Finished { client, kind, result, hit, bufs })
    }

    /// Number of open requests.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// The front-end's identifications of the open requests.
    pub fn clients(&self) -> impl Iterator<Item = &C> {
        self.open.iter().map(|(_, open)| &open.client)
    }

    /// The counters of client requests.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.requests
    }
}
