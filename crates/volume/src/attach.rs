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
use larder_core::format::label::{Found, Label, SectionKind};
use larder_core::format::{FlashPlan, LogsPlan, Plan};
use larder_core::journal::recover::Recovered;
use larder_io::Device;

use super::error::VolumeError;
use super::fits::check_memory;
use super::flash::FlashDevice;
use super::kept::Kept;
use super::misfit::misfit;
use super::recovery::{Cold, Recovery};
use super::state_file::{FORMAT, FlashState, StateFile};
use super::volume::{Volume, lock};
use super::worker::{FLUSH_WORKER, Message, Worker};

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
        check_memory(self.memory(flash.plan.slots()).worst_bytes())?;
        self.check_flash_blocks(&flash)?;
        let (volume, kept) = self.open_flash(&flash)?;
        let dev = DevId(self.next_dev.fetch_add(1, Ordering::Relaxed));
        let (plan, name) = (flash.plan, flash.device.name().to_owned());
        lock(&self.state).attach(dev, flash.clone(), volume, self.mailboxes.len());
        match plan {
            Plan::Units(units) => {
                self.attach_units(units.place(dev, volume), &flash.device, kept.recovered())?;
            }
            Plan::Logs(logs) => {
                self.attach_logs(dev, &flash.device, logs, volume)?;
                self.note_generations(volume)?;
            }
        }
        let warm = if self.stats()?.units_used > 0 { ", warm" } else { "" };
        let what = match plan {
            Plan::Units(_) => "units",
            Plan::Logs(_) => "pages",
        };
        tracing::info!(
            "flash {name} attached, {} {what}{warm}, volume '{}'",
            plan.slots(),
            self.config.name
        );
        Ok(())
    }

    fn attach_units(
        &self,
        place: FlashPlan,
        device: &Device,
        recovered: Vec<Recovered>,
    ) -> Result<(), VolumeError> {
        let (restores, name) = (!recovered.is_empty(), device.name().to_owned());
        let device = device.clone();
        let recovered = Arc::new(recovered);
        let warm = self.ask(move |worker| {
            let own = recovered.get(worker.index() as usize);
            worker.attach(place, device.clone(), own)
        })?;
        if self.flash_owns() && restores && warm.contains(&false) {
            self.ask(|worker| worker.shard.detach())?;
            return Err(VolumeError::Refused(format!(
                "{name}: its metadata contradicts itself, and it alone has some of the data; nothing was written to it"
            )));
        }
        Ok(())
    }

    /// The workers open their logs, and say so with events. One that cannot be opened is given up, or refused
    /// where it alone may have something.
    fn attach_logs(
        &self,
        dev: DevId,
        device: &Device,
        logs: LogsPlan,
        volume: u64,
    ) -> Result<(), VolumeError> {
        let (device, name) = (device.clone(), device.name().to_owned());
        self.ask(move |worker| {
            worker.attach_log(dev, logs.geometry(volume, worker.index()), device.clone());
        })?;
        // Reading a large log takes a while, and as long as the device takes.
        while lock(&self.state).logs_opening(dev) > 0 {
            if self.has_lost_a_worker() {
                return Err(VolumeError::WorkerLost("while it opened its page log"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let Some(why) = lock(&self.state).log_refused(dev) else { return Ok(()) };
        self.ask(|worker| worker.shard.detach())?;
        Err(VolumeError::Refused(format!(
            "flash {name}: cannot be used ({why}), and it alone may have some of the data"
        )))
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
        let begin = Instant::now();
        if let Err(error) = self.separate(bound) {
            // It stays where this cannot be done, or not be said.
            self.ask(|worker| worker.shard.stay())?;
            return Err(error);
        }
        let bound = bound.saturating_sub(begin.elapsed());
        let left = lock(&self.state).leave();
        let Some((dev, name, mut emptied)) = left else {
            return Err(VolumeError::Refused("no flash device is attached".to_owned()));
        };
        tracing::info!("flash {name} is being detached; volume '{}' goes on", self.config.name);
        self.ask(|worker| {
            worker.shard.detach();
            worker.shard.fenced();
        })?;
        let deadline = Instant::now() + bound;
        loop {
            let waiting = lock(&self.state).waiting_for(dev);
            if waiting == 0 {
                // Else it would say for ever that it alone may have something.
                if let Some(Err(error)) = emptied.take().map(|(flash, id)| flash.blank(id)) {
                    tracing::warn!("{error}: another start with it needs --format");
                }
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

    /// Makes flash and origin independent of each other, and that durable.
    fn separate(&self, bound: Duration) -> Result<(), VolumeError> {
        if lock(&self.state).attached.is_none() {
            return Ok(());
        }
        if self.flash_owns() {
            self.clear(true, bound)?;
        }
        self.mark_clean()?;
        self.mark_out_of_use()
    }

    /// The volume id of a flash device, and what was recovered from it: nothing if it starts cold.
    fn open_flash(&self, flash: &FlashDevice) -> Result<(u64, Kept), VolumeError> {
        let keeps = flash.plan.keeps_metadata();
        let Some(file) = self.config.state.as_ref().filter(|_| keeps) else {
            self.may_be_lost(flash, &Cold::WriteBack)?;
            self.mark_out_of_use()?;
            let volume = flash.label()?;
            return Ok((volume, flash.nothing_kept()));
        };
        let (name, state) = (flash.device.name().to_owned(), file.load()?);
        match self.recover(flash, state.as_ref())? {
            Recovery::Warm(volume, kept) => {
                kept.log_losses(&name);
                self.mark_in_use(file, volume, &kept)?;
                Ok((volume, kept))
            }
            Recovery::Cold(why) => {
                self.may_be_lost(flash, &why)?;
                // Another flash may have data, and this one is not to be written to then.
                file.put_out_of_use(None)?;
                tracing::warn!("flash {name} starts cold: {why}");
                let volume = flash.label()?;
                let kept = flash.recover(volume).map_err(|why| {
                    VolumeError::Refused(format!("{name}: {why}, though it was just formatted"))
                })?;
                self.mark_in_use(file, volume, &kept)?;
                Ok((volume, kept))
            }
        }
    }

    /// What is on the flash, or why it may not be used.
    fn recover(
        &self,
        flash: &FlashDevice,
        state: Option<&FlashState>,
    ) -> Result<Recovery, VolumeError> {
        let cold = |why| Ok(Recovery::Cold(why));
        let recovered = |volume| match flash.recover(volume) {
            Ok(kept) => Recovery::Warm(volume, kept),
            Err(why) => Recovery::Cold(why.into()),
        };
        let Found::Label(label) = flash.found()? else { return cold(Cold::New) };
        if flash.formats {
            return cold(Cold::FormatGiven);
        }
        if label.section(SectionKind::Metadata).is_none() && label.log().is_none() {
            return cold(Cold::NoJournal);
        }
        let wanted = flash.plan.label(label.volume);
        let fits = label == wanted;
        let named = state.filter(|state| state.volume == format!("{:016x}", label.volume));
        let Some(state) = named else {
            if flash.adopted && self.is_nobodys(&label)? {
                if !fits {
                    return cold(Cold::Misfit(misfit(&label, &wanted)));
                }
                tracing::warn!("flash {}: adopted on the user's word", flash.device.name());
                return Ok(recovered(label.volume));
            }
            return cold(match state {
                Some(_) => Cold::OtherFlash,
                None => Cold::Unnamed,
            });
        };
        if !state.in_use {
            return cold(Cold::OutOfUse);
        }
        if !fits {
            return cold(Cold::Misfit(misfit(&label, &wanted)));
        }
        if state.dirty && !self.flash_owns() {
            return cold(Cold::WriteBack);
        }
        if state.origin_bytes != self.config.origin.geometry().bytes {
            return cold(Cold::OriginResized);
        }
        let modified = self.config.origin.modified_before_open_ns();
        let modified = modified.and_then(|ns| i64::try_from(ns).ok());
        if state.origin_mtime_ns.is_some() && state.origin_mtime_ns != modified {
            let why = Cold::OriginChanged;
            if !(flash.adopted && state.dirty) {
                return cold(why);
            }
            tracing::warn!("flash {}: used on the user's word, though {why}", flash.device.name());
        }
        let recovered = recovered(label.volume);
        if let Recovery::Warm(_, kept) = &recovered {
            let reached = kept.reached();
            let mut shards = reached.iter().zip(&state.reached);
            if shards.any(|(found, reached)| found < reached) {
                return cold(Cold::PutBack);
            }
        }
        Ok(recovered)
    }

    /// Whether no state file that can be seen names this flash, which alone may have data: only then
    /// may it be adopted.
    fn is_nobodys(&self, label: &Label) -> Result<bool, VolumeError> {
        let volume = format!("{:016x}", label.volume);
        let known = self.config.state.as_ref().map(|file| file.of_flash(&volume)).transpose()?;
        let dirty = label.keeps.dirty || label.log().is_some();
        Ok(known.flatten().is_none() && dirty && self.flash_owns())
    }

    /// Refuses to format a flash that alone may have some of the data, of this volume or another,
    /// unless that is wanted.
    fn may_be_lost(&self, flash: &FlashDevice, why: &Cold) -> Result<(), VolumeError> {
        let Found::Label(label) = flash.found()? else { return Ok(()) };
        let file = self.config.state.as_ref();
        let known = file.map(|f| f.of_flash(&format!("{:016x}", label.volume))).transpose()?;
        let known = known.flatten();
        let said = known.as_ref().map(|(_, state)| state.dirty);
        let clean = match label.keeps.dirty {
            // The file may be an old one that was put back.
            true => {
                said == Some(false)
                    && (!flash.says_dirty(&label) || flash.was_emptied(&label, &known))
            }
            // A stop may have left some of it in logs that do not outlive a crash.
            false => said != Some(true) && !(label.log().is_some() && flash.says_dirty(&label)),
        };
        if !clean && !flash.formats {
            return Err(VolumeError::Refused(format!(
                "flash {}: cannot be used ({why}), and it alone may have some of the data; start it with the settings that it had, with --adopt if only its state file is lost or the origin is what it was but for its time, or lose that with --format",
                flash.device.name()
            )));
        }
        if !clean {
            let name = flash.device.name();
            tracing::warn!("flash {name}: what it alone had is given up, as --format says");
        }
        if let Some((file, state)) = known {
            file.store(&FlashState { in_use: false, dirty: false, ..state })?;
        }
        Ok(())
    }

    /// Whether flash owns what it holds.
    pub(super) fn flash_owns(&self) -> bool {
        self.config.choices.write.flash_owns()
    }

    /// Whether that outlives a crash: then the origin is not to be used without it.
    fn flash_keeps(&self) -> bool {
        self.config.choices.write.flash_keeps()
    }

    /// What the origin can take, a flash that owns must take; a log takes whole pages.
    fn check_flash_blocks(&self, flash: &FlashDevice) -> Result<(), VolumeError> {
        let (flash_block, block) =
            (flash.device.geometry().block_bytes, self.config.origin.geometry().block_bytes);
        if self.flash_owns() && matches!(flash.plan, Plan::Units(_)) && flash_block > block {
            return Err(VolumeError::Usage(format!(
                "flash {}: has blocks of {flash_block} bytes, the origin of {block}; accepted under no-write-back: at most as large as the origin's",
                flash.device.name()
            )));
        }
        Ok(())
    }

    /// Copies what flash alone has to the origin; with `leave`, nothing stays cached. Goes on after
    /// `bound`, and asking again waits for it.
    ///
    /// # Errors
    /// When a device fails, or `bound` is over.
    pub(super) fn clear(&self, leave: bool, bound: Duration) -> Result<(), VolumeError> {
        let deadline = Instant::now() + bound;
        self.ask(move |worker| worker.shard.clear(leave))?;
        loop {
            let done = self.ask(|worker| worker.shard.cleared())?;
            if let Some(Err(errno)) = done.iter().flatten().find(|result| result.is_err()) {
                let device = self.config.origin.name().to_owned();
                let doing = "copying to it what flash alone has";
                return Err(VolumeError::Device { device, doing, errno: *errno });
            }
            if done.iter().all(Option::is_some) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(VolumeError::TooSlow(format!(
                    "{} units are not on the origin yet after {} s; it goes on, and asking again waits for it",
                    self.stats()?.units_dirty,
                    bound.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes down that this flash may be used for the origin, and no other.
    fn mark_in_use(&self, file: &StateFile, volume: u64, kept: &Kept) -> Result<(), VolumeError> {
        let volume = format!("{volume:016x}");
        file.put_out_of_use(Some(&volume))?;
        file.store(&FlashState {
            format: FORMAT,
            volume,
            in_use: true,
            // What a stop left in logs that do not outlive a crash is brought to the origin before they open.
            dirty: self.flash_keeps() || matches!(kept, Kept::Logs { dirty: true, .. }),
            origin: file.origin().to_owned(),
            origin_bytes: self.config.origin.geometry().bytes,
            origin_mtime_ns: None,
            reached: kept.reached(),
        })
    }

    /// The logs are of a new generation each: what was found is an earlier copy from now on, and nothing that a crash
    /// may take is dirty. How far they come in it a crash may take back.
    fn note_generations(&self, volume: u64) -> Result<(), VolumeError> {
        let Some(file) = &self.config.state else { return Ok(()) };
        let generation = |worker: &mut Worker| Some((worker.shard.cache_status()?.reached.0, 0));
        let reached = self.ask(generation)?;
        let Some(reached) = reached.into_iter().collect::<Option<Vec<_>>>() else { return Ok(()) };
        match file.load()? {
            Some(state) if state.in_use && state.volume == format!("{volume:016x}") => {
                file.store(&FlashState { reached, dirty: self.flash_keeps(), ..state })
            }
            _ => Ok(()),
        }
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
    pub fn mark_out_of_use(&self) -> Result<(), VolumeError> {
        let Some(file) = &self.config.state else { return Ok(()) };
        file.put_out_of_use(None)
    }

    /// Writes down that nothing is on flash that the origin does not have.
    fn mark_clean(&self) -> Result<(), VolumeError> {
        let Some(file) = &self.config.state else { return Ok(()) };
        match file.load()? {
            Some(state) if state.dirty => file.store(&FlashState { dirty: false, ..state }),
            _ => Ok(()),
        }
    }

    /// After a stop in good order: an origin that is written to from now on is told by its time.
    /// Where no flash was attached, or a worker was lost, nothing is known that the file does not say.
    pub(super) fn note_origin(&self) -> Result<(), VolumeError> {
        let Some(file) = &self.config.state else { return Ok(()) };
        let left = lock(&self.left);
        if left.len() < self.mailboxes.len() {
            return Ok(());
        }
        match file.load()? {
            Some(state) if state.in_use => {
                let dirty = self.flash_owns() && left.values().any(|left| left.dirty);
                let reached = left.values().map(|left| left.reached).collect();
                let origin_mtime_ns = self.origin_mtime();
                file.store(&FlashState { origin_mtime_ns, dirty, reached, ..state })
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
        while let Err(error) = self.mark_out_of_use() {
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

    /// Flushes the origin for a worker's journal or log, through the one that remembers failed flushes.
    pub(super) fn flush_for(&self, worker: u32) {
        let mailboxes = Arc::clone(&self.mailboxes);
        let flush = move |first: &mut Worker| {
            first.flush_origin(move |result| {
                let tell = move |worker: &mut Worker| worker.shard.origin_flushed(result);
                mailboxes[worker as usize].post(Message::Run(Box::new(tell)));
            });
        };
        self.mailboxes[FLUSH_WORKER as usize].post(Message::Run(Box::new(flush)));
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
