// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a flash device comes and goes: attached warm or cold, detached, failed, released.
//!
//! Whether what is on a flash may be used is decided by [`admit`], which writes nothing; here it is carried out. The
//! state file says "out of use" before the first write that goes on without the flash is answered (design rule 10).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use larder_core::exec::DevId;
use larder_core::format::label::Found;
use larder_core::format::{
    Asked, Decision, FlashPlan, Kept, LogsKept, LogsPlan, OriginFacts, Plan, Records, Vouched,
    Warm, WhyCold, admit,
};
use larder_core::journal::recover::Recovered;
use larder_io::Device;

use super::error::VolumeError;
use super::fits::check_memory;
use super::flash::{FlashDevice, label_of, refused, size_of};
use super::raw_io::Raw;
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
        let origin_block = self.config.origin.geometry().block_bytes;
        let blocks = flash.plan.check_blocks(origin_block, self.config.choices.write);
        blocks.map_err(|e| VolumeError::Usage(format!("flash {}: {e}", flash.device.name())))?;
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
                self.note_opened(volume)?;
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
        let (device, name) = (device.clone(), device.name().to_owned());
        let recovered = Arc::new(recovered);
        let refused = self.ask(move |worker| {
            let own = recovered.get(worker.index() as usize);
            worker.attach(place, device.clone(), own)
        })?;
        if refused.contains(&true) {
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
        let Some(why) = lock(&self.state).log_refused(dev) else {
            self.ask(|worker| worker.shard.all_logs_open())?;
            return Ok(());
        };
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
            self.ask(|worker| worker.shard.cancel_detach())?;
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
        self.clear(true, bound)?;
        self.note_cleaned()?;
        self.mark_out_of_use()
    }

    /// The volume id of a flash device, and what its metadata says: nothing if it starts cold.
    fn open_flash(&self, flash: &FlashDevice) -> Result<(u64, Kept), VolumeError> {
        let (name, state) = (flash.device.name(), self.config.state.as_ref());
        let found = label_of(&flash.device)?;
        if let Some(file) = state {
            let labelled = if let Found::Label(label) = &found { Some(label.volume) } else { None };
            file.take_earlier(labelled)?;
        }
        match self.decide(flash, &found)? {
            Decision::Refused(why) => Err(refused(&flash.device, &why)),
            Decision::Warm(Warm { volume, kept, vouched }) => {
                say_vouched(name, vouched);
                say_losses(name, &kept);
                self.note_attached(volume, &kept)?;
                Ok((volume, kept))
            }
            Decision::Cold { why, loses_dirty } => {
                if loses_dirty {
                    tracing::warn!("flash {name}: what it alone had is given up, as --format says");
                }
                if let (Some(file), Found::Label(label)) = (state, &found) {
                    file.give_up(label.volume)?;
                }
                // Another flash may have data, and this one is not to be written to then.
                self.mark_out_of_use()?;
                if state.is_none() || !flash.plan.keeps_metadata() {
                    return Ok((flash.label()?, Kept::nothing(&flash.plan)));
                }
                tracing::warn!("flash {name} starts cold: {why}");
                let volume = flash.label()?;
                let kept = flash.kept(volume).map_err(|why| {
                    VolumeError::Refused(format!("{name}: {why}, though it was just formatted"))
                })?;
                self.note_attached(volume, &kept)?;
                Ok((volume, kept))
            }
        }
    }

    /// What to do with a flash on which this label was found.
    fn decide(&self, flash: &FlashDevice, found: &Found) -> Result<Decision, VolumeError> {
        let (mut own, mut naming) = (None, None);
        if let Some(file) = &self.config.state {
            own = file.load()?;
            if let Found::Label(label) = found {
                naming = file.of_flash(label.volume)?.map(|(_, record)| record);
            }
        }
        let modified = self.config.origin.modified_before_open_ns();
        let records = Records { own: own.as_ref(), naming: naming.as_ref() };
        let asked = Asked {
            plan: &flash.plan,
            device: size_of(&flash.device),
            write: self.config.choices.write,
            wishes: flash.wishes,
            origin: OriginFacts {
                bytes: self.config.origin.geometry().bytes,
                modified_ns: modified.and_then(|ns| i64::try_from(ns).ok()),
            },
            records: self.config.state.is_some().then_some(records),
        };
        Ok(admit(found, &asked, &Raw(&flash.device)))
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

/// Tells the log of the process what the user vouched for.
fn say_vouched(flash: &str, vouched: Option<Vouched>) {
    match vouched {
        None => {}
        Some(Vouched::Flash) => tracing::warn!("flash {flash}: adopted on the user's word"),
        Some(Vouched::Origin) => {
            let why = WhyCold::OriginChanged;
            tracing::warn!("flash {flash}: used on the user's word, though {why}");
        }
    }
}

/// Tells the log of the process what of the metadata does not count.
fn say_losses(flash: &str, kept: &Kept) {
    let &Kept::Logs(LogsKept { unclosed, torn, .. }) = kept else { return };
    if unclosed > 0 {
        tracing::warn!(
            "flash {flash} starts cold: {unclosed} of its page logs were not closed, as after a crash"
        );
    }
    if torn > 0 {
        tracing::warn!(
            "flash {flash}: the last {torn} blocks of its page logs do not count: the first batch of them is \
             not whole, as after a power cut, or damaged since"
        );
    }
}
