// SPDX-License-Identifier: MIT OR Apache-2.0
//! One shard over devices in memory: operations complete at once and in order, and time jumps. Operations can be held
//! back.
//!
//! Purpose: the exact bytes on flash after given steps. Equal steps give equal bytes. A crash is simulated by
//! discarding all writes to flash after a given number of them.
//!
//! Why not the simulator's devices: they keep versions of sectors, not bytes.

use larder_core::buf::Buf;
use larder_core::config::{Choices, Limits};
use larder_core::event::Event;
use larder_core::exec::{DevId, Io, IoKind, Nanos};
use larder_core::request::{Errno, Kind, Request};
use larder_core::shape::Shape;
use larder_core::shard::Shard;

/// The origin; any other device is the flash.
pub const ORIGIN: DevId = DevId(0);
/// The flash device.
pub const FLASH: DevId = DevId(1);
/// Limit of events within a span of time.
const PATIENCE: u32 = 100_000;

/// What is held back.
#[derive(Clone, Copy)]
pub enum Held {
    /// Reads.
    Reads,
    /// Writes.
    Writes,
}

impl Held {
    fn has(self, kind: &IoKind) -> bool {
        match self {
            Self::Reads => matches!(kind, IoKind::Read),
            Self::Writes => matches!(kind, IoKind::Write { .. }),
        }
    }
}

/// A shard and the content of its devices.
pub struct Memory {
    /// The engine.
    pub shard: Shard,
    /// The content of the origin.
    pub origin: Vec<u8>,
    /// The content of the flash.
    pub flash: Vec<u8>,
    /// Writes to flash that are still executed.
    pub lands: usize,
    /// Offset and length of each operation that made a range of the origin zero.
    pub zeroed: Vec<(u64, u64)>,
    /// Replies: tag, result, and the data of a read.
    pub replies: Vec<(u64, Result<(), Errno>, Vec<u8>)>,
    /// Replies to requests that hit.
    pub hits: u64,
    /// Operations that are held back, and the device and kind of which they are.
    held: Vec<(DevId, Held, Vec<Io>)>,
    now: Nanos,
}

impl Memory {
    /// A shard in pass-through over this content.
    #[must_use]
    pub fn new(shape: Shape, choices: Choices, origin: Vec<u8>, flash: Vec<u8>) -> Self {
        let shard = Shard::new(shape, &choices.try_into().unwrap(), Limits::default(), ORIGIN);
        let (lands, zeroed, replies) = (usize::MAX, Vec::new(), Vec::new());
        Self { shard, origin, flash, lands, zeroed, replies, hits: 0, held: Vec::new(), now: 0 }
    }

    /// Submits a read that leaves the cache as it is.
    pub fn read_passively(&mut self, tag: u64, offset: u64, len: u64) {
        let (kind, buf) = (Kind::Read, Some(Buf::with_len(len as usize)));
        self.shard.submit(tag, Request { kind, offset, len, buf, passive: true });
        self.settle();
    }

    /// Submits a request; a write writes `fill`.
    pub fn ask(&mut self, tag: u64, kind: Kind, offset: u64, len: u64, fill: u8) {
        let buf = match kind {
            Kind::Read => Some(Buf::with_len(len as usize)),
            Kind::Write { .. } => Some(Buf::copy_of(&vec![fill; len as usize])),
            _ => None,
        };
        self.shard.submit(tag, Request { kind, offset, len, buf, passive: false });
        self.settle();
    }

    /// Holds reads or writes of this device back from now on.
    pub fn hold(&mut self, dev: DevId, what: Held) {
        self.held.push((dev, what, Vec::new()));
    }

    /// Executes what was held back first; it fails if there is an error.
    pub fn release(&mut self, error: Option<Errno>) {
        for mut io in self.held.remove(0).2 {
            if error.is_none() {
                self.carry_out(&mut io);
            }
            self.shard.complete(io.id, error.map_or(Ok(()), Err), io.buf);
        }
        self.settle();
    }

    /// The first byte that a read returned; `None` if it was not answered.
    #[must_use]
    pub fn answer(&self, tag: u64) -> Option<u8> {
        let (.., data) = self.replies.iter().find(|(of, ..)| *of == tag)?;
        data.first().copied()
    }

    /// Advances time.
    pub fn pass(&mut self, span: Nanos) {
        let until = self.now + span;
        for _ in 0..PATIENCE {
            self.settle();
            match self.shard.next_deadline().filter(|at| *at <= until) {
                Some(at) => self.now = self.now.max(at),
                None => {
                    self.now = until;
                    return self.settle();
                }
            }
        }
        panic!("the shard has too many events");
    }

    fn settle(&mut self) {
        for _ in 0..PATIENCE {
            self.shard.run(self.now);
            let mut moved = false;
            while let Some(mut io) = self.shard.next_io() {
                moved = true;
                let of = |(dev, what, _): &&mut (_, Held, _)| *dev == io.dev && what.has(&io.kind);
                if let Some((.., held)) = self.held.iter_mut().find(of) {
                    held.push(io);
                    continue;
                }
                self.carry_out(&mut io);
                self.shard.complete(io.id, Ok(()), io.buf);
            }
            while let Some(reply) = self.shard.next_reply() {
                self.hits += u64::from(reply.hit);
                let data = reply.buf.map(|b| b.to_vec()).unwrap_or_default();
                self.replies.push((reply.tag, reply.result, data));
            }
            while let Some(event) = self.shard.next_event() {
                if let Event::NeedsOriginFlush { volume } = event {
                    moved = true;
                    self.shard.origin_flushed(volume, Ok(()));
                }
            }
            if !moved {
                return;
            }
        }
        panic!("the shard does not become idle");
    }

    fn carry_out(&mut self, io: &mut Io) {
        let device = if io.dev == ORIGIN { &mut self.origin } else { &mut self.flash };
        let range = io.offset as usize..(io.offset + io.len) as usize;
        let memory = io.buf.as_mut().map(|b| &mut b[io.at..io.at + io.len as usize]);
        if io.dev != ORIGIN && !matches!(io.kind, IoKind::Read | IoKind::Flush) {
            if self.lands == 0 {
                return;
            }
            self.lands -= 1;
        }
        if io.dev == ORIGIN && matches!(io.kind, IoKind::Zero { .. }) {
            self.zeroed.push((io.offset, io.len));
        }
        match (io.kind, memory) {
            (IoKind::Read, Some(memory)) => memory.copy_from_slice(&device[range]),
            (IoKind::Write { .. }, Some(memory)) => device[range].copy_from_slice(memory),
            (IoKind::Trim { .. } | IoKind::Zero { .. }, _) => device[range].fill(0),
            _ => {}
        }
    }
}
