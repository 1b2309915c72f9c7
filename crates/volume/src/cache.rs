// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache being served: its devices, its worker threads, and what an operator may do with it. It serves one volume, or
//! several that share its flash.
//!
//! Purpose: the handle that volumes (`volume.rs`) and the control socket share. It holds no state that the workers need: each
//! operation is a message to them.
//!
//! Offsets here are places in the space of all volumes (`larder_core::volumes`).
//!
//! Invariants: a flash device that failed for one shard is taken from all of them. A device is closed only when no shard
//! has operations in flight on it, so that the same device is not attached again during late writes (design rule 5).
//! Attach and detach exclude each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larder_core::buf::{keep_at_most, kept_bytes};
use larder_core::config::{CacheSpec, Memory};
use larder_core::event::Event;
use larder_core::exec::DevId;
use larder_core::request::Errno;
use larder_core::shape::Shape;
use larder_core::shard::Shard;
use larder_core::volumes::{MOST_VOLUMES, Volumes};
use larder_io::Driver;

use super::config::CacheConfig;
use super::connection::Accepted;
use super::curve::MOST_TIMES;
use super::error::VolumeError;
use super::flash::check_blocks;
use super::left::FlashLeft;
use super::lock::lock;
use super::mailbox::Mailbox;
use super::part::Part;
use super::recent::Kept;
use super::settings::Settings;
use super::state::State;
use super::stats::{Clients, Stats};
use super::volume_ranges::Asked;
use super::worker::{Call, Message, ORIGINS, Others, Report, Shared, Worker};

/// How long a worker may take to answer a question about itself.
const ANSWER_BOUND: Duration = Duration::from_secs(10);

/// A cache being served, see the module.
pub struct Cache {
    pub(crate) config: CacheConfig,
    /// The specification of its cache.
    pub(crate) spec: CacheSpec,
    shape: Shape,
    pub(crate) volumes: Volumes,
    /// What belongs to each volume.
    pub(crate) parts: Arc<[Part]>,
    pub(crate) mailboxes: Arc<Vec<Mailbox<Message>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) running: Arc<AtomicUsize>,
    /// A stop has begun: its workers end.
    pub(crate) stopping: AtomicBool,
    /// Workers that hold requests or may still get some.
    holding: Arc<AtomicUsize>,
    /// Client requests that workers did not answer before they stopped.
    pub(crate) given_up: Arc<AtomicU64>,
    /// The state of flash from the workers that have ended.
    pub(crate) left: Arc<Mutex<BTreeMap<u32, FlashLeft>>>,
    /// Whether a worker left a page log that was not closed.
    pub(crate) unsettled: Arc<AtomicBool>,
    others: Others,
    pub(crate) state: Mutex<State>,
    /// Held while a record of the state file is changed.
    pub(crate) records: Mutex<()>,
    /// Held while a flash device, or a volume, is attached or detached.
    pub(crate) change: Mutex<()>,
    pub(crate) next_dev: AtomicU32,
    next_worker: AtomicUsize,
    /// Whether requests are recorded.
    pub(crate) recorded: Arc<AtomicBool>,
    /// Held while settings are changed.
    pub(crate) setting: Mutex<()>,
    /// Those that may change, as they are in use.
    pub(crate) settings: Mutex<Settings>,
    pub(crate) started: Instant,
    /// The ranges of each volume that are pinned and excluded.
    pub(crate) asked: Mutex<Vec<Asked>>,
    /// The requests before the last alarm.
    pub(crate) kept: Kept,
}

/// Counts a worker among the running ones, however it ends.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Cache {
    /// Starts the workers, in pass-through.
    ///
    /// # Errors
    /// When a setting is invalid, or a ring cannot be set up.
    pub fn start(config: CacheConfig) -> Result<Arc<Self>, VolumeError> {
        let volumes = config.placed()?;
        let shape = config.choices.shape(volumes.bytes(), config.workers);
        if shape.units() > Shape::MOST_UNITS {
            return Err(VolumeError::Usage(format!(
                "{}: {} units per worker do not fit the map; accepted: at most {} (use a larger --unit or more --workers)",
                config.origins_in_words(),
                shape.units(),
                Shape::MOST_UNITS,
            )));
        }
        config.volumes.iter().try_for_each(|of| check_blocks(&of.origin))?;
        Settings::of(&config).check()?;
        let spec = CacheSpec::try_from(&config.choices)
            .map_err(|rejected| VolumeError::Usage(rejected.to_string()))?;
        if config.volumes.len() > 1 && !spec.has_units() {
            return Err(VolumeError::Usage(
                "a page log has one volume; accepted for several volumes over one flash: a preset with units".to_owned(),
            ));
        }
        let part = |(of, range)| Part::new(of, range, &spec, &config.clients);
        let parts: Vec<Part> = config.volumes.iter().zip(volumes.ranges()).map(part).collect();
        let mailboxes: Arc<Vec<Mailbox<Message>>> =
            Arc::new((0..config.workers).map(|_| Mailbox::default()).collect());
        let (reports, from_workers) = channel();
        let cache = Arc::new(Self {
            threads: Mutex::default(),
            running: Arc::default(),
            stopping: AtomicBool::new(false),
            given_up: Arc::default(),
            unsettled: Arc::default(),
            others: Others::default(),
            left: Arc::default(),
            holding: Arc::new(AtomicUsize::new(config.workers as usize)),
            mailboxes,
            state: Mutex::default(),
            records: Mutex::default(),
            change: Mutex::default(),
            // The numbers before are those of the origins.
            next_dev: AtomicU32::new(MOST_VOLUMES as u32),
            next_worker: AtomicUsize::new(0),
            recorded: Arc::default(),
            setting: Mutex::default(),
            settings: Mutex::new(Settings::of(&config)),
            started: Instant::now(),
            asked: Mutex::default(),
            kept: Mutex::new(vec![None; parts.len()]),
            spec,
            shape,
            volumes,
            parts: parts.into(),
            config,
        });
        for index in 0..shape.shards {
            cache.start_worker(shape.of_shard(index), reports.clone())?;
        }
        drop(reports);
        cache.fit_curves(None);
        cache.begin_ranges()?;
        let watched = Arc::downgrade(&cache);
        let watch = move || watch(&watched, &from_workers);
        spawn("larder-watch", watch)?;
        Ok(cache)
    }

    fn start_worker(&self, shape: Shape, reports: Sender<Report>) -> Result<(), VolumeError> {
        let (ready, is_ready) = channel();
        let shared = Shared {
            mailboxes: Arc::clone(&self.mailboxes),
            holding: Arc::clone(&self.holding),
            volumes: self.volumes.clone(),
            parts: Arc::clone(&self.parts),
            flush_shards: self.spec.flushes_every_shard(),
            budget: self.config.clients.budget.clone(),
            others: self.others.clone(),
            settings: self.settings(),
        };
        let running = Arc::clone(&self.running);
        let (spec, limits) = (self.spec.clone(), self.config.limits);
        let given_up = Arc::clone(&self.given_up);
        let unsettled = Arc::clone(&self.unsettled);
        let all_left = Arc::clone(&self.left);
        running.fetch_add(1, Ordering::SeqCst);
        let body = move || {
            let _running = Running(running);
            let index = shape.shard;
            larder_io::process::mark_io_thread();
            keep_at_most(shared.budget.kept_each() as usize);
            match Driver::new() {
                Ok(mut driver) => {
                    for (number, part) in (0..).zip(shared.parts.iter()) {
                        driver.attach(DevId(number), part.origin.clone());
                    }
                    shared.mailboxes[index as usize].open(driver.waker());
                    let volumes = shared.volumes.clone();
                    let shard = Shard::shared(shape, volumes, &spec, limits, ORIGINS);
                    let _ = ready.send(Ok(()));
                    let worker = Worker::new(shape, driver, shard, shared, reports);
                    match worker.run() {
                        Ok(left) => {
                            given_up.fetch_add(left.given_up, Ordering::SeqCst);
                            lock(&all_left).extend(left.flash.map(|flash| (index, flash)));
                            unsettled.fetch_or(left.unsettled, Ordering::SeqCst);
                        }
                        Err(error) => tracing::error!("worker {index} stops: {error}"),
                    }
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        };
        let thread = spawn(&format!("larder-{}", shape.shard), body)?;
        lock(&self.threads).push(thread);
        match is_ready.recv() {
            Ok(result) => Ok(result?),
            Err(_) => Err(VolumeError::WorkerLost("at its start")),
        }
    }

    /// The parts of the cache.
    #[must_use]
    pub fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// Its sizes.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Hands a negotiated connection of a volume to a worker.
    pub(crate) fn welcome(&self, volume: u32, accepted: Accepted) {
        let next = self.next_worker.fetch_add(1, Ordering::Relaxed) % self.mailboxes.len();
        self.mailboxes[next].post(Message::Connection { volume, accepted });
    }

    pub(crate) fn post(&self, call: Call) {
        let owner = self.shape.shard_at(call.offset);
        self.mailboxes[owner as usize].post(Message::Call(call));
    }

    /// Runs something on every worker; their answers, in the order of arrival.
    pub(crate) fn ask<R: Send + 'static>(
        &self,
        question: impl Fn(&mut Worker) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, VolumeError> {
        if self.stopping.load(Ordering::SeqCst) && self.has_lost_a_worker() {
            return Err(VolumeError::Refused("the server is stopping".to_owned()));
        }
        if self.has_lost_a_worker() {
            return Err(VolumeError::WorkerLost("earlier"));
        }
        let (answer, answers) = channel();
        for mailbox in self.mailboxes.iter() {
            let (question, answer) = (question.clone(), answer.clone());
            let run = move |worker: &mut Worker| drop(answer.send(question(worker)));
            mailbox.post(Message::Run(Box::new(run)));
        }
        drop(answer);
        let deadline = Instant::now() + ANSWER_BOUND;
        let count = self.mailboxes.len();
        let unanswered = |why| match why {
            RecvTimeoutError::Timeout => {
                VolumeError::TooSlow("a worker does not answer".to_owned())
            }
            RecvTimeoutError::Disconnected if self.stopping.load(Ordering::SeqCst) => {
                VolumeError::Refused("the server is stopping".to_owned())
            }
            RecvTimeoutError::Disconnected => VolumeError::WorkerLost("before it answered"),
        };
        (0..count)
            .map(|_| {
                let left = deadline.saturating_duration_since(Instant::now());
                answers.recv_timeout(left).map_err(unanswered)
            })
            .collect()
    }

    /// Whether each worker answers, within 10 s.
    #[must_use]
    pub fn workers_answer(&self) -> bool {
        self.ask(|_| ()).is_ok()
    }

    /// Waits until no write of a volume's clients is in flight that has no pass.
    ///
    /// # Errors
    /// When a worker does not answer, or the origin does not answer writes within `bound`.
    pub(crate) fn end_loose_writes(&self, volume: u32, bound: Duration) -> Result<(), VolumeError> {
        let deadline = Instant::now() + bound;
        while self.ask(move |w| w.loose_writes(volume))?.iter().sum::<u64>() > 0 {
            if Instant::now() > deadline {
                return Err(VolumeError::TooSlow("the origin does not answer writes".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The counters of all volumes, or of one: what is not counted by volume is that of the cache.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub(crate) fn stats_of(&self, volume: Option<u32>) -> Result<Stats, VolumeError> {
        let of_volume = volume.filter(|_| self.parts.len() > 1);
        let answers = self.ask(move |w| {
            let mut cache = w.shard.cache_status();
            if let (Some(cache), Some(volume)) = (&mut cache, of_volume) {
                (cache.units_used, cache.units_dirty) = w.shard.units_of(volume);
            }
            let (bytes, noted_bytes) = (w.client_bytes(), w.observed.memory_bytes());
            let clients = Clients { bytes, noted_bytes, kept_bytes: kept_bytes() as u64 };
            (w.tally(volume), w.shard.counters(), cache, clients, w.shard.budget_left())
        })?;
        let state = lock(&self.state);
        let slots = state.attached.as_ref().map_or(0, |a| a.flash.plan.slots());
        let mut stats = Stats::new(self.memory(slots));
        for (tally, counters, cache, clients, left) in answers {
            stats.add(&tally, counters, cache, clients);
            let sum = stats.flash_write_left_bytes.unwrap_or(0);
            stats.flash_write_left_bytes = left.map(|left| sum + left);
        }
        stats.memory_bytes += self.parts.iter().map(|part| part.curve.memory_bytes()).sum::<u64>();
        let kept =
            lock(&self.kept).iter().flatten().map(|recent| recent.memory_bytes()).sum::<u64>();
        stats.memory_bytes += kept;
        stats.memory_waits = self.config.clients.budget.waits();
        let word = state.word(stats.suspended);
        let of = |volume: u32| state.word_of(&self.parts[volume as usize], volume, word);
        stats.state = volume.map_or(word, of);
        Ok(stats)
    }

    /// The counters of all volumes.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn stats(&self) -> Result<Stats, VolumeError> {
        self.stats_of(None)
    }

    /// The memory that the cache needs with what is attached.
    pub(crate) fn memory(&self, slots: u64) -> Memory {
        self.memory_with(&self.settings(), slots)
    }

    /// The same with other settings.
    pub(crate) fn memory_with(&self, settings: &Settings, slots: u64) -> Memory {
        let CacheConfig { choices, workers, .. } = &self.config;
        let limits = settings.limits(&self.config.limits, None);
        let choices = &settings.choices(choices).unwrap_or_else(|_| choices.clone());
        let origin_bytes = if slots > 0 { self.volumes.bytes() } else { 0 };
        Memory::of(origin_bytes, self.flash_bytes(slots), choices, &limits, *workers)
    }

    /// The data that so many slots hold.
    pub(crate) fn flash_bytes(&self, slots: u64) -> u64 {
        slots * self.config.choices.cached_bytes()
    }

    /// Lets the curves of the volumes show sizes around that of the flash.
    pub(crate) fn fit_curves(&self, flash_bytes: Option<u64>) {
        if self.settings().recorder_bytes == 0 {
            return self.parts.iter().for_each(|part| part.curve.end());
        }
        for part in self.parts.iter() {
            let bytes = part.range.end - part.range.start;
            let most = flash_bytes.map_or(bytes, |flash| flash.saturating_mul(MOST_TIMES));
            part.curve.fit(most.min(bytes));
        }
    }

    /// An origin could not flush.
    fn origin_flush_failed(self: &Arc<Self>, volume: u32, errno: Errno) {
        let why = format!(
            "the origin could not flush ({errno}): every FLUSH fails until the volume is restarted"
        );
        tracing::error!("{}{why}", self.config.of_volume(volume));
        self.keep_recent(&why);
        lock(&self.state).origin_alarms.insert(volume, why);
    }

    /// An origin does not answer a worker, or answers it again. Logged once for all workers.
    fn origin_overdue(self: &Arc<Self>, worker: u32, volume: u32, overdue: bool) {
        if !lock(&self.state).origin_overdue(volume, worker, overdue) {
            return;
        }
        let of = self.config.of_volume(volume);
        if overdue {
            self.keep_recent(&format!("{of}the origin does not answer"));
        }
        match overdue {
            true => tracing::warn!(
                "{of}the origin does not answer: its clients wait, and the other volumes continue without it"
            ),
            false => tracing::info!("{of}the origin answers again"),
        }
    }

    /// Whether flash holds dirty data, once the volume has stopped.
    #[must_use]
    pub fn left_dirty(&self) -> bool {
        lock(&self.left).values().any(|left| !left.dirty.is_empty())
    }

    /// Whether all workers have ended.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.running.load(Ordering::SeqCst) == 0
    }

    /// Whether a worker died: no thread serves its units.
    #[must_use]
    pub fn has_lost_a_worker(&self) -> bool {
        self.running.load(Ordering::SeqCst) < self.mailboxes.len()
    }
}

pub(crate) fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, VolumeError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(VolumeError::Thread)
}

/// Processes the reports of the workers until the last worker has ended.
fn watch(cache: &std::sync::Weak<Cache>, reports: &Receiver<Report>) {
    for Report { worker, event } in reports {
        let Some(cache) = cache.upgrade() else { return };
        match event {
            Event::NeedsOriginFlush { volume: of } => cache.flush_for(worker, of),
            Event::LogIgnores { pages, .. } => cache.log_ignores(worker, &pages),
            Event::FlashFailed { dev, why } => cache.flash_failed(dev, &why),
            Event::FlashReleased { dev } => cache.flash_released(dev),
            Event::OriginFlushFailed { volume, errno } => cache.origin_flush_failed(volume, errno),
            Event::OriginOverdue { volume } => cache.origin_overdue(worker, volume, true),
            Event::OriginAnswers { volume } => cache.origin_overdue(worker, volume, false),
            Event::FlashErrors { why, .. } => {
                let why = format!("flash I/O error; dirty data is at risk: {why}");
                // Logged once, not for every request that fails.
                let first = lock(&cache.state).flash_errors.insert(worker, why.clone()).is_none();
                if first {
                    tracing::error!("ALARM: {why}");
                    cache.keep_recent(&why);
                }
            }
            Event::FlashDamaged { at } => cache.flash_damaged(at),
            Event::DirtyDamaged { at } => cache.dirty_damaged(at),
            Event::FlashWorks { .. } => {
                if lock(&cache.state).flash_errors.remove(&worker).is_some() {
                    tracing::info!("flash works again");
                }
            }
            Event::OriginRefuses { volume, errno: Some(errno) } => {
                let key = (volume, worker);
                if lock(&cache.state).origin_refuses.insert(key, errno).is_none() {
                    let of = cache.config.of_volume(volume);
                    let why = format!("{of}the origin refuses dirty data from flash ({errno})");
                    tracing::error!("{why}; it is tried again, and flash keeps the data");
                    cache.keep_recent(&why);
                }
            }
            Event::OriginRefuses { volume, errno: None } => {
                if lock(&cache.state).origin_refuses.remove(&(volume, worker)).is_some() {
                    let of = cache.config.of_volume(volume);
                    tracing::info!("{of}the origin accepts dirty data from flash again");
                }
            }
            Event::FlashSuspended { .. } => {
                tracing::warn!("a flash operation is overdue: flash is bypassed until it answers");
            }
            Event::LogOpened { dev, warm } => {
                let state = if warm { "warm" } else { "cold" };
                tracing::debug!("page log of worker {worker} opened, {state}");
                lock(&cache.state).opened(dev, None);
            }
            Event::LogRefused { dev, why } => lock(&cache.state).opened(dev, Some(why)),
            Event::FlashResumed { .. } => tracing::info!("flash answers again and is used"),
        }
    }
}
