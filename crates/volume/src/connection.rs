// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client's connection on a worker: its session, and its socket's place in the ring.
//!
//! The session is a state machine over bytes; this file lends its memory to the driver and takes it back. At most one
//! receive and one send are in flight. A connection is removed when its session is closed, no memory is lent and none of
//! its requests is in flight.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use larder_core::exec::Nanos;
use larder_io::{Driver, NetEvent};

use super::seat::Seat;
use super::session::{Doing, Phase, Session};

/// A client after the negotiation.
pub struct Accepted {
    /// Its socket.
    pub socket: Arc<OwnedFd>,
    /// Its session, which has received no request.
    pub session: Box<dyn Session>,
    /// Its name, for the log.
    pub peer: String,
    /// Its seat.
    pub seat: Seat,
}

/// A client being served.
pub(crate) struct Connection {
    /// Distinguishes connections that use the same number one after another.
    pub serial: u64,
    /// Its volume.
    pub volume: u32,
    pub session: Box<dyn Session>,
    pub peer: String,
    socket: Arc<OwnedFd>,
    receiving: bool,
    /// Its receive was cancelled.
    deaf: bool,
    /// Its socket is shut down.
    cut: bool,
    /// Since when a batch of replies is being sent.
    sending: Option<Nanos>,
    /// What it does, since when, and how far it had got then.
    doing: Doing,
    since: Nanos,
    progress: u64,
    seat: Seat,
}

impl Connection {
    pub fn new((volume, accepted): (u32, Accepted), serial: u64, now: Nanos) -> Self {
        let Accepted { socket, session, peer, seat } = accepted;
        seat.serve(&socket);
        Self {
            serial,
            volume,
            session,
            peer,
            socket,
            receiving: false,
            deaf: false,
            cut: false,
            sending: None,
            doing: Doing::Silent,
            since: now,
            progress: 0,
            seat,
        }
    }

    /// Takes memory back from the driver.
    pub fn take_event(&mut self, event: NetEvent) {
        match event {
            NetEvent::Received { buf, at, result, .. } => {
                self.receiving = false;
                self.session.received(buf, at, result.unwrap_or(0));
            }
            NetEvent::Sent { batch, result, .. } => {
                self.sending = None;
                self.session.sent(batch, result);
            }
        }
    }

    /// What it does, and since when it has made no progress.
    pub fn doing(&self) -> (Doing, Nanos) {
        (self.doing, self.since)
    }

    /// Since when a batch of replies waits for the client.
    pub fn sending(&self) -> Option<Nanos> {
        self.sending
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    fn note(&mut self, now: Nanos) {
        let (doing, progress) = (self.session.doing(), self.session.progress());
        if doing == self.doing && progress == self.progress {
            return;
        }
        (self.doing, self.progress) = (doing, progress);
        // While replies wait, only the client can make progress.
        self.since = self.sending.filter(|_| doing == Doing::Sending).unwrap_or(now);
        self.seat.activity.set(doing, self.since);
    }

    /// Lends memory to the driver for whatever the session wants next; whether the connection is
    /// over and can be removed.
    pub fn arm(&mut self, number: u32, driver: &mut Driver, now: Nanos) -> bool {
        if let Some((buf, at)) = self.session.take_recv() {
            self.receiving = true;
            driver.recv(number, self.socket.as_fd(), buf, at);
        }
        if let Some(batch) = self.session.take_send() {
            self.sending = Some(now);
            driver.send(number, self.socket.as_fd(), batch);
        }
        self.note(now);
        match self.session.phase() {
            Phase::Open => false,
            Phase::Closing => {
                // Answers are still sent; only further requests of the client are dropped.
                if self.receiving && !std::mem::replace(&mut self.deaf, true) {
                    driver.cancel_receive(number);
                }
                false
            }
            Phase::Closed => {
                if !std::mem::replace(&mut self.cut, true) {
                    let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
                    if self.session.memory_out() {
                        driver.cancel(number);
                    }
                }
                // Requests that are still at a device count against this connection's bounds and
                // hold its seat, so that reconnecting does not multiply them.
                !self.session.memory_out() && self.session.in_flight() == 0
            }
        }
    }
}
