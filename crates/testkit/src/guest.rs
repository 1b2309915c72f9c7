// SPDX-License-Identifier: MIT OR Apache-2.0
//! A virtual machine's driver of a virtio-blk disk, without the machine: rings in a memfd, and the client's side of
//! vhost-user from the crate `vhost`.
//!
//! Each queue has [`SLOTS`] requests of three descriptors each: header, data, status. Tests that want other descriptors
//! write them into [`Guest::memory`].

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use vhost::vhost_user::message::VhostUserInflight;
use vhost::vhost_user::{Frontend, VhostUserFrontend as _, VhostUserProtocolFeatures};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// Requests of a queue.
pub const SLOTS: u16 = 16;
/// Descriptors of a queue.
pub const DEPTH: u16 = 64;
/// Memory of a queue.
pub const QUEUE_BYTES: u64 = 1 << 20;
/// The most data of a request.
pub const DATA_BYTES: usize = 32 << 10;
/// Where the available ring and the used ring of a queue are.
pub const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x8000;
const SLOT: u64 = 0x1_0000;
const SLOT_BYTES: u64 = 0xc000;
/// Addresses in the client, which are not those of the guest.
const CLIENT: u64 = 0x7000_0000_0000;
/// `VHOST_USER_F_PROTOCOL_FEATURES`.
const PROTOCOL: u64 = 1 << 30;
/// `VIRTIO_RING_F_EVENT_IDX`.
pub const EVENT_INDEX: u64 = 1 << 29;
const PATIENCE: Duration = Duration::from_secs(30);

/// The status of a request that the disk has not answered.
const PENDING: u8 = 0xaa;

/// Kinds of requests.
pub mod kind {
    #![allow(missing_docs)]
    pub const READ: u32 = 0;
    pub const WRITE: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

struct Ring {
    kick: EventFd,
    call: EventFd,
    /// Its index of the available ring, and what it has seen of the used ring.
    offered: u16,
    seen: u16,
    free: Vec<u16>,
}

/// The machine.
pub struct Guest {
    path: PathBuf,
    file: File,
    /// Its memory.
    pub memory: GuestMemoryMmap,
    rings: Vec<Ring>,
    without: u64,
    /// The connection.
    pub client: Option<Frontend>,
    inflight: Option<(VhostUserInflight, File)>,
}

/// An error of the connection.
pub type Failure = Box<dyn std::error::Error>;

impl Guest {
    /// A machine that boots with this many queues, and knows all features except `without`.
    ///
    /// # Errors
    /// The server refuses something.
    pub fn boot(path: &Path, queues: u16, without: u64) -> Result<Self, Failure> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("guest", flags).unwrap());
        let bytes = u64::from(queues) * QUEUE_BYTES;
        file.set_len(bytes).unwrap();
        let at = FileOffset::new(file.try_clone().unwrap(), 0);
        let range = (GuestAddress(0), bytes as usize, Some(at));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).unwrap();
        let ring = |_| Ring {
            kick: EventFd::new(EFD_NONBLOCK).unwrap(),
            call: EventFd::new(EFD_NONBLOCK).unwrap(),
            offered: 0,
            seen: 0,
            free: (0..SLOTS).rev().collect(),
        };
        let rings = (0..queues).map(ring).collect();
        let (path, inflight, client) = (path.to_owned(), None, None);
        let mut guest = Self { path, file, memory, rings, without, client, inflight };
        guest.connect()?;
        Ok(guest)
    }

    /// Connects again, as QEMU with `reconnect=1`: rings continue at the used index.
    ///
    /// # Errors
    /// There is no server, or it refuses something.
    pub fn connect(&mut self) -> Result<(), Failure> {
        drop(self.client.take());
        let queues = self.rings.len() as u16;
        let mut client = Frontend::connect(&self.path, queues.into())?;
        client.set_owner()?;
        let features = client.get_features()? & !self.without;
        client.set_features(features)?;
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        let offered = client.get_protocol_features()?;
        client.set_protocol_features(offered & wanted)?;
        client.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
        assert_ne!(features & PROTOCOL, 0);
        match &self.inflight {
            Some((given, file)) => client.set_inflight_fd(given, file.as_raw_fd())?,
            None => {
                let asked = VhostUserInflight::new(0, 0, queues, DEPTH);
                self.inflight = Some(client.get_inflight_fd(&asked)?);
            }
        }
        client.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: u64::from(queues) * QUEUE_BYTES,
            userspace_addr: CLIENT,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }])?;
        self.client = Some(client);
        (0..usize::from(queues)).try_for_each(|queue| self.start(queue))
    }

    /// Starts a queue at its used index.
    ///
    /// # Errors
    /// The server refuses something.
    pub fn start(&mut self, queue: usize) -> Result<(), Failure> {
        let used: u16 = self.get(Self::base(queue) + USED + 2);
        let (ring, base) = (&self.rings[queue], CLIENT + Self::base(queue));
        let Some(client) = &mut self.client else { return Err("no connection".into()) };
        client.set_vring_num(queue, DEPTH)?;
        let config = VringConfigData {
            queue_max_size: DEPTH,
            queue_size: DEPTH,
            flags: 0,
            desc_table_addr: base,
            used_ring_addr: base + USED,
            avail_ring_addr: base + AVAILABLE,
            log_addr: None,
        };
        client.set_vring_addr(queue, &config)?;
        client.set_vring_base(queue, used)?;
        client.set_vring_call(queue, &ring.call)?;
        client.set_vring_kick(queue, &ring.kick)?;
        client.set_vring_enable(queue, true)?;
        Ok(())
    }

    /// Stops a queue; where it continues.
    ///
    /// # Errors
    /// The server is gone.
    pub fn stop(&mut self, queue: usize) -> Result<u32, Failure> {
        let Some(client) = &mut self.client else { return Err("no connection".into()) };
        Ok(client.get_vring_base(queue)?)
    }

    /// Where the memory of a queue begins.
    #[must_use]
    pub fn base(queue: usize) -> u64 {
        queue as u64 * QUEUE_BYTES
    }

    fn get<T: vm_memory::ByteValued>(&self, at: u64) -> T {
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    fn put<T: vm_memory::ByteValued>(&self, at: u64, value: T) {
        self.memory.write_obj(value, GuestAddress(at)).unwrap();
    }

    /// Writes a descriptor: address, length, flags (1: continues, 2: writable, 4: a table), next.
    pub fn describe(
        &self,
        queue: usize,
        number: u16,
        (at, len, flags, next): (u64, u32, u16, u16),
    ) {
        let place = Self::base(queue) + u64::from(number) * 16;
        self.put(place, at);
        self.put(place + 8, len);
        self.put(place + 12, flags);
        self.put(place + 14, next);
    }

    /// Offers a chain, and kicks.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let ring = &mut self.rings[queue];
        let (place, base) = (ring.offered % DEPTH, Self::base(queue) + AVAILABLE);
        ring.offered = ring.offered.wrapping_add(1);
        let offered = ring.offered;
        self.put(base + 4 + u64::from(place) * 2, head);
        fence(Ordering::SeqCst);
        self.put(base + 2, offered);
        fence(Ordering::SeqCst);
        self.rings[queue].kick.write(1).unwrap();
    }

    /// The place of a slot's header; its status is at 16, its data at 4096.
    #[must_use]
    pub fn place(queue: usize, slot: u16) -> u64 {
        Self::base(queue) + SLOT + u64::from(slot) * SLOT_BYTES
    }

    /// A slot for a request of the test's own making.
    pub fn reserve(&mut self, queue: usize) -> u16 {
        self.rings[queue].free.pop().unwrap()
    }

    /// Makes a request, if a slot is free. `data` is written; of a read only its length counts.
    pub fn submit(&mut self, queue: usize, what: u32, sector: u64, data: &[u8]) -> Option<u16> {
        let slot = self.rings[queue].free.pop()?;
        self.describe_request(queue, slot, (what, sector), data);
        self.offer(queue, slot * 3);
        Some(slot)
    }

    /// Writes the descriptors of a request.
    pub fn describe_request(
        &self,
        queue: usize,
        slot: u16,
        (what, sector): (u32, u64),
        data: &[u8],
    ) {
        let (at, head) = (Self::place(queue, slot), slot * 3);
        let reads = matches!(what, kind::READ | kind::GET_ID);
        self.put(at, what);
        self.put(at + 4, 0_u32);
        self.put(at + 8, sector);
        self.put(at + 16, PENDING);
        self.memory.write_slice(data, GuestAddress(at + 4096)).unwrap();
        let flags = if reads { 3 } else { 1 };
        let first = if data.is_empty() { head + 2 } else { head + 1 };
        self.describe(queue, head, (at, 16, 1, first));
        self.describe(queue, head + 1, (at + 4096, data.len() as u32, flags, head + 2));
        self.describe(queue, head + 2, (at + 16, 1, 2, 0));
    }

    /// The requests of a queue that were answered since the last time: slot and status.
    pub fn answered(&mut self, queue: usize) -> Vec<(u16, u8)> {
        let base = Self::base(queue) + USED;
        let index: u16 = self.get(base + 2);
        fence(Ordering::SeqCst);
        let mut answered = Vec::new();
        while self.rings[queue].seen != index {
            let place = self.rings[queue].seen % DEPTH;
            let head: u32 = self.get(base + 4 + u64::from(place) * 8);
            let slot = head as u16 / 3;
            self.rings[queue].seen = self.rings[queue].seen.wrapping_add(1);
            let free = &mut self.rings[queue].free;
            assert!(!free.contains(&slot), "slot {slot} was answered twice");
            free.push(slot);
            answered.push((slot, self.get(Self::place(queue, slot) + 16)));
        }
        // With event indices: the disk calls after the next answer.
        let seen = self.rings[queue].seen;
        self.put(Self::base(queue) + AVAILABLE + 4 + u64::from(DEPTH) * 2, seen);
        fence(Ordering::SeqCst);
        answered
    }

    /// Waits until the disk calls, within a time limit.
    #[must_use]
    pub fn is_called(&self, queue: usize, bound: Duration) -> bool {
        let begun = Instant::now();
        while self.rings[queue].call.read().is_err() {
            if begun.elapsed() > bound {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }

    /// The data of a slot.
    #[must_use]
    pub fn data(&self, queue: usize, slot: u16, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.memory.read_slice(&mut data, GuestAddress(Self::place(queue, slot) + 4096)).unwrap();
        data
    }

    /// A request by itself: its status and its data. The queue must be idle.
    pub fn ask(&mut self, queue: usize, what: u32, sector: u64, data: &[u8]) -> (u8, Vec<u8>) {
        let slot = self.submit(queue, what, sector, data).unwrap();
        let begun = Instant::now();
        loop {
            if let [(done, status)] = self.answered(queue)[..] {
                assert_eq!(done, slot);
                return (status, self.data(queue, slot, data.len()));
            }
            assert!(begun.elapsed() < PATIENCE, "no answer");
            let _ = self.is_called(queue, Duration::from_millis(50));
        }
    }

    /// The bytes of a trim or a zeroing.
    #[must_use]
    pub fn segment(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
        [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
    }
}
