// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker's clients, which are connections and queues: requests in, results out; and the end of connections that are of
//! no use.
//!
//! Invariants: a connection is checked once in [`LOOK`] while a request or reply of it is in flight, and always if idle
//! connections have a time limit.
//! The requests of a client that is gone end as soon as devices permit: the rest of long trims and zeroings is dropped. At
//! a stop a client has [`UNREAD_BOUND`] for each batch of replies; then it is disconnected, so that a client that does not read
//! does not delay the stop. A worker that for [`LOOK`] neither sent nor got a piece of a request, and whose devices ended no
//! operation, returns the buffers that it kept for reuse.

use std::sync::Arc;

use larder_core::buf::release_kept;
use larder_core::config::{CacheSpec, Limits};
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_core::extent::Extent;
use larder_core::request::{Errno, Kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Caller, Message, Worker, writes};
use crate::client::{Client, Place};
use crate::connection::{Accepted, Connection};
use crate::session::{Abort, ClientRequest, Doing, Phase, Source, What};
use crate::settings::Settings;
use crate::stats::Tally;

/// How often connections are checked.
const LOOK: Nanos = SECOND;
/// How long a client may hold memory that others wait for, without reading a batch of replies or sending a MiB; and how long
/// a client that sends no more waits for a long trim or zeroing.
const STUCK_BOUND: Nanos = 10 * SECOND;
/// How long a client may take to read a batch of replies while the volume stops.
const UNREAD_BOUND: Nanos = SECOND;

/// Whether a client leaves.
#[derive(Debug, PartialEq, Eq)]
enum Leaving {
    No,
    /// It closed both directions.
    Gone,
    /// It sends no more. It may still read replies, but it will not wait for minutes.
    Stuck,
}

/// What the events of a client's socket mean, when none of its requests has ended for so long.
fn leaving(flags: PollFlags, waits: Nanos) -> Leaving {
    if flags.intersects(PollFlags::HUP | PollFlags::ERR) {
        Leaving::Gone
    } else if flags.contains(PollFlags::RDHUP) && waits >= STUCK_BOUND {
        Leaving::Stuck
    } else {
        Leaving::No
    }
}

impl Worker {
    pub(super) fn welcome(&mut self, volume: u32, accepted: Accepted) {
        if self.stopping.is_some() {
            return;
        }
        self.serial += 1;
        let serial = self.serial;
        let mut connection = Connection::new((volume, accepted), serial, self.clock);
        let entry = self.connections.vacant_entry();
        let client = Client { place: Place::Connection(entry.key() as u32), serial, volume };
        let (mailboxes, index) = (Arc::clone(&self.mailboxes), self.index as usize);
        connection.session.set_wake(Arc::new(move || {
            let touch = move |worker: &mut Self| _ = worker.touch(client);
            mailboxes[index].post(Message::Run(Box::new(touch)));
        }));
        entry.insert(connection);
        self.touched.push(client.place);
        self.look_soon();
    }

    /// A client's source of requests, which is then processed before the end of the turn; `None` if it has ended.
    pub(super) fn touch(&mut self, client: Client) -> Option<&mut dyn Source> {
        let Client { place, serial, .. } = client;
        let source: &mut dyn Source = match place {
            Place::Connection(number) => {
                let connection = self.connections.get_mut(number as usize)?;
                (connection.serial == serial).then_some(&mut *connection.session)?
            }
            Place::Queue(number) => {
                let served = self.queues.get_mut(number as usize)?;
                (served.serial == serial).then_some(&mut *served.queue)?
            }
        };
        self.touched.push(place);
        Some(source)
    }

    /// Takes requests from clients with events, and starts what they wait for next.
    pub(super) fn serve_clients(&mut self) {
        while let Some(place) = self.touched.pop() {
            while let Some((client, request)) = self.next_request(place) {
                self.take_request(client, request);
            }
            match place {
                Place::Connection(number) => self.arm_connection(number as usize),
                Place::Queue(number) => self.arm_queue(number),
            }
        }
    }

    fn next_request(&mut self, place: Place) -> Option<(Client, ClientRequest)> {
        let (serial, volume, request) = match place {
            Place::Connection(number) => {
                let connection = self.connections.get_mut(number as usize)?;
                (connection.serial, connection.volume, connection.session.next_request()?)
            }
            Place::Queue(number) => {
                let served = self.queues.get_mut(number as usize)?;
                (served.serial, served.volume, served.queue.next_request()?)
            }
        };
        Some((Client { place, serial, volume }, request))
    }

    /// Lends memory to a connection, and removes it at its end.
    fn arm_connection(&mut self, number: usize) {
        let Some(connection) = self.connections.get_mut(number) else { return };
        let serial = connection.serial;
        let over = connection.arm(number as u32, &mut self.driver, self.clock);
        let closed = connection.session.phase() == Phase::Closed;
        if over {
            let connection = self.connections.remove(number);
            if closed {
                let why = connection.session.why();
                tracing::debug!(peer = connection.peer, "connection closed: {why}");
            }
        } else if closed {
            self.drop_bulk(Some(serial), Errno::EIO);
        } else if self.next_look.is_none() {
            self.look_soon();
        }
    }

    fn take_request(&mut self, client: Client, request: ClientRequest) {
        let ClientRequest { ticket, what, offset: within, len, bufs } = request;
        let part = &self.parts[client.volume as usize];
        let offset = part.range.start + within;
        match what {
            What::Io(kind) if writes(kind) && part.overlaps.has_begun() => {
                let range = within..within + len;
                let open = move |worker: &mut Self, pass| {
                    let caller = Caller::Client { client, ticket, pass: Some(pass) };
                    worker.open_request(caller, (kind, false), offset, len, bufs);
                };
                if let Some(pass) = part.overlaps.try_enter(&range) {
                    return open(self, pass);
                }
                let (mailboxes, index) = (Arc::clone(&self.mailboxes), self.index as usize);
                part.overlaps.enter(range, false, move |pass| {
                    mailboxes[index].post(Message::Run(Box::new(|worker| open(worker, pass))));
                });
            }
            What::Io(kind) => {
                self.loose[client.volume as usize] += u64::from(writes(kind));
                let caller = Caller::Client { client, ticket, pass: None };
                self.open_request(caller, (kind, false), offset, len, bufs);
            }
            What::PassiveRead => {
                let caller = Caller::Client { client, ticket, pass: None };
                self.open_request(caller, (Kind::Read, true), offset, len, bufs);
            }
            What::Status { one } => {
                let (mailboxes, index) = (Arc::clone(&self.mailboxes), self.index as usize);
                part.map.ask(within..within + len, one, move |extents| {
                    let tell = move |w: &mut Self| w.tell_status(client, ticket, &extents);
                    mailboxes[index].post(Message::Run(Box::new(tell)));
                });
            }
        }
    }

    fn tell_status(&mut self, client: Client, ticket: u64, extents: &[Extent]) {
        if let Some(source) = self.touch(client) {
            source.reply_status(ticket, extents);
        }
    }

    /// Ends the long trims and zeroings of a client, or of all, after their pieces in flight.
    pub(super) fn drop_bulk(&mut self, owner: Option<u64>, errno: Errno) {
        if self.bulks.is_empty() {
            return;
        }
        for (number, unsent) in self.bulks.drop_rest(owner) {
            if let Some(finished) = self.desk.cut(number, unsent, errno) {
                self.answer(finished);
            }
        }
    }

    pub(super) fn look_soon(&mut self) {
        self.next_look = Some(self.clock + LOOK);
    }

    /// Looks at the connections, if it is time.
    pub(super) fn look(&mut self) {
        if self.bulks.deadline().is_some_and(|at| at <= self.clock) {
            self.send_bulk();
        }
        if let Some(stopped) = self.stopping {
            self.abort_where(Abort::Unread, |connection, now| {
                connection.sending().is_some_and(|at| at.max(stopped) + UNREAD_BOUND <= now)
            });
        }
        if self.next_look.is_none_or(|at| at > self.clock) {
            return;
        }
        self.find_gone();
        let bound = self.idle_bound;
        if bound > 0 {
            self.abort_where(Abort::Idle, |connection, now| {
                let (doing, since) = connection.doing();
                doing != Doing::Working && since.saturating_add(bound) <= now
            });
        }
        if self.budget.has_waiting() {
            self.abort_where(Abort::Starves, |connection, now| {
                let (doing, since) = connection.doing();
                let stuck = matches!(doing, Doing::Sending | Doing::Receiving);
                stuck && since + STUCK_BOUND <= now && connection.session.common_bytes() > 0
            });
        }
        let quiet = |c: &Connection| matches!(c.doing().0, Doing::Idle | Doing::Silent);
        self.next_look = None;
        let rests = std::mem::replace(&mut self.looked_at, self.uses) == self.uses;
        if rests {
            release_kept();
        }
        if bound > 0 && !self.connections.is_empty()
            || !rests
            || !self.connections.iter().all(|(_, c)| quiet(c))
        {
            self.look_soon();
        }
    }

    /// Ends the connections for which `is_useless`, given the time.
    fn abort_where(&mut self, why: Abort, is_useless: impl Fn(&Connection, Nanos) -> bool) {
        for (number, connection) in &mut self.connections {
            if connection.session.phase() != Phase::Closed && is_useless(connection, self.clock) {
                tracing::info!("{}: disconnected: {why}", connection.peer);
                connection.session.abort(why);
                self.touched.push(Place::Connection(number as u32));
            }
        }
    }

    /// Ends the requests of clients that are gone. The worker does not receive from a client that has as many requests in
    /// flight as it may have, so it asks.
    fn find_gone(&mut self) {
        let waiting = |c: &Connection| !matches!(c.doing().0, Doing::Idle | Doing::Silent);
        let asked: Vec<usize> =
            self.connections.iter().filter(|(_, c)| waiting(c)).map(|(n, _)| n).collect();
        let polled = |n: &usize| PollFd::new(self.connections[*n].socket(), PollFlags::RDHUP);
        let mut fds: Vec<_> = asked.iter().map(polled).collect();
        if fds.is_empty() || poll(&mut fds, Some(&Timespec::default())).is_err() {
            return;
        }
        let found: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        for (number, flags) in asked.into_iter().zip(found) {
            let Some(connection) = self.connections.get_mut(number) else { continue };
            let waits = self.clock.saturating_sub(connection.doing().1);
            match leaving(flags, waits) {
                Leaving::No => {}
                Leaving::Gone => {
                    connection.session.abort(Abort::Gone);
                    self.touched.push(Place::Connection(number as u32));
                }
                Leaving::Stuck => {
                    let serial = connection.serial;
                    self.drop_bulk(Some(serial), Errno::ESHUTDOWN);
                }
            }
        }
    }

    /// Memory of its clients and their requests.
    pub fn client_bytes(&self) -> u64 {
        let connections: u64 = self.connections.iter().map(|(_, c)| c.session.memory_bytes()).sum();
        connections + self.queue_bytes()
    }

    /// Takes settings that changed.
    pub fn adjust(
        &mut self,
        settings: &Settings,
        (limits, spec): (&Limits, &CacheSpec),
        ring_bytes: u64,
    ) {
        self.shard.adjust(limits);
        let chosen = self.shard.choose(spec);
        debug_assert!(chosen, "the settings have no other choices");
        self.observed.resize(ring_bytes);
        (self.idle_bound, self.passive) = (settings.client_idle_ns, !settings.populate);
        self.look_soon();
    }

    /// What it counted: of all volumes, or of one.
    pub fn tally(&self, volume: Option<u32>) -> Tally {
        let mut sum = Tally::default();
        for (_, tally) in (0..).zip(&self.tallies).filter(|(n, _)| volume.is_none_or(|v| v == *n)) {
            sum.requests += tally.requests;
            sum.latencies += &tally.latencies;
        }
        sum
    }

    /// Connections being served, by volume.
    pub fn connections_by_volume(&self) -> Vec<u64> {
        let mut counts = vec![0; self.parts.len()];
        self.connections.iter().for_each(|(_, c)| counts[c.volume as usize] += 1);
        counts
    }

    /// Takes nothing new; requests in flight are answered, then the worker ends.
    pub fn stop(&mut self) {
        self.stopping = Some(self.driver.now());
        for (number, connection) in &mut self.connections {
            connection.session.stop();
            self.touched.push(Place::Connection(number as u32));
        }
        self.stop_queues();
    }

    /// The time limit of the stop is near: long trims and zeroings end with an error, and logs are closed whatever is in
    /// flight.
    pub fn hurry(&mut self) {
        self.hurries = true;
        self.shard.stop_retrying();
        self.drop_bulk(None, Errno::ESHUTDOWN);
    }

    /// The time of the next turn at the latest: while a log is being closed, its state is polled.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let again = self.stopping.map(|_| self.driver.now() + 10 * MILLISECOND);
        let bulk = self.bulks.deadline();
        self.shard.next_deadline().into_iter().chain(again).chain(bulk).chain(self.next_look).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_only_sends_no_more_gets_its_replies() {
        let half = PollFlags::RDHUP | PollFlags::IN;
        assert_eq!(leaving(PollFlags::IN, STUCK_BOUND), Leaving::No);
        assert_eq!(leaving(half, STUCK_BOUND - 1), Leaving::No);
        assert_eq!(leaving(half, STUCK_BOUND), Leaving::Stuck);
        assert_eq!(leaving(half | PollFlags::HUP, 0), Leaving::Gone);
        assert_eq!(leaving(PollFlags::ERR, 0), Leaving::Gone);
    }
}
