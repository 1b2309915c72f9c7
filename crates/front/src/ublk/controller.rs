// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that runs commands to the ublk driver.
//!
//! Purpose: a command may take seconds or not end at all, and it needs a privilege that other threads drop.
//!
//! Invariants: commands run one after another. A caller waits with a time limit; the command continues after it, and
//! later ones wait for it.
//!
//! Why the thread has the privilege (CAP_SYS_ADMIN) and not the helper process: a command to start a device waits for
//! the workers, and a device ends with the process that serves it. The filter of system calls applies to this thread too.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use larder_io::ublk::Control;
use larder_volume::VolumeError;

use super::commands::Commands;
use super::plan::{missing, negotiate};

/// How long the thread may take to open the control device.
const OPEN_BOUND: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce(&mut dyn Commands) + Send>;

/// The thread, seen from others. It ends when this is dropped.
pub struct Controller(Sender<Job>);

impl Controller {
    /// Starts the thread with the privileges of the calling one; `restrict` runs on it before anything else.
    ///
    /// # Errors
    /// The kernel has no ublk, or not the features that Larder needs, or the process may not use it.
    pub fn start(
        restrict: impl FnOnce() -> std::io::Result<()> + Send + 'static,
    ) -> Result<Arc<Self>, VolumeError> {
        let open = || {
            let mut control = restrict().map_or_else(
                |e| Err(VolumeError::Usage(format!("ublk: cannot drop capabilities: {e}"))),
                |()| Control::open().map_err(|errno| VolumeError::Usage(missing(errno))),
            )?;
            negotiate(control.features()).map_err(VolumeError::Usage)?;
            Ok(Box::new(control) as Box<dyn Commands>)
        };
        Self::with(open)
    }

    /// As [`start`](Self::start), with other commands.
    fn with(
        open: impl FnOnce() -> Result<Box<dyn Commands>, VolumeError> + Send + 'static,
    ) -> Result<Arc<Self>, VolumeError> {
        let (jobs, to_do) = channel::<Job>();
        let (ready, is_ready) = channel();
        let body = move || {
            let mut commands = match open() {
                Ok(commands) => commands,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let _ = ready.send(Ok(()));
            to_do.into_iter().for_each(|job| job(&mut *commands));
        };
        let thread = std::thread::Builder::new().name("larder-ublk".to_owned()).spawn(body);
        thread.map_err(VolumeError::Thread)?;
        match is_ready.recv_timeout(OPEN_BOUND) {
            Ok(result) => result.map(|()| Arc::new(Self(jobs))),
            Err(_) => Err(late("opening /dev/ublk-control", OPEN_BOUND)),
        }
    }

    /// Runs something on the thread, and waits for it within `bound`.
    ///
    /// # Errors
    /// It takes too long.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        what: &str,
        bound: Duration,
        job: impl FnOnce(&mut dyn Commands) -> R + Send + 'static,
    ) -> Result<R, VolumeError> {
        let (answer, answered) = channel();
        let sent = self.0.send(Box::new(move |commands| drop(answer.send(job(commands)))));
        match answered.recv_timeout(bound) {
            Ok(result) if sent.is_ok() => Ok(result),
            Err(RecvTimeoutError::Timeout) => Err(late(what, bound)),
            _ => Err(VolumeError::Usage(format!(
                "ublk: {what}: the thread of the driver's commands ended"
            ))),
        }
    }
}

fn late(what: &str, bound: Duration) -> VolumeError {
    VolumeError::TooSlow(format!(
        "ublk: {what}: no answer of the driver within {} s",
        bound.as_secs()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ublk::commands::fake::Fake;

    #[test]
    fn a_command_that_does_not_end_delays_its_caller_for_a_limited_time() {
        let controller = Controller::with(|| Ok(Box::new(Fake::default()))).unwrap();
        assert_eq!(controller.ask("looking", OPEN_BOUND, |c| c.numbers().len()).unwrap(), 0);
        let (release, released) = channel::<()>();
        let bound = Duration::from_millis(50);
        let hung = controller.ask("adding", bound, move |_| released.recv().is_ok());
        assert!(hung.unwrap_err().to_string().contains("adding: no answer"));
        drop(release);
        assert!(controller.ask("looking", OPEN_BOUND, |c| c.numbers().len()).is_ok());
    }

    #[test]
    fn a_thread_that_cannot_open_the_driver_ends_with_the_reason() {
        let refused = Controller::with(|| Err(VolumeError::Usage("none".to_owned())));
        assert_eq!(refused.err().unwrap().to_string(), "none");
    }
}
