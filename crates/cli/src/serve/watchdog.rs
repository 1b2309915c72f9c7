// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers the service manager's watchdog while the workers of all volumes answer.
//!
//! Invariants: an answer to the manager follows one of each worker. A cache that lost a worker is out of service, and is left out.
//! A device that hangs holds up no worker, so it does not end the process.
//!
//! Why a thread: a worker may take seconds to answer, and signals are handled meanwhile.

use std::sync::Arc;
use std::time::Duration;

use larder_volume::Cache;

use crate::notify::ping;

/// Answers within the manager's limit, if it has one.
const TIMES: u32 = 4;

/// Begins to answer, if the manager has a limit.
pub fn start(caches: Vec<Arc<Cache>>) {
    let get = |name: &str| std::env::var(name).ok();
    let Some(limit) = limit(get("WATCHDOG_USEC"), get("WATCHDOG_PID")) else { return };
    let answer = move || {
        loop {
            std::thread::sleep(limit / TIMES);
            if caches.iter().all(|cache| cache.has_lost_a_worker() || cache.workers_answer()) {
                ping();
            }
        }
    };
    if let Err(e) = std::thread::Builder::new().name("larder-watchdog".to_owned()).spawn(answer) {
        tracing::error!(
            "cannot start a thread: {e}; the service manager's watchdog is not answered"
        );
    }
}

/// The time within which the manager wants an answer of this process.
fn limit(micros: Option<String>, pid: Option<String>) -> Option<Duration> {
    let is_own = pid.is_none_or(|pid| pid == std::process::id().to_string());
    let micros = micros?.parse().ok().filter(|micros| *micros > 0 && is_own)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_for_this_process() {
        let of = |micros: &str, pid: Option<String>| limit(Some(micros.to_owned()), pid);
        let own = std::process::id();
        assert_eq!(of("2000000", None), Some(Duration::from_secs(2)));
        assert_eq!(of("2000000", Some(own.to_string())), Some(Duration::from_secs(2)));
        assert_eq!(of("2000000", Some((own + 1).to_string())), None);
        assert_eq!((of("0", None), of("soon", None), limit(None, None)), (None, None, None));
    }
}
