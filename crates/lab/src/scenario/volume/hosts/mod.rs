// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hosts with a cache each over one array.
//!
//! Purpose: many caches that warm up together, as after a zone failed and its volumes were attached elsewhere: what clients see
//! meanwhile, those of hosts that are warm too, and what a slower population changes.
//!
//! ```toml
//! [hosts]
//! count = 32            # 1 to 256; each has what the scenario states: data, flash, clients; and a seed of its own
//! late = 8              # of them: their clients begin later, over a cold cache. Default 0
//! late_hour = 4         # in this of the paper's hours; required with late
//! ```
//! The origin is one device with the data of all hosts.
//!
//! Invariants: hosts share the origin and nothing else; all begin with a cold cache. A host's load follows from its number
//! and the seed, whatever the number of hosts.
//!
//! Why not one engine with the caches of all: the pace of population must know its own host alone, as it does on real ones.

mod keys;
mod tally;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use larder_core::volumes::Volumes;
use larder_model::Joint;
use serde_json::Value as Json;

pub use self::keys::HostSettings;
use self::tally::Tally;
use super::super::setting::{bad, in_range};
use super::run::world_over;
use super::settings::{Load, MOST_GIB};
use super::{SAMPLES_PER_HOUR, Settings, Setup, System};
use crate::load::Oltp;
use crate::load::clients::{Clients, Host, Place, run_hosts};

/// The most hosts.
const MOST_HOSTS: u32 = 256;

/// Hosts that share an origin.
pub(super) struct Hosts {
    /// Of one of them, the seed apart.
    setup: Setup,
    count: u32,
    late: u32,
    late_hour: u64,
}

impl Hosts {
    /// What settings with hosts describe; nothing of settings without.
    ///
    /// # Errors
    /// What cannot be, and what would be accepted.
    pub(super) fn of(settings: &Settings) -> Result<Option<Self>, String> {
        let Some(HostSettings { count, late, late_hour }) = settings.hosts else { return Ok(None) };
        let of_volumes = [
            ("volumes", settings.volumes.is_some()),
            ("sharing", settings.sharing.is_some()),
            ("turn_hours", settings.turn_hours.is_some()),
        ];
        if let Some((key, _)) = of_volumes.into_iter().find(|(_, given)| *given) {
            return Err(format!("hosts and {key} exclude each other; accepted: one of them"));
        }
        if !matches!(settings.load()?, Load::Clients(_)) {
            return bad("load", "passes or trace", "oltp, scattered, with hosts");
        }
        let setup = settings.setup()?;
        if setup.system == System::AllFlash {
            return bad("system", "all-flash", "a preset or no-cache, with hosts");
        }
        in_range("hosts.count", count, 1, MOST_HOSTS)?;
        in_range("hosts.late", late, 0, count - 1)?;
        let hours = setup.span / (SAMPLES_PER_HOUR * setup.sample);
        if (late > 0) != late_hour.is_some() {
            return bad("hosts.late", late, "with late_hour, and neither without the other");
        }
        let late_hour =
            late_hour.map_or(Ok(0), |hour| in_range("hosts.late_hour", hour, 0, hours - 1))?;
        let most_bytes = (MOST_GIB * settings.mib_per_gib()?) << 20;
        if setup.data_bytes * u64::from(count) > most_bytes {
            return Err(format!("the hosts have too much data; accepted: {MOST_GIB} GiB in all"));
        }
        Ok(Some(Self { setup, count, late, late_hour }))
    }

    /// The hosts, whose clients rest.
    fn cold(&self) -> Result<Vec<Host>> {
        let bytes = self.setup.data_bytes * u64::from(self.count);
        let array = self.setup.origin.model(bytes, self.setup.seed);
        let parts = Joint::parts(array, self.count, self.setup.data_bytes);
        (0..).zip(parts).map(|(number, part)| self.host(number, part)).collect()
    }

    fn host(&self, number: u64, part: Joint) -> Result<Host> {
        let seed = self.setup.seed.wrapping_add(number << 32);
        let setup = Setup { seed, ..self.setup.clone() };
        let world = world_over(Box::new(part), &setup, &Volumes::one(setup.data_bytes))
            .with_context(|| format!("host {number}"))?;
        let bytes = (setup.data_bytes, setup.active_bytes);
        let load = Oltp::image(setup.pattern, bytes, setup.page_bytes, seed);
        Ok(Host { world, clients: Clients::resting(setup.plan, load, Place::default()) })
    }

    /// Whether the clients of a host begin later.
    fn is_late(&self, number: usize) -> bool {
        number >= (self.count - self.late) as usize
    }
}

/// Runs a point.
///
/// # Errors
/// If the choices contradict each other.
pub(super) fn point(of: &Hosts) -> Result<Json> {
    let mut hosts = of.cold()?;
    let sample = of.setup.sample;
    let mut groups = [Tally::default(), Tally::default()];
    let first_hour = |late: bool| if late { of.late_hour } else { 0 };
    for number in 0..of.setup.span / sample {
        let (hour, hour_begins) = (number / SAMPLES_PER_HOUR, number % SAMPLES_PER_HOUR == 0);
        for (index, host) in hosts.iter_mut().enumerate() {
            if hour_begins && hour == first_hour(of.is_late(index)) {
                host.clients.wake(number * sample);
            }
        }
        for (late, group) in [false, true].into_iter().zip(&mut groups) {
            if hour >= first_hour(late) {
                group.sample(hour_begins);
            }
        }
        run_hosts(&mut hosts, (number + 1) * sample, |host, seen| {
            groups[usize::from(of.is_late(host))].add(seen);
        });
    }
    let worlds: Vec<_> = hosts.iter().map(|host| &host.world).collect();
    let [early, late] = groups;
    Ok(tally::json((&of.setup, of.count), &early, (of.late > 0).then_some(&late), &worlds))
}
