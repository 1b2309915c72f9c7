// SPDX-License-Identifier: MIT OR Apache-2.0
//! A blocking stream with a deadline.
//!
//! Purpose: a negotiation is many small reads. With a timeout per read, a peer that sends one byte at a time would
//! occupy a thread indefinitely. [`Deadlined`] sets the socket's timeout to the remaining time before every operation.
//!
//! Invariants: no read or write begins after the deadline, and none waits beyond it. A timeout is reported as
//! [`io::ErrorKind::TimedOut`], whatever the system calls it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A stream whose operations can be bounded in time.
pub trait Timeouts {
    /// Bounds every later read and write; `None` removes the bound.
    ///
    /// # Errors
    /// The socket rejects the timeout.
    fn set_timeouts(&self, each: Option<Duration>) -> io::Result<()>;
}

impl Timeouts for TcpStream {
    fn set_timeouts(&self, each: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(each)?;
        self.set_write_timeout(each)
    }
}

impl Timeouts for UnixStream {
    fn set_timeouts(&self, each: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(each)?;
        self.set_write_timeout(each)
    }
}

impl<T: Timeouts> Timeouts for &T {
    fn set_timeouts(&self, each: Option<Duration>) -> io::Result<()> {
        (**self).set_timeouts(each)
    }
}

/// A stream with a deadline.
#[derive(Debug)]
pub struct Deadlined<S> {
    stream: S,
    until: Instant,
}

impl<S: Timeouts> Deadlined<S> {
    /// Sets the deadline of the stream to `span` from now.
    pub fn new(stream: S, span: Duration) -> Self {
        let far = Duration::from_secs(1 << 30);
        Self { stream, until: Instant::now() + span.min(far) }
    }

    /// The stream, without a deadline.
    ///
    /// # Errors
    /// The socket's timeouts could not be removed.
    pub fn into_inner(self) -> io::Result<S> {
        self.stream.set_timeouts(None)?;
        Ok(self.stream)
    }

    fn arm(&self) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // The kernel rounds down to its tick, and zero would mean no timeout.
        self.stream.set_timeouts(Some(left.max(Duration::from_millis(1))))
    }
}

/// Sockets report a timeout as `WouldBlock`.
fn timed_out(e: io::Error) -> io::Error {
    if e.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { e }
}

impl<S: Read + Timeouts> Read for Deadlined<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        self.stream.read(buf).map_err(timed_out)
    }
}

impl<S: Write + Timeouts> Write for Deadlined<S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.arm()?;
        self.stream.write(buf).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_sends_byte_by_byte_does_not_exceed_the_deadline() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let drip = std::thread::spawn(move || {
            while theirs.write_all(&[1]).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let begin = Instant::now();
        let mut stream = Deadlined::new(ours, Duration::from_millis(100));
        let e = stream.read_exact(&mut [0; 1000]).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() < Duration::from_secs(5));
        drop(stream);
        drip.join().unwrap();
    }

    #[test]
    fn a_silent_peer_times_out_and_the_stream_is_returned_without_a_bound() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut stream = Deadlined::new(ours, Duration::from_millis(20));
        let e = stream.read(&mut [0]).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        assert_eq!(stream.into_inner().unwrap().read_timeout().unwrap(), None);
    }
}
