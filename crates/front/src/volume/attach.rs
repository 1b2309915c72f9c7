// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a flash device comes and goes: attached warm or cold, detached, failed, released.
//!
//! Where metadata is kept, the state file decides whether what is on the flash may be used (design
//! rule 10), and it is made to say "out of use" before the first write that goes on without the
//! flash is answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use larder_core::exec::DevId;
use larder_core::journal::recover::Recovered;
use larder_core::label::{Found, SectionKind};
use larder_core::request::Kind;

use super::mailbox::Message;
use super::state_file::{FORMAT, FlashState, StateFile};
use super::worker::Worker;
use super::{FlashDevice, Volume, VolumeError, check_memory, lock};

impl Volume {
    /// Attaches a flash device and begins to cache.
    ///
    /// # Errors
    /// When one is attached already, memory does not suffice, the label cannot be written, or a
    /// worker does not answer. Nothing is written to a device that is refused.
    pub fn attach(&self, flash: FlashDevice) -> Result<(), VolumeError> {
        let _change = lock(&self.change);
        if let Some(attached) = &lock(&self.state).attached {
            return Err(VolumeError::Refused(format!(
                "{} is attached{}; detach it first",
                attached.flash.device.name(),
                if attached.leaving { " and still has operations under way" } else { "" },
            )));
        }
        check_memory(self.memory(flash.slots).worst_bytes())?;
        let (volume, recovered) = self.open_flash(&flash)?;
        let dev = DevId(self.next_dev.fetch_add(1, Ordering::Relaxed));
        let (place, slots) = (flash.place(dev, volume), flash.slots);
        let (device, name) = (flash.device.clone(), flash.device.name().to_owned());
        lock(&self.state).attach(dev, flash, self.mailboxes.len());
        let recovered = Arc::new(recovered);
        let warm = self.ask(move |worker| {
            let own = recovered.get(worker.index() as usize);
            worker.attach(place, device.clone(), own)
        })?;
        let warm = if warm.contains(&true) { ", warm" } else { "" };
        tracing::info!("flash {name} attached, {slots} units{warm}, volume '{}'", self.config.name);
        Ok(())
    }

    /// Goes on without the flash device, which is closed when nothing is under way on it any
    /// more. `progress` is told how many workers are still waiting for it.
    ///
    /// # Errors
    /// When none is attached, or it is not released within `bound`; the volume is in
    /// pass-through all the same, and the device is closed once it answers.
    pub fn detach(
        &self,
        bound: Duration,
        mut progress: impl FnMut(usize),
    ) -> Result<(), VolumeError> {
        let _change = lock(&self.change);
        let left = lock(&self.state).leave();
        let Some((dev, name)) = left else {
            return Err(VolumeError::Refused("no flash device is attached".to_owned()));
        };
        tracing::info!("flash {name} is being detached; volume '{}' goes on", self.config.name);
        self.out_of_use()?;
        self.ask(|worker| {
            worker.shard.detach();
            worker.shard.fenced();
        })?;
        let deadline = Instant::now() + bound;
        loop {
            let waiting = lock(&self.state).waiting_for(dev);
            if waiting == 0 {
                tracing::info!("flash {name} detached");
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(VolumeError::TooSlow(format!(
                    "the flash device has operations under way after {} s; the volume goes on without it, and it is closed when they end",
                    bound.as_secs()
                )));
            }
            progress(waiting);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The volume id of a flash device, and what was recovered from it: nothing if it starts cold.
    fn open_flash(&self, flash: &FlashDevice) -> Result<(u64, Vec<Recovered>), VolumeError> {
        let unit_bytes = self.config.choices.unit_bytes;
        let (Some(file), Some(_)) = (&self.config.state, flash.metadata) else {
            self.out_of_use()?;
            return Ok((flash.label(unit_bytes)?, Vec::new()));
        };
        let (name, state) = (flash.device.name().to_owned(), file.load()?);
        match self.recover(flash, state.as_ref())? {
            Ok((volume, recovered)) => {
                self.in_use(file, volume)?;
                Ok((volume, recovered))
            }
            Err(why) => {
                tracing::warn!("flash {name} starts cold: {why}");
                let volume = flash.label(unit_bytes)?;
                self.in_use(file, volume)?;
                Ok((volume, Vec::new()))
            }
        }
    }

    /// What is on the flash, or why it may not be used.
    #[allow(clippy::type_complexity)] // said once
    fn recover(
        &self,
        flash: &FlashDevice,
        state: Option<&FlashState>,
    ) -> Result<Result<(u64, Vec<Recovered>), String>, VolumeError> {
        let Found::Label(label) = flash.found()? else { return Ok(Err("it is new".to_owned())) };
        let cold = |why: &str| Ok(Err(why.to_owned()));
        if flash.formats {
            return cold("--format was given");
        }
        if label.section(SectionKind::Metadata).is_none() {
            return cold("it kept no journal");
        }
        let Some(state) = state else { return cold("there is no state file that names it") };
        if state.volume != format!("{:016x}", label.volume) {
            return cold("the state file names another flash, or an older formatting of it");
        }
        if !state.in_use {
            return cold("it was detached, or failed, and writes went on without it");
        }
        if label != flash.label_of(label.volume, self.config.choices.unit_bytes) {
            return cold("it was formatted for another unit, size, or number of workers");
        }
        if state.origin_bytes != self.config.origin.geometry().bytes {
            return cold("the origin has another size");
        }
        let modified = self.config.origin.modified_before_open_ns();
        let modified = modified.and_then(|ns| i64::try_from(ns).ok());
        if state.origin_mtime_ns.is_some() && state.origin_mtime_ns != modified {
            return cold("the origin was written to while it was not served");
        }
        Ok(flash
            .recover(label.volume)
            .map(|r| (label.volume, r))
            .map_err(|why| format!("it {why}")))
    }

    /// This flash may be used for the origin, and no other.
    fn in_use(&self, file: &StateFile, volume: u64) -> Result<(), VolumeError> {
        let volume = format!("{volume:016x}");
        file.put_out_of_use(Some(&volume))?;
        file.store(&FlashState {
            format: FORMAT,
            volume,
            in_use: true,
            origin: file.origin().to_owned(),
            origin_bytes: self.config.origin.geometry().bytes,
            origin_mtime_ns: None,
        })
    }

    fn origin_mtime(&self) -> Option<i64> {
        let identity = self.config.origin.identity().ok().flatten()?;
        // Block devices have none.
        i64::try_from(identity.mtime_ns).ok().filter(|ns| *ns != 0)
    }

    /// Makes it durable that what is on the flash may not be used any more.
    ///
    /// # Errors
    /// When the state file cannot be written.
    pub fn out_of_use(&self) -> Result<(), VolumeError> {
        let Some(file) = &self.config.state else { return Ok(()) };
        file.put_out_of_use(None)
    }

    /// After a stop in good order: an origin that is written to from now on is told by its time.
    pub(super) fn note_origin(&self) -> Result<(), VolumeError> {
        let Some(file) = &self.config.state else { return Ok(()) };
        match file.load()? {
            Some(state) if state.in_use => {
                file.store(&FlashState { origin_mtime_ns: self.origin_mtime(), ..state })
            }
            _ => Ok(()),
        }
    }

    /// A flash device failed: no shard may use it any more.
    pub(super) fn flash_failed(&self, dev: DevId, why: &str) {
        let Some(alarm) = lock(&self.state).fail(dev, why) else { return };
        tracing::error!(
            "ALARM: {alarm}; volume '{}' goes on in pass-through, without loss; attach another device",
            self.config.name
        );
        // Writes wait for this, so there is no way but to try again.
        while let Err(error) = self.out_of_use() {
            tracing::error!("writes wait: {error}");
            std::thread::sleep(Duration::from_secs(1));
            if self.has_stopped() {
                return;
            }
        }
        for mailbox in self.mailboxes.iter() {
            mailbox.post(Message::Run(Box::new(move |worker| worker.give_up(dev))));
        }
    }

    /// Flushes the origin for a worker's journal, through the one that remembers failed flushes.
    pub(super) fn flush_for(&self, worker: u32) {
        let mailboxes = Arc::clone(&self.mailboxes);
        self.call(Kind::Flush, 0, 0, Vec::new(), move |result| {
            let result = result.map(drop);
            let tell = move |worker: &mut Worker| worker.shard.origin_flushed(result);
            mailboxes[worker as usize].post(Message::Run(Box::new(tell)));
        });
    }

    /// One worker has let go of a device; when all have, it is closed.
    pub(super) fn flash_released(&self, dev: DevId) {
        if !lock(&self.state).released(dev) {
            return;
        }
        for mailbox in self.mailboxes.iter() {
            let forget = move |worker: &mut Worker| worker.driver.detach(dev);
            mailbox.post(Message::Run(Box::new(forget)));
        }
        // The workers' handles go with those messages; ours is gone already.
        let _ = self.ask(|_| ());
        lock(&self.state).forget(dev);
    }
}
