// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that reads and writes flash for the server's processes ([`larder_shared::serve`]).
//!
//! Purpose: a backend that waits for a hanging SSD inside of the kernel cannot be ended, and the postmaster waits for each of
//! its children before it stops or restarts. So this process is none of its children, and no child reads or writes flash.
//!
//! # Life
//! The postmaster forks it when it arms the cache. It has neither the server's shared memory, which would keep the next server
//! from starting, nor any of its files but flash and standard error. It ends when the postmaster asks for it, or has died and
//! no process of the server is left that could need it. It holds the lock of the flash file, so no other server uses flash
//! while operations of a dead one are on their way.
//!
//! Postmaster and process are connected by a pair of sockets: a byte from the process means that it serves, a byte to it that
//! it is to end, and the end of the stream that it has ended with all operations.
//!
//! Why not a background worker: the server waits for these too. Why not a program of its own: the library would need to know
//! where that is installed, and of which version it is.
#![allow(unsafe_code)]

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use larder_shared::{Memory, Watch, serve};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::area::Area;
use crate::server;

/// How long the postmaster waits until it serves.
const START: Duration = Duration::from_secs(30);
/// How often it looks whether a process of a dead server is left.
const LOOK: Duration = Duration::from_millis(50);
/// The name of the process.
const TITLE: &std::ffi::CStr = c"larder flash";

/// The process, for the postmaster.
pub struct FlashProcess {
    stream: UnixStream,
}

/// Waits until a descriptor can be read, or has ended; returns whether it did in time.
fn is_ready(fd: BorrowedFd<'_>, most: Duration) -> bool {
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    loop {
        match poll(&mut polled, Some(&most)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

impl FlashProcess {
    /// Starts it. No other one serves this memory.
    ///
    /// # Errors
    /// If it does not serve.
    pub fn begin(
        memory: &Arc<Memory>,
        flash: &Arc<OwnedFd>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let (mut stream, theirs) = UnixStream::pair()?;
        let postmaster = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
        // SAFETY: the postmaster has one thread, so its child may do anything.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                let leash = Leash { stream: theirs, postmaster };
                // SAFETY: as above. The first child ends at once, so that the second is not a child of the postmaster.
                unsafe {
                    if libc::fork() == 0 {
                        let run = || run(memory, flash, timeout, &leash);
                        let _ = catch_unwind(AssertUnwindSafe(run));
                    }
                    libc::_exit(0)
                }
            }
            // SAFETY: no status is wanted of the child just made.
            child => unsafe {
                while libc::waitpid(child, std::ptr::null_mut(), 0) < 0 && is_interrupted() {}
            },
        }
        drop(theirs);
        let serves = is_ready(stream.as_fd(), START) && stream.read_exact(&mut [0]).is_ok();
        match serves {
            true => Ok(Self { stream }),
            false => Err(io::Error::other("the process that serves flash did not start")),
        }
    }

    /// Whether it lives.
    #[must_use]
    pub fn lives(&self) -> bool {
        !is_ready(self.stream.as_fd(), Duration::ZERO)
    }

    /// Ends it; returns whether it has ended in this time, with all of its operations.
    pub fn end(mut self, most: Duration) -> bool {
        // It may have ended already.
        let _ = self.stream.write_all(&[0]);
        is_ready(self.stream.as_fd(), most)
    }
}

fn is_interrupted() -> bool {
    io::Error::last_os_error().kind() == ErrorKind::Interrupted
}

/// What ends the process.
struct Leash {
    stream: UnixStream,
    postmaster: OwnedFd,
}

/// The process.
fn run(memory: &Arc<Memory>, flash: &Arc<OwnedFd>, timeout: Duration, leash: &Leash) {
    let fds = [flash.as_fd(), leash.stream.as_fd(), leash.postmaster.as_fd()];
    if let Err(error) = leave(memory, &fds.map(|fd| fd.as_raw_fd())) {
        return server::say(
            "WARNING",
            &format!("the process that serves flash cannot start: {error}"),
        );
    }
    let tell = |overdue: bool| match overdue {
        true => tell_overdue(),
        false => server::say("LOG", "flash answers again, and is used"),
    };
    let area = Area::of(memory);
    let took = Arc::new(move |call, bytes, time| area.flash_took(call, bytes, time));
    let served = serve(memory, flash.clone(), Watch { timeout, tell: &tell, took }, || {
        let _ = (&leash.stream).write_all(&[0]);
        wait_for_end(memory, leash);
        // Without a wait for operations that hang.
        // SAFETY: this process has nothing to clean up at its exit.
        unsafe { libc::_exit(0) }
    });
    if let Err(errno) = served {
        server::say("WARNING", &format!("the process that serves flash cannot start: {errno}"));
    }
}

/// Flash is overdue.
pub fn tell_overdue() {
    let what = "flash does not answer in larder.flash_timeout: what the disk has is read and written there until flash answers";
    server::say("WARNING", what);
}

fn wait_for_end(memory: &Arc<Memory>, leash: &Leash) {
    let mut polled = [leash.stream.as_fd(), leash.postmaster.as_fd()]
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let ready = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::IN | PollFlags::HUP);
    while let Err(rustix::io::Errno::INTR) = poll(&mut polled, None) {}
    if ready(&polled[0]) {
        return;
    }
    // The postmaster is dead; its children may still read.
    while memory.has_members() {
        std::thread::sleep(LOOK);
    }
}

/// Leaves the server: its signals, its memory, and its files but these.
fn leave(memory: &Arc<Memory>, keep: &[i32]) -> io::Result<()> {
    set_title();
    // SAFETY: this process has one thread, and no code of the server runs in it.
    unsafe {
        for signal in 1..=64 {
            // It ends after the processes that it serves. A manager of services signals all processes at the same time.
            let ends = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGUSR1];
            let more = [libc::SIGUSR2, libc::SIGPIPE, libc::SIGALRM];
            let ignored = ends.contains(&signal) || more.contains(&signal);
            libc::signal(signal, if ignored { libc::SIG_IGN } else { libc::SIG_DFL });
        }
        let mut none = std::mem::MaybeUninit::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
    let _ = rustix::process::setsid();
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    for standard in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: nothing in this process uses them.
        unsafe { libc::dup2(null.as_raw_fd(), standard) };
    }
    drop(null);
    unmap_shared(memory)?;
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let open: Vec<i32> = fs::read_dir("/proc/self/fd")?.filter_map(number).collect();
    for fd in open {
        if fd > libc::STDERR_FILENO && !keep.contains(&fd) {
            // SAFETY: nothing in this process uses it; a number that is closed already is an error without effect.
            unsafe { libc::close(fd) };
        }
    }
    Ok(())
}

/// Unmaps what is shared with the server's processes, except the memory of the log.
fn unmap_shared(memory: &Arc<Memory>) -> io::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    for line in maps.lines() {
        let Some((start, length)) = shared_range(line) else { continue };
        if memory.has_address(start) {
            continue;
        }
        // SAFETY: the server's shared memory, of which this process uses nothing.
        unsafe { libc::munmap(start as *mut _, length) };
    }
    Ok(())
}

/// The first byte and the length of a mapping, if it is shared and can be written.
fn shared_range(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    (rights.as_bytes().get(3) == Some(&b's') && rights.contains('w'))
        .then_some((start, end - start))
}

/// Names the process, as the server names its own.
fn set_title() {
    let _ = rustix::thread::set_name(c"larder-flash");
    type Name = unsafe extern "C-unwind" fn(*const std::ffi::c_char);
    // SAFETY: `void init_ps_display(const char *)` and `bool IsUnderPostmaster`, without which it names nothing; no code of
    // the server runs in this process afterwards.
    unsafe {
        if let Some(name) = server::function::<Name>(c"init_ps_display")
            && let Some(child) = server::symbol(c"IsUnderPostmaster")
        {
            child.cast::<bool>().write(true);
            name(TITLE.as_ptr());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_mappings_are_found() {
        let shared = "7f0000000000-7f0000002000 rw-s 00000000 00:01 1042 /dev/zero (deleted)";
        assert_eq!(shared_range(shared), Some((0x7f00_0000_0000, 0x2000)));
        for other in [
            "7f0000000000-7f0000002000 rw-p 00000000 00:00 0",
            "7f0000000000-7f0000002000 r--s 00000000 08:01 7 /usr/lib/gconv-modules.cache",
            "7f0000000000 rw-s",
            "",
            "x-y rw-s 0",
        ] {
            assert_eq!(shared_range(other), None, "{other}");
        }
    }
}
