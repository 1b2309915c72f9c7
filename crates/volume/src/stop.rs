// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stop of a cache: workers answer the requests in flight, and the origins are flushed last.
//!
//! Connections without a request end first, and those whose client does not read its replies a second later (see
//! `worker/clients.rs`). The stop has a time limit: what is unfinished then is aborted and reported. Shortly before it logs
//! are closed, and dirty units made durable, whatever is in flight, so that a request that does not end costs no data that
//! was acknowledged. A stop succeeds only if no origin ever failed a flush, since no later flush recovers the data that the
//! origin dropped; what is recorded of the other origins does not depend on it.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use larder_core::exec::{Io, IoId, IoKind};
use larder_core::request::Errno;
use larder_io::Device;

use super::cache::{Cache, spawn};
use super::error::VolumeError;
use super::worker::{Message, ORIGINS, Worker};

/// How long before the time limit logs are closed whatever is in flight; at most half of the limit.
const HURRY: Duration = Duration::from_secs(2);
/// The time in which a recording must take the last requests.
const FAREWELL: Duration = Duration::from_secs(2);

impl Cache {
    /// Stops: requests in flight are answered, connections closed, the origin flushed. After `bound` the rest is aborted.
    /// `progress` receives what is left; `hurry` returns whether to abort at once.
    ///
    /// # Errors
    /// When something was aborted, or the last flush failed.
    pub fn stop(
        &self,
        bound: Duration,
        mut progress: impl FnMut(usize),
        hurry: impl Fn() -> bool,
    ) -> Result<(), VolumeError> {
        let deadline = Instant::now() + bound;
        self.stopping.store(true, Ordering::SeqCst);
        for mailbox in self.mailboxes.iter() {
            mailbox.post(Message::Run(Box::new(Worker::stop)));
        }
        let (mut given_up, mut hurries) = (None, false);
        let late = deadline - HURRY.min(bound / 2);
        while self.running.load(Ordering::SeqCst) > 0 {
            if !hurries && (hurry() || Instant::now() > late) {
                hurries = true;
                for mailbox in self.mailboxes.iter() {
                    mailbox.post(Message::Run(Box::new(Worker::hurry)));
                }
            }
            if given_up.is_none() && (hurry() || Instant::now() > deadline) {
                given_up = Some(Instant::now());
                for mailbox in self.mailboxes.iter() {
                    mailbox.post(Message::Run(Box::new(Worker::quit)));
                }
            }
            if given_up.is_some_and(|at| at.elapsed() > Duration::from_secs(7)) {
                break;
            }
            progress(self.running.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(20));
        }
        // No thread answers messages to a lost worker: dropping them ends the waits of their senders.
        for mailbox in self.mailboxes.iter().filter(|_| self.has_stopped()) {
            mailbox.take(&mut VecDeque::new());
        }
        let stopped = Instant::now();
        while self.is_recorded() && stopped.elapsed() < FAREWELL && !hurry() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let lost = self.given_up.load(Ordering::SeqCst);
        if lost > 0 || !self.has_stopped() {
            let more = if self.spec.flushes_every_shard() {
                "; what no FLUSH covered may be lost"
            } else {
                ""
            };
            return Err(VolumeError::TooSlow(format!(
                "stopped with {lost} requests or connections left{more}"
            )));
        }
        let flushed = self.flush_devices(deadline, &hurry);
        let ended = self.parts.iter().zip(flushed).map(|(part, flushed)| {
            let failed = part.flush_failed.get();
            flushed.and(failed.map_or(Ok(()), |errno| Err(part.flush_error(*errno))))
        });
        let ended: Vec<_> = ended.collect();
        let is_flushed: Vec<bool> = ended.iter().map(Result::is_ok).collect();
        if self.unsettled.load(Ordering::SeqCst) {
            return Err(VolumeError::TooSlow(
                "stopped before flash was durable; what no FLUSH covered may be lost".to_owned(),
            ));
        }
        // What is true of one origin does not depend on another.
        let noted = match is_flushed.contains(&true) {
            true => self.note_stopped(&is_flushed),
            false => Ok(()),
        };
        ended.into_iter().fold(Ok(()), Result::and).and(noted)
    }

    /// The last flush of each origin; a device that hangs does not delay those of the others.
    fn flush_devices(
        &self,
        deadline: Instant,
        hurry: impl Fn() -> bool,
    ) -> Vec<Result<(), VolumeError>> {
        let begun: Vec<_> = self.parts.iter().map(|part| begin_flush(&part.origin)).collect();
        let wait = |(name, answered): (String, Receiver<Result<(), Errno>>)| loop {
            match answered.recv_timeout(Duration::from_millis(20)) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(errno)) => {
                    return Err(VolumeError::Device { device: name, doing: "flush", errno });
                }
                Err(_) if hurry() || Instant::now() > deadline => {
                    let what = format!("stopped before the last flush of {name} ended");
                    return Err(VolumeError::TooSlow(what));
                }
                Err(_) => {}
            }
        };
        begun.into_iter().map(|begun| begun.and_then(wait)).collect()
    }
}

/// Begins to flush a device, if no worker is left to do it. It runs on its own thread, since a device that hangs must not keep
/// the process from exiting.
fn begin_flush(device: &Device) -> Result<(String, Receiver<Result<(), Errno>>), VolumeError> {
    let (device, (answer, answered)) = (device.clone(), channel());
    let name = device.name().to_owned();
    spawn("larder-flush", move || {
        let (id, kind, dev) = (IoId(0), IoKind::Flush, ORIGINS);
        let mut io = Io { id, dev, kind, offset: 0, len: 0, buf: None, at: 0 };
        let _ = answer.send(device.run_blocking(&mut io));
    })?;
    Ok((name, answered))
}
