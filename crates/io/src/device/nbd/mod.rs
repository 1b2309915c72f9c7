// SPDX-License-Identifier: MIT OR Apache-2.0
//! The export of an NBD server as a device.
//!
//! Purpose: operations go out as requests on one connection, or on up to [`MOST_LINKS`] where the
//! export promises that a flush on one covers all (`MULTI_CONN`), many at a time, matched by
//! cookie; their ends come back to the driver that started them, which is woken. `state` decides,
//! `link` has the threads, `step` cuts operations to what the export takes.
//!
//! Invariants:
//! - A worker never waits for the server. Memory of an operation stays here until its end; a
//!   read's is written to once, when all of its bytes have arrived and nothing was wrong.
//! - A connection whose server breaks the protocol (wrong magic, unknown cookie, a chunk outside
//!   of its read, twice or missing, too long) is not used again.
//! - Every operation ends within [`ServerBounds::give_up_after`], with `EIO` at the latest.
//!
//! **Sending again.** After a lost connection nobody knows what the server did with the requests
//! that it had not answered. Reads and flushes may be sent again. A write may because nothing that
//! overlaps it comes between: of two writing operations that overlap, the second begins when the
//! first has ended, so sending the same bytes again cannot undo anybody's later ones. What must
//! not happen is that the *old* request is carried out late, after the operation ended and another
//! write to the same place was answered. So the old request is remembered as a ghost, and writes
//! that overlap it wait (or fail, in time) until the server has answered it after all or has ended
//! its connection. That is why a connection with overdue answers is not closed but left alone: its
//! answers still tell something. A server that ends a connection and goes on with the requests it
//! had of it, or that is cut off for as long as the kernel tries to reach it (some 15 minutes) and
//! then does, can still undo a write; NBD has no means against that.
//!
//! **Flush after a lost connection.** The server may be another process than before, on a machine
//! that lost power. Writes that it had answered and that no flush had covered may be gone, and it
//! will answer a flush with success all the same. So once that can have happened every flush
//! fails with `EIO` until the device is opened again: nothing repairs what may be lost, and whoever
//! asks must know. A write with FUA that becomes a write and a flush fails the same way. A device
//! that is a cache, whose reads are worth nothing unless they bring what was written, is gone
//! altogether then ([`Device::vanish_on_loss`](crate::Device::vanish_on_loss)).
//!
//! Why not the ring: see `link`. Why no copy is saved for reads: the client checks a reply whole
//! before anybody sees a byte of it, and memory is faster than any network it can come by.

mod bounds;
mod flight;
mod link;
mod members;
mod op;
mod state;
mod step;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use larder_core::exec::{Io, IoKind};
use larder_core::extent::Extent;
use larder_core::request::Errno;
use larder_nbd::client::{Client, Options};
use larder_nbd::codec::can;
use larder_nbd::uri::Uri;

use self::link::Shared;
use self::members::Notice;
use self::state::State;
use self::step::ExportInfo;
use super::error::OpenError;
use super::geometry::{Access, Geometry, SMALL_BLOCK};
use crate::clock;
use crate::waker::Waker;

pub use self::bounds::ServerBounds;
pub(crate) use self::members::Finished;

/// Connections to an export that allows several.
pub const MOST_LINKS: usize = 4;
/// The largest smallest block.
const MOST_BLOCK: u32 = larder_core::buf::PAGE as u32;
/// The longest range of a question of status.
const MOST_ASKED: u64 = 1 << 30;
/// The bound on connecting and negotiating.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// An open export, see the module.
pub(crate) struct Nbd(Arc<Shared>);

impl Nbd {
    /// Connects to the export of a URI.
    pub(crate) fn open(
        uri: &Uri,
        access: Access,
        remote: ServerBounds,
    ) -> Result<(Self, Geometry), OpenError> {
        let refuse = |why: String| OpenError::Remote { device: uri.to_string(), why };
        let connect_timeout = CONNECT_WITHIN.min(remote.give_up_after);
        let options = Options { connect_timeout, allocation: true, ..Options::default() };
        let client = Client::connect(uri, &options).map_err(|e| refuse(e.to_string()))?;
        let info = client.info();
        if access == Access::ReadWrite && info.read_only() {
            return Err(refuse(
                "the export is read-only; accepted: one that can be written".into(),
            ));
        }
        if access == Access::ReadWrite && !info.can(can::FLUSH) {
            let why = "the export offers no FLUSH, so nothing could be made durable";
            return Err(refuse(why.into()));
        }
        let export = ExportInfo::of(info, SMALL_BLOCK, MOST_BLOCK).map_err(refuse)?;
        if export.bytes == 0 {
            let (device, bytes, block) = (uri.to_string(), info.bytes, export.block);
            return Err(OpenError::TooSmall { device, bytes, block });
        }
        let geometry = Geometry {
            bytes: export.bytes,
            block_bytes: export.block,
            physical_block_bytes: export.preferred.clamp(export.block, 1 << 20),
            can_trim: access == Access::ReadWrite && export.can(can::TRIM),
            rotational: None,
        };
        let links = if export.can(can::MULTI_CONN) { MOST_LINKS } else { 1 };
        let shared = Arc::new(Shared {
            uri: uri.clone(),
            options,
            export,
            remote: ServerBounds { writes: access == Access::ReadWrite, ..remote },
            state: Mutex::new(State::new(export)),
            work: Condvar::new(),
            watch: Condvar::new(),
        });
        let device = Self(shared);
        let failed = |e: std::io::Error| refuse(format!("cannot start a thread: {e}"));
        let mut client = Some(client);
        for _ in 0..links {
            let (own, client) = (Arc::clone(&device.0), client.take());
            link::spawn("out", move || link::keep(&own, client)).map_err(failed)?;
        }
        let own = Arc::clone(&device.0);
        link::spawn("watch", move || link::watch(&own)).map_err(failed)?;
        Ok((device, geometry))
    }

    /// From now on the device is gone (`ENXIO`) where otherwise only its flushes would fail.
    pub(crate) fn vanish_on_loss(&self) {
        self.0.state().vanishes = true;
    }

    /// Takes a driver in; the number stands for it from now on.
    pub(crate) fn join(&self, waker: Waker) -> u32 {
        self.0.state().members.join(Notice::Driver(waker))
    }

    /// What the driver has under way ends without anybody being told.
    pub(crate) fn leave(&self, member: u32) {
        self.0.state().members.leave(member);
    }

    /// Starts a checked operation, under the driver's name for it, and takes its memory.
    pub(crate) fn submit(&self, member: u32, key: u32, io: &mut Io) {
        let flushes = io.kind == IoKind::Flush;
        let mut state = self.0.state();
        let first = !state.is_busy();
        state.submit(member, key, io, clock::now());
        drop(state);
        // Not every connection will do for a flush.
        if flushes {
            self.0.work.notify_all();
        } else {
            self.0.work.notify_one();
        }
        if first {
            self.0.watch.notify_all();
        }
    }

    /// Appends what ended of a driver's operations to `out`.
    pub(crate) fn collect(&self, member: u32, out: &mut Vec<Finished>) {
        self.0.state().members.collect(member, out);
    }

    /// Runs a checked operation to its end on the calling thread.
    pub(crate) fn run(&self, io: &mut Io) -> Result<(), Errno> {
        let member = self.0.state().members.join(Notice::Thread(std::thread::current()));
        self.submit(member, 0, io);
        let finished = self.wait(member);
        io.buf = finished.buf;
        finished.result
    }

    /// What a range is, as the server says, from its beginning on; waits for the answer.
    pub(crate) fn extents(&self, offset: u64, len: u64) -> Result<Vec<Extent>, Errno> {
        let mut state = self.0.state();
        let member = state.members.join(Notice::Thread(std::thread::current()));
        state.ask_status(member, offset, len.min(MOST_ASKED), clock::now());
        drop(state);
        self.0.work.notify_one();
        self.0.watch.notify_all();
        let finished = self.wait(member);
        finished.result.map(|()| finished.extents)
    }

    /// Waits for the one operation of a thread.
    fn wait(&self, member: u32) -> Finished {
        let mut ended = Vec::new();
        let finished = loop {
            self.collect(member, &mut ended);
            match ended.pop() {
                Some(finished) => break finished,
                None => std::thread::park(),
            }
        };
        self.leave(member);
        finished
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        self.0.state().closing = true;
        self.0.work.notify_all();
        self.0.watch.notify_all();
    }
}
