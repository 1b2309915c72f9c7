// SPDX-License-Identifier: MIT OR Apache-2.0
//! The export of an NBD server as a device.
//!
//! Purpose: operations are sent as requests on one connection, or on up to [`MOST_LINKS`] where the export guarantees
//! that a flush on one connection covers all (`MULTI_CONN`). Many requests are in flight, matched by cookie. A
//! completion returns to the driver that started the operation, which is woken. `state` decides, `link` has the
//! threads, `step` splits operations into requests.
//!
//! Invariants:
//! - A worker never waits for the server. The buffer of an operation stays here until its end; the buffer of a read is
//!   written once, when all data has arrived and is valid.
//! - A connection whose server breaks the protocol (wrong magic, unknown cookie, a chunk that is outside of its read,
//!   duplicate, missing or too long) is not used again.
//! - Every operation ends within [`ServerBounds::give_up_after`], with `EIO` at the latest.
//!
//! **Sending again.** After a lost connection it is unknown which unanswered requests the server executed. Reads and
//! flushes can be sent again. A write can be sent again because no overlapping write runs in between: of two
//! overlapping writes the second begins when the first has ended, so sending the same data again cannot overwrite later
//! data. The danger is that the server executes the *old* request late, after the operation ended and another write to
//! the same range was acknowledged. So the old request is kept as a ghost, and overlapping writes wait, or fail at
//! their time limit, until the server has replied to it or closed its connection. For this reason a connection with
//! overdue replies is not closed: its replies still carry information. Two cases remain in which a write can be undone:
//! the server closes a connection but continues with its requests, or the server is unreachable for as long as the
//! kernel retransmits (about 15 minutes) and then executes them. NBD has no means against either.
//!
//! **Flush after a lost connection.** The new server process may differ from the old one, on a machine that lost power.
//! Writes that were acknowledged and not covered by a flush may be lost, although the new server replies to a flush
//! with success. So once this is possible, every flush fails with `EIO` until the device is opened again: nothing
//! repairs the loss, and the caller must learn of it. A write with FUA that is sent as a write and a flush fails the
//! same way. A cache device, whose reads are worthless unless they return what was written, fails completely
//! ([`Device::vanish_on_loss`](crate::Device::vanish_on_loss)).
//!
//! Why not the ring: see `link`. Why the data of a read is copied: the client validates a reply completely before it
//! passes on a byte, and memory is faster than any network.

mod bounds;
mod flight;
mod link;
mod members;
mod op;
mod state;
mod step;

use std::sync::atomic::{AtomicBool, Ordering};
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
/// The largest supported minimum block.
const MOST_BLOCK: u32 = larder_core::buf::PAGE as u32;
/// The longest range of a status request.
const MOST_ASKED: u64 = 1 << 30;
/// Time limit for connecting and negotiating.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// An open export.
pub(crate) struct Nbd(Arc<Shared>, Arc<AtomicBool>);

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
            return Err(refuse("the export is read-only; accepted: a writable one".into()));
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
        let state = State::new(export);
        let has_lost = Arc::clone(&state.has_lost);
        let shared = Arc::new(Shared {
            uri: uri.clone(),
            options,
            export,
            remote: ServerBounds { writes: access == Access::ReadWrite, ..remote },
            state: Mutex::new(state),
            work: Condvar::new(),
            watch: Condvar::new(),
        });
        let device = Self(shared, has_lost);
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

    /// Makes every operation fail (`ENXIO`) in the case in which otherwise only flushes fail.
    pub(crate) fn vanish_on_loss(&self) {
        self.0.state().vanishes = true;
    }

    /// Whether acknowledged, unflushed writes existed when a connection was lost. Takes no lock.
    pub(crate) fn may_have_lost_writes(&self) -> bool {
        self.1.load(Ordering::Acquire)
    }

    /// Registers a driver; the returned number identifies it.
    pub(crate) fn join(&self, waker: Waker) -> u32 {
        self.0.state().members.join(Notice::Driver(waker))
    }

    /// Removes a driver; its operations in flight end without notice.
    pub(crate) fn leave(&self, member: u32) {
        self.0.state().members.leave(member);
    }

    /// Starts a checked operation under the driver's key, and takes its buffer.
    pub(crate) fn submit(&self, member: u32, key: u32, io: &mut Io) {
        let flushes = io.kind == IoKind::Flush;
        let mut state = self.0.state();
        let first = !state.is_busy();
        state.submit(member, key, io, clock::now());
        drop(state);
        // A flush may need a particular connection.
        if flushes {
            self.0.work.notify_all();
        } else {
            self.0.work.notify_one();
        }
        if first {
            self.0.watch.notify_all();
        }
    }

    /// Appends a driver's completed operations to `out`.
    pub(crate) fn collect(&self, member: u32, out: &mut Vec<Finished>) {
        self.0.state().members.collect(member, out);
    }

    /// Runs a checked operation on the calling thread.
    pub(crate) fn run(&self, io: &mut Io) -> Result<(), Errno> {
        let member = self.0.state().members.join(Notice::Thread(std::thread::current()));
        self.submit(member, 0, io);
        let finished = self.wait(member);
        io.buf = finished.buf;
        finished.result
    }

    /// The server's extents of a range, from its beginning on; waits for the reply.
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

    /// Waits for the single operation of a thread.
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
