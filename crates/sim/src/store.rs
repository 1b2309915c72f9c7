// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a modelled device: what it holds now, and what a power cut would leave.
//!
//! A write lands in `now` and is durable only after a flush that was asked for later, or at once
//! with FUA. That is the least that a device promises, so an engine that needs more is found out.
//! Only sectors that were written take memory; the others hold what a function of their number
//! says.

use std::collections::{BTreeMap, HashMap};

use larder_core::buf::SECTOR;

/// The bytes of a sector.
pub type SectorBytes = Box<[u8; SECTOR]>;

/// The bytes, see the module.
#[derive(Clone)]
pub struct Store {
    bytes: u64,
    first: fn(u64, &mut [u8]),
    now: HashMap<u64, SectorBytes>,
    durable: HashMap<u64, (u64, SectorBytes)>,
    /// Sectors whose durable content may be older than what they hold now, with the age of the
    /// latter.
    volatile: BTreeMap<u64, u64>,
    age: u64,
}

/// The sectors that a flush covers, as they were when it was asked for.
pub type Snapshot = Vec<(u64, u64, SectorBytes)>;

impl Store {
    /// A device of `bytes` bytes whose sectors at first hold what `first(sector)` fills in.
    #[must_use]
    pub fn new(bytes: u64, first: fn(u64, &mut [u8])) -> Self {
        let (now, durable, volatile) = Default::default();
        Self { bytes, first, now, durable, volatile, age: 0 }
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads what is there now.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        for (chunk, sector) in into.chunks_mut(SECTOR).zip(offset / SECTOR as u64..) {
            match self.now.get(&sector) {
                Some(bytes) => chunk.copy_from_slice(&bytes[..chunk.len()]),
                None => (self.first)(sector, chunk),
            }
        }
    }

    /// Writes; durable at once with `fua`.
    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) {
        self.age += 1;
        for (chunk, sector) in bytes.chunks(SECTOR).zip(offset / SECTOR as u64..) {
            let mut value = Box::new([0; SECTOR]);
            value.copy_from_slice(chunk);
            self.put(sector, value, fua);
        }
    }

    /// Makes a range zero.
    pub fn zero(&mut self, offset: u64, len: u64, fua: bool) {
        self.age += 1;
        for sector in offset / SECTOR as u64..(offset + len) / SECTOR as u64 {
            self.put(sector, Box::new([0; SECTOR]), fua);
        }
    }

    fn put(&mut self, sector: u64, value: SectorBytes, fua: bool) {
        if fua {
            self.volatile.remove(&sector);
            self.durable.insert(sector, (self.age, value.clone()));
        } else {
            self.volatile.insert(sector, self.age);
        }
        self.now.insert(sector, value);
    }

    /// The sectors that a flush asked for now will make durable, as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let sector = |(s, age): (&u64, &u64)| Some((*s, *age, self.now.get(s)?.clone()));
        self.volatile.iter().filter_map(sector).collect()
    }

    /// A flush is complete: what its snapshot holds is durable, unless something newer is.
    pub fn make_durable(&mut self, snapshot: Snapshot) {
        for (sector, age, bytes) in snapshot {
            if self.durable.get(&sector).is_some_and(|(durable, _)| *durable >= age) {
                continue;
            }
            self.durable.insert(sector, (age, bytes));
            if self.volatile.get(&sector) == Some(&age) {
                self.volatile.remove(&sector);
            }
        }
    }

    /// What a power cut leaves: of each sector that was not flushed, by choice of `keeps`, what it
    /// held last or what was durable before.
    #[must_use]
    pub fn crashed(mut self, mut keeps: impl FnMut(u64) -> bool) -> Self {
        for sector in std::mem::take(&mut self.volatile).into_keys() {
            if !keeps(sector) {
                let old = self.durable_sector(sector);
                self.now.insert(sector, old);
            }
        }
        self.settle()
    }

    /// Everything that it holds is durable.
    #[must_use]
    pub fn settle(mut self) -> Self {
        self.age += 1;
        self.volatile.clear();
        self.durable = self.now.iter().map(|(s, b)| (*s, (self.age, b.clone()))).collect();
        self
    }

    /// A sector as a power cut would leave it at worst.
    #[must_use]
    pub fn durable_sector(&self, sector: u64) -> SectorBytes {
        if let Some((_, bytes)) = self.durable.get(&sector) {
            return bytes.clone();
        }
        let mut bytes = Box::new([0; SECTOR]);
        (self.first)(sector, &mut bytes[..]);
        bytes
    }
}
