// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue of a virtual machine's disk, as its worker drives it: requests out of the available ring, answers into the used
//! ring.
//!
//! Invariants:
//! - A number that is in flight is not taken again. Each request that was passed on has one answer, if the queue did not stop
//!   for an error meanwhile.
//! - A request takes memory from the purse before its buffers are made; without enough it waits, and those behind it too. It
//!   was read once: what the guest changes meanwhile has no effect.
//! - A queue that stops answers what is in flight. What it did not take stays in the ring for its successor.
//! - The guest is called through the worker's ring, so that a full descriptor blocks no worker.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_core::buf::Buf;
use larder_core::mutant::is_active;
use larder_core::request::{Errno, Kind};
use larder_io::QueueOp;
use larder_volume::budget::{Purse, Wake};
use larder_volume::peer::Peer;
use larder_volume::queue::Queue;
use larder_volume::session::{ClientRequest, Phase, Source};
use virtio_bindings::virtio_blk as abi;
use virtio_queue::{Queue as Ring, QueueOwnedT as _, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap, Permissions};

use super::chain::{Command, Segment, Spans, command};
use super::device::{Device, MOST_DATA_BYTES};
use super::inflight::Record;
use super::link::{Link, lock};
use super::memory::{Memory, Table};
use crate::blocks::{Checked, Rules};
use crate::lines::Lines;

const SECTOR: u64 = 512;
/// The length of a device's name.
pub const NAME_BYTES: usize = abi::VIRTIO_BLK_ID_BYTES as usize;
const KICK: u64 = 0;
const CALL: u64 = 1;

/// What all queues of a client share.
pub struct Setup {
    /// The volume, for messages.
    pub title: String,
    /// Limits the lines that the guest causes, and whose they are.
    pub lines: (Arc<Lines>, Peer),
    /// The name of the device.
    pub name: [u8; NAME_BYTES],
    /// Which requests it takes.
    pub rules: Rules,
    /// The device.
    pub device: Arc<Device>,
    /// The guest's memory.
    pub memory: Memory,
    /// Answered writes may be lost: every request fails.
    pub doubted: AtomicBool,
}

/// A request that was passed on.
struct Open {
    /// Places of the data of a read.
    into: Option<Spans>,
    status: GuestAddress,
    cost: u64,
}

/// What becomes of a request.
enum Begun {
    Passed(ClientRequest),
    Waits(Command),
    Answered,
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Fine,
    Failed,
    Unknown,
}

/// The queue, see the module.
pub struct GuestQueue {
    index: u16,
    setup: Arc<Setup>,
    ring: Ring,
    link: Arc<Link>,
    record: Option<Record>,
    kick: Arc<OwnedFd>,
    slots: Vec<Option<Open>>,
    open: usize,
    /// Requests of an earlier server.
    again: VecDeque<u16>,
    /// A request that waits for memory, and whether it is one of an earlier server.
    waiting: Option<(Command, bool)>,
    purse: Purse,
    /// The worker waits for a kick.
    listens: bool,
    /// A call is on its way; another is due.
    calls: bool,
    due: bool,
    stopping: bool,
    broken: Option<String>,
    /// The error was signalled.
    told: bool,
}

impl GuestQueue {
    /// A queue whose ring is ready and valid. `again` are requests of an earlier server.
    #[must_use]
    pub fn new(
        (index, setup): (u16, Arc<Setup>),
        (ring, kick): (Ring, Arc<OwnedFd>),
        link: Arc<Link>,
        (record, again): (Option<Record>, Vec<u16>),
        purse: Purse,
    ) -> Self {
        let slots = (0..ring.size()).map(|_| None).collect();
        let again = again.into();
        let (waiting, broken) = (None, None);
        let (listens, calls, due, stopping, told) = (false, false, false, false, false);
        Self {
            index,
            setup,
            ring,
            link,
            record,
            kick,
            slots,
            open: 0,
            again,
            waiting,
            purse,
            listens,
            calls,
            due,
            stopping,
            broken,
            told,
        }
    }

    fn breaks(&mut self, why: &dyn std::fmt::Display) {
        if self.broken.is_none() {
            let Setup { title, lines: (lines, peer), .. } = &*self.setup;
            let line = format_args!("{title}: queue {} of its guest stops: {why}", self.index);
            lines.write(*peer, true, line);
            self.broken = Some(why.to_string());
        }
        self.stopping = true;
        self.purse.cancel();
    }

    /// The next request, and whether an earlier server had it.
    fn next_command(&mut self, memory: &GuestMemoryMmap) -> Option<(Command, bool)> {
        if let Some(waiting) = self.waiting.take() {
            return Some(waiting);
        }
        let (head, again) = match self.again.pop_front() {
            Some(head) => (head, true),
            None => (self.next_head(memory)?, false),
        };
        let slot = self.slots.get(usize::from(head));
        if !slot.is_some_and(Option::is_none) {
            self.breaks(&format_args!(
                "it offers descriptor {head}, which is in flight or does not exist"
            ));
            return None;
        }
        let table = GuestAddress(self.ring.desc_table());
        match command(memory, table, self.ring.size(), head) {
            Ok(command) => Some((command, again)),
            Err(why) => {
                self.breaks(&why);
                None
            }
        }
    }

    fn next_head(&mut self, memory: &GuestMemoryMmap) -> Option<u16> {
        for _ in 0..2 {
            let head = match self.ring.iter(memory) {
                Ok(mut heads) => heads.next().map(|chain| chain.head_index()),
                Err(why) => {
                    self.breaks(&why);
                    return None;
                }
            };
            if head.is_some() {
                return head;
            }
            match self.ring.enable_notification(memory) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(why) => {
                    self.breaks(&why);
                    return None;
                }
            }
        }
        // The guest moves its index to and fro, or the ring is gone: others go first.
        self.link.wake();
        None
    }

    /// What the request asks of the volume; or its answer.
    fn check(&self, memory: &GuestMemoryMmap, request: &Command) -> Result<Checked, Status> {
        let fua = self.setup.device.writes_through();
        let (start, out) = (request.sector.checked_mul(SECTOR), request.out.bytes());
        let into = request.into.bytes();
        let (kind, start, len) = match request.kind {
            abi::VIRTIO_BLK_T_FLUSH => (Kind::Flush, None, 0),
            abi::VIRTIO_BLK_T_IN => (Kind::Read, start, into),
            abi::VIRTIO_BLK_T_OUT => (Kind::Write { fua }, start, out),
            kind @ (abi::VIRTIO_BLK_T_DISCARD | abi::VIRTIO_BLK_T_WRITE_ZEROES) => {
                let trims = kind == abi::VIRTIO_BLK_T_DISCARD;
                let mut bytes = [0; Segment::BYTES];
                if out != Segment::BYTES as u64 || request.out.read(memory, 0, &mut bytes).is_none()
                {
                    return Err(Status::Failed);
                }
                let segment = Segment::of(bytes);
                if segment.strange || (trims && segment.unmap) {
                    return Err(Status::Unknown);
                }
                let kind = match trims {
                    true => Kind::Trim { fua },
                    false => Kind::Zero { fua, may_unmap: segment.unmap },
                };
                (kind, segment.sector.checked_mul(SECTOR), u64::from(segment.sectors) * SECTOR)
            }
            _ => return Err(Status::Unknown),
        };
        let checked = self.setup.rules.check(kind, start, len).map_err(|_| Status::Failed)?;
        let is_long = checked.data_bytes() > MOST_DATA_BYTES;
        let is_there = !checked.reads() || request.into.are_in(memory, Permissions::Write);
        if is_long || !is_there { Err(Status::Failed) } else { Ok(checked) }
    }

    /// Passes a request on, or answers it.
    fn begin(&mut self, memory: &GuestMemoryMmap, mut request: Command) -> Begun {
        let status = match self.answer_here(memory, &request) {
            Some(status) => Err(status),
            None => self.check(memory, &request),
        };
        let mut checked = match status {
            Ok(checked) => checked,
            Err(status) => {
                self.record_of(request.head);
                self.answer(memory, &request, status, 0);
                return Begun::Answered;
            }
        };
        let spans = request.out.own_bytes() + request.into.own_bytes();
        let cost = self.setup.rules.cost(&checked) + spans;
        if !self.purse.spend(cost) {
            return Begun::Waits(request);
        }
        if is_active("guest-changes-write") {
            let table = GuestAddress(self.ring.desc_table());
            if let Ok(read) = command(memory, table, self.ring.size(), request.head) {
                checked.offset = read.sector.wrapping_mul(SECTOR);
                request = read;
            }
        }
        self.record_of(request.head);
        let take = |at, buf: &mut [u8]| request.out.read(memory, at, buf).ok_or(Errno::EIO);
        let bufs = match self.setup.rules.data(&checked, take) {
            Ok(bufs) => bufs,
            Err(_) => {
                self.purse.give_back(cost);
                self.answer(memory, &request, Status::Failed, 0);
                return Begun::Answered;
            }
        };
        let into = checked.reads().then(|| std::mem::take(&mut request.into));
        let (head, status) = (request.head, request.status);
        self.slots[usize::from(head)] = Some(Open { into, status, cost });
        self.open += 1;
        let Checked { what, offset, len } = checked;
        Begun::Passed(ClientRequest { ticket: head.into(), what, offset, len, bufs })
    }

    fn record_of(&mut self, head: u16) {
        if let Some(record) = &mut self.record {
            record.begin(head);
        }
    }

    /// The answer to a request that the volume does not get.
    fn answer_here(&self, memory: &GuestMemoryMmap, request: &Command) -> Option<Status> {
        if self.setup.doubted.load(Ordering::SeqCst) {
            return Some(Status::Failed);
        }
        if request.kind != abi::VIRTIO_BLK_T_GET_ID {
            return None;
        }
        let room = request.into.bytes().min(NAME_BYTES as u64) as usize;
        let written = request.into.write(memory, 0, &self.setup.name[..room]);
        Some(if written.is_some() && room > 0 { Status::Fine } else { Status::Failed })
    }

    fn answer(&mut self, memory: &GuestMemoryMmap, request: &Command, status: Status, bytes: u32) {
        self.put(memory, request.head, request.status, status, bytes);
    }

    /// Puts an answer into the used ring.
    fn put(
        &mut self,
        memory: &GuestMemoryMmap,
        head: u16,
        place: GuestAddress,
        status: Status,
        bytes: u32,
    ) {
        let status = match status {
            Status::Fine => abi::VIRTIO_BLK_S_OK,
            Status::Failed => abi::VIRTIO_BLK_S_IOERR,
            Status::Unknown => abi::VIRTIO_BLK_S_UNSUPP,
        } as u8;
        if memory.write_obj(status, place).is_err() {
            return self.breaks(&super::chain::Broken::Status);
        }
        if let Some(record) = &self.record {
            record.answer(head);
        }
        if let Err(why) = self.ring.add_used(memory, head, bytes + 1) {
            return self.breaks(&why);
        }
        if let Some(record) = &self.record {
            record.answered(head, self.ring.next_used());
        }
        self.due = true;
    }

    /// Whether a call of the guest is due.
    fn is_call_due(&mut self, table: &Table) -> bool {
        let due = std::mem::take(&mut self.due);
        // The question is asked in any case: it counts answers.
        let wanted = due && self.ring.needs_notification(&table.memory).unwrap_or(true);
        self.link.take_ring() || wanted
    }

    fn copy(&self, memory: &GuestMemoryMmap, into: &Spans, bufs: &[Buf]) -> Result<u32, Errno> {
        let bytes = into.bytes();
        if bufs.iter().map(|buf| buf.len() as u64).sum::<u64>() != bytes {
            tracing::error!("{}: a read returned data of the wrong length", self.setup.title);
            return Err(Errno::EIO);
        }
        let mut at = 0;
        for buf in bufs {
            into.write(memory, at, buf).ok_or(Errno::EIO)?;
            at += buf.len() as u64;
        }
        Ok(bytes as u32)
    }
}

impl Source for GuestQueue {
    fn next_request(&mut self) -> Option<ClientRequest> {
        let table = self.setup.memory.table();
        for _ in 0..=self.slots.len() {
            self.stopping |= self.link.stops();
            if self.stopping {
                return None;
            }
            let (command, again) = self.next_command(&table.memory)?;
            match self.begin(&table.memory, command) {
                Begun::Passed(request) => return Some(request),
                Begun::Waits(command) => {
                    self.waiting = Some((command, again));
                    return None;
                }
                Begun::Answered => {}
            }
        }
        // Others go first.
        self.link.wake();
        None
    }

    fn reply(&mut self, ticket: u64, result: Result<(), Errno>, bufs: Vec<Buf>) {
        let slot = usize::try_from(ticket).ok().and_then(|head| self.slots.get_mut(head));
        let Some(Open { into, status, cost }) = slot.and_then(Option::take) else {
            tracing::error!(ticket, "a result matches no request of the guest");
            return;
        };
        self.open -= 1;
        let table = self.setup.memory.table();
        let copied = result.and_then(|()| match &into {
            Some(into) => self.copy(&table.memory, into, &bufs),
            None => Ok(0),
        });
        drop(bufs);
        self.purse.give_back(cost);
        let (answer, bytes) = match copied {
            Ok(bytes) => (Status::Fine, bytes),
            Err(_) => (Status::Failed, 0),
        };
        self.put(&table.memory, ticket as u16, status, answer, bytes);
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.purse.cancel();
    }

    fn set_wake(&mut self, wake: Wake) {
        self.purse.set_wake(Arc::clone(&wake));
        self.link.set_wake(wake);
    }

    fn memory_bytes(&self) -> u64 {
        self.purse.spent_bytes()
    }

    fn phase(&self) -> Phase {
        if !self.stopping && !self.link.stops() {
            return Phase::Open;
        }
        let calls = (self.calls || self.due) && !self.link.hurries();
        if self.open > 0 || calls { Phase::Closing } else { Phase::Closed }
    }

    fn why(&self) -> String {
        match &self.broken {
            Some(why) => why.clone(),
            None => "its client or the server stopped it".to_owned(),
        }
    }

    fn in_flight(&self) -> usize {
        self.open
    }
}

impl Queue for GuestQueue {
    fn next_op(&mut self) -> Option<(u64, QueueOp)> {
        if self.broken.is_some() && !std::mem::replace(&mut self.told, true) {
            let error = lock(&self.link.bells.error).clone();
            if let Some(error) = error {
                return Some((CALL + 1, QueueOp::Signal(error)));
            }
        }
        if !self.calls {
            let table = self.setup.memory.table();
            let call =
                if self.is_call_due(&table) { lock(&self.link.bells.call).clone() } else { None };
            if let Some(call) = call {
                self.calls = true;
                return Some((CALL, QueueOp::Signal(call)));
            }
        }
        if !self.listens && !self.stopping {
            self.listens = true;
            return Some((KICK, QueueOp::Event(Arc::clone(&self.kick))));
        }
        None
    }

    fn ended(&mut self, token: u64, result: Result<u32, Errno>) {
        match token {
            KICK => {
                self.listens = false;
                if let Err(errno) = result {
                    self.breaks(&format_args!("the descriptor of its kicks: {errno}"));
                }
            }
            CALL => self.calls = false,
            _ => {}
        }
    }
}

impl Drop for GuestQueue {
    fn drop(&mut self) {
        let mut next = self.ring.next_avail();
        // A request of the ring that waits for memory was not begun.
        if self.waiting.as_ref().is_some_and(|(_, again)| !again) {
            next = next.wrapping_sub(1);
        }
        self.link.end(next);
    }
}

#[cfg(test)]
mod tests;
