// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the server wants to be durable, before it is told that it is.
//!
//! A flush of a relation file: under `bounded` the disk gets the fork's changed pages first. Under `full` flash is made
//! durable up to the fork's last page, and the names of forks with it; what pages the disk has of the file, it makes
//! durable itself. Before `pg_control` is written, which is when the server forgets its log of earlier changes, `full`
//! makes all of flash durable: forks that were dropped or cut since get no flush of their own.

use larder_core::pagelog::{LogPolicy, now};
use larder_core::request::Errno;

use crate::file::{File, Fork};
use crate::here::{self, Armed};
use crate::journal;
use crate::mutant::{Mutant, is_active};
use crate::pool::Pool;
use crate::server;

/// A relation file is about to be flushed.
///
/// # Errors
/// If it cannot be.
pub fn file(file: File) -> Result<(), Errno> {
    let File::Segment(fork, _) = file else { return Ok(()) };
    here::with(|armed, pool| self::fork(armed, pool, &fork)).unwrap_or(Ok(()))
}

/// As above, of a fork.
///
/// # Errors
/// As above.
pub fn fork(armed: &Armed, pool: &Pool, fork: &Fork) -> Result<(), Errno> {
    match pool.policy() {
        LogPolicy::Through => Ok(()),
        LogPolicy::Bounded => pool.settle(fork),
        LogPolicy::Full if is_active(Mutant::CommitsNothing) => Ok(()),
        LogPolicy::Full => {
            let number = pool.area().names().find(fork);
            let last = number.map_or(0, |number| pool.area().dirty_until(number));
            let settled =
                now(pool.pages().log().settle(last)).and_then(|()| names(armed, pool, None));
            settled.inspect_err(|errno| pool.fail(*errno, "flash failed"))
        }
    }
}

/// All files are about to be flushed.
///
/// # Errors
/// If they cannot be.
pub fn all() -> Result<(), Errno> {
    here::with(|armed, pool| match pool.policy() {
        LogPolicy::Through => Ok(()),
        LogPolicy::Bounded => pool.drain(),
        LogPolicy::Full => flash(armed, pool, None),
    })
    .unwrap_or(Ok(()))
}

/// As above, for a call that cannot fail.
pub fn all_or_die() {
    if let Err(errno) = all() {
        die(errno);
    }
}

/// `pg_control` is about to be what has this hash.
pub fn control(hash: u64) {
    let done = here::with(|armed, pool| match pool.policy() {
        LogPolicy::Full => flash(armed, pool, Some(hash)),
        _ => Ok(()),
    });
    if let Some(Err(errno)) = done {
        die(errno);
    }
}

fn die(errno: Errno) -> ! {
    server::say("PANIC", &format!("what is on flash cannot be made durable: {errno}"));
    std::process::abort()
}

/// All that flash has is to be durable, and what `pg_control` is about to be.
///
/// # Errors
/// If it cannot be.
pub fn flash(armed: &Armed, pool: &Pool, control: Option<u64>) -> Result<(), Errno> {
    now(pool.pages().log().flush())?;
    names(armed, pool, control)
}

/// What became of a fork's name is to be durable at once.
///
/// # Errors
/// If it cannot be.
pub fn names(armed: &Armed, pool: &Pool, control: Option<u64>) -> Result<(), Errno> {
    if pool.policy() != LogPolicy::Full || is_active(Mutant::ForgetsNames) && control.is_none() {
        return Ok(());
    }
    let _one = pool.pages().log().host().latch(journal::LATCH);
    let sync = || journal::sync(pool.area(), &armed.directory, control);
    let done = armed.spare.with(sync);
    done.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno))
}
