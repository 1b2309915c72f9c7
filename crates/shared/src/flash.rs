// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flash of a log, as one member reaches it: by itself, or through the process that serves it (`serve.rs`).
//!
//! A member that is served waits in ordinary sleep: it can be ended at any time, and it can stop waiting
//! ([`Waits`], [`Host::hurry`](larder_core::pagelog::Host::hurry)). Its operations then end with an error that is no error of
//! a device: ETIMEDOUT, ECANCELED, or EOWNERDEAD if the process that serves flash has died.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::thread::sleep;
use std::time::Duration;

use larder_core::buf::Buf;
use larder_core::request::Errno;
use rustix::io::ReadWriteFlags;

use crate::file::{errno, read_all, write_all};
use crate::members;
use crate::memory::{Control, LARGE_BYTES, Memory};
use crate::requests::{Answer, Kind, Request};

/// A device that a process reads and writes by itself. Every call blocks.
pub trait Device: Send + Sync {
    /// Reads; beyond the end all bytes are zero.
    ///
    /// # Errors
    /// The device fails.
    fn read(&self, into: &mut [u8], offset: u64) -> Result<(), Errno>;
    /// Writes these parts, one after the other.
    ///
    /// # Errors
    /// The device fails.
    fn write(&self, parts: &mut [IoSlice<'_>], offset: u64) -> Result<(), Errno>;
    /// Makes all writes durable.
    ///
    /// # Errors
    /// The device fails.
    fn flush(&self) -> Result<(), Errno>;
}

impl Device for OwnedFd {
    fn read(&self, into: &mut [u8], offset: u64) -> Result<(), Errno> {
        read_all(self, into, offset)
    }

    fn write(&self, parts: &mut [IoSlice<'_>], offset: u64) -> Result<(), Errno> {
        write_all(self, parts, offset)
    }

    fn flush(&self) -> Result<(), Errno> {
        rustix::fs::fdatasync(self).map_err(errno)
    }
}

/// How long a served member waits.
#[derive(Clone, Copy)]
pub struct Waits {
    /// An operation that takes longer is overdue: it is abandoned if it only saves time, see
    /// [`Host::hurry`](larder_core::pagelog::Host::hurry).
    pub timeout: Duration,
    /// Whether this process is asked to stop what it does.
    pub interrupted: fn() -> bool,
    /// Called once when flash becomes overdue.
    pub overdue: fn(),
}

/// See the module.
#[derive(Clone)]
pub enum Flash {
    /// This process's own.
    Own(Arc<dyn Device>),
    /// Another process serves it. The file, if the kernel caches its pages: those are read from there.
    Served(Waits, Option<Arc<OwnedFd>>),
}

impl<D: Device + 'static> From<Arc<D>> for Flash {
    fn from(device: Arc<D>) -> Self {
        Self::Own(device)
    }
}

impl From<OwnedFd> for Flash {
    fn from(file: OwnedFd) -> Self {
        Self::Own(Arc::new(file))
    }
}

/// The error of an operation that was abandoned because flash is overdue.
const OVERDUE: Errno = Errno::ETIMEDOUT;
/// The error of an operation that was abandoned because the process must stop.
const INTERRUPTED: Errno = Errno::ECANCELED;
/// The error of an operation whose server has died.
const UNSERVED: Errno = Errno::EOWNERDEAD;
/// How long a member waits before it checks whether to wait further.
const STEP: Duration = Duration::from_millis(10);
/// How long a member waits for a free request.
const FULL: Duration = Duration::from_micros(200);

/// Nanoseconds of a clock that only advances; never 0.
fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64 + 1
}

/// Whether this is the error of an operation that was abandoned, and of no device.
pub(crate) fn is_abandoned(errno: Errno) -> bool {
    [OVERDUE, INTERRUPTED, UNSERVED].contains(&errno)
}

/// Whether flash is overdue.
pub(crate) fn is_overdue(memory: &Memory) -> bool {
    memory.control(Control::Overdue).load(Acquire) != 0
}

/// Flash is overdue; returns whether this is new.
pub(crate) fn set_overdue(memory: &Memory) -> bool {
    memory.control(Control::Overdue).swap(1, AcqRel) == 0
}

/// A member at its flash.
pub(crate) struct Reach<'a> {
    pub memory: &'a Arc<Memory>,
    pub flash: &'a Flash,
    /// Operations may be abandoned.
    pub hurried: bool,
    pub me: u64,
}

/// A request, and when it began.
type Asked = (Request, u64);

impl Reach<'_> {
    /// Why the member must not wait any longer. `since`: when it began to wait for flash, in nanoseconds; 0: now.
    pub fn stops_waiting(&self, since: &mut u64) -> Option<Errno> {
        let Flash::Served(waits, _) = self.flash else { return None };
        if (waits.interrupted)() {
            return Some(INTERRUPTED);
        }
        let now = clock();
        if *since == 0 {
            *since = now;
        }
        let late = now - *since >= waits.timeout.as_nanos() as u64;
        if late && set_overdue(self.memory) {
            (waits.overdue)();
        }
        if self.hurried && (late || is_overdue(self.memory)) {
            return Some(OVERDUE);
        }
        let server = self.memory.control(Control::Server).load(Acquire);
        (server != self.me && members::is_gone(self.memory, server)).then_some(UNSERVED)
    }

    /// Submits a request. One that would be abandoned at once is not.
    fn ask(&self, kind: Kind, offset: u64, length: usize, bytes: &[u8]) -> Result<Asked, Errno> {
        if self.hurried && is_overdue(self.memory) {
            return Err(OVERDUE);
        }
        let mut begun = clock();
        let request = loop {
            if let Some(request) = Request::claim(self.memory, self.me, length) {
                break request;
            }
            if let Some(errno) = self.stops_waiting(&mut begun) {
                return Err(errno);
            }
            sleep(FULL);
        };
        request.submit(kind, offset, length, bytes);
        Ok((request, begun))
    }

    /// Waits for a request; copies what it read.
    fn end(&self, (request, mut begun): Asked, into: &mut [u8]) -> Answer {
        loop {
            if let Some(answer) = request.wait(STEP) {
                request.finish(into);
                return answer;
            }
            if let Some(errno) = self.stops_waiting(&mut begun) {
                request.abandon();
                return Err(errno);
            }
        }
    }

    /// Reads several parts, at the same time as far as there are requests for them.
    pub fn read_each(&self, wanted: Vec<(u64, Buf)>) -> Vec<Result<Buf, Errno>> {
        if let Flash::Own(device) = self.flash {
            let read = |(offset, mut buf): (u64, Buf)| device.read(&mut buf, offset).map(|()| buf);
            return wanted.into_iter().map(read).collect();
        }
        let (offsets, mut bufs): (Vec<u64>, Vec<Buf>) = wanted.into_iter().unzip();
        let mut answers = vec![Ok(()); bufs.len()];
        let near: Vec<bool> =
            offsets.iter().zip(&mut bufs).map(|(at, buf)| self.near(*at, buf)).collect();
        let far = bufs.iter_mut().enumerate().filter(|(i, _)| !near[*i]);
        let pieces = far.flat_map(|(i, buf)| {
            let start = offsets[i];
            let at = move |n: usize| start + (n * LARGE_BYTES) as u64;
            buf.chunks_mut(LARGE_BYTES).enumerate().map(move |(n, piece)| (i, at(n), piece))
        });
        let mut pieces = pieces.peekable();
        while let Some((i, offset, piece)) = pieces.next() {
            let first = self.ask(Kind::Read, offset, piece.len(), &[]);
            let mut round = vec![(i, first, piece)];
            // No member waits for more requests while it has some, or two could wait for each other.
            while let Some((_, offset, piece)) = pieces.peek()
                && let Some(request) = Request::claim(self.memory, self.me, piece.len())
            {
                request.submit(Kind::Read, *offset, piece.len(), &[]);
                let asked = Ok((request, clock()));
                round.extend(pieces.next().map(|(i, _, piece)| (i, asked, piece)));
            }
            for (i, asked, piece) in round {
                let answer = asked.and_then(|asked| self.end(asked, piece));
                answers[i] = answers[i].and(answer);
            }
        }
        drop(pieces);
        answers.into_iter().zip(bufs).map(|(answer, buf)| answer.map(|()| buf)).collect()
    }

    /// Reads from the kernel's page cache, if that has all of it.
    fn near(&self, offset: u64, buf: &mut Buf) -> bool {
        let Flash::Served(_, Some(file)) = self.flash else { return false };
        let length = buf.len();
        let mut parts = [IoSliceMut::new(buf)];
        let read = rustix::io::preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT);
        read == Ok(length)
    }

    /// Writes these parts, one after the other.
    pub fn write(&self, parts: &mut [IoSlice<'_>], mut offset: u64) -> Result<(), Errno> {
        if let Flash::Own(device) = self.flash {
            return device.write(parts, offset);
        }
        for piece in parts.iter().flat_map(|part| part.chunks(LARGE_BYTES)) {
            let asked = self.ask(Kind::Write, offset, piece.len(), piece)?;
            self.end(asked, &mut [])?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes all writes durable.
    pub fn flush(&self) -> Result<(), Errno> {
        match self.flash {
            Flash::Own(device) => device.flush(),
            Flash::Served(..) => {
                let asked = self.ask(Kind::Flush, 0, 0, &[])?;
                self.end(asked, &mut [])
            }
        }
    }
}
