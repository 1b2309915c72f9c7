// SPDX-License-Identifier: MIT OR Apache-2.0
//! While the server recovers after a crash, whichever of `through` and `bounded` is set: writes below the end of a file go to
//! flash, and to the disk before `pg_control` names a later checkpoint.
//!
//! # Invariants
//! 1. The server drops nothing of its log before it writes a `pg_control` that names a later place to recover from. Before that
//!    write the disk durably has all dirty pages: those that flash had before the crash, and those that recovery wrote (rule P8).
//!    Until then a loss of flash only means that the server recovers once more from the same place.
//! 2. So a flush of a file has nothing to do, although the server flushes all files at the beginning (which makes durable what was
//!    written to them before the crash) and many at the end. During the last drain it has: the drain may not see its pages.
//! 3. If the last drain fails, flash counts as failed, and the next start does without it. Else each recovery would fail.
//! 4. Files that pages go to meanwhile are noted, and flushed by that drain (`disk.rs`): the server flushes only what it writes
//!    itself.
//!
//! Why not `through` as it is: recovery changes pages in the order of the log, shared buffers evict them again and again, and one
//! process waits for each write. Why not drain before recovery: most of those pages are changed again by recovery, and would be
//! written twice.

use larder_core::request::Errno;

use super::Policy;
use super::bounded::{self, Bounded};
use super::state;
use crate::control::Control;
use crate::error::Failure;
use crate::file::Fork;
use crate::flash::Flash;
use crate::mutant::{Mutant, is_active};

/// See the module.
pub struct Recovery;

impl Policy for Recovery {
    fn name(&self) -> &'static str {
        "recovery"
    }

    fn absorbs(&self, flash: &Flash) -> Result<bool, Failure> {
        Bounded.absorbs(flash)
    }

    fn may_pass_flash(&self) -> bool {
        Bounded.may_pass_flash()
    }

    fn cannot_read(&self, flash: &Flash, errno: Errno) {
        flash.lost(errno, bounded::THEN)
    }

    fn commit(&self, flash: &Flash, fork: &Fork, segment: u32) -> Result<(), Failure> {
        match state::settles(flash.area()) {
            true => self.settle(flash, fork, segment),
            false => Ok(()),
        }
    }

    fn commit_all(&self, flash: &Flash) -> Result<(), Failure> {
        match state::settles(flash.area()) {
            true => self.drain(flash),
            false => Ok(()),
        }
    }

    fn commit_control(&self, flash: &Flash, control: &Control) -> Result<(), Failure> {
        let area = flash.area();
        if state::recovers_from(area, control) {
            return Ok(());
        }
        let ends = state::settle(area, control);
        flash.changes_end();
        if !is_active(Mutant::NoDrain) {
            self.drain(flash).inspect_err(|failure| self.failed(flash, *failure))?;
        }
        state::recovered(area, control, ends);
        Ok(())
    }

    fn failed(&self, flash: &Flash, failure: Failure) {
        Bounded.failed(flash, failure);
    }
}
