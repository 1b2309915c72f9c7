// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bounded`: writes below the end of a file go to flash, and to the disk when the file is flushed.
//!
//! # Invariants
//! 1. All dirty pages of a file are written back before a flush of it returns, so the disk is never older
//!    than the last checkpoint. A write that goes to the disk holds its page meanwhile, as a write-back does (rule P4).
//!    So does a write while flash is overdue.
//! 2. If a dirty page cannot be read, the process aborts, and the server recovers from its last checkpoint without the
//!    pages on flash. The disk's older version is never returned (rule P5).
//!
//! Recovery needs the server to flush, and to log whole pages. While its settings say otherwise (`server::is_durable`),
//! writes go to the disk as under `through`.

use larder_core::pagelog::LogPolicy;
use larder_core::request::Errno;

use super::Policy;
use crate::area::Mark;
use crate::error::Failure;
use crate::flash::Flash;
use crate::server;

/// Values of [`Mark::Absorbing`]: writes go to flash; they did until the server's settings changed. 0: never yet.
const ABSORBS: u64 = 1;
const ENDED: u64 = 2;

pub(super) const THEN: &str =
    "the server recovers from its last checkpoint, without what is on flash";

/// See the module.
pub struct Bounded;

impl Policy for Bounded {
    fn name(&self) -> &'static str {
        LogPolicy::Bounded.name()
    }

    fn absorbs(&self, flash: &Flash) -> Result<bool, Failure> {
        let area = flash.area();
        // While flash takes too long, the disk takes the writes. What flash has stays dirty until it answers.
        if flash.is_overdue() {
            return Ok(false);
        }
        let absorbs = flash.works() && server::is_durable();
        match (absorbs, area.get(Mark::Absorbing)) {
            (true, ABSORBS) | (false, 0 | ENDED) => {}
            (true, _) => {
                if area.swap(Mark::Absorbing, ABSORBS) == ENDED {
                    server::say("LOG", "changed pages go to flash again");
                }
            }
            (false, _) => {
                flash.drain()?;
                if area.swap(Mark::Absorbing, ENDED) == ABSORBS && flash.works() {
                    server::say(
                        "WARNING",
                        "fsync or full_page_writes is off: changed pages go to the disk at once, as under \
                         larder.policy = through",
                    );
                }
            }
        }
        Ok(absorbs)
    }

    fn drains_at_commit(&self) -> bool {
        true
    }

    fn may_pass_flash(&self) -> bool {
        true
    }

    fn cannot_read(&self, flash: &Flash, errno: Errno) {
        flash.lost(errno, THEN)
    }

    fn failed(&self, flash: &Flash, failure: Failure) {
        if flash.pages().status().dirty > 0 {
            flash.lost(failure.errno(), THEN);
        }
        flash.give_up(failure);
    }
}
