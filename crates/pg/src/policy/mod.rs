// SPDX-License-Identifier: MIT OR Apache-2.0
//! Write policies: one implementation of [`Policy`] for each `larder.policy`.
//!
//! | policy | a changed page goes to | if flash is lost | file |
//! | --- | --- | --- | --- |
//! | `through` | the disk, then flash | the server continues | `through.rs` |
//! | `bounded` | flash; the disk before a flush of its file returns | the server recovers from its last checkpoint | `bounded.rs` |
//! | `full` | flash; the disk when it is evicted | the database is lost | `full.rs` |
//! | none, while the server recovers after a crash without `full` | flash; the disk before `pg_control` names a later place to recover from | the server recovers again from its last checkpoint | `recovery.rs` |
//!
//! The shared memory has the policy in force (`state.rs`). Policies use the operations of `flash.rs`; the paths of a page in
//! `pool.rs` use both.

mod bounded;
mod full;
mod recovery;
mod state;
mod through;

#[cfg(test)]
pub use self::state::settle;
pub use self::state::{
    Begins, Change, at_start, begin, change_to, control_is, in_force, of_log, recovers, settles,
};

use std::io;

use larder_core::request::Errno;
use larder_shared::Locked;

use crate::control::Control;
use crate::error::Failure;
use crate::file::Fork;
use crate::flash::Flash;
use crate::names::Number;

/// See the module. The default methods are right for a flash that may hold dirty pages and loses them with a crash of the
/// machine.
pub trait Policy: Sync {
    /// As `larder_stat_cache` has it.
    fn name(&self) -> &'static str;

    /// Whether flash never holds dirty pages: the server may continue without it at any time.
    fn disk_suffices(&self) -> bool {
        false
    }

    /// Whether flash is a part of the database: the server may not start without it.
    fn is_part(&self) -> bool {
        false
    }

    /// Whether writes go to flash instead of the disk at the moment.
    ///
    /// # Errors
    /// If they no longer do, and dirty pages cannot be written back.
    fn absorbs(&self, flash: &Flash) -> Result<bool, Failure>;

    /// Whether a write that flash is to take may go to the disk instead, if flash takes too long. Then flash keeps a dirty version
    /// until the disk has the new one: a checkpoint in between must find one of them.
    fn may_pass_flash(&self) -> bool {
        false
    }

    /// Whether a flush of a file writes dirty pages back first, so that it is quicker if they were written back before.
    fn drains_at_commit(&self) -> bool {
        false
    }

    /// Flash cannot read a page that it holds. Returns only if the disk has the same version.
    fn cannot_read(&self, flash: &Flash, errno: Errno);

    /// A read missed. If the log holds the page all the same, the page is corrupt and clean.
    ///
    /// # Errors
    /// If such a page cannot be dropped.
    fn missed(&self, _flash: &Flash, _page: u64) -> Result<(), Failure> {
        Ok(())
    }

    /// The server is about to write the page to the disk, and the log must not bring an older version back. The caller
    /// holds nothing.
    ///
    /// # Errors
    /// If the log cannot drop the page.
    fn clear(&self, _flash: &Flash, _page: u64) -> Result<(), Failure> {
        Ok(())
    }

    /// Keeps other processes from writing these pages back while the server writes them.
    fn hold(&self, flash: &Flash, pages: &[u64]) -> Vec<Locked> {
        flash.hold(pages)
    }

    /// Keeps other processes from writing any page of a file's extents back while it is cut or dropped.
    fn latch(&self, flash: &Flash, numbers: &[Number]) -> Vec<Locked> {
        flash.latch(numbers)
    }

    /// The end of the blocks that are dropped when a segment of `all` blocks is cut; `on_disk` counts those in its file.
    fn forgets(&self, all: u64, _on_disk: &dyn Fn() -> io::Result<u64>) -> u64 {
        // Pages behind the end of a file are not in the log, and looking for them costs little.
        all
    }

    /// Writes all dirty pages back to the disk.
    ///
    /// # Errors
    /// If that fails.
    fn drain(&self, flash: &Flash) -> Result<(), Failure> {
        flash.drain()
    }

    /// Writes the dirty pages of a segment back to the disk.
    ///
    /// # Errors
    /// If that fails.
    fn settle(&self, flash: &Flash, fork: &Fork, segment: u32) -> Result<(), Failure> {
        flash.settle(fork, segment)
    }

    /// The server is about to flush the file of a segment.
    ///
    /// # Errors
    /// If pages on flash cannot be made durable.
    fn commit(&self, flash: &Flash, fork: &Fork, segment: u32) -> Result<(), Failure> {
        self.settle(flash, fork, segment)
    }

    /// The server is about to flush all files.
    ///
    /// # Errors
    /// If pages on flash cannot be made durable.
    fn commit_all(&self, flash: &Flash) -> Result<(), Failure> {
        self.drain(flash)
    }

    /// The server is about to write this `pg_control`, after which it may drop its log of earlier changes.
    ///
    /// # Errors
    /// If pages on flash cannot be made durable.
    fn commit_control(&self, _flash: &Flash, _control: &Control) -> Result<(), Failure> {
        Ok(())
    }

    /// The number of an extent was retired.
    ///
    /// # Errors
    /// If that cannot be made durable.
    fn commit_names(&self, _flash: &Flash) -> Result<(), Failure> {
        Ok(())
    }

    /// Ends caching after a failure. Returns only if the server may continue without flash.
    fn failed(&self, flash: &Flash, failure: Failure);
}
