// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's side of the negotiation.
//!
//! Invariants: a reply has at most [`MAX_REPLY_BYTES`] of data, an option at most [`MAX_REPLIES`] replies. The stream
//! bounds the time.

use std::io::{Read, Write};
use std::time::Duration;

use super::error::ClientError;
use crate::codec::MAX_PAYLOAD;
use crate::codec::{
    Cursor, FIXED_NEWSTYLE, Greeting, MAX_STRING, NO_ZEROES, OptionHeader, OptionReply, can, info,
    opt, rep,
};
use crate::status::{self, BASE_ALLOCATION};

const MAX_REPLY_BYTES: u32 = 64 << 10;
const MAX_REPLIES: usize = 1024;

/// Settings of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Time limit for connecting and negotiating.
    pub connect_timeout: Duration,
    /// Time limit for each read and write of the socket afterwards; `None` has no limit.
    pub io_timeout: Option<Duration>,
    /// Request structured replies.
    pub structured: bool,
    /// With structured replies, request the context `base:allocation`.
    pub allocation: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            io_timeout: None,
            structured: true,
            allocation: false,
        }
    }
}

/// The server's description of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Size.
    pub bytes: u64,
    /// Transmission flags, see [`can`].
    pub flags: u16,
    /// Requests must be aligned to this many bytes.
    pub min_block_bytes: u32,
    /// Requests should be aligned to this many bytes.
    pub preferred_block_bytes: u32,
    /// The longest read or write; never above [`MAX_PAYLOAD`].
    pub max_payload_bytes: u32,
    /// Structured replies were negotiated.
    pub structured: bool,
    /// The server's number for the context `base:allocation`, if it was negotiated.
    pub allocation: Option<u32>,
    /// The canonical name, if the server sent it.
    pub name: Option<String>,
    /// The description, if the server sent it.
    pub description: Option<String>,
}

impl Info {
    /// Whether all of these transmission flags are set.
    #[must_use]
    pub fn can(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// Whether the export rejects writes.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.can(can::READ_ONLY)
    }
}

/// Negotiates the export and returns its description.
pub(super) fn choose<S: Read + Write>(
    stream: &mut S,
    export: &str,
    options: &Options,
) -> Result<Info, ClientError> {
    if export.len() > MAX_STRING || export.contains('\0') {
        return Err(ClientError::Usage(
            "an export name must have at most 4096 bytes and no NUL character",
        ));
    }
    let structured = options.structured && ask_structured(stream)?;
    let wanted = structured && options.allocation;
    let allocation = if wanted { ask_allocation(stream, export)? } else { None };
    Ok(Info { allocation, ..go(stream, export, structured)? })
}

/// Exchanges greetings.
pub(super) fn greet<S: Read + Write>(stream: &mut S) -> Result<(), ClientError> {
    let mut bytes = [0; Greeting::LEN];
    stream.read_exact(&mut bytes)?;
    let greeting = Greeting::decode(&bytes)
        .ok_or(ClientError::Protocol("the greeting is not that of an NBD server"))?;
    if greeting.flags & FIXED_NEWSTYLE == 0 {
        return Err(ClientError::Protocol("it does not support the fixed newstyle negotiation"));
    }
    let flags = u32::from(greeting.flags & (FIXED_NEWSTYLE | NO_ZEROES));
    stream.write_all(&flags.to_be_bytes())?;
    Ok(())
}

/// Requests TLS, which begins with the next byte. Options negotiated before TLS are not trusted; the caller requests
/// them again.
pub(super) fn start_tls<S: Read + Write>(stream: &mut S) -> Result<(), ClientError> {
    send(stream, opt::STARTTLS, &[])?;
    match receive(stream, opt::STARTTLS)? {
        (rep::ACK, _) => Ok(()),
        (kind, data) if kind & rep::ERR != 0 => Err(ClientError::NoTls(refusal(kind, &data))),
        _ => Err(ClientError::Protocol("an unexpected reply to STARTTLS")),
    }
}

fn send<S: Write>(stream: &mut S, option: u32, data: &[u8]) -> Result<(), ClientError> {
    let mut out = OptionHeader { option, len: data.len() as u32 }.encode().to_vec();
    out.extend(data);
    Ok(stream.write_all(&out)?)
}

/// Receives the next reply to `option`: its kind and data.
fn receive<S: Read>(stream: &mut S, option: u32) -> Result<(u32, Vec<u8>), ClientError> {
    let mut header = [0; OptionReply::LEN];
    stream.read_exact(&mut header)?;
    let reply = OptionReply::decode(&header)
        .ok_or(ClientError::Protocol("a reply to an option has the wrong magic"))?;
    if reply.option != option {
        return Err(ClientError::Protocol("a reply to an option that was not requested"));
    }
    if reply.len > MAX_REPLY_BYTES {
        return Err(ClientError::Protocol("a reply to an option is longer than 64 KiB"));
    }
    let mut data = vec![0; reply.len as usize];
    stream.read_exact(&mut data)?;
    Ok((reply.kind, data))
}

fn ask_structured<S: Read + Write>(stream: &mut S) -> Result<bool, ClientError> {
    send(stream, opt::STRUCTURED_REPLY, &[])?;
    match receive(stream, opt::STRUCTURED_REPLY)? {
        (rep::ACK, _) => Ok(true),
        (kind, _) if kind & rep::ERR != 0 => Ok(false),
        _ => Err(ClientError::Protocol("an unexpected reply to STRUCTURED_REPLY")),
    }
}

/// Requests `base:allocation` and returns the server's number for it, if the server supports it.
fn ask_allocation<S: Read + Write>(
    stream: &mut S,
    export: &str,
) -> Result<Option<u32>, ClientError> {
    let malformed = || ClientError::Protocol("a malformed metadata context");
    send(stream, opt::SET_META_CONTEXT, &status::query(export, &[BASE_ALLOCATION]))?;
    let mut found = None;
    for _ in 0..MAX_REPLIES {
        match receive(stream, opt::SET_META_CONTEXT)? {
            (rep::ACK, _) => return Ok(found),
            (rep::META_CONTEXT, data) => {
                let (id, name) = data.split_first_chunk().ok_or_else(malformed)?;
                if name != BASE_ALLOCATION.as_bytes() || found.is_some() {
                    return Err(ClientError::Protocol("a metadata context that was not requested"));
                }
                found = Some(u32::from_be_bytes(*id));
            }
            (kind, _) if kind & rep::ERR != 0 => return Ok(None),
            _ => return Err(ClientError::Protocol("an unexpected reply to SET_META_CONTEXT")),
        }
    }
    Err(ClientError::Protocol("too many replies to SET_META_CONTEXT"))
}

fn go<S: Read + Write>(
    stream: &mut S,
    export: &str,
    structured: bool,
) -> Result<Info, ClientError> {
    let mut data = (export.len() as u32).to_be_bytes().to_vec();
    data.extend(export.as_bytes());
    let asked = [3, info::NAME, info::DESCRIPTION, info::BLOCK_SIZE];
    data.extend(asked.map(u16::to_be_bytes).as_flattened());
    send(stream, opt::GO, &data)?;

    let (mut found, mut has_export) = (defaults(structured), false);
    for _ in 0..MAX_REPLIES {
        let (kind, data) = receive(stream, opt::GO)?;
        match kind {
            rep::ACK if has_export => return finish(found),
            rep::ACK => return Err(ClientError::Protocol("it did not send the export's size")),
            rep::INFO => {
                let fact = learn(&mut found, &data)
                    .ok_or(ClientError::Protocol("malformed information about the export"))?;
                has_export |= fact == info::EXPORT;
            }
            _ if kind & rep::ERR != 0 => {
                let why = refusal(kind, &data);
                return Err(ClientError::Refused { export: export.to_owned(), why });
            }
            _ => return Err(ClientError::Protocol("an unexpected reply to GO")),
        }
    }
    Err(ClientError::Protocol("too many replies to GO"))
}

/// The values that hold unless the server sends others.
fn defaults(structured: bool) -> Info {
    Info {
        bytes: 0,
        flags: 0,
        min_block_bytes: 1,
        preferred_block_bytes: 4096,
        max_payload_bytes: MAX_PAYLOAD,
        structured,
        allocation: None,
        name: None,
        description: None,
    }
}

/// Records one item of information and returns its type, or `None` if it is malformed.
fn learn(found: &mut Info, data: &[u8]) -> Option<u16> {
    let mut c = Cursor(data);
    let fact = c.u16()?;
    let text = |c: &Cursor<'_>| {
        let text = std::str::from_utf8(c.0).ok().filter(|t| t.len() <= MAX_STRING)?;
        Some(text.to_owned())
    };
    match fact {
        info::EXPORT => {
            (found.bytes, found.flags) = (c.u64()?, c.u16()?);
            c.end()?;
        }
        info::NAME => found.name = Some(text(&c)?),
        info::DESCRIPTION => found.description = Some(text(&c)?),
        info::BLOCK_SIZE => {
            found.min_block_bytes = c.u32()?;
            found.preferred_block_bytes = c.u32()?;
            found.max_payload_bytes = c.u32()?;
            c.end()?;
        }
        _ => {}
    }
    Some(fact)
}

/// Validates the description.
fn finish(mut info: Info) -> Result<Info, ClientError> {
    let (min, preferred) = (info.min_block_bytes, info.preferred_block_bytes);
    let sizes = min.is_power_of_two()
        && min <= 1 << 16
        && preferred.is_power_of_two()
        && preferred >= min.max(512)
        && info.max_payload_bytes >= min;
    if !sizes {
        return Err(ClientError::Protocol("its block sizes are invalid"));
    }
    if !info.can(can::HAS_FLAGS) {
        return Err(ClientError::Protocol("its transmission flags lack HAS_FLAGS"));
    }
    info.max_payload_bytes = info.max_payload_bytes.min(MAX_PAYLOAD);
    Ok(info)
}

fn refusal(kind: u32, data: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(data).chars().take(256).collect();
    let known = match kind {
        rep::ERR_UNSUP => "unknown option",
        rep::ERR_POLICY => "forbidden by policy",
        rep::ERR_INVALID => "invalid request",
        rep::ERR_TLS_REQD => "TLS is required; use an nbds URI",
        rep::ERR_UNKNOWN => "no such export",
        rep::ERR_SHUTDOWN => "the server is shutting down",
        rep::ERR_BLOCK_SIZE_REQD => "block sizes must be negotiated",
        _ => "an unknown error",
    };
    if text.trim().is_empty() { known.to_owned() } else { format!("{known} ({:?})", text.trim()) }
}
