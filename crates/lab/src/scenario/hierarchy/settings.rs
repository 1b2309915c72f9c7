// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of a `hierarchy`. All have a default: the one shown, or the one in the code below.
//!
//! ```toml
//! kind = "hierarchy"
//! seed = 1
//! scale = "1/16"           # of RAM, flash, working set, server, and periods
//!
//! [cache]
//! architecture = "naive"   # or "lookaside", "unified"
//! ram_mib = 8192
//! flash_gib = 64
//! ram_policy = "1s"        # or "sync", "async", "none", another period
//! flash_policy = "async"
//!
//! [load]
//! working_set_gib = 60
//! write_share = 0.3
//! ```
//!
//! Why periods shrink too: a run over a part of the data takes that part of the time, and a second's
//! writes must stay as small beside RAM as they are at full size. At 1/64 the paper's 30 s would be
//! longer than the run.

use std::path::PathBuf;

use larder_core::config::ReplacementChoice;
use larder_model::Holland as Times;
use serde::Deserialize;

use crate::hierarchy::{Answered, Architecture, BLOCK_BYTES, Spec, WriteBack};
use crate::load::holland::HollandSpec;

/// All settings, see the module. Shares are numbers from 0 to 1.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Decides load and filer.
    #[serde(default)]
    seed: u64,
    /// RAM, flash, working set and server are this part of what they say.
    #[serde(default = "full")]
    scale: String,
    #[serde(default)]
    cache: CacheSettings,
    #[serde(default)]
    devices: DeviceSettings,
    #[serde(default)]
    pub(super) load: LoadSettings,
}

fn full() -> String {
    "1".to_owned()
}

/// The caches of a host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CacheSettings {
    architecture: String,
    ram_mib: f64,
    flash_gib: f64,
    ram_policy: Policy,
    flash_policy: Policy,
    /// `cached`: a write is answered as RAM's policy requires; `stable`: when it is below RAM.
    answered: String,
    replacement: String,
    /// Blocks that a cache may have on their way down at once.
    writers: u32,
    /// Metadata is kept with the data: a flash write takes twice as long (Holland 7.8).
    persistent: bool,
    /// Without, the first half of the load is left out and the caches start empty.
    warm: bool,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            architecture: "naive".to_owned(),
            ram_mib: 8192.0,
            flash_gib: 64.0,
            ram_policy: Policy(WriteBack::Periodic(1_000_000_000)),
            flash_policy: Policy(WriteBack::Async),
            answered: "cached".to_owned(),
            replacement: "lru".to_owned(),
            writers: 8,
            persistent: false,
            warm: true,
        }
    }
}

/// What differs from Holland's Table 1.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DeviceSettings {
    flash_read_us: Option<f64>,
    flash_write_us: Option<f64>,
    /// Flash takes so many times as long, reads and writes alike.
    flash_factor: f64,
    /// Flash is as fast as RAM.
    flash_is_ram: bool,
    fast_read_share: f64,
    /// A segment of network carries one packet at a time.
    one_packet_at_a_time: bool,
}

impl Default for DeviceSettings {
    fn default() -> Self {
        Self {
            flash_read_us: None,
            flash_write_us: None,
            flash_factor: 1.0,
            flash_is_ram: false,
            fast_read_share: 0.9,
            one_packet_at_a_time: true,
        }
    }
}

/// What applications ask for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LoadSettings {
    /// A trace instead: its requests, in order, by whichever thread is free.
    pub(super) trace: Option<PathBuf>,
    hosts: u32,
    threads: u32,
    /// Hosts have one working set.
    shared: bool,
    working_set_gib: f64,
    server_gib: f64,
    working_set_share: f64,
    write_share: f64,
    /// Volume of all requests, in working sets; the first half is warm-up.
    volume: f64,
    io_kib: f64,
    region_kib: f64,
    file_kib: f64,
    file_spread: f64,
    popularity_most: u32,
    popularity_exponent: f64,
}

impl Default for LoadSettings {
    fn default() -> Self {
        Self {
            trace: None,
            hosts: 1,
            threads: 8,
            shared: true,
            working_set_gib: 60.0,
            server_gib: 1400.0,
            working_set_share: 0.8,
            write_share: 0.3,
            volume: 4.0,
            io_kib: 16.0,
            region_kib: 1024.0,
            file_kib: 1024.0,
            file_spread: 1.0,
            popularity_most: 1,
            popularity_exponent: 1.0,
        }
    }
}

/// A policy of writing back.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Policy(WriteBack);

impl Policy {
    /// A period shrinks with the caches.
    fn scaled(self, part: f64) -> WriteBack {
        match self.0 {
            WriteBack::Periodic(ns) => WriteBack::Periodic(((ns as f64 * part) as u64).max(1)),
            other => other,
        }
    }
}

impl TryFrom<String> for Policy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Ok(Self(match text.as_str() {
            "sync" => WriteBack::Sync,
            "async" => WriteBack::Async,
            "none" => WriteBack::None,
            _ => match text.strip_suffix('s').and_then(|n| n.parse::<u64>().ok()) {
                Some(seconds @ 1..=3600) => WriteBack::Periodic(seconds * 1_000_000_000),
                _ => {
                    return Err(format!(
                        "'{text}' is no policy; accepted: sync, async, none, or a period from 1s to \
                         3600s"
                    ));
                }
            },
        }))
    }
}

fn named<T: Copy>(key: &str, text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    let names = || known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("{key} '{text}' is not known; accepted: {}", names()))
}

fn share(key: &str, value: f64) -> Result<f64, String> {
    if (0.0..=1.0).contains(&value) {
        return Ok(value);
    }
    Err(format!("{key} {value} is no share; accepted: 0 to 1"))
}

const MIB: f64 = (1 << 20) as f64;
const GIB: f64 = (1 << 30) as f64;
/// The most blocks of a cache or a server.
const MOST_BLOCKS: u64 = 1 << 31;

impl Settings {
    /// Whether they can be run.
    ///
    /// # Errors
    /// What is wrong, and what would be accepted.
    pub fn lawful(&self) -> Result<(), String> {
        self.spec().map(|_| ())
    }

    /// What part of full size.
    fn part(&self) -> Result<f64, String> {
        let text = self.scale.trim();
        let (above, below) = text.split_once('/').unwrap_or((text, "1"));
        match (above.parse::<f64>(), below.parse::<f64>()) {
            (Ok(above), Ok(below)) if above > 0.0 && above <= below && below <= 65_536.0 => {
                Ok(above / below)
            }
            _ => Err(format!("scale '{text}' cannot be; accepted: 1, or a part of it as 1/16")),
        }
    }

    fn blocks(&self, key: &str, bytes: f64, part: f64) -> Result<u32, String> {
        let blocks = bytes * part / BLOCK_BYTES as f64;
        if (0.0..=MOST_BLOCKS as f64).contains(&blocks) {
            return Ok(blocks as u32);
        }
        Err(format!("{key} cannot be; accepted: 0 to 8192 GiB"))
    }

    fn times(&self) -> Result<Times, String> {
        let d = &self.devices;
        let mut times = Times::table_1();
        times.fast_read_ratio = share("devices.fast_read_share", d.fast_read_share)?;
        for (key, us, ns) in [
            ("flash_read_us", d.flash_read_us, &mut times.flash_read_ns),
            ("flash_write_us", d.flash_write_us, &mut times.flash_write_ns),
        ] {
            match us {
                Some(us) if (0.0..=1e6).contains(&us) => *ns = (us * 1e3) as u64,
                Some(us) => return Err(format!("devices.{key} {us}; accepted: 0 to 1000000")),
                None => {}
            }
        }
        if !(0.0..=1e3).contains(&d.flash_factor) {
            return Err(format!("devices.flash_factor {}; accepted: 0 to 1000", d.flash_factor));
        }
        for ns in [&mut times.flash_read_ns, &mut times.flash_write_ns] {
            *ns = (*ns as f64 * d.flash_factor) as u64;
        }
        if d.flash_is_ram {
            (times.flash_read_ns, times.flash_write_ns) =
                (times.ram_ns_per_block, times.ram_ns_per_block);
        }
        times.flash_write_ns *= if self.cache.persistent { 2 } else { 1 };
        Ok(times)
    }

    /// Whether the load can be made.
    fn within_bounds(&self, load: &HollandSpec) -> Result<(), String> {
        let (c, l) = (&self.cache, &self.load);
        if load.working_set_blocks > load.server_blocks {
            return Err("load.working_set_gib is larger than load.server_gib".to_owned());
        }
        if !(1..=64).contains(&l.hosts) || !(1..=1024).contains(&l.threads) {
            return Err("load.hosts, load.threads: accepted: 1 to 64, 1 to 1024".to_owned());
        }
        let sizes = [load.io_blocks, load.region_blocks];
        if sizes.iter().any(|s| !(1.0..=1e6).contains(s)) || !(0.0..=5.0).contains(&l.file_spread) {
            return Err(
                "load.io_kib, load.region_kib: accepted: 4 to 4000000; load.file_spread: 0 to 5"
                    .to_owned(),
            );
        }
        if !(1.0..=4e6).contains(&l.file_kib) || !(1..=1_000_000).contains(&l.popularity_most) {
            return Err(
                "load.file_kib, load.popularity_most: accepted: 1 to 4000000, 1 to 1000000"
                    .to_owned(),
            );
        }
        if !(0.0..=10.0).contains(&l.popularity_exponent) || c.writers == 0 {
            return Err(
                "load.popularity_exponent, cache.writers: accepted: 0 to 10, at least 1".to_owned()
            );
        }
        Ok(())
    }

    /// What they describe: the caches, and the load if it is no trace.
    pub(super) fn spec(&self) -> Result<(Spec, HollandSpec), String> {
        let (c, l, part) = (&self.cache, &self.load, self.part()?);
        let load = HollandSpec {
            server_blocks: self.blocks("load.server_gib", l.server_gib * GIB, part)?.max(1),
            working_set_blocks: self
                .blocks("load.working_set_gib", l.working_set_gib * GIB, part)?
                .max(1),
            working_set_share: share("load.working_set_share", l.working_set_share)?,
            write_share: share("load.write_share", l.write_share)?,
            hosts: l.hosts,
            threads: l.threads,
            shared: l.shared,
            volume_blocks: self.volume(part)?,
            io_blocks: l.io_kib * 1024.0 / BLOCK_BYTES as f64,
            region_blocks: l.region_kib * 1024.0 / BLOCK_BYTES as f64,
            file_blocks: (l.file_kib * 1024.0 / BLOCK_BYTES as f64).max(1.0),
            file_spread: l.file_spread,
            popularity_most: l.popularity_most,
            popularity_exponent: l.popularity_exponent,
            seed: self.seed,
        };
        self.within_bounds(&load)?;
        let architectures = [
            ("naive", Architecture::Naive),
            ("lookaside", Architecture::Lookaside),
            ("unified", Architecture::Unified),
        ];
        let answered = [("cached", Answered::Cached), ("stable", Answered::Stable)];
        let spec = Spec {
            architecture: named("cache.architecture", &c.architecture, &architectures)?,
            ram_policy: c.ram_policy.scaled(part),
            flash_policy: c.flash_policy.scaled(part),
            answered: named("cache.answered", &c.answered, &answered)?,
            ram_blocks: self.blocks("cache.ram_mib", c.ram_mib * MIB, part)?,
            flash_blocks: self.blocks("cache.flash_gib", c.flash_gib * GIB, part)?,
            replacement: named("cache.replacement", &c.replacement, ReplacementChoice::NAMED)?,
            hosts: l.hosts,
            threads: l.threads,
            writers: c.writers,
            times: self.times()?,
            one_packet_at_a_time: self.devices.one_packet_at_a_time,
            warm_up_blocks: if c.warm && l.trace.is_none() {
                self.whole_volume(part) / 2
            } else {
                0
            },
            seed: self.seed,
        };
        if u64::from(spec.ram_blocks) + u64::from(spec.flash_blocks) > MOST_BLOCKS {
            return Err("cache.ram and cache.flash are too large; accepted: up to 8TiB".to_owned());
        }
        Ok((spec, load))
    }

    fn whole_volume(&self, part: f64) -> u64 {
        let bytes = self.load.working_set_gib * GIB * part * self.load.volume;
        bytes as u64 / BLOCK_BYTES
    }

    /// Blocks of all requests; cold caches see the second half alone.
    fn volume(&self, part: f64) -> Result<u64, String> {
        if !(1e-6..=1e6).contains(&self.load.volume) {
            return Err("load.volume: accepted: above 0, in working sets".to_owned());
        }
        let all = self.whole_volume(part);
        Ok(if self.cache.warm { all } else { all - all / 2 })
    }
}
