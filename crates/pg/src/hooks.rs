// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the server calls instead of the C library's functions, see [`table`].
//!
//! Each has the meaning of the function that it replaces; a call on a file that is not of a relation goes directly to the
//! kernel. Reads into shared buffers and writes of whole pages go through the cache (`transfer.rs`). Other changes of files
//! are reported to the cache first.
//!
//! Invariant: `errno` is the last real call's. The cache makes its own system calls without the C library's `errno`.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::RawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use larder_core::request::Errno;
use libc::{iovec, mode_t, off_t, size_t, ssize_t};

use crate::file::File;
use crate::guard::{self, Guard};
use crate::pool::Pool;
use crate::transfer::refuse;
use crate::{ahead, commit, control, here, process, server, settings, transfer, wal};

/// How long the background writer makes room before it checks for signals, and how long it sleeps in between.
const KEEP: Duration = Duration::from_millis(50);
const SHORT_NAP_MS: c_int = 2;
const LONG_NAP_MS: c_int = 64;
/// The checkpointer's nap between two writes (`CheckpointWriteDelay` of 15 to 18, through `WaitLatch`).
const NAP_MOST_MS: c_int = 100;

/// A function, as the server's own table of functions has it.
type Function = *const c_void;

/// Names of imports, and their replacements. `imports.rs` has those that a server must have.
#[must_use]
pub fn table() -> Vec<(&'static str, Function)> {
    vec![
        ("open", open as Function),
        ("open64", open as Function),
        ("fopen", fopen as Function),
        ("fopen64", fopen as Function),
        ("close", close as Function),
        ("dup", dup as Function),
        ("dup2", dup2 as Function),
        ("read", read as Function),
        ("__read_chk", read_chk as Function),
        ("write", write as Function),
        ("pread", pread as Function),
        ("pread64", pread as Function),
        ("preadv", preadv as Function),
        ("preadv64", preadv as Function),
        ("pwrite", pwrite as Function),
        ("pwrite64", pwrite as Function),
        ("pwritev", pwritev as Function),
        ("pwritev64", pwritev as Function),
        ("ftruncate", ftruncate as Function),
        ("ftruncate64", ftruncate as Function),
        ("truncate", truncate as Function),
        ("truncate64", truncate as Function),
        ("unlink", unlink as Function),
        ("rename", rename as Function),
        ("link", link as Function),
        ("copy_file_range", copy_file_range as Function),
        ("fsync", fsync as Function),
        ("fdatasync", fdatasync as Function),
        ("sync", sync as Function),
        ("syncfs", syncfs as Function),
        ("posix_fadvise", posix_fadvise as Function),
        ("posix_fadvise64", posix_fadvise as Function),
        ("epoll_wait", epoll_wait as Function),
        ("shmdt", shmdt as Function),
    ]
}

/// # Safety
/// `path` is a string that ends with a zero byte.
unsafe fn named(path: *const c_char) -> File {
    if path.is_null() {
        return File::Other;
    }
    // SAFETY: the caller guarantees it.
    here::named(unsafe { CStr::from_ptr(path) }.to_bytes())
}

// The third argument exists only with O_CREAT. Otherwise its register holds any value, which the kernel
// ignores.
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> RawFd {
    // SAFETY: as the server's own call.
    let file = unsafe { named(path) };
    if flags & libc::O_TRUNC != 0 {
        drop(transfer::forget(file, 0));
    }
    // SAFETY: as above.
    let fd = unsafe { libc::open(path, flags, mode) };
    let made = libc::O_CREAT | libc::O_EXCL;
    if fd >= 0 && flags & made == made {
        drop(transfer::forget(file, 0)); // whatever had its name is no more
    }
    here::set_file(fd, file);
    fd
}

/// The guard is hidden from a server with this library. A stream over a relation file (`pg_read_binary_file`, which
/// `pg_rewind` calls) reads only the disk, so dirty pages are written to the disk first.
unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut libc::FILE {
    // SAFETY: as the server's own call.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    if here::is_armed() && name == guard::NAME.as_bytes() && Guard::is_at(Path::new(guard::NAME)) {
        refuse::<c_int>(Errno(libc::ENOENT));
        return std::ptr::null_mut();
    }
    if let Err(errno) = transfer::settle(here::named(name)) {
        refuse::<c_int>(errno);
        return std::ptr::null_mut();
    }
    // SAFETY: as above.
    unsafe { libc::fopen(path, mode) }
}

unsafe extern "C" fn close(fd: RawFd) -> c_int {
    here::set_file(fd, File::Other);
    // SAFETY: as the server's own call.
    unsafe { libc::close(fd) }
}

unsafe extern "C" fn dup(fd: RawFd) -> RawFd {
    // SAFETY: as the server's own call.
    let new = unsafe { libc::dup(fd) };
    here::set_file(new, here::file(fd));
    new
}

unsafe extern "C" fn dup2(fd: RawFd, to: RawFd) -> RawFd {
    // SAFETY: as the server's own call.
    let new = unsafe { libc::dup2(fd, to) };
    here::set_file(new, here::file(fd));
    new
}

unsafe extern "C" fn fsync(fd: RawFd) -> c_int {
    match commit::file(here::file(fd)) {
        // SAFETY: as the server's own call.
        Ok(()) => unsafe { libc::fsync(fd) },
        Err(errno) => refuse(errno),
    }
}

unsafe extern "C" fn fdatasync(fd: RawFd) -> c_int {
    match commit::file(here::file(fd)) {
        // SAFETY: as the server's own call.
        Ok(()) => unsafe { libc::fdatasync(fd) },
        Err(errno) => refuse(errno),
    }
}

unsafe extern "C" fn sync() {
    commit::all_or_die();
    // SAFETY: as the server's own call.
    unsafe { libc::sync() }
}

unsafe extern "C" fn syncfs(fd: RawFd) -> c_int {
    match commit::all() {
        // SAFETY: as the server's own call.
        Ok(()) => unsafe { libc::syncfs(fd) },
        Err(errno) => refuse(errno),
    }
}

unsafe extern "C" fn posix_fadvise(fd: RawFd, at: off_t, count: off_t, advice: c_int) -> c_int {
    // SAFETY: as the server's own call; advice changes no byte.
    let advise = |at, count| unsafe { libc::posix_fadvise(fd, at, count, advice) };
    match advice {
        libc::POSIX_FADV_WILLNEED => transfer::will_need(here::file(fd), at, count, advise),
        _ => advise(at, count),
    }
}

/// Where the background writer sleeps: it makes room in the log meanwhile, so that backends need not, and follows
/// `larder.policy`. And where the checkpointer naps: it writes pages back meanwhile, so that its flushes need not.
unsafe extern "C" fn epoll_wait(
    fd: RawFd,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: as the server's own call.
    let wait = |timeout| unsafe { libc::epoll_wait(fd, events, most, timeout) };
    if timeout == 0 || !here::is_armed() {
        return wait(timeout);
    }
    if is_nap(timeout) && process::is_checkpointer() {
        let (begin, nap) = (Instant::now(), Duration::from_millis(timeout as u64));
        if let Some(plan) = ahead::plan() {
            here::with(|_, pool| pool.drain_ahead(plan, nap));
        }
        return wait(nap.saturating_sub(begin.elapsed()).as_millis() as c_int);
    }
    if !process::is_background_writer() {
        return wait(timeout);
    }
    let begin = Instant::now();
    let hibernates = process::hibernates(timeout);
    let setting = settings::policy();
    let mut nap = SHORT_NAP_MS;
    loop {
        let keep = |pool: &Pool| {
            let changes = pool.follow(&setting, KEEP);
            pool.works() && pool.keep_ahead(KEEP) || changes
        };
        let kept = here::with(|_, pool| keep(pool)).unwrap_or(false);
        nap = next_nap(nap, kept, hibernates);
        let passed = begin.elapsed().as_millis().min(i32::MAX as u128) as c_int;
        let left = if timeout < 0 { c_int::MAX } else { timeout.saturating_sub(passed).max(0) };
        // A wait without an end stays one.
        let pause = if timeout < 0 && nap == c_int::MAX { -1 } else { nap.min(left) };
        let ready = wait(pause);
        if ready != 0 || left <= nap {
            return ready;
        }
    }
}

/// Whether the checkpointer waits so long between two writes of a checkpoint. Between checkpoints it waits for whole seconds.
fn is_nap(timeout: c_int) -> bool {
    (1..=NAP_MOST_MS).contains(&timeout)
}

/// The background writer's next sleep. While it hibernates it sleeps to the end as soon as there is nothing to do: nothing is
/// read then, and a process that only writes makes room itself if there is none.
fn next_nap(last: c_int, kept: bool, hibernates: bool) -> c_int {
    match (kept, hibernates) {
        (true, _) => SHORT_NAP_MS,
        (false, true) => c_int::MAX,
        (false, false) => (2 * last).min(LONG_NAP_MS),
    }
}

/// A child that leaves the server's shared memory (the log collector, which may run longer than the server) leaves the cache.
unsafe extern "C" fn shmdt(address: *const c_void) -> c_int {
    if server::is_child() {
        drop(here::disarm());
    }
    // SAFETY: as the server's own call.
    unsafe { libc::shmdt(address) }
}

unsafe extern "C" fn read(fd: RawFd, buf: *mut c_void, count: size_t) -> ssize_t {
    if let Err(errno) = transfer::settle(here::file(fd)) {
        return refuse(errno);
    }
    // SAFETY: as the server's own call.
    unsafe { libc::read(fd, buf, count) }
}

unsafe extern "C" fn read_chk(fd: RawFd, buf: *mut c_void, count: size_t, room: size_t) -> ssize_t {
    if count > room {
        std::process::abort(); // as the C library does
    }
    // SAFETY: as the server's own call.
    unsafe { read(fd, buf, count) }
}

unsafe extern "C" fn write(fd: RawFd, buf: *const c_void, count: size_t) -> ssize_t {
    let file = here::file(fd);
    let control = match file {
        // The server writes its log at a place, but a walreceiver of some version may not.
        File::Other | File::Wal(_) => None,
        File::Segment(..) => {
            transfer::forget_all(file);
            None
        }
        File::Control => {
            // SAFETY: as the server's own call: so many bytes are there.
            let bytes = unsafe { std::slice::from_raw_parts(buf.cast(), count) };
            Some(control::about_to_be(bytes))
        }
    };
    // SAFETY: as the server's own call.
    let written = unsafe { libc::write(fd, buf, count) };
    if let Some(control) = control.filter(|_| written == count as ssize_t) {
        control::is(&control);
    }
    written
}

unsafe extern "C" fn pread(fd: RawFd, buf: *mut c_void, count: size_t, at: off_t) -> ssize_t {
    let part = iovec { iov_base: buf, iov_len: count };
    // SAFETY: as the server's own call, with one part.
    unsafe { transfer::read(fd, &[part], at) }
}

unsafe extern "C" fn preadv(fd: RawFd, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
    let count = count.max(0) as usize;
    // SAFETY: as the server's own call: so many parts are there.
    unsafe { transfer::read(fd, std::slice::from_raw_parts(parts, count), at) }
}

unsafe extern "C" fn pwrite(fd: RawFd, buf: *const c_void, count: size_t, at: off_t) -> ssize_t {
    let part = iovec { iov_base: buf.cast_mut(), iov_len: count };
    if let File::Wal(segment) = here::file(fd) {
        // SAFETY: as the server's own call: so many bytes are there. The server writes its log from its log buffers or from
        // private memory, both mapped and writable.
        unsafe {
            wal::about_to_be(segment, at.max(0) as u64, buf as usize, count);
            let written = libc::pwrite(fd, buf, count, at);
            if written == count as ssize_t {
                wal::is();
            }
            return written;
        }
    }
    // SAFETY: as the server's own call, with one part.
    unsafe { transfer::write(fd, &[part], at) }
}

unsafe extern "C" fn pwritev(fd: RawFd, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
    let count = count.max(0) as usize;
    // SAFETY: as the server's own call: so many parts are there.
    unsafe { transfer::write(fd, std::slice::from_raw_parts(parts, count), at) }
}

unsafe extern "C" fn ftruncate(fd: RawFd, length: off_t) -> c_int {
    let _still = transfer::forget(here::file(fd), length);
    // SAFETY: as the server's own call.
    unsafe { libc::ftruncate(fd, length) }
}

unsafe extern "C" fn truncate(path: *const c_char, length: off_t) -> c_int {
    // SAFETY: as the server's own call.
    let _still = transfer::forget(unsafe { named(path) }, length);
    // SAFETY: as above.
    unsafe { libc::truncate(path, length) }
}

unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: as the server's own call.
    let _still = transfer::forget(unsafe { named(path) }, 0);
    // SAFETY: as above.
    unsafe { libc::unlink(path) }
}

unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: as the server's own call.
    let (from_file, to_file) = unsafe { (named(from), named(to)) };
    transfer::forget_all(from_file);
    transfer::forget_all(to_file);
    // SAFETY: as above.
    unsafe { libc::rename(from, to) }
}

unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: as the server's own call.
    let (from_file, to_file) = unsafe { (named(from), named(to)) };
    transfer::forget_all(from_file);
    transfer::forget_all(to_file);
    // SAFETY: as above.
    unsafe { libc::link(from, to) }
}

unsafe extern "C" fn copy_file_range(
    from: RawFd,
    from_at: *mut off_t,
    to: RawFd,
    to_at: *mut off_t,
    len: size_t,
    flags: u32,
) -> ssize_t {
    if let Err(errno) = transfer::settle(here::file(from)) {
        return refuse(errno);
    }
    transfer::forget_all(here::file(to));
    // SAFETY: as the server's own call.
    unsafe { libc::copy_file_range(from, from_at, to, to_at, len, flags) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_writer_sleeps_longer_with_nothing_to_do_and_to_the_end_if_it_hibernates() {
        let naps = |kept, hibernates| {
            std::iter::successors(Some(SHORT_NAP_MS), move |nap| {
                Some(next_nap(*nap, kept, hibernates))
            })
        };
        assert_eq!(naps(false, false).nth(1), Some(2 * SHORT_NAP_MS));
        assert_eq!(naps(false, false).nth(20), Some(LONG_NAP_MS));
        assert_eq!(naps(true, true).nth(3), Some(SHORT_NAP_MS), "there is work");
        assert_eq!(naps(false, true).nth(1), Some(c_int::MAX));
    }

    #[test]
    fn only_a_wait_of_less_than_a_second_is_a_nap_of_the_checkpointer() {
        assert!(is_nap(100) && is_nap(1));
        assert!(![-1, 0, 1_000, 300_000].into_iter().any(is_nap));
    }
}
