// SPDX-License-Identifier: MIT OR Apache-2.0
//! The socket of a vhost-user disk as a front door.
//!
//! Invariants: one client at a time. Another one is refused with a line in the log; if the former is ending, it waits until
//! the former's requests have ended, so that none of them changes the disk behind the next client's back. A closed door has
//! no socket, and its queues have answered what they took, within the bound. A client sees the end of its connection only
//! after that, and connects again to the next server.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use larder_io::Credentials;
use larder_volume::peer::Peer;
use larder_volume::{Volume, VolumeError};
use rustix::net::{Shutdown, shutdown};
use vhost::vhost_user::{BackendReqHandler, Error};

use super::control::{Client, Host};
use super::link::lock;
use crate::grant::Grant;
use crate::socket::{Rights, bind_unix};

/// How long a client waits for a former one that has not noticed its end.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a door that is dropped waits for its queues.
const DROP_BOUND: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// A client that is served.
struct Served {
    client: Arc<Mutex<Client>>,
    stream: UnixStream,
    /// It has left; its requests are ending.
    leaving: bool,
}

#[derive(Default)]
struct Seat {
    served: Mutex<Option<Served>>,
    changed: Condvar,
}

struct Shared {
    host: Arc<Host>,
    listener: UnixListener,
    seat: Seat,
    stop: AtomicBool,
}

/// An open door.
pub struct VhostUserDoor {
    path: PathBuf,
    shared: Arc<Shared>,
    closed: bool,
}

impl VhostUserDoor {
    /// Listens, and serves the volume to a client at a time.
    ///
    /// # Errors
    /// Another process listens there, or the socket cannot be bound.
    pub fn open(
        path: &Path,
        volume: &Arc<Volume>,
        grant: Grant,
        rights: Rights,
    ) -> Result<Self, VolumeError> {
        let listener = bind_unix(path, rights)?;
        let host = Host::new(Arc::clone(volume), grant, format!("vhost-user:{}", path.display()));
        let (seat, stop) = (Seat::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { host: Arc::new(host), listener, seat, stop });
        let accepting = Arc::clone(&shared);
        let body = move || accepting.accept();
        let thread = std::thread::Builder::new().name("larder-accept".to_owned()).spawn(body);
        if let Err(e) = thread {
            let _ = std::fs::remove_file(path);
            return Err(VolumeError::Thread(e));
        }
        Ok(Self { path: path.to_owned(), shared, closed: false })
    }

    /// Its socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.shared.host.volume
    }

    /// Takes no further client, ends the one that is served, and waits for its requests within `bound`.
    pub fn close(mut self, bound: Duration) {
        self.end(bound);
    }

    fn end(&mut self, bound: Duration) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        let Shared { host, listener, seat, stop, .. } = &*self.shared;
        stop.store(true, Ordering::SeqCst);
        let _ = std::fs::remove_file(&self.path);
        let _ = shutdown(listener, Shutdown::Both);
        let begun = Instant::now();
        let client = lock(&seat.served).as_ref().map(|served| Arc::clone(&served.client));
        if let Some(client) = client {
            // On a thread of its own: the client's lock may be held as long as its requests last.
            let close = move || lock(&client).close();
            let closing = std::thread::Builder::new().name("larder-close".to_owned()).spawn(close);
            while closing.as_ref().is_ok_and(|thread| !thread.is_finished())
                && begun.elapsed() < bound
            {
                std::thread::sleep(LOOK);
            }
        }
        host.abandoned.store(true, Ordering::SeqCst);
        let served = lock(&seat.served);
        if let Some(Served { stream, .. }) = &*served {
            let _ = shutdown(stream, Shutdown::Both);
        }
        seat.changed.notify_all();
        let wait = PATIENCE.min(bound);
        drop(seat.changed.wait_timeout_while(served, wait, |served| served.is_some()));
    }
}

impl Drop for VhostUserDoor {
    fn drop(&mut self) {
        self.end(DROP_BOUND);
    }
}

impl Shared {
    fn accept(self: Arc<Self>) {
        while !self.stop.load(Ordering::SeqCst) {
            match self.listener.accept() {
                Ok((stream, _)) => self.receive(stream),
                Err(_) if self.stop.load(Ordering::SeqCst) => break,
                Err(e) => {
                    tracing::warn!("{}: accept: {e}", self.host.title);
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    fn receive(self: &Arc<Self>, stream: UnixStream) {
        let Ok(user) = Credentials::user_of(&stream) else { return };
        let peer = Peer::User(user);
        let title = &self.host.title;
        let warn = |what: &dyn std::fmt::Display| {
            self.host.lines.write(peer, true, format_args!("{title}: {what}"));
        };
        let has_seat = self.wait_for_seat();
        if self.stop.load(Ordering::SeqCst) {
            return;
        }
        if !has_seat {
            return warn(&"a second client is refused; accepted: one at a time");
        }
        if self.host.volume.cache().has_lost_a_worker() {
            return warn(&"a client is refused: the volume has failed");
        }
        let client = Arc::new(Mutex::new(Client::new(Arc::clone(&self.host), peer)));
        let begin = || -> io::Result<()> {
            let served =
                Served { client: Arc::clone(&client), stream: stream.try_clone()?, leaving: false };
            *lock(&self.seat.served) = Some(served);
            let (shared, client) = (Arc::clone(self), Arc::clone(&client));
            let body = move || shared.serve(stream, client, peer);
            std::thread::Builder::new().name("larder-vhost".to_owned()).spawn(body).map(drop)
        };
        if let Err(e) = begin() {
            *lock(&self.seat.served) = None;
            warn(&format_args!("a client cannot be served: {e}"));
        }
    }

    /// Waits for the end of the former client; false if it stays, or the door closes.
    fn wait_for_seat(&self) -> bool {
        let begun = Instant::now();
        let mut served = lock(&self.seat.served);
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return false;
            }
            let Some(former) = &*served else { return true };
            if !former.leaving && begun.elapsed() > PATIENCE {
                return false;
            }
            let waited = self.seat.changed.wait_timeout(served, LOOK);
            served = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn serve(&self, stream: UnixStream, client: Arc<Mutex<Client>>, peer: Peer) {
        let title = &self.host.title;
        self.host.lines.write(peer, false, format_args!("{title}: a client has connected"));
        let mut messages = BackendReqHandler::from_stream(stream, Arc::clone(&client));
        let ended = loop {
            match messages.handle_request() {
                Ok(()) | Err(Error::SocketRetry(_)) => {}
                Err(e) => break e,
            }
        };
        if let Some(served) = &mut *lock(&self.seat.served) {
            served.leaving = true;
        }
        let is_expected = self.stop.load(Ordering::SeqCst) || matches!(ended, Error::Disconnected);
        let line = format_args!("{title}: the client is disconnected: {ended}");
        self.host.lines.write(peer, !is_expected, line);
        lock(&client).close();
        // The client sees the end of the connection now, after that of its requests.
        drop(messages);
        *lock(&self.seat.served) = None;
        self.seat.changed.notify_all();
    }
}
