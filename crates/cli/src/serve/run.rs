// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serves volumes until a signal. A volume that fails is removed, and the others stay in service.
//!
//! Invariants: a volume that lost a worker has no clients, since they would wait without end. The process ends with an
//! error when its last volume failed, and at the latest when it is stopped. A stop takes no longer than its bound,
//! however many volumes there are.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ArgMatches;

use super::doors::Doors;
use super::helper::Helper;
use super::reload;
use super::served::Served;
use super::signals::Signals;
use crate::exit;
use crate::notify::{STOPPING, notify};
use crate::out::{complain, tell};

/// How often volumes are checked.
const LOOK: Duration = Duration::from_millis(50);

/// Serves until a signal stops it, or no volume is left. `given` is the source of the settings.
pub fn until_stopped(
    served: &[Served],
    mut doors: Doors,
    helper: &Helper,
    signals: &Signals,
    given: &ArgMatches,
) -> Result<()> {
    let stops = &signals.stops;
    let lost: Vec<AtomicBool> = served.iter().map(|_| AtomicBool::new(false)).collect();
    while stops.load(Ordering::SeqCst) == 0 {
        for (s, lost) in served.iter().zip(&lost) {
            if s.cache.has_lost_a_worker() && !lost.swap(true, Ordering::SeqCst) {
                take_out(s, &mut doors);
                notify("", &serving(served));
            }
        }
        helper.look();
        if signals.reload.swap(false, Ordering::SeqCst) {
            reload::reload(served, given);
        }
        if lost.iter().all(|l| l.load(Ordering::SeqCst)) {
            bail!(exit::failed("a worker stopped; see the log above"));
        }
        std::thread::sleep(LOOK);
    }
    notify(STOPPING, "finishing requests in flight");
    let bound = Duration::from_nanos(served.first().map_or(0, |s| s.plan.args.drain));
    tell!(
        "stopping: finishing requests in flight, within {} s (a second signal stops at once)",
        bound.as_secs_f64()
    );
    let begin = Instant::now();
    doors.close_listeners(bound, || stops.load(Ordering::SeqCst) > 1);
    let left = served.iter().zip(&lost).filter(|(_, lost)| !lost.load(Ordering::SeqCst));
    let left: Vec<&Served> = left.map(|(s, _)| s).collect();
    let stopped = drain(&left, bound.saturating_sub(begin.elapsed()), stops);
    drop(doors);
    stopped?;
    match served.len() - left.len() {
        0 => Ok(()),
        n => bail!(exit::failed(&format!("{n} of the volumes had failed; see the log above"))),
    }
}

/// One line with the served volumes.
pub fn serving(served: &[Served]) -> String {
    let name = |s: &Served| format!("'{}'", s.plan.args.name);
    let gone = served.iter().filter(|s| s.cache.has_lost_a_worker());
    let gone: Vec<String> = gone.map(name).collect();
    let left = served.iter().filter(|s| !s.cache.has_lost_a_worker());
    let left: Vec<String> = left.map(name).collect();
    let lost = if gone.is_empty() { String::new() } else { format!("; LOST {}", gone.join(", ")) };
    format!("serving {}{lost}", left.join(", "))
}

/// Stops a volume that lost a worker, so that its clients are disconnected.
fn take_out(served: &Served, doors: &mut Doors) {
    if !served.plan.several {
        return;
    }
    served.volumes.iter().for_each(|volume| doors.close_files(volume));
    tracing::error!(
        "ALARM: {} lost a worker and is no longer served; the others are; all acknowledged writes are on its devices",
        served.plan.title()
    );
    let cache = std::sync::Arc::clone(&served.cache);
    let end = move || drop(cache.stop(Duration::ZERO, |_| (), || true));
    if let Err(e) = std::thread::Builder::new().name("larder-end".to_owned()).spawn(end) {
        tracing::error!("cannot start a thread: {e}");
    }
}

/// Stops all volumes side by side, within one bound.
fn drain(served: &[&Served], bound: Duration, stops: &AtomicUsize) -> Result<()> {
    let errors = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for s in served {
            let errors = &errors;
            let stop = move || {
                if let Err(e) = stop(s, bound, stops)
                    && let Ok(mut errors) = errors.lock()
                {
                    errors.push(s.plan.locate(e));
                }
            };
            let name = "larder-stop".to_owned();
            if let Err(e) = std::thread::Builder::new().name(name).spawn_scoped(scope, stop) {
                tracing::error!("cannot start a thread: {e}");
                // Without a thread the volumes stop one after another.
                stop();
            }
        }
    });
    let mut errors = errors.into_inner().unwrap_or_default().into_iter();
    if let Some(first) = errors.next() {
        errors.for_each(|e| complain!("{e:#}"));
        return Err(first);
    }
    let mut dirty = served.iter().filter(|s| s.cache.left_dirty()).peekable();
    if dirty.peek().is_none() {
        tell!("stopped; all acknowledged writes are on the origin");
    }
    for s in dirty {
        let of = if s.plan.several { format!(" of {}", s.plan.title()) } else { String::new() };
        tell!(
            "stopped; all acknowledged writes are durable, but only the flash{of} holds some of them: keep it, and start with it before another program uses the origin"
        );
    }
    Ok(())
}

fn stop(served: &Served, bound: Duration, stops: &AtomicUsize) -> Result<()> {
    let mut told = Instant::now();
    let of =
        if served.plan.several { format!(" of {}", served.plan.title()) } else { String::new() };
    let progress = |workers: usize| {
        if told.elapsed() > Duration::from_secs(1) {
            told = Instant::now();
            tell!("stopping: {workers} workers{of} have requests in flight");
        }
    };
    Ok(served.cache.stop(bound, progress, || stops.load(Ordering::SeqCst) > 1)?)
}

/// Ends the process after a panic: clients of a lost thread would wait without end, and the devices have all acknowledged
/// writes. Where there are `several` volumes, the panic of a worker ends only its volume (see [`until_stopped`]).
pub fn abort_on_panic(several: bool) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        let thread = std::thread::current();
        let number = thread.name().and_then(|name| name.strip_prefix("larder-"));
        if several && number.is_some_and(|n| n.parse::<u32>().is_ok()) {
            complain!("this is a bug; the volume of this worker ends, the others stay in service");
            return;
        }
        complain!("this is a bug; the process ends, all acknowledged writes are on the devices");
        std::process::abort();
    }));
}
