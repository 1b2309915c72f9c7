// SPDX-License-Identifier: MIT OR Apache-2.0
//! The session as a worker drives it: the calls of [`larder_volume::session`], in any order that it permits.

use larder_core::buf::Buf;
use larder_core::extent::Extent;
use larder_core::request::Errno;
use larder_io::SendBatch;
use larder_volume::budget::Wake;
use larder_volume::session::{self, Abort, ClientRequest, Doing, Phase};

use super::{DIRECT_BYTES, Input, Lent, Session, State, Step, Why, answer};

impl session::Source for Session {
    fn in_flight(&self) -> usize {
        self.slots.in_use()
    }

    fn stop(&mut self) {
        self.close_input(Why::Stopped);
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

    fn set_wake(&mut self, wake: Wake) {
        self.purse.set_wake(wake);
    }

    fn memory_bytes(&self) -> u64 {
        self.purse.spent_bytes() + self.limits.recv_bytes as u64
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

impl session::Session for Session {
    fn memory_out(&self) -> bool {
        self.lent != Lent::None || self.outbox.is_flying()
    }

    fn take_recv(&mut self) -> Option<(Buf, usize)> {
        if self.lent != Lent::None || self.input_done || self.eof {
            return None;
        }
        let unparsed = self.end - self.start;
        let parsable = match &self.input {
            Input::Head => self.has_header(),
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
        self.received += n as u64;
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
        self.sent += 1;
        let freed = self.outbox.sent();
        self.free(freed);
        if let Err(errno) = result {
            self.cut(Why::Send(errno));
        }
        self.settle();
    }

    fn common_bytes(&self) -> u64 {
        self.purse.common_bytes()
    }

    fn abort(&mut self, why: Abort) {
        self.cut(Why::Aborted(why));
    }

    fn doing(&self) -> Doing {
        let arriving = usize::from(!matches!(self.input, Input::Head));
        if !self.outbox.is_idle() {
            Doing::Sending
        } else if self.slots.in_use() > arriving {
            Doing::Working
        } else if arriving > 0 {
            Doing::Receiving
        } else if self.has_header() && !self.input_done {
            // The request waits for memory, not for its client.
            Doing::Working
        } else if self.asked == 0 {
            Doing::Silent
        } else {
            Doing::Idle
        }
    }

    fn progress(&self) -> u64 {
        self.asked + self.sent + (self.received >> 20)
    }
}
