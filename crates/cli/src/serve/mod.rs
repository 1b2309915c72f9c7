// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder serve`: opens the devices, checks the memory, starts volumes and their front doors, and
//! waits for a signal.
//!
//! Invariants: a start is whole or not at all. All that can be known without writing (settings,
//! what is given twice, places to listen at, devices, memory over all volumes) is known before the
//! first flash device is written to. Once they serve, a volume that fails takes no other along.

mod clash;
mod doors;
mod open;
mod run;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use larder_front::listen::Secure;
use larder_io::rough_size;
use larder_volume::{MOST_WORKERS, Volume, VolumeConfig};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::doors::Doors;
use self::open::{Checked, Opened};
use crate::args::ServeArgs;
use crate::config::{self, Plan};
use crate::metrics;
use crate::notify::{READY, notify};
use crate::out::{self, tell};

/// A volume being served.
pub struct Served {
    /// What it was asked to be.
    pub plan: Plan,
    /// Its control socket.
    pub control: PathBuf,
    /// What its clients are asked for, with TLS.
    pub secure: Option<Secure>,
    /// It.
    pub volume: Arc<Volume>,
}

/// Serves until told to stop. `given` is the source of `args`.
pub fn serve(args: ServeArgs, given: &ArgMatches) -> Result<()> {
    let print = args.print_config;
    let plans = config::plans(given, args)?;
    if print {
        return out::line(config::print(&plans)?);
    }
    run::abort_on_panic(plans.len() > 1);
    let checked = plans.into_iter().map(Checked::new).collect::<Result<Vec<_>>>()?;
    clash::check(&checked)?;
    let metrics = checked.first().and_then(|c| c.plan.args.metrics.as_deref());
    let metrics = metrics.map(metrics::bind).transpose()?;
    let opened = checked.into_iter().map(Checked::open).collect::<Result<Vec<_>>>()?;
    opened.iter().try_for_each(|o| clash::check_places(&o.checked))?;
    check_memory(&opened)?;
    let served = opened.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    let stops = signals()?;
    let doors = Doors::open(&served, metrics)?;
    larder_io::process::guard_write_path();
    doors.tell();
    notify(READY, &run::serving(&served));
    run::until_stopped(&served, doors, &stops)
}

/// Starts a volume and begins to cache.
fn start(opened: Opened) -> Result<Served> {
    opened.announce();
    let Opened { checked, origin, flash, mut made } = opened;
    let Checked { plan, choices, limits, workers, control, secure, state, .. } = checked;
    let name = plan.args.name.clone();
    let run = || {
        let config = VolumeConfig { name, origin, choices, limits, workers, state };
        let volume = Volume::start(config)?;
        match flash {
            Some(flash) => volume.attach(flash)?,
            // Writes go on without what an earlier run left on flash.
            None => volume.mark_out_of_use()?,
        }
        Ok(volume)
    };
    let volume = run().map_err(|e| plan.locate(e))?;
    made.iter_mut().for_each(open::Made::keep);
    Ok(Served { plan, control, secure, volume })
}

/// Refuses to start what would not fit into memory at worst, all volumes together.
fn check_memory(opened: &[Opened]) -> Result<()> {
    let sum = |bytes: fn(&larder_core::config::Memory) -> u64| {
        opened.iter().map(|o| bytes(&o.memory())).fold(0, u64::saturating_add)
    };
    let worst = sum(|m| m.worst_bytes());
    tell!(
        "memory: {} at worst, {} when full and fully valid; available: {}",
        rough_size(worst),
        rough_size(sum(|m| m.full_bytes())),
        larder_io::process::available_memory().map_or_else(|| "unknown".to_owned(), rough_size)
    );
    Ok(larder_volume::check_memory(worst)?)
}

/// Counts the signals that ask to stop.
fn signals() -> Result<Arc<AtomicUsize>> {
    let count = Arc::new(AtomicUsize::new(0));
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let counted = Arc::clone(&count);
    std::thread::Builder::new().name("larder-signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    })?;
    Ok(count)
}

/// Where state files lie: where systemd says (`StateDirectory=`), or by rule.
pub fn default_state() -> Result<PathBuf> {
    if let Some(dirs) = std::env::var_os("STATE_DIRECTORY")
        && let Some(dir) = std::env::split_paths(&dirs).find(|dir| dir.is_absolute())
    {
        return Ok(dir);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/larder"));
    }
    let from = |key: &str| std::env::var_os(key).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = from("XDG_STATE_HOME").or_else(|| Some(from("HOME")?.join(".local/state")));
    Ok(state.context("neither $XDG_STATE_HOME nor $HOME is set; give --state DIR")?.join("larder"))
}

/// How many workers a volume gets.
pub fn workers(given: Option<u32>) -> Result<u32> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let workers = given.unwrap_or((cores / 2).clamp(1, 4));
    if workers == 0 || workers > MOST_WORKERS {
        bail!("--workers {workers}: accepted: 1 to {MOST_WORKERS}");
    }
    Ok(workers)
}

/// The directory of the control sockets of those that are given none.
pub fn control_dir() -> Result<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    let dir = if root {
        PathBuf::from("/run")
    } else {
        let dir = std::env::var_os("XDG_RUNTIME_DIR");
        dir.map(PathBuf::from).context("XDG_RUNTIME_DIR is not set; give --control SOCKET")?
    };
    Ok(dir.join("larder"))
}

/// The control socket of a volume that was given none.
pub fn default_control(name: &str) -> Result<PathBuf> {
    let file = if name.is_empty() { "default" } else { name };
    if file.contains('/') {
        bail!("--name {name}: has a slash; give --control SOCKET");
    }
    Ok(control_dir()?.join(format!("{file}.sock")))
}
