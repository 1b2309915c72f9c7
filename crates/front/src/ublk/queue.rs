// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue of a ublk device, as its worker drives it: each tag is fetched, served and answered, again and again.
//!
//! ```text
//! tag:  Fetching ──> Arrived ──> Open ──> (commit and fetch) Fetching ...
//!          └──────────> Gone: the driver takes it back
//! ```
//!
//! Invariants:
//! - A tag is in one state. The driver owns a `Fetching` one, this queue the others; each request has one answer.
//! - A write's data is copied once, before a device or a checksum sees it, and a read's data after the last one did. So
//!   neither a hung flash nor a client that changes its buffer concerns the other.
//! - A request takes memory from the purse before its buffers are made; without enough it stays `Arrived`, and those
//!   behind it too.
//! - A stopped queue takes no further request. Requests that arrive then are not answered: the driver gives them to the
//!   next server, or fails them with the device.
//! - Answers to requests without data are zero.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use larder_core::buf::Buf;
use larder_core::request::{Errno, Kind};
use larder_io::QueueOp;
use larder_io::ublk::uapi::{COMMIT_AND_FETCH, FETCH, FUA, NO_UNMAP, operation, queue_arguments};
use larder_io::ublk::{CharacterQueue, Descriptor};
use larder_volume::budget::{Purse, Wake};
use larder_volume::queue::Queue;
use larder_volume::session::{ClientRequest, Phase, Source};

use crate::blocks::{Checked, Rules};

const SECTOR: u64 = 512;

/// The driver's side of a queue.
pub trait Port: Send {
    /// The descriptor of commands.
    fn device(&self) -> &Arc<OwnedFd>;

    /// The queue's number.
    fn number(&self) -> u16;

    /// The number of tags.
    fn depth(&self) -> u16;

    /// The request of a tag that was fetched.
    fn descriptor(&self, tag: u16) -> Descriptor;

    /// Copies data of a write.
    ///
    /// # Errors
    /// The driver's.
    fn take(&self, tag: u16, at: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Copies data for a read.
    ///
    /// # Errors
    /// The driver's.
    fn give(&self, tag: u16, at: u64, data: &[u8]) -> Result<(), Errno>;
}

impl Port for CharacterQueue {
    fn device(&self) -> &Arc<OwnedFd> {
        self.device()
    }

    fn number(&self) -> u16 {
        self.number()
    }

    fn depth(&self) -> u16 {
        self.depth()
    }

    fn descriptor(&self, tag: u16) -> Descriptor {
        self.descriptor(tag)
    }

    fn take(&self, tag: u16, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.take(tag, at, into)
    }

    fn give(&self, tag: u16, at: u64, data: &[u8]) -> Result<(), Errno> {
        self.give(tag, at, data)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Fetching,
    Arrived,
    Open(Open),
    Gone,
}

/// A request that was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    reads: bool,
    /// What the answer counts: bytes of data.
    bytes: u64,
    cost: u64,
}

/// The queue, see the module.
pub struct UblkQueue<P> {
    port: P,
    rules: Rules,
    tags: Vec<Tag>,
    /// Commands to start: fetches at first, then answers.
    commands: VecDeque<(u16, u32, i32)>,
    arrived: VecDeque<u16>,
    open: usize,
    gone: usize,
    purse: Purse,
    stopping: bool,
    /// The driver refused a command.
    refused: Option<Errno>,
}

impl<P: Port> UblkQueue<P> {
    /// A queue that fetches nothing yet.
    pub fn new(port: P, rules: Rules, purse: Purse) -> Self {
        let depth = port.depth();
        Self {
            port,
            rules,
            tags: vec![Tag::Fetching; depth.into()],
            commands: (0..depth).map(|tag| (tag, FETCH, 0)).collect(),
            arrived: VecDeque::new(),
            open: 0,
            gone: 0,
            purse,
            stopping: false,
            refused: None,
        }
    }

    fn commit(&mut self, tag: u16, result: Result<u64, Errno>) {
        let number = match result {
            // At most 32 MiB.
            Ok(bytes) => i32::try_from(bytes).unwrap_or(i32::MAX),
            Err(errno) => -errno.0.max(1),
        };
        self.tags[usize::from(tag)] = Tag::Fetching;
        self.commands.push_back((tag, COMMIT_AND_FETCH, number));
    }

    fn check(&self, request: &Descriptor) -> Result<Checked, Errno> {
        let (offset, len) =
            (request.sector.checked_mul(SECTOR), u64::from(request.sectors) * SECTOR);
        let fua = request.flags & FUA != 0;
        let may_unmap = request.flags & NO_UNMAP == 0;
        let kind = match request.operation {
            operation::FLUSH => Kind::Flush,
            operation::READ => Kind::Read,
            operation::WRITE => Kind::Write { fua },
            operation::DISCARD => Kind::Trim { fua },
            operation::WRITE_ZEROES => Kind::Zero { fua, may_unmap },
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.rules.check(kind, offset, len)
    }

    /// Passes the request of a tag on, or answers it. `None`: it waits for memory.
    fn begin(&mut self, tag: u16) -> Option<Option<ClientRequest>> {
        let checked = match self.check(&self.port.descriptor(tag)) {
            Ok(checked) => checked,
            Err(errno) => {
                self.commit(tag, Err(errno));
                return Some(None);
            }
        };
        let cost = self.rules.cost(&checked);
        if cost > 0 && !self.purse.spend(cost) {
            return None;
        }
        let bufs = match self.rules.data(&checked, |at, into| self.port.take(tag, at, into)) {
            Ok(bufs) => bufs,
            Err(errno) => {
                self.purse.give_back(cost);
                self.commit(tag, Err(errno));
                return Some(None);
            }
        };
        let (reads, bytes) = (checked.reads(), checked.data_bytes());
        self.tags[usize::from(tag)] = Tag::Open(Open { reads, bytes, cost });
        self.open += 1;
        let Checked { what, offset, len } = checked;
        Some(Some(ClientRequest { ticket: tag.into(), what, offset, len, bufs }))
    }

    /// Copies the data of a read to the driver.
    fn give(&self, tag: u16, bytes: u64, bufs: &[Buf]) -> Result<(), Errno> {
        if bufs.iter().map(|buf| buf.len() as u64).sum::<u64>() != bytes {
            tracing::error!(tag, bytes, "a read returned data of the wrong length");
            return Err(Errno::EIO);
        }
        let mut at = 0;
        for buf in bufs {
            self.port.give(tag, at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }
}

impl<P: Port> Source for UblkQueue<P> {
    fn next_request(&mut self) -> Option<ClientRequest> {
        while !self.stopping {
            let tag = *self.arrived.front()?;
            let begun = self.begin(tag)?;
            self.arrived.pop_front();
            if begun.is_some() {
                return begun;
            }
        }
        None
    }

    fn reply(&mut self, ticket: u64, result: Result<(), Errno>, bufs: Vec<Buf>) {
        let tag = u16::try_from(ticket).ok().filter(|tag| usize::from(*tag) < self.tags.len());
        let open = tag.map(|tag| (tag, self.tags[usize::from(tag)]));
        let Some((tag, Tag::Open(Open { reads, bytes, cost }))) = open else {
            tracing::error!(ticket, "a result matches no request of the ublk device");
            return;
        };
        let copied =
            result.and_then(|()| if reads { self.give(tag, bytes, &bufs) } else { Ok(()) });
        drop(bufs);
        self.purse.give_back(cost);
        self.open -= 1;
        self.commit(tag, copied.map(|()| bytes));
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.purse.cancel();
    }

    fn set_wake(&mut self, wake: Wake) {
        self.purse.set_wake(wake);
    }

    fn memory_bytes(&self) -> u64 {
        self.purse.spent_bytes()
    }

    fn phase(&self) -> Phase {
        if self.gone == self.tags.len() {
            Phase::Closed
        } else if !self.stopping {
            Phase::Open
        } else if self.open > 0 || !self.commands.is_empty() {
            Phase::Closing
        } else {
            Phase::Closed
        }
    }

    fn why(&self) -> String {
        match self.refused {
            Some(errno) => format!("the driver refuses commands ({errno})"),
            None if self.stopping => "the server stops".to_owned(),
            None => "the device was stopped".to_owned(),
        }
    }

    fn in_flight(&self) -> usize {
        self.open
    }
}

impl<P: Port> Queue for UblkQueue<P> {
    fn next_op(&mut self) -> Option<(u64, QueueOp)> {
        let (tag, number, result) = self.commands.pop_front()?;
        let arguments = queue_arguments(self.port.number(), tag, result);
        let device = Arc::clone(self.port.device());
        Some((tag.into(), QueueOp::Command { device, number, arguments }))
    }

    fn ended(&mut self, token: u64, result: Result<u32, Errno>) {
        let state = self.tags.get_mut(token as usize);
        let Some(state) = state.filter(|state| **state == Tag::Fetching) else {
            tracing::error!(token, "the ublk driver completed what it did not have");
            return;
        };
        if result == Ok(0) {
            *state = Tag::Arrived;
            return self.arrived.push_back(token as u16);
        }
        *state = Tag::Gone;
        self.gone += 1;
        let errno = result.err().unwrap_or(Errno::EOPNOTSUPP);
        // ENODEV: the driver takes its tags back, one by one.
        if errno != Errno::ENODEV && self.refused.replace(errno).is_none() {
            tracing::error!(
                "queue {}: the ublk driver refuses a command: {errno}",
                self.port.number()
            );
        }
    }
}

#[cfg(test)]
mod tests;
