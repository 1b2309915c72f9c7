// SPDX-License-Identifier: MIT OR Apache-2.0
//! `desktop`: PRWC's comparison over ten days of its five users.
//!
//! Method: [`larder_lab::scenario::desktop`] at a quarter of the paper's sizes, over the model of a disk like
//! the paper's (`hdd-7200`), with flash like the paper's (`ssd-840pro`), 32 of its GB; `prwc` and
//! `proc` update once a day, at midnight. All ten days count, the first with an empty cache too; the
//! last five stand beside.
//! - *Write bandwidth*: bytes written by the time that writes took (P6); *total*: all bytes by all
//!   time (P3). A pair is a user.
//! - *Scan* (P11): user 5 again, with a backup in the middle of the eighth day. What reads hit in the
//!   rest of that day and on the next is compared with their hits on the day before.
//!
//! The disk's write cache of 64 MiB is not scaled, while data is a quarter: it takes four times the
//! share of a day's writes, which favours the caches that write to the disk. The same runs with that cache off
//! show its effect, for information.
//!
//! Why the systems of the paper are presets here: see `warm-up`. `slru` is its SLRU_n, which never
//! loses its cache.

mod rows;

use anyhow::Result;
use larder_lab::load::desktop::{USERS, User};

use self::rows::{NAME, SYSTEMS};
use super::common::{BenchOptions, Findings};
use larder_lab::jobs::run_jobs;
use larder_lab::scenario::desktop::{self, Outcome, SCAN_DAY, Setup};
use larder_lab::scenario::volume::System;

/// The user who makes it.
const SCAN_USER: usize = 4;
const SEED: u64 = 1;

/// Systems that run without the disk's write cache too: the first of them, in that order.
const UNCACHED: [System; 3] = [SYSTEMS[0], SYSTEMS[1], SYSTEMS[2]];

/// A run.
#[derive(Clone, Copy, Debug)]
struct Job {
    user: User,
    system: System,
    scans: bool,
    /// Whether the disk has its write cache.
    cached: bool,
}

pub(super) fn run(options: &BenchOptions) -> Result<Findings> {
    let (users, scanner): (&[User], User) = match options.quick {
        true => (&USERS[2..3], USERS[2]),
        false => (&USERS, USERS[SCAN_USER]),
    };
    let mut jobs = Vec::new();
    for system in SYSTEMS {
        let job = |user: &User| Job { user: *user, system, scans: false, cached: true };
        jobs.extend(users.iter().map(job));
        jobs.push(Job { scans: true, ..job(&scanner) });
    }
    for system in UNCACHED {
        let job = |user: &User| Job { user: *user, system, scans: false, cached: false };
        jobs.extend(users.iter().map(job));
    }
    let words = |job: &Job| {
        let scan = if job.scans { ", with a backup" } else { "" };
        let cache = if job.cached { "" } else { ", the disk's write cache off" };
        format!("user {}, {}{scan}{cache}", job.user.number, job.system.name())
    };
    let outcomes = run_jobs(NAME, &jobs, words, one)?;
    let (cached, uncached) = outcomes.split_at(SYSTEMS.len() * (users.len() + 1));
    let systems: Vec<&[Outcome]> = cached.chunks(users.len() + 1).collect();
    let uncached: Vec<&[Outcome]> = uncached.chunks(users.len()).collect();
    let place = users.iter().position(|user| *user == scanner).unwrap_or(0);
    let mut found = rows::findings(&systems, place, options.quick);
    found.rows.extend(rows::uncached(&uncached));
    Ok(found)
}

fn one(job: &Job) -> Result<Outcome> {
    let backup = job.scans.then_some(SCAN_DAY);
    let setup = Setup::paper(job.system, job.user, SEED);
    desktop::run(&Setup { backup, disk_cache: job.cached, ..setup })
}
