// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device in virtual time: a latency model, bytes (or none, where only time matters), and
//! faults.
//!
//! The bytes of an operation move at adversarial moments: it is split in up to two parts, and
//! each part moves when the operation is submitted, when it completes, or at some moment between.
//! Nothing in a real device's contract is stronger than that for operations that overlap in time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::ops::Range;

use larder_core::buf::{Buf, SECTOR};
use larder_core::exec::{Io, IoId, IoKind, Nanos};
use larder_core::request::Errno;
use larder_model::{Kind, Model, Op, Wear};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use slab::Slab;

use crate::faults::Strike;
pub use crate::faults::{Faults, Rot};
use crate::store::{Snapshot, Store};

/// The end of an operation, for the shard that asked.
pub(crate) struct Done {
    /// It failed, and is a flush or includes one.
    pub flush_failed: bool,
    pub shard: usize,
    pub id: IoId,
    pub result: Result<(), Errno>,
    pub buf: Option<Buf>,
}

struct Pending {
    shard: usize,
    io: Io,
    /// Byte ranges of the operation that have not moved yet.
    parts: Vec<(u64, u64)>,
    snapshot: Snapshot,
    held: bool,
    /// A slow operation: it is delayed until this time.
    late: bool,
    strike: Option<Strike>,
    result: Result<(), Errno>,
}

/// The device, see the module.
pub struct SimDevice {
    model: Box<dyn Model>,
    /// Its bytes; without, reads return zeroes.
    pub store: Option<Store>,
    /// Its faults.
    pub faults: Faults,
    /// Whether it has lost writes that it had acknowledged.
    pub forgot: bool,
    pending: Slab<Pending>,
    moves: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    /// Slow operations, which the model receives later.
    late: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    /// Writes that land once more, and when.
    again: VecDeque<(Nanos, u64, Vec<u8>)>,
    /// Digests of the sectors that rot caused and that reads returned.
    served: HashSet<u64>,
    /// Distinguishes operations that use the same place in the table one after another.
    serials: Vec<u64>,
    serial: u64,
    rng: Pcg64Mcg,
    /// Moments between submission and completion lie within this span of submission.
    spread: Nanos,
    reads: u64,
    writes: u64,
}

impl SimDevice {
    /// A device; `spread` is about the time that an operation takes.
    #[must_use]
    pub fn new(model: Box<dyn Model>, store: Option<Store>, seed: u64, spread: Nanos) -> Self {
        Self {
            model,
            store,
            faults: Faults::default(),
            forgot: false,
            pending: Slab::new(),
            moves: BinaryHeap::new(),
            late: BinaryHeap::new(),
            again: VecDeque::new(),
            served: HashSet::new(),
            serials: Vec::new(),
            serial: 0,
            rng: Pcg64Mcg::new(u128::from(seed) << 1 | 1),
            spread: spread.max(1),
            reads: 0,
            writes: 0,
        }
    }

    /// Reads and writes carried out.
    #[must_use]
    pub fn operations(&self) -> (u64, u64) {
        (self.reads, self.writes)
    }

    /// What its flash has done, of a drive with a flash translation layer.
    #[must_use]
    pub fn wear(&self) -> Option<Wear> {
        self.model.wear()
    }

    pub(crate) fn submit(&mut self, now: Nanos, shard: usize, io: Io) {
        let kind = match io.kind {
            IoKind::Read => Kind::Read,
            IoKind::Write { .. } => Kind::Write,
            IoKind::Flush => Kind::Flush,
            IoKind::Trim { .. } | IoKind::Zero { .. } => Kind::Trim,
        };
        self.reads += u64::from(kind == Kind::Read);
        self.writes += u64::from(kind == Kind::Write);
        let fua = matches!(io.kind, IoKind::Write { fua: true });
        let op = Op { kind, offset: io.offset, len: io.len, fua };
        let result = self.fault(now, kind, io.offset..io.offset + io.len);
        let hangs = self.faults.hang && self.faults.is_within(io.offset);
        let held = hangs || self.chance(self.faults.hang_share);
        let late = !held && self.chance(self.faults.slow_share);
        let snapshot = match (&self.store, kind) {
            (Some(store), Kind::Flush) if result.is_ok() => store.snapshot(),
            _ => 0,
        };
        let strike = if kind == Kind::Write && result.is_ok() { self.strike(&io) } else { None };
        let parts = Vec::new();
        let mut pending = Pending { shard, io, parts, snapshot, held, late, strike, result };
        if self.store.is_some() && kind != Kind::Flush {
            pending.parts = self.split(pending.io.len);
        }
        let parts = pending.parts.len();
        let key = self.pending.insert(pending);
        self.serial += 1;
        self.serials.resize(self.serials.len().max(key + 1), 0);
        self.serials[key] = self.serial;
        for _ in 0..parts {
            match self.rng.random_range(0..3) {
                0 => self.move_part(key),
                1 => {
                    let at = now + self.rng.random_range(0..self.spread);
                    self.moves.push(Reverse((at, self.serial, key)));
                }
                _ => {}
            }
        }
        if late {
            let at = now + self.rng.random_range(0..=self.faults.slow_ns);
            self.late.push(Reverse((at, self.serial, key)));
        } else if !held {
            self.model.submit(now, key as u64, op);
        }
    }

    fn strike(&mut self, io: &Io) -> Option<Strike> {
        let (rot, rng) = (&self.faults.rot, &mut self.rng);
        if rot.places.is_empty() {
            return None;
        }
        rot.strike(io.offset..io.offset + io.len, |below| rng.random_range(0..below.max(1)))
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random_bool(share)
    }

    fn fault(&mut self, now: Nanos, kind: Kind, range: Range<u64>) -> Result<(), Errno> {
        if self.faults.vanished {
            return Err(Errno::ENXIO);
        }
        if now < self.faults.fails_until {
            return Err(Errno::EIO);
        }
        if kind != Kind::Flush && self.faults.ends_at.is_some_and(|at| range.end > at) {
            return Err(Errno::EIO);
        }
        if !self.faults.is_within(range.start) {
            return Ok(());
        }
        let share = match kind {
            Kind::Read => self.faults.read_errors,
            Kind::Write | Kind::Trim => self.faults.write_errors,
            Kind::Flush => self.faults.flush_errors,
        };
        if self.chance(share) { Err(self.faults.errno.unwrap_or(Errno::EIO)) } else { Ok(()) }
    }

    fn split(&mut self, len: u64) -> Vec<(u64, u64)> {
        let sectors = len.div_ceil(SECTOR as u64);
        if sectors < 2 || self.rng.random_bool(0.5) {
            return vec![(0, len)];
        }
        let cut = self.rng.random_range(1..sectors) * SECTOR as u64;
        vec![(0, cut), (cut, len - cut)]
    }

    /// Moves the bytes of one part that has not moved yet.
    fn move_part(&mut self, key: usize) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        if pending.parts.is_empty() {
            return;
        }
        // An operation that does not move because the device is gone fails, also if the device returns soon.
        if self.faults.vanished {
            pending.result = Err(Errno::ENXIO);
        }
        let failed = pending.result.is_err();
        let part = self.rng.random_range(0..pending.parts.len());
        let (from, len) = pending.parts.swap_remove(part);
        let Some(store) = self.store.as_mut() else { return };
        let offset = pending.io.offset + from;
        let at = pending.io.at + from as usize;
        let memory = pending.io.buf.as_mut().map(|b| &mut b[at..at + len as usize]);
        match (pending.io.kind, memory) {
            // A failed read returns arbitrary bytes; a failed write leaves the old bytes or the new.
            (IoKind::Read, Some(memory)) if failed => memory.fill(0xEE),
            (_, _) if self.faults.vanished || (failed && self.rng.random_bool(0.5)) => {}
            (IoKind::Read, Some(memory)) => {
                store.read(offset, memory);
                if store.is_faulty() {
                    note_damaged(store, offset, memory, &mut self.served);
                }
            }
            (IoKind::Write { fua }, Some(memory)) => match pending.strike {
                Some(Strike::Lost) => store.lose(offset, len, fua),
                Some(Strike::To(to)) => {
                    store.lose(offset, len, fua);
                    store.stray(to + from, memory, fua);
                }
                _ => store.write(offset, memory, fua && !failed),
            },
            (IoKind::Trim { fua } | IoKind::Zero { fua, .. }, _) => store.zero(offset, len, fua),
            _ => {}
        }
    }

    /// The time of the next event.
    pub(crate) fn next(&self) -> Option<Nanos> {
        let moves = self.moves.peek().map(|Reverse((at, ..))| *at);
        let late = self.late.peek().map(|Reverse((at, ..))| *at);
        let again = self.again.front().map(|(at, ..)| *at);
        [self.model.next(), moves, late, again].into_iter().flatten().min()
    }

    /// The next operation that has ended by `now`.
    pub(crate) fn poll(&mut self, now: Nanos) -> Option<Done> {
        while self.moves.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            if let Some(Reverse((_, serial, key))) = self.moves.pop()
                && self.serials[key] == serial
            {
                self.move_part(key);
            }
        }
        self.go_on(now);
        let (key, _) = self.model.poll(now)?;
        Some(self.finish(now, key as usize))
    }

    /// Carries out delayed operations, and repeated writes, whose time has come.
    fn go_on(&mut self, now: Nanos) {
        while self.late.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Some(Reverse((_, serial, key))) = self.late.pop() else { break };
            if let Some(pending) = self.pending.get_mut(key).filter(|_| self.serials[key] == serial)
                && std::mem::take(&mut pending.late)
            {
                let op = Op { kind: Kind::Write, offset: pending.io.offset, len: 0, fua: false };
                self.model.submit(now, key as u64, op);
            }
        }
        while self.again.front().is_some_and(|(at, ..)| *at <= now) {
            if let (Some((_, at, bytes)), Some(store)) =
                (self.again.pop_front(), self.store.as_mut())
            {
                store.stray(at, &bytes, false);
            }
        }
    }

    /// Whether a read returned a sector of just these bytes that rot had caused.
    #[must_use]
    pub fn served_rotten(&self, sector: &[u8]) -> bool {
        self.served.contains(&digest(sector))
    }

    fn finish(&mut self, now: Nanos, key: usize) -> Done {
        // Operations that were in flight when the device vanished fail too.
        if let Some(pending) = self.pending.get_mut(key).filter(|_| self.faults.vanished) {
            pending.result = Err(Errno::ENXIO);
        }
        while self.pending.get(key).is_some_and(|p| !p.parts.is_empty()) && self.store.is_some() {
            self.move_part(key);
        }
        self.serials[key] = 0;
        let mut pending = self.pending.remove(key);
        let Io { kind, at, len, buf, .. } = &mut pending.io;
        if let (None, IoKind::Read, Some(buf)) = (&self.store, &*kind, buf) {
            buf[*at..][..*len as usize].fill(0);
        }
        if let Some(store) = self.store.as_mut().filter(|_| pending.io.kind == IoKind::Flush) {
            if pending.result.is_ok() {
                match pending.io.len {
                    0 => store.make_durable(pending.snapshot),
                    len => {
                        let range = pending.io.offset..pending.io.offset + len;
                        store.make_range_durable(pending.snapshot, range);
                    }
                }
            } else if self.faults.flush_loses {
                let share = self.rng.random_range(0..4) as f64 / 4.0;
                let (offset, len) = (pending.io.offset, pending.io.len);
                let range = if len == 0 { 0..store.bytes() } else { offset..offset + len };
                store.forget(range, || self.rng.random_bool(share));
                self.forgot = true;
            }
        }
        if pending.strike == Some(Strike::Again)
            && let Some(buf) = &pending.io.buf
        {
            let at = self.again.back().map_or(now, |(at, ..)| *at).max(now);
            let at = at + self.rng.random_range(0..20 * self.spread);
            let bytes = &buf[pending.io.at..pending.io.at + pending.io.len as usize];
            self.again.push_back((at, pending.io.offset, bytes.to_vec()));
        }
        Done {
            flush_failed: (pending.io.kind == IoKind::Flush || pending.io.kind.is_fua())
                && pending.result.is_err(),
            shard: pending.shard,
            id: pending.io.id,
            result: pending.result,
            buf: pending.io.buf,
        }
    }

    /// Releases the held operations. The latency of each begins at this moment.
    pub fn release(&mut self, now: Nanos) {
        self.faults.hang = false;
        self.faults.hang_share = 0.0;
        for (key, pending) in self.pending.iter_mut().filter(|(_, p)| p.held) {
            pending.held = false;
            let op = Op { kind: Kind::Write, offset: pending.io.offset, len: 0, fua: false };
            self.model.submit(now, key as u64, op);
        }
    }

    /// Operations in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }
}

/// Records the sectors of a read that rot caused.
fn note_damaged(store: &Store, offset: u64, bytes: &[u8], served: &mut HashSet<u64>) {
    for (chunk, sector) in bytes.chunks(SECTOR).zip(offset / SECTOR as u64..) {
        if store.now(sector).damaged {
            served.insert(digest(chunk));
        }
    }
}

/// FNV-1a over words.
fn digest(sector: &[u8]) -> u64 {
    sector.as_chunks::<8>().0.iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
    })
}
