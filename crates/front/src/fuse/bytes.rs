// SPDX-License-Identifier: MIT OR Apache-2.0
//! Byte-granular access to a volume: reads, writes and zeroings of any range.
//!
//! Purpose: a volume accepts whole blocks of its origin (512 or 4096 bytes), a file accepts any range. Reads are
//! extended to whole blocks. A write that begins or ends within a block reads that block and writes it whole;
//! [`Overlaps`] locks the blocks in between. A zeroing writes its partial blocks and passes the whole ones to the
//! origin.
//!
//! Invariants: no call blocks; `done` is called once, on a worker's thread. The part of a block that a write does not
//! cover keeps its content, and no concurrent partial write of the same block is lost.
//!
//! NBD clients of the same volume use the same locks: once the volume is served as a file, its workers take a pass for
//! each write.

use std::ops::Range;
use std::sync::Arc;

use larder_core::buf::Buf;
use larder_core::request::{Errno, Kind, pieces};
use larder_volume::{Overlaps, Pass, Seek, Volume};

/// Receives the result of a request.
type Done = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// A byte-granular view of a volume.
#[derive(Clone)]
pub(crate) struct Bytes {
    volume: Arc<Volume>,
    /// Reads leave the cache as it is.
    passive: bool,
    overlaps: Overlaps,
    block: u64,
    stripe: u64,
    size: u64,
}

/// Data of a read.
pub(crate) struct Data {
    bufs: Vec<Buf>,
    /// Bytes of the first buffer that were not requested.
    skip: usize,
    len: usize,
}

impl Data {
    /// Passes the data as one slice; it is copied only if it crosses a border of a stripe.
    pub fn with<T>(self, take: impl FnOnce(&[u8]) -> T) -> T {
        let end = self.skip + self.len;
        if let Some(part) = self.bufs.first().and_then(|first| first.get(self.skip..end)) {
            return take(part);
        }
        let mut joined = Vec::with_capacity(end);
        self.bufs.iter().for_each(|buf| joined.extend_from_slice(buf));
        take(joined.get(self.skip..end).unwrap_or_default())
    }
}

impl Bytes {
    pub fn of(volume: &Arc<Volume>, passive: bool) -> Self {
        let geometry = volume.origin().geometry();
        Self {
            overlaps: volume.overlaps().clone(),
            block: u64::from(geometry.block_bytes),
            stripe: volume.cache().shape().stripe_bytes(),
            size: geometry.bytes,
            passive,
            volume: Arc::clone(volume),
        }
    }

    /// The size of the volume.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The part of a range that lies within the volume.
    pub fn within(&self, offset: u64, len: u64) -> Range<u64> {
        let end = offset.saturating_add(len).min(self.size);
        offset.min(end)..end
    }

    /// The whole blocks that a range touches.
    fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block * self.block..range.end.next_multiple_of(self.block)
    }

    /// Reads a range within the volume.
    pub fn read(&self, range: Range<u64>, done: impl FnOnce(Result<Data, Errno>) + Send + 'static) {
        let whole = self.blocks(&range);
        let (skip, len) =
            ((range.start - whole.start) as usize, (range.end - range.start) as usize);
        let done = move |result: Result<Vec<Buf>, Errno>| {
            done(result.map(|bufs| Data { bufs, skip, len }));
        };
        match self.passive {
            true => self.volume.read_passively(whole.start, whole.end - whole.start, done),
            false => self.call(Kind::Read, whole, Vec::new(), done),
        }
    }

    /// Writes within the volume.
    pub fn write(
        &self,
        offset: u64,
        data: &[u8],
        fua: bool,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let range = offset..offset + data.len() as u64;
        let whole = self.blocks(&range);
        let mut bufs = self.memory(&whole);
        fill(&mut bufs, (offset - whole.start) as usize, data);
        let (this, partial) = (self.clone(), whole != range);
        self.overlaps.enter(whole.clone(), partial, move |pass| {
            let done = move |result| {
                drop::<Pass>(pass);
                done(result);
            };
            if partial {
                this.patch(range, bufs, fua, Box::new(done));
            } else {
                this.call(Kind::Write { fua }, whole, bufs, |result| done(result.map(drop)));
            }
        });
    }

    /// Makes a range within the volume read as zeroes; with `may_unmap` the origin may deallocate it.
    pub fn zero(
        &self,
        range: Range<u64>,
        may_unmap: bool,
        done: impl FnOnce(Result<(), Errno>) + Send + 'static,
    ) {
        let whole = self.blocks(&range);
        let inner = range.start.next_multiple_of(self.block)..range.end / self.block * self.block;
        let (this, partial) = (self.clone(), whole != range);
        self.overlaps.enter(whole, partial, move |pass| {
            let done = move |result| {
                drop::<Pass>(pass);
                done(result);
            };
            let edges = match inner.start < inner.end {
                _ if !partial => Vec::new(),
                true => vec![range.start..inner.start, inner.end..range.end],
                // Within one block, or the end of one block and the beginning of the next.
                false if inner.start == inner.end => {
                    vec![range.start..inner.start, inner.start..range.end]
                }
                false => vec![range],
            };
            this.zero_parts(edges, inner, may_unmap, Box::new(done));
        });
    }

    /// Finds data or a hole from a byte within the volume on; `done` receives `None` if there is no further data.
    pub fn seek(&self, from: u64, what: Seek, done: impl FnOnce(Option<u64>) + Send + 'static) {
        let whole = from / self.block * self.block..self.size;
        self.volume.seek(whole, what, move |found| done(found.map(|at| at.max(from))));
    }

    /// Makes every acknowledged write durable.
    pub fn flush(&self, done: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        self.call(Kind::Flush, 0..0, Vec::new(), |result| done(result.map(drop)));
    }

    /// Zeroes the partial blocks one after the other, then the whole blocks.
    fn zero_parts(
        self,
        mut parts: Vec<Range<u64>>,
        inner: Range<u64>,
        may_unmap: bool,
        done: Done,
    ) {
        let Some(part) = parts.pop() else {
            if inner.is_empty() {
                return done(Ok(()));
            }
            let kind = Kind::Zero { fua: false, may_unmap };
            return self.call(kind, inner, Vec::new(), |result| done(result.map(drop)));
        };
        if part.is_empty() {
            return self.zero_parts(parts, inner, may_unmap, done);
        }
        let mut bufs = self.memory(&self.blocks(&part));
        bufs.iter_mut().for_each(|buf| buf.fill(0));
        let this = self.clone();
        let then = move |result| match result {
            Ok(()) => this.zero_parts(parts, inner, may_unmap, done),
            Err(errno) => done(Err(errno)),
        };
        self.patch(part, bufs, false, Box::new(then));
    }

    /// Writes a range from buffers for all of its blocks; the rest of the blocks is read first.
    fn patch(self, range: Range<u64>, bufs: Vec<Buf>, fua: bool, done: Done) {
        let whole = self.blocks(&range);
        let mut missing = Vec::new();
        if whole.start < range.start {
            missing.push(whole.start);
        }
        let last = whole.end - self.block;
        if range.end < whole.end && missing.last() != Some(&last) {
            missing.push(last);
        }
        Patch { bytes: self, range, whole, bufs, fua, missing, done }.step();
    }

    /// Buffers for a range of whole blocks, split as the volume splits.
    fn memory(&self, whole: &Range<u64>) -> Vec<Buf> {
        let cut = pieces(whole.start, whole.end - whole.start, self.stripe);
        cut.map(|piece| Buf::with_len(piece.len as usize)).collect()
    }

    fn call(
        &self,
        kind: Kind,
        whole: Range<u64>,
        bufs: Vec<Buf>,
        done: impl FnOnce(Result<Vec<Buf>, Errno>) + Send + 'static,
    ) {
        self.volume.call(kind, whole.start, whole.end - whole.start, bufs, done);
    }
}

/// A write of partial blocks.
struct Patch {
    bytes: Bytes,
    range: Range<u64>,
    whole: Range<u64>,
    bufs: Vec<Buf>,
    fua: bool,
    /// Blocks still to be read.
    missing: Vec<u64>,
    done: Done,
}

impl Patch {
    fn step(mut self) {
        let bytes = self.bytes.clone();
        let Some(at) = self.missing.pop() else {
            let done = self.done;
            let kind = Kind::Write { fua: self.fua };
            return bytes.call(kind, self.whole, self.bufs, |result| done(result.map(drop)));
        };
        let block = at..at + bytes.block;
        bytes.call(Kind::Read, block.clone(), Vec::new(), move |result| match result {
            Ok(bufs) => {
                let old = bufs.first().map_or(&[][..], |buf| buf);
                self.keep(&block, old, self.whole.start..self.range.start);
                self.keep(&block, old, self.range.end..self.whole.end);
                self.step();
            }
            Err(errno) => (self.done)(Err(errno)),
        });
    }

    /// Copies the old content of a block for a range that is not written.
    fn keep(&mut self, block: &Range<u64>, old: &[u8], kept: Range<u64>) {
        let (from, to) = (kept.start.max(block.start), kept.end.min(block.end));
        if from >= to {
            return;
        }
        let within = (from - block.start) as usize..(to - block.start) as usize;
        let old = old.get(within).unwrap_or_default();
        fill(&mut self.bufs, (from - self.whole.start) as usize, old);
    }
}

/// Copies data into consecutive buffers, from byte `at` of the first one on.
fn fill(bufs: &mut [Buf], mut at: usize, mut data: &[u8]) {
    for buf in bufs {
        if at >= buf.len() {
            at -= buf.len();
            continue;
        }
        let count = data.len().min(buf.len() - at);
        let (now, later) = data.split_at(count);
        buf[at..at + count].copy_from_slice(now);
        (at, data) = (0, later);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use larder_core::config::preset;
    use larder_io::Device;
    use larder_volume::CacheConfig;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    const SIZE: u64 = 1 << 18;

    /// A volume of 64 KiB units on two workers; `block` replaces the block size of its origin.
    fn bytes(block: u64) -> Bytes {
        let mut choices = preset("sce").unwrap().choices();
        choices.unit_bytes = 64 << 10;
        let config = CacheConfig::of(Device::mem(SIZE), choices, 2);
        Bytes { block, ..Bytes::of(&Volume::start(config).unwrap(), false) }
    }

    fn wait<T: Send + 'static>(
        ask: impl FnOnce(Box<dyn FnOnce(Result<T, Errno>) + Send>),
    ) -> Result<T, Errno> {
        let (answer, answered) = channel();
        ask(Box::new(move |result| answer.send(result).unwrap()));
        answered.recv_timeout(Duration::from_secs(30)).unwrap()
    }

    fn read(bytes: &Bytes, range: Range<u64>) -> Vec<u8> {
        wait(|done| bytes.read(range, |result| done(result.map(|d| d.with(<[u8]>::to_vec)))))
            .unwrap()
    }

    /// Stripes of random lengths belong to four threads in turn; each thread writes and zeroes within its own stripes.
    fn stripes(block: u64) {
        let bytes = bytes(block);
        let mut random = Pcg64::seed_from_u64(block);
        let mut hands: [Vec<(u64, Vec<u8>)>; 4] = Default::default();
        let (mut at, mut turn) = (0, 0);
        while at < SIZE {
            let len = if random.random_bool(0.1) { 3 * block } else { random.random_range(1..900) };
            let len = len.min(SIZE - at);
            hands[turn % 4].push((at, vec![0; len as usize]));
            (at, turn) = (at + len, turn + 1);
        }
        std::thread::scope(|scope| {
            for (seed, hand) in (0..).zip(&mut hands) {
                let bytes = &bytes;
                scope.spawn(move || {
                    let mut random = Pcg64::seed_from_u64(seed);
                    for _ in 0..3000 {
                        let pick = random.random_range(0..hand.len());
                        let (at, held) = &mut hand[pick];
                        let from = random.random_range(0..held.len());
                        let to = random.random_range(from..held.len()) + 1;
                        let (start, held) = (*at + from as u64, &mut held[from..to]);
                        let range = start..start + held.len() as u64;
                        if random.random_bool(0.3) {
                            held.fill(0);
                            wait(|done| bytes.zero(range, true, done)).unwrap();
                        } else if random.random_bool(0.2) {
                            assert!(read(bytes, range) == held);
                        } else {
                            random.fill(held);
                            wait(|done| bytes.write(start, held, false, done)).unwrap();
                        }
                    }
                });
            }
        });
        let all = read(&bytes, 0..SIZE);
        for (at, held) in hands.iter().flatten() {
            let at = *at as usize;
            assert!(all[at..at + held.len()] == *held, "{} bytes at {at}", held.len());
        }
        let _ = bytes.volume.cache().stop(Duration::from_secs(5), |_| (), || false);
    }

    #[test]
    fn concurrent_writes_within_a_block_keep_each_other() {
        stripes(512);
        stripes(4096);
    }

    #[test]
    fn writes_and_zeroings_at_every_boundary() {
        let bytes = bytes(512);
        let mut model = vec![0; SIZE as usize];
        let borders = [0u64, 1, 511, 512, 513, 1000, 1024, 1025, 65_535, 65_536, 65_537, 66_048];
        for (n, from) in borders.iter().enumerate() {
            for to in &borders[n + 1..] {
                let (at, end) = (*from as usize, *to as usize);
                model[at..end].fill(n as u8 + 1);
                let data = model[at..end].to_vec();
                wait(|done| bytes.write(*from, &data, false, done)).unwrap();
                assert!(read(&bytes, 0..70_000) == model[..70_000], "write {from}..{to}");
                let (from, to) = (from + 1, to + 3);
                model[from as usize..to as usize].fill(0);
                wait(|done| bytes.zero(from..to, false, done)).unwrap();
                assert!(read(&bytes, 0..70_000) == model[..70_000], "zero {from}..{to}");
            }
        }
        wait(|done| bytes.flush(done)).unwrap();
        let _ = bytes.volume.cache().stop(Duration::from_secs(5), |_| (), || false);
    }
}
