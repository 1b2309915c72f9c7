// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients that have connected and are not served yet: a small pool, apart from the seats of those that are.
//!
//! Invariants: a full pool refuses no newcomer. If its peer has as many clients here as it may have, the oldest of them is
//! disconnected; if the pool is full, the oldest of the peer with the most. So clients that connect and stay silent delay
//! no other. Each client here has a thread, which ends soon after a disconnection. If too many have not ended, a newcomer waits,
//! for one second at most, and then gets an error.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use larder_volume::peer::Peer;

/// Threads of disconnected clients, beyond which newcomers wait.
const ENDING: usize = 16;
/// How long a newcomer waits for such a thread.
const BOUND: Duration = Duration::from_secs(1);

struct Guest {
    number: u64,
    peer: Peer,
    socket: OwnedFd,
}

#[derive(Default)]
struct Table {
    /// In order of arrival.
    guests: VecDeque<Guest>,
    next: u64,
    /// Places that were not dropped.
    places: usize,
}

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    ended: Condvar,
}

impl Table {
    /// Removes a client that was not disconnected; whether it was here.
    fn remove(&mut self, number: u64) -> bool {
        let at = self.guests.iter().position(|guest| guest.number == number);
        at.and_then(|at| self.guests.remove(at)).is_some()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool of clients.
#[derive(Clone)]
pub struct Lobby {
    shared: Arc<Shared>,
    most: usize,
    most_each: usize,
}

/// A client's place in the pool; free again when dropped.
pub struct Place {
    shared: Arc<Shared>,
    number: u64,
}

impl Lobby {
    /// A pool of `most` clients, of which one peer has at most `most_each`.
    #[must_use]
    pub fn new(most: usize, most_each: usize) -> Self {
        Self { shared: Arc::default(), most, most_each }
    }

    /// Takes a client in.
    ///
    /// # Errors
    /// No descriptor is left, or the threads of earlier clients do not end.
    pub fn enter(&self, peer: Peer, socket: impl AsFd) -> io::Result<Place> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        let busy = |table: &mut Table| table.places >= self.most + ENDING;
        let waited = self.shared.ended.wait_timeout_while(self.shared.lock(), BOUND, busy);
        let (mut table, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let of = |table: &Table, peer| table.guests.iter().filter(|g| g.peer == peer).count();
        let parted = if of(&table, peer) >= self.most_each {
            Some(peer)
        } else if table.guests.len() >= self.most {
            table.guests.iter().map(|g| g.peer).max_by_key(|p| of(&table, *p))
        } else {
            None
        };
        let oldest = parted.and_then(|peer| table.guests.iter().position(|g| g.peer == peer));
        if let Some(guest) = oldest.and_then(|at| table.guests.remove(at)) {
            let _ = rustix::net::shutdown(&guest.socket, rustix::net::Shutdown::Both);
        }
        let number = table.next;
        table.next += 1;
        table.places += 1;
        table.guests.push_back(Guest { number, peer, socket });
        Ok(Place { shared: Arc::clone(&self.shared), number })
    }
}

impl Place {
    /// The client is served from now on, unless it was disconnected.
    #[must_use]
    pub fn leave(self) -> bool {
        self.shared.lock().remove(self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.shared.lock();
        table.remove(self.number);
        table.places -= 1;
        drop(table);
        self.shared.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::IpAddr;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn address(last: u8) -> Peer {
        Peer::of(IpAddr::from([192, 0, 2, last]))
    }

    fn enter(lobby: &Lobby, peer: Peer) -> (Place, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (lobby.enter(peer, &ours).unwrap(), theirs)
    }

    fn is_shut((_, client): &mut (Place, UnixStream)) -> bool {
        matches!(client.read(&mut [0]), Ok(0))
    }

    #[test]
    fn the_oldest_client_of_the_largest_peer_leaves() {
        let lobby = Lobby::new(4, 3);
        let mut here: Vec<_> = [2, 1, 1].map(|peer| enter(&lobby, address(peer))).into();
        here.push(enter(&lobby, address(1)));
        assert!(!here.iter_mut().any(is_shut));
        // The pool is full: of the peer with the most, the first.
        here.push(enter(&lobby, address(3)));
        let shut: Vec<bool> = here.iter_mut().map(is_shut).collect();
        assert_eq!(shut, [false, true, false, false, false]);
        assert!(!here.remove(1).0.leave(), "it was disconnected");
        assert!(here.remove(0).0.leave());
    }

    #[test]
    fn a_peer_at_its_limit_displaces_only_itself() {
        let lobby = Lobby::new(8, 2);
        let mut here: Vec<_> = [1, 2, 1].map(|peer| enter(&lobby, address(peer))).into();
        here.push(enter(&lobby, address(1)));
        let shut: Vec<bool> = here.iter_mut().map(is_shut).collect();
        assert_eq!(shut, [true, false, false, false]);
    }
}
