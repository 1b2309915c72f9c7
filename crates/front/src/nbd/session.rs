// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transmission phase of one connection, without the socket.
//!
//! Purpose: the NBD implementation of [`larder_volume::session`], which documents the order of calls.
//!
//! Invariants:
//! - Bounded: at most [`Limits::requests`] requests and [`Limits::payload_bytes`] bytes of payload (or one request) are
//!   open. Until one of them completes *and its reply is sent*, the session parses no further request and soon stops
//!   receiving. It also stops if the connection's [`Purse`] has too little for the buffers of a request. Memory for the
//!   payload of a write is allocated as it arrives, not as it is announced.
//! - Tickets are the session's own: clients may send equal cookies, and a duplicate or late result matches no request.
//! - Every parsed request except a disconnect gets exactly one reply, unless the connection is cut.
//! - A write is passed on when its payload is complete, split as [`pieces`] splits.
//!
//! Why the payload of a rejected write is read completely: the header of the next request follows it. Above
//! [`Limits::skip_bytes`] the session cuts the connection instead.
//!
//! Why data is received into one of two places: many short requests need one large buffer, from which they are copied.
//! The rest of a long payload is received without a copy, directly where the device will read it.

mod answer;
mod check;
mod driven;
mod fill;
mod outbox;
mod slots;
mod types;

use std::ops::Range;

use larder_core::buf::{Buf, PAGE};
use larder_core::request::{Errno, Kind, pieces};
use larder_io::SendBatch;
use larder_nbd::codec::{MAX_PAYLOAD, RequestHeader, cmd};
use larder_volume::budget::{LARGEST, Purse};
use larder_volume::session::{ClientRequest, What};

use self::check::{Rules, Verdict};
use self::fill::Fill;
use self::outbox::{COPY_BYTES, Held, Outbox};
use self::slots::{Slot, Slots};
use super::export::Export;

pub use self::types::{Limits, State, Why};

/// When at least this much of a piece of a write is missing, it is received in place; a shorter rest is received
/// together with what follows it, and copied.
const DIRECT_BYTES: usize = 16 << 10;

// Buffers are at most a quarter larger than the payload; each of at most 32 has a rest of less than a page, and the reply a
// page.
const _: () = assert!(MAX_PAYLOAD as u64 * 5 / 4 + (1 << 20) <= LARGEST);

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
    /// Memory for their buffers.
    purse: Purse,
    outbox: Outbox,
    /// The last batch, emptied, for reuse.
    batch: SendBatch,
    /// Empty vectors that came with replies, for reuse by writes.
    spare: Vec<Vec<Buf>>,
    /// Bytes received; requests passed on, and batches sent.
    received: u64,
    asked: u64,
    sent: u64,
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
            purse: Purse::default(),
            outbox: Outbox::default(),
            batch: SendBatch::default(),
            spare: Vec::new(),
            received: 0,
            asked: 0,
            sent: 0,
        }
    }

    /// Allows block status requests if the client chose `base:allocation`, which needs structured replies.
    #[must_use]
    pub fn with_allocation(mut self, chosen: bool) -> Self {
        self.rules.allocation = chosen && self.structured;
        self
    }

    /// Limits the memory of requests.
    #[must_use]
    pub fn with_purse(mut self, purse: Purse) -> Self {
        self.purse = purse;
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

    /// Whether the next request's header has arrived.
    fn has_header(&self) -> bool {
        matches!(self.input, Input::Head) && self.end - self.start >= RequestHeader::LEN
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
        let cost = self.cost(header.offset, payload);
        if cost > 0 && !self.purse.spend(cost) {
            return Step::Blocked;
        }
        self.start += RequestHeader::LEN;
        self.held.requests += 1;
        self.held.bytes += payload;
        let slot = self.slots.open(header, payload, cost);
        match verdict {
            Verdict::Ask(kind @ Kind::Write { .. }) => {
                let bufs = self.spare.pop().unwrap_or_default();
                let range = (header.offset, payload);
                self.input = Input::Fill(Fill::new((slot, kind), range, self.stripe_bytes, bufs));
                Step::Again
            }
            Verdict::Ask(kind) => {
                Step::Ready(self.hand_on(slot, self.rules.what(kind), Vec::new()))
            }
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

    /// The memory of a request's buffers. A reply with a payload that is not copied needs a page for its header.
    fn cost(&self, offset: u64, payload: u64) -> u64 {
        let rooms = pieces(offset, payload, self.stripe_bytes).map(|p| Buf::room(p.len as usize));
        let head = if payload > COPY_BYTES as u64 { PAGE } else { 0 };
        if payload == 0 { 0 } else { (rooms.sum::<usize>() + head) as u64 }
    }

    fn hand_on(&mut self, index: u32, what: What, bufs: Vec<Buf>) -> ClientRequest {
        self.asked += 1;
        let slot = self.slots.get(index);
        let ticket = self.slots.ticket(index);
        ClientRequest { ticket, what, offset: slot.offset, len: u64::from(slot.len), bufs }
    }

    /// Ends a request. The payload of a write is freed here, everything else with the reply, if one is sent.
    fn close_slot(&mut self, index: u32) -> Slot {
        let slot = self.slots.close(index);
        if !slot.is_read() || matches!(self.state, State::Closed(_)) {
            self.held.bytes -= slot.payload;
            self.purse.give_back(slot.cost);
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

    /// As [`take_send`](larder_volume::session::Session::take_send), for other drivers: `push` receives the parts in
    /// order, each a buffer and the range to send. Returns whether there was a batch.
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
        self.purse.cancel();
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
            let freed = self.outbox.clear();
            self.free(freed);
        }
        Step::Again
    }

    /// Replies were sent or dropped.
    fn free(&mut self, freed: Held) {
        self.held.requests -= freed.requests;
        self.held.bytes -= freed.bytes;
        self.purse.give_back(freed.cost);
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
