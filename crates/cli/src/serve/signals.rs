// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signals of a serving process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The signals that were received.
#[derive(Default)]
pub struct Signals {
    /// Those that ask to stop.
    pub stops: AtomicUsize,
    /// Certificates must be read again.
    pub reload: AtomicBool,
}

impl Signals {
    /// Counts signals from now on.
    pub fn receive() -> Result<Arc<Self>> {
        let received = Arc::new(Self::default());
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
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
