// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker thread: one shard, one ring, and the connections and queues that it was given.
//!
//! One turn: take messages, take what the ring has done (device operations go to the shard,
//! sockets to their sessions), run the shard, start the operations it asks for, hand replies to
//! sessions, lend memory to sockets, and then one system call that submits all of it and waits.
//!
//! A request is cut into pieces; those of other shards go to their workers by mailbox and come
//! back the same way. Tags carry the number of the worker that holds the request in their top
//! byte.

mod bulk;
mod clients;
mod flash;
mod messages;
mod observed;
mod queues;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;

use larder_core::buf::Buf;
use larder_core::desk::{Desk, Finished};
use larder_core::exec::{DevId, Io, Nanos};
use larder_core::format::label::MOST_SHARDS;
use larder_core::request::{Errno, Kind, Reply, Request};
use larder_core::shape::Shape;
use larder_core::shard::Shard;
use larder_core::volumes::Volumes;
use larder_io::{Driver, DriverError, NetEvent};
use slab::Slab;

use crate::budget::Budget;
use crate::client::{Client, Place, Served};
use crate::connection::{Accepted, Connection};
use crate::left::{FlashLeft, Left};
use crate::mailbox::Mailbox;
use crate::overlaps::Pass;
use crate::part::Part;
use crate::queue::Queue;
use crate::recent::Asked;
use crate::settings::Settings;
use crate::stats::Tally;

pub(crate) use self::bulk::Others;
use self::bulk::{Bulks, Next, is_long};
pub(crate) use self::messages::{Call, Report};
use self::observed::Observed;

/// The most workers of a volume: a label describes no more shards, and a worker's number fits the top byte of a tag.
pub const MOST_WORKERS: u32 = MOST_SHARDS;
const WORKER_SHIFT: u32 = 56;
/// The engine's device for all origins: the offset of an operation gives the volume. To the driver the origin of each volume
/// is a device with the volume's number, and flash devices have larger numbers.
pub(crate) const ORIGINS: DevId = DevId(0);
/// All flushes of the origin go to this worker's shard, which remembers a failed one.
pub(super) const FLUSH_WORKER: u32 = 0;
/// Rounds of the shard before messages and sockets are checked again.
const PUMP_ROUNDS: u32 = 8;

/// A message to a worker.
pub(crate) enum Message {
    /// A piece of a request that another worker holds; the answer goes back to it.
    Piece { tag: u64, request: Request },
    /// The answer to a piece that was sent to another worker.
    Reply(Reply),
    /// A client after the negotiation, and its volume.
    Connection { volume: u32, accepted: Accepted },
    /// A queue of requests that is not a byte stream, and its volume.
    Queue { volume: u32, queue: Box<dyn Queue> },
    /// A request from within the process.
    Call(Call),
    /// Anything else, run on the worker's thread.
    Run(Box<dyn FnOnce(&mut Worker) + Send>),
}

/// A request in flight.
struct Opened {
    volume: u32,
    asked: Asked,
    caller: Caller,
}

/// The caller of a request.
enum Caller {
    /// `pass`: of a write, on a volume that is a file too.
    Client {
        client: Client,
        ticket: u64,
        pass: Option<Pass>,
    },
    Call(Box<dyn FnOnce(Result<Vec<Buf>, Errno>) + Send>),
}

/// Whether a request changes something.
fn writes(kind: Kind) -> bool {
    !matches!(kind, Kind::Read | Kind::Flush)
}

/// What the workers of a volume share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub mailboxes: Arc<Vec<Mailbox<Message>>>,
    /// Workers that hold requests or connections, or may still get some. Each serves the pieces of the others until there
    /// are none.
    pub holding: Arc<AtomicUsize>,
    pub volumes: Volumes,
    pub parts: Arc<[Part]>,
    /// Whether a FLUSH goes to every shard.
    pub flush_shards: bool,
    pub budget: Budget,
    pub others: Others,
    /// Settings that may change.
    pub settings: Settings,
}

/// The worker, see the module.
pub(crate) struct Worker {
    pub driver: Driver,
    pub shard: Shard,
    index: u32,
    shape: Shape,
    mailboxes: Arc<Vec<Mailbox<Message>>>,
    volumes: Volumes,
    parts: Arc<[Part]>,
    flush_shards: bool,
    /// Writes of clients in flight that have no pass, by volume.
    loose: Vec<u64>,
    reports: Sender<Report>,
    /// Requests in flight.
    desk: Desk<Opened>,
    /// What is counted of each volume.
    tallies: Vec<Tally>,
    /// What it notes of requests.
    pub observed: Observed,
    /// The time of this turn.
    clock: Nanos,
    bulks: Bulks,
    others: Others,
    connections: Slab<Connection>,
    queues: Slab<Served>,
    serial: u64,
    /// Clients to process before the end of the turn.
    touched: Vec<Place>,
    /// When connections are checked next.
    next_look: Option<Nanos>,
    /// How long a connection may be idle; 0: for ever.
    idle_bound: Nanos,
    /// Reads leave the cache as it is.
    passive: bool,
    budget: Budget,
    /// Pieces that this worker sent, or that its shard got from other workers, and operations of devices that ended:
    /// background work uses buffers too.
    uses: u64,
    /// `uses` at the last check.
    looked_at: u64,
    /// Since when: no new work; end when nothing is in flight.
    stopping: Option<Nanos>,
    /// Logs are closed although something is in flight.
    hurries: bool,
    /// See [`Shared`].
    holding: Arc<AtomicUsize>,
    /// This worker is one of them.
    holds: bool,
    /// Devices that failed; a message to attach them may come later.
    dead: Vec<DevId>,
    /// End at once.
    quit: bool,
}

impl Worker {
    pub fn new(
        shape: Shape,
        driver: Driver,
        shard: Shard,
        shared: Shared,
        reports: Sender<Report>,
    ) -> Self {
        let Shared { mailboxes, holding, volumes, parts, flush_shards, .. } = shared;
        let Shared { budget, others, settings, .. } = shared;
        let ring_bytes = settings.ring_bytes(mailboxes.len() as u32);
        Self {
            driver,
            shard,
            index: shape.shard,
            shape,
            mailboxes,
            tallies: vec![Tally::default(); parts.len()],
            loose: vec![0; parts.len()],
            observed: Observed::new(parts.len(), ring_bytes),
            volumes,
            parts,
            flush_shards,
            reports,
            desk: Desk::default(),
            clock: 0,
            bulks: Bulks::beside(&others),
            others,
            connections: Slab::new(),
            queues: Slab::new(),
            serial: 0,
            touched: Vec::new(),
            next_look: None,
            idle_bound: settings.client_idle_ns,
            passive: !settings.populate,
            budget,
            uses: 0,
            looked_at: 0,
            stopping: None,
            hurries: false,
            holding,
            holds: true,
            dead: Vec::new(),
            quit: false,
        }
    }

    /// Serves until a message stops it.
    ///
    /// # Errors
    /// When the ring fails.
    pub fn run(mut self) -> Result<Left, DriverError> {
        let mut messages = VecDeque::new();
        loop {
            self.clock = self.driver.now();
            self.mailboxes[self.index as usize].take(&mut messages);
            for message in messages.drain(..) {
                self.take_message(message);
            }
            self.take_completions();
            self.pump();
            self.look();
            self.serve_clients();
            self.pump();
            self.serve_clients();
            if self.quit || self.stopping.is_some() && self.may_leave() {
                break;
            }
            self.driver.turn(self.next_deadline())?;
        }
        let given_up = self.open_requests(None) + self.connections.len() as u64;
        let flash = FlashLeft::of(&self.shard, self.parts.len() as u32);
        let unsettled =
            self.flush_shards && (!self.shard.journal_settled() || self.shard.has_losses());
        for (volume, part) in (0..).zip(self.parts.iter()) {
            self.shard.flush_failed(volume).map(|errno| part.flush_failed.set(errno));
        }
        Ok(Left { given_up, flash, unsettled })
    }

    fn take_message(&mut self, message: Message) {
        match message {
            Message::Piece { tag, request } => {
                self.count_use();
                self.shard.submit(tag, request);
            }
            Message::Reply(reply) => self.take_reply(reply),
            Message::Connection { volume, accepted } => self.welcome(volume, accepted),
            Message::Queue { volume, queue } => self.welcome_queue(volume, queue),
            Message::Call(Call { kind, passive, offset, len, bufs, done }) => {
                self.open_request(Caller::Call(done), (kind, passive), offset, len, bufs);
            }
            Message::Run(run) => run(self),
        }
    }

    fn take_completions(&mut self) {
        self.take_done();
        while let Some(event) = self.driver.next_net() {
            let (NetEvent::Received { conn, .. } | NetEvent::Sent { conn, .. }) = event;
            if let Some(connection) = self.connections.get_mut(conn as usize) {
                connection.take_event(event);
                self.touched.push(Place::Connection(conn));
            }
        }
        self.take_queue_events();
    }

    /// Gives the shard the operations of devices that ended; whether there were any.
    fn take_done(&mut self) -> bool {
        let mut any = false;
        while let Some(done) = self.driver.next_done() {
            any = true;
            self.count_use();
            self.shard.complete(done.id, done.result, done.buf);
        }
        any
    }

    /// Runs the shard until it has no output. Devices in memory answer within the loop, which is bounded so that messages
    /// and sockets are processed too.
    fn pump(&mut self) {
        for _ in 0..PUMP_ROUNDS {
            self.clock = self.driver.now();
            self.follow_doubt();
            self.shard.run(self.clock);
            while let Some(io) = self.shard.next_io() {
                let io = self.placed(io);
                self.driver.start(0, io);
            }
            let mut moved = self.take_done();
            while let Some(reply) = self.shard.next_reply() {
                moved = true;
                self.route_reply(reply);
            }
            while let Some(event) = self.shard.next_event() {
                self.report(event);
            }
            if !moved {
                return;
            }
        }
    }

    /// The operation on the device of its origin, if it is one on the origins.
    #[inline]
    fn placed(&self, mut io: Io) -> Io {
        if io.dev == ORIGINS {
            let volume = self.volumes.at(io.offset);
            io.offset -= self.parts[volume as usize].range.start;
            io.dev = DevId(volume);
        }
        io
    }

    fn route_reply(&mut self, reply: Reply) {
        let holder = (reply.tag >> WORKER_SHIFT) as u32;
        if holder == self.index {
            self.take_reply(reply);
        } else {
            self.mailboxes[holder as usize].post(Message::Reply(reply));
        }
    }

    /// An answer to a piece of a request held here.
    fn take_reply(&mut self, mut reply: Reply) {
        reply.tag &= (1 << WORKER_SHIFT) - 1;
        let number = Desk::<Caller>::number(reply.tag);
        let bulks = !self.bulks.is_empty();
        if bulks {
            self.bulks.answered(number, self.clock);
        }
        if let Some(finished) = self.desk.take(reply) {
            self.answer(finished);
        }
        if bulks {
            self.send_bulk();
        }
    }

    fn answer(&mut self, finished: Finished<Opened>) {
        let Opened { volume, asked, caller } = finished.client;
        let took = self.clock.saturating_sub(asked.at);
        let tally = &mut self.tallies[volume as usize];
        tally.latencies.count(finished.kind, finished.hit, took);
        let (hit, ok) = (finished.hit && finished.result.is_ok(), finished.result.is_ok());
        if hit {
            tally.requests.hits(finished.kind);
        }
        self.observed.answered(volume, asked, took, hit, ok);
        match caller {
            Caller::Call(done) => done(finished.result.map(|()| finished.bufs)),
            Caller::Client { client, ticket, pass } => {
                self.loose[volume as usize] -= u64::from(pass.is_none() && writes(finished.kind));
                drop(pass);
                if let Some(source) = self.touch(client) {
                    source.reply(ticket, finished.result, finished.bufs);
                }
            }
        }
    }

    fn open_request(
        &mut self,
        caller: Caller,
        (kind, passive): (Kind, bool),
        offset: u64,
        len: u64,
        bufs: Vec<Buf>,
    ) {
        let passive = passive || self.passive;
        let volume = self.volumes.at(offset);
        let part = &self.parts[volume as usize];
        self.observed.arrives((volume, part), self.clock, (kind, passive), offset, len);
        let asked = Asked { at: self.clock, kind, offset: offset - part.range.start, len };
        self.tallies[volume as usize].requests.arrives(kind, len);
        if !is_long(kind, len) {
            self.others.came(self.clock);
        }
        if kind == Kind::Flush {
            // If each shard may hold dirty data, the flush goes to all of them.
            let to = if self.flush_shards { self.mailboxes.len() as u32 } else { FLUSH_WORKER + 1 };
            let number = self.desk.open(Opened { volume, asked, caller }, kind, 0, to);
            for shard in 0..to {
                let request = Request { kind, offset, len: 0, buf: None, passive };
                self.send_piece(number, shard, shard, request);
            }
            return;
        }
        let cut = self.shape.pieces(offset, len);
        let count = self.shape.count(offset, len) as u32;
        let owner = match caller {
            Caller::Client { client, .. } => client.serial,
            Caller::Call(_) => 0,
        };
        let number = self.desk.open(Opened { volume, asked, caller }, kind, len, count);
        if is_long(kind, len) {
            self.bulks.add((owner, number), kind, cut, count);
            return self.send_bulk();
        }
        let mut bufs = bufs.into_iter();
        for (i, piece) in cut.enumerate() {
            let buf = match kind {
                Kind::Read => Some(Buf::with_len(piece.len as usize)),
                _ => bufs.next(),
            };
            let owner = self.shape.shard_at(piece.offset);
            let request = Request { kind, offset: piece.offset, len: piece.len, buf, passive };
            self.send_piece(number, i as u32, owner, request);
        }
    }

    /// Sends further pieces of long trims and zeroings.
    fn send_bulk(&mut self) {
        while let Some(Next { number, index, kind, piece }) = self.bulks.next(self.clock) {
            let owner = self.shape.shard_at(piece.offset);
            let (offset, len, passive) = (piece.offset, piece.len, false);
            let request = Request { kind, offset, len, buf: None, passive };
            self.send_piece(number, index, owner, request);
        }
    }

    fn send_piece(&mut self, number: u64, i: u32, owner: u32, request: Request) {
        let tag = Desk::<Caller>::tag(number, i) | u64::from(self.index) << WORKER_SHIFT;
        self.count_use();
        if owner == self.index {
            self.shard.submit(tag, request);
        } else {
            self.mailboxes[owner as usize].post(Message::Piece { tag, request });
        }
    }

    /// Pieces and operations use buffers, which are returned when there are no more of either.
    fn count_use(&mut self) {
        self.uses += 1;
        if self.next_look.is_none() {
            self.look_soon();
        }
    }

    /// Ends at once.
    pub fn quit(&mut self) {
        self.quit = true;
    }

    /// Hands what it noted to the miss-ratio curves.
    pub fn hand_over(&mut self) {
        self.observed.hand_over(&self.parts, self.clock);
    }

    /// Its number, which is that of its shard.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Client requests in flight that this worker holds: of all volumes, or of one.
    pub fn open_requests(&self, volume: Option<u32>) -> u64 {
        let of = |opened: &&Opened| volume.is_none_or(|volume| opened.volume == volume);
        self.desk.clients().filter(of).count() as u64
    }

    /// Writes of a volume's clients in flight that began before the volume was a file.
    pub fn loose_writes(&self, volume: u32) -> u64 {
        self.loose[volume as usize]
    }

    /// Whether this worker may end: it has no work, no other needs it, and a journal is complete. It waits for no flash.
    fn may_leave(&mut self) -> bool {
        let clients = self.connections.len() + self.queues.len();
        let mut empty = clients == 0 && self.desk.in_flight() == 0;
        if empty || self.hurries {
            self.shard.settle_journal();
            empty = empty && self.shard.journal_settled();
        }
        if empty && std::mem::replace(&mut self.holds, false) {
            self.holding.fetch_sub(1, Ordering::SeqCst);
            let others =
                self.mailboxes.iter().enumerate().filter(|(i, _)| *i != self.index as usize);
            others.for_each(|(_, mailbox)| mailbox.post(Message::Run(Box::new(|_| ()))));
        }
        self.holding.load(Ordering::SeqCst) == 0 && self.shard.requests_open() == 0
    }
}
