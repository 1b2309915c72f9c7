// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that may change while a cache serves.
//!
//! Why not every setting: the unit, most of the preset's choices and the sizes decide what lies on flash, or what its writes promise; a
//! journal counts time in checkpoints; `drain` and the memory of clients belong to the process.

use std::fmt::Display;
use std::ops::RangeInclusive;

use larder_core::config::{Choices, Eviction, Limits, ReplacementChoice, WritePolicy};
use larder_core::exec::{MILLISECOND, Nanos, SECOND};
use larder_io::{format_size, format_span};
use serde::{Deserialize, Serialize};

use super::by_name::ByName;
use super::config::{CacheConfig, RECORDER_BYTES};
use super::daily_writes::DailyWrites;
use super::error::{BadValue, VolumeError};

/// Declares the settings, and a change of them.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// The settings.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
        pub struct Settings {
            $($(#[$doc])* pub $name: $type,)*
        }

        /// A change: what is `None` remains.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Change {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<$type>,)*
        }

        impl Settings {
            /// With a change.
            pub(crate) fn changed(self, change: &Change) -> Self {
                Self { $($name: change.$name.unwrap_or(self.$name),)* }
            }
        }
    };
}

settings! {
    /// Whether reads admit what they miss, at once or in the background.
    populate: bool,
    /// The share of the time in which population may use the origin while clients use it.
    populate_share_ratio: f64,
    /// The largest read of population.
    populate_io_bytes: u64,
    /// How long a connection may be idle; 0: for ever.
    client_idle_ns: u64,
    /// Memory of each volume for its last requests; 0: neither these nor a miss-ratio curve.
    recorder_bytes: u64,
    /// How much is written to flash in a day.
    flash_write_budget: DailyWrites,
    /// After this time a request that waits for flash is answered from the origin.
    flash_timeout_ns: u64,
    /// A flash device with an operation that is unanswered for longer counts as failed.
    flash_dead_after_ns: u64,
    /// Flash errors within a minute after which the device counts as failed.
    flash_errors_per_minute: u32,
    /// Memory for acknowledged client data that is still to be written to flash.
    write_buffer_bytes: u64,
    /// With the write policy `ordered`: how long a change may wait for the origin while others are accepted.
    ordered_lag_ns: u64,
    /// When a write is copied to flash; none if this cannot change, since flash may hold dirty data or has a page log.
    write_policy: Option<ByName<WritePolicy>>,
    /// What is evicted; none if this cannot change, since no policy with a name decides it.
    replacement: Option<ByName<ReplacementChoice>>,
}

/// The time limits of an idle connection.
const IDLE: RangeInclusive<u64> = 1_000_000_000..=1_000_000_000_000_000_000;
/// The largest memory of a volume for its last requests.
const MOST_RECORDER_BYTES: u64 = 1 << 30;
/// The largest memory for data that is still to be written to flash.
const MOST_BUFFER_BYTES: u64 = 1 << 40;
/// The least time that changes may wait for the origin, under the write policy `ordered`.
const LEAST_LAG: Nanos = 100 * MILLISECOND;
/// The longest time limit: 31 years.
const LONGEST: Nanos = 1_000_000_000 * SECOND - 1;

impl Default for Settings {
    fn default() -> Self {
        Self::of_limits(&Limits::default())
    }
}

impl Settings {
    /// Those of a configuration.
    pub(crate) fn of(config: &CacheConfig) -> Self {
        Self {
            client_idle_ns: config.clients.idle.map_or(0, |span| span.as_nanos() as u64),
            recorder_bytes: config.recorder_bytes,
            flash_write_budget: config.flash_write_budget,
            write_policy: write_policy(&config.choices),
            replacement: replacement(&config.choices),
            ..Self::of_limits(&config.limits)
        }
    }

    fn of_limits(limits: &Limits) -> Self {
        Self {
            populate: limits.populates,
            populate_share_ratio: limits.population_share,
            populate_io_bytes: limits.population_io_bytes,
            client_idle_ns: 0,
            recorder_bytes: RECORDER_BYTES,
            flash_write_budget: DailyWrites::Any,
            flash_timeout_ns: limits.flash_timeout,
            flash_dead_after_ns: limits.flash_dead_after,
            flash_errors_per_minute: limits.flash_errors,
            write_buffer_bytes: limits.write_through_bytes,
            ordered_lag_ns: limits.ordered_lag,
            write_policy: None,
            replacement: None,
        }
    }

    /// Checks each value.
    pub(crate) fn check(&self) -> Result<(), BadValue> {
        let (size, span) = (format_size, format_span);
        let (timeout, dead_after) = (self.flash_timeout_ns, self.flash_dead_after_ns);
        let (share, idle) = (self.populate_share_ratio, self.client_idle_ns);
        need("populate_share", (0.0..=1.0).contains(&share), share, "0% to 100%")?;
        let io = self.populate_io_bytes;
        let accepted = "a multiple of 4KiB up to 1MiB";
        need("populate_io", Limits::is_population_io(io), size(io), accepted)?;
        let accepted = "0 (never), or 1s to 31 years";
        need("client_idle", idle == 0 || IDLE.contains(&idle), span(idle), accepted)?;
        at_most("recorder", self.recorder_bytes, MOST_RECORDER_BYTES)?;
        at_most("write_buffer", self.write_buffer_bytes, MOST_BUFFER_BYTES)?;
        let (budget, accepted) =
            (self.flash_write_budget, "any, 1MB/day to 1EiB/day, or 0.001DWPD to 1000DWPD");
        need("flash_write_budget", budget.is_accepted(), format_args!("{budget:?}"), accepted)?;
        need("flash_dead_after", dead_after <= LONGEST, span(dead_after), "up to 31 years")?;
        let accepted = format!("above 0 and at most flash_dead_after, {}", span(dead_after));
        need("flash_timeout", (1..=dead_after).contains(&timeout), span(timeout), accepted)?;
        let errors = self.flash_errors_per_minute;
        need("flash_errors_per_minute", errors > 0, errors, "at least 1")?;
        let lag = self.ordered_lag_ns;
        let accepted = "100ms to 31 years";
        need("ordered_lag", (LEAST_LAG..=LONGEST).contains(&lag), span(lag), accepted)
    }

    /// `limits` with these settings, for a flash device of so many bytes.
    pub(crate) fn limits(&self, limits: &Limits, device_bytes: Option<u64>) -> Limits {
        Limits {
            populates: self.populate,
            population_share: self.populate_share_ratio,
            population_io_bytes: self.populate_io_bytes,
            flash_write_budget: self.flash_write_budget.bytes(device_bytes),
            flash_timeout: self.flash_timeout_ns,
            flash_dead_after: self.flash_dead_after_ns,
            flash_errors: self.flash_errors_per_minute,
            write_through_bytes: self.write_buffer_bytes,
            ordered_lag: self.ordered_lag_ns,
            ..*limits
        }
    }

    /// `choices` with these settings. A policy that `choices` have keeps its own settings.
    pub(crate) fn choices(&self, choices: &Choices) -> Result<Choices, VolumeError> {
        let wrong = |why: String| Err(VolumeError::Usage(why));
        let mut choices = choices.clone();
        match (self.write_policy, write_policy(&choices)) {
            (Some(new), Some(_)) => choices.write = new.0,
            (Some(new), None) if new.name() == choices.write.name() => {}
            (Some(new), None) => {
                return wrong(format!(
                    "write_policy: got {}, accepted while serving: {}; others need a restart",
                    new.name(),
                    choices.write.name()
                ));
            }
            (None, _) => {}
        }
        match (self.replacement, replacement(&choices)) {
            (Some(new), Some(old)) if new != old => {
                choices = choices
                    .with_replacement(new.0)
                    .or_else(|why| wrong(format!("replacement: got {}, but {why}", new.name())))?;
            }
            (Some(new), None) => {
                return wrong(format!(
                    "replacement: got {}, accepted while serving: none with this preset",
                    new.name()
                ));
            }
            _ => {}
        }
        Ok(choices)
    }

    /// Memory of each of so many workers for the last requests of a volume.
    pub(crate) fn ring_bytes(&self, workers: u32) -> u64 {
        self.recorder_bytes / u64::from(workers)
    }
}

/// Accepts a value, or states what is accepted.
fn need(
    key: &'static str,
    accepts: bool,
    got: impl Display,
    accepted: impl Into<String>,
) -> Result<(), BadValue> {
    let bad = || BadValue { key, got: got.to_string(), accepted: accepted.into() };
    if accepts { Ok(()) } else { Err(bad()) }
}

/// Accepts a number of bytes up to a most.
fn at_most(key: &'static str, bytes: u64, most: u64) -> Result<(), BadValue> {
    need(key, bytes <= most, format_size(bytes), format!("up to {}", format_size(most)))
}

/// The write policy, if it may change.
fn write_policy(choices: &Choices) -> Option<ByName<WritePolicy>> {
    let may = WritePolicy::COPIES.iter().any(|(_, policy)| *policy == choices.write);
    may.then_some(ByName(choices.write))
}

/// The replacement policy, if it may change.
fn replacement(choices: &Choices) -> Option<ByName<ReplacementChoice>> {
    match choices.eviction {
        Eviction::Replacement(policy) => policy.name().map(|_| ByName(policy)),
        Eviction::Update | Eviction::LogOrder { .. } => None,
    }
}

impl Change {
    /// Checks the values, those that remain being the defaults.
    ///
    /// # Errors
    /// With the first one that is not accepted.
    pub fn check(&self) -> Result<(), BadValue> {
        Settings::default().changed(self).check()
    }

    /// The choices of a configuration that a cache with these settings may take. Settings of a replacement policy are its defaults.
    #[must_use]
    pub fn with_choices(self, choices: &Choices, in_use: &Settings) -> Self {
        let (write_policy, replacement) = (write_policy(choices), replacement(choices));
        let replacement = replacement.and_then(|policy| ByName::parse(policy.name()).ok());
        Self {
            write_policy: in_use.write_policy.and(write_policy).map(Some),
            replacement: in_use.replacement.and(replacement).map(Some),
            ..self
        }
    }
}
