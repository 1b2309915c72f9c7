// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues of requests beside sessions: a fake one, whose peer is a list and an event.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use larder_core::buf::Buf;
use larder_core::config::preset;
use larder_core::request::{Errno, Kind, pieces};
use larder_io::{Device, Fault, QueueOp};
use larder_volume::budget::{Budget, CONNECTIONS, LEAST_BYTES, Purse, Wake};
use larder_volume::peer::Peer;
use larder_volume::queue::Queue;
use larder_volume::session::{ClientRequest, Phase, Source, What};
use larder_volume::{Cache, CacheConfig, ClientLimits, Volume, VolumeConfig, VolumeRanges};
use rustix::event::{EventfdFlags, eventfd};

const PATIENCE: Duration = Duration::from_secs(20);
const BYTES: u64 = 64 << 20;

/// What a peer asks: what, where, and the bytes to write or the number of bytes to read.
type Ask = (Kind, u64, Vec<u8>, u64);
type Answer = (u64, Result<Vec<u8>, Errno>);

#[derive(Default)]
struct Ring {
    asked: VecDeque<Ask>,
    closes: bool,
}

/// The peer's side.
struct Guest {
    ring: Arc<Mutex<Ring>>,
    kick: Arc<OwnedFd>,
    answers: Receiver<Answer>,
}

/// The worker's side.
struct Fake {
    ring: Arc<Mutex<Ring>>,
    kick: Arc<OwnedFd>,
    answers: Sender<Answer>,
    stripe_bytes: u64,
    waits: bool,
    next: u64,
    open: usize,
    phase: Phase,
    purse: Purse,
}

fn queue_on(volume: &Volume, worker: u32) -> Guest {
    let kick = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
    let (ring, (sender, answers)) = (Arc::<Mutex<Ring>>::default(), channel());
    let fake = Fake {
        ring: Arc::clone(&ring),
        kick: Arc::clone(&kick),
        answers: sender,
        stripe_bytes: volume.cache().shape().stripe_bytes(),
        waits: false,
        next: 0,
        open: 0,
        phase: Phase::Open,
        purse: volume.cache().config().clients.budget.purse(Peer::User(worker)),
    };
    volume.welcome_queue(worker, Box::new(fake));
    Guest { ring, kick, answers }
}

impl Guest {
    fn ask(&self, kind: Kind, offset: u64, bytes: &[u8], len: u64) {
        self.ring.lock().unwrap().asked.push_back((kind, offset, bytes.to_vec(), len));
        self.kick();
    }

    fn kick(&self) {
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).unwrap();
    }

    fn answer(&self) -> Answer {
        self.answers.recv_timeout(PATIENCE).unwrap()
    }

    fn run(&self, kind: Kind, offset: u64, bytes: &[u8], len: u64) -> Vec<u8> {
        self.ask(kind, offset, bytes, len);
        self.answer().1.unwrap()
    }

    /// Whether the worker has dropped the queue.
    fn is_gone(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Arc::strong_count(&self.ring) > 1 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        Arc::strong_count(&self.ring) == 1 && Arc::strong_count(&self.kick) == 1
    }
}

impl Source for Fake {
    fn next_request(&mut self) -> Option<ClientRequest> {
        let mut ring = self.ring.lock().unwrap();
        if ring.closes {
            self.phase = Phase::Closed;
        }
        let (kind, offset, bytes, len) =
            ring.asked.front().filter(|_| self.phase == Phase::Open)?;
        let (kind, offset, len) = (*kind, *offset, (*len).max(bytes.len() as u64));
        if !self.purse.spend(len) {
            return None;
        }
        let cut = pieces(offset, bytes.len() as u64, self.stripe_bytes);
        let part = |p: larder_core::request::Piece| {
            let at = (p.offset - offset) as usize;
            Buf::copy_of(&bytes[at..at + p.len as usize])
        };
        let bufs = cut.map(part).collect();
        ring.asked.pop_front();
        self.next += 1;
        self.open += 1;
        Some(ClientRequest { ticket: self.next, what: What::Io(kind), offset, len, bufs })
    }

    fn reply(&mut self, ticket: u64, result: Result<(), Errno>, bufs: Vec<Buf>) {
        self.open -= 1;
        if self.phase == Phase::Closing && self.open == 0 {
            self.phase = Phase::Closed;
        }
        self.purse.give_back(self.purse.spent_bytes());
        let bytes = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let _ = self.answers.send((ticket, result.map(|()| bytes)));
    }

    fn stop(&mut self) {
        self.phase = if self.open == 0 { Phase::Closed } else { Phase::Closing };
    }

    fn set_wake(&mut self, wake: Wake) {
        self.purse.set_wake(wake);
    }

    fn memory_bytes(&self) -> u64 {
        self.purse.spent_bytes()
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    fn why(&self) -> String {
        "the test ends".to_owned()
    }

    fn in_flight(&self) -> usize {
        self.open
    }
}

impl Queue for Fake {
    fn next_op(&mut self) -> Option<(u64, QueueOp)> {
        if self.phase == Phase::Closed || std::mem::replace(&mut self.waits, true) {
            return None;
        }
        Some((5, QueueOp::Event(Arc::clone(&self.kick))))
    }

    fn ended(&mut self, token: u64, result: Result<u32, Errno>) {
        assert_eq!((token, result), (5, Ok(0)));
        self.waits = false;
    }
}

fn volume(origin: Device, budget: Budget) -> Arc<Volume> {
    let choices = preset("sce").unwrap().choices();
    let clients = ClientLimits { budget, ..ClientLimits::default() };
    Volume::start(CacheConfig { clients, ..CacheConfig::of(origin, choices, 3) }).unwrap()
}

fn stop(volume: &Volume) {
    volume.cache().stop(PATIENCE, |_| (), || false).unwrap();
}

#[test]
fn requests_of_a_queue_are_cut_at_stripes_and_answered_beside_those_of_others() {
    let volume = volume(Device::mem(BYTES), Budget::default());
    let guests: Vec<Guest> = (0..3).map(|worker| queue_on(&volume, worker)).collect();
    let stripe = volume.cache().shape().stripe_bytes();
    let at = stripe - 4096;
    let bytes: Vec<u8> = (0..stripe as usize + 8192).map(|i| (i / 512 % 250) as u8 + 1).collect();
    guests[0].run(Kind::Write { fua: true }, at, &bytes, 0);
    for guest in &guests {
        assert!(guest.run(Kind::Read, at, &[], bytes.len() as u64) == bytes);
    }
    guests[1].run(Kind::Flush, 0, &[], 0);
    guests[2].run(Kind::Zero { fua: false, may_unmap: true }, 0, &[], BYTES);
    assert!(guests[0].run(Kind::Read, at, &[], 8192).iter().all(|b| *b == 0));
    let stats = volume.stats().unwrap();
    assert_eq!((stats.requests.reads, stats.requests.writes), (4, 1));
    stop(&volume);
    assert!(guests.iter().all(Guest::is_gone));
}

#[test]
fn the_queues_of_volumes_that_share_a_cache_have_their_own_data() {
    let choices = preset("sce").unwrap().choices();
    let mut config = CacheConfig::of(Device::mem(BYTES), choices, 2);
    config.volumes[0].name = "a".to_owned();
    let (name, share) = ("b".to_owned(), Default::default());
    config.volumes.push(VolumeConfig {
        name,
        generation: 0,
        origin: Device::mem(BYTES),
        share,
        ranges: VolumeRanges::default(),
    });
    let volumes = Cache::start(config).unwrap().volumes();
    let guests: Vec<Guest> = volumes.iter().map(|volume| queue_on(volume, 1)).collect();
    let last = BYTES - 4096;
    for (guest, byte) in guests.iter().zip([0xa, 0xb]) {
        guest.run(Kind::Write { fua: false }, 0, &[byte; 4096], 0);
        guest.run(Kind::Write { fua: false }, last, &[byte + 0x10; 4096], 0);
        guest.run(Kind::Flush, 0, &[], 0);
    }
    for (guest, byte) in guests.iter().zip([0xa, 0xb]) {
        assert_eq!(guest.run(Kind::Read, 0, &[], 4096), [byte; 4096]);
        assert_eq!(guest.run(Kind::Read, last, &[], 4096), [byte + 0x10; 4096]);
    }
    assert_eq!(volumes[1].stats().unwrap().requests.writes, 2);
    stop(&volumes[0]);
}

#[test]
fn a_stop_answers_what_is_in_flight() {
    let fault = Fault::new();
    let volume = volume(Device::mem(BYTES).with_fault(&fault), Budget::default());
    let guest = queue_on(&volume, 1);
    fault.slow(Duration::from_millis(300));
    guest.ask(Kind::Write { fua: false }, 0, &[7; 4096], 0);
    while volume.status().unwrap().requests_open == 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    stop(&volume);
    assert_eq!(guest.answer().1, Ok(Vec::new()));
    assert!(guest.is_gone());
}

#[test]
fn a_queue_that_closes_is_removed_and_another_takes_its_place() {
    let volume = volume(Device::mem(BYTES), Budget::default());
    for _ in 0..3 {
        let guest = queue_on(&volume, 2);
        guest.run(Kind::Read, 0, &[], 4096);
        guest.ring.lock().unwrap().closes = true;
        guest.kick();
        assert!(guest.is_gone());
    }
    stop(&volume);
}

#[test]
fn a_request_that_waits_for_memory_is_taken_when_there_is_some() {
    let volume = volume(Device::mem(BYTES), Budget::new(LEAST_BYTES, CONNECTIONS, 3));
    let mut hog = volume.cache().config().clients.budget.purse(Peer::User(99));
    assert!(hog.spend(40 << 20));
    let guest = queue_on(&volume, 0);
    guest.ask(Kind::Read, 0, &[], 30 << 20);
    assert!(guest.answers.recv_timeout(Duration::from_millis(100)).is_err());
    drop(hog);
    assert_eq!(guest.answer().1.unwrap().len(), 30 << 20);
    stop(&volume);
}
