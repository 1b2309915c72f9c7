// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns of the processes that change the records of a directory: a record is read, changed and replaced, and a process also
//! changes the records of others whose origin it uses (design rule 10). Without turns one of two changes of a record could be
//! lost.
//!
//! Why a lock of the directory and not of each file: a change may concern any of them, and files are replaced.

use std::time::{Duration, Instant};

use larder_private::Directory;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::StateFile;
use crate::error::VolumeError;

/// How long another process may take for its turn.
const BOUND: Duration = Duration::from_secs(10);

/// A turn, which ends when this is dropped.
pub(crate) struct Turn {
    /// None if it does not exist: there is no record to change.
    directory: Option<Directory>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Explicitly: a child process may have inherited the directory.
        let _ = self.directory.as_ref().map(|dir| flock(dir, FlockOperation::Unlock));
    }
}

impl StateFile {
    /// Waits for the turn of this process. A process must not ask for a second one.
    ///
    /// # Errors
    /// The directory cannot be read, or another process does not end its turn.
    pub(crate) fn turn(&self) -> Result<Turn, VolumeError> {
        let Some(directory) = self.opened()? else { return Ok(Turn { directory: None }) };
        let deadline = Instant::now() + BOUND;
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(VolumeError::TooSlow(format!(
                        "--state {}: another process has locked it for {} s",
                        directory.path().display(),
                        BOUND.as_secs()
                    )));
                }
                Err(Errno::INTR) => {}
                // A file system without locks.
                Err(errno) => {
                    tracing::debug!("{}: no lock: {errno}", directory.path().display());
                    break;
                }
            }
        }
        Ok(Turn { directory: Some(directory) })
    }
}
