// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder serve`: opens the devices, checks the memory, starts volumes and their front doors, and
//! waits for a signal.
//!
//! Invariants: a start succeeds for all volumes or for none. All checks that need no write (settings, duplicates, places
//! to listen, devices, memory of all volumes, block devices of earlier servers) precede the first write to a flash device.
//! Once they serve, the failure of one volume does not affect the others. The process drops capabilities while it has one
//! thread, and everything else that it does not use before a client connects; a helper and a thread that keep privileges
//! are started before.

pub mod args;
mod capabilities;
mod clash;
pub mod config;
mod doors;
pub mod helper;
mod limits;
mod open;
mod reload;
mod restrict;
mod run;
mod served;
mod signals;
mod system_calls;
mod watchdog;

use std::sync::Arc;

use anyhow::{Context, Result};
use clap::ArgMatches;
use larder_core::buf::keep_by_default;
use larder_front::door::Openers;
use larder_front::fuse::PAYLOAD_BYTES;
use larder_front::listen::ListenSpec;
use larder_front::ublk::Controller;
use larder_io::{Device, rough_size};
use larder_volume::budget::{Budget, DEFAULT_BYTES, PROGRAM_BYTES};
use larder_volume::peer::seats;
use larder_volume::{Cache, CacheConfig, ClientLimits, FlashDevice, VolumeConfig};

use self::args::ServeArgs;
use self::capabilities::{OF_CONTROLLER, OF_SERVER};
use self::config::Plan;
use self::doors::Doors;
use self::helper::Helper;
use self::open::{Checked, Made, Opened};
use self::served::Served;
use self::signals::{Signals, Starting};
use crate::metrics;
use crate::notify::{READY, notify};
use crate::out::{self, tell};

/// Bytes of buffers that a thread keeps for reuse if it is no worker.
const KEPT_BY_OTHERS: usize = 1 << 20;

/// Serves until a signal stops it. `given` is the source of `args`.
pub fn serve(args: ServeArgs, given: &ArgMatches) -> Result<()> {
    let starting = Starting::begin()?;
    let print = args.print_config;
    let plans = config::plans(given, args)?;
    if print {
        return out::line(config::print::print(&plans)?);
    }
    run::abort_on_panic(plans.len() > 1);
    let checked = plans.into_iter().map(Checked::new).collect::<Result<Vec<_>>>()?;
    clash::check(&checked)?;
    let metrics = checked.first().and_then(|c| c.plan.args.metrics.as_deref());
    let metrics = metrics.map(metrics::bind).transpose()?;
    let (helper, ublk) = start_privileged(&checked)?;
    let opened = checked.into_iter().map(Checked::open).collect::<Result<Vec<_>>>()?;
    opened.iter().try_for_each(|o| clash::check_places(&o.checked, &*helper))?;
    let budget = budget(&opened);
    check_memory(&opened, &budget)?;
    let restricted = restrict::restrict(&opened)?;
    let openers = Openers { mounter: Arc::clone(&helper) as _, ublk };
    let started = opened.into_iter().map(|o| start(o, &budget)).collect::<Result<Vec<_>>>()?;
    started.iter().try_for_each(|started| Doors::check(&started.served, &openers))?;
    let served = started.into_iter().map(Started::attach).collect::<Result<Vec<_>>>()?;
    let signals = Signals::receive(starting)?;
    let doors = Doors::open(&served, metrics, restricted, &openers)?;
    larder_io::process::guard_write_path();
    doors.tell();
    notify(READY, &run::serving(&served));
    watchdog::start(served.iter().map(|s| Arc::clone(&s.cache)).collect());
    run::until_stopped(&served, doors, &helper, &signals, given)
}

/// Starts what needs privileges, if a listener does: the helper, and the thread of the ublk driver's commands. Then drops
/// those that the rest of the server does not use.
fn start_privileged(checked: &[Checked]) -> Result<(Arc<Helper>, Option<Arc<Controller>>)> {
    let volumes = || checked.iter().flat_map(|c| c.plan.volumes());
    let listens = || volumes().flat_map(|volume| &volume.args.listen);
    let helper = Helper::start(listens())?;
    let restricted = !checked.iter().any(|c| c.plan.args.unrestricted);
    let keep = move |kept| if restricted { capabilities::keep(kept) } else { Ok(()) };
    let ublk = match listens().any(|listen| matches!(listen.spec, ListenSpec::Ublk(_))) {
        true => Some(Controller::start(move || keep(OF_CONTROLLER).map_err(std::io::Error::from))?),
        false => None,
    };
    if restricted {
        capabilities::bound(OF_SERVER);
    }
    keep(OF_SERVER).context("cannot drop capabilities")?;
    Ok((Arc::new(helper), ublk))
}

/// A cache that does not use its flash yet.
struct Started {
    served: Served,
    flash: Option<FlashDevice>,
    made: Option<Made>,
}

impl Started {
    /// Begins to cache.
    fn attach(mut self) -> Result<Served> {
        let cache = &self.served.cache;
        let attached = match self.flash {
            Some(flash) => cache.attach(flash),
            // Writes continue without the flash of an earlier run, whose content is then out of date.
            None => cache.mark_out_of_use(),
        };
        attached.map_err(|e| self.served.plan.locate(e.into()))?;
        self.made.iter_mut().for_each(Made::keep);
        Ok(self.served)
    }
}

/// Starts a cache with its volumes. Writes to no device.
fn start(opened: Opened, budget: &Budget) -> Result<Started> {
    opened.announce();
    let Opened { checked, origins, flash, made } = opened;
    let Checked { plan, choices, limits, workers, ways, own_way, preset, state, .. } = checked;
    let name = plan.args.name.clone();
    let run = || {
        let most_each = plan.args.connections as usize;
        let clients = ClientLimits { most_each, ..plan.args.limits.clients(budget) };
        let volume = |(plan, origin): (&Plan, Device)| {
            let (name, generation) = (plan.args.name.clone(), plan.args.generation);
            let (share, ranges) = (plan.member.share()?, plan.args.ranges());
            Ok(VolumeConfig { name, generation, origin, share, ranges })
        };
        let volumes = plan.volumes().iter().zip(origins).map(volume).collect::<Result<Vec<_>>>()?;
        let recorder_bytes = plan.args.limits.recorder;
        let flash_write_budget = plan.args.limits.flash_write_budget;
        let config = CacheConfig {
            name,
            volumes,
            choices,
            limits,
            workers,
            state,
            flash_most: plan.args.flash_most,
            clients,
            recorder_bytes,
            flash_write_budget,
        };
        Ok::<_, anyhow::Error>(Cache::start(config)?)
    };
    let cache = run().map_err(|e| plan.locate(e))?;
    let volumes = cache.volumes();
    let served = Served { plan, preset: preset.name, ways, own_way, cache, volumes };
    Ok(Started { served, flash, made })
}

/// The memory of the clients of all volumes.
fn budget(opened: &[Opened]) -> Budget {
    let bytes = opened.first().map_or(DEFAULT_BYTES, |o| o.checked.plan.args.client_memory);
    // Only workers need buffers often.
    keep_by_default(KEPT_BY_OTHERS);
    let workers = opened.iter().map(|o| u64::from(o.checked.workers)).sum();
    let connections = |o: &Opened| {
        let plan = &o.checked.plan;
        (plan.volumes().len() * seats(plan.args.connections as usize)) as u64
    };
    let queues = |o: &Opened| {
        let listens = o.checked.plan.volumes().iter().flat_map(|volume| &volume.args.listen);
        listens.map(|listen| listen.spec.most_queues(o.checked.workers)).sum::<u64>()
    };
    let (connections, queues) =
        (opened.iter().map(connections).sum(), opened.iter().map(queues).sum());
    Budget::with_queues(bytes, connections, queues, workers)
}

/// Refuses to start if all volumes together may need more memory than there is.
fn check_memory(opened: &[Opened], budget: &Budget) -> Result<()> {
    let sum = |bytes: fn(&larder_core::config::Memory) -> u64| {
        opened.iter().map(|o| bytes(&o.memory())).fold(0, u64::saturating_add)
    };
    let volumes = opened.iter().flat_map(|o| o.checked.plan.volumes());
    let listens = volumes.flat_map(|volume| &volume.args.listen).map(|l| &l.spec);
    let others = [budget.bound_bytes(), fuse_bytes(listens), PROGRAM_BYTES];
    let worst = others.into_iter().fold(sum(|m| m.worst_bytes()), u64::saturating_add);
    tell!(
        "memory: {} at worst, {} when full and fully valid; available: {}",
        rough_size(worst),
        rough_size(sum(|m| m.full_bytes())),
        larder_io::process::available_memory().map_or_else(|| "unknown".to_owned(), rough_size)
    );
    Ok(larder_volume::check_memory(worst)?)
}

/// The memory of FUSE files, which the budget of clients does not include.
fn fuse_bytes<'a>(listens: impl Iterator<Item = &'a ListenSpec>) -> u64 {
    listens.filter(|listen| matches!(listen, ListenSpec::Fuse(_))).count() as u64 * PAYLOAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fuse_file_counts() {
        let listens = ["fuse:/a", "nbd+unix:/b", "fuse:/c"].map(|text| text.parse().unwrap());
        assert_eq!(fuse_bytes(listens.iter()), 128 << 20);
        assert_eq!(fuse_bytes(listens[1..2].iter()), 0);
    }
}
