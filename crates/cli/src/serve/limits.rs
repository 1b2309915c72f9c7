// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budgets and time limits: the flags and their checks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::Args;
use larder_core::config::Limits;
use larder_core::exec::{Nanos, SECOND};
use larder_core::policy::admission::DAY;
use larder_io::{ServerBounds, format_size};
use larder_volume::budget::{Budget, LEAST_BYTES};
use larder_volume::{Change, ClientLimits, DailyWrites};

use crate::setting::BadSetting;
use crate::units::{daily_writes, on_or_off, ratio, size, span};

/// The least tier of RAM: some pages for each worker.
const LEAST_RAM: u64 = 1 << 20;

/// Budgets and time limits.
#[derive(Args, Debug)]
#[command(next_help_heading = "Budgets and time limits")]
pub struct LimitArgs {
    /// Memory for acknowledged client data that is still to be written to flash
    #[arg(
        long, value_parser = size, default_value = "8MiB", value_name = "SIZE", hide_short_help = true
    )]
    pub write_buffer: u64,
    /// Memory for copies of pages that clients read from flash: 0 for none, or at least 1MiB
    #[arg(long, value_parser = size, default_value = "0", value_name = "SIZE", hide_short_help = true)]
    pub ram: u64,
    /// Memory for checksums of cached pages (--verify): 1KiB for each MiB on flash that is read often
    #[arg(
        long, value_parser = size, default_value = "64MiB", value_name = "SIZE", hide_short_help = true
    )]
    pub verify_memory: u64,
    /// Whether reads admit what they miss: off leaves the cache as it is, except for writes
    #[arg(
        long, value_parser = on_or_off, action = clap::ArgAction::Set, default_value = "on", value_name = "on|off",
        hide_short_help = true
    )]
    pub populate: bool,
    /// Largest read of population, 4KiB to 1MiB; population reads less at a time while clients read
    #[arg(
        long, value_parser = size, default_value = "1MiB", value_name = "SIZE", hide_short_help = true
    )]
    pub populate_io: u64,
    /// Share of the time in which population may use the origin while clients use it
    #[arg(
        long, value_parser = ratio, default_value = "80%", value_name = "SHARE", hide_short_help = true
    )]
    pub populate_share: f64,
    /// Bound on what is written to flash in a day: 300GB/day, or 1DWPD (the size of the device); see the manual
    #[arg(
        long, value_parser = daily_writes, default_value = "any", value_name = "BYTES", hide_short_help = true
    )]
    pub flash_write_budget: DailyWrites,
    /// A request to an NBD origin that takes longer is sent again on another connection
    #[arg(
        long, value_parser = span, default_value = "30s", value_name = "SPAN", hide_short_help = true
    )]
    pub origin_timeout: Nanos,
    /// An operation on an NBD origin that takes longer fails
    #[arg(
        long, value_parser = span, default_value = "60s", value_name = "SPAN", hide_short_help = true
    )]
    pub origin_give_up: Nanos,
    /// With --write-policy ordered: writes wait while the origin lacks older ones; at least 100ms
    #[arg(
        long, value_parser = span, default_value = "30s", value_name = "SPAN", hide_short_help = true
    )]
    pub ordered_lag: Nanos,
    /// Interval at which the journal records the contents of units
    #[arg(
        long, value_parser = span, default_value = "1s", value_name = "SPAN", hide_short_help = true
    )]
    pub checkpoint: Nanos,
    /// After this time a request that waits for flash is answered from the origin
    #[arg(
        long, value_parser = span, default_value = "2s", value_name = "SPAN", hide_short_help = true
    )]
    pub flash_timeout: Nanos,
    /// A flash device with an operation that is unanswered for longer counts as failed
    #[arg(
        long, value_parser = span, default_value = "30s", value_name = "SPAN", hide_short_help = true
    )]
    pub flash_dead_after: Nanos,
    /// Memory of each volume for its last requests (`trace recent`); 0: for neither these nor the miss-ratio curve
    #[arg(
        long, value_parser = size, default_value = "8MiB", value_name = "SIZE", hide_short_help = true
    )]
    pub recorder: u64,
    /// A connection without progress is closed after this time [default: never]
    #[arg(long, value_parser = idle, value_name = "SPAN", hide_short_help = true)]
    pub client_idle: Option<Nanos>,
    /// Flash errors within a minute after which the device counts as failed
    #[arg(
        long,
        alias = "flash-errors",
        default_value_t = 16,
        value_name = "N",
        hide_short_help = true
    )]
    pub flash_errors_per_minute: u32,
}

/// The time of `--client-idle`.
fn idle(text: &str) -> Result<Nanos, String> {
    match span(text)? {
        span @ SECOND.. => Ok(span),
        _ => Err(format!("got '{text}', accepted at least 1s")),
    }
}

/// The size of `--client-memory`.
pub fn client_memory(text: &str) -> Result<u64, String> {
    match size(text)? {
        size @ LEAST_BYTES.. => Ok(size),
        _ => Err(format!("got '{text}', accepted at least {}", format_size(LEAST_BYTES))),
    }
}

/// The time of day, in UTC, at moment 0 of the clock that the volumes read.
fn time_of_day_at_zero() -> Nanos {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let of_day = (now.as_nanos() % u128::from(DAY)) as Nanos;
    (of_day + DAY - larder_io::clock::now() % DAY) % DAY
}

impl LimitArgs {
    /// The limits that the user set.
    pub fn limits(&self) -> Result<Limits> {
        self.change().check().map_err(BadSetting::from)?;
        if self.ram > 0 && self.ram < LEAST_RAM {
            let why = format!("accepted 0, or at least {}", format_size(LEAST_RAM));
            bail!(BadSetting::of("ram", format_size(self.ram), why));
        }
        Ok(Limits {
            write_through_bytes: self.write_buffer,
            ram_bytes: self.ram,
            verify_bytes: self.verify_memory,
            populates: self.populate,
            population_io_bytes: self.populate_io,
            population_share: self.populate_share,
            checkpoint: self.checkpoint.max(1_000_000),
            ordered_lag: self.ordered_lag,
            flash_timeout: self.flash_timeout,
            flash_dead_after: self.flash_dead_after,
            flash_errors: self.flash_errors_per_minute,
            time_of_day: time_of_day_at_zero(),
            ..Limits::default()
        })
    }

    /// The settings that may change while the volume is served, as they are given here.
    pub fn change(&self) -> Change {
        Change {
            populate: Some(self.populate),
            populate_share_ratio: Some(self.populate_share),
            populate_io_bytes: Some(self.populate_io),
            client_idle_ns: Some(self.client_idle.unwrap_or(0)),
            recorder_bytes: Some(self.recorder),
            flash_write_budget: Some(self.flash_write_budget),
            flash_timeout_ns: Some(self.flash_timeout),
            flash_dead_after_ns: Some(self.flash_dead_after),
            flash_errors_per_minute: Some(self.flash_errors_per_minute),
            write_buffer_bytes: Some(self.write_buffer),
            ordered_lag_ns: Some(self.ordered_lag),
            ..Change::default()
        }
    }

    /// What the clients of a volume may take.
    pub fn clients(&self, budget: &Budget) -> ClientLimits {
        let idle = self.client_idle.map(Duration::from_nanos);
        ClientLimits { idle, budget: budget.clone(), ..ClientLimits::default() }
    }

    /// The time limits of an NBD origin's server.
    pub fn remote(&self) -> Result<ServerBounds> {
        if self.origin_timeout == 0 || self.origin_give_up < self.origin_timeout {
            let why = "accepted above 0 and at most --origin-give-up";
            bail!(BadSetting::new("origin_timeout", why));
        }
        let span = Duration::from_nanos;
        Ok(ServerBounds::new(span(self.origin_timeout), span(self.origin_give_up)))
    }
}
