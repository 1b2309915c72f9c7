// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of the guest, as the client gives it: files that are mapped.
//!
//! Invariants: a region lies within its file, which is a regular one (a memfd, or a file of tmpfs or hugetlbfs). Regions do
//! not overlap. A new table replaces the former at once; what used the former keeps it until it is done with it.

use std::fs::File;
use std::sync::{Arc, PoisonError, RwLock};

use larder_core::buf::PAGE;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// Where the client has a region.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its address in the client.
    client: u64,
    guest: u64,
    bytes: u64,
}

/// A table of regions.
#[derive(Debug, Default)]
pub struct Table {
    /// The memory, by the guest's addresses.
    pub memory: GuestMemoryMmap,
    places: Vec<Place>,
}

impl From<GuestMemoryMmap> for Table {
    /// Memory of this process, at addresses that no client has.
    fn from(memory: GuestMemoryMmap) -> Self {
        Self { memory, places: Vec::new() }
    }
}

impl Table {
    /// Maps the regions.
    ///
    /// # Errors
    /// In one line.
    pub fn map(regions: &[VhostUserMemoryRegion], files: Vec<File>) -> Result<Self, String> {
        let (mut mapped, mut places) = (Vec::new(), Vec::new());
        for (region, file) in regions.iter().zip(files) {
            let (guest, bytes) = (region.guest_phys_addr, region.memory_size);
            let (client, offset) = (region.user_addr, region.mmap_offset);
            let wrong = |what: &dyn std::fmt::Display| {
                format!("memory of {bytes} bytes at {guest:#x} of the guest: {what}")
            };
            let found = file.metadata().map_err(|e| wrong(&e))?;
            let end = offset.checked_add(bytes).ok_or_else(|| wrong(&"its length overflows"))?;
            if !found.is_file() || end > found.len() {
                return Err(wrong(
                    &"it is not within its file; accepted: a memfd, or a file of tmpfs or hugetlbfs, of its size",
                ));
            }
            if !offset.is_multiple_of(PAGE as u64) {
                return Err(wrong(&"it does not begin at a page of its file"));
            }
            let len = usize::try_from(bytes).map_err(|e| wrong(&e))?;
            let at = FileOffset::new(file, offset);
            let region = GuestRegionMmap::from_range(GuestAddress(guest), len, Some(at));
            mapped.push(region.map_err(|e| wrong(&e))?);
            places.push(Place { client, guest, bytes });
        }
        mapped.sort_by_key(vm_memory::GuestMemoryRegion::start_addr);
        let memory = GuestMemoryMmap::from_regions(mapped);
        let memory = memory.map_err(|e| format!("the guest's memory: {e}"))?;
        Ok(Self { memory, places })
    }

    /// The guest's address of an address of the client.
    #[must_use]
    pub fn guest_address(&self, client: u64) -> Option<GuestAddress> {
        let within = |p: &&Place| client.checked_sub(p.client).is_some_and(|at| at < p.bytes);
        let place = self.places.iter().find(within)?;
        Some(GuestAddress(place.guest + (client - place.client)))
    }
}

/// The memory of a client's guest.
#[derive(Debug, Default)]
pub struct Memory(RwLock<Arc<Table>>);

impl Memory {
    /// The table in force.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the table.
    pub fn set(&self, table: Table) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }
}
