// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread between a TLS connection and the plain socket that represents it.
//!
//! ```text
//! network  <- outer: TLS records ->  pump  <- inner: plain bytes ->  worker's ring, or a client
//! ```
//!
//! Invariants: memory is bounded, because at most [`CHUNK`] bytes of each direction are buffered here, beside one chunk
//! in the TLS library; the pump reads no more from a side before the other side has taken the previous bytes. The end
//! of one direction is passed on in that direction only, so that replies still reach a peer that has stopped sending.
//! When one side is closed in both directions, so is the other, within [`LINGER`].
//!
//! Why a thread and a socket pair: the session lends its memory to the ring, and a client has its halves in two
//! threads. TLS in either would duplicate that code.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

/// Bytes moved at a time.
const CHUNK: usize = 64 << 10;
/// Time limit for sending the last bytes after the inner side has closed.
const LINGER: Duration = Duration::from_secs(5);

struct Pump {
    connection: Connection,
    outer: UnixStream,
    inner: UnixStream,
    /// Buffer of bytes for the inner side; `at..end` is not delivered yet.
    down: Vec<u8>,
    at: usize,
    end: usize,
    up: Vec<u8>,
    /// The network has sent its last byte, and the inner socket was shut down for it.
    outer_ended: bool,
    inner_shut: bool,
    /// The inner side has sent its last byte, and the network socket was shut down for it.
    inner_ended: bool,
    outer_shut: bool,
    /// When the inner side closed both directions.
    gone: Option<Instant>,
    /// The network side has closed both directions.
    outer_gone: bool,
}

/// Starts the pump and returns the plain socket.
pub(super) fn start(mut connection: Connection, outer: OwnedFd) -> io::Result<UnixStream> {
    let (inner, plain) = UnixStream::pair()?;
    // The socket may be of another family: it is only read, written and shut down.
    let outer = UnixStream::from(outer);
    outer.set_nonblocking(true)?;
    inner.set_nonblocking(true)?;
    connection.set_buffer_limit(None);
    let pump = Pump {
        connection,
        outer,
        inner,
        down: vec![0; CHUNK],
        at: 0,
        end: 0,
        up: vec![0; CHUNK],
        outer_ended: false,
        inner_shut: false,
        inner_ended: false,
        outer_shut: false,
        gone: None,
        outer_gone: false,
    };
    std::thread::Builder::new().name("larder-tls".to_owned()).spawn(move || pump.run())?;
    Ok(plain)
}

/// The bytes moved, or `None` if the socket would block.
fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Pump {
    /// Pumps until both sides have ended or one failed.
    fn run(mut self) {
        if let Err(e) = self.pump() {
            tracing::debug!("a TLS connection ended: {e}");
            // Sends the alert that states the cause, if there is one.
            let _ = self.connection.write_tls(&mut self.outer);
        }
        let _ = self.outer.shutdown(Shutdown::Both);
        let _ = self.inner.shutdown(Shutdown::Both);
    }

    fn pump(&mut self) -> io::Result<()> {
        loop {
            self.move_down()?;
            self.move_up()?;
            let parted = self.gone.is_some() && self.outer_shut;
            if parted || (self.inner_shut && self.outer_shut) {
                return Ok(());
            }
            self.wait()?;
        }
    }

    /// Moves bytes from the network to the inner side until one of them blocks.
    fn move_down(&mut self) -> io::Result<()> {
        loop {
            while self.at < self.end && self.gone.is_none() {
                let bytes = self.down.get(self.at..self.end).unwrap_or_default();
                let Some(n) = unless_blocked(self.inner.write(bytes))? else { return Ok(()) };
                self.at += n;
            }
            match self.connection.reader().read(&mut self.down) {
                Ok(0) => self.outer_ended = true,
                Ok(n) => {
                    (self.at, self.end) = (0, n);
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => self.outer_ended = true,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            if self.outer_ended {
                if !std::mem::replace(&mut self.inner_shut, true) {
                    let _ = self.inner.shutdown(Shutdown::Write);
                }
                return Ok(());
            }
            match unless_blocked(self.connection.read_tls(&mut self.outer))? {
                None => return Ok(()),
                Some(_) => {
                    let _ = self.connection.process_new_packets().map_err(io::Error::other)?;
                }
            }
        }
    }

    /// Moves bytes from the inner side to the network until one of them blocks.
    fn move_up(&mut self) -> io::Result<()> {
        loop {
            while self.connection.wants_write() {
                if unless_blocked(self.connection.write_tls(&mut self.outer))?.is_none() {
                    return Ok(());
                }
            }
            if self.inner_ended {
                if !std::mem::replace(&mut self.outer_shut, true) {
                    self.outer.shutdown(Shutdown::Write)?;
                }
                return Ok(());
            }
            match unless_blocked(self.inner.read(&mut self.up))? {
                None => return Ok(()),
                Some(0) => {
                    self.inner_ended = true;
                    self.connection.send_close_notify();
                }
                Some(n) => {
                    let bytes = self.up.get(..n).unwrap_or_default();
                    self.connection.writer().write_all(bytes)?;
                }
            }
        }
    }

    /// Waits until a direction can continue.
    fn wait(&mut self) -> io::Result<()> {
        let waits_down = self.at < self.end;
        let (mut outer, mut inner) = (PollFlags::empty(), PollFlags::empty());
        outer.set(PollFlags::IN, !self.outer_ended && !waits_down);
        outer.set(PollFlags::OUT, self.connection.wants_write());
        inner.set(PollFlags::OUT, waits_down);
        inner.set(PollFlags::IN, !self.inner_ended && !self.connection.wants_write());
        let left = self.gone.map(|since| LINGER.saturating_sub(since.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(ErrorKind::TimedOut.into());
        }
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        // A closed side is always ready in poll(2), so it is polled only while it is of use.
        let mut fds = Vec::with_capacity(2);
        if self.gone.is_none() {
            fds.push(PollFd::new(&self.inner, inner));
        }
        if !(self.outer_gone && outer.is_empty()) {
            fds.push(PollFd::new(&self.outer, outer));
        }
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let over = PollFlags::HUP | PollFlags::ERR;
        let mut gone = fds.iter().map(|fd| fd.revents().intersects(over));
        let inner_gone = self.gone.is_none() && gone.next().unwrap_or(false);
        let outer_gone = gone.next().unwrap_or(self.outer_gone);
        if inner_gone {
            self.gone = Some(Instant::now());
            (self.at, self.end) = (0, 0);
        }
        // Its last bytes are read first; then the connection is over.
        self.outer_gone = outer_gone;
        if outer_gone && self.outer_ended {
            return Err(ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}
