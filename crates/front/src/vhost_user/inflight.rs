// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests in flight, recorded in memory that the client keeps when the server dies: `VHOST_USER_*_INFLIGHT_FD`.
//!
//! The layout is that of the specification for split rings, one region for each queue:
//!
//! | byte | what |
//! | --- | --- |
//! | 0 | features, 0 |
//! | 8, 10 | version 1, number of descriptors |
//! | 12, 14 | the request that is answered last; the index of the used ring when that answer was complete |
//! | 16 and each 16 | of a request: in flight (1 byte); 6: the request before it in a batch of answers; 8: its age |
//!
//! Invariants: a request is recorded before the volume gets it. Of an answer the order is: name the request, write the used
//! ring, take the request out, record the index. So a server that dies between two steps leaves each request in flight, or
//! answered, and its successor knows which. What the file holds is untrusted. Its size does not change: it is sealed.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use larder_core::buf::PAGE;
use rustix::fs::{MemfdFlags, SealFlags};
use vhost::vhost_user::message::VhostUserInflight;
use vm_memory::{FileOffset, MmapRegion, VolatileMemory, VolatileSlice};

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
const VERSION: u16 = 1;

/// The memory of all queues.
#[derive(Clone, Debug)]
pub struct Area {
    region: Arc<MmapRegion>,
    queues: u16,
    depth: u16,
}

fn queue_bytes(depth: u16) -> usize {
    (HEADER_BYTES + usize::from(depth) * ENTRY_BYTES).next_multiple_of(64)
}

impl Area {
    /// New memory for a client.
    ///
    /// # Errors
    /// The kernel's, in one line.
    pub fn create(queues: u16, depth: u16) -> Result<(Self, File, VhostUserInflight), String> {
        let bytes = (usize::from(queues) * queue_bytes(depth)).next_multiple_of(PAGE);
        let fail = |e: rustix::io::Errno| format!("memory for requests in flight: {e}");
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("larder-inflight", flags).map_err(fail)?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(fail)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(fail)?;
        let file = File::from(file);
        let asked = VhostUserInflight::new(bytes as u64, 0, queues, depth);
        let kept = file.try_clone().map_err(|e| format!("memory for requests in flight: {e}"))?;
        Ok((Self::open(&asked, kept)?, file, asked))
    }

    /// The memory that a client brings.
    ///
    /// # Errors
    /// It cannot be used, in one line.
    pub fn open(given: &VhostUserInflight, file: File) -> Result<Self, String> {
        let wrong = |what: &dyn std::fmt::Display| format!("memory of requests in flight: {what}");
        let (bytes, offset) = (given.mmap_size, given.mmap_offset);
        let (queues, depth) = (given.num_queues, given.queue_size);
        let needed = usize::from(queues) * queue_bytes(depth);
        let found = file.metadata().map_err(|e| wrong(&e))?.len();
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= found);
        if !is_inside || bytes < needed as u64 || needed == 0 {
            return Err(wrong(&"it is too small"));
        }
        let seals = rustix::fs::fcntl_get_seals(&file);
        if !seals.is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(wrong(
                &"it is not sealed against shrinking; accepted: the one of GET_INFLIGHT_FD, or such a memfd",
            ));
        }
        let region = MmapRegion::from_file(FileOffset::new(file, offset), needed);
        let region = Arc::new(region.map_err(|e| wrong(&e))?);
        Ok(Self { region, queues, depth })
    }

    /// The record of a queue.
    #[must_use]
    pub fn record(&self, queue: u16) -> Option<Record> {
        let at = usize::from(queue) * queue_bytes(self.depth);
        let (region, depth) = (Arc::clone(&self.region), self.depth);
        (queue < self.queues).then_some(Record { region, at, depth, age: 0 })
    }
}

/// The record of a queue.
#[derive(Debug)]
pub struct Record {
    region: Arc<MmapRegion>,
    at: usize,
    depth: u16,
    age: u64,
}

impl Record {
    fn slice(&self) -> Option<VolatileSlice<'_>> {
        self.region.get_slice(self.at, queue_bytes(self.depth)).ok()
    }

    fn get<T: vm_memory::AtomicAccess + Default>(&self, at: usize) -> T {
        self.slice()
            .and_then(|s| vm_memory::Bytes::load(&s, at, Ordering::SeqCst).ok())
            .unwrap_or_default()
    }

    fn set<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
        // The place is within the region, and aligned.
        let _ = self.slice().map(|s| vm_memory::Bytes::store(&s, value, at, Ordering::SeqCst));
    }

    fn entry(head: u16) -> usize {
        HEADER_BYTES + usize::from(head) * ENTRY_BYTES
    }

    /// What an earlier server left, given the index of the used ring: the requests in flight, the oldest first.
    ///
    /// # Errors
    /// It is not the record of such a queue.
    pub fn recover(&mut self, used: u16, size: u16) -> Result<Vec<u16>, String> {
        if self.get::<u16>(8) == 0 {
            self.set(10, self.depth);
            self.set(14, used);
            self.set(8, VERSION);
        }
        let (version, depth): (u16, u16) = (self.get(8), self.get(10));
        if version != VERSION || depth != self.depth || size > depth {
            return Err(format!(
                "memory of requests in flight: version {version}, {depth} descriptors; accepted: version {VERSION}, {size} or more, as negotiated"
            ));
        }
        if self.get::<u16>(14) != used {
            let last: u16 = self.get(12);
            if last < depth {
                self.set(Self::entry(last), 0_u8);
            }
            self.set(14, used);
        }
        let open = (0..size).filter(|head| self.get::<u8>(Self::entry(*head)) == 1);
        let mut open: Vec<(u64, u16)> =
            open.map(|head| (self.get(Self::entry(head) + 8), head)).collect();
        open.sort_unstable();
        self.age = open.last().map_or(0, |(age, _)| *age);
        Ok(open.into_iter().map(|(_, head)| head).collect())
    }

    /// A request is in flight.
    pub fn begin(&mut self, head: u16) {
        self.age = self.age.wrapping_add(1);
        self.set(Self::entry(head) + 8, self.age);
        self.set(Self::entry(head), 1_u8);
    }

    /// The used ring is going to have the request.
    pub fn answer(&self, head: u16) {
        let before: u16 = self.get(12);
        self.set(Self::entry(head) + 6, before);
        self.set(12, head);
    }

    /// The used ring has it, and this index.
    pub fn answered(&self, head: u16, used: u16) {
        self.set(Self::entry(head), 0_u8);
        self.set(14, used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> (Area, File, VhostUserInflight) {
        Area::create(2, 8).unwrap()
    }

    #[test]
    fn a_server_that_dies_leaves_each_request_in_flight_or_answered() {
        // How far the answer to the second request came, and what is in flight then.
        for (steps, used, left) in
            [(0, 0, vec![3, 5, 1]), (1, 0, vec![3, 5, 1]), (2, 1, vec![3, 1]), (3, 1, vec![3, 1])]
        {
            let (area, file, asked) = area();
            let mut record = area.record(1).unwrap();
            assert_eq!(record.recover(0, 8), Ok(vec![]));
            [3, 5, 1].into_iter().for_each(|head| record.begin(head));
            if steps > 0 {
                record.answer(5);
            }
            if steps > 2 {
                record.answered(5, 1);
            }
            let mut next = Area::open(&asked, file).unwrap().record(1).unwrap();
            assert_eq!(next.recover(used, 8), Ok(left), "{steps}");
            // A request that begins now is the youngest.
            next.begin(7);
            assert_eq!(next.recover(used, 8).unwrap().last(), Some(&7));
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let (area, file, asked) = area();
        assert!(area.record(2).is_none());
        let short = VhostUserInflight { mmap_size: 64, ..asked };
        let far = VhostUserInflight { mmap_offset: u64::MAX, ..asked };
        for wrong in [short, far, VhostUserInflight { num_queues: 0, ..asked }] {
            assert!(Area::open(&wrong, file.try_clone().unwrap()).is_err());
        }
        let open = tempfile::tempfile().unwrap();
        open.set_len(1 << 20).unwrap();
        assert!(Area::open(&asked, open).unwrap_err().contains("sealed"));
        let mut record = area.record(0).unwrap();
        record.set(8, 7_u16);
        assert!(record.recover(0, 8).unwrap_err().contains("version 7"));
        record.set(8, VERSION);
        record.set(10, 8_u16);
        record.set(12, 999_u16);
        assert_eq!(record.recover(4, 8), Ok(vec![]), "a number outside is ignored");
        assert!(record.recover(4, 16).is_err());
    }
}
