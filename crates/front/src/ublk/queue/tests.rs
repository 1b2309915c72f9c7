// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of tags, against a fake driver.

use std::collections::HashMap;
use std::sync::Mutex;

use larder_volume::budget::{Budget, CONNECTIONS, LEAST_BYTES};
use larder_volume::peer::Peer;
use larder_volume::session::What;

use super::*;
use crate::grant::Grant;

const DEPTH: u16 = 8;

/// The driver's side: what a tag asks, the data of its request, and what was answered.
#[derive(Default)]
struct Driver {
    asked: HashMap<u16, Descriptor>,
    data: HashMap<u16, Vec<u8>>,
    fails: bool,
}

struct Fake(Arc<Mutex<Driver>>, Arc<OwnedFd>);

impl Port for Fake {
    fn device(&self) -> &Arc<OwnedFd> {
        &self.1
    }

    fn number(&self) -> u16 {
        3
    }

    fn depth(&self) -> u16 {
        DEPTH
    }

    fn descriptor(&self, tag: u16) -> Descriptor {
        self.0.lock().unwrap().asked[&tag]
    }

    fn take(&self, tag: u16, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        let driver = self.0.lock().unwrap();
        if driver.fails {
            return Err(Errno::EIO);
        }
        into.copy_from_slice(&driver.data[&tag][at as usize..at as usize + into.len()]);
        Ok(())
    }

    fn give(&self, tag: u16, at: u64, data: &[u8]) -> Result<(), Errno> {
        let mut driver = self.0.lock().unwrap();
        if driver.fails {
            return Err(Errno::EIO);
        }
        let to = driver.data.entry(tag).or_default();
        to.resize(at as usize, 0);
        to.extend_from_slice(data);
        Ok(())
    }
}

struct Rig {
    queue: UblkQueue<Fake>,
    driver: Arc<Mutex<Driver>>,
}

fn rules() -> Rules {
    Rules { bytes: 64 << 20, block_bytes: 512, stripe_bytes: 1 << 20, grant: Grant::Full }
}

fn rig_with(rules: Rules, purse: Purse) -> Rig {
    let driver = Arc::<Mutex<Driver>>::default();
    let file = Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
    let queue = UblkQueue::new(Fake(Arc::clone(&driver), file), rules, purse);
    let mut rig = Rig { queue, driver };
    let fetches = rig.commands();
    assert!(fetches.iter().map(|(tag, op, ..)| (*tag, *op)).eq((0..DEPTH).map(|tag| (tag, FETCH))));
    rig
}

fn rig() -> Rig {
    rig_with(rules(), Purse::default())
}

impl Rig {
    /// The commands that the queue starts now: tag, number, result.
    fn commands(&mut self) -> Vec<(u16, u32, i32)> {
        std::iter::from_fn(|| self.queue.next_op())
            .map(|(token, op)| {
                let QueueOp::Command { number, arguments: a, .. } = op else { panic!("{op:?}") };
                let tag = u16::from_ne_bytes([a[2], a[3]]);
                assert_eq!((u64::from(tag), u16::from_ne_bytes([a[0], a[1]])), (token, 3));
                (tag, number, i32::from_ne_bytes([a[4], a[5], a[6], a[7]]))
            })
            .collect()
    }

    fn arrives(&mut self, tag: u16, operation: u8, sector: u64, sectors: u32, flags: u32) {
        let request = Descriptor { operation, flags, sectors, sector };
        self.driver.lock().unwrap().asked.insert(tag, request);
        self.queue.ended(tag.into(), Ok(0));
    }

    /// The answer to a request that is refused at once.
    fn refusal(&mut self, operation: u8, sector: u64, sectors: u32) -> i32 {
        self.arrives(1, operation, sector, sectors, 0);
        assert!(self.queue.next_request().is_none());
        let commands = self.commands();
        let [(1, COMMIT_AND_FETCH, result)] = commands[..] else { panic!("{commands:?}") };
        result
    }
}

#[test]
fn a_write_is_copied_once_cut_at_stripes_and_answered_with_its_length() {
    let mut rig = rig();
    let data: Vec<u8> = (0..8192_u32).map(|i| (i / 512) as u8 + 1).collect();
    rig.driver.lock().unwrap().data.insert(5, data.clone());
    rig.arrives(5, operation::WRITE, 2048 - 8, 16, FUA);
    let request = rig.queue.next_request().unwrap();
    // The client changes its memory.
    rig.driver.lock().unwrap().data.clear();
    assert_eq!((request.ticket, request.offset, request.len), (5, (1 << 20) - 4096, 8192));
    assert_eq!(request.what, What::Io(Kind::Write { fua: true }));
    assert_eq!(request.bufs.iter().map(|b| b.len()).collect::<Vec<_>>(), [4096, 4096]);
    assert!(request.bufs.iter().flat_map(|b| b.iter().copied()).eq(data));
    assert_eq!((rig.queue.in_flight(), rig.commands().len()), (1, 0));
    rig.queue.reply(5, Ok(()), Vec::new());
    assert_eq!(rig.commands(), [(5, COMMIT_AND_FETCH, 8192)]);
    assert_eq!((rig.queue.in_flight(), rig.queue.memory_bytes()), (0, 0));
}

#[test]
fn a_read_gets_its_data_before_its_answer() {
    let mut rig = rig();
    rig.arrives(0, operation::READ, 8, 16, 0);
    let request = rig.queue.next_request().unwrap();
    assert_eq!((request.what, request.offset, request.len), (What::Io(Kind::Read), 4096, 8192));
    rig.queue.reply(0, Ok(()), vec![Buf::copy_of(&[1; 4096]), Buf::copy_of(&[2; 4096])]);
    assert_eq!(rig.driver.lock().unwrap().data[&0], [[1; 4096], [2; 4096]].concat());
    assert_eq!(rig.commands(), [(0, COMMIT_AND_FETCH, 8192)]);
    // Data of the wrong length is no data.
    rig.arrives(0, operation::READ, 8, 16, 0);
    rig.queue.next_request().unwrap();
    rig.queue.reply(0, Ok(()), vec![Buf::copy_of(&[1; 4096])]);
    assert_eq!(rig.commands(), [(0, COMMIT_AND_FETCH, -5)]);
}

#[test]
fn requests_without_data_are_answered_with_zero() {
    let mut rig = rig();
    let zero = |fua, may_unmap| Kind::Zero { fua, may_unmap };
    for (operation, sectors, flags, kind) in [
        (operation::FLUSH, 0, 0, Kind::Flush),
        (operation::DISCARD, 4096, 0, Kind::Trim { fua: false }),
        (operation::WRITE_ZEROES, 4096, 0, zero(false, true)),
        (operation::WRITE_ZEROES, 4096, FUA | NO_UNMAP, zero(true, false)),
    ] {
        rig.arrives(2, operation, 0, sectors, flags);
        let request = rig.queue.next_request().unwrap();
        assert_eq!((request.what, request.bufs.len()), (What::Io(kind), 0));
        rig.queue.reply(2, Ok(()), Vec::new());
        assert_eq!(rig.commands(), [(2, COMMIT_AND_FETCH, 0)]);
    }
}

#[test]
fn what_cannot_be_served_is_answered_with_an_error() {
    let mut rig = rig();
    let end = rules().bytes / 512;
    assert_eq!(rig.refusal(operation::READ, end - 7, 8), -22);
    assert_eq!(rig.refusal(operation::READ, u64::MAX / 2, 8), -22);
    assert_eq!(rig.refusal(operation::READ, 0, 0), -22);
    assert_eq!(rig.refusal(13, 0, 8), -95);
    rig.driver.lock().unwrap().fails = true;
    assert_eq!(rig.refusal(operation::WRITE, 0, 8), -5);
    rig.arrives(1, operation::READ, 0, 8, 0);
    rig.queue.next_request().unwrap();
    rig.queue.reply(1, Ok(()), vec![Buf::with_len(4096)]);
    assert_eq!(rig.commands(), [(1, COMMIT_AND_FETCH, -5)]);
    rig.arrives(1, operation::FLUSH, 0, 0, 0);
    rig.queue.next_request().unwrap();
    rig.queue.reply(1, Err(Errno::ENOSPC), Vec::new());
    assert_eq!(rig.commands(), [(1, COMMIT_AND_FETCH, -28)]);
    assert_eq!((rig.queue.in_flight(), rig.queue.memory_bytes()), (0, 0));
    // A result that came twice is dropped.
    rig.queue.reply(1, Ok(()), Vec::new());
    assert!(rig.commands().is_empty());
    let mut blocks = rig_with(Rules { block_bytes: 4096, ..rules() }, Purse::default());
    assert_eq!(blocks.refusal(operation::READ, 1, 8), -22);
}

#[test]
fn clients_that_only_read_write_nothing() {
    for (grant, what) in
        [(Grant::ReadOnly, What::Io(Kind::Read)), (Grant::Backup, What::PassiveRead)]
    {
        let mut rig = rig_with(Rules { grant, ..rules() }, Purse::default());
        for operation in [operation::WRITE, operation::DISCARD, operation::WRITE_ZEROES] {
            assert_eq!(rig.refusal(operation, 0, 8), -30);
        }
        rig.arrives(0, operation::READ, 0, 8, 0);
        assert_eq!(rig.queue.next_request().unwrap().what, what);
    }
}

#[test]
fn a_request_waits_for_memory_and_those_behind_it_too() {
    let budget = Budget::new(LEAST_BYTES, CONNECTIONS, 1);
    let mut hog = budget.purse(Peer::User(1));
    assert!(hog.spend(40 << 20));
    let mut rig = rig_with(rules(), budget.purse(Peer::User(2)));
    rig.arrives(0, operation::READ, 0, 20 << 11, 0);
    rig.arrives(1, operation::FLUSH, 0, 0, 0);
    assert!(rig.queue.next_request().is_none());
    drop(hog);
    assert_eq!(rig.queue.next_request().unwrap().ticket, 0);
    assert_eq!(rig.queue.next_request().unwrap().ticket, 1);
    assert!(rig.queue.memory_bytes() >= 20 << 20);
}

#[test]
fn a_stop_answers_what_was_passed_on_and_leaves_what_arrives_to_the_next_server() {
    let mut rig = rig();
    rig.arrives(0, operation::READ, 0, 8, 0);
    rig.arrives(1, operation::READ, 0, 8, 0);
    rig.queue.next_request().unwrap();
    rig.queue.stop();
    assert!(rig.queue.next_request().is_none());
    assert_eq!(rig.queue.phase(), Phase::Closing);
    rig.queue.reply(0, Ok(()), vec![Buf::with_len(4096)]);
    assert_eq!(rig.queue.phase(), Phase::Closing, "the answer has not been started");
    assert_eq!(rig.commands(), [(0, COMMIT_AND_FETCH, 4096)]);
    assert_eq!(rig.queue.phase(), Phase::Closed);
    rig.arrives(0, operation::READ, 0, 8, 0);
    assert!(rig.queue.next_request().is_none() && rig.commands().is_empty());
}

#[test]
fn a_device_that_is_stopped_takes_its_tags_back() {
    let mut rig = rig();
    rig.arrives(0, operation::FLUSH, 0, 0, 0);
    rig.queue.next_request().unwrap();
    for tag in 1..DEPTH {
        rig.queue.ended(tag.into(), Err(Errno::ENODEV));
    }
    assert_eq!(rig.queue.phase(), Phase::Open);
    rig.queue.reply(0, Ok(()), Vec::new());
    assert_eq!(rig.commands(), [(0, COMMIT_AND_FETCH, 0)]);
    rig.queue.ended(0, Err(Errno::ENODEV));
    assert_eq!((rig.queue.phase(), rig.queue.in_flight()), (Phase::Closed, 0));
    assert!(rig.queue.why().contains("was stopped"));
    // Completions that make no sense change nothing.
    rig.queue.ended(0, Ok(0));
    rig.queue.ended(99, Ok(0));
    assert!(rig.queue.next_request().is_none() && rig.commands().is_empty());
}

#[test]
fn a_driver_that_refuses_commands_ends_the_queue() {
    let mut rig = rig();
    for tag in 0..DEPTH {
        rig.queue.ended(tag.into(), Err(Errno::EINVAL));
    }
    assert_eq!(rig.queue.phase(), Phase::Closed);
    assert!(rig.queue.why().contains("refuses commands"), "{}", rig.queue.why());
}
