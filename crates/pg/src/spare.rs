// SPDX-License-Identifier: MIT OR Apache-2.0
//! A descriptor in reserve: the server uses as many descriptors as it may, and the library must still open files.
//!
//! Children inherit it from the postmaster. A process that gets `EMFILE` closes it, tries again, and then reopens it. Other
//! threads of the process may be faster; they soon close what they opened.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

/// Tries, and how long is waited in between.
const TRIES: u32 = 1_000;
const NAP: Duration = Duration::from_millis(1);

/// See the module.
pub struct Spare {
    /// What it is a copy of.
    of: Arc<OwnedFd>,
    one: Mutex<Option<OwnedFd>>,
}

fn copy(of: &OwnedFd) -> Option<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(of, 0).ok()
}

/// Whether there was no descriptor.
pub fn is_lack(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| [libc::EMFILE, libc::ENFILE].contains(&code))
}

impl Spare {
    /// A copy of this one.
    #[must_use]
    pub fn new(of: Arc<OwnedFd>) -> Self {
        let one = Mutex::new(copy(&of));
        Self { of, one }
    }

    /// Runs something that opens one file at a time, and runs it again if there was no descriptor.
    ///
    /// # Errors
    /// Its own.
    pub fn with<T>(&self, mut run: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let lacks = |done: &io::Result<T>| done.as_ref().is_err_and(is_lack);
        let mut done = run();
        if !lacks(&done) {
            return done;
        }
        let mut one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        drop(one.take());
        for _ in 0..TRIES {
            done = run();
            if !lacks(&done) {
                break;
            }
            sleep(NAP);
        }
        *one = copy(&self.of);
        done
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs the named test in a process of its own, because other tests need descriptors meanwhile, with at most 64
    /// descriptors. Returns whether this is that process: only there the caller continues.
    pub(crate) fn has_few_descriptors(test: &str) -> bool {
        const VARIABLE: &str = "LARDER_TEST_FEW_DESCRIPTORS";
        if std::env::var_os(VARIABLE).is_none() {
            let mut command = Command::new(std::env::current_exe().unwrap());
            let run = command.args(["--exact", test]).env(VARIABLE, "1").stdout(Stdio::null());
            assert!(run.status().unwrap().success());
            return false;
        }
        let few = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
        true
    }

    fn open() -> io::Result<OwnedFd> {
        std::fs::File::open("/dev/null").map(Into::into)
    }

    #[test]
    fn a_file_can_be_opened_when_descriptors_have_run_out() {
        let name = "spare::tests::a_file_can_be_opened_when_descriptors_have_run_out";
        if !has_few_descriptors(name) {
            return;
        }
        let spare = Spare::new(Arc::new(open().unwrap()));
        let all: Vec<OwnedFd> = std::iter::from_fn(|| open().ok()).collect();
        assert!(!all.is_empty() && open().is_err());
        for _ in 0..3 {
            spare.with(|| open().map(drop)).unwrap();
            assert!(open().is_err(), "it was not taken again");
        }
        let several = || (0..100).try_for_each(|_| spare.with(|| open().map(drop)));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(several)).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
        let refused = || Err::<(), _>(io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(spare.with(refused).unwrap_err().raw_os_error(), Some(libc::EACCES));
    }
}
