// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signals of a serving process.
//!
//! While it starts, they end it at once: nothing was acknowledged. That is what the kernel does by default, but not for the
//! first process of a container: it drops those signals of that process which have no handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_shutdown;

/// The process id of the first process of a container.
const FIRST: u32 = 1;
/// The exit code of a process that a signal ended is this and the signal's number.
const ENDED_BY_SIGNAL: i32 = 128;

/// The start of a server, which signals end.
pub struct Starting(Arc<AtomicBool>);

impl Starting {
    /// Signals end the process from now on, also if it is the first of a container.
    pub fn begin() -> Result<Self> {
        let is_starting = Arc::new(AtomicBool::new(true));
        if std::process::id() == FIRST {
            for signal in [SIGTERM, SIGINT, SIGHUP] {
                let is_starting = Arc::clone(&is_starting);
                register_conditional_shutdown(signal, ENDED_BY_SIGNAL + signal, is_starting)?;
            }
        }
        Ok(Self(is_starting))
    }
}

/// The signals that were received.
#[derive(Default)]
pub struct Signals {
    /// Those that ask to stop.
    pub stops: AtomicUsize,
    /// Certificates must be read again.
    pub reload: AtomicBool,
}

impl Signals {
    /// The start has ended: counts signals from now on.
    pub fn receive(Starting(is_starting): Starting) -> Result<Arc<Self>> {
        let received = Arc::new(Self::default());
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        is_starting.store(false, Ordering::SeqCst);
        let counted = Arc::clone(&received);
        std::thread::Builder::new().name("larder-signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                match signal {
                    SIGHUP => counted.reload.store(true, Ordering::SeqCst),
                    _ => drop(counted.stops.fetch_add(1, Ordering::SeqCst)),
                }
            }
        })?;
        Ok(received)
    }
}
