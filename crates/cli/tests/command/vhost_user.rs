// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest survives its server: after `kill -9` and a new start, the requests that were in flight are carried out, none is
//! answered twice or with an error, and the disk has each write that was answered.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::collections::HashMap;
use std::time::{Duration, Instant};

use larder_testkit::command::{PATIENCE, make_initial};
use larder_testkit::guest::{Guest, SLOTS, kind};
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

const BYTES: u64 = 4 << 20;
const BLOCK: usize = 4096;
const BLOCKS: u64 = BYTES / BLOCK as u64;

/// A block as a write leaves it.
fn content(number: u64, block: u64) -> Vec<u8> {
    [number.to_le_bytes(), block.to_le_bytes()].concat().repeat(BLOCK / 16)
}

struct Load {
    guest: Guest,
    random: Pcg64,
    next: u64,
    /// Of a slot of a queue in flight: what it writes to which block, or which block it reads.
    open: HashMap<(usize, u16), (u64, Option<u64>)>,
    /// The last answered write of each block.
    last: HashMap<u64, u64>,
    answered: u64,
}

impl Load {
    fn submit(&mut self, queue: usize) {
        while self.open.keys().filter(|(q, _)| *q == queue).count() < SLOTS as usize {
            let block = self.random.random_range(0..BLOCKS);
            if self.open.values().any(|(other, _)| *other == block) {
                continue;
            }
            let writes = self.random.random_range(0..3) > 0;
            self.next += 1;
            let (what, data) = match writes {
                true => (kind::WRITE, content(self.next, block)),
                false => (kind::READ, vec![0; BLOCK]),
            };
            let slot = self.guest.submit(queue, what, block * 8, &data).unwrap();
            self.open.insert((queue, slot), (block, writes.then_some(self.next)));
        }
    }

    fn judge(&mut self, queue: usize) {
        for (slot, status) in self.guest.answered(queue) {
            assert_eq!(status, 0, "the guest sees an error");
            let (block, write) = self.open.remove(&(queue, slot)).expect("it was asked");
            self.answered += 1;
            match (write, self.last.get(&block)) {
                (Some(number), _) => drop(self.last.insert(block, number)),
                (None, Some(number)) => {
                    assert!(self.guest.data(queue, slot, BLOCK) == content(*number, block));
                }
                (None, None) => {}
            }
        }
    }

    fn run(&mut self, span: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < span {
            for queue in [0, 1] {
                self.submit(queue);
                self.judge(queue);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn drain(&mut self) {
        let begun = Instant::now();
        while !self.open.is_empty() {
            (0..2).for_each(|queue| self.judge(queue));
            assert!(begun.elapsed() < PATIENCE, "{:?} were not answered", self.open);
        }
    }
}

#[test]
fn a_guest_survives_its_server_without_an_error_or_a_lost_write() {
    let place = Place::new();
    make_initial(&place.path("origin"), BYTES);
    let socket = place.path("disk");
    let listen = format!("vhost-user:{}", socket.display());
    let words = place.serve_cached(4, &["--workers", "2", "--listen", &listen]);
    let mut server = Server::restart(&words);
    let guest = Guest::boot(&socket, 2, 0).unwrap();
    let (open, last) = (HashMap::new(), HashMap::new());
    let random = Pcg64::seed_from_u64(1);
    let mut load = Load { guest, random, next: 0, open, last, answered: 0 };
    for round in 0..8 {
        let micros = load.random.random_range(20_000..200_000);
        load.run(Duration::from_micros(micros));
        // The last one is stopped as it should be.
        if round == 7 {
            assert_eq!(server.stop().code, 0);
        } else {
            server.kill();
        }
        assert_eq!(socket.exists(), round < 7);
        server = Server::restart(&words);
        let begun = Instant::now();
        while load.guest.connect().is_err() {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    load.drain();
    println!("{} requests were answered", load.answered);
    assert!(load.answered > 100);
    for (block, number) in load.last.clone() {
        let (status, data) = load.guest.ask(0, kind::READ, block * 8, &vec![0; BLOCK]);
        assert!(status == 0 && data == content(number, block), "block {block}");
    }
    drop(load);
    server.kill();
}
