// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending and the receiving half of a connection.
//!
//! Invariants: the receiver knows a request before its first byte is sent. A reply that matches no request in flight
//! ends the connection. The buffer of a read is allocated when its first reply header arrives, at the length of the
//! request.

use std::collections::{HashMap, VecDeque};
use std::io::{BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_core::extent::Extent;
use larder_core::request::{Errno, Kind};

use super::error::ClientError;
use super::negotiate::Info;
use super::partial::{Ask, Partial, Wants};
use super::stream::Stream;
use crate::codec::{
    CHUNK_MAGIC, ChunkHeader, RequestHeader, SIMPLE_REPLY_MAGIC, SimpleReply, can, chunk, cmd,
    errno_of_wire,
};
use crate::status;

/// A payload up to this length is copied after its header, and both are sent together.
const COPY_BYTES: usize = 64 << 10;
/// The most chunks of a reply.
const MAX_CHUNKS: usize = 1 << 16;
/// The most buffers kept for reuse, and the capacity of the largest.
const SPARES: usize = 64;
const SPARE_BYTES: usize = 1 << 20;
/// Bytes read at a time when the content is discarded.
const DRAIN_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
struct Shared {
    asks: Mutex<HashMap<u64, Ask>>,
    open: AtomicUsize,
}

impl Shared {
    fn asks(&self) -> MutexGuard<'_, HashMap<u64, Ask>> {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reply to a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// The cookie that [`Sender::submit`] returned.
    pub cookie: u64,
    /// The data of a read (empty for other requests), or the server's error.
    pub result: Result<Vec<u8>, Errno>,
    /// The extents requested by [`Sender::queue_status`]; empty for other requests.
    pub extents: Vec<Extent>,
}

pub(super) fn halves(stream: Stream, info: Info) -> Result<(Sender, Receiver), ClientError> {
    let (shared, info) = (Arc::new(Shared::default()), Arc::new(info));
    let sender = Sender {
        stream: stream.try_clone()?,
        info: Arc::clone(&info),
        shared: Arc::clone(&shared),
        next: 1,
        out: Vec::new(),
        broken: false,
    };
    let stream = BufReader::with_capacity(256 << 10, stream);
    let (partial, stash, spare) = (HashMap::new(), VecDeque::new(), Vec::new());
    Ok((sender, Receiver { stream, info, shared, partial, stash, spare, broken: false }))
}

/// Sends requests.
#[derive(Debug)]
pub struct Sender {
    stream: Stream,
    info: Arc<Info>,
    shared: Arc<Shared>,
    next: u64,
    out: Vec<u8>,
    broken: bool,
}

impl Sender {
    /// The server's description of the export.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    pub(super) fn stream(&self) -> std::io::Result<Stream> {
        self.stream.try_clone()
    }

    /// The cookie of the next request.
    #[must_use]
    pub fn next_cookie(&self) -> u64 {
        self.next
    }

    /// Requests without a reply, queued ones included.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Acquire)
    }

    /// Sends a request and all queued ones, and returns its cookie. `data` has `len` bytes for a write and is empty for
    /// other kinds. The server checks alignment and bounds.
    ///
    /// # Errors
    /// The server does not offer the request, the length is invalid, or the stream failed.
    pub fn submit(
        &mut self,
        kind: Kind,
        offset: u64,
        len: u64,
        data: &[u8],
    ) -> Result<u64, ClientError> {
        let cookie = self.queue(kind, offset, len, data)?;
        self.push()?;
        Ok(cookie)
    }

    /// As [`submit`](Self::submit), but sends nothing before [`push`](Self::push), unless the payload is long.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub fn queue(
        &mut self,
        kind: Kind,
        offset: u64,
        len: u64,
        data: &[u8],
    ) -> Result<u64, ClientError> {
        let (command, flags) = self.command(kind)?;
        let has_payload = matches!(kind, Kind::Read | Kind::Write { .. });
        let longest = if has_payload { self.info.max_payload_bytes } else { u32::MAX };
        let len = u32::try_from(len).ok().filter(|len| *len <= longest);
        let len = len.ok_or(ClientError::Usage("the length exceeds the server's maximum"))?;
        let want = if command == cmd::WRITE { len as usize } else { 0 };
        if data.len() != want {
            return Err(ClientError::Usage("the length of the data differs from the request's"));
        }
        let cookie = self.next;
        let wants = if kind == Kind::Read { Wants::Data } else { Wants::Nothing };
        self.put(wants, &RequestHeader { flags, command, cookie, offset, len });
        if data.len() <= COPY_BYTES {
            self.out.extend(data);
        } else {
            self.push()?;
            self.write(data)?;
        }
        Ok(cookie)
    }

    /// As [`queue`](Self::queue), requests the extents of a range; with `one`, only the first.
    ///
    /// # Errors
    /// The context `base:allocation` was not negotiated.
    pub fn queue_status(&mut self, offset: u64, len: u32, one: bool) -> Result<u64, ClientError> {
        if self.info.allocation.is_none() {
            return Err(ClientError::Usage("the context base:allocation was not negotiated"));
        }
        let flags = if one { status::FLAG_REQ_ONE } else { 0 };
        let (command, cookie) = (cmd::BLOCK_STATUS, self.next);
        self.put(Wants::Status, &RequestHeader { flags, command, cookie, offset, len });
        Ok(cookie)
    }

    /// Registers a request and queues its header, in this order: the receiver must know it before the server replies.
    fn put(&mut self, wants: Wants, header: &RequestHeader) {
        self.next += 1;
        let ask = Ask { wants, offset: header.offset, len: header.len };
        self.shared.asks().insert(header.cookie, ask);
        self.shared.open.fetch_add(1, Ordering::AcqRel);
        self.out.extend(header.encode());
    }

    /// Sends the queued requests.
    ///
    /// # Errors
    /// The stream's error.
    pub fn push(&mut self) -> Result<(), ClientError> {
        let mut out = std::mem::take(&mut self.out);
        let result = if out.is_empty() { Ok(()) } else { self.write(&out) };
        out.clear();
        self.out = out;
        result
    }

    /// A write that fails may have sent a part, so the connection is not used again.
    fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if self.broken {
            return Err(ClientError::Closed);
        }
        let result = self.stream.write_all(bytes);
        self.broken = result.is_err();
        Ok(result?)
    }

    fn command(&self, kind: Kind) -> Result<(u16, u16), ClientError> {
        let offered = |flag| {
            let missing = ClientError::Usage("the server does not support it for this export");
            if self.info.can(flag) { Ok(()) } else { Err(missing) }
        };
        let fua_flag = |fua| match fua {
            true => offered(can::FUA).map(|()| cmd::FLAG_FUA),
            false => Ok(0),
        };
        match kind {
            Kind::Read => Ok((cmd::READ, 0)),
            Kind::Write { fua } => Ok((cmd::WRITE, fua_flag(fua)?)),
            Kind::Flush => offered(can::FLUSH).map(|()| (cmd::FLUSH, 0)),
            Kind::Trim { fua } => {
                offered(can::TRIM)?;
                Ok((cmd::TRIM, fua_flag(fua)?))
            }
            Kind::Zero { fua, may_unmap } => {
                offered(can::WRITE_ZEROES)?;
                let hole = if may_unmap { 0 } else { cmd::FLAG_NO_HOLE };
                Ok((cmd::WRITE_ZEROES, fua_flag(fua)? | hole))
            }
        }
    }

    /// Sends a disconnect request; nothing can be sent afterwards. Requests in flight may still get their reply.
    ///
    /// # Errors
    /// The stream's error.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        let (flags, command, cookie, offset, len) = (0, cmd::DISC, 0, 0, 0);
        self.out.extend(RequestHeader { flags, command, cookie, offset, len }.encode());
        self.push()?;
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }
}

/// Receives replies.
#[derive(Debug)]
pub struct Receiver {
    stream: BufReader<Stream>,
    info: Arc<Info>,
    shared: Arc<Shared>,
    partial: HashMap<u64, Partial>,
    stash: VecDeque<Completion>,
    spare: Vec<Vec<u8>>,
    broken: bool,
}

impl Receiver {
    /// Waits for the next reply, in the order of arrival.
    ///
    /// # Errors
    /// The stream's error, or the server broke the protocol. After an error every call fails.
    pub fn wait(&mut self) -> Result<Completion, ClientError> {
        match self.stash.pop_front() {
            Some(completion) => Ok(completion),
            None => self.next(),
        }
    }

    /// Takes a buffer back for reuse. With many long reads in flight, allocating memory costs more than the reads
    /// themselves.
    pub fn recycle(&mut self, data: Vec<u8>) {
        if (1..=SPARE_BYTES).contains(&data.capacity()) && self.spare.len() < SPARES {
            self.spare.push(data);
        }
    }

    /// Discards input until the server closes the connection. For a connection whose server broke the protocol: once it
    /// is closed, none of its requests is in flight at the server.
    pub fn drain(mut self) {
        let mut bytes = vec![0; DRAIN_BYTES];
        loop {
            match self.stream.get_mut().read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    /// Waits for one reply and keeps the others.
    pub(super) fn wait_for(&mut self, cookie: u64) -> Result<Completion, ClientError> {
        loop {
            let completion = self.next()?;
            if completion.cookie == cookie {
                return Ok(completion);
            }
            self.stash.push_back(completion);
        }
    }

    pub(super) fn stashed(&self) -> usize {
        self.stash.len()
    }

    fn next(&mut self) -> Result<Completion, ClientError> {
        if self.broken {
            return Err(ClientError::Closed);
        }
        let result = loop {
            match self.message() {
                Ok(None) => {}
                Ok(Some(completion)) => break Ok(completion),
                Err(e) => break Err(e),
            }
        };
        self.broken = result.is_err();
        if result.is_ok() {
            self.shared.open.fetch_sub(1, Ordering::AcqRel);
        }
        result
    }

    /// Receives one message, and returns the completion if it completes a request.
    fn message(&mut self) -> Result<Option<Completion>, ClientError> {
        let mut magic = [0; 4];
        self.stream.read_exact(&mut magic)?;
        match u32::from_be_bytes(magic) {
            SIMPLE_REPLY_MAGIC => self.simple().map(Some),
            CHUNK_MAGIC if self.info.structured => self.chunk(),
            CHUNK_MAGIC => Err(ClientError::Protocol("a structured reply was not negotiated")),
            _ => Err(ClientError::Protocol("a reply has the wrong magic")),
        }
    }

    fn simple(&mut self) -> Result<Completion, ClientError> {
        let mut rest = [0; SimpleReply::LEN - 4];
        self.stream.read_exact(&mut rest)?;
        let SimpleReply { error, cookie } =
            SimpleReply::decode_rest(&rest).ok_or(ClientError::Protocol("a short reply"))?;
        let unknown = ClientError::Protocol("a reply that matches no request");
        let ask = self.shared.asks().remove(&cookie).ok_or(unknown)?;
        let structured = ask.wants == Wants::Status && error == 0;
        if ask.reads() && self.info.structured || structured {
            return Err(ClientError::Protocol("a simple reply where a structured one is required"));
        }
        let extents = Vec::new();
        if error != 0 {
            return Ok(Completion { cookie, result: Err(errno_of_wire(error)), extents });
        }
        let mut data = Vec::new();
        if ask.reads() {
            data = self.spare.pop().unwrap_or_default();
            data.resize(ask.len as usize, 0);
        }
        self.stream.read_exact(&mut data)?;
        Ok(Completion { cookie, result: Ok(data), extents })
    }

    fn chunk(&mut self) -> Result<Option<Completion>, ClientError> {
        let mut rest = [0; ChunkHeader::LEN - 4];
        self.stream.read_exact(&mut rest)?;
        let header =
            ChunkHeader::decode_rest(&rest).ok_or(ClientError::Protocol("a short reply"))?;
        let mut partial = match self.partial.remove(&header.cookie) {
            Some(partial) => partial,
            None => {
                let unknown = ClientError::Protocol("a chunk that matches no request");
                let ask = self.shared.asks().remove(&header.cookie).ok_or(unknown)?;
                let spare = if ask.reads() { self.spare.pop() } else { None };
                let data = spare.unwrap_or_default();
                Partial::new(ask, data)
            }
        };
        partial.chunks += 1;
        if partial.chunks > MAX_CHUNKS {
            return Err(ClientError::Protocol("a reply has too many chunks"));
        }
        partial.take(&header, self.info.allocation, &mut self.stream)?;
        if header.flags & chunk::FLAG_DONE == 0 {
            self.partial.insert(header.cookie, partial);
            return Ok(None);
        }
        let extents = std::mem::take(&mut partial.extents);
        let result = partial.finish(extents.is_empty())?;
        Ok(Some(Completion { cookie: header.cookie, result, extents }))
    }
}
