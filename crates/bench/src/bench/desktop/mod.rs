// SPDX-License-Identifier: MIT OR Apache-2.0
//! `desktop`: PRWC's comparison over ten days of its five users.
//!
//! Method: [`larder_sim::load::desktop`] over the model of a disk like the paper's (`hdd-7200`), with
//! flash like the paper's (`ssd-840pro`), 32 of its GB. A day's requests are replayed from its eighth
//! hour on, one after the other as fast as they are answered; `prwc` and `proc` update once a day, at
//! midnight. All ten days count, the first with an empty cache too; the last five stand beside.
//! - *Write bandwidth*: bytes written by the time that writes took (P6); *total*: all bytes by all
//!   time (P3). A pair is a user.
//! - *Scan* (P11): user 5 again, with a backup in the middle of the eighth day. What reads hit in the
//!   rest of that day and on the next is held against what they hit on the day before.
//!
//! The disk's write cache of 64 MiB is not scaled, while data is a quarter: it takes four times the
//! share of a day's writes that it would, which is for the caches that write to the disk. What it
//! decides is shown by the same runs with that cache off, for information.
//!
//! Why the systems of the paper are presets here: see `warm-up`. `slru` is its SLRU_n, which never
//! loses its cache.

mod rows;

use anyhow::{Context, Result, anyhow, ensure};
use larder_core::exec::MILLISECOND;
use larder_core::preset::Limits;
use larder_core::stats::Counters;
use larder_model::{DeviceSpec, described};
use larder_sim::device::SimDevice;
use larder_sim::load::desktop::{Ask, DAY, DAYS, DISK_BYTES, Desktop, FLASH_BYTES, USERS, User};
use larder_sim::load::replay::{Replayed, replay};
use larder_sim::world::World;

use super::{BenchOptions, Findings};
use larder_lab::jobs::run_jobs;
use larder_lab::volume::{System, device, place};

const NAME: &str = "desktop";
const ORIGIN_PROFILE: &str = "hdd-7200";
const FLASH_PROFILE: &str = "ssd-840pro";
/// The day of the backup, the paper's eighth.
const SCAN_DAY: u32 = 7;
/// The user who makes it.
const SCAN_USER: usize = 4;
const SEED: u64 = 1;

/// Who is compared; the rows name them by these places.
const SYSTEMS: [System; 5] = [
    System::Preset("prwc"),
    System::Preset("proc"),
    System::Preset("slru"),
    System::Preset("sce"),
    System::NoCache,
];

/// Who runs without the disk's write cache too: the first of them, in that order.
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

/// What it found.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// The user's requests of each day.
    days: Vec<Replayed>,
    /// Those of the second half of the day of the backup, and the backup.
    rest: Replayed,
    backup: Replayed,
    counters: Counters,
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

/// The world of a job, cold.
fn world(system: System, cached: bool) -> Result<World> {
    let mut choices = system.choices()?;
    if let Some(settings) = choices.periodic_mut() {
        settings.period = DAY;
    }
    let origin = match cached {
        true => device(ORIGIN_PROFILE, DISK_BYTES, SEED)?,
        false => {
            let mut disk = described(ORIGIN_PROFILE)?;
            if let DeviceSpec::Disk(spec) = &mut disk.device {
                spec.cache = None;
            }
            SimDevice::new(disk.build(DISK_BYTES, SEED), None, SEED, MILLISECOND)
        }
    };
    let mut world = World::new(origin, DISK_BYTES, 1, &choices, &Limits::default());
    if let System::Preset(_) = system {
        let flash = device(FLASH_PROFILE, FLASH_BYTES, SEED)?;
        world.attach_journaled(flash, place(&choices, DISK_BYTES, FLASH_BYTES), &[None]);
    }
    Ok(world)
}

fn one(job: &Job) -> Result<Outcome> {
    let mut world = world(job.system, job.cached)?;
    let mut desktop = Desktop::new(&job.user, SEED);
    let mut outcome = Outcome::default();
    for day in 0..DAYS {
        let asks = desktop.day(day);
        let (morning, afternoon) = asks.split_at(asks.len() / 2);
        world.idle_until(u64::from(day) * DAY + DAY / 3);
        let mut replay =
            |asks: &[Ask]| replay(&mut world, asks).map_err(|e| anyhow!("day {day}: {e}"));
        let mut sum = replay(morning)?;
        if day == SCAN_DAY && job.scans {
            outcome.backup = replay(&desktop.backup(day))?;
        }
        let rest = replay(afternoon)?;
        sum += rest;
        outcome.days.push(sum);
        if day == SCAN_DAY {
            outcome.rest = rest;
        }
        ensure!(world.now() < u64::from(day + 1) * DAY, "day {day} takes longer than a day");
    }
    outcome.counters = world.counters();
    if let System::Preset(_) = job.system {
        let status = world.shards().first().and_then(|shard| shard.cache_status());
        status.context("the flash was given up")?;
        ensure!(outcome.counters.flash_errors == 0, "flash failed");
    }
    Ok(outcome)
}
