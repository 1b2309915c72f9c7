// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device in this process's memory.
//!
//! Purpose: `mem:SIZE` for benches, tests and demos: about a microsecond per 4 KiB.
//!
//! Invariants: a chunk that was never written, or was trimmed or zeroed completely, has no memory and reads as zeroes;
//! so `mem:100GiB` costs only a table until it is written. An operation within one chunk is atomic; one that spans
//! chunks is atomic per chunk, which is more than disks guarantee (a sector).
//!
//! Why not one large mapping: threads that copy to and from plain memory without locks are a data race, and a lock per
//! chunk costs about 20 ns.

use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Bytes of a chunk: the granularity of locking and of allocation.
const CHUNK: usize = 64 << 10;
/// Chunks of a group, 64 MiB of the device: the granularity in which the table is allocated.
const GROUP: usize = 1024;

type Chunk = RwLock<Option<Box<[u8]>>>;

/// The store.
pub(crate) struct MemStore {
    groups: Box<[OnceLock<Box<[Chunk]>>]>,
}

/// The part of a range in one chunk: the group, the chunk within it, the first byte within that, and the part's
/// position in the range.
struct Part {
    group: usize,
    chunk: usize,
    start: usize,
    at: u64,
    len: usize,
}

fn parts(offset: u64, len: u64) -> impl Iterator<Item = Part> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == len {
            return None;
        }
        let place = offset + at;
        let (number, start) = ((place / CHUNK as u64) as usize, (place % CHUNK as u64) as usize);
        let part_len = (len - at).min((CHUNK - start) as u64) as usize;
        let part = Part { group: number / GROUP, chunk: number % GROUP, start, at, len: part_len };
        at += part_len as u64;
        Some(part)
    })
}

/// Locks for reading. Only a copy of bytes can panic under the lock, and the bytes stay usable.
fn read_lock(chunk: &Chunk) -> RwLockReadGuard<'_, Option<Box<[u8]>>> {
    chunk.read().unwrap_or_else(PoisonError::into_inner)
}

fn write_lock(chunk: &Chunk) -> RwLockWriteGuard<'_, Option<Box<[u8]>>> {
    chunk.write().unwrap_or_else(PoisonError::into_inner)
}

impl MemStore {
    pub(crate) fn new(bytes: u64) -> Self {
        let groups = bytes.div_ceil((CHUNK * GROUP) as u64) as usize;
        Self { groups: std::iter::repeat_with(OnceLock::new).take(groups).collect() }
    }

    /// Fills `out` from the device. The caller has checked the range.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        for part in parts(offset, out.len() as u64) {
            let at = part.at as usize;
            let out = &mut out[at..at + part.len];
            match self.groups[part.group].get() {
                None => out.fill(0),
                Some(chunks) => match &*read_lock(&chunks[part.chunk]) {
                    None => out.fill(0),
                    Some(bytes) => out.copy_from_slice(&bytes[part.start..part.start + part.len]),
                },
            }
        }
    }

    /// Writes `data` to the device. The caller has checked the range.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) {
        for part in parts(offset, data.len() as u64) {
            let at = part.at as usize;
            let chunks = self.groups[part.group]
                .get_or_init(|| std::iter::repeat_with(Chunk::default).take(GROUP).collect());
            let mut chunk = write_lock(&chunks[part.chunk]);
            let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK].into_boxed_slice());
            bytes[part.start..part.start + part.len].copy_from_slice(&data[at..at + part.len]);
        }
    }

    /// Makes a range read as zeroes and frees whole chunks. The caller has checked the range.
    pub(crate) fn zero(&self, offset: u64, len: u64) {
        let end = offset + len;
        let group_bytes = (CHUNK * GROUP) as u64;
        let mut at = offset;
        while at < end {
            let stop = end.min((at / group_bytes + 1) * group_bytes);
            if let Some(chunks) = self.groups[(at / group_bytes) as usize].get() {
                for part in parts(at, stop - at) {
                    let mut chunk = write_lock(&chunks[part.chunk]);
                    if part.len == CHUNK {
                        *chunk = None;
                    } else if let Some(bytes) = &mut *chunk {
                        bytes[part.start..part.start + part.len].fill(0);
                    }
                }
            }
            at = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_across_chunks_and_groups_reads_back() {
        let store = MemStore::new(200 << 20);
        for offset in [0, 512, CHUNK as u64 - 512, (64 << 20) - 4096, (200 << 20) - (100 << 10)] {
            let data: Vec<u8> = (0..100 << 10).map(|i| (i % 251) as u8).collect();
            store.write(offset, &data);
            let mut back = vec![1; data.len()];
            store.read(offset, &mut back);
            assert_eq!(back, data);
        }
    }

    #[test]
    fn a_huge_store_costs_little_and_zeroing_frees_memory() {
        let store = MemStore::new(100 << 40);
        store.write(99 << 40, &[7; 4096]);
        store.zero(0, 100 << 40);
        let mut back = vec![1; 8192];
        store.read((99 << 40) - 4096, &mut back);
        assert!(back.iter().all(|b| *b == 0));
        let group = store.groups[(99 << 40) / (CHUNK * GROUP)].get().unwrap();
        assert!(group.iter().all(|c| read_lock(c).is_none()));
    }

    #[test]
    fn zeroing_a_part_keeps_the_rest() {
        let store = MemStore::new(1 << 20);
        store.write(0, &[9; 3 * CHUNK]);
        store.zero(512, 2 * CHUNK as u64);
        let mut back = vec![1; 3 * CHUNK];
        store.read(0, &mut back);
        let end = 512 + 2 * CHUNK;
        assert!(back[..512].iter().chain(&back[end..]).all(|b| *b == 9));
        assert!(back[512..end].iter().all(|b| *b == 0));
    }
}
