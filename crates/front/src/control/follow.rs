// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress of a command that takes a while, and whether its client still waits.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use larder_io::rough_size;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How often progress is reported.
const TELL: Duration = Duration::from_secs(1);

/// Reports progress to the client of a command, and notices that it has gone.
pub(super) struct Follow<'a, T> {
    what: &'static str,
    stream: &'a UnixStream,
    tell: T,
    began: Instant,
    told: Instant,
}

impl<'a, T: FnMut(String)> Follow<'a, T> {
    pub fn new(what: &'static str, stream: &'a UnixStream, tell: T) -> Self {
        let began = Instant::now();
        Self { what, stream, tell, began, told: began }
    }

    pub fn goes_on(&mut self, done: u64, all: u64) -> bool {
        if self.told.elapsed() >= TELL {
            self.told = Instant::now();
            let rate = done as f64 / self.began.elapsed().as_secs_f64().max(1e-9);
            let (done, all, rate) = (rough_size(done), rough_size(all), rough_size(rate as u64));
            (self.tell)(format!("{}: {done} of {all}, {rate}/s", self.what));
        }
        !self.has_gone()
    }

    /// Whether the client has closed the connection. One that only ends its sending side has not.
    fn has_gone(&self) -> bool {
        let mut fds = [PollFd::new(self.stream, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let gone = PollFlags::HUP | PollFlags::ERR;
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(gone)
    }
}
