// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary bytes as the memory of a virtual machine: descriptors, rings, and headers of requests to its disk.
//!
//! The first byte sets the position in the ring and the number of requests of an earlier server. The next eight are random
//! numbers that determine how results interleave, and which words the guest changes meanwhile. The rest is the memory: the
//! descriptors at 0, the available ring at 256, the used ring at 512. Required: no panic, no endless loop; only requests within
//! the disk are passed on, with their data; each has one result; a queue that stops holds nothing.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use larder_core::buf::Buf;
use larder_core::request::{Errno, Kind};
use larder_front::blocks::Rules;
use larder_front::grant::Grant;
use larder_front::vhost_user::device::Device;
use larder_front::vhost_user::link::{Bells, Link};
use larder_front::vhost_user::memory::Memory;
use larder_front::vhost_user::queue::{GuestQueue, NAME_BYTES, Setup};
use larder_volume::budget::Purse;
use larder_volume::peer::Peer;
use larder_volume::queue::Queue as _;
use larder_volume::session::{ClientRequest, Phase, Source as _, What};
use virtio_queue::{Queue as Ring, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

const BYTES: u64 = 16 << 20;
const MEMORY: usize = 64 << 10;
const SIZE: u16 = 16;
/// Turns of an input.
const TURNS: usize = 200;

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((setup, rest)) = data.split_first() else { return };
    let Some((dice, image)) = rest.split_first_chunk() else { return };
    Guest::new(*setup, *dice, image).live();
}

struct Guest {
    queue: GuestQueue,
    setup: Arc<Setup>,
    dice: u64,
    open: Vec<ClientRequest>,
}

impl Guest {
    fn new(setup: u8, dice: [u8; 8], image: &[u8]) -> Self {
        let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), MEMORY)]).unwrap();
        memory.write_slice(&image[..image.len().min(MEMORY)], GuestAddress(0)).unwrap();
        let mut ring = Ring::new(SIZE).unwrap();
        ring.set_avail_ring_address(Some(256), Some(0));
        ring.set_used_ring_address(Some(512), Some(0));
        ring.set_event_idx(setup & 16 != 0);
        ring.set_next_avail(u16::from(setup & 3));
        ring.set_ready(true);
        let again = (0..u16::from(setup >> 6)).map(|n| n * 3).collect();
        let geometry = larder_io::Device::mem(BYTES).geometry();
        let grant = if setup & 32 != 0 { Grant::ReadOnly } else { Grant::Full };
        let rules = Rules { bytes: BYTES, block_bytes: 512, stripe_bytes: 64 << 10, grant };
        let held = Memory::default();
        held.set(memory.into());
        let setup = Arc::new(Setup {
            title: "fuzz".to_owned(),
            lines: (Arc::default(), Peer::User(0)),
            name: [b'f'; NAME_BYTES],
            rules,
            device: Arc::new(Device::new(&geometry, true, grant, 1)),
            memory: held,
            doubted: AtomicBool::new(setup & 12 == 12),
        });
        let file = std::fs::File::open("/dev/null").unwrap();
        let link = Link::new(Arc::<Bells>::default());
        let kick = Arc::new(file.into());
        let queue = GuestQueue::new(
            (0, Arc::clone(&setup)),
            (ring, kick),
            link,
            (None, again),
            Purse::default(),
        );
        Self { queue, setup, dice: u64::from_le_bytes(dice), open: Vec::new() }
    }

    /// The next small random number.
    fn roll(&mut self) -> usize {
        self.dice = self.dice.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        (self.dice >> 56) as usize
    }

    fn live(mut self) {
        for _ in 0..TURNS {
            self.take_requests();
            while self.queue.next_op().is_some() {}
            match self.roll() % 4 {
                0 => self.change(),
                1 => self.queue.ended(0, Ok(0)),
                _ if self.open.is_empty() => {}
                _ => self.answer(),
            }
            if self.queue.phase() == Phase::Closed {
                break;
            }
        }
        self.queue.stop();
        assert!(self.queue.next_request().is_none());
        while !self.open.is_empty() {
            self.answer();
        }
        while self.queue.next_op().is_some() {}
        assert_eq!((self.queue.in_flight(), self.queue.memory_bytes()), (0, 0));
        assert_eq!(self.queue.phase(), Phase::Closed);
    }

    fn take_requests(&mut self) {
        // As the worker does, until there is none.
        while let Some(request) = self.queue.next_request() {
            super::is_sound(&request, BYTES);
            let changes = !matches!(request.what, What::Io(Kind::Read | Kind::Flush));
            assert!(!changes || self.setup.rules.grant == Grant::Full);
            assert!(self.open.iter().all(|other| other.ticket != request.ticket));
            self.open.push(request);
            assert!(self.open.len() <= SIZE.into() && self.queue.in_flight() == self.open.len());
        }
    }

    fn answer(&mut self) {
        let which = self.roll() % self.open.len();
        let request = self.open.swap_remove(which);
        let data = match request.what {
            What::Io(Kind::Read) => vec![Buf::zeroed(request.len as usize)],
            _ => request.bufs,
        };
        let result = if self.roll() < 32 { Err(Errno::EIO) } else { Ok(()) };
        self.queue.reply(request.ticket, result, data);
    }

    /// The guest changes a word.
    fn change(&mut self) {
        let at = (self.roll() << 2 | self.roll() & 3) as u64;
        let word = (self.roll() << 8 | self.roll()) as u16;
        let _ = self.setup.memory.table().memory.write_obj(word, GuestAddress(at));
    }
}
