// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection over TCP or a unix socket.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::deadline::Timeouts;
use crate::uri::Address;

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self::Tcp(stream)
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }
}

impl From<Stream> for OwnedFd {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Tcp(s) => s.into(),
            Stream::Unix(s) => s.into(),
        }
    }
}

impl Stream {
    /// Connects within `span`; tries every address of a host.
    pub(super) fn connect(address: &Address, span: Duration) -> io::Result<Self> {
        let (host, port) = match address {
            Address::Unix(path) => return connect_unix(path).map(Self::Unix),
            Address::Tcp { host, port } => (host.as_str(), *port),
        };
        let begin = Instant::now();
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in (host, port).to_socket_addrs()? {
            let left = span.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    keep_alive(&stream)?;
                    return Ok(Self::Tcp(stream));
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Duplicates the socket, so that another thread can shut it down.
    ///
    /// # Errors
    /// The socket cannot be duplicated.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(s) => s.try_clone().map(Self::Tcp),
            Self::Unix(s) => s.try_clone().map(Self::Unix),
        }
    }

    /// Shuts down one or both directions, for every clone.
    ///
    /// # Errors
    /// The socket cannot be shut down.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.shutdown(how),
            Self::Unix(s) => s.shutdown(how),
        }
    }
}

/// Keepalive detects a dead server on an idle connection. Unacknowledged data is covered by the kernel's
/// retransmissions, which last much longer; the NBD device in `larder-io` states why Larder does not shorten them.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    Ok(sockopt::set_tcp_keepcnt(stream, 6)?)
}

/// A path that begins with NUL is a name in the abstract namespace of Linux.
fn connect_unix(path: &std::path::Path) -> io::Result<UnixStream> {
    match path.as_os_str().as_bytes() {
        [0, name @ ..] => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            UnixStream::connect_addr(&address)
        }
        _ => UnixStream::connect(path),
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(buf),
            Self::Unix(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(buf),
            Self::Unix(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Timeouts for Stream {
    fn set_timeouts(&self, each: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_timeouts(each),
            Self::Unix(s) => s.set_timeouts(each),
        }
    }
}
