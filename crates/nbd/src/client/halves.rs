// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending and the receiving half of a connection.
//!
//! Invariants: a request is known to the receiver before its first byte is sent; a reply that
//! names no open request ends the connection; a read's data is allocated when its first byte is
//! announced, at the length that was asked for.

use std::collections::{HashMap, VecDeque};
use std::io::{BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_core::request::{Errno, Kind};

use super::{ClientError, Info, Stream};
use crate::codec::{
    CHUNK_MAGIC, ChunkHeader, Cursor, RequestHeader, SIMPLE_REPLY_MAGIC, SimpleReply, can, chunk,
    cmd, errno_of_wire,
};

/// A shorter payload is copied behind its header, and both are sent at once.
const COPY_BYTES: usize = 64 << 10;
/// The most chunks of one reply.
const MAX_CHUNKS: usize = 1 << 16;
/// The most bytes of an error chunk.
const MAX_ERROR_BYTES: u32 = 64 << 10;
/// The most vectors kept for reuse, and the longest.
const SPARES: usize = 64;
const SPARE_BYTES: usize = 1 << 20;
/// How much is read at a time when nothing of it matters.
const DRAIN_BYTES: usize = 64 << 10;

/// What an open request expects: the length of a read.
#[derive(Clone, Copy, Debug)]
struct Ask {
    read: bool,
    offset: u64,
    len: u32,
}

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

/// The answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// What [`Sender::submit`] returned.
    pub cookie: u64,
    /// A read's data (empty for others), or the server's error.
    pub result: Result<Vec<u8>, Errno>,
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
    /// What the server said about the export.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    pub(super) fn stream(&self) -> std::io::Result<Stream> {
        self.stream.try_clone()
    }

    /// The cookie that the next request will have.
    #[must_use]
    pub fn next_cookie(&self) -> u64 {
        self.next
    }

    /// How many requests are not answered yet, those queued included.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::Acquire)
    }

    /// Sends a request and all that were queued; its cookie. A write's `data` is `len` bytes,
    /// empty for the other kinds. Alignment and bounds are left to the server to judge.
    ///
    /// # Errors
    /// The server does not offer this, the length is unlawful, or the stream failed.
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

    /// As [`submit`](Self::submit), but waits for [`push`](Self::push) to be sent with others.
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
        let len = len.ok_or(ClientError::Usage("longer than the maximum"))?;
        let want = if command == cmd::WRITE { len as usize } else { 0 };
        if data.len() != want {
            return Err(ClientError::Usage("the data is not as long as the request says"));
        }
        let cookie = self.next;
        self.next += 1;
        let ask = Ask { read: kind == Kind::Read, offset, len };
        self.shared.asks().insert(cookie, ask);
        self.shared.open.fetch_add(1, Ordering::AcqRel);
        self.out.extend(RequestHeader { flags, command, cookie, offset, len }.encode());
        if data.len() <= COPY_BYTES {
            self.out.extend(data);
        } else {
            self.push()?;
            self.write(data)?;
        }
        Ok(cookie)
    }

    /// Sends what was queued.
    ///
    /// # Errors
    /// The stream's.
    pub fn push(&mut self) -> Result<(), ClientError> {
        let mut out = std::mem::take(&mut self.out);
        let result = if out.is_empty() { Ok(()) } else { self.write(&out) };
        out.clear();
        self.out = out;
        result
    }

    /// A write that fails may have sent a part, so nothing may follow it.
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
            let missing = ClientError::Usage("the server does not offer it for this export");
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

    /// Says good-bye; nothing can be sent afterwards. What is open may still be answered.
    ///
    /// # Errors
    /// The stream's.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        let (flags, command, cookie, offset, len) = (0, cmd::DISC, 0, 0, 0);
        self.out.extend(RequestHeader { flags, command, cookie, offset, len }.encode());
        self.push()?;
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }
}

/// A read whose chunks are arriving (or another request that has got one).
#[derive(Debug)]
struct Partial {
    ask: Ask,
    data: Vec<u8>,
    /// What is there already, sorted; chunks must not overlap.
    covered: Vec<(u32, u32)>,
    error: Option<Errno>,
    chunks: usize,
}

/// Receives answers.
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
    /// Waits for the next answer, in the order in which the server gives them.
    ///
    /// # Errors
    /// The stream's, or the server broke the protocol. A receiver that failed fails for ever.
    pub fn wait(&mut self) -> Result<Completion, ClientError> {
        match self.stash.pop_front() {
            Some(completion) => Ok(completion),
            None => self.next(),
        }
    }

    /// Takes a read's data back to be used again: new memory costs more than the read itself
    /// when many long ones are on their way.
    pub fn recycle(&mut self, data: Vec<u8>) {
        if (1..=SPARE_BYTES).contains(&data.capacity()) && self.spare.len() < SPARES {
            self.spare.push(data);
        }
    }

    /// Reads on without understanding, until the server ends the connection. For a connection
    /// that broke the protocol: when it is over, so are the requests that it had.
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

    /// Waits for one answer and keeps the others.
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

    /// Reads one message; what it completes.
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
        let unknown = ClientError::Protocol("a reply to no open request");
        let ask = self.shared.asks().remove(&cookie).ok_or(unknown)?;
        if ask.read && self.info.structured {
            return Err(ClientError::Protocol("a simple reply to a read, not a structured one"));
        }
        if error != 0 {
            return Ok(Completion { cookie, result: Err(errno_of_wire(error)) });
        }
        let mut data = Vec::new();
        if ask.read {
            data = self.spare.pop().unwrap_or_default();
            data.resize(ask.len as usize, 0);
        }
        self.stream.read_exact(&mut data)?;
        Ok(Completion { cookie, result: Ok(data) })
    }

    fn chunk(&mut self) -> Result<Option<Completion>, ClientError> {
        let mut rest = [0; ChunkHeader::LEN - 4];
        self.stream.read_exact(&mut rest)?;
        let header =
            ChunkHeader::decode_rest(&rest).ok_or(ClientError::Protocol("a short reply"))?;
        let mut partial = match self.partial.remove(&header.cookie) {
            Some(partial) => partial,
            None => {
                let unknown = ClientError::Protocol("a chunk for no open request");
                let ask = self.shared.asks().remove(&header.cookie).ok_or(unknown)?;
                let spare = if ask.read { self.spare.pop() } else { None };
                let data = spare.unwrap_or_default();
                Partial { ask, data, covered: Vec::new(), error: None, chunks: 0 }
            }
        };
        partial.chunks += 1;
        if partial.chunks > MAX_CHUNKS {
            return Err(ClientError::Protocol("more chunks than a reply may have"));
        }
        partial.take(&header, &mut self.stream)?;
        if header.flags & chunk::FLAG_DONE == 0 {
            self.partial.insert(header.cookie, partial);
            return Ok(None);
        }
        let result = partial.finish()?;
        Ok(Some(Completion { cookie: header.cookie, result }))
    }
}

impl Partial {
    /// Reads a chunk's payload.
    fn take(&mut self, h: &ChunkHeader, from: &mut impl Read) -> Result<(), ClientError> {
        let malformed = || ClientError::Protocol("a malformed chunk");
        match h.kind {
            chunk::NONE if h.len == 0 && h.flags & chunk::FLAG_DONE != 0 => Ok(()),
            chunk::OFFSET_DATA if h.len > 8 => {
                let mut offset = [0; 8];
                from.read_exact(&mut offset)?;
                let place = self.place(u64::from_be_bytes(offset), h.len - 8)?;
                Ok(from.read_exact(&mut self.data[place])?)
            }
            chunk::OFFSET_HOLE if h.len == 12 => {
                let mut body = [0; 12];
                from.read_exact(&mut body)?;
                let mut c = Cursor(&body);
                let (offset, len) = c.u64().zip(c.u32()).ok_or_else(malformed)?;
                let place = self.place(offset, len)?;
                self.data[place].fill(0);
                Ok(())
            }
            kind if kind & chunk::ERR != 0 && (6..=MAX_ERROR_BYTES).contains(&h.len) => {
                let mut body = vec![0; h.len as usize];
                from.read_exact(&mut body)?;
                let mut c = Cursor(&body);
                let (error, text) = c.u32().zip(c.u16()).ok_or_else(malformed)?;
                c.bytes(usize::from(text)).ok_or_else(malformed)?;
                self.error = self.error.or(Some(errno_of_wire(error)));
                Ok(())
            }
            _ => Err(malformed()),
        }
    }

    /// Where a content chunk lies in the data; it must be in the read and overlap no other.
    fn place(&mut self, offset: u64, len: u32) -> Result<std::ops::Range<usize>, ClientError> {
        let outside = ClientError::Protocol("a chunk lies outside of its read");
        let at = offset.checked_sub(self.ask.offset).and_then(|at| u32::try_from(at).ok());
        let range = at.and_then(|at| Some((at, at.checked_add(len)?)));
        let range = range.filter(|r| self.ask.read && len > 0 && r.1 <= self.ask.len);
        let (at, end) = range.ok_or(outside)?;
        let next = self.covered.partition_point(|(start, _)| *start < at);
        let free_before = next == 0 || self.covered[next - 1].1 <= at;
        let free_behind = self.covered.get(next).is_none_or(|(start, _)| end <= *start);
        if !free_before || !free_behind {
            return Err(ClientError::Protocol("the chunks of a reply overlap"));
        }
        self.covered.insert(next, (at, end));
        // Content of an earlier read, if any, is overwritten: only a fully covered read succeeds.
        self.data.resize(self.ask.len as usize, 0);
        Ok(at as usize..end as usize)
    }

    fn finish(mut self) -> Result<Result<Vec<u8>, Errno>, ClientError> {
        if let Some(errno) = self.error {
            return Ok(Err(errno));
        }
        let covered: u64 = self.covered.iter().map(|(start, end)| u64::from(end - start)).sum();
        if self.ask.read && covered != u64::from(self.ask.len) {
            return Err(ClientError::Protocol("a read ended without all of its data"));
        }
        // A read of nothing had no chunk that would have cut old content off.
        self.data.truncate(self.ask.len as usize);
        Ok(Ok(self.data))
    }
}
