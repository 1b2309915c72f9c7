// SPDX-License-Identifier: MIT OR Apache-2.0
//! A desktop as a scenario: its settings, and what a run gives.
//!
//! ```toml
//! kind = "desktop"
//! seed = 1
//! scale = "1/4"         # of the paper's sizes, and so of its days; requests and units stay
//! system = "prwc"       # a preset, or "no-cache"
//! reset = "never"       # or "daily": flash is empty again every midnight, as after a power failure
//! user = "U5"
//! visit = 16            # requests of a visit, at most
//! flash_gb = 32         # the paper's GB
//! unit_kib = 1024       # 0: the preset's
//! days = 10
//! backup_day = 0        # the day of a backup, from 1 on; 0: none
//! update_hours = 24
//! writes = "back"       # with sync_seconds and dirty_share: see `scenario/writes.rs`; without, what the system chooses
//! origin = "hdd-7200"
//! disk_cache = true     # false: hdd-7200 without its write cache
//! flash = "ssd-840pro"
//! ```
//! All but `system` and `user` have a default, which is the one shown where no other is named.
//!
//! The point's JSON: `days`, one object a day, and `total`: each with `read`, `write` and `all`
//! ([`Part`]: requests, hit ratio, bytes, bytes a second of its own time, latencies) and what the
//! engine did for them. `rest` is the second half of the eighth day, or of the day of the backup,
//! which is `backup`.

use larder_core::config::{PRESETS, UNIT_BYTES_MOST};
use larder_core::stats::Counters;
use larder_model::profiles;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::setting::bad;
use super::super::writes::WriteSettings;
use super::{Day, FLASH_PROFILE, HOURS, ORIGIN_PROFILE, Outcome, Setup, run};
use crate::latencies::Latencies;
use crate::load::desktop::{DAYS, FLASH_GB, RUN, SEGMENT_BYTES, Scale, USERS};
use crate::load::replay::{Part, Replayed};
use crate::scenario::volume::System;

/// The smallest unit that no request of the load spans.
const UNIT_BYTES_LEAST: u64 = 64 << 10;
/// Segments that stand for a GB at full size.
const FULL: u64 = 1024;
/// What full size may be divided by.
const SMALLEST: u64 = 256;

/// Settings of a point, see the module.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    #[serde(default = "one")]
    seed: u64,
    #[serde(default = "quarter")]
    scale: String,
    system: String,
    #[serde(default)]
    reset: Reset,
    user: String,
    #[serde(default = "visit")]
    visit: u64,
    #[serde(default = "flash_gb")]
    flash_gb: u64,
    #[serde(default)]
    unit_kib: u64,
    #[serde(default = "days")]
    days: u32,
    #[serde(default)]
    backup_day: u32,
    #[serde(default = "hours")]
    update_hours: u32,
    writes: Option<String>,
    sync_seconds: Option<i64>,
    dirty_share: Option<f64>,
    #[serde(default = "origin")]
    origin: String,
    #[serde(default = "yes")]
    disk_cache: bool,
    #[serde(default = "flash")]
    flash: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reset {
    #[default]
    Never,
    Daily,
}

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
}

fn quarter() -> String {
    "1/4".to_owned()
}

fn visit() -> u64 {
    RUN
}

fn flash_gb() -> u64 {
    FLASH_GB
}

fn days() -> u32 {
    DAYS
}

fn hours() -> u32 {
    HOURS
}

fn origin() -> String {
    ORIGIN_PROFILE.to_owned()
}

fn flash() -> String {
    FLASH_PROFILE.to_owned()
}

impl Settings {
    /// The run that they describe.
    ///
    /// # Errors
    /// What cannot be, and what would be accepted.
    pub fn setup(&self) -> Result<Setup, String> {
        let (system, user) = (self.system()?, self.user()?);
        self.in_range()?;
        let setup = Setup {
            system,
            resets: self.reset == Reset::Daily,
            user,
            visit: self.visit,
            scale: self.scale()?,
            flash_gb: self.flash_gb,
            unit_bytes: self.unit()?,
            days: self.days,
            backup: self.backup_day.checked_sub(1),
            update_hours: self.update_hours,
            writes: WriteSettings {
                writes: self.writes.clone(),
                durability: None,
                sync_seconds: self.sync_seconds,
                dirty_share: self.dirty_share,
            },
            origin: self.profile("origin", &self.origin)?,
            disk_cache: self.disk_cache,
            flash: self.profile("flash", &self.flash)?,
            seed: self.seed,
        };
        setup.choices().map_err(|e| e.to_string())?;
        if setup.resets && !setup.is_volatile().map_err(|e| e.to_string())? {
            return bad("reset", "daily", "a system whose content a power failure takes, as slru");
        }
        Ok(setup)
    }

    fn system(&self) -> Result<System, String> {
        if self.system == System::NoCache.name() {
            return Ok(System::NoCache);
        }
        if let Some(found) = PRESETS.iter().find(|preset| preset.name == self.system) {
            return Ok(System::Preset(found.name));
        }
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        bad("system", &self.system, format!("{}, {}", names.join(", "), System::NoCache.name()))
    }

    fn user(&self) -> Result<crate::load::desktop::User, String> {
        let found = USERS.iter().find(|user| self.user == format!("U{}", user.number));
        found.copied().map_or_else(|| bad("user", &self.user, "U1 to U5"), Ok)
    }

    fn scale(&self) -> Result<Scale, String> {
        let text = self.scale.trim();
        let divisor = if text == "1" { Some("1") } else { text.strip_prefix("1/") };
        let divisor = divisor.and_then(|n| n.parse::<u64>().ok());
        match divisor.filter(|n| n.is_power_of_two() && *n <= SMALLEST) {
            Some(n) => Ok(Scale { segments_per_gb: FULL / n }),
            None => bad("scale", &self.scale, "1, 1/2, 1/4, and so on to 1/256"),
        }
    }

    fn unit(&self) -> Result<Option<u64>, String> {
        let bytes = self.unit_kib.saturating_mul(1024);
        let range = UNIT_BYTES_LEAST..=UNIT_BYTES_MOST.min(SEGMENT_BYTES);
        match self.unit_kib {
            0 => Ok(None),
            _ if bytes.is_power_of_two() && range.contains(&bytes) => Ok(Some(bytes)),
            kib => bad("unit_kib", kib, "a power of two from 64 to 1024, 0 for the preset's"),
        }
    }

    fn in_range(&self) -> Result<(), String> {
        if !(1..=DAYS).contains(&self.days) {
            return bad("days", self.days, format!("1 to {DAYS}"));
        }
        if !(1..=RUN).contains(&self.visit) {
            return bad("visit", self.visit, format!("1 to {RUN}"));
        }
        if self.backup_day > self.days {
            return bad("backup_day", self.backup_day, format!("0 to {}", self.days));
        }
        if !(1..=HOURS).contains(&self.update_hours) {
            return bad("update_hours", self.update_hours, format!("1 to {HOURS}"));
        }
        if !(1..=1024).contains(&self.flash_gb) {
            return bad("flash_gb", self.flash_gb, "1 to 1024");
        }
        if !self.disk_cache && self.origin != ORIGIN_PROFILE {
            return bad("disk_cache", false, format!("true, or origin = '{ORIGIN_PROFILE}'"));
        }
        Ok(())
    }

    fn profile(&self, key: &str, name: &str) -> Result<String, String> {
        if profiles().iter().any(|profile| profile.name == name) {
            return Ok(name.to_owned());
        }
        let names: Vec<&str> = profiles().iter().map(|profile| profile.name).collect();
        bad(key, name, names.join(", "))
    }
}

/// Whether these settings could be run.
///
/// # Errors
/// What cannot be, and what would be accepted.
pub fn look(settings: &Settings) -> Result<(), String> {
    settings.setup().map(drop)
}

/// Runs a point.
///
/// # Errors
/// If the settings are bad, or a request fails.
pub fn point(settings: &Settings) -> anyhow::Result<Json> {
    let setup = settings.setup().map_err(anyhow::Error::msg)?;
    Ok(report(&run(&setup)?))
}

fn report(outcome: &Outcome) -> Json {
    let (mut reads, mut writes, mut before) = (Latencies::new(), Latencies::new(), None);
    let mut days = Vec::new();
    for day in &outcome.days {
        reads += &day.reads;
        writes += &day.writes;
        days.push(span(day, before.replace(day.counters).unwrap_or_default()));
    }
    let replayed = Outcome::sum(&outcome.days);
    let total = Day { replayed, reads, writes, counters: outcome.counters() };
    json!({
        "days": days,
        "total": span(&total, Counters::default()),
        "rest": replayed_json(&outcome.rest),
        "backup": replayed_json(&outcome.backup),
    })
}

/// A day, or all: what clients saw, and what the engine did since `before`.
fn span(day: &Day, before: Counters) -> Json {
    let mut all = day.reads.clone();
    all += &day.writes;
    let now = day.counters;
    json!({
        "read": part(day.replayed.reads, Some(&day.reads)),
        "write": part(day.replayed.writes, Some(&day.writes)),
        "all": part(day.replayed.all(), Some(&all)),
        "updates": now.updates - before.updates,
        "flash_read_bytes": now.flash_read_bytes - before.flash_read_bytes,
        "flash_write_bytes": now.flash_write_bytes - before.flash_write_bytes,
        "origin_read_bytes": now.origin_read_bytes - before.origin_read_bytes,
        "origin_write_bytes": now.origin_write_bytes - before.origin_write_bytes,
        "population_bytes": now.population_bytes - before.population_bytes,
        "write_back_bytes": now.write_back_bytes - before.write_back_bytes,
    })
}

fn replayed_json(replayed: &Replayed) -> Json {
    json!({
        "read": part(replayed.reads, None),
        "write": part(replayed.writes, None),
        "all": part(replayed.all(), None),
    })
}

fn part(part: Part, latencies: Option<&Latencies>) -> Json {
    let mut found = json!({
        "requests": part.requests,
        "hit_ratio": part.hit_ratio(),
        "bytes": part.bytes,
        "seconds": part.took as f64 / 1e9,
        "bytes_per_second": part.bandwidth(),
        "mean_us": part.took as f64 / 1e3 / part.requests.max(1) as f64,
    });
    if let Some(latencies) = latencies {
        found["p50_us"] = latencies.quantile_us(0.5).into();
        found["p95_us"] = latencies.quantile_us(0.95).into();
        found["p99_us"] = latencies.quantile_us(0.99).into();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn settings(text: &str) -> Settings {
        toml::from_str(&format!("scale = \"1/256\"\ndays = 3\n{text}")).unwrap()
    }

    #[test]
    fn equal_settings_give_equal_bytes_and_another_seed_others() {
        for system in ["prwc", "proc", "slru", "sce", "no-cache"] {
            let run = |seed| {
                let text = format!("system = '{system}'\nuser = 'U3'\nseed = {seed}");
                point(&settings(&text)).unwrap().to_string()
            };
            assert_eq!(run(1), run(1), "{system}");
            assert_ne!(run(1), run(2), "{system}");
        }
    }

    #[test]
    fn updates_come_at_midnight_and_a_reset_empties_flash() {
        let run = |text: &str| point(&settings(text)).unwrap();
        let number =
            |found: &Json, pointer: &str| found.pointer(pointer).unwrap().as_f64().unwrap();
        let prwc = run("system = 'prwc'\nuser = 'U5'\nbackup_day = 2");
        assert_eq!(number(&prwc, "/days/0/all/hit_ratio"), 0.0);
        assert_eq!(number(&prwc, "/days/1/updates"), 1.0);
        assert!(number(&prwc, "/days/2/write/hit_ratio") > 0.1);
        assert!(number(&prwc, "/backup/write/bytes") > 0.0);
        let hits = |reset: &str| {
            let text = format!("system = 'slru'\nuser = 'U5'\nreset = '{reset}'");
            number(&run(&text), "/days/2/read/hit_ratio")
        };
        assert!(hits("daily") < hits("never"));
    }

    #[test]
    fn dirty_pages_are_written_back_after_their_period_or_never() {
        let run =
            |text: &str| point(&settings(&format!("system = 'flashcache'\nuser = 'U1'\n{text}")));
        let number =
            |found: &Json, pointer: &str| found.pointer(pointer).unwrap().as_u64().unwrap();
        let copied = |text: &str| number(&run(text).unwrap(), "/total/write_back_bytes");
        assert_eq!(copied("writes = 'through'"), 0);
        let never = "writes = 'back'\nsync_seconds = -1\ndirty_share = 1.0\nflash_gb = 1024";
        assert_eq!(copied(never), 0);
        let back = run("writes = 'back'\nsync_seconds = 1").unwrap();
        let copied = number(&back, "/total/write_back_bytes");
        assert!(copied > 0 && copied <= number(&back, "/total/write/bytes"), "{back}");
    }

    #[test]
    fn all_days_are_the_sum_of_each() {
        let found = point(&settings("system = 'proc'\nuser = 'U1'")).unwrap();
        let days = found["days"].as_array().unwrap();
        assert_eq!(days.len(), 3);
        for what in ["/all/bytes", "/read/requests", "/flash_write_bytes", "/origin_read_bytes"] {
            let of = |value: &Json| value.pointer(what).unwrap().as_u64().unwrap();
            assert_eq!(days.iter().map(of).sum::<u64>(), of(&found["total"]), "{what}");
        }
        let total = &found["total"]["all"];
        assert!(total["p50_us"].as_f64() <= total["p99_us"].as_f64());
    }

    #[test]
    fn a_bad_setting_is_told_in_one_line() {
        for (text, said) in [
            ("system = 'lru'", "system = 'lru' cannot be; accepted: sce, larder, prwc"),
            ("user = 'U6'", "user = 'U6' cannot be; accepted: U1 to U5"),
            ("scale = '4'", "scale = '4' cannot be; accepted: 1, 1/2"),
            ("scale = '1/512'", "scale = '1/512' cannot be"),
            ("reset = 'daily'", "reset = 'daily' cannot be; accepted: a system whose content"),
            ("unit_kib = 100", "unit_kib = '100' cannot be; accepted: a power of two"),
            ("days = 11", "days = '11' cannot be; accepted: 1 to 10"),
            ("visit = 17", "visit = '17' cannot be; accepted: 1 to 16"),
            ("backup_day = 11", "backup_day = '11' cannot be; accepted: 0 to 10"),
            ("update_hours = 0", "update_hours = '0' cannot be; accepted: 1 to 24"),
            ("origin = 'tape'", "origin = 'tape' cannot be; accepted: hdd-7200"),
            ("flash_gb = 0", "flash_gb = '0' cannot be"),
            ("disk_cache = false\norigin = 'cloud'", "disk_cache = 'false' cannot be"),
            ("writes = 'up'", "writes = 'up' cannot be; accepted: async, through, around, back"),
            ("system = 'slru'\nwrites = 'back'", "accepted: write-back with periodic admission"),
            ("system = 'slru'\nsync_seconds = 1", "sync_seconds is for systems that write back"),
            ("reset = 'daily'\nsystem = 'bcache'\nwrites = 'back'", "reset = 'daily' cannot be"),
            ("speed = 3", "unknown field `speed`"),
        ] {
            let mut table: toml::Table =
                "kind = 'desktop'\nsystem = 'prwc'\nuser = 'U1'".parse().unwrap();
            table.extend(text.parse::<toml::Table>().unwrap());
            let bad = Scenario::parse("file", &table.to_string()).unwrap().points().unwrap_err();
            let bad = bad.to_string();
            assert!(bad.contains(said) && !bad.contains('\n'), "{bad}");
        }
    }
}
