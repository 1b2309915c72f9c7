// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this process of the server is. The facts are looked up once a process, since every read and every wait needs them.
//!
//! Invariant: no process uses the facts of its parent: a fork forgets them ([`forget`]).
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};
use std::time::Instant;

use crate::server;

/// Values of a fact.
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
/// Values of [`KIND`].
const BACKGROUND_WRITER: u8 = 1;
const CHECKPOINTER: u8 = 2;
const OTHER: u8 = 3;

static KIND: AtomicU8 = AtomicU8::new(UNKNOWN);
static ONLY_NOTES: AtomicU8 = AtomicU8::new(UNKNOWN);

/// This process is new.
pub fn forget() {
    [&KIND, &ONLY_NOTES].into_iter().for_each(|fact| fact.store(UNKNOWN, Relaxed));
}

/// Whether this process is the background writer.
#[must_use]
pub fn is_background_writer() -> bool {
    kind() == BACKGROUND_WRITER
}

/// Whether this process is the checkpointer.
#[must_use]
pub fn is_checkpointer() -> bool {
    kind() == CHECKPOINTER
}

/// Whether this process writes pages that other processes changed.
#[must_use]
pub fn writes_for_all() -> bool {
    matches!(kind(), BACKGROUND_WRITER | CHECKPOINTER)
}

fn kind() -> u8 {
    let known = KIND.load(Relaxed);
    if known != UNKNOWN {
        return known;
    }
    type Describe = unsafe extern "C" fn(c_int) -> *const c_char;
    // SAFETY: `enum BackendType MyBackendType` and `const char *GetBackendTypeDesc(BackendType)`, which returns a string.
    let name = unsafe {
        let describe = server::function::<Describe>(c"GetBackendTypeDesc");
        let described = describe.zip(server::variable(c"MyBackendType"));
        described.map_or(c"", |(of, kind)| CStr::from_ptr(of(kind)))
    };
    let kind = match name.to_bytes() {
        b"background writer" => BACKGROUND_WRITER,
        b"checkpointer" => CHECKPOINTER,
        _ => OTHER,
    };
    KIND.store(kind, Relaxed);
    kind
}

/// Whether a wait of the background writer is longer than its pause between two rounds (`bgwriter_delay`): then it hibernates
/// until shared buffers need frames again, and the server wakes it.
#[must_use]
pub fn hibernates(timeout_ms: c_int) -> bool {
    static DELAY: AtomicUsize = AtomicUsize::new(0);
    if DELAY.load(Relaxed) == 0 {
        let at = server::symbol(c"BgWriterDelay").map_or(usize::MAX, |at| at as usize);
        DELAY.store(at, Relaxed);
    }
    let at = DELAY.load(Relaxed);
    // SAFETY: `int BgWriterDelay`; an executable stays where it is.
    at != usize::MAX && is_longer(timeout_ms, unsafe { (at as *const c_int).read() })
}

fn is_longer(timeout_ms: c_int, delay_ms: c_int) -> bool {
    timeout_ms < 0 || i64::from(timeout_ms) > 2 * i64::from(delay_ms)
}

/// Whether no signal handler of this process runs code of the server that may call a hook; `false` if that is not known.
///
/// The server's `die` handles SIGTERM in client backends, parallel workers, autovacuum workers and walsenders. It only
/// sets flags and wakes the process, and so do the handlers that these processes have beside it (SIGHUP, SIGINT, SIGALRM,
/// SIGUSR1): the server acts on the flags later, outside of file access. The exception is SIGQUIT, whose handler ends the
/// process. A background worker begins with `bgworker_die`, which runs the exit of the process inside of the handler, until
/// it installs another handler; that is not undone, since `bgworker_die` is private to the server. So an answer of yes
/// stays right, and an answer of no is not kept. The startup process, the walreceiver and workers with handlers of their
/// own stay at no.
#[must_use]
pub fn handlers_only_note() -> bool {
    if ONLY_NOTES.load(Relaxed) == YES {
        return true;
    }
    let only_notes = is_die(handler_of_sigterm(), server::symbol(c"die").map(|at| at as usize));
    if only_notes {
        ONLY_NOTES.store(YES, Relaxed);
    }
    only_notes
}

fn is_die(handler: usize, die: Option<usize>) -> bool {
    // Special handlers (default, ignored) are 0 and 1.
    die.is_some_and(|die| die > 1 && die == handler)
}

fn handler_of_sigterm() -> usize {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call only writes the present one, if it returns 0.
    unsafe {
        match libc::sigaction(libc::SIGTERM, std::ptr::null(), action.as_mut_ptr()) {
            0 => action.assume_init().sa_sigaction,
            _ => 0,
        }
    }
}

/// Words of the server that say that this process is to stop: all processes have them.
const ASKED: [&CStr; 3] = [c"ProcDiePending", c"QueryCancelPending", c"ShutdownRequestPending"];
/// How long a call continues after the request to stop.
const GRACE_MS: u64 = 200;
/// Whether the call in progress may fail because the process must stop; then one more than the critical sections in which it
/// may.
static MAY_FAIL: AtomicUsize = AtomicUsize::new(0);
/// From this version on the server reads inside of a critical section, and reports an error of the read after it.
const READS_IN_SECTION: u64 = 18;

/// Lets the call that runs meanwhile fail because the process must stop.
pub struct MayFail(());

impl MayFail {
    /// For a call whose failure the server reports as an error of the statement.
    #[must_use]
    pub fn new() -> Self {
        MAY_FAIL.store(1, Relaxed);
        Self(())
    }

    /// For a read of pages.
    #[must_use]
    pub fn read() -> Self {
        static SECTIONS: OnceLock<usize> = OnceLock::new();
        let sections = || usize::from(server::version().is_some_and(|v| v >= READS_IN_SECTION));
        MAY_FAIL.store(1 + SECTIONS.get_or_init(sections), Relaxed);
        Self(())
    }
}

impl Drop for MayFail {
    fn drop(&mut self) {
        MAY_FAIL.store(0, Relaxed);
    }
}

/// Whether this process is asked to stop its statement or itself, and a call may fail for that.
///
/// Only reads and writes of relation files and `larder.drain()` may fail so, and only outside of critical sections, where an
/// error would be a PANIC. Other sections that hold interrupts off (locks of buffers) do not matter: an I/O error is reported
/// there too. Not in the checkpointer: the request to stop is what makes it write. A process whose signals are blocked
/// (`here.rs`) is asked if a SIGTERM is pending.
///
/// The answer is yes only after a grace: flash that works answers sooner, and a stop of the server under load then reports no write of its
/// background writer as failed.
#[must_use]
pub fn is_asked_to_stop() -> bool {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    // When it was asked, in milliseconds; 0: it is not.
    static SINCE: AtomicU64 = AtomicU64::new(0);
    if !is_asked() {
        SINCE.store(0, Relaxed);
        return false;
    }
    let now = BEGIN.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1;
    let since = SINCE.compare_exchange(0, now, Relaxed, Relaxed).err().unwrap_or(now);
    now.saturating_sub(since) >= GRACE_MS
}

fn is_asked() -> bool {
    static AT: OnceLock<[usize; 4]> = OnceLock::new();
    let find = || {
        let [die, cancel, shutdown] = ASKED;
        let address = |name| server::symbol(name).map_or(0, |at| at as usize);
        [die, cancel, shutdown, c"CritSectionCount"].map(address)
    };
    let [asked @ .., critical] = AT.get_or_init(find);
    let may_fail = MAY_FAIL.load(Relaxed);
    if may_fail == 0 || *critical == 0 || kind() == CHECKPOINTER {
        return false;
    }
    // SAFETY: `volatile uint32 CritSectionCount` and `volatile sig_atomic_t`, both of 32 bits; an executable stays where it is.
    let read = |at: &usize| unsafe { (*at as *const c_int).read_volatile() };
    let is_set = |at: &usize| *at != 0 && read(at) != 0;
    (read(critical) as usize) < may_fail && (asked.iter().any(is_set) || is_pending(libc::SIGTERM))
}

/// Whether a signal waits to be unblocked.
fn is_pending(signal: c_int) -> bool {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is written before it is read, if the call returns 0.
    unsafe {
        libc::sigpending(set.as_mut_ptr()) == 0 && libc::sigismember(set.as_ptr(), signal) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_of_many_rounds_is_hibernation() {
        assert!(!is_longer(200, 200) && !is_longer(400, 200));
        assert!(is_longer(401, 200) && is_longer(10_000, 200) && is_longer(-1, 200));
        assert!(!hibernates(10_000), "a test has no server");
    }

    #[test]
    fn only_the_servers_own_handler_is_known_to_set_flags_and_a_child_looks_again() {
        assert!(is_die(4096, Some(4096)));
        assert!(!is_die(8192, Some(4096)), "a handler of a worker");
        assert!(!is_die(4096, None), "the server has no such function");
        for special in [libc::SIG_DFL, libc::SIG_IGN] {
            assert!(!is_die(special, Some(special)));
        }
        // A test has no server.
        assert!(!handlers_only_note() && !is_background_writer());
        assert_eq!(handler_of_sigterm(), libc::SIG_DFL);
        ONLY_NOTES.store(YES, Relaxed);
        KIND.store(BACKGROUND_WRITER, Relaxed);
        assert!(handlers_only_note() && is_background_writer() && writes_for_all());
        KIND.store(CHECKPOINTER, Relaxed);
        assert!(!is_background_writer() && is_checkpointer() && writes_for_all());
        forget();
        assert!(!handlers_only_note() && !is_background_writer() && !writes_for_all());
    }
}
