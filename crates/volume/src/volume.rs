// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume being served: its devices, its worker threads, and what an operator may do with it.
//!
//! Purpose: the handle that listeners, the control socket and in-process clients share. It holds
//! no state that the workers need: each operation is a message to them.
//!
//! Invariants: a flash device that failed for one shard is taken from all of them. A device is closed only when no shard
//! has operations in flight on it, so that the same device is not attached again during late writes (design rule 5).
//! Attach and detach exclude each other.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use larder_core::buf::{Buf, keep_at_most, kept_bytes};
use larder_core::config::{CacheSpec, Memory};
use larder_core::event::Event;
use larder_core::exec::DevId;
use larder_core::request::{Errno, Kind};
use larder_core::shape::Shape;
use larder_core::shard::Shard;
use larder_io::Driver;

use super::config::VolumeConfig;
use super::connection::Accepted;
use super::doubt::Doubt;
use super::error::VolumeError;
use super::extents::{Map, Seek};
use super::flash::check_blocks;
use super::left::FlashLeft;
use super::mailbox::Mailbox;
use super::overlaps::Overlaps;
use super::peer::{Peer, RESERVED};
use super::queue::Queue;
use super::seat::{Full, Seat, Seats};
use super::state::{Clients, State, Stats, Status};
use super::worker::{Call, Message, Others, Report, Shared, Worker};

pub(crate) const ORIGIN: DevId = DevId(0);
/// How long a worker may take to answer a question about itself.
const ANSWER_BOUND: Duration = Duration::from_secs(10);

/// A volume being served, see the module.
pub struct Volume {
    pub(crate) config: VolumeConfig,
    /// The specification of its cache.
    pub(crate) spec: CacheSpec,
    shape: Shape,
    pub(crate) mailboxes: Arc<Vec<Mailbox<Message>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) running: Arc<AtomicUsize>,
    /// Workers that hold requests or may still get some.
    holding: Arc<AtomicUsize>,
    /// Data and holes.
    map: Arc<Map>,
    /// Client requests that workers did not answer before they stopped.
    pub(crate) given_up: Arc<AtomicU64>,
    /// The state of flash from the workers that have ended.
    pub(crate) left: Arc<Mutex<BTreeMap<u32, FlashLeft>>>,
    /// Whether a worker left a page log that was not closed.
    pub(crate) unsettled: Arc<AtomicBool>,
    /// The error of a failed flush of the origin, known once the workers have ended.
    pub(crate) flush_failed: Arc<OnceLock<Errno>>,
    doubt: Doubt,
    others: Others,
    pub(crate) state: Mutex<State>,
    /// Held while a record of the state file is changed.
    pub(crate) records: Mutex<()>,
    /// Held while a flash device is attached or detached.
    pub(crate) change: Mutex<()>,
    pub(crate) next_dev: AtomicU32,
    next_worker: AtomicUsize,
    /// Whether its requests are recorded.
    pub(crate) recorded: Arc<AtomicBool>,
    /// Writes of parts of blocks, once the volume is a file.
    overlaps: Overlaps,
    /// The files that are the volume at the moment.
    files: Mutex<Vec<PathBuf>>,
    /// Places for its connections: clients of another volume take none of them.
    seats: Seats,
}

/// Counts a worker among the running ones, however it ends.
struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Volume {
    /// Starts the workers, in pass-through.
    ///
    /// # Errors
    /// When a setting is invalid, or a ring cannot be set up.
    pub fn start(config: VolumeConfig) -> Result<Arc<Self>, VolumeError> {
        let shape = config.choices.shape(config.origin.geometry().bytes, config.workers);
        if shape.units() > Shape::MOST_UNITS {
            return Err(VolumeError::Usage(format!(
                "{}: {} units per worker do not fit the map; accepted: at most {} (use a larger --unit or more --workers)",
                config.origin.name(),
                shape.units(),
                Shape::MOST_UNITS,
            )));
        }
        check_blocks(&config.origin)?;
        let spec = CacheSpec::try_from(&config.choices)
            .map_err(|rejected| VolumeError::Usage(rejected.to_string()))?;
        let mailboxes: Arc<Vec<Mailbox<Message>>> =
            Arc::new((0..config.workers).map(|_| Mailbox::default()).collect());
        let (reports, from_workers) = channel();
        let running = Arc::new(AtomicUsize::new(0));
        let volume = Arc::new(Self {
            threads: Mutex::default(),
            running,
            given_up: Arc::default(),
            unsettled: Arc::default(),
            flush_failed: Arc::default(),
            doubt: Doubt::of(&config.origin),
            others: Others::default(),
            left: Arc::default(),
            holding: Arc::new(AtomicUsize::new(config.workers as usize)),
            map: Arc::new(Map::new(spec.with_holes(config.origin.clone()))),
            mailboxes,
            state: Mutex::default(),
            records: Mutex::default(),
            change: Mutex::default(),
            next_dev: AtomicU32::new(1),
            next_worker: AtomicUsize::new(0),
            recorded: Arc::default(),
            overlaps: Overlaps::default(),
            files: Mutex::default(),
            seats: Seats::new(config.clients.most_each, RESERVED),
            spec,
            shape,
            config,
        });
        for index in 0..shape.shards {
            volume.start_worker(shape.of_shard(index), reports.clone())?;
        }
        drop(reports);
        let watched = Arc::downgrade(&volume);
        let watch = move || watch(&watched, &from_workers);
        spawn("larder-watch", watch)?;
        Ok(volume)
    }

    fn start_worker(&self, shape: Shape, reports: Sender<Report>) -> Result<(), VolumeError> {
        let (ready, is_ready) = channel();
        let shared = Shared {
            mailboxes: Arc::clone(&self.mailboxes),
            holding: Arc::clone(&self.holding),
            map: Arc::clone(&self.map),
            overlaps: self.overlaps.clone(),
            flush_shards: self.spec.flushes_every_shard(),
            doubt: self.doubt.clone(),
            idle_bound: self.config.clients.idle.map(|span| span.as_nanos() as u64),
            budget: self.config.clients.budget.clone(),
            others: self.others.clone(),
        };
        let running = Arc::clone(&self.running);
        let origin = self.config.origin.clone();
        let (spec, limits) = (self.spec.clone(), self.config.limits.clone());
        let given_up = Arc::clone(&self.given_up);
        let flush_failed = Arc::clone(&self.flush_failed);
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
                    driver.attach(ORIGIN, origin);
                    shared.mailboxes[index as usize].open(driver.waker());
                    let shard = Shard::new(shape, &spec, limits, ORIGIN);
                    let _ = ready.send(Ok(()));
                    let worker = Worker::new(shape, driver, shard, shared, reports);
                    match worker.run() {
                        Ok(left) => {
                            given_up.fetch_add(left.given_up, Ordering::SeqCst);
                            lock(&all_left).extend(left.flash.map(|flash| (index, flash)));
                            unsettled.fetch_or(left.unsettled, Ordering::SeqCst);
                            left.flush_failed.map(|errno| flush_failed.set(errno));
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

    /// The parts of the volume.
    #[must_use]
    pub fn config(&self) -> &VolumeConfig {
        &self.config
    }

    /// Its sizes.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Hands a negotiated connection to a worker.
    pub fn welcome(&self, accepted: Accepted) {
        let next = self.next_worker.fetch_add(1, Ordering::Relaxed) % self.mailboxes.len();
        self.mailboxes[next].post(Message::Connection(accepted));
    }

    /// Hands a queue to a worker, which serves it until it is closed, and drops it.
    pub fn welcome_queue(&self, worker: u32, queue: Box<dyn Queue>) {
        self.mailboxes[worker as usize].post(Message::Queue(queue));
    }

    /// A request from within the process; a worker's thread calls `done` with the outcome. A
    /// write's payload is cut as [`pieces`](larder_core::request::pieces) cuts it.
    pub fn call(
        &self,
        kind: Kind,
        offset: u64,
        len: u64,
        bufs: Vec<Buf>,
        done: impl FnOnce(Result<Vec<Buf>, Errno>) + Send + 'static,
    ) {
        self.post(Call { kind, passive: false, offset, len, bufs, done: Box::new(done) });
    }

    /// As [`call`](Self::call), a read that leaves the cache as it is.
    pub fn read_passively(
        &self,
        offset: u64,
        len: u64,
        done: impl FnOnce(Result<Vec<Buf>, Errno>) + Send + 'static,
    ) {
        let (kind, bufs, done) = (Kind::Read, Vec::new(), Box::new(done));
        self.post(Call { kind, passive: true, offset, len, bufs, done });
    }

    fn post(&self, call: Call) {
        let owner = self.shape.shard_at(call.offset);
        self.mailboxes[owner as usize].post(Message::Call(call));
    }

    /// Runs something on every worker; their answers, in the order of arrival.
    pub(crate) fn ask<R: Send + 'static>(
        &self,
        question: impl Fn(&mut Worker) -> R + Clone + Send + 'static,
    ) -> Result<Vec<R>, VolumeError> {
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
            RecvTimeoutError::Disconnected => VolumeError::WorkerLost("before it answered"),
        };
        (0..count)
            .map(|_| {
                let left = deadline.saturating_duration_since(Instant::now());
                answers.recv_timeout(left).map_err(unanswered)
            })
            .collect()
    }

    /// Makes all acknowledged writes durable on the origin, including dirty data on flash.
    ///
    /// # Errors
    /// When a device fails, or it is not done within `bound`.
    pub fn flush(&self, bound: Duration) -> Result<(), VolumeError> {
        self.clear(false, bound)?;
        let (answer, answered) = channel();
        self.call(Kind::Flush, 0, 0, Vec::new(), move |result| drop(answer.send(result)));
        match answered.recv_timeout(bound) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(errno)) => Err(self.flush_error(errno)),
            Err(_) => Err(VolumeError::TooSlow(format!("no answer within {} s", bound.as_secs()))),
        }
    }

    /// Permits writes of parts of blocks. From now on writes of clients wait for them; all writes that began before are
    /// finished.
    ///
    /// # Errors
    /// When a worker does not answer, or the origin does not answer writes.
    pub fn begin_overlaps(&self) -> Result<(), VolumeError> {
        self.overlaps.begin();
        let deadline = Instant::now() + ANSWER_BOUND;
        while self.ask(|w| w.loose_writes())?.iter().sum::<u64>() > 0 {
            if Instant::now() > deadline {
                return Err(VolumeError::TooSlow("the origin does not answer writes".to_owned()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The order of overlapping writes.
    #[must_use]
    pub fn overlaps(&self) -> &Overlaps {
        &self.overlaps
    }

    /// Searches data or a hole in a range of whole blocks. A thread of the volume calls `done` with the first place of that
    /// kind; if there is none, with the end of the range for a hole, and with nothing for data.
    pub fn seek(
        &self,
        range: Range<u64>,
        what: Seek,
        done: impl FnOnce(Option<u64>) + Send + 'static,
    ) {
        self.map.seek(range, what, done);
    }

    /// Records that the volume is also this file.
    pub fn add_file(&self, file: PathBuf) {
        lock(&self.files).push(file);
    }

    /// Records that the volume is not this file.
    pub fn remove_file(&self, file: &Path) {
        lock(&self.files).retain(|known| known != file);
    }

    /// A seat for a client of this peer.
    ///
    /// # Errors
    /// No seat is free.
    pub fn take_seat(&self, peer: Peer) -> Result<Seat, Full> {
        self.seats.take(peer, larder_io::clock::now())
    }

    /// The volume's state.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn status(&self) -> Result<Status, VolumeError> {
        let stats = self.stats()?;
        let sums = self.ask(|w| (w.open_requests(), w.connections() as u64))?;
        let (open, connections) = sums.iter().fold((0, 0), |s, a| (s.0 + a.0, s.1 + a.1));
        let state = lock(&self.state);
        let files = lock(&self.files).clone();
        Ok(Status { files, ..Status::of(&self.config, &state, &stats, open, connections) })
    }

    /// The counters.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn stats(&self) -> Result<Stats, VolumeError> {
        let answers = self.ask(|w| {
            let cache = w.shard.cache_status();
            let clients = Clients { bytes: w.client_bytes(), kept_bytes: kept_bytes() as u64 };
            (w.desk_requests, w.shard.counters(), cache, w.latencies.clone(), clients)
        })?;
        let state = lock(&self.state);
        let slots = state.attached.as_ref().map_or(0, |a| a.flash.plan.slots());
        let mut stats = Stats::new(self.memory(slots));
        answers.into_iter().for_each(|(requests, counters, cache, latencies, clients)| {
            stats.add(requests, counters, cache, clients);
            stats.latencies += &latencies;
        });
        stats.memory_waits = self.config.clients.budget.waits();
        stats.state = state.word(stats.suspended);
        Ok(stats)
    }

    /// The memory that the volume needs with what is attached.
    pub(crate) fn memory(&self, slots: u64) -> Memory {
        let VolumeConfig { origin, choices, limits, workers, .. } = &self.config;
        let origin_bytes = if slots > 0 { origin.geometry().bytes } else { 0 };
        Memory::of(origin_bytes, slots * choices.cached_bytes(), choices, limits, *workers)
    }

    /// Whether flash holds dirty data, once the volume has stopped.
    #[must_use]
    pub fn left_dirty(&self) -> bool {
        lock(&self.left).values().any(|left| left.dirty)
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
fn watch(volume: &std::sync::Weak<Volume>, reports: &Receiver<Report>) {
    for Report { worker, event } in reports {
        let Some(volume) = volume.upgrade() else { return };
        match event {
            Event::NeedsOriginFlush { volume: of } => volume.flush_for(worker, of),
            Event::LogIgnores { pages, .. } => volume.log_ignores(worker, &pages),
            Event::FlashFailed { dev, why } => volume.flash_failed(dev, &why),
            Event::FlashReleased { dev } => volume.flash_released(dev),
            Event::OriginFlushFailed { errno, .. } => {
                let why = format!(
                    "the origin could not flush ({errno}): every FLUSH fails until the volume is restarted"
                );
                tracing::error!("{why}");
                lock(&volume.state).origin_alarm = Some(why);
            }
            Event::FlashErrors { why, .. } => {
                let why = format!("flash I/O error; dirty data is at risk: {why}");
                // Logged once, not for every request that fails.
                let first = lock(&volume.state).flash_errors.insert(worker, why.clone()).is_none();
                if first {
                    tracing::error!("ALARM: {why}");
                }
            }
            Event::FlashWorks { .. } => {
                if lock(&volume.state).flash_errors.remove(&worker).is_some() {
                    tracing::info!("flash works again");
                }
            }
            Event::OriginRefuses { errno: Some(errno) } => {
                if lock(&volume.state).origin_refuses.insert(worker, errno).is_none() {
                    tracing::error!(
                        "the origin refuses dirty data from flash ({errno}); it is tried again, and flash keeps the data"
                    );
                }
            }
            Event::OriginRefuses { errno: None } => {
                if lock(&volume.state).origin_refuses.remove(&worker).is_some() {
                    tracing::info!("the origin accepts dirty data from flash again");
                }
            }
            Event::FlashSuspended { .. } => {
                tracing::warn!("a flash operation is overdue: flash is bypassed until it answers");
            }
            Event::LogOpened { dev, warm } => {
                let state = if warm { "warm" } else { "cold" };
                tracing::debug!("page log of worker {worker} opened, {state}");
                lock(&volume.state).opened(dev, None);
            }
            Event::LogRefused { dev, why } => lock(&volume.state).opened(dev, Some(why)),
            Event::FlashResumed { .. } => tracing::info!("flash answers again and is used"),
        }
    }
}
