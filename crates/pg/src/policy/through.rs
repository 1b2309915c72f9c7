// SPDX-License-Identifier: MIT OR Apache-2.0
//! `through`: the disk has every write before the server's call returns, and flash holds clean pages.
//!
//! So no page is written back, a flush waits for nothing, and a failure of flash ends caching.

use larder_core::pagelog::LogPolicy;
use larder_core::request::Errno;
use larder_shared::Locked;

use super::Policy;
use crate::error::Failure;
use crate::file::Fork;
use crate::flash::Flash;
use crate::names::Number;

/// See the module.
pub struct Through;

impl Policy for Through {
    fn name(&self) -> &'static str {
        LogPolicy::Through.name()
    }

    fn disk_suffices(&self) -> bool {
        true
    }

    fn absorbs(&self, _: &Flash) -> Result<bool, Failure> {
        Ok(false)
    }

    fn cannot_read(&self, _: &Flash, _: Errno) {}

    fn hold(&self, _: &Flash, _: &[u64]) -> Vec<Locked> {
        Vec::new()
    }

    fn latch(&self, _: &Flash, _: &[Number]) -> Vec<Locked> {
        Vec::new()
    }

    fn drain(&self, _: &Flash) -> Result<(), Failure> {
        Ok(())
    }

    fn settle(&self, _: &Flash, _: &Fork, _: u32) -> Result<(), Failure> {
        Ok(())
    }

    fn failed(&self, flash: &Flash, failure: Failure) {
        flash.give_up(failure);
    }
}
