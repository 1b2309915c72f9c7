// SPDX-License-Identifier: MIT OR Apache-2.0
//! A change of `larder.policy` while the server runs: the background writer carries it out, between its rounds.
//!
//! | from | to | |
//! | --- | --- | --- |
//! | `through` | `bounded` | at once; on a standby with its first checkpoint after a promotion |
//! | `bounded` | `through` | changes go to the disk at once; the policy is `through` when flash has no dirty page left |
//! | `full` | others, and back | with the next start, which makes flash a part of the database or writes all of it to the disk |
//!
//! # Invariants
//! 1. Flash takes no change after the last drain ([`Switch::begin_off`]).
//! 2. The background writer writes back for as long as between its rounds, so it answers signals meanwhile; only the last drain,
//!    which finds few dirty pages, has no limit.
//!
//! Why not the sizes: the tables in shared memory, which all processes have mapped, are made for one size.

use std::time::{Duration, Instant};

use larder_core::pagelog::{Host, LogPolicy};
use larder_core::request::Errno;
use larder_shared::now;

use crate::error::Failure;
use crate::mutant::{Mutant, is_active};
use crate::policy::{self, Change};
use crate::pool::Pool;
use crate::server;
use crate::settings::Refused;
use crate::switch::Switch;

/// Pause after a drain that failed.
const PAUSE: Duration = Duration::from_secs(10);

impl Pool {
    /// Carries out a part of a change to this policy that takes so long; returns whether there is more to do now.
    pub fn follow(&self, setting: &Result<LogPolicy, Refused>, most: Duration) -> bool {
        let setting = match setting {
            Ok(setting) => *setting,
            Err(Refused { what, hint }) => {
                self.following
                    .tell("WARNING", format!("{what}; the policy stays as it is. {hint}"));
                return false;
            }
        };
        let change = policy::change_to(setting, self.log_policy(), self.area());
        if change == Change::NextStart {
            let what = "takes effect with the next start of the server";
            self.following.tell("LOG", format!("larder.policy = {} {what}", setting.name()));
            return false;
        }
        self.following.told.take();
        match change {
            Change::Begin if self.works() => self.begin_changes(),
            Change::End if self.works() => self.end_changes(most),
            _ => false,
        }
    }

    fn begin_changes(&self) -> bool {
        if !Switch::changes(self.area()).is_on() {
            self.flash().take_changes();
            self.following.done.set(0);
            server::say("LOG", "larder.policy is bounded now: changed pages go to flash");
        }
        false
    }

    fn end_changes(&self, most: Duration) -> bool {
        let changes = Switch::changes(self.area());
        let Some(mine) = changes.begin_off() else { return false };
        if self.following.until.get().is_some_and(|until| Instant::now() < until)
            || self.is_overdue()
        {
            return false;
        }
        self.flash().changes_end();
        let drained = match is_active(Mutant::FollowsEarly) {
            true => Ok(true),
            false => self.write_back_a_part(most),
        };
        match drained {
            Ok(false) => true,
            Ok(true) => {
                self.following.done.set(0);
                if changes.end_off(mine) {
                    server::say("LOG", "larder.policy is through now: the disk has all pages");
                }
                false
            }
            Err(failure) => {
                self.following.until.set(Some(Instant::now() + PAUSE));
                if ![Errno::ETIMEDOUT, Errno::ECANCELED].contains(&failure.errno()) {
                    let what = format!(
                        "larder.policy is not through yet: {failure}; retried in {} s",
                        PAUSE.as_secs()
                    );
                    server::say("WARNING", &what);
                }
                false
            }
        }
    }

    /// Whether no dirty page is left.
    fn write_back_a_part(&self, most: Duration) -> Result<bool, Failure> {
        let (begin, log) = (Instant::now(), self.flash().log());
        let before = log.host().hurry(true);
        let mut left = log.undrained();
        left.start = left.start.max(self.following.done.get());
        let mut ahead = Ok(left.start);
        while ahead.is_ok() && !left.is_empty() && begin.elapsed() < most {
            ahead = now(log.drain_ahead(left.clone()));
            left.start = ahead.map_or(left.start, |done| done.max(left.start));
        }
        self.following.done.set(left.start);
        let done = match ahead {
            // Finds what was written back, and what could not be; and waits for writes that others have begun.
            Ok(_) if left.is_empty() => self.drain().map(|()| true),
            Ok(_) => Ok(false),
            Err(errno) => Err(Failure::Disk(errno)),
        };
        log.host().hurry(before);
        done
    }
}
