// SPDX-License-Identifier: MIT OR Apache-2.0
//! A write whose payload is arriving.
//!
//! Invariants: memory is allocated a piece at a time, when bytes for it have arrived or are about to be received, so
//! that a long write costs no memory when it is announced; its share of the budget is reserved. The pieces are those of
//! [`pieces`]`(offset, len, stripe_bytes)`, in order.

use larder_core::buf::Buf;
use larder_core::request::{Kind, pieces};

/// A write whose payload is arriving.
pub(super) struct Fill {
    pub(super) slot: u32,
    pub(super) kind: Kind,
    /// The pieces so far; the last one is filled up to `at`, and absent while it is lent.
    bufs: Vec<Buf>,
    at: usize,
    /// The rest of the range, which has no pieces yet.
    next: u64,
    rest: u64,
    stripe_bytes: u64,
}

impl Fill {
    /// A write of `len` bytes at `offset`; `bufs` is an empty vector for reuse.
    pub(super) fn new(
        (slot, kind): (u32, Kind),
        (offset, len): (u64, u64),
        stripe_bytes: u64,
        bufs: Vec<Buf>,
    ) -> Self {
        Self { slot, kind, bufs, at: 0, next: offset, rest: len, stripe_bytes }
    }

    /// Missing bytes of the last piece.
    fn room(&self) -> usize {
        self.bufs.last().map_or(0, |b| b.len() - self.at)
    }

    pub(super) fn is_full(&self) -> bool {
        self.room() == 0 && self.rest == 0
    }

    /// Adds the next piece if the last one is full.
    fn grow(&mut self) {
        if self.room() == 0
            && let Some(piece) = pieces(self.next, self.rest, self.stripe_bytes).next()
        {
            self.bufs.push(Buf::with_len(piece.len as usize));
            self.at = 0;
            self.next += piece.len;
            self.rest -= piece.len;
        }
    }

    /// Takes payload from the beginning of `bytes`; returns how much.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() && !self.is_full() {
            self.grow();
            let n = self.room().min(bytes.len() - used);
            let Some(piece) = self.bufs.last_mut() else { break };
            piece[self.at..self.at + n].copy_from_slice(&bytes[used..used + n]);
            self.at += n;
            used += n;
        }
        used
    }

    /// Lends the incomplete piece and its fill level, if at least `least` bytes are missing.
    pub(super) fn lend(&mut self, least: usize) -> Option<(Buf, usize)> {
        self.grow();
        if self.room() < least.max(1) {
            return None;
        }
        self.bufs.pop().map(|buf| (buf, self.at))
    }

    /// Takes the lent piece back, filled by `n` more bytes.
    pub(super) fn give_back(&mut self, buf: Buf, n: usize) {
        self.at += n.min(buf.len().saturating_sub(self.at));
        self.bufs.push(buf);
    }

    /// The pieces, once complete.
    pub(super) fn into_bufs(self) -> Vec<Buf> {
        self.bufs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_fills_the_pieces_whether_copied_or_lent() {
        let (offset, len, unit) = (3 * 4096, 200 << 10, 64 << 10);
        let data: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        let kind = Kind::Write { fua: false };
        for chunk in [1000, 4096, 70_000] {
            let mut fill = Fill::new((0, kind), (offset, len as u64), unit, Vec::new());
            let (mut at, mut lent) = (0, 0);
            while !fill.is_full() {
                if let Some((mut buf, from)) = fill.lend(16 << 10) {
                    let n = chunk.min(buf.len() - from);
                    buf[from..from + n].copy_from_slice(&data[at..at + n]);
                    fill.give_back(buf, n);
                    at += n;
                    lent += 1;
                } else {
                    at += fill.feed(&data[at..data.len().min(at + chunk)]);
                }
            }
            assert!(lent > 0);
            let bufs = fill.into_bufs();
            let want: Vec<u64> = pieces(offset, len as u64, unit).map(|p| p.len).collect();
            assert_eq!(bufs.iter().map(|b| b.len() as u64).collect::<Vec<_>>(), want);
            assert_eq!(bufs.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>(), data);
        }
    }
}
