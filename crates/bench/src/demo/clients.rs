// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients in a closed loop, each in a thread of its own.
//!
//! Purpose: every client sends its next request when one is answered, from one moment until the
//! window's end; a watcher learns every second how many were answered.
//!
//! Invariants: the first client that fails, or the watcher, stops the others; the watcher's reason is
//! the one that is returned. All threads have ended when the load has.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::tally::{Class, Tally};
use super::window::Window;

/// Time between two checks whether to stop.
pub(super) const POLL: Duration = Duration::from_millis(50);

/// What the clients of a load share.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    answered: AtomicU64,
    stop: AtomicBool,
}

impl Clock {
    /// Whether clients must stop.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Counts a request of so many bytes that took this span.
    pub fn answered(&self, tally: &mut Tally, class: Class, bytes: u64, took: Range<Instant>) {
        if class != Class::Flush {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        tally.add(class, bytes, took.end - self.start, took.end - took.start);
    }

    /// Sleeps until `end`, or until clients must stop, and reports each second that ended.
    fn watch(&self, end: Duration, mut second: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        let mut next = Duration::ZERO;
        while next < end {
            next = (next + Duration::from_secs(1)).min(end);
            while let Some(left) = next.checked_sub(self.start.elapsed()).filter(|l| !l.is_zero()) {
                if self.stopped() {
                    return Ok(());
                }
                std::thread::sleep(left.min(POLL));
            }
            second(next.as_secs(), self.answered.load(Ordering::Relaxed))?;
        }
        Ok(())
    }
}

/// Whether all clients have ended, waited for within a bound.
pub type Ended<'a> = &'a dyn Fn(Duration) -> bool;

/// Runs clients until the window's end. `client` is one of them, which runs until the clock stops.
/// Once a second, `second` receives which second ended and how many requests were answered since the
/// start, and may end the load. `finish` is called when clients must stop, and may hurry them.
///
/// # Errors
/// That of `second`, else of a client, else of `finish`.
pub fn run<C: Send>(
    clients: impl IntoIterator<Item = C>,
    window: Window,
    client: impl Fn(C, &Clock, &mut Tally) -> Result<()> + Sync,
    second: impl FnMut(u64, u64) -> Result<()>,
    finish: impl FnOnce(Ended<'_>) -> Result<()>,
) -> Result<Tally> {
    let clock =
        Clock { start: Instant::now(), answered: AtomicU64::new(0), stop: AtomicBool::new(false) };
    let body = |one| {
        let mut tally = Tally::new(window.span());
        let result = client(one, &clock, &mut tally);
        if result.is_err() {
            clock.stop();
        }
        result.map(|()| tally)
    };
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> =
            clients.into_iter().map(|one| scope.spawn(move || body(one))).collect();
        let watched = clock.watch(window.span().end, second);
        clock.stop();
        let finished = finish(&|bound| {
            let begin = Instant::now();
            let ended = || threads.iter().all(|thread| thread.is_finished());
            while !ended() && begin.elapsed() < bound {
                std::thread::sleep(POLL / 10);
            }
            ended()
        });
        let mut sum = Tally::new(window.span());
        let mut result = Ok(());
        for thread in threads {
            match thread.join() {
                Ok(Ok(tally)) => sum.merge(&tally),
                Ok(Err(error)) => result = result.and(Err(error)),
                Err(_) => result = result.and(Err(anyhow!("a client's thread panicked"))),
            }
        }
        // A client that has to stop may fail as well; the reason comes first.
        watched.and(result).and(finished).map(|()| sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Window = Window { warm_up_seconds: 0, measured_seconds: 60 };

    fn until_stopped(_: u32, clock: &Clock, _: &mut Tally) -> Result<()> {
        while !clock.stopped() {
            std::thread::sleep(POLL);
        }
        Err(anyhow!("a lost connection"))
    }

    #[test]
    fn seconds_are_told_and_counts_add_up() {
        let window = Window { warm_up_seconds: 0, measured_seconds: 1 };
        let client = |_, clock: &Clock, tally: &mut Tally| {
            let took = || clock.start..Instant::now();
            clock.answered(tally, Class::Read, 10, took());
            clock.answered(tally, Class::Flush, 0, took());
            Ok(())
        };
        let mut seen = Vec::new();
        let second = |second, answered| {
            seen.push((second, answered));
            Ok(())
        };
        let tally = run([1, 2, 3], window, client, second, |ended| {
            assert!(ended(POLL));
            Ok(())
        });
        let tally = tally.unwrap();
        assert_eq!((tally.requests(), tally.bytes, tally.flushes.count()), (3, 30, 3));
        assert_eq!(seen, [(1, 3)]);
    }

    #[test]
    fn the_watcher_ends_a_load_and_its_reason_comes_first() {
        let second = |_, _| Err(anyhow!("enough"));
        let error = run([1, 2], LONG, until_stopped, second, |_| Err(anyhow!("late"))).unwrap_err();
        assert_eq!(error.to_string(), "enough");
    }

    #[test]
    fn a_client_that_fails_stops_the_others() {
        let client = |number, clock: &Clock, tally: &mut Tally| match number {
            1 => Err(anyhow!("wrong data")),
            _ => until_stopped(number, clock, tally).or(Ok(())),
        };
        let error = run([0, 1, 2], LONG, client, |_, _| Ok(()), |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "wrong data");
    }
}
