// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small blocking client that keeps many requests in flight.
//!
//! Purpose: tests, benches, the demo and the NBD device. [`Client::submit`] and [`Client::wait`] pipeline requests,
//! [`Client::read_at`] and similar methods complete one request, and [`Client::split`] gives two halves for two
//! threads.
//!
//! Invariants: a server that sends garbage, wrong lengths or nothing causes an error. The client never panics, its
//! memory is bounded by its own requests, and it does not use a connection again after an error of the stream.
//!
//! One thread that submits without waiting can deadlock with the server, each end waiting for the other to read. Keep
//! at most about 64 requests in flight, or use the two halves.
//!
//! Why no fallback to `EXPORT_NAME`: it cannot state why it fails, and maintained servers support `GO`.

mod error;
mod halves;
mod negotiate;
mod partial;
mod stream;

use larder_core::extent::Extent;
use larder_core::request::Kind;

pub use self::error::ClientError;
pub use self::halves::{Completion, Receiver, Sender};
pub use self::negotiate::{Info, Options};
pub use self::stream::Stream;
use super::codec::MAX_PAYLOAD;
use super::deadline::{Deadlined, Timeouts};
use super::tls;
use super::uri::{Address, Uri};

/// Longest trim or zeroing that one request asks for.
const STEP: u64 = 1 << 30;

/// A connection to an export.
#[derive(Debug)]
pub struct Client {
    sender: Sender,
    receiver: Receiver,
}

impl Client {
    /// Connects to the server of a URI and negotiates its export.
    ///
    /// # Errors
    /// The server or the export does not exist, or the server breaks the protocol.
    pub fn connect(uri: &Uri, options: &Options) -> Result<Self, ClientError> {
        let connected = Stream::connect(&uri.address, options.connect_timeout);
        let stream =
            connected.map_err(|error| ClientError::Connect { uri: uri.to_string(), error })?;
        let Some(names) = &uri.tls else {
            return Self::over(stream, &uri.export, options);
        };
        let host = match &uri.address {
            Address::Tcp { host, .. } => Some(host.as_str()),
            Address::Unix(_) => None,
        };
        let mut bounded = Deadlined::new(stream, options.connect_timeout);
        negotiate::greet(&mut bounded)?;
        negotiate::start_tls(&mut bounded)?;
        let stream = tls::connect(names, host, bounded)?;
        let mut bounded = Deadlined::new(Stream::from(stream), options.connect_timeout);
        let info = negotiate::choose(&mut bounded, &uri.export, options)?;
        Self::begin(bounded, info, options)
    }

    /// Negotiates over an open connection.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn over(
        stream: impl Into<Stream>,
        export: &str,
        options: &Options,
    ) -> Result<Self, ClientError> {
        let mut bounded = Deadlined::new(stream.into(), options.connect_timeout);
        negotiate::greet(&mut bounded)?;
        let info = negotiate::choose(&mut bounded, export, options)?;
        Self::begin(bounded, info, options)
    }

    fn begin(
        bounded: Deadlined<Stream>,
        info: Info,
        options: &Options,
    ) -> Result<Self, ClientError> {
        let stream = bounded.into_inner()?;
        stream.set_timeouts(options.io_timeout)?;
        let (sender, receiver) = halves::halves(stream, info)?;
        Ok(Self { sender, receiver })
    }

    /// The server's description of the export.
    #[must_use]
    pub fn info(&self) -> &Info {
        self.sender.info()
    }

    /// A clone of the connection's socket, with which another thread can shut it down.
    ///
    /// # Errors
    /// The socket cannot be cloned.
    pub fn stream(&self) -> std::io::Result<Stream> {
        self.sender.stream()
    }

    /// Sends a request; see [`Sender::submit`].
    ///
    /// # Errors
    /// As for [`Sender::submit`].
    pub fn submit(
        &mut self,
        kind: Kind,
        offset: u64,
        len: u64,
        data: &[u8],
    ) -> Result<u64, ClientError> {
        self.sender.submit(kind, offset, len, data)
    }

    /// Waits for any reply; see [`Receiver::wait`].
    ///
    /// # Errors
    /// As for [`Receiver::wait`], and [`ClientError::Usage`] if no request is in flight.
    pub fn wait(&mut self) -> Result<Completion, ClientError> {
        if self.sender.open() == 0 && self.receiver.stashed() == 0 {
            return Err(ClientError::Usage("no request is in flight"));
        }
        self.receiver.wait()
    }

    /// Requests without a reply.
    #[must_use]
    pub fn open(&self) -> usize {
        self.sender.open()
    }

    /// Splits the client into two halves for two threads.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// Sends one request and waits for its reply; other replies are kept for [`wait`](Self::wait).
    fn request(
        &mut self,
        kind: Kind,
        offset: u64,
        len: u64,
        data: &[u8],
    ) -> Result<Vec<u8>, ClientError> {
        let cookie = self.sender.submit(kind, offset, len, data)?;
        Ok(self.receiver.wait_for(cookie)?.result?)
    }

    /// Reads all of `into`.
    ///
    /// # Errors
    /// The server's error, or the stream's.
    pub fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        let (mut at, step) = (offset, self.step());
        for part in into.chunks_mut(step) {
            part.copy_from_slice(&self.request(Kind::Read, at, part.len() as u64, &[])?);
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes all of `data`.
    ///
    /// # Errors
    /// The server's error, or the stream's.
    pub fn write_at(&mut self, offset: u64, data: &[u8], fua: bool) -> Result<(), ClientError> {
        let (mut at, step) = (offset, self.step());
        for part in data.chunks(step) {
            self.request(Kind::Write { fua }, at, part.len() as u64, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// The longest read or write that the server accepts, aligned to its block size.
    fn step(&self) -> usize {
        let info = self.info();
        let block = info.min_block_bytes.max(1);
        (info.max_payload_bytes.min(MAX_PAYLOAD) / block * block).max(block) as usize
    }

    /// Makes every write acknowledged before this call durable.
    ///
    /// # Errors
    /// The server's error, or the stream's.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.request(Kind::Flush, 0, 0, &[]).map(drop)
    }

    /// Trims a range.
    ///
    /// # Errors
    /// The server's error, or the stream's.
    pub fn trim(&mut self, offset: u64, len: u64) -> Result<(), ClientError> {
        self.in_steps(Kind::Trim { fua: false }, offset, len)
    }

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// The server's error, or the stream's.
    pub fn zero(&mut self, offset: u64, len: u64, may_unmap: bool) -> Result<(), ClientError> {
        self.in_steps(Kind::Zero { fua: false, may_unmap }, offset, len)
    }

    fn in_steps(&mut self, kind: Kind, offset: u64, len: u64) -> Result<(), ClientError> {
        let mut done = 0;
        while done < len {
            let step = STEP.min(len - done);
            let at = offset.checked_add(done).ok_or(ClientError::Usage("offset overflows"))?;
            self.request(kind, at, step, &[])?;
            done += step;
        }
        Ok(())
    }

    /// The extents from the beginning of a range, possibly not to its end; with `one`, only the first.
    ///
    /// # Errors
    /// The server's error, or the stream's, or `base:allocation` was not negotiated.
    pub fn extents(
        &mut self,
        offset: u64,
        len: u32,
        one: bool,
    ) -> Result<Vec<Extent>, ClientError> {
        let cookie = self.sender.queue_status(offset, len, one)?;
        self.sender.push()?;
        let completion = self.receiver.wait_for(cookie)?;
        completion.result?;
        Ok(completion.extents)
    }

    /// Sends a disconnect request and closes the connection.
    ///
    /// # Errors
    /// The stream's error.
    pub fn disconnect(self) -> Result<(), ClientError> {
        self.sender.disconnect()
    }
}
