// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listeners: accept clients and negotiate with them before a worker takes over the connection.
//!
//! Each listener has an accepting thread, and each negotiation its own short-lived thread, so that a slow or hostile
//! client delays no other. A negotiation is limited to [`NEGOTIATION_BOUND`]. The clients that negotiate are in the
//! listener's [`Lobby`], which disconnects the oldest if they are too many. A client takes a seat of its volume when it has
//! chosen the export, after TLS; a client without a seat receives an error that names the limit.
//!
//! A TLS connection has one more thread, between the network and the plain socket that the worker gets. The TLS
//! handshake is part of the negotiation and of its time limit.

mod spec;

use std::fmt;
use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder_io::Credentials;
use larder_nbd::deadline::{Deadlined, Timeouts};
use larder_nbd::tls::{ServerTls, TlsError};
use larder_nbd::uri::{Address, Names, Uri};
use larder_volume::peer::Peer;
use larder_volume::seat::Seat;
use larder_volume::{Accepted, Volume, VolumeError};

use crate::fuse::mounter::Mounter;
use crate::lines::Lines;
use crate::lobby::{Lobby, Place};
use crate::nbd::export::Exports;
use crate::nbd::handshake::{Admit, HandshakeError, Negotiated, Outcome, Security, begin, resume};
use crate::nbd::session::{Limits, Session};
use crate::socket::{Rights, bind_unix, clear_unix};

pub use self::spec::{Listen, ListenSpec};

/// How long a client may take to negotiate.
pub const NEGOTIATION_BOUND: Duration = Duration::from_secs(10);
/// Clients negotiating at a time, and those of one peer.
pub const MOST_NEGOTIATING: usize = 64;
const MOST_NEGOTIATING_EACH: usize = 32;
/// When and how often TCP probes a silent client. One that does not answer is gone after [`TCP_BOUND`].
const TCP_IDLE: Duration = Duration::from_secs(10);
const TCP_INTERVAL: Duration = Duration::from_secs(5);
/// A TCP client that acknowledges nothing for so long, or has no room for replies, is disconnected.
const TCP_BOUND: Duration = Duration::from_secs(30);
enum Socket {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

/// The TLS of a listener.
#[derive(Clone, Debug)]
pub struct Secure {
    /// The server's certificate, and which clients it accepts.
    pub tls: ServerTls,
    /// Whether clients of unix sockets must use TLS too; TCP clients always must.
    pub everywhere: bool,
}

/// A running listener; dropping it stops it and removes its unix socket.
pub struct Listener {
    socket: Arc<Socket>,
    /// Whether clients must use TLS.
    secure: bool,
    stop: Arc<AtomicBool>,
}

/// Checks whether the address can be bound, or the file be mounted, so that an error is reported before anything is
/// started.
///
/// # Errors
/// As for [`Listener::start`].
pub fn check(spec: &ListenSpec, mounter: &dyn Mounter) -> Result<(), VolumeError> {
    match spec {
        ListenSpec::Unix(path) | ListenSpec::VhostUser(path) => {
            let fail =
                |e: &str| VolumeError::Usage(format!("{}: cannot listen: {e}", path.display()));
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            if let Some(dir) = dir.filter(|dir| !dir.is_dir()) {
                let what =
                    format!("the directory {} does not exist; create it first", dir.display());
                return Err(fail(&what));
            }
            rustix::net::SocketAddrUnix::new(path.as_path())
                .map_err(|_| fail("the path is too long; accepted: up to 107 bytes"))?;
            clear_unix(path)
        }
        // The listener is closed at once; no client has connected, so the port is free again.
        ListenSpec::Tcp(address) => bind_tcp(spec, address).map(drop),
        ListenSpec::Fuse(path) => mounter.check(path),
        // The driver was asked when the thread of its commands started.
        ListenSpec::Ublk(_) => Ok(()),
    }
}

/// Binds a TCP address, for clients or for metrics; `what` names it in errors.
///
/// # Errors
/// When another server listens there, or it cannot be bound.
pub fn bind_tcp(what: impl std::fmt::Display, address: &str) -> Result<TcpListener, VolumeError> {
    let fail = |e: io::Error| match e.kind() {
        io::ErrorKind::AddrInUse => VolumeError::Refused(format!(
            "{what}: another server listens there; stop it or choose another port"
        )),
        _ => VolumeError::Usage(format!("{what}: cannot listen: {e}")),
    };
    let resolved = address.to_socket_addrs().map_err(fail)?;
    TcpListener::bind(resolved.collect::<Vec<_>>().as_slice()).map_err(fail)
}

impl Listener {
    /// Listens and serves the volumes. An export's index is that of its volume.
    ///
    /// # Errors
    /// The address cannot be bound, or it is not that of a socket.
    pub fn start(
        spec: &ListenSpec,
        volumes: Arc<Vec<Arc<Volume>>>,
        exports: Arc<Exports>,
    ) -> Result<Self, VolumeError> {
        Self::start_secure(spec, volumes, exports, None, Rights::default())
    }

    /// As [`start`](Self::start), with TLS, and with the rights of a unix socket.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_secure(
        spec: &ListenSpec,
        volumes: Arc<Vec<Arc<Volume>>>,
        exports: Arc<Exports>,
        secure: Option<Secure>,
        rights: Rights,
    ) -> Result<Self, VolumeError> {
        let security = match &secure {
            None => Security::Plain,
            Some(secure) if secure.everywhere => Security::Required,
            Some(_) if matches!(spec, ListenSpec::Tcp(_)) => Security::Required,
            Some(_) => Security::Offered,
        };
        let socket = match spec {
            ListenSpec::Unix(path) => Socket::Unix(bind_unix(path, rights)?, path.clone()),
            ListenSpec::Tcp(address) => Socket::Tcp(bind_tcp(spec, address)?),
            ListenSpec::Fuse(_) | ListenSpec::Ublk(_) | ListenSpec::VhostUser(_) => {
                return Err(VolumeError::Usage(format!("{spec}: is not a socket")));
            }
        };
        let (socket, stop) = (Arc::new(socket), Arc::new(AtomicBool::new(false)));
        let lobby = Lobby::new(MOST_NEGOTIATING, MOST_NEGOTIATING_EACH);
        let tls = secure.map(|secure| secure.tls);
        let lines = Lines::default();
        let context = Arc::new(Context { volumes, exports, security, tls, lines });
        let (accepting, stopped) = (Arc::clone(&socket), Arc::clone(&stop));
        let body = move || {
            while !stopped.load(Ordering::SeqCst) {
                match accept(&accepting) {
                    Ok(Some((client, whose))) => receive(client, whose, &lobby, &context),
                    Ok(None) => {}
                    Err(_) if stopped.load(Ordering::SeqCst) => break,
                    Err(e) => {
                        // Probably out of descriptors; other connections will close theirs.
                        tracing::warn!("accept: {e}");
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("larder-accept".to_owned()).spawn(body);
        thread.map_err(VolumeError::Thread)?;
        Ok(Self { socket, secure: security == Security::Required, stop })
    }

    /// The URI with which a client names an export.
    #[must_use]
    pub fn uri(&self, export: &str) -> Uri {
        let tls = self.secure.then(Names::default);
        Uri { address: self.address(), export: export.to_owned(), tls }
    }

    /// The bound address, with the port that the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> Address {
        match &*self.socket {
            Socket::Unix(_, path) => Address::Unix(path.clone()),
            Socket::Tcp(listener) => match listener.local_addr() {
                Ok(at) => Address::Tcp { host: at.ip().to_string(), port: at.port() },
                Err(_) => Address::Tcp { host: String::new(), port: 0 },
            },
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Ends an accept that is blocked.
        let both = rustix::net::Shutdown::Both;
        let _ = match &*self.socket {
            Socket::Unix(listener, path) => {
                let _ = std::fs::remove_file(path);
                rustix::net::shutdown(listener, both)
            }
            Socket::Tcp(listener) => rustix::net::shutdown(listener, both),
        };
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A client's name for the log, and its peer.
struct Whose {
    name: String,
    peer: Peer,
}

/// The next client; `None` if it has left already.
fn accept(socket: &Socket) -> io::Result<Option<(Stream, Whose)>> {
    match socket {
        Socket::Unix(listener, path) => {
            let (stream, _) = listener.accept()?;
            let Ok(user) = Credentials::user_of(&stream) else { return Ok(None) };
            let peer = Peer::User(user);
            let name = format!("client of {}", path.display());
            Ok(Some((Stream::Unix(stream), Whose { name, peer })))
        }
        Socket::Tcp(listener) => {
            let (stream, address) = listener.accept()?;
            let whose = Whose { name: address.to_string(), peer: Peer::of(address.ip()) };
            Ok(tune(&stream).ok().map(|()| (Stream::Tcp(stream), whose)))
        }
    }
}

/// Detects a dead client, which would otherwise occupy its seat indefinitely.
fn tune(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, TCP_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, TCP_INTERVAL)?;
    sockopt::set_tcp_user_timeout(stream, TCP_BOUND.as_millis() as u32)?;
    Ok(())
}

/// What the negotiations of a listener need.
struct Context {
    volumes: Arc<Vec<Arc<Volume>>>,
    exports: Arc<Exports>,
    security: Security,
    tls: Option<ServerTls>,
    lines: Lines,
}

/// Negotiates on a new thread and passes the connection to its volume.
fn receive(client: Stream, whose: Whose, lobby: &Lobby, context: &Arc<Context>) {
    let place = match &client {
        Stream::Unix(stream) => lobby.enter(whose.peer, stream),
        Stream::Tcp(stream) => lobby.enter(whose.peer, stream),
    };
    let place = match place {
        Ok(place) => place,
        Err(e) => {
            return context.warn(&whose, format_args!("refused before the negotiation: {e}"));
        }
    };
    let context = Arc::clone(context);
    let body = move || match client {
        Stream::Unix(stream) => context.greet(stream, whose, place),
        Stream::Tcp(stream) => context.greet(stream, whose, place),
    };
    let thread = std::thread::Builder::new().name("larder-greet".to_owned()).spawn(body);
    if let Err(e) = thread {
        tracing::warn!("cannot start a thread for a client: {e}");
    }
}

/// Why a client is rejected.
#[derive(Debug, thiserror::Error)]
enum Rejected {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Context {
    /// Negotiates; returns the socket for the worker and the result.
    fn negotiate<S>(
        &self,
        stream: S,
        since: Instant,
        admit: Admit<'_>,
    ) -> Result<(OwnedFd, Negotiated), Rejected>
    where
        S: Timeouts + io::Read + io::Write + Into<OwnedFd>,
    {
        let mut stream = Deadlined::new(stream, NEGOTIATION_BOUND);
        let begun = begin(&mut stream, &self.exports, self.security, admit)?;
        let (tls, no_zeroes) = match (begun, &self.tls) {
            (Outcome::Chosen(chosen), _) => return Ok((stream.into_inner()?.into(), chosen)),
            (Outcome::StartTls { no_zeroes }, Some(tls)) => (tls, no_zeroes),
            (Outcome::StartTls { .. }, None) => return Err(HandshakeError::NotSecure.into()),
        };
        let plain = tls.accept(stream)?;
        let left = NEGOTIATION_BOUND.saturating_sub(since.elapsed());
        let mut stream = Deadlined::new(plain, left);
        let negotiated = resume(&mut stream, &self.exports, no_zeroes, admit)?;
        Ok((stream.into_inner()?.into(), negotiated))
    }

    /// A seat for a client that chose an export.
    fn admit(&self, export: usize, whose: &Whose) -> Result<Seat, String> {
        let volume = self.volumes.get(export).filter(|volume| !volume.cache().has_lost_a_worker());
        let seat = match volume {
            None => Err("this export has failed".to_owned()),
            Some(volume) if volume.origin().is_absent() => {
                Err("the origin of this export is missing".to_owned())
            }
            Some(volume) => volume.take_seat(whose.peer).map_err(|full| full.to_string()),
        };
        seat.inspect_err(|why| self.warn(whose, format_args!("refused: {why}")))
    }

    fn warn(&self, whose: &Whose, what: fmt::Arguments<'_>) {
        self.lines.write(whose.peer, true, format_args!("{}: {what}", whose.name));
    }

    fn greet<S>(&self, stream: S, whose: Whose, place: Place)
    where
        S: Timeouts + io::Read + io::Write + Into<OwnedFd>,
    {
        let mut seat = None;
        let mut admit = |export| self.admit(export, &whose).map(|taken| seat = Some(taken));
        let tell = |what: fmt::Arguments<'_>| {
            self.lines.write(whose.peer, false, format_args!("{}: {what}", whose.name));
        };
        let (socket, negotiated) = match self.negotiate(stream, Instant::now(), &mut admit) {
            Ok(done) => done,
            // `admit` has logged it.
            Err(Rejected::Handshake(HandshakeError::Refused(_))) => return,
            Err(e) => return tell(format_args!("negotiation ended: {e}")),
        };
        let index = negotiated.export;
        let (Some(volume), Some(export), Some(seat)) =
            (self.volumes.get(index), self.exports.get(index), seat)
        else {
            return;
        };
        if !place.leave() {
            return tell(format_args!("disconnected in favour of clients that came later"));
        }
        tell(format_args!("connected to export '{}'", export.name));
        let stripe_bytes = volume.cache().shape().stripe_bytes();
        let session = Session::new(export, negotiated.structured, stripe_bytes, Limits::default())
            .with_allocation(negotiated.allocation)
            .with_purse(volume.cache().config().clients.budget.purse(whose.peer));
        let socket = Arc::new(socket);
        volume.welcome(Accepted { socket, session: Box::new(session), peer: whose.name, seat });
    }
}
