// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of the flash device of a cache, and of its origins as far as they failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use larder_core::exec::DevId;
use larder_core::format::Plan;
use larder_core::request::Errno;

use super::flash::FlashDevice;
use super::part::Part;
use super::returned::Returned;

/// A flash device that shards use, or have not released.
pub(crate) struct Attached {
    pub dev: DevId,
    pub flash: FlashDevice,
    /// It was detached or failed, and has operations in flight.
    pub leaving: bool,
    /// The id that it is labelled with.
    volume: u64,
    /// Workers that have not released it.
    waiting: usize,
    /// Workers that have not opened their page logs on it.
    opening: usize,
}

impl Attached {
    fn is(&self, dev: DevId) -> bool {
        self.dev == dev
    }
}

/// The state, see the module.
#[derive(Default)]
pub(crate) struct State {
    pub attached: Option<Attached>,
    /// Why the last flash device failed, until another is attached.
    pub alarm: Option<String>,
    /// The flash that failed, with the id on its label, while it is tried again.
    pub failed: Option<(FlashDevice, u64)>,
    /// When a flash that had failed returned last.
    pub returned: Returned,
    /// Why a page log that may hold dirty data cannot be used. Its device may be closed by now.
    refused: Option<(DevId, String)>,
    /// Workers for which the attached device fails although it stays in use, because it holds dirty data, with the error.
    pub flash_errors: BTreeMap<u32, String>,
    /// Volumes with dirty data that does not match its checksum, and what to say of it.
    pub dirty_damaged: BTreeMap<u32, String>,
    /// When the log got the last line about damaged pages.
    pub damage_logged: Option<Instant>,
    /// The volumes whose dirty data their origin refuses, the workers that found it, and the error.
    pub origin_refuses: BTreeMap<(u32, u32), Errno>,
    /// The operation in which the origin of a volume failed permanently.
    pub origin_alarms: BTreeMap<u32, String>,
    /// Volumes whose origin does not answer, each with the workers that notice.
    pub origins_overdue: BTreeSet<(u32, u32)>,
    /// Volumes that are leaving the cache.
    pub departing: BTreeSet<u32>,
    /// Volumes that have left the cache.
    pub outside: BTreeSet<u32>,
}

impl State {
    /// Whether the origin of a volume does not answer.
    pub fn is_overdue(&self, volume: u32) -> bool {
        self.origins_overdue.range((volume, 0)..=(volume, u32::MAX)).next().is_some()
    }

    /// The origin of a volume is overdue for a worker, or not; returns whether that is so for the first one, or the last.
    pub fn origin_overdue(&mut self, volume: u32, worker: u32, overdue: bool) -> bool {
        let any = |state: &Self| state.is_overdue(volume);
        let before = any(self);
        match overdue {
            true => self.origins_overdue.insert((volume, worker)),
            false => self.origins_overdue.remove(&(volume, worker)),
        };
        before != any(self)
    }

    pub fn attach(&mut self, dev: DevId, flash: FlashDevice, volume: u64, workers: usize) {
        self.forgive();
        self.refused = None;
        let (leaving, waiting) = (false, workers);
        let opening = if matches!(flash.plan, Plan::Logs(_)) { workers } else { 0 };
        self.attached = Some(Attached { dev, flash, leaving, volume, waiting, opening });
    }

    /// The device that is in use, or failed just now, has this size from now on.
    pub fn resized(&mut self, flash: FlashDevice) {
        match (&mut self.attached, &mut self.failed) {
            (Some(attached), _) => attached.flash = flash,
            (None, Some((failed, _))) => *failed = flash,
            (None, None) => {}
        }
    }

    /// What went wrong with an earlier device no longer matters; it is closed.
    pub fn forgive(&mut self) {
        self.alarm = None;
        self.failed = None;
        self.flash_errors.clear();
        self.origin_refuses.clear();
        self.dirty_damaged.clear();
    }

    /// A worker has opened its page log, or cannot, for this reason.
    pub fn opened(&mut self, dev: DevId, refused: Option<String>) {
        self.refused = self.refused.take().or(refused.map(|why| (dev, why)));
        if let Some(attached) = self.attached.as_mut().filter(|a| a.is(dev)) {
            attached.opening = attached.opening.saturating_sub(1);
        }
    }

    /// The number of workers that are opening their page logs; none if the device failed or was detached.
    pub fn logs_opening(&self, dev: DevId) -> usize {
        let attached = self.attached.as_ref().filter(|a| a.is(dev) && !a.leaving);
        attached.map_or(0, |a| a.opening)
    }

    /// Why a page log cannot be used.
    pub fn log_refused(&self, dev: DevId) -> Option<String> {
        self.refused.as_ref().filter(|(of, _)| *of == dev).map(|(_, why)| why.clone())
    }

    /// The device that is in use.
    pub fn in_use(&self) -> Option<DevId> {
        self.attached.as_ref().filter(|attached| !attached.leaving).map(|attached| attached.dev)
    }

    /// Detaches the device. Returns its number and name, if there is one. If it has page logs that would still count as
    /// dirty, it also returns the device and the id on its label.
    #[allow(clippy::type_complexity)] // said once
    pub fn leave(&mut self) -> Option<(DevId, String, Option<(FlashDevice, u64)>)> {
        self.attached.as_ref()?;
        self.forgive();
        let attached = self.attached.as_mut()?;
        attached.leaving = true;
        let outlives = matches!(attached.flash.plan, Plan::Logs(logs) if logs.survives_crash);
        let emptied = outlives.then(|| (attached.flash.clone(), attached.volume));
        Some((attached.dev, attached.flash.device.name().to_owned(), emptied))
    }

    /// The device failed; returns the alarm, if it is new.
    pub fn fail(&mut self, dev: DevId, why: &str) -> Option<String> {
        let attached = self.attached.as_mut().filter(|a| a.is(dev))?;
        if std::mem::replace(&mut attached.leaving, true) {
            return None;
        }
        let alarm = format!("flash {} failed: {why}", attached.flash.device.name());
        self.alarm = Some(alarm.clone());
        Some(alarm)
    }

    /// A worker released the device; returns whether it was the last.
    pub fn released(&mut self, dev: DevId) -> bool {
        let Some(attached) = self.attached.as_mut().filter(|a| a.is(dev)) else { return false };
        attached.leaving = true;
        attached.waiting = attached.waiting.saturating_sub(1);
        attached.waiting == 0
    }

    /// The device is no longer used. Returns whether it will be tried again, because it failed; else it is closed.
    pub fn forget(&mut self, dev: DevId) -> bool {
        let forgotten = self.attached.take_if(|a| a.is(dev));
        let failed = forgotten.filter(|_| self.alarm.is_some());
        self.failed = failed.map(|attached| (attached.flash, attached.volume));
        self.failed.is_some()
    }

    /// The number of workers that have not released the device.
    pub fn waiting_for(&self, dev: DevId) -> usize {
        let attached = self.attached.as_ref().filter(|a| a.is(dev));
        attached.map_or(0, |a| a.waiting.max(1))
    }

    /// The name of the attached device.
    pub fn flash_name(&self) -> Option<String> {
        self.attached.as_ref().map(|attached| attached.flash.device.name().to_owned())
    }

    /// What is wrong with flash, or with dirty data that it holds.
    pub fn flash_alarm(&self) -> Option<String> {
        let refuses = self.origin_refuses.values().next();
        let refuses =
            refuses.map(|errno| format!("the origin refuses dirty data from flash ({errno})"));
        let first = || self.flash_errors.values().next().cloned();
        let damaged = || self.dirty_damaged.values().next().cloned();
        self.alarm.clone().or_else(first).or(refuses).or_else(damaged)
    }

    /// The state in one word.
    pub fn word(&self, suspended: bool) -> &'static str {
        match &self.attached {
            _ if self.alarm.is_some() || !self.flash_errors.is_empty() => "failed",
            None => "pass-through",
            Some(attached) if attached.leaving => "detaching",
            Some(_) if suspended => "suspended",
            Some(_) => "caching",
        }
    }

    /// The state of a volume in one word, in a cache in this state.
    pub fn word_of(&self, part: &Part, number: u32, cache: &'static str) -> &'static str {
        match cache {
            _ if part.origin.is_absent() => "missing",
            "caching" | "suspended" if self.outside.contains(&number) => "outside",
            word => word,
        }
    }
}
