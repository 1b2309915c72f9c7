// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands that every worker does its part of, and that may take long.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use larder_core::request::Errno;
use larder_core::shard::Shard;

use super::cache::Cache;
use super::error::VolumeError;
use super::worker::{Message, Worker};

/// How often a command that waits checks whether it may continue.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Whether a command continues; an error if its client has gone.
pub(crate) type GoesOn<'a> = &'a mut dyn FnMut() -> Result<bool, VolumeError>;

/// What a shard calls at the end of its part.
pub(crate) type Done<T> = Box<dyn FnOnce(Result<T, Errno>) + Send>;

impl Cache {
    /// Each worker begins; returns what they found, unless the command ended before.
    pub(crate) fn each_worker<T: Send + 'static>(
        &self,
        goes_on: GoesOn<'_>,
        begin: impl Fn(&Shard, Done<T>) + Clone + Send + 'static,
    ) -> Result<Option<Result<Vec<T>, Errno>>, VolumeError> {
        let (done, ended) = channel();
        for mailbox in self.mailboxes.iter() {
            let (done, begin) = (done.clone(), begin.clone());
            let run = move |worker: &mut Worker| {
                let done: Done<T> = Box::new(move |result| {
                    let _ = done.send(result);
                });
                begin(&worker.shard, done);
            };
            mailbox.post(Message::Run(Box::new(run)));
        }
        drop(done);
        let mut found = Vec::new();
        while found.len() < self.mailboxes.len() {
            match ended.recv_timeout(LOOK) {
                Ok(one) => found.push(one),
                Err(RecvTimeoutError::Timeout) if goes_on()? => {}
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(VolumeError::Refused("the server is stopping".to_owned()));
                }
            }
        }
        Ok(Some(found.into_iter().collect()))
    }
}
