// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary bytes after an NBD negotiation: requests to the server, or replies to the client.
//!
//! The first byte selects the side. The next eight are random numbers that determine how results, sends and receives
//! interleave, or what the client requests. Required: no panic, no endless loop. The server passes on only requests
//! within its export, keeps its bounds at every moment and replies once to each request. The client completes each
//! request once, with data of the requested length.

use std::io::Write;
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::extent::{Extent, in_blocks};
use larder_core::request::{Errno, Kind};
use larder_front::nbd::export::Export;
use larder_front::nbd::session::{Limits, Session, State, Why};
use larder_io::SendBatch;
use larder_nbd::client::{Client, ClientError, Options};
use larder_nbd::codec::{Greeting, OptionReply, can, info, opt, rep};
use larder_nbd::status::BASE_ALLOCATION;
use larder_volume::session::{ClientRequest, Session as _, Source as _, What};

const BYTES: u64 = 1 << 20;
const LIMITS: Limits =
    Limits { requests: 6, payload_bytes: 64 << 10, recv_bytes: 4096, skip_bytes: 4 << 20 };
/// Turns after which an input counts as an endless loop.
const PATIENCE: usize = 200_000;

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((setup, rest)) = data.split_first() else { return };
    let Some((dice, bytes)) = rest.split_first_chunk() else { return };
    if setup & 1 == 0 {
        Server::new(*setup, *dice, bytes).live();
    } else {
        client(*setup, *dice, bytes);
    }
}

struct Server<'a> {
    session: Session,
    input: &'a [u8],
    dice: u64,
    open: Vec<ClientRequest>,
    sending: Option<Vec<(Buf, Range<usize>)>>,
    handed: usize,
    answered: usize,
}

impl<'a> Server<'a> {
    fn new(setup: u8, dice: [u8; 8], input: &'a [u8]) -> Self {
        let export = Export { read_only: setup & 8 != 0, ..Export::new("", BYTES) };
        let session = Session::new(&export, setup & 2 != 0, 64 << 10, LIMITS);
        let session = session.with_allocation(setup & 4 != 0);
        let (open, dice) = (Vec::new(), u64::from_le_bytes(dice));
        Self { session, input, dice, open, sending: None, handed: 0, answered: 0 }
    }

    /// The next small random number.
    fn roll(&mut self) -> usize {
        self.dice = self.dice.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
        (self.dice >> 56) as usize
    }

    fn live(mut self) {
        let mut turns = 0;
        while !matches!(self.session.state(), State::Closed(_)) {
            turns += 1;
            assert!(turns < PATIENCE, "stuck in {:?}", self.session.state());
            self.take_requests();
            match (self.roll() + turns) % 4 {
                0 if !self.open.is_empty() => self.answer(),
                1 if self.sending.take().is_some() => {
                    self.session.sent(SendBatch::default(), Ok(()));
                }
                2 if self.sending.is_none() => {
                    let mut batch = Vec::new();
                    let any = self.session.take_send_with(|buf, used| batch.push((buf, used)));
                    self.sending = any.then_some(batch);
                }
                _ => self.receive(),
            }
        }
        let cut =
            matches!(self.session.state(), State::Closed(Why::BadMagic(_) | Why::Oversize(_)));
        assert!(cut || (self.open.is_empty() && self.handed == self.answered));
        while !self.open.is_empty() {
            self.answer();
        }
        if self.sending.take().is_some() {
            self.session.sent(SendBatch::default(), Err(Errno(32)));
        }
        assert!(self.session.in_flight() == 0 && !self.session.memory_out());
    }

    /// Takes requests; checks them and the bounds.
    fn take_requests(&mut self) {
        while let Some(request) = self.session.next_request() {
            super::is_sound(&request, BYTES);
            self.handed += 1;
            self.open.push(request);
        }
        assert!(self.session.in_flight() <= LIMITS.requests);
        let moves =
            |r: &&ClientRequest| matches!(r.what, What::Io(Kind::Read | Kind::Write { .. }));
        let lens: Vec<u64> = self.open.iter().filter(moves).map(|r| r.len).collect();
        assert!(lens.len() < 2 || lens.iter().sum::<u64>() <= LIMITS.payload_bytes);
    }

    fn answer(&mut self) {
        let which = self.roll() % self.open.len();
        let request = self.open.swap_remove(which);
        self.answered += 1;
        let failed = self.roll() < 32;
        let data = match request.what {
            What::Io(Kind::Read) | What::PassiveRead => vec![Buf::with_len(request.len as usize)],
            What::Io(_) => request.bufs,
            What::Status { .. } if failed => Vec::new(),
            What::Status { .. } => {
                let extents = [Extent::data(request.len)];
                return self.session.reply_status(request.ticket, &extents);
            }
        };
        self.session.reply(request.ticket, if failed { Err(Errno::EIO) } else { Ok(()) }, data);
    }

    fn receive(&mut self) {
        let most = 1 + self.roll() * self.roll();
        let Some((mut buf, from)) = self.session.take_recv() else { return };
        let (now, later) = self.input.split_at(most.min(buf.len() - from).min(self.input.len()));
        buf[from..from + now.len()].copy_from_slice(now);
        self.input = later;
        self.session.received(buf, from, now.len());
    }
}

/// The bytes of a valid server, up to the end of the negotiation.
fn valid(structured: bool, allocation: bool) -> Vec<u8> {
    let reply = |option, kind, data: &[u8]| {
        [&OptionReply { option, kind, len: data.len() as u32 }.encode(), data].concat()
    };
    let mut bytes = Greeting { flags: 3 }.encode().to_vec();
    let kind = if structured { rep::ACK } else { rep::ERR_UNSUP };
    bytes.extend(reply(opt::STRUCTURED_REPLY, kind, &[]));
    if structured && allocation {
        let context = [&[0, 0, 0, 1], BASE_ALLOCATION.as_bytes()].concat();
        bytes.extend(reply(opt::SET_META_CONTEXT, rep::META_CONTEXT, &context));
        bytes.extend(reply(opt::SET_META_CONTEXT, rep::ACK, &[]));
    }
    let flags = can::HAS_FLAGS | can::FLUSH | can::FUA | can::TRIM;
    let fact = [&info::EXPORT.to_be_bytes()[..], &BYTES.to_be_bytes(), &flags.to_be_bytes()];
    bytes.extend(reply(opt::GO, rep::INFO, &fact.concat()));
    bytes.extend(reply(opt::GO, rep::ACK, &[]));
    bytes
}

fn client(setup: u8, dice: [u8; 8], bytes: &[u8]) {
    let options = Options {
        connect_timeout: Duration::from_secs(5),
        io_timeout: Some(Duration::from_secs(5)),
        structured: true,
        allocation: setup & 4 != 0,
    };
    let Ok((ours, mut theirs)) = UnixStream::pair() else { return };
    let bytes =
        [&valid(setup & 2 != 0, setup & 4 != 0), &bytes[..bytes.len().min(32 << 10)]].concat();
    if theirs.write_all(&bytes).and_then(|()| theirs.shutdown(Shutdown::Write)).is_err() {
        return;
    }
    let client = Client::over(ours, "disk", &options).expect("a valid negotiation");
    let (mut sender, mut receiver) = client.split();
    let mut asked = Vec::new();
    for (die, offset) in dice.into_iter().zip((0..).step_by(8192)) {
        let len = u64::from(die >> 2) * 64;
        let cookie = match die & 3 {
            0 | 1 => sender.queue(Kind::Read, offset, len, &[]),
            2 => sender.queue(Kind::Flush, 0, 0, &[]),
            _ => sender.queue_status(offset, len as u32, die & 4 != 0),
        };
        asked.extend(cookie.ok().map(|cookie| (cookie, die & 3, len)));
    }
    if sender.push().is_err() {
        return;
    }
    loop {
        match receiver.wait() {
            Ok(done) => {
                let place = asked.iter().position(|(cookie, ..)| *cookie == done.cookie);
                let (_, what, len) =
                    asked.swap_remove(place.expect("requested, and not answered yet"));
                let want = if what < 2 { len } else { 0 };
                assert!(done.result.as_ref().map_or(true, |data| data.len() as u64 == want));
                assert!(what == 3 || done.extents.is_empty());
                assert!(done.extents.iter().all(|extent| extent.len > 0));
                if what == 3 && len > 0 && len.is_multiple_of(512) {
                    let blocks: u64 =
                        in_blocks(&done.extents, 512, len).iter().map(|e| e.len).sum();
                    assert!((512..=len).contains(&blocks));
                }
                done.result.into_iter().for_each(|data| receiver.recycle(data));
            }
            Err(ClientError::TimedOut) => panic!("the client waits for a closed connection"),
            Err(_) => break,
        }
    }
    assert!(receiver.wait().is_err(), "a failed connection keeps failing");
}
