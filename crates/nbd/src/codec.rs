// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wire format of NBD: magic numbers, headers and error numbers.
//!
//! Purpose: the only place that knows a magic number or the order of a header's fields. All fields are big-endian and
//! headers have a fixed size; [`Cursor`] decodes data of variable length.
//!
//! Invariants: decoding reads only the given slice and cannot panic; a header with a wrong magic does not decode;
//! `decode(encode(x)) == x`.
//!
//! Why not a derive: there are seven headers, and their fields are not aligned.

use larder_core::request::Errno;

/// First eight bytes that a server sends: `NBDMAGIC`.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second eight bytes of a newstyle server, and the first of every option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First bytes of a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First bytes of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First bytes of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First bytes of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// The port that IANA reserves for NBD.
pub const PORT: u16 = 10809;
/// The longest string (name, description, message) that the protocol allows.
pub const MAX_STRING: usize = 4096;

/// The largest payload of a read or write unless the export states another: every client may assume that a server
/// accepts it.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// Handshake flag, both directions: fixed newstyle is supported.
pub const FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag, both directions: the reply to `EXPORT_NAME` has no 124 zeroes.
pub const NO_ZEROES: u16 = 1 << 1;
/// Zeroes that follow the reply to `EXPORT_NAME` unless both sides set [`NO_ZEROES`].
pub const EXPORT_ZEROES: usize = 124;

/// Options that a client may request.
pub mod opt {
    /// Choose an export and begin transmission; cannot return an error.
    pub const EXPORT_NAME: u32 = 1;
    /// End the negotiation.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Begin TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and begin transmission.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use 64-bit lengths (experimental).
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Kinds of replies to an option.
pub mod rep {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One fact about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub const ERR: u32 = 1 << 31;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = ERR + 1;
    /// The option is forbidden.
    pub const ERR_POLICY: u32 = ERR + 2;
    /// The option's data is malformed.
    pub const ERR_INVALID: u32 = ERR + 3;
    /// TLS is required first.
    pub const ERR_TLS_REQD: u32 = ERR + 5;
    /// The export does not exist.
    pub const ERR_UNKNOWN: u32 = ERR + 6;
    /// The server is shutting down.
    pub const ERR_SHUTDOWN: u32 = ERR + 7;
    /// The client must first request the block size and so promise to obey it.
    pub const ERR_BLOCK_SIZE_REQD: u32 = ERR + 8;
    /// The option or its reply is too long.
    pub const ERR_TOO_BIG: u32 = ERR + 9;
}

/// Items of information about an export.
pub mod info {
    /// Bytes and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// The description.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum and preferred block, maximum payload.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export supports.
pub mod can {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are rejected.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush.
    pub const FLUSH: u16 = 1 << 2;
    /// Force unit access.
    pub const FUA: u16 = 1 << 3;
    /// Trim.
    pub const TRIM: u16 = 1 << 5;
    /// Write zeroes, with or without a hole.
    pub const WRITE_ZEROES: u16 = 1 << 6;
    /// "Do not fragment" on reads.
    pub const DF: u16 = 1 << 7;
    /// A flush on one connection covers all of them.
    pub const MULTI_CONN: u16 = 1 << 8;
    /// Cache.
    pub const CACHE: u16 = 1 << 10;
}

/// Types of requests.
pub mod cmd {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the payload follows the header.
    pub const WRITE: u16 = 1;
    /// Disconnect; it has no reply.
    pub const DISC: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Trim.
    pub const TRIM: u16 = 4;
    /// Cache: the client will soon read this range.
    pub const CACHE: u16 = 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Block status.
    pub const BLOCK_STATUS: u16 = 7;

    /// Flag: durable before the reply.
    pub const FLAG_FUA: u16 = 1 << 0;
    /// Flag of write zeroes: do not deallocate.
    pub const FLAG_NO_HOLE: u16 = 1 << 1;
    /// Flag of read: reply in one chunk.
    pub const FLAG_DF: u16 = 1 << 2;
    /// Flag of write zeroes: fail unless faster than a write.
    pub const FLAG_FAST_ZERO: u16 = 1 << 4;
}

/// Types and flags of chunks.
pub mod chunk {
    /// The last chunk of its reply.
    pub const FLAG_DONE: u16 = 1 << 0;
    /// No payload; ends a reply.
    pub const NONE: u16 = 0;
    /// Offset and data.
    pub const OFFSET_DATA: u16 = 1;
    /// Offset and length of zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// Set in every error chunk.
    pub const ERR: u16 = 1 << 15;
    /// An error.
    pub const ERROR: u16 = ERR + 1;
    /// An error with an offset.
    pub const ERROR_OFFSET: u16 = ERR + 2;
}

/// "Operation not permitted", for writes to a read-only export.
pub const EPERM: Errno = Errno(1);

/// The wire number of an error.
///
/// The protocol reserves `EOVERFLOW` and `ENOTSUP` for cases that this server does not have (an unfragmented read that
/// is too long, fast zeroes), so these become `EINVAL`. Errors without a number become `EIO`.
#[must_use]
pub fn wire_error(errno: Errno) -> u32 {
    match errno.0 {
        // EPERM, EACCES, EROFS
        1 | 13 | 30 => 1,
        12 => 12,
        // EINVAL, EOVERFLOW, EOPNOTSUPP
        22 | 75 | 95 => 22,
        // EFBIG, ENOSPC, EDQUOT
        27 | 28 | 122 => 28,
        108 => 108,
        _ => 5,
    }
}

/// The error of a wire number; the protocol requires that unexpected numbers count as `EINVAL`.
#[must_use]
pub fn errno_of_wire(error: u32) -> Errno {
    match error {
        1 | 5 | 12 | 22 | 28 | 75 | 95 | 108 => Errno(error as i32),
        _ => Errno::EINVAL,
    }
}

/// Decodes a slice from its beginning; every method returns `None` when too few bytes are left.
#[derive(Clone, Debug)]
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string that is preceded by its length in 32 bits.
    pub fn string(&mut self) -> Option<&'a str> {
        let len = self.u32()? as usize;
        if len > MAX_STRING {
            return None;
        }
        std::str::from_utf8(self.bytes(len)?).ok()
    }

    /// `Some` if no bytes are left.
    #[must_use]
    pub fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Writes fields one after the other into an array of exactly their size.
struct Layout<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Layout<N> {
    fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    fn put(mut self, field: &[u8]) -> Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    fn u16(self, v: u16) -> Self {
        self.put(&v.to_be_bytes())
    }

    fn u32(self, v: u32) -> Self {
        self.put(&v.to_be_bytes())
    }

    fn u64(self, v: u64) -> Self {
        self.put(&v.to_be_bytes())
    }
}

/// The greeting, which the server sends first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Handshake flags.
    pub flags: u16,
}

impl Greeting {
    /// Bytes on the wire.
    pub const LEN: usize = 18;

    /// To bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        Layout::new().u64(INIT_MAGIC).u64(OPTION_MAGIC).u16(self.flags).bytes
    }

    /// From bytes; `None` if it is not a newstyle greeting.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut c = Cursor(bytes);
        let ours = c.u64()? == INIT_MAGIC && c.u64()? == OPTION_MAGIC;
        let flags = c.u16()?;
        ours.then_some(Self { flags })
    }
}

/// The header of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// The option, see [`opt`].
    pub option: u32,
    /// Bytes of data that follow.
    pub len: u32,
}

impl OptionHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// To bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        Layout::new().u64(OPTION_MAGIC).u32(self.option).u32(self.len).bytes
    }

    /// From bytes; `None` if the magic is wrong.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut c = Cursor(bytes);
        let ours = c.u64()? == OPTION_MAGIC;
        let header = Self { option: c.u32()?, len: c.u32()? };
        ours.then_some(header)
    }
}

/// The header of a reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReply {
    /// The option that this replies to.
    pub option: u32,
    /// The kind of reply, see [`rep`].
    pub kind: u32,
    /// Bytes of data that follow.
    pub len: u32,
}

impl OptionReply {
    /// Bytes on the wire.
    pub const LEN: usize = 20;

    /// To bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let l = Layout::new().u64(OPTION_REPLY_MAGIC);
        l.u32(self.option).u32(self.kind).u32(self.len).bytes
    }

    /// From bytes; `None` if the magic is wrong.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let mut c = Cursor(bytes);
        let ours = c.u64()? == OPTION_REPLY_MAGIC;
        let reply = Self { option: c.u32()?, kind: c.u32()?, len: c.u32()? };
        ours.then_some(reply)
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Flags, see [`cmd`].
    pub flags: u16,
    /// Type, see [`cmd`].
    pub command: u16,
    /// The client's identifier of the request; the reply repeats it.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl RequestHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 28;

    /// To bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let l = Layout::new().u32(REQUEST_MAGIC).u16(self.flags).u16(self.command);
        l.u64(self.cookie).u64(self.offset).u32(self.len).bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// The first four bytes, if they are not the magic of a request.
    pub fn decode(bytes: &[u8; Self::LEN]) -> Result<Self, u32> {
        let magic = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if magic != REQUEST_MAGIC {
            return Err(magic);
        }
        let mut c = Cursor(&bytes[4..]);
        let mut fields = || {
            Some(Self {
                flags: c.u16()?,
                command: c.u16()?,
                cookie: c.u64()?,
                offset: c.u64()?,
                len: c.u32()?,
            })
        };
        fields().ok_or(magic)
    }
}

/// A simple reply; after a successful read the data follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// Zero or a wire error.
    pub error: u32,
    /// The request's cookie.
    pub cookie: u64,
}

impl SimpleReply {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// To bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        Layout::new().u32(SIMPLE_REPLY_MAGIC).u32(self.error).u64(self.cookie).bytes
    }

    /// From the bytes after the magic.
    #[must_use]
    pub fn decode_rest(bytes: &[u8; Self::LEN - 4]) -> Option<Self> {
        let mut c = Cursor(bytes);
        Some(Self { error: c.u32()?, cookie: c.u64()? })
    }
}

/// The header of a chunk of a structured reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Flags, see [`chunk`].
    pub flags: u16,
    /// Type, see [`chunk`].
    pub kind: u16,
    /// The request's cookie.
    pub cookie: u64,
    /// Bytes of payload that follow.
    pub len: u32,
}

impl ChunkHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 20;

    /// To bytes.
    #[must_use]
    pub fn encode(self) -> [u8; Self::LEN] {
        let l = Layout::new().u32(CHUNK_MAGIC).u16(self.flags).u16(self.kind);
        l.u64(self.cookie).u32(self.len).bytes
    }

    /// From the bytes after the magic.
    #[must_use]
    pub fn decode_rest(bytes: &[u8; Self::LEN - 4]) -> Option<Self> {
        let mut c = Cursor(bytes);
        Some(Self { flags: c.u16()?, kind: c.u16()?, cookie: c.u64()?, len: c.u32()? })
    }
}

#[cfg(test)]
mod tests;
