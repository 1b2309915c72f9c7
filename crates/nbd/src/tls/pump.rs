// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread between a TLS connection and the plain socket that stands for it.
//!
//! ```text
//! network  <- outer: TLS records ->  pump  <- inner: plain bytes ->  worker's ring, or a client
//! ```
//!
//! Invariants: bounded: at most [`CHUNK`] bytes of each direction are here beside what the TLS
//! library holds of one chunk; nothing more is read from a side before the other side has taken
//! what came. The end of a direction is passed on in that direction alone, so that the last
//! answers still go out to whoever says no more; when a side is gone altogether so is the other,
//! within [`PARTING`].
//!
//! Why a thread and a socket pair: the session lends its memory to the ring, and a client has one
//! half in each of two threads. TLS in either would be a second way to do the same thing.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;

/// How much is moved at a time.
const CHUNK: usize = 64 << 10;
/// How long the last bytes may take when nobody is there any more who sent them.
const PARTING: Duration = Duration::from_secs(5);

struct Pump {
    connection: Connection,
    outer: UnixStream,
    inner: UnixStream,
    /// Bytes for the inner side: `at..end` of it.
    down: Vec<u8>,
    at: usize,
    end: usize,
    up: Vec<u8>,
    /// The network has sent its last byte; and the inner side knows.
    outer_ended: bool,
    inner_told: bool,
    /// The inner side has sent its last byte; and the network knows.
    inner_ended: bool,
    outer_told: bool,
    /// The inner side is closed altogether, since then.
    gone: Option<Instant>,
    /// The network side is.
    outer_gone: bool,
}

/// Begins to pump; the socket that stands for the connection.
pub(super) fn start(mut connection: Connection, outer: OwnedFd) -> io::Result<UnixStream> {
    let (inner, plain) = UnixStream::pair()?;
    // Whatever its family is: only reads, writes and shutdowns are done on it.
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
        inner_told: false,
        inner_ended: false,
        outer_told: false,
        gone: None,
        outer_gone: false,
    };
    std::thread::Builder::new().name("larder-tls".to_owned()).spawn(move || pump.run())?;
    Ok(plain)
}

/// Bytes moved; `None`: not now.
fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

impl Pump {
    /// Pumps until both sides have ended or one has failed.
    fn run(mut self) {
        if let Err(e) = self.pump() {
            tracing::debug!("a TLS connection ended: {e}");
            // The alert that says why, if there is one.
            let _ = self.connection.write_tls(&mut self.outer);
        }
        let _ = self.outer.shutdown(Shutdown::Both);
        let _ = self.inner.shutdown(Shutdown::Both);
    }

    fn pump(&mut self) -> io::Result<()> {
        loop {
            self.move_down()?;
            self.move_up()?;
            let parted = self.gone.is_some() && self.outer_told;
            if parted || (self.inner_told && self.outer_told) {
                return Ok(());
            }
            self.wait()?;
        }
    }

    /// From the network to the inner side, as far as it goes.
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
                if !std::mem::replace(&mut self.inner_told, true) {
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

    /// From the inner side to the network, as far as it goes.
    fn move_up(&mut self) -> io::Result<()> {
        loop {
            while self.connection.wants_write() {
                if unless_blocked(self.connection.write_tls(&mut self.outer))?.is_none() {
                    return Ok(());
                }
            }
            if self.inner_ended {
                if !std::mem::replace(&mut self.outer_told, true) {
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

    /// Waits until something can go on.
    fn wait(&mut self) -> io::Result<()> {
        let waits_down = self.at < self.end;
        let (mut outer, mut inner) = (PollFlags::empty(), PollFlags::empty());
        outer.set(PollFlags::IN, !self.outer_ended && !waits_down);
        outer.set(PollFlags::OUT, self.connection.wants_write());
        inner.set(PollFlags::OUT, waits_down);
        inner.set(PollFlags::IN, !self.inner_ended && !self.connection.wants_write());
        let left = self.gone.map(|since| PARTING.saturating_sub(since.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(ErrorKind::TimedOut.into());
        }
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        // A side that is gone says so for ever: it is looked at only when there is a use for it.
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
        // Its last bytes are read first; then it has nothing more to say, and hears nothing.
        self.outer_gone = outer_gone;
        if outer_gone && self.outer_ended {
            return Err(ErrorKind::ConnectionReset.into());
        }
        Ok(())
    }
}
