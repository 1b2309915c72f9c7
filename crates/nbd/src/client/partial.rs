// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request in flight, and a structured reply whose chunks are arriving.
//!
//! Invariants: the chunks of a read lie within it and do not overlap. A read succeeds only when they cover it, and a
//! status request only when it received a status.

use std::io::Read;

use larder_core::extent::Extent;
use larder_core::request::Errno;

use super::error::ClientError;
use crate::codec::{ChunkHeader, Cursor, chunk, errno_of_wire};
use crate::status;

/// The longest error chunk.
const MAX_ERROR_BYTES: u32 = 64 << 10;

/// What a request in flight expects in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    Nothing,
    Data,
    Status,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) wants: Wants,
    pub(super) offset: u64,
    pub(super) len: u32,
}

impl Ask {
    pub(super) fn reads(&self) -> bool {
        self.wants == Wants::Data
    }
}

/// A read whose chunks are arriving, or another request that received a chunk.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) ask: Ask,
    pub(super) data: Vec<u8>,
    /// Ranges that have arrived, sorted.
    covered: Vec<(u32, u32)>,
    /// The reply to a status request.
    pub(super) extents: Vec<Extent>,
    error: Option<Errno>,
    pub(super) chunks: usize,
}

impl Partial {
    /// A reply without chunks; `data` is reused as its buffer.
    pub(super) fn new(ask: Ask, data: Vec<u8>) -> Self {
        let (covered, extents) = (Vec::new(), Vec::new());
        Self { ask, data, covered, extents, error: None, chunks: 0 }
    }

    /// Receives a chunk's payload.
    pub(super) fn take(
        &mut self,
        h: &ChunkHeader,
        context: Option<u32>,
        from: &mut impl Read,
    ) -> Result<(), ClientError> {
        let malformed = || ClientError::Protocol("a malformed chunk");
        match h.kind {
            chunk::NONE if h.len == 0 && h.flags & chunk::FLAG_DONE != 0 => Ok(()),
            chunk::OFFSET_DATA if h.len > 8 => {
                let mut offset = [0; 8];
                from.read_exact(&mut offset)?;
                let place = self.place(u64::from_be_bytes(offset), h.len - 8)?;
                Ok(from.read_exact(&mut self.data[place])?)
            }
            chunk::OFFSET_HOLE if h.len == 12 => {
                let mut body = [0; 12];
                from.read_exact(&mut body)?;
                let mut c = Cursor(&body);
                let (offset, len) = c.u64().zip(c.u32()).ok_or_else(malformed)?;
                let place = self.place(offset, len)?;
                self.data[place].fill(0);
                Ok(())
            }
            status::CHUNK if self.ask.wants == Wants::Status && self.extents.is_empty() => {
                let (id, extents) = status::read(from, h.len)?.ok_or_else(malformed)?;
                if Some(id) != context {
                    return Err(ClientError::Protocol(
                        "a status of a context that was not negotiated",
                    ));
                }
                self.extents = extents;
                Ok(())
            }
            kind if kind & chunk::ERR != 0 && (6..=MAX_ERROR_BYTES).contains(&h.len) => {
                let mut body = vec![0; h.len as usize];
                from.read_exact(&mut body)?;
                let mut c = Cursor(&body);
                let (error, text) = c.u32().zip(c.u16()).ok_or_else(malformed)?;
                c.bytes(usize::from(text)).ok_or_else(malformed)?;
                self.error = self.error.or(Some(errno_of_wire(error)));
                Ok(())
            }
            _ => Err(malformed()),
        }
    }

    /// The range of a content chunk in the data. It must lie in the read and overlap no other chunk.
    fn place(&mut self, offset: u64, len: u32) -> Result<std::ops::Range<usize>, ClientError> {
        let outside = ClientError::Protocol("a chunk lies outside of its read");
        let at = offset.checked_sub(self.ask.offset).and_then(|at| u32::try_from(at).ok());
        let range = at.and_then(|at| Some((at, at.checked_add(len)?)));
        let range = range.filter(|r| self.ask.reads() && len > 0 && r.1 <= self.ask.len);
        let (at, end) = range.ok_or(outside)?;
        let next = self.covered.partition_point(|(start, _)| *start < at);
        let free_before = next == 0 || self.covered[next - 1].1 <= at;
        let free_behind = self.covered.get(next).is_none_or(|(start, _)| end <= *start);
        if !free_before || !free_behind {
            return Err(ClientError::Protocol("the chunks of a reply overlap"));
        }
        self.covered.insert(next, (at, end));
        // A reused buffer keeps old content here: only a fully covered read succeeds.
        self.data.resize(self.ask.len as usize, 0);
        Ok(at as usize..end as usize)
    }

    pub(super) fn finish(
        mut self,
        without_status: bool,
    ) -> Result<Result<Vec<u8>, Errno>, ClientError> {
        if let Some(errno) = self.error {
            return Ok(Err(errno));
        }
        let covered: u64 = self.covered.iter().map(|(start, end)| u64::from(end - start)).sum();
        if self.ask.wants == Wants::Status && without_status {
            return Err(ClientError::Protocol("a status request ended without a status"));
        }
        if self.ask.reads() && covered != u64::from(self.ask.len) {
            return Err(ClientError::Protocol("a read ended without all of its data"));
        }
        // A read of zero bytes had no chunk that would have resized a reused buffer.
        self.data.truncate(if self.ask.reads() { self.ask.len as usize } else { 0 });
        Ok(Ok(self.data))
    }
}
