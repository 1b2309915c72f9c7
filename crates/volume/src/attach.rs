// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attaching a flash device, warm or cold, and detaching, failing and releasing it.
//!
//! [`admit`] decides whether the content of a flash may be used, and writes nothing; this file carries the decision out.
//! The state file marks the flash as out of use before the first write without it is acknowledged (design rule 10).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use larder_core::exec::DevId;
use larder_core::format::label::Found;
use larder_core::format::{
    Asked, AskedOrigin, Decision, FlashPlan, Kept, LogsKept, LogsPlan, Plan, Records, Vouched,
    Warm, WhyCold, admit,
};
use larder_core::journal::recover::Recovered;
use larder_core::pagelog::{Epochs, Seat};
use larder_core::request::Errno;
use larder_core::shard::Clear;
use larder_core::volumes::VolumeSet;
use larder_io::{Device, rough_size};

use super::cache::Cache;
use super::error::VolumeError;
use super::fits::check_memory;
use super::flash::{FlashDevice, label_of, lost_labels, refused, size_of};
use super::lock::lock;
use super::part::Part;
use super::raw_io::Raw;
use super::state_file::StateFile;
use super::verdict::{as_recorded, facts, unclosed_logs};
use super::worker::{FLUSH_WORKER, Message, Worker};

/// A flash device whose content was read, or that was formatted.
struct Opened {
    plan: Plan,
    /// The volume id on its label.
    volume: u64,
    /// Its metadata, empty if it starts cold.
    kept: Kept,
    /// The volumes of which its content may not be used.
    stale: Vec<u32>,
    /// Whether its content is used.
    warm: bool,
}

impl Opened {
    fn cold(flash: &FlashDevice, volume: u64, kept: Kept) -> Self {
        Self { plan: flash.plan, volume, kept, stale: Vec::new(), warm: false }
    }
}

impl Cache {
    /// Attaches a flash device and begins to cache.
    ///
    /// # Errors
    /// When one is attached already, memory does not suffice, the label cannot be written, or a
    /// worker does not answer. Nothing is written to a device that is refused.
    pub fn attach(&self, flash: FlashDevice) -> Result<(), VolumeError> {
        let _change = lock(&self.change);
        self.attach_locked(flash)?;
        // A flash that a user attaches is that of all volumes.
        lock(&self.state).outside.clear();
        Ok(())
    }

    /// As [`attach`](Self::attach), for the holder of the lock `change`.
    pub(super) fn attach_locked(&self, flash: FlashDevice) -> Result<(), VolumeError> {
        if let Some(attached) = &lock(&self.state).attached {
            return Err(VolumeError::Refused(format!(
                "{} is attached{}; detach it first",
                attached.flash.device.name(),
                if attached.leaving { " and still has operations in flight" } else { "" },
            )));
        }
        check_memory(self.memory(flash.plan.slots()).worst_bytes())?;
        // The block size of a missing origin is not known, and it has no clients until the next start.
        for part in self.parts.iter().filter(|part| !part.origin.is_absent()) {
            let origin_block = part.origin.geometry().block_bytes;
            let blocks = flash.plan.check_blocks(origin_block, self.config.choices.write);
            blocks
                .map_err(|e| VolumeError::Usage(format!("flash {}: {e}", flash.device.name())))?;
        }
        // The label names the volumes that share the flash.
        let flash = FlashDevice { plan: flash.plan.shared(self.config.digest()), ..flash };
        let Opened { plan, volume, kept, stale, warm } = self.open_flash(&flash)?;
        let flash = FlashDevice { plan, ..flash };
        let dev = DevId(self.next_dev.fetch_add(1, Ordering::Relaxed));
        let name = flash.device.name().to_owned();
        lock(&self.state).attach(dev, flash.clone(), volume, self.mailboxes.len());
        self.fit_curves(Some(self.flash_bytes(plan.slots())));
        self.check_pinned(plan.slots());
        match plan {
            Plan::Units(units) => {
                let left_out: VolumeSet = stale.iter().copied().collect();
                let found = (kept.recovered(), left_out);
                self.attach_units(units.place(dev, volume), &flash.device, found)?;
                stale.iter().try_for_each(|volume| self.renew(*volume))?;
            }
            Plan::Logs(logs) => {
                self.attach_logs(dev, &flash.device, logs, volume)?;
                self.note_opened(volume)?;
            }
        }
        self.adjust_workers()?;
        // Pinned ranges may be on a new flash already.
        let warm = if warm && self.stats()?.units_used > 0 { ", warm" } else { "" };
        let what = match plan {
            Plan::Units(_) => "units",
            Plan::Logs(_) => "pages",
        };
        tracing::info!(
            "flash {name} attached, {} {what}{warm}, {}",
            plan.slots(),
            self.config.title()
        );
        Ok(())
    }

    fn attach_units(
        &self,
        place: FlashPlan,
        device: &Device,
        (recovered, stale): (Vec<Recovered>, VolumeSet),
    ) -> Result<(), VolumeError> {
        let (device, name) = (device.clone(), device.name().to_owned());
        let recovered = Arc::new(recovered);
        let refused = self.ask(move |worker| {
            let own = recovered.get(worker.index() as usize);
            worker.attach(place, device.clone(), (own, stale))
        })?;
        if refused.contains(&true) {
            self.ask(|worker| worker.shard.detach())?;
            return Err(VolumeError::Refused(format!(
                "{name}: its metadata contradicts itself, and it may hold dirty data; nothing was written to it"
            )));
        }
        Ok(())
    }

    /// The workers open their logs, and report it with events. If a log cannot be opened, the flash fails, or is refused
    /// if it may hold dirty data.
    fn attach_logs(
        &self,
        dev: DevId,
        device: &Device,
        logs: LogsPlan,
        volume: u64,
    ) -> Result<(), VolumeError> {
        let (device, name) = (device.clone(), device.name().to_owned());
        let ignored = self.ignored()?;
        let epochs = Epochs::of(logs.shape.shards);
        self.ask(move |worker| {
            let place = logs.geometry(volume, worker.index());
            let seat = Seat::new(&epochs, worker.index());
            let ignored = ignored.get(worker.index() as usize).cloned().unwrap_or_default();
            worker.attach_log(dev, ((place, seat), ignored), device.clone());
        })?;
        // No time limit: reading a large log takes as long as the device takes.
        while lock(&self.state).logs_opening(dev) > 0 {
            if self.has_lost_a_worker() {
                return Err(VolumeError::WorkerLost("while it opened its page log"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let Some(why) = lock(&self.state).log_refused(dev) else {
            // Before a page is put that recovery would ignore.
            self.note_nothing_ignored()?;
            self.ask(|worker| worker.shard.all_logs_open())?;
            return Ok(());
        };
        self.ask(|worker| worker.shard.detach())?;
        Err(VolumeError::Refused(format!(
            "flash {name}: cannot be used ({why}), and it may hold dirty data"
        )))
    }

    /// Continues without the flash device, which is closed when it has no operations in flight. `progress` receives the
    /// number of workers that still wait for it.
    ///
    /// # Errors
    /// When none is attached, or it is not released within `bound`. The volume is then in pass-through, and the device is
    /// closed once it answers.
    pub fn detach(
        &self,
        bound: Duration,
        mut progress: impl FnMut(usize),
    ) -> Result<(), VolumeError> {
        let _change = lock(&self.change);
        let begin = Instant::now();
        if self.forget_failed() {
            return Ok(());
        }
        if let Err(error) = self.separate(bound) {
            // The flash stays attached if it cannot be separated, or if the state file cannot record it.
            self.ask(|worker| worker.shard.cancel_detach())?;
            return Err(error);
        }
        let bound = bound.saturating_sub(begin.elapsed());
        let left = lock(&self.state).leave();
        let Some((dev, name, mut emptied)) = left else {
            return Err(VolumeError::Refused("no flash device is attached".to_owned()));
        };
        tracing::info!("flash {name} is being detached; {} continues", self.config.title());
        self.ask(|worker| {
            worker.shard.detach();
            worker.shard.fenced();
        })?;
        let deadline = Instant::now() + bound;
        loop {
            let waiting = lock(&self.state).waiting_for(dev);
            if waiting == 0 {
                // Otherwise its logs would count as dirty at every later start.
                if let Some(Err(error)) = emptied.take().map(|(flash, id)| flash.blank(id)) {
                    tracing::warn!("{error}: another start with it needs --format");
                }
                tracing::info!("flash {name} detached");
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(VolumeError::TooSlow(format!(
                    "the flash device has operations in flight after {} s; the volume continues without it, and it is closed when they end",
                    bound.as_secs()
                )));
            }
            progress(waiting);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes flash and origin independent of each other, durably.
    fn separate(&self, bound: Duration) -> Result<(), VolumeError> {
        if lock(&self.state).attached.is_none() {
            return Ok(());
        }
        self.clear(Clear { volume: None, evict: true }, bound)?;
        self.note_cleaned()?;
        self.mark_out_of_use()
    }

    /// Reads what a flash device has, or formats it.
    fn open_flash(&self, flash: &FlashDevice) -> Result<Opened, VolumeError> {
        let (name, state) = (flash.device.name(), self.config.state.as_ref());
        let found = label_of(&flash.device)?;
        let labelled = if let Found::Label(label) = &found { Some(label.volume) } else { None };
        self.take_earlier(labelled)?;
        let plan = match &found {
            Found::Label(label) => flash.as_formatted(label, self.config.choices.placement),
            _ => flash.plan,
        };
        match self.decide(flash, &plan, &found)? {
            Decision::Refused(why) => {
                let refused = refused(&flash.device, &why);
                let other = self.recorded_elsewhere(&found)?;
                Err(match other {
                    Some(other) => VolumeError::Refused(format!("{refused}; {other}")),
                    None => refused,
                })
            }
            Decision::Warm(Warm { volume, mut kept, dirty_end, vouched, grew_from, stale }) => {
                let plan = with_dirty(name, plan, dirty_end);
                if plan.slots() > flash.plan.slots() {
                    check_memory(self.memory(plan.slots()).worst_bytes())?;
                }
                flash.write_durably(kept.begin(&plan, volume), "writing the metadata")?;
                say_vouched(name, vouched);
                say_grown(name, grew_from);
                say_losses(name, &kept);
                if let Found::Label(label) = &found
                    && lost_labels(&flash.device, label).is_ok_and(|lost| !lost.is_empty())
                {
                    tracing::warn!(
                        "flash {name}: one copy of its label is damaged; larder check --repair writes it again while no server uses the flash"
                    );
                }
                for (number, why) in &stale {
                    let of = &self.parts[*number as usize].name;
                    tracing::warn!("flash {name} starts cold for the volume '{of}': {why}");
                }
                let stale: Vec<u32> = stale.into_iter().map(|(number, _)| number).collect();
                self.note_attached(volume, &kept, &stale)?;
                Ok(Opened { plan, volume, kept, stale, warm: true })
            }
            Decision::Cold { why, loses_dirty } => {
                if loses_dirty {
                    tracing::warn!("flash {name}: its dirty data is dropped, as --format requires");
                }
                labelled.map_or(Ok(()), |volume| self.note_formatted(volume))?;
                // If another flash may hold dirty data, this one must not be written to.
                self.mark_out_of_use()?;
                if state.is_none() || !flash.plan.keeps_metadata() {
                    return Ok(Opened::cold(flash, flash.label()?, Kept::nothing(&flash.plan)));
                }
                let searched = match (&why, state.and_then(|file| file.path().parent())) {
                    (WhyCold::Unnamed, Some(dir)) => format!(" (searched {})", dir.display()),
                    _ => String::new(),
                };
                match why {
                    WhyCold::New => tracing::info!("flash {name} starts cold: {why}"),
                    _ => tracing::warn!("flash {name} starts cold: {why}{searched}"),
                }
                let volume = flash.label()?;
                let kept = flash.kept(volume).map_err(|why| {
                    VolumeError::Refused(format!("{name}: {why}, though it was just formatted"))
                })?;
                self.note_attached(volume, &kept, &[])?;
                Ok(Opened::cold(flash, volume, kept))
            }
        }
    }

    /// The volume whose state file names the flash of this label, if it is not this volume.
    fn recorded_elsewhere(&self, found: &Found) -> Result<Option<String>, VolumeError> {
        let (Some(own), Found::Label(label)) = (&self.config.state, found) else { return Ok(None) };
        let other = own.of_flash(label.volume)?.filter(|(file, _)| file.path() != own.path());
        Ok(other.map(|(file, record)| {
            let origins = StateFile::in_one_line(&record.origins_in_words());
            format!("state file {} records it for the origin {origins}", file.path().display())
        }))
    }

    /// What to do with a flash on which this label was found.
    fn decide(
        &self,
        flash: &FlashDevice,
        plan: &Plan,
        found: &Found,
    ) -> Result<Decision, VolumeError> {
        let (mut own, mut naming) = (None, None);
        if let Some(file) = &self.config.state {
            own = file.load()?;
            if let Found::Label(label) = found {
                naming = file.of_flash(label.volume)?.map(|(_, record)| record);
            }
        }
        let records = Records { own: own.as_ref(), naming: naming.as_ref() };
        let place = |number: usize| self.config.state.as_ref()?.origins().get(number);
        let asked_of = |(number, part): (usize, &Part)| {
            let recorded = own.as_ref().and_then(|record| record.origins.get(number));
            let facts = match recorded.filter(|_| part.origin.is_absent()) {
                Some(recorded) => as_recorded(recorded),
                None => facts(&part.origin),
            };
            AskedOrigin { facts, place: place(number) }
        };
        let origins: Vec<_> = self.parts.iter().enumerate().map(asked_of).collect();
        let asked = Asked {
            plan,
            device: size_of(&flash.device),
            write: self.config.choices.write,
            wishes: flash.wishes,
            origins: &origins,
            records: self.config.state.is_some().then_some(records),
        };
        Ok(admit(found, &asked, &Raw(&flash.device)))
    }

    /// A flash device failed: no shard may use it.
    pub(super) fn flash_failed(self: &Arc<Self>, dev: DevId, why: &str) {
        let Some(alarm) = lock(&self.state).fail(dev, why) else { return };
        self.keep_recent(&alarm);
        tracing::error!(
            "ALARM: {alarm}; {} continues in pass-through, without loss; attach another device",
            self.config.title()
        );
        // Writes wait for this, so it is tried until it succeeds.
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

    /// Flushes the origin for a worker's journal or log, through the worker that remembers failed flushes.
    pub(super) fn flush_for(&self, worker: u32, volume: u32) {
        let mailboxes = Arc::clone(&self.mailboxes);
        let flush = move |first: &mut Worker| {
            first.flush_origin(volume, move |result| {
                let tell = move |worker: &mut Worker| worker.shard.origin_flushed(volume, result);
                mailboxes[worker as usize].post(Message::Run(Box::new(tell)));
            });
        };
        self.mailboxes[FLUSH_WORKER as usize].post(Message::Run(Box::new(flush)));
    }

    /// Changes go past the page log of a worker, or its log began again: records which pages its recovery ignores.
    pub(super) fn log_ignores(&self, worker: u32, pages: &[Range<u64>]) {
        let recorded = self.note_ignored(worker, pages).map_err(|error| {
            tracing::error!("a change past flash fails: {error}");
            Errno::EIO
        });
        let tell = move |worker: &mut Worker| worker.shard.ignores_recorded(recorded);
        self.mailboxes[worker as usize].post(Message::Run(Box::new(tell)));
    }

    /// A worker has released a device, which is closed when all workers have.
    pub(super) fn flash_released(self: &Arc<Self>, dev: DevId) {
        if !lock(&self.state).released(dev) {
            return;
        }
        for mailbox in self.mailboxes.iter() {
            let forget = move |worker: &mut Worker| worker.driver.detach(dev);
            mailbox.post(Message::Run(Box::new(forget)));
        }
        // These messages drop the workers' handles; the volume's own handle is dropped already.
        let _ = self.ask(|_| ());
        if lock(&self.state).forget(dev) {
            self.retry_flash();
        }
    }
}

/// A plan that has all slots with dirty data.
fn with_dirty(flash: &str, plan: Plan, dirty_end: u64) -> Plan {
    match plan {
        Plan::Units(units) if dirty_end > units.end() => {
            tracing::warn!(
                "flash {flash}: uses {}, since its dirty data takes so much; accepted: a larger flash_size, or larder resize",
                rough_size(dirty_end)
            );
            units.sized(dirty_end).map_or(plan, Plan::Units)
        }
        Plan::Units(_) | Plan::Logs(_) => plan,
    }
}

/// Logs what the user vouched for.
fn say_vouched(flash: &str, vouched: Option<Vouched>) {
    match vouched {
        None => {}
        Some(Vouched::Flash) => tracing::warn!("flash {flash}: adopted on the user's word"),
        Some(Vouched::Place) => {
            tracing::warn!(
                "flash {flash}: used on the user's word, though the origin has another path"
            );
        }
        Some(Vouched::Origin) => {
            let why = WhyCold::OriginChanged;
            tracing::warn!("flash {flash}: used on the user's word, though {why}");
        }
    }
}

/// Logs that the origin has grown.
fn say_grown(flash: &str, grew_from: Option<u64>) {
    if let Some(bytes) = grew_from {
        tracing::info!("flash {flash}: the origin has grown from {}", rough_size(bytes));
    }
}

/// Logs which metadata is invalid.
fn say_losses(flash: &str, kept: &Kept) {
    let &Kept::Logs(LogsKept { unclosed, torn, .. }) = kept else { return };
    if unclosed > 0 {
        tracing::warn!("flash {flash} starts cold: {}", unclosed_logs(unclosed));
    }
    if torn > 0 {
        tracing::warn!(
            "flash {flash}: the last {torn} blocks of its page logs are invalid: their first batch is incomplete, \
             as after a power cut, or damaged"
        );
    }
}
