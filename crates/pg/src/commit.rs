// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the server that make something durable: the policy makes pages on flash durable first.

use larder_core::request::Errno;

use crate::control::Control;
use crate::error::Failure;
use crate::file::File;
use crate::here;
use crate::server;

fn errno(done: Option<Result<(), Failure>>) -> Result<(), Errno> {
    done.unwrap_or(Ok(())).map_err(Failure::errno)
}

/// A relation file is about to be flushed.
///
/// # Errors
/// If that fails.
pub fn file(file: File) -> Result<(), Errno> {
    let File::Segment(fork, segment) = file else { return Ok(()) };
    errno(here::with(|_, pool| pool.commit(&fork, segment)))
}

/// All files are about to be flushed.
///
/// # Errors
/// If that fails.
pub fn all() -> Result<(), Errno> {
    errno(here::with(|_, pool| pool.commit_all()))
}

/// As above, for a call that cannot fail.
pub fn all_or_die() {
    or_die(all());
}

/// This `pg_control` is about to be written.
pub fn control(control: &Control) {
    or_die(errno(here::with(|_, pool| pool.commit_control(control))));
}

fn or_die(done: Result<(), Errno>) {
    if let Err(errno) = done {
        server::say("PANIC", &format!("what is on flash cannot be made durable: {errno}"));
        std::process::abort()
    }
}
