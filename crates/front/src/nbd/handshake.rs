// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server's side of the negotiation: fixed newstyle, blocking, over any stream.
//!
//! Purpose: takes a fresh connection to a chosen export. A negotiation is short, rare and consists of round trips, so
//! it blocks; the caller limits its time with a stream such as [`Deadlined`](larder_nbd::deadline::Deadlined).
//!
//! Invariants: a client may send at most [`MAX_OPTIONS`] options with at most [`MAX_OPTION_BYTES`] of data each; no
//! byte of the transmission phase is read; the server replies to an option only after it has read the option
//! completely.
//!
//! After `STARTTLS` the caller secures the stream and continues with [`resume`], which forgets everything negotiated
//! before. A listener that requires TLS accepts no other option before it.
//!
//! Where the protocol leaves a choice: the server always sends the block sizes, requested or not. A client that did not
//! request them is accepted, and its unaligned requests fail with an error. The only metadata context is
//! `base:allocation`; other contexts are not found, which is not an error. A client that chooses an export and gets no seat
//! receives an error that names the limit; it may continue to negotiate.

use std::io::{self, Read, Write};

use larder_nbd::codec::{
    Cursor, EXPORT_ZEROES, FIXED_NEWSTYLE, Greeting, NO_ZEROES, OptionHeader, OptionReply, info,
    opt, rep,
};
use larder_nbd::status::{BASE, BASE_ALLOCATION, CONTEXT, parse_query};

use super::export::{Export, Exports};

/// The most options that a client may send.
pub const MAX_OPTIONS: usize = 64;
/// The most bytes of data of an option.
pub const MAX_OPTION_BYTES: u32 = 64 << 10;

/// The result of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The export's index in [`Exports`].
    pub export: usize,
    /// Whether structured replies are used.
    pub structured: bool,
    /// Whether the client requested the block sizes and so promised to obey them.
    pub block_sizes_known: bool,
    /// Whether the context `base:allocation` was chosen for this export.
    pub allocation: bool,
}

/// The TLS policy of a listener or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS is not available.
    Plain,
    /// Clients may use TLS.
    Offered,
    /// Clients must use TLS.
    Required,
    /// The connection uses TLS.
    Secured,
}

/// How a negotiation ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client chose an export.
    Chosen(Negotiated),
    /// TLS begins with the next byte; the caller continues with [`resume`].
    StartTls {
        /// To be passed to [`resume`].
        no_zeroes: bool,
    },
}

/// Why a negotiation failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The client ended the negotiation, which is not a fault.
    #[error("the client ended the negotiation")]
    Aborted,
    /// The client closed the connection.
    #[error("the client closed the connection during the negotiation")]
    Closed,
    /// The time limit was exceeded.
    #[error("the negotiation exceeded its time limit")]
    TimedOut,
    /// The stream failed.
    #[error("the connection failed during the negotiation: {0}")]
    Io(io::Error),
    /// The client set flags that were not offered.
    #[error("client flags {0:#x}; accepted: 1 (fixed newstyle) and 2 (no zeroes)")]
    Flags(u32),
    /// An option has the wrong magic.
    #[error("an option does not begin with IHAVEOPT: the stream is out of step")]
    Magic,
    /// An option has too much data.
    #[error("option {option} with {len} bytes of data; accepted: at most {MAX_OPTION_BYTES}")]
    TooLong {
        /// The option.
        option: u32,
        /// Announced bytes.
        len: u32,
    },
    /// The client sent too many options.
    #[error("more than {MAX_OPTIONS} options without choosing an export")]
    TooMany,
    /// `EXPORT_NAME` with an unknown export; this option cannot return an error to the client.
    #[error("unknown export {0:?}")]
    UnknownExport(String),
    /// `EXPORT_NAME` of a client that gets no seat; this option cannot return an error to the client.
    #[error("refused: {0}")]
    Refused(String),
    /// `EXPORT_NAME` where TLS is required, or TLS was requested without being available.
    #[error("the client does not use TLS, which this listener requires")]
    NotSecure,
}

impl From<io::Error> for HandshakeError {
    fn from(e: io::Error) -> Self {
        use io::ErrorKind as K;
        match e.kind() {
            K::UnexpectedEof | K::ConnectionReset | K::BrokenPipe => Self::Closed,
            K::TimedOut | K::WouldBlock => Self::TimedOut,
            _ => Self::Io(e),
        }
    }
}

/// Decides about a client that chose an export; an error is the reason, one line.
pub type Admit<'a> = &'a mut dyn FnMut(usize) -> Result<(), String>;

/// Negotiates with the client at the other end of `stream`, without TLS; every client is admitted.
///
/// # Errors
/// The client closes the connection, breaks the protocol or a bound, or the stream fails. The caller must close the
/// connection in each case.
pub fn negotiate<S: Read + Write>(
    stream: S,
    exports: &Exports,
) -> Result<Negotiated, HandshakeError> {
    match begin(stream, exports, Security::Plain, &mut |_| Ok(()))? {
        Outcome::Chosen(negotiated) => Ok(negotiated),
        Outcome::StartTls { .. } => Err(HandshakeError::NotSecure),
    }
}

/// Negotiates from the first byte.
///
/// # Errors
/// As for [`negotiate`].
pub fn begin<S: Read + Write>(
    stream: S,
    exports: &Exports,
    security: Security,
    admit: Admit<'_>,
) -> Result<Outcome, HandshakeError> {
    let mut server = Server::new(stream, exports, security, admit);
    server.greet()?;
    server.run()
}

/// Continues after TLS has begun.
///
/// # Errors
/// As for [`negotiate`].
pub fn resume<S: Read + Write>(
    stream: S,
    exports: &Exports,
    no_zeroes: bool,
    admit: Admit<'_>,
) -> Result<Negotiated, HandshakeError> {
    let mut server = Server::new(stream, exports, Security::Secured, admit);
    server.no_zeroes = no_zeroes;
    match server.run()? {
        Outcome::Chosen(negotiated) => Ok(negotiated),
        Outcome::StartTls { .. } => Err(HandshakeError::NotSecure),
    }
}

struct Server<'a, S> {
    stream: S,
    exports: &'a Exports,
    security: Security,
    admit: Admit<'a>,
    no_zeroes: bool,
    structured: bool,
    /// The export for which the context was chosen.
    allocation: Option<usize>,
    /// The current option and its data.
    option: u32,
    data: Vec<u8>,
    /// The reply so far; it is sent in one write.
    out: Vec<u8>,
}

impl<'a, S: Read + Write> Server<'a, S> {
    fn new(stream: S, exports: &'a Exports, security: Security, admit: Admit<'a>) -> Self {
        let (data, out) = (Vec::new(), Vec::new());
        Server {
            stream,
            exports,
            security,
            admit,
            no_zeroes: false,
            structured: false,
            allocation: None,
            option: 0,
            data,
            out,
        }
    }

    fn run(mut self) -> Result<Outcome, HandshakeError> {
        for _ in 0..MAX_OPTIONS {
            self.read_option()?;
            if let Some(outcome) = self.answer()? {
                return Ok(outcome);
            }
        }
        Err(HandshakeError::TooMany)
    }

    fn greet(&mut self) -> Result<(), HandshakeError> {
        self.out.extend(Greeting { flags: FIXED_NEWSTYLE | NO_ZEROES }.encode());
        self.send()?;
        let mut flags = [0; 4];
        self.stream.read_exact(&mut flags)?;
        let flags = u32::from_be_bytes(flags);
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(HandshakeError::Flags(flags));
        }
        self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
        Ok(())
    }

    fn read_option(&mut self) -> Result<(), HandshakeError> {
        let mut header = [0; OptionHeader::LEN];
        self.stream.read_exact(&mut header)?;
        let header = OptionHeader::decode(&header).ok_or(HandshakeError::Magic)?;
        let OptionHeader { option, len } = header;
        self.option = option;
        if len > MAX_OPTION_BYTES {
            if option != opt::EXPORT_NAME {
                self.fail(rep::ERR_TOO_BIG, "option data is longer than 64 KiB")?;
                self.send()?;
            }
            return Err(HandshakeError::TooLong { option, len });
        }
        self.data.resize(len as usize, 0);
        self.stream.read_exact(&mut self.data)?;
        Ok(())
    }

    /// Replies to the option; returns the outcome if the negotiation ended.
    fn answer(&mut self) -> Result<Option<Outcome>, HandshakeError> {
        if self.option == opt::STARTTLS {
            return self.start_tls();
        }
        let mut done = None;
        match self.option {
            opt::ABORT => {
                self.put(rep::ACK, &[]);
                // The protocol allows the client to close the connection without waiting.
                let _ = self.send();
                return Err(HandshakeError::Aborted);
            }
            opt::EXPORT_NAME if self.security == Security::Required => {
                return Err(HandshakeError::NotSecure);
            }
            _ if self.security == Security::Required => {
                self.fail(rep::ERR_TLS_REQD, "this server requires TLS")?;
            }
            opt::EXPORT_NAME => done = Some(self.export_name()?),
            opt::LIST if self.data.is_empty() => self.list(),
            opt::STRUCTURED_REPLY if self.data.is_empty() => {
                self.structured = true;
                self.put(rep::ACK, &[]);
            }
            opt::LIST | opt::STRUCTURED_REPLY => {
                self.fail(rep::ERR_INVALID, "this option takes no data")?;
            }
            opt::INFO | opt::GO => done = self.info()?,
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => self.meta_context()?,
            _ => self.fail(rep::ERR_UNSUP, "unknown option")?,
        }
        self.send()?;
        Ok(done.map(Outcome::Chosen))
    }

    fn start_tls(&mut self) -> Result<Option<Outcome>, HandshakeError> {
        match self.security {
            Security::Plain => self.fail(rep::ERR_UNSUP, "TLS is not configured")?,
            Security::Secured => self.fail(rep::ERR_INVALID, "TLS is already active")?,
            _ if !self.data.is_empty() => {
                self.fail(rep::ERR_INVALID, "this option takes no data")?;
            }
            Security::Offered | Security::Required => {
                self.put(rep::ACK, &[]);
                self.send()?;
                return Ok(Some(Outcome::StartTls { no_zeroes: self.no_zeroes }));
            }
        }
        self.send()?;
        Ok(None)
    }

    fn send(&mut self) -> Result<(), HandshakeError> {
        self.stream.write_all(&self.out)?;
        self.stream.flush()?;
        self.out.clear();
        Ok(())
    }

    /// Appends one reply.
    fn put(&mut self, kind: u32, parts: &[&[u8]]) {
        let len = parts.iter().map(|p| p.len()).sum::<usize>() as u32;
        self.out.extend(OptionReply { option: self.option, kind, len }.encode());
        for part in parts {
            self.out.extend(*part);
        }
    }

    /// Appends an error with a message.
    #[allow(clippy::unnecessary_wraps)] // makes all arms of the callers one type
    fn fail(&mut self, kind: u32, why: &str) -> Result<(), HandshakeError> {
        self.put(kind, &[why.as_bytes()]);
        Ok(())
    }

    fn agreed(&self, export: usize, block_sizes_known: bool) -> Negotiated {
        // A context that was chosen for another export does not apply.
        let allocation = self.allocation == Some(export);
        Negotiated { export, structured: self.structured, block_sizes_known, allocation }
    }

    fn find(&self, name: &str) -> Option<(usize, Export)> {
        let index = self.exports.find(name)?;
        Some((index, self.exports.get(index)?.clone()))
    }

    fn export_name(&mut self) -> Result<Negotiated, HandshakeError> {
        let found = std::str::from_utf8(&self.data).ok().and_then(|name| self.find(name));
        let Some((index, export)) = found else {
            let name: String = String::from_utf8_lossy(&self.data).chars().take(64).collect();
            return Err(HandshakeError::UnknownExport(name));
        };
        (self.admit)(index).map_err(HandshakeError::Refused)?;
        self.out.extend(export.bytes.to_be_bytes());
        self.out.extend(export.flags(self.structured).to_be_bytes());
        if !self.no_zeroes {
            self.out.extend([0; EXPORT_ZEROES]);
        }
        Ok(self.agreed(index, false))
    }

    fn list(&mut self) {
        let exports = self.exports;
        for export in exports.iter() {
            let len = (export.name.len() as u32).to_be_bytes();
            let parts = [&len, export.name.as_bytes(), export.description.as_bytes()];
            self.put(rep::SERVER, &parts);
        }
        self.put(rep::ACK, &[]);
    }

    fn info(&mut self) -> Result<Option<Negotiated>, HandshakeError> {
        let data = std::mem::take(&mut self.data);
        let Some((name, asked)) = parse_info(&data) else {
            let why = "expected the length of a name, the name, a count and that many numbers";
            self.fail(rep::ERR_INVALID, why)?;
            return Ok(None);
        };
        let Some((index, export)) = self.find(name) else {
            self.fail(rep::ERR_UNKNOWN, "no export of this name")?;
            return Ok(None);
        };
        let go = self.option == opt::GO;
        if let Err(why) = if go { (self.admit)(index) } else { Ok(()) } {
            self.fail(rep::ERR_POLICY, &why)?;
            return Ok(None);
        }
        let asked = |kind: u16| asked.chunks_exact(2).any(|a| a == kind.to_be_bytes());
        let flags = export.flags(self.structured).to_be_bytes();
        self.put_info(info::EXPORT, &[&export.bytes.to_be_bytes(), &flags]);
        if asked(info::NAME) || name != export.name {
            self.put_info(info::NAME, &[export.name.as_bytes()]);
        }
        if asked(info::DESCRIPTION) && !export.description.is_empty() {
            self.put_info(info::DESCRIPTION, &[export.description.as_bytes()]);
        }
        let sizes = [
            export.min_block_bytes.to_be_bytes(),
            export.preferred_block_bytes.to_be_bytes(),
            export.max_payload_bytes.to_be_bytes(),
        ];
        self.put_info(info::BLOCK_SIZE, &[sizes.as_flattened()]);
        self.put(rep::ACK, &[]);
        Ok(go.then(|| self.agreed(index, asked(info::BLOCK_SIZE))))
    }

    fn put_info(&mut self, kind: u16, parts: &[&[u8]]) {
        let kind = kind.to_be_bytes();
        match parts {
            [a, b] => self.put(rep::INFO, &[&kind, a, b]),
            _ => self.put(rep::INFO, &[&kind, parts.concat().as_slice()]),
        }
    }

    /// Lists or chooses contexts. An earlier choice is void, also if this option fails.
    fn meta_context(&mut self) -> Result<(), HandshakeError> {
        let (lists, context) = (self.option == opt::LIST_META_CONTEXT, CONTEXT.to_be_bytes());
        if !lists {
            self.allocation = None;
        }
        if !self.structured {
            return self.fail(rep::ERR_INVALID, "structured replies must be negotiated first");
        }
        let data = std::mem::take(&mut self.data);
        let Some((name, queries)) = parse_query(&data) else {
            return self.fail(rep::ERR_INVALID, "expected a name, a count and queries");
        };
        let Some(export) = self.exports.find(name) else {
            return self.fail(rep::ERR_UNKNOWN, "no export of this name");
        };
        let all = lists && (queries.is_empty() || queries.contains(&BASE));
        if all || queries.contains(&BASE_ALLOCATION) {
            let id = if lists { [0; 4] } else { context };
            self.put(rep::META_CONTEXT, &[&id, BASE_ALLOCATION.as_bytes()]);
            if !lists {
                self.allocation = Some(export);
            }
        }
        self.put(rep::ACK, &[]);
        Ok(())
    }
}

/// Parses the data of `INFO` and `GO`: the export's name and the requested information types, two bytes each.
fn parse_info(data: &[u8]) -> Option<(&str, &[u8])> {
    let mut c = Cursor(data);
    let name = c.string()?;
    let count = usize::from(c.u16()?);
    let asked = c.bytes(count * 2)?;
    c.end()?;
    Some((name, asked))
}
