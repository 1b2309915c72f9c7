// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of requests, over memory of this process.

use std::sync::Mutex;

use larder_io::Device as Disk;
use larder_volume::budget::{Budget, CONNECTIONS, LEAST_BYTES};
use larder_volume::session::What;

use super::super::inflight::Area;
use super::super::link::Bells;
use super::*;
use crate::grant::Grant;

const SIZE: u16 = 16;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const HEADER: u64 = 0x3000;
const DATA: u64 = 0x4000;
const STATUS: u64 = 0x3800;
const BYTES: u64 = 64 << 20;

struct Rig {
    queue: GuestQueue,
    setup: Arc<Setup>,
    link: Arc<Link>,
    offered: u16,
}

fn setup() -> Arc<Setup> {
    let rules = Rules { bytes: BYTES, block_bytes: 512, stripe_bytes: 1 << 20, grant: Grant::Full };
    let setup = Setup {
        title: "test".to_owned(),
        lines: (Arc::default(), Peer::User(0)),
        name: [b'x'; NAME_BYTES],
        rules,
        device: Arc::new(Device::new(&Disk::mem(BYTES).geometry(), true, Grant::Full, 1)),
        memory: Memory::default(),
        doubted: AtomicBool::new(false),
    };
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 1 << 20)]).unwrap();
    setup.memory.set(memory.into());
    Arc::new(setup)
}

fn rig_with(setup: Arc<Setup>, purse: Purse, record: Option<Record>, again: Vec<u16>) -> Rig {
    let mut ring = Ring::new(SIZE).unwrap();
    ring.try_set_avail_ring_address(GuestAddress(AVAILABLE)).unwrap();
    ring.try_set_used_ring_address(GuestAddress(USED)).unwrap();
    ring.try_set_desc_table_address(GuestAddress(0)).unwrap();
    ring.set_next_avail(again.len() as u16);
    ring.set_ready(true);
    let flags = rustix::event::EventfdFlags::CLOEXEC;
    let event = || Arc::new(rustix::event::eventfd(0, flags).unwrap());
    let bells = Bells { call: Mutex::new(Some(event())), error: Mutex::new(Some(event())) };
    let link = Link::new(Arc::new(bells));
    let offered = again.len() as u16;
    let queue = GuestQueue::new(
        (0, Arc::clone(&setup)),
        (ring, event()),
        Arc::clone(&link),
        (record, again),
        purse,
    );
    Rig { queue, setup, link, offered }
}

fn rig() -> Rig {
    rig_with(setup(), Purse::default(), None, Vec::new())
}

impl Rig {
    fn put<T: vm_memory::ByteValued>(&self, at: u64, value: T) {
        self.setup.memory.table().memory.write_obj(value, GuestAddress(at)).unwrap();
    }

    fn get<T: vm_memory::ByteValued>(&self, at: u64) -> T {
        self.setup.memory.table().memory.read_obj(GuestAddress(at)).unwrap()
    }

    fn describe(&self, number: u16, at: u64, len: u32, flags: u16, next: u16) {
        let place = u64::from(number) * 16;
        self.put(place, at);
        self.put(place + 8, len);
        self.put(place + 12, flags);
        self.put(place + 14, next);
    }

    fn offer(&mut self, head: u16) {
        self.put(AVAILABLE + 4 + u64::from(self.offered % SIZE) * 2, head);
        self.offered += 1;
        self.put(AVAILABLE + 2, self.offered);
    }

    /// Describes a request at descriptors 0 to 2 of a group of three.
    fn describe_request(&self, group: u16, kind: u32, sector: u64, len: u32) {
        let (head, at) = (group * 3, HEADER + u64::from(group) * 64);
        self.put(at, kind);
        self.put(at + 8, sector);
        let flags = if kind == abi::VIRTIO_BLK_T_IN { 3 } else { 1 };
        self.describe(head, at, 16, 1, head + 1);
        self.describe(head + 1, DATA, len, flags, head + 2);
        self.describe(head + 2, STATUS + u64::from(group), 1, 2, 0);
    }

    fn asks(&mut self, group: u16, kind: u32, sector: u64, len: u32) {
        self.describe_request(group, kind, sector, len);
        self.offer(group * 3);
    }

    fn used(&self) -> Vec<(u32, u32)> {
        let count: u16 = self.get(USED + 2);
        let element = |n: u16| USED + 4 + u64::from(n % SIZE) * 8;
        (0..count).map(|n| (self.get(element(n)), self.get(element(n) + 4))).collect()
    }

    /// The tokens of the operations that it starts now.
    fn tokens(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.queue.next_op()).map(|(token, _)| token).collect()
    }
}

#[test]
fn a_write_is_copied_once_and_a_read_before_its_answer() {
    let mut rig = rig();
    assert_eq!(rig.tokens(), [CALL, KICK], "an earlier server may have died before its call");
    rig.queue.ended(CALL, Ok(0));
    (0..8192_u64).for_each(|i| rig.put(DATA + i, (i / 512) as u8 + 1));
    rig.asks(0, abi::VIRTIO_BLK_T_OUT, 2048 - 8, 8192);
    let request = rig.queue.next_request().unwrap();
    // The guest changes its memory.
    (0..8192_u64).for_each(|i| rig.put(DATA + i, 0_u8));
    rig.put(HEADER + 8, u64::MAX);
    assert_eq!((request.offset, request.len), ((1 << 20) - 4096, 8192));
    assert_eq!(request.bufs.iter().map(|b| b.len()).collect::<Vec<_>>(), [4096, 4096]);
    let bytes = request.bufs.iter().flat_map(|b| b.iter().copied());
    assert!(bytes.eq((0..8192).map(|i| (i / 512) as u8 + 1)));
    assert_eq!((rig.queue.in_flight(), rig.used()), (1, vec![]));
    rig.queue.reply(request.ticket, Ok(()), Vec::new());
    assert_eq!((rig.used(), rig.get::<u8>(STATUS)), (vec![(0, 1)], 0));
    assert_eq!(rig.tokens(), [CALL]);
    rig.asks(1, abi::VIRTIO_BLK_T_IN, 8, 4096);
    let request = rig.queue.next_request().unwrap();
    assert_eq!(request.what, What::Io(Kind::Read));
    rig.queue.reply(request.ticket, Ok(()), vec![Buf::copy_of(&[7; 4096])]);
    assert_eq!((rig.used()[1], rig.get::<u8>(DATA + 4095)), ((3, 4097), 7));
    assert_eq!((rig.queue.in_flight(), rig.queue.memory_bytes()), (0, 0));
}

/// The test of the mutant `guest-changes-write`: a guest that changes a request which waits for memory.
fn changed_while_it_waits() -> Option<(u64, u64)> {
    let budget = Budget::new(LEAST_BYTES, CONNECTIONS, 1);
    let mut hog = budget.purse(Peer::User(1));
    assert!(hog.spend(47 << 20));
    let mut rig = rig_with(setup(), budget.purse(Peer::User(2)), None, Vec::new());
    // Larger than the own share of a purse.
    for (group, sector) in (0..5).zip((0..).step_by(2048)) {
        rig.asks(group, abi::VIRTIO_BLK_T_OUT, sector, 512 << 10);
    }
    let mut sectors = Vec::new();
    while let Some(request) = rig.queue.next_request() {
        sectors.push(request.offset / SECTOR);
    }
    assert!(sectors.len() < 5, "there is memory for all");
    let waits = sectors.len() as u64;
    rig.put(HEADER + waits * 64 + 8, BYTES);
    drop(hog);
    rig.queue.next_request().map(|request| (request.offset, waits * (1 << 20)))
}

#[test]
fn a_guest_that_changes_a_request_changes_nothing_that_was_checked() {
    let (offset, wanted) = changed_while_it_waits().unwrap();
    assert_eq!(offset, wanted);
}

#[cfg(feature = "mutants")]
#[test]
fn a_guest_that_changes_a_request_shows_the_mutant() {
    larder_core::mutant::activate(Some("guest-changes-write"));
    let (offset, wanted) = changed_while_it_waits().unwrap();
    assert_ne!(offset, wanted);
}

#[test]
fn descriptors_that_make_no_sense_stop_the_queue_with_a_reason() {
    type Describe = fn(&Rig);
    let cases: [(&str, Describe); 9] = [
        ("no end", |rig| rig.describe(0, HEADER, 16, 1, 0)),
        ("has the number 16", |rig| rig.describe(0, HEADER, 16, 1, 16)),
        ("no header", |rig| {
            rig.describe(0, HEADER, 15, 1, 1);
            rig.describe(1, STATUS, 1, 2, 0);
        }),
        ("no header", |rig| {
            rig.describe(0, u64::MAX - 20, 16, 1, 1);
            rig.describe(1, STATUS, 1, 2, 0);
        }),
        ("not in the guest's memory", |rig| rig.describe(0, u64::MAX, 16, 1, 1)),
        ("no place for its status", |rig| rig.describe(0, HEADER, 16, 0, 0)),
        ("no place for its status", |rig| {
            rig.describe(0, HEADER, 16, 1, 1);
            rig.describe(1, 1 << 40, 1, 2, 0);
        }),
        ("follows a writable one", |rig| {
            rig.describe(0, HEADER, 16, 1, 1);
            rig.describe(1, STATUS, 1, 3, 2);
            rig.describe(2, HEADER, 16, 0, 0);
        }),
        ("indirect table", |rig| {
            rig.describe(0, DATA, 32, 4, 0);
            rig.put(DATA + 12, 4_u16);
        }),
    ];
    for (needle, describe) in cases {
        let mut rig = rig();
        rig.tokens();
        rig.queue.ended(CALL, Ok(0));
        describe(&rig);
        rig.offer(0);
        assert!(rig.queue.next_request().is_none());
        assert!(rig.queue.why().contains(needle), "{needle}: {}", rig.queue.why());
        assert_eq!(rig.tokens(), [CALL + 1], "the client receives an event");
        assert_eq!((rig.queue.phase(), rig.used()), (Phase::Closed, vec![]));
    }
    // An index far away, and a request that is in flight already.
    let mut rig = rig();
    rig.put(AVAILABLE + 2, 999_u16);
    assert!(rig.queue.next_request().is_none() && rig.queue.why().contains("avail"));
    let mut rig = self::rig();
    rig.asks(0, abi::VIRTIO_BLK_T_IN, 0, 512);
    rig.offer(0);
    assert!(rig.queue.next_request().is_some() && rig.queue.next_request().is_none());
    assert!(rig.queue.why().contains("in flight"), "{}", rig.queue.why());
    assert_eq!(rig.queue.phase(), Phase::Closing);
    rig.queue.reply(0, Ok(()), vec![Buf::with_len(512)]);
    assert_eq!(rig.used().len(), 1);
}

#[test]
fn an_indirect_table_is_a_chain() {
    let mut rig = rig();
    rig.describe_request(1, abi::VIRTIO_BLK_T_IN, 8, 512);
    // The same descriptors, in a table: numbers count from its beginning.
    for at in 0..48 {
        let byte: u8 = rig.get(48 + at);
        rig.put(0x8000 + at, byte);
    }
    rig.put(0x8000 + 14, 1_u16);
    rig.put(0x8000 + 30, 2_u16);
    rig.describe(0, 0x8000, 48, 4, 0);
    rig.offer(0);
    let request = rig.queue.next_request().unwrap();
    assert_eq!((request.ticket, request.offset, request.len), (0, 4096, 512));
}

#[test]
fn a_record_follows_requests_and_an_earlier_servers_requests_come_first() {
    let (area, file, asked) = Area::create(1, SIZE).unwrap();
    let mut record = area.record(0).unwrap();
    assert_eq!(record.recover(0, SIZE), Ok(vec![]));
    let mut rig = rig_with(setup(), Purse::default(), Some(record), Vec::new());
    for group in [2, 0, 1] {
        rig.asks(group, abi::VIRTIO_BLK_T_OUT, u64::from(group) * 8, 512);
        rig.queue.next_request().unwrap();
    }
    rig.queue.reply(0, Ok(()), Vec::new());
    // The server dies; the guest's memory and the record remain.
    let (setup, offered) = (Arc::clone(&rig.setup), rig.offered);
    std::mem::forget(rig);
    let mut record = Area::open(&asked, file).unwrap().record(0).unwrap();
    let again = record.recover(1, SIZE).unwrap();
    assert_eq!(again, [6, 3]);
    let mut rig = rig_with(setup, Purse::default(), Some(record), again);
    rig.queue.ring.set_next_avail(offered);
    rig.queue.ring.set_next_used(1);
    for head in [6_u64, 3] {
        assert_eq!(rig.queue.next_request().unwrap().ticket, head);
        rig.queue.reply(head, Ok(()), Vec::new());
    }
    assert!(rig.queue.next_request().is_none());
    assert_eq!(rig.used().iter().map(|(head, _)| *head).collect::<Vec<_>>(), [0, 6, 3]);
}

#[test]
fn a_stop_answers_what_was_passed_on_and_leaves_the_rest_in_the_ring() {
    let mut rig = rig();
    rig.tokens();
    rig.queue.ended(CALL, Ok(0));
    rig.asks(0, abi::VIRTIO_BLK_T_IN, 0, 512);
    rig.queue.next_request().unwrap();
    rig.asks(1, abi::VIRTIO_BLK_T_IN, 0, 512);
    rig.link.stop();
    assert!(rig.queue.next_request().is_none());
    assert_eq!(rig.queue.phase(), Phase::Closing);
    rig.queue.reply(0, Ok(()), vec![Buf::with_len(512)]);
    assert_eq!(rig.queue.phase(), Phase::Closing, "the guest was not called");
    assert_eq!(rig.tokens(), [CALL]);
    assert_eq!(rig.queue.phase(), Phase::Closing, "the call is on its way");
    rig.link.hurry();
    assert_eq!(rig.queue.phase(), Phase::Closed);
    let link = Arc::clone(&rig.link);
    drop(rig);
    assert_eq!(link.wait(std::time::Duration::ZERO), Some(1));
}

#[test]
fn a_guest_whose_answers_are_in_doubt_sees_errors() {
    let mut rig = rig();
    rig.setup.doubted.store(true, Ordering::SeqCst);
    rig.asks(0, abi::VIRTIO_BLK_T_IN, 0, 512);
    assert!(rig.queue.next_request().is_none());
    assert_eq!((rig.used(), rig.get::<u8>(STATUS)), (vec![(0, 1)], 1));
}
