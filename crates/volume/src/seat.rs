// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seats: the connections that a volume serves at a time.
//!
//! A connection takes its seat when its negotiation ends, which includes TLS and the client's certificate, so half-open
//! connections take none. One peer has at most `most_each` seats. A quarter as many, at least one, are left for others, so
//! no peer alone keeps others out.
//!
//! If no seat is free, a useless connection gives way: a client that made no request since its negotiation, that does not
//! read a batch of replies, or whose write does not arrive. It is one of the newcomer's peer if that has its limit, else one
//! of a peer with the most seats. A connection that served requests and is idle gives way only to a peer
//! that has at least two connections less, and only if all seats are taken: otherwise a second client of the same machine would
//! disconnect a mounted file system.
//!
//! Invariants: the worker that serves a connection owns its seat, and the seat is free when the worker has dropped it.
//! Giving way means that the socket is shut down, which the worker notices like a client that left.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use slab::Slab;

use crate::peer::{MOST_CONNECTIONS, Peer, reserved};
use crate::session::Doing;

/// How long a client may be silent after its negotiation before its seat is given away.
const SILENCE: u64 = 1_000_000_000;
/// How long a client may be idle, or make no progress, before its seat is given away.
const PATIENCE: u64 = 10_000_000_000;
/// How long a newcomer waits until the connection that gives way has ended.
const GIVING_WAY: Duration = Duration::from_secs(1);

/// Bits of `Doing` in an [`Activity`].
const DOING_BITS: u32 = 3;

/// What a connection does and since when; the worker writes it, newcomers read it. One word has both: a newcomer that paired
/// `Idle` with the time of the request before it would disconnect a client whose long request has just ended.
#[derive(Debug, Default)]
pub(crate) struct Activity(AtomicU64);

impl Activity {
    pub fn set(&self, doing: Doing, since: u64) {
        self.0.store(since << DOING_BITS | doing as u64, Ordering::Relaxed);
    }

    /// How long the connection has been useless, or idle (`true`).
    fn rest(&self, now: u64) -> Option<(bool, u64)> {
        let word = self.0.load(Ordering::Relaxed);
        let rest = now.saturating_sub(word >> DOING_BITS);
        let is = |doing| word % (1 << DOING_BITS) == doing as u64;
        if is(Doing::Silent) {
            (rest >= SILENCE).then_some((false, rest))
        } else if is(Doing::Working) || rest < PATIENCE {
            None
        } else {
            Some((is(Doing::Idle), rest))
        }
    }
}

struct Taken {
    peer: Peer,
    activity: Arc<Activity>,
    /// The connection, once it is served.
    socket: Option<Arc<OwnedFd>>,
}

#[derive(Default)]
struct Shared {
    taken: Mutex<Slab<Taken>>,
    freed: Condvar,
}

/// The seats of a volume.
#[derive(Clone)]
pub struct Seats {
    shared: Arc<Shared>,
    most_each: usize,
    reserved: usize,
}

impl Default for Seats {
    fn default() -> Self {
        Self::new(MOST_CONNECTIONS, reserved(MOST_CONNECTIONS))
    }
}

/// Why a client gets no seat.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The peer has all that it may have.
    #[error("{open} connections of this peer are open; accepted: at most {open}")]
    Peer {
        /// Their number.
        open: usize,
    },
    /// All seats are taken.
    #[error("{open} connections are open; accepted: at most {open}")]
    All {
        /// Their number.
        open: usize,
    },
}

impl Seats {
    /// Seats of which one peer has at most `most_each`, and others the `reserved` further ones.
    #[must_use]
    pub fn new(most_each: usize, reserved: usize) -> Self {
        Self { shared: Arc::default(), most_each, reserved }
    }

    fn lock(&self) -> MutexGuard<'_, Slab<Taken>> {
        self.shared.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a client of this peer. If none is free, a connection may give way; `now` is the time of the workers.
    ///
    /// # Errors
    /// No seat is free.
    pub fn take(&self, peer: Peer, now: u64) -> Result<Seat, Full> {
        let until = Instant::now() + GIVING_WAY;
        let mut asked = false;
        let mut taken = self.lock();
        loop {
            let own = taken.iter().filter(|(_, t)| t.peer == peer).count();
            let full = if own >= self.most_each {
                Full::Peer { open: own }
            } else if taken.len() >= self.most_each + self.reserved {
                Full::All { open: taken.len() }
            } else {
                let activity = Arc::new(Activity::default());
                activity.set(Doing::Silent, now);
                let entry = Taken { peer, activity: Arc::clone(&activity), socket: None };
                let number = taken.insert(entry);
                return Ok(Seat { seats: self.clone(), number, activity });
            };
            if !std::mem::replace(&mut asked, true) && !give_way(&mut taken, &full, peer, now) {
                return Err(full);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(full);
            }
            let waited = self.shared.freed.wait_timeout(taken, left);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Shuts down the connection that gives way to a newcomer; whether there is one.
fn give_way(taken: &mut Slab<Taken>, full: &Full, newcomer: Peer, now: u64) -> bool {
    let mut counts: HashMap<Peer, usize> = HashMap::new();
    taken.iter().for_each(|(_, t)| *counts.entry(t.peer).or_default() += 1);
    let of = |peer| counts.get(&peer).copied().unwrap_or_default();
    let most = counts.values().copied().max().unwrap_or_default();
    let gives_way = |t: &Taken| {
        t.socket.as_ref()?;
        let (idle, rest) = t.activity.rest(now)?;
        let fitting = match full {
            Full::Peer { .. } => t.peer == newcomer && !idle,
            Full::All { .. } if idle => of(t.peer) == most && most >= of(newcomer) + 2,
            Full::All { .. } => of(t.peer) == most,
        };
        fitting.then_some((!idle, rest))
    };
    let found = taken.iter().filter_map(|(number, t)| Some((gives_way(t)?, number))).max();
    let Some(socket) = found.and_then(|(_, number)| taken.get_mut(number)?.socket.take()) else {
        return false;
    };
    let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
    true
}

/// A connection's seat; free again when dropped.
pub struct Seat {
    seats: Seats,
    number: usize,
    pub(crate) activity: Arc<Activity>,
}

impl Seat {
    /// The connection is served from now on, and may have to give way.
    pub(crate) fn serve(&self, socket: &Arc<OwnedFd>) {
        if let Some(taken) = self.seats.lock().get_mut(self.number) {
            taken.socket = Some(Arc::clone(socket));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().remove(self.number);
        self.seats.shared.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::IpAddr;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicBool;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn address(last: u8) -> Peer {
        Peer::of(IpAddr::from([192, 0, 2, last]))
    }

    /// A connection in its seat, and its client.
    fn seated(seats: &Seats, peer: Peer, doing: Doing, since: u64) -> (Seat, UnixStream) {
        let seat = seats.take(peer, 0).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        seat.serve(&Arc::new(ours.into()));
        seat.activity.set(doing, since);
        (seat, theirs)
    }

    fn is_shut(client: &mut UnixStream) -> bool {
        matches!(client.read(&mut [0]), Ok(0))
    }

    #[test]
    fn a_peer_has_its_limit_and_others_have_the_reserved_seats() {
        let seats = Seats::new(2, 1);
        let (first, _second) = (seats.take(address(1), 0), seats.take(address(1), 0).unwrap());
        assert_eq!(seats.take(address(1), 0).err(), Some(Full::Peer { open: 2 }));
        let _other = seats.take(Peer::User(0), 0).unwrap();
        assert_eq!(seats.take(address(2), 0).err(), Some(Full::All { open: 3 }));
        drop(first);
        assert!(seats.take(address(1), 0).is_ok());
    }

    #[test]
    fn useless_connections_give_way_and_busy_ones_do_not() {
        for (doing, since, gives_way) in [
            (Doing::Silent, 98 * SECOND, true),
            (Doing::Silent, 100 * SECOND, false),
            (Doing::Sending, 89 * SECOND, true),
            (Doing::Sending, 95 * SECOND, false),
            (Doing::Receiving, 89 * SECOND, true),
            (Doing::Working, 0, false),
            (Doing::Idle, 0, false),
        ] {
            let seats = Seats::new(1, 0);
            let (seat, mut client) = seated(&seats, address(1), doing, since);
            let worker = std::thread::spawn(move || {
                // As a worker, which drops the seat when the socket is shut down.
                let begin = Instant::now();
                while !is_shut(&mut client) && begin.elapsed() < Duration::from_millis(200) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                drop(seat);
            });
            let newcomer = seats.take(address(1), 100 * SECOND);
            assert_eq!(newcomer.is_ok(), gives_way, "{doing:?} since {since}");
            worker.join().unwrap();
        }
    }

    /// A long request ends: no reader may see the time of its begin as that of the rest.
    #[test]
    fn what_a_connection_does_and_since_when_change_together() {
        let activity = Activity::default();
        activity.set(Doing::Working, 0);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                while !over.load(Ordering::Relaxed) {
                    seen += u32::from(activity.rest(100 * SECOND).is_some());
                }
                seen
            });
            for _ in 0..300_000 {
                activity.set(Doing::Working, 0);
                activity.set(Doing::Idle, 99 * SECOND);
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(reader.join().unwrap(), 0);
        });
    }

    #[test]
    fn an_idle_connection_gives_way_only_to_a_peer_with_fewer_connections() {
        let seats = Seats::new(3, 0);
        let mut held: Vec<_> =
            [5, 3, 4].map(|since| seated(&seats, address(1), Doing::Idle, since * SECOND)).into();
        assert!(seats.take(address(1), 60 * SECOND).is_err(), "its own peer");
        assert!(held.iter_mut().all(|(_, client)| !is_shut(client)));
        std::thread::scope(|scope| {
            let newcomer = scope.spawn(|| seats.take(address(2), 60 * SECOND));
            while !is_shut(&mut held[1].1) {
                std::thread::sleep(Duration::from_millis(1));
            }
            held.remove(1);
            assert!(newcomer.join().unwrap().is_ok());
        });
        assert!(held.iter_mut().all(|(_, client)| !is_shut(client)));
    }
}
