// SPDX-License-Identifier: MIT OR Apache-2.0
//! A watch on work that reads traces: the number of requests that it has read, and a switch that stops it.
//!
//! [`watched`] sets the watch of a thread. The records of a trace take the watch of the thread that opens them: they
//! count what they return, and end with an error once the watch is stopped.
//!
//! Invariant: a thread that starts others for the same work passes [`current`] to them.
//!
//! Why a setting of the thread and not an argument: a run is described by a table of settings that can be written to a
//! file, and a watch cannot.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::TraceError;

thread_local! {
    static CURRENT: RefCell<Option<Arc<Watch>>> = const { RefCell::new(None) };
}

/// A watch, see the module.
#[derive(Debug, Default)]
pub struct Watch {
    requests: AtomicU64,
    stopped: AtomicBool,
}

impl Watch {
    /// Requests read, over all passes and threads.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Stops the work: the records of its traces end with an error.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the work was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, requests: usize) {
        self.requests.fetch_add(requests as u64, Ordering::Relaxed);
    }
}

/// The watch of this thread.
#[must_use]
pub fn current() -> Option<Arc<Watch>> {
    CURRENT.with_borrow(Clone::clone)
}

/// An error if the work of this thread was stopped, for loops that take long for one request of a trace of this name.
///
/// # Errors
/// The work was stopped.
pub fn check(name: &Path) -> Result<(), TraceError> {
    match CURRENT.with_borrow(|watch| watch.as_ref().is_some_and(|watch| watch.is_stopped())) {
        true => Err(stopped(&name.display().to_string())),
        false => Ok(()),
    }
}

pub(crate) fn stopped(name: &str) -> TraceError {
    TraceError::file(name, "the work was stopped")
}

/// Does work with this watch. The thread's earlier watch is restored, also after a panic.
pub fn watched<T>(watch: Option<Arc<Watch>>, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Arc<Watch>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let _restore = Restore(CURRENT.replace(watch));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Records;

    #[test]
    fn a_stopped_watch_ends_the_records_and_others_do_not_see_it() {
        let watch = Arc::new(Watch::default());
        watched(Some(watch.clone()), || {
            let mut records = Records::shipped().unwrap();
            assert_eq!(records.by_ref().take(3000).filter(Result::is_ok).count(), 3000);
            assert!((3000..=4096).contains(&watch.requests()), "{}", watch.requests());
            assert!(check(Path::new("x")).is_ok());
            watch.stop();
            assert!(check(Path::new("x")).is_err());
            let error = records.find_map(Result::err).unwrap().to_string();
            assert_eq!(error, "pg15_zipf_update.btr.zst: the work was stopped");
        });
        assert!(current().is_none());
        assert!(Records::shipped().unwrap().take(5000).all(|record| record.is_ok()));
    }
}
