// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of clients: data of requests in flight, and buffers that are kept for reuse, of all connections of a process.
//!
//! ```text
//! budget  = a quarter for buffers that workers keep | a quarter for the connections' own shares | the rest is common
//! purse   = what one connection has: its own share, then what it takes from the common part
//! ```
//!
//! A request that fits the connection's own share needs no lock and does not wait. A larger one takes from the common
//! part, and waits its turn if too little is left: it is not refused. One peer takes at most so much of the common part that
//! the largest request of another peer ([`LARGEST`]) fits beside it, if the common part holds two of them. With a smaller budget
//! the largest request of one peer may delay that of another.
//!
//! Invariants: the sum of what purses hold never exceeds the budget. Those that wait are served in their order, except that a
//! peer at its own limit delays no other peer. What a purse holds returns when it is dropped. A connection that holds common
//! memory while others wait, and whose client makes no progress, is ended by its worker ([`Budget::has_waiting`]).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::peer::{MOST_CONNECTIONS, Peer, seats};

/// The default.
pub const DEFAULT_BYTES: u64 = 256 << 20;
/// The smallest budget: half of it holds the largest request, with what its buffers are larger than needed.
pub const LEAST_BYTES: u64 = 96 << 20;
/// The most memory of a request.
pub const LARGEST: u64 = 41 << 20;
/// The most of a connection's own share.
const MOST_OWN: u64 = 1 << 20;
/// The most of what a worker keeps.
const MOST_KEPT: u64 = 32 << 20;
/// A purse takes this much at a time from the common part if there is room, and returns less only if others wait: above the own
/// share each small request would otherwise take the lock of the process twice.
const STEP: u64 = 64 << 10;
/// Memory of a connection beside its purse: the receive buffer, replies without data, and TLS.
pub const CONNECTION_BYTES: u64 = 768 << 10;

/// Connections of a volume, by default.
pub const CONNECTIONS: u64 = seats(MOST_CONNECTIONS) as u64;

/// Memory of the program, its threads' stacks and the buffers of threads that are no workers.
pub const PROGRAM_BYTES: u64 = 64 << 20;

/// Called when a waiting purse may have what it needs.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

struct Waiting {
    purse: u64,
    peer: Peer,
    need: u64,
    wake: Wake,
}

#[derive(Default)]
struct Pool {
    taken: u64,
    peers: HashMap<Peer, u64>,
    waiting: VecDeque<Waiting>,
    /// What purses that waited were given and have not collected.
    granted: HashMap<u64, u64>,
    next: u64,
}

struct Shared {
    bytes: u64,
    common: u64,
    own: u64,
    kept_each: u64,
    connections: u64,
    pool: Mutex<Pool>,
    has_waiting: AtomicBool,
    waits: AtomicU64,
}

/// The memory of the clients of a process.
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Budget({} bytes)", self.0.bytes)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new(DEFAULT_BYTES, CONNECTIONS, 1)
    }
}

impl Pool {
    /// Whether the common part has room, and whether the peer may take it.
    fn fits(&self, shared: &Shared, peer: Peer, need: u64) -> (bool, bool) {
        let own = self.peers.get(&peer).copied().unwrap_or_default();
        let most = shared.common.saturating_sub(LARGEST);
        (self.taken + need <= shared.common, own == 0 || own + need <= most)
    }

    fn take(&mut self, peer: Peer, need: u64) {
        self.taken += need;
        *self.peers.entry(peer).or_default() += need;
    }

    fn give(&mut self, peer: Peer, bytes: u64) {
        self.taken -= bytes;
        if let Some(own) = self.peers.get_mut(&peer) {
            *own -= bytes;
            if *own == 0 {
                self.peers.remove(&peer);
            }
        }
    }

    /// Gives those that wait what they need, as far as there is room.
    fn grant(&mut self, shared: &Shared) -> Vec<Wake> {
        let (mut woken, mut i) = (Vec::new(), 0);
        // Peers with a request that waits for their own limit; it goes first among theirs.
        let mut held = Vec::new();
        while let Some(waiting) = self.waiting.get(i) {
            let (peer, need) = (waiting.peer, waiting.need);
            let (room, may) = self.fits(shared, peer, need);
            if !may || held.contains(&peer) {
                held.push(peer);
                i += 1;
                continue;
            }
            let next = if room { self.waiting.remove(i) } else { None };
            let Some(next) = next else { break };
            self.take(peer, need);
            *self.granted.entry(next.purse).or_default() += need;
            woken.push(next.wake);
        }
        shared.has_waiting.store(!self.waiting.is_empty(), Ordering::Relaxed);
        woken
    }
}

impl Budget {
    /// A budget for the clients of a process whose volumes have `connections` and `workers` in total.
    #[must_use]
    pub fn new(bytes: u64, connections: u64, workers: u64) -> Self {
        Self::with_queues(bytes, connections, 0, workers)
    }

    /// The same for a process that also serves up to `queues` queues of guests and block devices, each of which has a purse.
    #[must_use]
    pub fn with_queues(bytes: u64, connections: u64, queues: u64, workers: u64) -> Self {
        let connections = connections.max(1);
        let quarter = bytes / 4;
        Self(Arc::new(Shared {
            bytes,
            common: bytes - 2 * quarter,
            own: (quarter / (connections + queues)).min(MOST_OWN),
            kept_each: (quarter / workers.max(1)).min(MOST_KEPT),
            connections,
            pool: Mutex::default(),
            has_waiting: AtomicBool::new(false),
            waits: AtomicU64::new(0),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.0.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The purse of a connection.
    #[must_use]
    pub fn purse(&self, peer: Peer) -> Purse {
        let mut pool = self.lock();
        pool.next += 1;
        let (number, own) = (pool.next, self.0.own);
        drop(pool);
        let source = Some(Source { budget: self.clone(), peer, number });
        Purse { source, own, spent: 0, common: 0, waits: false, wake: None }
    }

    /// Bytes that a worker may keep for reuse.
    #[must_use]
    pub fn kept_each(&self) -> u64 {
        self.0.kept_each
    }

    /// The most memory that clients take: the budget, and what each connection has beside it.
    #[must_use]
    pub fn bound_bytes(&self) -> u64 {
        self.0.bytes.saturating_add(self.0.connections * CONNECTION_BYTES)
    }

    /// Whether a request waits for memory.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.0.has_waiting.load(Ordering::Relaxed)
    }

    /// How often a request waited for memory.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.0.waits.load(Ordering::Relaxed)
    }
}

struct Source {
    budget: Budget,
    peer: Peer,
    number: u64,
}

/// What the requests of one connection may spend.
#[derive(Default)]
pub struct Purse {
    /// Without one there is no limit.
    source: Option<Source>,
    own: u64,
    spent: u64,
    /// Of the common part, whether spent or not.
    common: u64,
    waits: bool,
    wake: Option<Wake>,
}

impl Purse {
    /// Sets what is called when a [`spend`](Self::spend) that failed may succeed.
    pub fn set_wake(&mut self, wake: Wake) {
        self.wake = Some(wake);
    }

    /// Spends bytes, if there are enough. Otherwise the purse waits: the caller asks again for the same bytes when it is
    /// woken.
    pub fn spend(&mut self, bytes: u64) -> bool {
        let lacks = self.spent + bytes > self.own + self.common;
        if (lacks || self.waits) && !self.collect(bytes) {
            return false;
        }
        self.spent += bytes;
        true
    }

    /// Gets what lacks from the common part.
    fn collect(&mut self, bytes: u64) -> bool {
        let Some(Source { budget, peer, number }) = &self.source else { return true };
        let mut pool = budget.lock();
        if self.waits
            && let Some(granted) = pool.granted.remove(number)
        {
            self.waits = false;
            self.common += granted;
        }
        let need = (self.spent + bytes).saturating_sub(self.own + self.common);
        if need == 0 {
            if std::mem::take(&mut self.waits) {
                pool.waiting.retain(|w| w.purse != *number);
                let woken = pool.grant(&budget.0);
                drop(pool);
                woken.iter().for_each(|wake| wake());
            }
            return true;
        }
        if self.waits {
            return false;
        }
        // Purses that wait go first, unless they wait for the limit of another peer.
        let waits_for_itself =
            |w: &Waiting| w.peer != *peer && !pool.fits(&budget.0, w.peer, w.need).1;
        let first = pool.waiting.iter().all(waits_for_itself);
        let fits = |need: &u64| first && pool.fits(&budget.0, *peer, *need) == (true, true);
        if let Some(taken) = [need.next_multiple_of(STEP), need].into_iter().find(fits) {
            pool.take(*peer, taken);
            self.common += taken;
            return true;
        }
        let wake = self.wake.clone().unwrap_or_else(|| Arc::new(|| ()));
        pool.waiting.push_back(Waiting { purse: *number, peer: *peer, need, wake });
        self.waits = true;
        budget.0.waits.fetch_add(1, Ordering::Relaxed);
        budget.0.has_waiting.store(true, Ordering::Relaxed);
        false
    }

    /// Returns spent bytes.
    pub fn give_back(&mut self, bytes: u64) {
        self.spent -= bytes.min(self.spent);
        let Some(Source { budget, .. }) = &self.source else { return };
        let excess = self.common.saturating_sub(self.spent.saturating_sub(self.own));
        let is_due = excess >= STEP || self.spent <= self.own || budget.has_waiting();
        if excess > 0 && is_due {
            self.common -= excess;
            self.release(excess);
        }
    }

    /// Waits no longer, for a request that is dropped.
    pub fn cancel(&mut self) {
        let Some(Source { budget, number, .. }) = &self.source else { return };
        if !std::mem::take(&mut self.waits) {
            return;
        }
        let mut pool = budget.lock();
        pool.waiting.retain(|w| w.purse != *number);
        let granted = pool.granted.remove(number).unwrap_or_default();
        drop(pool);
        self.release(granted);
    }

    fn release(&self, bytes: u64) {
        let Some(Source { budget, peer, .. }) = &self.source else { return };
        let mut pool = budget.lock();
        pool.give(*peer, bytes);
        let woken = pool.grant(&budget.0);
        drop(pool);
        woken.iter().for_each(|wake| wake());
    }

    /// Bytes that are spent.
    #[must_use]
    pub fn spent_bytes(&self) -> u64 {
        self.spent
    }

    /// Bytes of the common part that it holds.
    #[must_use]
    pub fn common_bytes(&self) -> u64 {
        self.common
    }
}

impl Drop for Purse {
    fn drop(&mut self) {
        self.cancel();
        if self.common > 0 {
            self.release(self.common);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn woken(purse: &mut Purse) -> Arc<AtomicUsize> {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        purse.set_wake(Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        }));
        count
    }

    #[test]
    fn own_shares_are_there_whatever_others_take() {
        let budget = Budget::new(LEAST_BYTES, CONNECTIONS, 2);
        let mut hogs: Vec<Purse> = (0..60).map(|_| budget.purse(Peer::User(1))).collect();
        hogs.iter_mut().for_each(|hog| while hog.spend(MIB) {});
        assert!(budget.has_waiting() && budget.waits() == 60);
        let mut other = budget.purse(Peer::User(2));
        let mut small = 0;
        while other.common_bytes() == 0 && other.spend(4096) {
            small += 4096;
        }
        other.give_back(4096);
        assert_eq!(other.common_bytes(), 0);
        assert!(small >= LEAST_BYTES / 4 / 80 - 8192, "{small}");
        assert!(other.spend(40 * MIB), "the largest request of another peer has room");
        let spent: u64 = hogs.iter().chain([&other]).map(Purse::spent_bytes).sum();
        assert!(spent <= LEAST_BYTES / 4 * 3, "{spent}");
    }

    #[test]
    fn a_request_that_waits_gets_its_turn() {
        let budget = Budget::new(LEAST_BYTES, CONNECTIONS, 1);
        let [mut a, mut b, mut c] = [1, 2, 3].map(|uid| budget.purse(Peer::User(uid)));
        assert!(a.spend(40 * MIB));
        let (of_b, of_c) = (woken(&mut b), woken(&mut c));
        assert!(!b.spend(20 * MIB));
        assert!(!c.spend(5 * MIB), "it overtakes the one that waits");
        a.give_back(10 * MIB);
        assert_eq!(of_b.load(Ordering::SeqCst), 0);
        a.give_back(10 * MIB);
        assert_eq!((of_b.load(Ordering::SeqCst), of_c.load(Ordering::SeqCst)), (1, 1));
        assert!(b.spend(20 * MIB) && c.spend(5 * MIB) && !budget.has_waiting());
    }

    #[test]
    fn a_peer_at_its_limit_delays_no_other_peer() {
        let budget = Budget::new(LEAST_BYTES, CONNECTIONS, 1);
        let [mut a, mut b] = [1, 1].map(|uid| budget.purse(Peer::User(uid)));
        let [mut big, mut c] = [2, 3].map(|uid| budget.purse(Peer::User(uid)));
        assert!(a.spend(6 * MIB) && big.spend(40 * MIB));
        assert!(!b.spend(10 * MIB), "over the limit of its peer, and there is no room");
        assert!(!c.spend(5 * MIB), "there is no room");
        big.give_back(6 * MIB);
        assert!(c.spend(5 * MIB) && !b.spend(10 * MIB));
    }

    #[test]
    fn a_request_that_waits_for_its_peers_limit_goes_before_others_of_the_peer() {
        let budget = Budget::new(LEAST_BYTES, CONNECTIONS, 1);
        let [mut a, mut large, mut c, mut d] = [1; 4].map(|uid| budget.purse(Peer::User(uid)));
        assert!(a.spend(4 * MIB) && !large.spend(32 * MIB));
        assert!(!c.spend(2 * MIB), "the larger one came first");
        assert!(!d.spend(2 * MIB));
        a.give_back(MIB);
        assert!(!c.spend(2 * MIB) && !d.spend(2 * MIB), "it still waits");
        a.give_back(3 * MIB);
        assert!(large.spend(32 * MIB));
        large.give_back(32 * MIB);
        assert!(c.spend(2 * MIB) && d.spend(2 * MIB) && !budget.has_waiting());
    }

    #[test]
    fn small_requests_above_the_own_share_take_from_the_common_part_in_steps() {
        let budget = Budget::new(LEAST_BYTES, CONNECTIONS, 1);
        let mut a = budget.purse(Peer::User(1));
        assert!(a.spend(budget.0.own + 4096));
        assert_eq!(a.common_bytes(), STEP);
        assert!(a.spend(4096));
        a.give_back(4096);
        assert_eq!(a.common_bytes(), STEP);
        a.give_back(4096);
        assert_eq!(a.common_bytes(), 0, "its own share suffices");
        // Others wait: nothing is kept.
        assert!(a.spend(8192));
        let [mut b, mut c] = [2, 3].map(|uid| budget.purse(Peer::User(uid)));
        assert!(b.spend(40 * MIB) && !c.spend(20 * MIB));
        a.give_back(4096);
        assert_eq!(a.common_bytes(), 4096);
        // The last bytes are there for a request that needs no more.
        let rest = budget.0.common - b.common_bytes() - 4096;
        drop(c);
        let mut d = budget.purse(Peer::User(4));
        assert!(d.spend(budget.0.own + rest - 4096) && d.common_bytes() == rest - 4096);
    }

    #[test]
    fn dropped_purses_return_what_they_hold_or_were_given() {
        let budget = Budget::new(LEAST_BYTES, CONNECTIONS, 1);
        let [mut a, mut b, mut c] = [1, 2, 3].map(|uid| budget.purse(Peer::User(uid)));
        assert!(a.spend(40 * MIB) && !b.spend(30 * MIB) && !c.spend(40 * MIB));
        drop(a);
        // It was given its part and goes before it collects it.
        drop(b);
        assert!(c.spend(40 * MIB));
        drop(c);
        let pool = budget.lock();
        assert!(pool.taken == 0 && pool.peers.is_empty() && pool.granted.is_empty());
        assert!(pool.waiting.is_empty() && !budget.has_waiting());
    }

    #[test]
    fn the_parts_are_within_the_budget() {
        let of = |volumes| volumes * CONNECTIONS;
        for (bytes, connections, queues, workers, own) in [
            (LEAST_BYTES, of(1), 0, 1, (24 << 20) / 80),
            (DEFAULT_BYTES, of(3), 0, 12, (64 << 20) / 240),
            (DEFAULT_BYTES, of(1000), 0, 1000, 838),
            (DEFAULT_BYTES, 2, 128, 2, (64 << 20) / 130),
            (LEAST_BYTES, 0, 0, 0, 1 << 20),
        ] {
            let Budget(b) = Budget::with_queues(bytes, connections, queues, workers);
            let sum = b.common + b.own * (b.connections + queues) + b.kept_each * workers;
            assert!(sum <= bytes && b.common >= LARGEST && b.own == own, "{sum} {}", b.own);
        }
    }
}
