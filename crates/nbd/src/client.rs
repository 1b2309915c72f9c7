// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small blocking client that keeps many requests on their way.
//!
//! Purpose: tests, benches and the demo. [`Client::submit`] and [`Client::wait`] pipeline,
//! [`Client::read_at`] and its like are for those who want one thing done, and
//! [`Client::split`] gives two halves for two threads.
//!
//! Invariants: a server that sends garbage, lies about lengths or falls silent causes an error:
//! nothing here panics, memory is bounded by what this client asked for itself, and after an error
//! of the stream the connection is not used again.
//!
//! One thread that submits without waiting can lock up with the server, each end waiting for the
//! other to read; keep at most some 64 requests open, or use the two halves.
//!
//! Why no fallback to `EXPORT_NAME`: it cannot say why it fails, and every server of the last ten
//! years knows `GO`.

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

/// Trims and zeroes of the helpers are cut to this.
const STEP: u64 = 1 << 30;

/// A connection to an export, see the module.
#[derive(Debug)]
pub struct Client {
    sender: Sender,
    receiver: Receiver,
}

impl Client {
    /// Connects to the server of a URI and negotiates its export.
    ///
    /// # Errors
    /// There is no such server or export, or the server breaks the protocol.
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

    /// Negotiates over a connection that exists.
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

    /// What the server said about the export.
    #[must_use]
    pub fn info(&self) -> &Info {
        self.sender.info()
    }

    /// Its connection, to end it from another thread.
    ///
    /// # Errors
    /// The system's.
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

    /// Waits for the answer to some request; see [`Receiver::wait`].
    ///
    /// # Errors
    /// As for [`Receiver::wait`], and [`ClientError::Usage`] if no answer is due.
    pub fn wait(&mut self) -> Result<Completion, ClientError> {
        if self.sender.open() == 0 && self.receiver.stashed() == 0 {
            return Err(ClientError::Usage("waiting without a request"));
        }
        self.receiver.wait()
    }

    /// How many requests are not answered yet.
    #[must_use]
    pub fn open(&self) -> usize {
        self.sender.open()
    }

    /// The two halves, for two threads.
    #[must_use]
    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }

    /// Asks one thing and waits for its answer; other answers are kept for [`wait`](Self::wait).
    fn ask(
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
            part.copy_from_slice(&self.ask(Kind::Read, at, part.len() as u64, &[])?);
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
            self.ask(Kind::Write { fua }, at, part.len() as u64, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// The longest read or write that is aligned.
    fn step(&self) -> usize {
        let info = self.info();
        let block = info.min_block_bytes.max(1);
        (info.max_payload_bytes.min(MAX_PAYLOAD) / block * block).max(block) as usize
    }

    /// Makes every write answered before now durable.
    ///
    /// # Errors
    /// The server's error, or the stream's.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.ask(Kind::Flush, 0, 0, &[]).map(drop)
    }

    /// Gives a range up.
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
            self.ask(kind, at, step, &[])?;
            done += step;
        }
        Ok(())
    }

    /// What a range is, from its beginning on, perhaps not to its end; with `one`, the first extent.
    ///
    /// # Errors
    /// The server's error, or the stream's, or the context was not agreed upon.
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

    /// Says good-bye and closes the connection.
    ///
    /// # Errors
    /// The stream's.
    pub fn disconnect(self) -> Result<(), ClientError> {
        self.sender.disconnect()
    }
}
