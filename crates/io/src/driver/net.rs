// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets on the ring, so that one system call serves connections and disks.
//!
//! Invariants: a table here owns the memory of a receive or send until its completion; message headers and vectors are
//! in boxes that do not move. The caller submits at most one receive and one send per connection, since two would have
//! no order.
//!
//! Why not multishot receives with provided buffers: the data would arrive in buffers of the ring and be copied into
//! the aligned ones that devices need.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::RawFd;

use io_uring::{opcode, types};
use larder_core::buf::Buf;
use larder_core::request::Errno;
use slab::Slab;

use super::ring::{Ring, Tag};
use crate::errno::{ECANCELED, from_cqe};

/// Vectors of one send; the kernel accepts up to 1,024.
const MAX_VECTORS: usize = 256;
/// How often an interrupted operation is retried.
const MAX_TRIES: u8 = 100;

/// `struct iovec`.
#[repr(C)]
struct IoVec {
    base: *mut c_void,
    len: usize,
}

/// `struct msghdr` of 64-bit Linux with the C library's padding, which equals the kernel's.
#[repr(C)]
struct MsgHdr {
    name: *mut c_void,
    name_len: u32,
    iov: *mut IoVec,
    iov_len: usize,
    control: *mut c_void,
    control_len: usize,
    flags: i32,
}

/// The data of one send, in order: ranges of buffers that it owns.
#[derive(Debug, Default)]
pub struct SendBatch {
    parts: Vec<(Buf, Range<usize>)>,
    total: usize,
}

impl SendBatch {
    /// Appends a range of a buffer, limited to the buffer's length.
    pub fn push(&mut self, buf: Buf, range: Range<usize>) {
        debug_assert!(range.start <= range.end && range.end <= buf.len(), "outside the buffer");
        let end = range.end.min(buf.len());
        let range = range.start.min(end)..end;
        self.total += range.len();
        self.parts.push((buf, range));
    }

    /// Number of bytes to send.
    #[must_use]
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Empties the batch, keeping its allocation.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.total = 0;
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|(buf, range)| &buf[range.clone()])
    }
}

/// An event of a connection.
#[derive(Debug)]
pub enum NetEvent {
    /// A receive ended.
    Received {
        /// The connection.
        conn: u32,
        /// The buffer of the receive.
        buf: Buf,
        /// Where in it the data begins.
        at: usize,
        /// Number of bytes received; 0 when the peer has closed.
        result: Result<usize, Errno>,
    },
    /// A send ended: all data is sent, or it failed, possibly after a part.
    Sent {
        /// The connection.
        conn: u32,
        /// The result.
        result: Result<(), Errno>,
        /// The batch of the send.
        batch: SendBatch,
    },
}

struct Receive {
    conn: u32,
    fd: RawFd,
    buf: Buf,
    at: usize,
    tries: u8,
}

/// What the kernel reads while a send is in flight; boxed, so that it does not move.
struct Message {
    header: MsgHdr,
    vectors: Vec<IoVec>,
}

struct Sending {
    conn: u32,
    fd: RawFd,
    batch: SendBatch,
    sent: usize,
    message: Box<Message>,
    cancelled: bool,
    tries: u8,
}

/// The tables of one driver's connections.
#[derive(Default)]
pub(super) struct Net {
    receives: Slab<Receive>,
    sends: Slab<Sending>,
    /// Messages for reuse.
    #[allow(clippy::vec_box)] // the kernel reads from these addresses
    spare: Vec<Box<Message>>,
    events: VecDeque<NetEvent>,
    /// The driver is being dropped: nothing is continued.
    pub(super) closing: bool,
}

impl Net {
    pub(super) fn next_event(&mut self) -> Option<NetEvent> {
        self.events.pop_front()
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether a connection waits for its client.
    pub(super) fn is_receiving(&self) -> bool {
        !self.receives.is_empty()
    }

    pub(super) fn receive(&mut self, ring: &mut Ring, conn: u32, fd: RawFd, buf: Buf, at: usize) {
        if at >= buf.len() {
            let result = Err(Errno::EINVAL);
            self.events.push_back(NetEvent::Received { conn, buf, at, result });
            return;
        }
        let key = self.receives.insert(Receive { conn, fd, buf, at, tries: 0 });
        self.submit_receive(ring, key);
    }

    #[allow(unsafe_code)]
    fn submit_receive(&mut self, ring: &mut Ring, key: usize) {
        let receive = &mut self.receives[key];
        let room = &mut receive.buf[receive.at..];
        let len = u32::try_from(room.len()).unwrap_or(u32::MAX);
        let entry = opcode::Recv::new(types::Fd(receive.fd), room.as_mut_ptr(), len)
            .build()
            .user_data(Tag::Receive.with(key));
        // SAFETY: the memory belongs to the buffer in the table, whose pages do not move; no code accesses or frees it
        // before `received`, and `room` has `len` bytes.
        unsafe { ring.push(entry) };
    }

    pub(super) fn send(&mut self, ring: &mut Ring, conn: u32, fd: RawFd, batch: SendBatch) {
        if batch.is_empty() {
            self.events.push_back(NetEvent::Sent { conn, result: Ok(()), batch });
            return;
        }
        let message = self.spare.pop().unwrap_or_else(|| {
            Box::new(Message { header: empty_header(), vectors: Vec::with_capacity(16) })
        });
        let send = Sending { conn, fd, batch, sent: 0, message, cancelled: false, tries: 0 };
        let key = self.sends.insert(send);
        self.submit_send(ring, key);
    }

    #[allow(unsafe_code)]
    fn submit_send(&mut self, ring: &mut Ring, key: usize) {
        let send = &mut self.sends[key];
        let Message { header, vectors } = &mut *send.message;
        vectors.clear();
        let mut skip = send.sent;
        for slice in send.batch.slices() {
            if skip >= slice.len() {
                skip -= slice.len();
                continue;
            }
            let rest = &slice[skip..];
            skip = 0;
            vectors.push(IoVec { base: rest.as_ptr().cast_mut().cast(), len: rest.len() });
            if vectors.len() == MAX_VECTORS {
                break;
            }
        }
        header.iov = vectors.as_mut_ptr();
        header.iov_len = vectors.len();
        let flags =
            rustix::net::SendFlags::NOSIGNAL.bits() | rustix::net::RecvFlags::WAITALL.bits(); // also: send all before completing
        let entry =
            opcode::SendMsg::new(types::Fd(send.fd), std::ptr::from_ref::<MsgHdr>(header).cast())
                .flags(flags)
                .build()
                .user_data(Tag::Send.with(key));
        // SAFETY: header and vectors are in a box in the table, and the bytes that they name are in the batch's buffers
        // and vector; none of them is modified, moved or freed before `sent`, and the kernel only reads them. The
        // layout of both structures is the system's.
        unsafe { ring.push(entry) };
    }

    pub(super) fn received(&mut self, ring: &mut Ring, key: usize, result: i32) {
        let Some(receive) = self.receives.get_mut(key) else { return };
        let result = from_cqe(result);
        if result == Err(Errno(4)) && receive.tries < MAX_TRIES && !self.closing {
            receive.tries += 1;
            return self.submit_receive(ring, key);
        }
        let Receive { conn, buf, at, .. } = self.receives.remove(key);
        self.events.push_back(NetEvent::Received { conn, buf, at, result });
    }

    pub(super) fn sent(&mut self, ring: &mut Ring, key: usize, result: i32) {
        let Some(send) = self.sends.get_mut(key) else { return };
        let result = match from_cqe(result) {
            Ok(0) => Err(Errno::EIO),
            Ok(n) => {
                send.sent += n;
                send.tries = 0;
                Ok(())
            }
            // EINTR: a signal of the process.
            Err(Errno(4)) if send.tries < MAX_TRIES => {
                send.tries += 1;
                Ok(())
            }
            Err(errno) => Err(errno),
        };
        let result = match result {
            Ok(()) if send.sent < send.batch.len() && (send.cancelled || self.closing) => {
                Err(ECANCELED)
            }
            Ok(()) if send.sent < send.batch.len() => return self.submit_send(ring, key),
            result => result,
        };
        let Sending { conn, batch, message, .. } = self.sends.remove(key);
        if self.spare.len() < MAX_VECTORS {
            self.spare.push(message);
        }
        self.events.push_back(NetEvent::Sent { conn, result, batch });
    }

    /// Cancels a connection's receive.
    pub(super) fn cancel_receive(&mut self, ring: &mut Ring, conn: u32) {
        let receives = self.receives.iter().filter(|(_, r)| r.conn == conn);
        Self::cancel_all(ring, receives.map(|(key, _)| Tag::Receive.with(key)));
    }

    /// Cancels all operations of a connection.
    pub(super) fn cancel(&mut self, ring: &mut Ring, conn: u32) {
        self.cancel_receive(ring, conn);
        let sends = self.sends.iter_mut().filter(|(_, s)| s.conn == conn);
        Self::cancel_all(
            ring,
            sends.map(|(key, send)| {
                send.cancelled = true;
                Tag::Send.with(key)
            }),
        );
    }

    #[allow(unsafe_code)]
    fn cancel_all(ring: &mut Ring, targets: impl Iterator<Item = u64>) {
        for target in targets {
            let entry = opcode::AsyncCancel::new(target).build().user_data(Tag::Ignored.with(0));
            // SAFETY: the entry points to no memory.
            unsafe { ring.push(entry) };
        }
    }
}

fn empty_header() -> MsgHdr {
    MsgHdr {
        name: std::ptr::null_mut(),
        name_len: 0,
        iov: std::ptr::null_mut(),
        iov_len: 0,
        control: std::ptr::null_mut(),
        control_len: 0,
        flags: 0,
    }
}
