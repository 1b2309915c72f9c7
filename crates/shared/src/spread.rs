// SPDX-License-Identifier: MIT OR Apache-2.0
//! A slow origin, served by several threads at a time: pages that are brought there, files that are flushed.
//!
//! A process writes one page after the other, and an origin of a millisecond is then never busy. So where writes are slow,
//! pages that leave together are written by threads that live as long as that takes, each a member of its own: what
//! the module says of the dead holds of each of them (`lib.rs`). They take no signals, and call nothing of the
//! program's but its origin.
//!
//! Why not asynchronous writes: they may come to the origin after their process's death, when others have its locks.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, scope};
use std::time::{Duration, Instant};

use larder_core::pagelog::{PageLog, now};
use larder_core::request::Errno;

use crate::host::Member;
use crate::members::NEIGHBOURS;
use crate::memory::Shape;

/// Threads at a time.
const THREADS: usize = 16;
/// A write that takes so long waits for a device.
const SLOW: Duration = Duration::from_micros(200);
/// So few pages are not worth a thread.
const LEAST: usize = 4;

/// What is known of the origin's speed.
#[derive(Default)]
pub(crate) struct Slow {
    /// How long the last write took.
    last: Cell<Duration>,
    /// Threads are at it already, or this is one.
    busy: Cell<bool>,
}

impl Slow {
    /// Runs a write.
    pub fn watch<T>(&self, write: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = write();
        self.last.set(begin.elapsed());
        done
    }

    /// Brings pages to the origin, if that is better done so; those that could not be. They go in order of place, neighbours
    /// together.
    pub fn spread(&self, pages: &[u64], member: &Member) -> Option<Vec<u64>> {
        let parts = (pages.len() / LEAST).min(THREADS);
        if parts < 2 || self.last.get() < SLOW || self.busy.get() {
            return None;
        }
        let mut pages = pages.to_vec();
        pages.sort_unstable();
        let runs: Vec<&[u64]> = pages.chunk_by(|a, b| a / NEIGHBOURS == b / NEIGHBOURS).collect();
        let next = AtomicUsize::new(0);
        let bring =
            |member: &Member| bring(member, || Some(*runs.get(next.fetch_add(1, Relaxed))?));
        let mut left = Vec::new();
        self.busy.set(true);
        let quiet = Quiet::new();
        scope(|scope| {
            let mut threads = Vec::new();
            for _ in 1..parts.min(runs.len()) {
                let devices = member.devices_again();
                let memory = Arc::clone(member.memory());
                let run = move || Ok::<_, Errno>(bring(&Member::join(&memory, devices?.into())?));
                // Where there is no room for one more, others do it.
                threads.extend(
                    Builder::new().name("larder-writer".to_owned()).spawn_scoped(scope, run),
                );
            }
            // This one too, by which the speed is known the next time.
            left.extend(bring(member));
            for thread in threads {
                match thread.join() {
                    Ok(Ok(some)) => left.extend(some),
                    Ok(Err(_)) => {}
                    // What it had begun is not known.
                    Err(_) => left.extend(&pages),
                }
            }
        });
        drop(quiet);
        self.busy.set(false);
        Some(left)
    }
}

/// Does something to each, several at a time; the results, in order.
pub fn together<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let part = items.len().div_ceil(THREADS).max(1);
    let quiet = Quiet::new();
    let results = scope(|scope| {
        let run = |chunk: &'_ [T]| chunk.iter().map(&each).collect::<Vec<R>>();
        let mut chunks = items.chunks(part);
        let own = chunks.next();
        let begin = |chunk| {
            let name = "larder-writer".to_owned();
            (Builder::new().name(name).spawn_scoped(scope, move || run(chunk)), chunk)
        };
        let threads: Vec<_> = chunks.map(begin).collect();
        let mut results: Vec<R> = own.map(run).unwrap_or_default();
        for (thread, chunk) in threads {
            match thread.map(|thread| thread.join()) {
                Ok(Ok(some)) => results.extend(some),
                // A thread that could not begin; one that panicked has said so.
                _ => results.extend(run(chunk)),
            }
        }
        results
    });
    drop(quiet);
    results
}

/// Brings one run after the other; the pages that were asked for and could not be brought.
fn bring<'a>(member: &Member, next: impl Fn() -> Option<&'a [u64]>) -> Vec<u64> {
    let Shape { log, settings, .. } = member.memory().shape();
    let log = PageLog::join(member.clone(), member.words(), log, settings);
    let mut left = Vec::new();
    while let Some(run) = next() {
        left.extend(now(log.run_to_origin(run)));
    }
    left
}

/// No signal comes to threads that begin while it lives.
struct Quiet(libc::sigset_t);

impl Quiet {
    fn new() -> Self {
        let (mut all, mut old) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sets are written by `sigfillset` and `pthread_sigmask` before they are read.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), old.as_mut_ptr());
            Self(old.assume_init())
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use larder_core::buf::Buf;
    use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};

    use super::*;
    use crate::{Devices, Memory, Origin, Pages};

    #[derive(Default)]
    struct State {
        has: BTreeMap<u64, u8>,
        /// Writes, at the moment and in all, and how many there were at a time.
        now: usize,
        writes: usize,
        most: usize,
    }

    /// An origin that takes its time, and counts who is in it.
    #[derive(Clone, Default)]
    struct Slowly(Arc<Mutex<State>>);

    impl Origin for Slowly {
        fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
            Err(Errno::EIO)
        }
        fn write(&self, page: u64, pages: &[Buf], _: &Member) -> Result<(), Errno> {
            {
                let mut state = self.0.lock().unwrap();
                state.writes += 1;
                state.now += 1;
                state.most = state.most.max(state.now);
            }
            std::thread::sleep(2 * SLOW);
            let mut state = self.0.lock().unwrap();
            state.now -= 1;
            for (page, bytes) in (page..).zip(pages) {
                if page == 77 {
                    return Err(Errno::EIO);
                }
                state.has.insert(page, bytes[0]);
            }
            Ok(())
        }
        fn flush(&self, _: &Member) -> Result<(), Errno> {
            Ok(())
        }
        fn again(&self) -> Option<Box<dyn Origin + Send>> {
            Some(Box::new(self.clone()))
        }
    }

    #[test]
    fn a_slow_origin_is_written_by_several_and_what_it_refuses_is_told() {
        let log = Geometry { base: 0, blocks: 0, page_bytes: 4096, batch_pages: 64, volume: 9 };
        let log = log.grown_to(2000 * 4096).unwrap();
        let flash = rustix::fs::memfd_create("flash", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let flash = std::fs::File::from(flash);
        for (at, bytes) in log.blank() {
            std::os::unix::fs::FileExt::write_all_at(&flash, &bytes, at).unwrap();
        }
        let settings = LogSettings { policy: LogPolicy::Bounded, second_chance: false };
        let memory = Memory::anonymous(Shape { log, settings, user_words: 0 }).unwrap();
        let origin = Slowly::default();
        let devices = || Devices {
            flash: Arc::new(flash.try_clone().unwrap().into()),
            origin: Box::new(origin.clone()),
        };
        let (pages, _) = Pages::start(&memory, devices()).unwrap();
        let put = |range: std::ops::Range<u64>| {
            range.for_each(|page| pages.write(page, &[page as u8; 4096]).unwrap());
        };
        put(100..228);
        put(1000..1512);
        pages.flush().unwrap();
        let state = || origin.0.lock().unwrap();
        let brought = |page: u64| state().has.get(&page) == Some(&(page as u8));
        assert!((100..228).chain(1000..1512).all(brought));
        assert!(state().most > 1, "one after the other");
        // The first pages show how slow it is; behind them neighbours go together.
        assert!(state().writes < 64 + 60, "{} writes", state().writes);
        put(64..80);
        put(200..210);
        assert_eq!(pages.flush(), Err(Errno::EIO));
        // What lies beside the bad one may not be there either.
        assert!((64..77).chain(200..210).all(brought));
        assert!(!brought(77));
        let dirty = pages.status().dirty;
        assert!((1..=16).contains(&dirty), "{dirty}");
    }
}
