// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of flash that is in use grows and shrinks while a cache serves (`core/src/cache/resize.rs`).
//!
//! To grow, a file becomes longer, or the block device was made longer before; then its slots are in use. To shrink, slots are emptied,
//! with dirty data copied to the origins; then a file becomes shorter, or the block device may be made so.
//!
//! Invariants: slots are in use only where the device has room for them; a device is not cut before recovery finds nothing
//! beyond. A shrink that fails, or ends early, leaves the size as it was.

use std::time::{Duration, Instant};

use larder_core::format::{Plan, SizeRefused, UnitsPlan};
use larder_core::request::Errno;
use larder_core::shard::Shard;
use larder_io::{Device, rough_size};
use serde::Serialize;

use super::cache::Cache;
use super::error::VolumeError;
use super::fits::check_memory;
use super::flash::FlashDevice;
use super::lock::lock;
use super::tasks::Done;

/// The sizes of a flash before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resized {
    /// Bytes of the device that were in use.
    pub flash_bytes_before: u64,
    /// Bytes of the device that are in use.
    pub flash_bytes: u64,
    /// Units that flash may hold.
    pub units_total: u64,
}

impl Cache {
    /// Uses `asked` bytes of the flash device from now on, or all that it has and metadata has room for. `progress` receives the number of
    /// slots that are still to be emptied, and returns whether to continue.
    ///
    /// # Errors
    /// No flash is attached; its size cannot change, or not to this; memory does not suffice; a device fails; or the slots are not
    /// empty within `bound`.
    pub fn resize_flash(
        &self,
        asked: Option<u64>,
        bound: Duration,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Resized, VolumeError> {
        let _change = lock(&self.change);
        let (flash, before) = self.resizable()?;
        let device = &flash.device;
        let held = device.remeasure().map_err(|errno| failed(device, "reading its size", errno))?;
        if held < before.end() {
            return Err(VolumeError::Refused(format!(
                "flash {}: has {}, and {} of it were in use: it was cut; accepted: after larder detach and larder attach",
                device.name(),
                rough_size(held),
                rough_size(before.end())
            )));
        }
        let bytes = asked.unwrap_or(held.min(before.most_bytes()));
        let after = before.sized(bytes).map_err(|why| refused(device, bytes, why))?;
        let mut cut = Ok(());
        if after.slots >= before.slots {
            self.grow(&flash, (&before, &after), bytes)?;
        } else {
            self.shrink((&before, &after), bound, progress)?;
            if asked.is_some() && device.is_file() {
                let size = device.set_file_size(bytes).map(drop);
                cut = size.map_err(|errno| failed(device, "cutting it", errno));
            }
        }
        self.took_size(FlashDevice { plan: Plan::Units(after), most_bytes: asked, ..flash })?;
        cut?;
        Ok(Resized {
            flash_bytes_before: before.end(),
            flash_bytes: after.end(),
            units_total: self.stats()?.units_total,
        })
    }

    /// The flash device, if the number of its slots may change.
    fn resizable(&self) -> Result<(FlashDevice, UnitsPlan), VolumeError> {
        let refused = |why: &str| Err(VolumeError::Refused(why.to_owned()));
        let state = lock(&self.state);
        let attached = state.attached.as_ref().filter(|attached| !attached.leaving);
        let Some(flash) = attached.map(|attached| attached.flash.clone()) else {
            return refused("no flash device is attached; accepted: after larder attach");
        };
        let keeps =
            "keeps its size; accepted: larder detach, then larder attach with another --flash-size";
        match flash.plan {
            Plan::Logs(_) => refused(&format!("a page log {keeps}")),
            Plan::Units(_) if !self.config.choices.placement.may_grow() => {
                refused(&format!("a cache of sets {keeps}"))
            }
            Plan::Units(units) => Ok((flash, units)),
        }
    }

    fn grow(
        &self,
        flash: &FlashDevice,
        (before, after): (&UnitsPlan, &UnitsPlan),
        bytes: u64,
    ) -> Result<(), VolumeError> {
        let (device, held) = (&flash.device, flash.device.geometry().bytes);
        let memory = |plan: &UnitsPlan| self.memory(plan.slots).worst_bytes();
        check_memory(memory(after).saturating_sub(memory(before)))?;
        if held < bytes && !device.is_file() {
            return Err(VolumeError::Usage(format!(
                "flash {}: got {}, accepted: up to {}, which the device has; make it longer first",
                device.name(),
                rough_size(bytes),
                rough_size(held)
            )));
        }
        if held < bytes {
            let longer = FlashDevice { plan: Plan::Units(*after), ..flash.clone() };
            let grown = device.set_file_size(bytes).map(drop);
            let grown = grown.map_err(|errno| failed(device, "making it longer", errno));
            if let Err(error) = grown.and_then(|()| longer.allocate()) {
                // What was not allocated must not be used by the next start.
                let _ = device.set_file_size(held);
                return Err(error);
            }
        }
        self.use_slots(after.slots)
    }

    fn shrink(
        &self,
        (before, after): (&UnitsPlan, &UnitsPlan),
        bound: Duration,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(), VolumeError> {
        if !self.keeps_pinned(after.slots) {
            return Err(VolumeError::Refused(format!(
                "pinned ranges take more than three quarters of {} units; accepted: a larger size, or after larder unpin",
                after.slots
            )));
        }
        let (deadline, mut left, mut is_late) = (Instant::now() + bound, 0, false);
        let mut goes_on = || {
            let beyond = self.ask(|worker| worker.shard.slots_beyond())?;
            left = beyond.into_iter().map(u64::from).sum();
            is_late = Instant::now() > deadline;
            Ok(progress(left) && !is_late)
        };
        let total = after.slots;
        let resize = move |shard: &Shard, done: Done<()>| shard.resize(total, done);
        let why = match self.each_worker(&mut goes_on, resize) {
            Ok(Some(Ok(_))) => return Ok(()),
            Ok(Some(Err(errno))) => self.unfinished(errno),
            Ok(None) if is_late => VolumeError::TooSlow(format!(
                "not finished after {} s: {left} units left; the size stays as it was",
                bound.as_secs()
            )),
            Ok(None) => VolumeError::Refused("the command ended early".to_owned()),
            Err(error) => error,
        };
        // Slots that are empty by now are used again.
        self.use_slots(before.slots).and(Err(why))
    }

    /// Why slots could not be emptied.
    fn unfinished(&self, errno: Errno) -> VolumeError {
        let refused = |why: &str| VolumeError::Refused(why.to_owned());
        match errno {
            Errno::ENODEV => refused("the flash device is out of use"),
            Errno::ECANCELED => refused("a detach or stop has begun"),
            errno => VolumeError::Refused(format!(
                "units behind the new end cannot leave ({errno}): flash takes no record, or the origin {} no dirty data; the size stays as it was",
                self.config.origins_in_words()
            )),
        }
    }

    /// Workers put units into so many slots together from now on.
    fn use_slots(&self, total: u64) -> Result<(), VolumeError> {
        self.ask(move |worker| worker.shard.resize(total, drop)).map(drop)
    }

    /// All that depends on the size of flash learns of it.
    fn took_size(&self, flash: FlashDevice) -> Result<(), VolumeError> {
        let (name, slots) = (flash.device.name().to_owned(), flash.plan.slots());
        lock(&self.state).resized(flash);
        self.fit_curves(Some(self.flash_bytes(slots)));
        self.adjust_workers()?;
        tracing::info!("flash {name} has {slots} units now, {}", self.config.title());
        Ok(())
    }
}

fn failed(device: &Device, doing: &'static str, errno: Errno) -> VolumeError {
    VolumeError::Device { device: device.name().to_owned(), doing, errno }
}

fn refused(device: &Device, bytes: u64, why: SizeRefused) -> VolumeError {
    let (name, got) = (device.name(), rough_size(bytes));
    VolumeError::Usage(match why {
        SizeRefused::TooSmall { least } => {
            format!("flash {name}: got {got}, accepted: at least {}", rough_size(least))
        }
        SizeRefused::TooLarge { most } => format!(
            "flash {name}: got {got}, accepted: up to {}, for which it was formatted (flash_most)",
            rough_size(most)
        ),
    })
}
