// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transmission phase of one connection, without the socket.
//!
//! Purpose: the NBD implementation of [`larder_volume::session`], which documents the order of calls.
//!
//! Invariants:
//! - Bounded: at most [`Limits::requests`] requests and [`Limits::payload_bytes`] bytes of payload (or one request) are
//!   open. Until one of them completes *and its reply is sent*, the session parses no further request and soon stops
//!   receiving. Memory for the payload of a write is allocated as it arrives, not as it is announced.
//! - Tickets are the session's own: clients may send equal cookies, and a duplicate or late result matches no request.
//! - Every parsed request except a disconnect gets exactly one reply, unless the connection is cut.
//! - A write is passed on when its payload is complete, split as [`pieces`](larder_core::request::pieces) splits.
//!
//! Why the payload of a rejected write is read completely: the header of the next request follows it. Above
//! [`Limits::skip_bytes`] the session cuts the connection instead.
//!
//! Why data is received into one of two places: many short requests need one large buffer, from which they are copied.
//! The rest of a long payload is received without a copy, directly where the device will read it.

mod answer;
mod check;
mod fill;
mod outbox;
mod slots;
mod types;

use std::ops::Range;

use larder_core::buf::{Buf, PAGE};
use larder_core::extent::Extent;
use larder_core::request::{Errno, Kind};
use larder_io::SendBatch;
use larder_nbd::codec::{RequestHeader, cmd};
use larder_volume::session::{self, ClientRequest, Phase, What};

use self::check::{Rules, Verdict};
use self::fill::Fill;
use self::outbox::{Held, Outbox};
use self::slots::{Slot, Slots};
use super::export::Export;

pub use self::types::{Limits, State, Why};

/// When at least this much of a piece of a write is missing, it is received in place; a shorter rest is received
/// together with what follows it, and copied.
const DIRECT_BYTES: usize = 16 << 10;

/// What the next bytes belong to.
enum Input {
    Head,
    Fill(Fill),
    /// The payload of a rejected write.
    Skip {
        slot: u32,
        left: u32,
        errno: Errno,
        why: &'static str,
    },
}

/// Which buffer is lent for receiving.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lent {
    None,
    Recv,
    Piece,
}

/// The result of a parsing step.
enum Step {
    Ready(ClientRequest),
    Again,
    /// More bytes are needed.
    Starved,
    /// A request must complete first.
    Blocked,
}

/// The transmission phase of one connection.
pub struct Session {
    rules: Rules,
    structured: bool,
    stripe_bytes: u64,
    limits: Limits,
    state: State,
    /// The peer sent its last byte.
    eof: bool,
    /// Nothing further is parsed.
    input_done: bool,
    input: Input,
    /// The receive buffer; `None` while it is lent. `start..end` is received and not parsed.
    recv: Option<Buf>,
    start: usize,
    end: usize,
    lent: Lent,
    slots: Slots,
    /// What open requests hold, from their header until their reply is sent.
    held: Held,
    outbox: Outbox,
    /// The last batch, emptied, for reuse.
    batch: SendBatch,
    /// Empty vectors that came with replies, for reuse by writes.
    spare: Vec<Vec<Buf>>,
}

impl Session {
    /// A session on `export`; `structured` and the export are as negotiated. Writes are split at multiples of
    /// `stripe_bytes`.
    #[must_use]
    pub fn new(export: &Export, structured: bool, stripe_bytes: u64, limits: Limits) -> Self {
        let limits = Limits {
            requests: limits.requests.max(1),
            recv_bytes: limits.recv_bytes.max(PAGE),
            ..limits
        };
        Self {
            rules: Rules::new(export, structured),
            structured,
            stripe_bytes: stripe_bytes.max(1),
            limits,
            state: State::Open,
            eof: false,
            input_done: false,
            input: Input::Head,
            recv: Some(Buf::with_len(limits.recv_bytes)),
            start: 0,
            end: 0,
            lent: Lent::None,
            slots: Slots::default(),
            held: Held::default(),
            outbox: Outbox::default(),
            batch: SendBatch::default(),
            spare: Vec::new(),
        }
    }

    /// Allows block status requests if the client chose `base:allocation`, which needs structured replies.
    #[must_use]
    pub fn with_allocation(mut self, chosen: bool) -> Self {
        self.rules.allocation = chosen && self.structured;
        self
    }

    /// The state of the session.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    fn step(&mut self) -> Step {
        let recv = self.recv.as_deref().unwrap_or_default();
        let unparsed = &recv[self.start..self.end];
        match &mut self.input {
            Input::Head => {
                let Some(bytes) = unparsed.first_chunk() else { return Step::Starved };
                match RequestHeader::decode(bytes) {
                    Ok(header) => self.begin(&header),
                    Err(magic) => self.cut(Why::BadMagic(magic)),
                }
            }
            Input::Fill(fill) => {
                self.start += fill.feed(unparsed);
                if !fill.is_full() {
                    return Step::Starved;
                }
                match std::mem::replace(&mut self.input, Input::Head) {
                    Input::Fill(f) => {
                        Step::Ready(self.hand_on(f.slot, What::Io(f.kind), f.into_bufs()))
                    }
                    _ => Step::Again,
                }
            }
            Input::Skip { slot, left, errno, why } => {
                let n = unparsed.len().min(*left as usize);
                self.start += n;
                *left -= n as u32;
                if *left > 0 {
                    return Step::Starved;
                }
                let (slot, errno, why) = (*slot, *errno, *why);
                self.input = Input::Head;
                self.answer_error(slot, errno, why)
            }
        }
    }

    /// Begins the request whose header is at `start`.
    fn begin(&mut self, header: &RequestHeader) -> Step {
        let verdict = self.rules.check(header);
        let payload = match verdict {
            Verdict::Ask(Kind::Read | Kind::Write { .. }) => u64::from(header.len),
            Verdict::Refuse(..) if header.command == cmd::WRITE => {
                if header.len > self.limits.skip_bytes {
                    return self.cut(Why::Oversize(header.len));
                }
                0
            }
            Verdict::Disconnect => {
                self.close_input(Why::Disconnect);
                return Step::Again;
            }
            _ => 0,
        };
        let fits = self.held.bytes + payload <= self.limits.payload_bytes;
        let fits = fits || payload == 0 || self.held.bytes == 0;
        if self.held.requests >= self.limits.requests || !fits {
            return Step::Blocked;
        }
        self.start += RequestHeader::LEN;
        self.held.requests += 1;
        self.held.bytes += payload;
        let slot = self.slots.open(header, payload);
        match verdict {
            Verdict::Ask(kind @ Kind::Write { .. }) => {
                let bufs = self.spare.pop().unwrap_or_default();
                let range = (header.offset, payload);
                self.input = Input::Fill(Fill::new((slot, kind), range, self.stripe_bytes, bufs));
                Step::Again
            }
            Verdict::Ask(kind) => Step::Ready(self.hand_on(slot, What::Io(kind), Vec::new())),
            Verdict::Status { one } => {
                Step::Ready(self.hand_on(slot, What::Status { one }, Vec::new()))
            }
            Verdict::Refuse(errno, why) if header.command == cmd::WRITE => {
                self.input = Input::Skip { slot, left: header.len, errno, why };
                Step::Again
            }
            Verdict::Refuse(errno, why) => self.answer_error(slot, errno, why),
            Verdict::Nothing | Verdict::Disconnect => self.answer_ok(slot, Vec::new()),
        }
    }

    fn hand_on(&self, index: u32, what: What, bufs: Vec<Buf>) -> ClientRequest {
        let slot = self.slots.get(index);
        let ticket = self.slots.ticket(index);
        ClientRequest { ticket, what, offset: slot.offset, len: u64::from(slot.len), bufs }
    }

    /// Ends a request. The payload of a write is freed here, everything else with the reply.
    fn close_slot(&mut self, index: u32) -> Slot {
        let slot = self.slots.close(index);
        if !slot.is_read() {
            self.held.bytes -= slot.payload;
        }
        slot
    }

    fn answer_ok(&mut self, index: u32, mut bufs: Vec<Buf>) -> Step {
        let slot = self.close_slot(index);
        if !matches!(self.state, State::Closed(_)) {
            answer::ok(&mut self.outbox, &slot, self.structured, &mut bufs);
        }
        bufs.clear();
        if bufs.capacity() > 0 && self.spare.len() < self.limits.requests {
            self.spare.push(bufs);
        }
        Step::Again
    }

    fn answer_error(&mut self, index: u32, errno: Errno, why: &str) -> Step {
        let slot = self.close_slot(index);
        if !matches!(self.state, State::Closed(_)) {
            answer::error(&mut self.outbox, &slot, self.structured, errno, why);
        }
        Step::Again
    }

    /// As [`take_send`](session::Session::take_send), for other drivers: `push` receives the parts in order, each a
    /// buffer and the range to send. Returns whether there was a batch.
    pub fn take_send_with(&mut self, push: impl FnMut(Buf, Range<usize>)) -> bool {
        self.outbox.take(push)
    }

    /// Ends the input. A request whose payload is still arriving is dropped.
    fn close_input(&mut self, why: Why) {
        if self.input_done {
            return;
        }
        self.input_done = true;
        self.state = State::Closing(why);
        let arriving = match std::mem::replace(&mut self.input, Input::Head) {
            Input::Head => return,
            Input::Fill(fill) => fill.slot,
            Input::Skip { slot, .. } => slot,
        };
        self.close_slot(arriving);
        self.held.requests -= 1;
    }

    /// Ends the session at once; waiting replies are not sent.
    fn cut(&mut self, why: Why) -> Step {
        if !matches!(self.state, State::Closed(_)) {
            self.close_input(why);
            self.state = State::Closed(why);
            self.outbox.clear();
        }
        Step::Again
    }

    /// Changes from closing to closed when nothing is left to do.
    fn settle(&mut self) {
        if let State::Closing(why) = self.state
            && self.input_done
            && self.slots.in_use() == 0
            && self.outbox.is_idle()
        {
            self.state = State::Closed(why);
        }
    }
}

impl session::Session for Session {
    fn memory_out(&self) -> bool {
        self.lent != Lent::None || self.outbox.is_flying()
    }

    fn in_flight(&self) -> usize {
        self.slots.in_use()
    }

    fn stop(&mut self) {
        self.close_input(Why::Stopped);
        self.settle();
    }

    fn take_recv(&mut self) -> Option<(Buf, usize)> {
        if self.lent != Lent::None || self.input_done || self.eof {
            return None;
        }
        let unparsed = self.end - self.start;
        let parsable = match &self.input {
            Input::Head => unparsed >= RequestHeader::LEN,
            Input::Fill(fill) => unparsed > 0 || fill.is_full(),
            Input::Skip { .. } => unparsed > 0,
        };
        if parsable {
            return None;
        }
        if let Input::Fill(fill) = &mut self.input
            && let Some(piece) = fill.lend(DIRECT_BYTES)
        {
            self.lent = Lent::Piece;
            return Some(piece);
        }
        let mut recv = self.recv.take()?;
        recv.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, unparsed);
        self.lent = Lent::Recv;
        Some((recv, unparsed))
    }

    fn received(&mut self, buf: Buf, at: usize, n: usize) {
        let n = n.min(buf.len().saturating_sub(at));
        match std::mem::replace(&mut self.lent, Lent::None) {
            Lent::None => debug_assert!(false, "received into memory that was not lent"),
            Lent::Recv => {
                debug_assert_eq!(at, self.end);
                self.end = (self.end + n).min(buf.len());
                self.recv = Some(buf);
            }
            Lent::Piece => {
                if let Input::Fill(fill) = &mut self.input {
                    fill.give_back(buf, n);
                }
            }
        }
        if n == 0 && !self.input_done {
            self.eof = true;
            self.state = State::Closing(Why::PeerClosed);
        }
        self.settle();
    }

    fn next_request(&mut self) -> Option<ClientRequest> {
        while !self.input_done && self.lent == Lent::None {
            match self.step() {
                Step::Ready(request) => return Some(request),
                Step::Again => {}
                Step::Starved if self.eof => {
                    let clean = matches!(self.input, Input::Head) && self.start == self.end;
                    self.close_input(if clean {
                        Why::PeerClosed
                    } else {
                        Why::PeerClosedInRequest
                    });
                }
                Step::Starved | Step::Blocked => break,
            }
        }
        self.settle();
        None
    }

    fn reply(&mut self, ticket: u64, result: Result<(), Errno>, mut bufs: Vec<Buf>) {
        let Some(index) = self.slots.find(ticket) else {
            tracing::error!(ticket, "a result matches no NBD request");
            return;
        };
        let slot = self.slots.get(index);
        let bytes: usize = bufs.iter().map(|b| b.len()).sum();
        match result {
            Ok(()) if slot.asks_status() => {
                tracing::error!("a block status without extents");
                self.answer_error(index, Errno::EIO, "");
            }
            Ok(()) if slot.is_read() && bytes as u64 != slot.payload => {
                tracing::error!(
                    bytes,
                    wanted = slot.payload,
                    "a read returned data of the wrong length"
                );
                self.answer_error(index, Errno::EIO, "");
            }
            Ok(()) => {
                if !slot.is_read() {
                    bufs.clear();
                }
                self.answer_ok(index, bufs);
            }
            Err(errno) => {
                self.answer_error(index, errno, "");
            }
        }
        self.settle();
    }

    fn reply_status(&mut self, ticket: u64, extents: &[Extent]) {
        let Some(index) = self.slots.find(ticket) else {
            tracing::error!(ticket, "a block status matches no NBD request");
            return;
        };
        if extents.is_empty() || !self.slots.get(index).asks_status() {
            self.answer_error(index, Errno::EIO, "");
        } else {
            let slot = self.close_slot(index);
            if !matches!(self.state, State::Closed(_)) {
                answer::status(&mut self.outbox, &slot, extents);
            }
        }
        self.settle();
    }

    fn take_send(&mut self) -> Option<SendBatch> {
        let mut batch = std::mem::take(&mut self.batch);
        if self.outbox.take(|buf, used| batch.push(buf, used)) {
            return Some(batch);
        }
        self.batch = batch;
        None
    }

    fn sent(&mut self, mut batch: SendBatch, result: Result<(), Errno>) {
        batch.clear();
        self.batch = batch;
        let freed = self.outbox.sent();
        self.held.requests -= freed.requests;
        self.held.bytes -= freed.bytes;
        if let Err(errno) = result {
            self.cut(Why::Send(errno));
        }
        self.settle();
    }

    fn phase(&self) -> Phase {
        match self.state {
            State::Open => Phase::Open,
            State::Closing(_) => Phase::Closing,
            State::Closed(_) => Phase::Closed,
        }
    }

    fn why(&self) -> String {
        match self.state {
            State::Open => String::new(),
            State::Closing(why) | State::Closed(why) => why.to_string(),
        }
    }
}
