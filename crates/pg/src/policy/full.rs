// SPDX-License-Identifier: MIT OR Apache-2.0
//! `full`: writes below the end of a file go to flash, which is a part of the database; the disk gets evicted pages.
//!
//! # Invariants
//! 1. The log survives a crash of the machine. So the server writes a page to the disk only after the log has dropped its
//!    version durably ([`Policy::clear`], [`Flash::bury`]; rule P6).
//! 2. A flush of a file makes the log durable up to the file's last page there, and the names of forks with it; the server
//!    flushes the file itself. All of the log is made durable before `pg_control` is written: forks that were dropped or
//!    cut get no flush of their own (rule P9).
//! 3. If flash fails in any way, the server stops. The disk's older version is never returned (rules P5 and P6).

use std::io;

use larder_core::pagelog::LogPolicy;
use larder_core::request::Errno;

use super::Policy;
use crate::control::Control;
use crate::error::Failure;
use crate::file::Fork;
use crate::flash::Flash;
use crate::mutant::{Mutant, is_active};

const THEN: &str = "it is a part of the database, and the server stops";

/// See the module.
pub struct Full;

impl Policy for Full {
    fn name(&self) -> &'static str {
        LogPolicy::Full.name()
    }

    fn is_part(&self) -> bool {
        true
    }

    fn absorbs(&self, _: &Flash) -> Result<bool, Failure> {
        Ok(true) // the log survives a crash, whatever the server's settings are
    }

    fn cannot_read(&self, flash: &Flash, errno: Errno) {
        flash.lost(errno, THEN)
    }

    /// A corrupt page would be valid again after a crash, so it is buried once the disk has the same version durably.
    fn missed(&self, flash: &Flash, page: u64) -> Result<(), Failure> {
        if !flash.log().has(page) {
            return Ok(());
        }
        flash.flush_disk()?;
        self.clear(flash, page)?;
        flash.tell_of_damage();
        Ok(())
    }

    fn clear(&self, flash: &Flash, page: u64) -> Result<(), Failure> {
        match flash.log().has(page) {
            true => flash.bury_page(page),
            false => Ok(()),
        }
    }

    /// Each dropped range is recorded in the log, so none reaches beyond the file.
    fn forgets(&self, all: u64, on_disk: &dyn Fn() -> io::Result<u64>) -> u64 {
        on_disk().unwrap_or(all)
    }

    fn commit(&self, flash: &Flash, fork: &Fork, segment: u32) -> Result<(), Failure> {
        if is_active(Mutant::CommitsNothing) {
            return Ok(());
        }
        let last = flash.dirty_until(fork, segment);
        let done = flash.settle_log(last).and_then(|()| self.commit_names(flash));
        done.inspect_err(|failure| self.failed(flash, *failure))
    }

    fn commit_all(&self, flash: &Flash) -> Result<(), Failure> {
        flash.flush_log()?;
        self.commit_names(flash)
    }

    fn commit_control(&self, flash: &Flash, control: &Control) -> Result<(), Failure> {
        flash.flush_log()?;
        flash.sync_names(Some(control.hash))
    }

    fn commit_names(&self, flash: &Flash) -> Result<(), Failure> {
        match is_active(Mutant::ForgetsNames) {
            true => Ok(()),
            false => flash.sync_names(None),
        }
    }

    fn failed(&self, flash: &Flash, failure: Failure) {
        flash.lost(failure.errno(), THEN)
    }
}
