// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver: one per worker thread, with one io_uring, for everything on which the thread waits.
//!
//! ```text
//! loop {
//!     while let Some(done) = driver.next_done() { engine.complete(..) }
//!     while let Some(event) = driver.next_net() { front.. }
//!     while let Some(event) = driver.next_queue_event() { front.. }
//!     engine.run(now); while let Some(io) = engine.next_io() { driver.start(owner, io) }
//!     driver.turn(engine.next_deadline())?;
//! }
//! ```
//!
//! Invariants:
//! - Memory given to the kernel (buffers, vectors, message headers) is owned by this driver's tables, at a fixed
//!   address, until its completion has been reaped.
//! - Dropping a driver cancels the operations in flight and waits for them, within a time limit. Memory of operations
//!   that a hung device does not complete within it is leaked, never freed: the device may still write to it.
//! - Every started operation ends exactly once; every `turn` waits in the kernel at most once.
//! - The caller bounds the number of operations in flight; the tables grow to that bound.
//!
//! Why not an async runtime: the engine is its own executor, and needs one system call per turn.

mod attached;
mod late;
mod net;
mod ops;
mod queue;
mod remote;
mod ring;
mod shutdown;
mod spin;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{opcode, types};
use larder_core::buf::Buf;
use larder_core::exec::{DevId, Io, IoId, IoKind, Nanos};
use larder_core::request::Errno;
use slab::Slab;

use self::attached::Attached;
use self::late::{Late, earlier};
use self::net::Net;
use self::ops::Op;
use self::queue::Queues;
use self::remote::Remote;
use self::ring::{Ring, Tag, Wait};
use self::spin::Spin;
use crate::clock;
use crate::device::file::ZERO_CHUNK;
use crate::device::flushes::{Entry, NEVER};
use crate::device::nbd::Finished;
use crate::device::{Base, Device};
use crate::errno::{ECANCELED, from_sys};
use crate::fault::Verdict;
use crate::waker::Waker;

pub use self::net::{NetEvent, SendBatch};
pub use self::queue::{QueueEvent, QueueOp};
pub use self::ring::DriverError;

/// A completed operation.
#[derive(Debug)]
pub struct Done {
    /// As given to [`Driver::start`].
    pub owner: u32,
    /// The operation's id.
    pub id: IoId,
    /// The result.
    pub result: Result<(), Errno>,
    /// The operation's buffer.
    pub buf: Option<Buf>,
}

/// The driver. It stays on the thread that created it.
pub struct Driver {
    ring: Ring,
    devices: Slab<Attached>,
    ids: Vec<(DevId, u32)>,
    ops: Slab<Op>,
    done: VecDeque<Done>,
    net: Net,
    queues: Queues,
    late: Late,
    /// Operations that wait for a turn (`device/flushes.rs`), each with the number of flushes that had begun before it.
    parked: Vec<(usize, u64)>,
    remote: Remote,
    waker: Waker,
    /// Where the kernel stores what it reads from the waker's event.
    wake_word: Box<u64>,
    /// Zeroes to write where ranges cannot be deallocated; allocated at first use, never modified.
    zeroes: Buf,
    /// Reused allocation.
    reaped: Vec<(u64, i32)>,
    spin: Spin,
    closing: bool,
    /// The ring accepts one thread only.
    not_send: PhantomData<*const ()>,
}

impl Driver {
    /// A driver for the calling thread.
    ///
    /// # Errors
    /// The system has no usable io_uring.
    pub fn new() -> Result<Self, DriverError> {
        let mut driver = Self {
            ring: Ring::new()?,
            devices: Slab::new(),
            ids: Vec::new(),
            ops: Slab::new(),
            done: VecDeque::new(),
            net: Net::default(),
            queues: Queues::default(),
            late: Late::default(),
            parked: Vec::new(),
            remote: Remote::default(),
            waker: Waker::new().map_err(|e| DriverError::Setup(from_sys(e)))?,
            wake_word: Box::new(0),
            zeroes: Buf::with_len(0),
            reaped: Vec::new(),
            spin: Spin::default(),
            closing: false,
            not_send: PhantomData,
        };
        driver.listen();
        Ok(driver)
    }

    /// The time, on the clock that all drivers of the process share.
    #[must_use]
    pub fn now(&self) -> Nanos {
        clock::now()
    }

    /// A handle that wakes this driver's thread from [`turn`](Self::turn).
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Attaches a device as `id`, replacing the previous one.
    pub fn attach(&mut self, id: DevId, device: Device) {
        self.detach(id);
        let index = self.devices.insert(Attached::new(device, &self.waker));
        self.ids.push((id, index as u32));
    }

    /// Detaches a device. Operations in flight complete; later ones fail.
    pub fn detach(&mut self, id: DevId) {
        let Some(at) = self.ids.iter().position(|(known, _)| *known == id) else { return };
        let index = self.ids.swap_remove(at).1 as usize;
        self.devices[index].detached = true;
        self.free_device(index);
    }

    fn free_device(&mut self, index: usize) {
        let on = &self.devices[index];
        if on.is_over() {
            on.leave();
            self.devices.remove(index);
        }
    }

    /// Starts an operation; [`next_done`](Self::next_done) returns its completion with the same `owner`. It reaches the
    /// kernel with the next [`turn`](Self::turn), unless the device completes it at once.
    pub fn start(&mut self, owner: u32, mut io: Io) {
        let known = self.ids.iter().find(|(id, _)| *id == io.dev);
        let Some(index) = known.map(|(_, index)| *index) else {
            return self.push_done(owner, io, Err(Errno::ENXIO));
        };
        if io.kind == IoKind::Flush {
            (io.offset, io.len) = (0, 0); // of the whole device
        }
        let device = &self.devices[index as usize].device;
        if let Err(errno) = device.check(&io) {
            return self.push_done(owner, io, Err(errno));
        }
        if !device.is_plain() {
            return self.start_late(owner, io, index);
        }
        if device.base().answers_at_once() {
            let result = device.base().run(&mut io);
            return self.end(index as usize, owner, io, result);
        }
        let key = self.insert(Op::new(owner, io, index));
        self.begin(key);
    }

    fn insert(&mut self, op: Op) -> usize {
        self.devices[op.device as usize].in_flight += 1;
        self.ops.insert(op)
    }

    /// Ends an operation on a device. A failed one that includes a flush is counted.
    fn end(&mut self, index: usize, owner: u32, io: Io, result: Result<(), Errno>) {
        let failed = result.is_err_and(|errno| errno != ECANCELED);
        if failed && (io.kind == IoKind::Flush || io.kind.is_fua()) {
            self.devices[index].device.flushes().failed();
        }
        self.push_done(owner, io, result);
    }

    fn push_done(&mut self, owner: u32, io: Io, result: Result<(), Errno>) {
        self.done.push_back(Done { owner, id: io.id, result, buf: io.buf });
    }

    /// Runs an operation that is in the table on its device.
    fn begin(&mut self, key: usize) {
        let op = &mut self.ops[key];
        let result = match self.devices[op.device as usize].device.base() {
            Base::File(file) if !file.in_memory => {
                if op.begin(file) {
                    return self.submit(key);
                }
                Err(Errno::EOPNOTSUPP)
            }
            Base::Nbd(nbd) => {
                self.remote.in_flight += 1;
                return nbd.submit(self.devices[op.device as usize].remote, key as u32, &mut op.io);
            }
            base => base.run(&mut op.io),
        };
        self.open_gate(key, result);
    }

    fn submit(&mut self, key: usize) {
        let op = &mut self.ops[key];
        let device = &self.devices[op.device as usize].device;
        let Base::File(file) = device.base() else { return };
        if op.wants_turn(file) {
            let begun = if op.is_sync() { device.flushes().begun() } else { NEVER };
            return self.sync(key, begun);
        }
        if op.writes_zeroes() && self.zeroes.is_empty() {
            self.zeroes = Buf::zeroed(ZERO_CHUNK as usize);
        }
        op.submit(&mut self.ring, file, key, &self.zeroes);
    }

    /// Takes a turn for a flush or a FUA write, or waits while another driver has it.
    fn sync(&mut self, key: usize, begun: u64) {
        let op = &mut self.ops[key];
        match self.devices[op.device as usize].device.flushes().enter(begun, &self.waker) {
            Entry::Begins => {
                op.syncing = true;
                self.submit(key);
            }
            Entry::Waits => self.parked.push((key, begun)),
            Entry::Covered => self.open_gate(key, Ok(())),
        }
    }

    /// A device of which a flush failed, of this driver or another one, since the last call. The caller calls this until there
    /// is none, before it processes the results of flushes.
    pub fn failed_flush(&mut self) -> Option<DevId> {
        let Self { ids, devices, .. } = self;
        let newly = |(_, index): &&(DevId, u32)| {
            let on = &mut devices[*index as usize];
            let now = on.device.flushes().failures();
            std::mem::replace(&mut on.failures, now) != now
        };
        ids.iter().find(newly).map(|(id, _)| *id)
    }

    /// Opens a gate: the device, or another reason to wait, has completed the operation.
    fn open_gate(&mut self, key: usize, result: Result<(), Errno>) {
        let op = &mut self.ops[key];
        op.gates -= 1;
        op.result = op.result.and(result);
        if op.gates > 0 {
            return;
        }
        let Op { owner, io, device, mut result, .. } = self.ops.remove(key);
        let entry = &mut self.devices[device as usize];
        entry.in_flight -= 1;
        if entry.device.fault().is_some_and(crate::Fault::is_vanished) {
            result = Err(Errno::ENXIO);
        }
        let index = device as usize;
        self.end(index, owner, io, result);
        self.free_device(index);
    }

    /// Starts an operation on a device with faults or a model.
    fn start_late(&mut self, owner: u32, io: Io, index: u32) {
        let device = &self.devices[index as usize].device;
        let verdict = device.fault().map_or(Verdict::Run(0), |fault| fault.judge(&io));
        match verdict {
            Verdict::Fail(errno) => self.end(index as usize, owner, io, Err(errno)),
            Verdict::Hold => {
                let key = self.insert(Op::new(owner, io, index));
                self.late.hold(key as u32);
            }
            Verdict::Run(delay) => {
                let key = self.insert(Op::new(owner, io, index));
                self.begin_late(key, delay);
            }
        }
    }

    /// Begins an operation that waits for more than the device itself.
    fn begin_late(&mut self, key: usize, delay: Nanos) {
        let op = &mut self.ops[key];
        let on = &self.devices[op.device as usize];
        self.late.add_gates((key as u32, op), on, (clock::now(), delay));
        self.begin(key);
    }

    /// Opens gates that are due and begins released operations; returns the time of the next event.
    fn run_late(&mut self) -> Option<Nanos> {
        let now = clock::now();
        while let Some(key) = self.late.due(now) {
            self.open_gate(key as usize, Ok(()));
        }
        for key in self.late.take_held() {
            let op = &self.ops[key as usize];
            let fault = self.devices[op.device as usize].device.fault();
            match fault.map_or(Verdict::Run(0), |fault| fault.judge_held(&op.io)) {
                Verdict::Hold => self.late.hold(key),
                Verdict::Fail(errno) => self.open_gate(key as usize, Err(errno)),
                Verdict::Run(delay) => self.begin_late(key as usize, delay),
            }
        }
        let mut finished = std::mem::take(&mut self.late.finished);
        let next = self.late.collect(&self.devices, now, &mut finished);
        for key in finished.drain(..) {
            self.open_gate(key as usize, Ok(()));
        }
        self.late.finished = finished;
        next
    }

    /// Collects the operations that servers have completed.
    fn collect_remote(&mut self) {
        let mut finished = std::mem::take(&mut self.remote.finished);
        self.remote.collect(&self.devices, &mut finished);
        for Finished { key, result, buf, .. } in finished.drain(..) {
            if let Some(op) = self.ops.get_mut(key as usize) {
                op.io.buf = buf;
                self.open_gate(key as usize, result);
            }
        }
        self.remote.finished = finished;
    }

    /// Submits all queued operations and reaps completions, in one system call. If there is nothing to report it waits
    /// until there is, a [`Waker`] wakes it, or the clock reaches `until`. It may return without anything to report.
    ///
    /// # Errors
    /// The ring has failed, which the caller cannot repair.
    pub fn turn(&mut self, until: Option<Nanos>) -> Result<(), DriverError> {
        let mut limit = until;
        if !self.late.is_empty() {
            let next = self.run_late();
            limit = earlier(limit, next);
        }
        self.collect_remote();
        let quiet = self.done.is_empty() && self.net.is_quiet() && self.queues.is_quiet();
        let mut wait = match limit {
            _ if !quiet => Wait::No,
            None => Wait::Forever,
            Some(limit) => match limit.saturating_sub(clock::now()) {
                0 => Wait::No,
                span => Wait::For(span),
            },
        };
        if wait != Wait::No && (self.net.is_receiving() || self.queues.is_waiting()) {
            if !self.ring.is_idle() {
                self.ring.enter(Wait::No)?;
            }
            let (ring, waker) = (&mut self.ring, &self.waker);
            if self.spin.poll(limit, || ring.has_news() || waker.take_notice()) {
                wait = Wait::No;
            }
        }
        let sleeps = wait != Wait::No && self.waker.begin_sleep();
        if !sleeps {
            wait = Wait::No;
        }
        let result = if sleeps || !self.ring.is_idle() { self.ring.enter(wait) } else { Ok(()) };
        if sleeps {
            self.waker.end_sleep();
        }
        self.reap();
        for (key, begun) in std::mem::take(&mut self.parked) {
            self.sync(key, begun);
        }
        if sleeps && !self.late.is_empty() {
            self.run_late();
        }
        self.collect_remote();
        result
    }

    fn reap(&mut self) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.ring.reap(&mut reaped);
        for (data, result) in reaped.drain(..) {
            match Tag::split(data) {
                (Tag::Op, key) => self.advance(key, result),
                (Tag::Receive, key) => self.net.received(&mut self.ring, key, result),
                (Tag::Send, key) => self.net.sent(&mut self.ring, key, result),
                (Tag::Queue, key) => self.queues.ended(&mut self.ring, key, result),
                (Tag::Wake, _) if !self.closing => self.listen(),
                (Tag::Wake | Tag::Ignored, _) => {}
            }
        }
        self.reaped = reaped;
    }

    fn advance(&mut self, key: usize, result: i32) {
        let Some(op) = self.ops.get_mut(key) else { return };
        let device = &self.devices[op.device as usize].device;
        let Base::File(file) = device.base() else { return };
        let block = u64::from(device.geometry().block_bytes);
        match op.advance(file, result, block, self.closing) {
            Some(result) => {
                op.leave(device.flushes(), result);
                self.open_gate(key, result);
            }
            None => self.submit(key),
        }
    }

    /// Makes the kernel read the waker's event, which ends a wait when the event is signalled.
    #[allow(unsafe_code)]
    fn listen(&mut self) {
        let fd = types::Fd(self.waker.event().as_raw_fd());
        let word = std::ptr::from_mut(&mut *self.wake_word).cast();
        let entry = opcode::Read::new(fd, word, 8).build().user_data(Tag::Wake.with(0));
        // SAFETY: the word is 8 bytes in a box that only this entry uses; one such read is in flight at a time, and
        // dropping the driver waits for it or leaks the word.
        unsafe { self.ring.push(entry) };
    }

    /// The next completed operation, if there is one.
    pub fn next_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Number of operations that have started and not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// Receives at least one byte into `buf[at..]`; ends with [`NetEvent::Received`]. One receive at a time per
    /// connection. The socket must be blocking (no `O_NONBLOCK`), and the caller keeps it open until the event.
    pub fn recv(&mut self, conn: u32, fd: BorrowedFd<'_>, buf: Buf, at: usize) {
        self.net.receive(&mut self.ring, conn, fd.as_raw_fd(), buf, at);
    }

    /// Sends all of `batch`; ends with [`NetEvent::Sent`]. One send at a time per connection; the socket is as for
    /// [`recv`](Self::recv). A closed connection causes an error, not a signal.
    pub fn send(&mut self, conn: u32, fd: BorrowedFd<'_>, batch: SendBatch) {
        self.net.send(&mut self.ring, conn, fd.as_raw_fd(), batch);
    }

    /// Cancels the operations of a connection. Each still has its event, usually with `ECANCELED`.
    pub fn cancel(&mut self, conn: u32) {
        self.net.cancel(&mut self.ring, conn);
    }

    /// Cancels a connection's receive; a send in flight continues.
    pub fn cancel_receive(&mut self, conn: u32) {
        self.net.cancel_receive(&mut self.ring, conn);
    }

    /// The next event of a connection, if there is one.
    pub fn next_net(&mut self) -> Option<NetEvent> {
        self.net.next_event()
    }

    /// Starts an operation of a queue, which ends with a [`QueueEvent`] of the same queue and token.
    pub fn queue_op(&mut self, queue: u32, token: u64, op: QueueOp) {
        self.queues.start(&mut self.ring, queue, token, op);
    }

    /// The next event of a queue, if there is one.
    pub fn next_queue_event(&mut self) -> Option<QueueEvent> {
        self.queues.next_event()
    }

    /// Cancels the operations of a queue as far as the kernel can. They have no event, so its number may be used again.
    pub fn drop_queue(&mut self, queue: u32) {
        self.queues.drop_queue(&mut self.ring, queue);
    }
}
