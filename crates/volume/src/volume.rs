// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume as its clients see it: an origin behind a cache, which it may share with others.
//!
//! Offsets here are those of the volume; the cache adds the volume's place in the space of all volumes. What concerns the
//! flash and the workers is reached through [`cache`](Volume::cache).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use larder_core::buf::Buf;
use larder_core::request::{Errno, Kind};
use larder_core::shard::Clear;
use larder_io::Device;

use super::cache::Cache;
use super::config::CacheConfig;
use super::connection::Accepted;
use super::error::VolumeError;
use super::extents::Seek;
use super::lock::lock;
use super::overlaps::Overlaps;
use super::part::Part;
use super::peer::Peer;
use super::queue::Queue;
use super::record::Recording;
use super::seat::{Full, Seat};
use super::stats::Stats;
use super::status::Status;
use super::worker::{Call, Message};

/// A volume, see the module.
pub struct Volume {
    cache: Arc<Cache>,
    /// Its place among the volumes of the cache.
    number: u32,
}

impl Volume {
    pub(crate) fn new(cache: Arc<Cache>, number: u32) -> Self {
        Self { cache, number }
    }

    /// Starts a cache that serves a single volume.
    ///
    /// # Errors
    /// As for [`Cache::start`]; when several volumes are configured.
    pub fn start(config: CacheConfig) -> Result<Arc<Self>, VolumeError> {
        match Cache::start(config)?.volumes().as_slice() {
            [volume] => Ok(Arc::clone(volume)),
            several => Err(VolumeError::Usage(format!("{} volumes; accepted: one", several.len()))),
        }
    }

    /// Its cache.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Its export name; may be empty.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.part().name
    }

    /// The grant under which a cluster's manager lets this machine serve it; 0: there is no manager.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.part().generation
    }

    /// Its origin.
    #[must_use]
    pub fn origin(&self) -> &Device {
        &self.part().origin
    }

    /// Whether other volumes share its cache.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.cache.parts.len() > 1
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Its place in the space of all volumes.
    pub(crate) fn space(&self) -> &Range<u64> {
        &self.part().range
    }

    fn part(&self) -> &Part {
        &self.cache.parts[self.number as usize]
    }

    /// Hands a negotiated connection to a worker.
    pub fn welcome(&self, accepted: Accepted) {
        self.cache.welcome(self.number, accepted);
    }

    /// Hands a queue to a worker, which serves it until it is closed, and drops it.
    pub fn welcome_queue(&self, worker: u32, queue: Box<dyn Queue>) {
        let volume = self.number;
        self.cache.mailboxes[worker as usize].post(Message::Queue { volume, queue });
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
        let offset = self.part().range.start + offset;
        self.cache.post(Call { kind, passive: false, offset, len, bufs, done: Box::new(done) });
    }

    /// As [`call`](Self::call), a read that leaves the cache as it is.
    pub fn read_passively(
        &self,
        offset: u64,
        len: u64,
        done: impl FnOnce(Result<Vec<Buf>, Errno>) + Send + 'static,
    ) {
        let offset = self.part().range.start + offset;
        let (kind, bufs, done) = (Kind::Read, Vec::new(), Box::new(done));
        self.cache.post(Call { kind, passive: true, offset, len, bufs, done });
    }

    /// Makes all acknowledged writes of the volume durable on its origin, including dirty data on flash.
    ///
    /// # Errors
    /// When a device fails, or it is not done within `bound`.
    pub fn flush(&self, bound: Duration) -> Result<(), VolumeError> {
        self.check_present()?;
        let deadline = Instant::now() + bound;
        self.cache.clear(Clear { volume: Some(self.number), evict: false }, bound)?;
        self.flush_origin(deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether its origin was there at the start.
    ///
    /// # Errors
    /// It was not.
    pub(crate) fn check_present(&self) -> Result<(), VolumeError> {
        if self.origin().is_absent() {
            let why = "its origin is missing; connect the origin and restart the server";
            return Err(VolumeError::Refused(format!("volume '{}': {why}", self.name())));
        }
        Ok(())
    }

    /// A FLUSH, as of a client.
    pub(crate) fn flush_origin(&self, bound: Duration) -> Result<(), VolumeError> {
        let (answer, answered) = channel();
        self.call(Kind::Flush, 0, 0, Vec::new(), move |result| drop(answer.send(result)));
        match answered.recv_timeout(bound) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(errno)) => Err(self.part().flush_error(errno)),
            Err(_) => Err(VolumeError::TooSlow(format!("no answer within {} s", bound.as_secs()))),
        }
    }

    /// Permits writes of parts of blocks. From now on writes of clients wait for them; all writes that began before are
    /// finished.
    ///
    /// # Errors
    /// When a worker does not answer, or the origin does not answer writes within `bound`.
    pub fn begin_overlaps(&self, bound: Duration) -> Result<(), VolumeError> {
        self.part().overlaps.begin();
        self.cache.end_loose_writes(self.number, bound)
    }

    /// The order of overlapping writes.
    #[must_use]
    pub fn overlaps(&self) -> &Overlaps {
        &self.part().overlaps
    }

    /// Searches data or a hole in a range of whole blocks. A thread of the volume calls `done` with the first place of that
    /// kind; if there is none, with the end of the range for a hole, and with nothing for data.
    pub fn seek(
        &self,
        range: Range<u64>,
        what: Seek,
        done: impl FnOnce(Option<u64>) + Send + 'static,
    ) {
        self.part().map.seek(range, what, done);
    }

    /// Records that the volume is also this file.
    pub fn add_file(&self, file: PathBuf) {
        lock(&self.part().files).push(file);
    }

    /// Records that the volume is not this file.
    pub fn remove_file(&self, file: &Path) {
        lock(&self.part().files).retain(|known| known != file);
    }

    /// A seat for a client of this peer.
    ///
    /// # Errors
    /// No seat is free.
    pub fn take_seat(&self, peer: Peer) -> Result<Seat, Full> {
        self.part().seats.take(peer, larder_io::clock::now())
    }

    /// The volume's state.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn status(&self) -> Result<Status, VolumeError> {
        self.cache.status_of(Some(self.number))
    }

    /// The counters: of its requests, and of its cache.
    ///
    /// # Errors
    /// When a worker does not answer.
    pub fn stats(&self) -> Result<Stats, VolumeError> {
        self.cache.stats_of(Some(self.number))
    }

    /// Begins to record the requests of its clients.
    ///
    /// # Errors
    /// When the cache is already recorded, or a worker does not answer.
    pub fn record(&self) -> Result<Recording, VolumeError> {
        self.cache.record_range(self.part().range.clone())
    }
}

impl Cache {
    /// Its volumes, in the order of their configuration.
    #[must_use]
    pub fn volumes(self: &Arc<Self>) -> Vec<Arc<Volume>> {
        let numbers = 0..self.parts.len() as u32;
        numbers.map(|number| Arc::new(Volume::new(Arc::clone(self), number))).collect()
    }

    /// Makes all acknowledged writes of all volumes durable on their origins, including dirty data on flash.
    ///
    /// # Errors
    /// When a device fails, or it is not done within `bound`: the first error, once every volume was tried.
    pub fn flush(self: &Arc<Self>, bound: Duration) -> Result<(), VolumeError> {
        let cleared = self.clear(Clear { volume: None, evict: false }, bound);
        let flushed = self.volumes().into_iter().map(|volume| volume.flush_origin(bound));
        flushed.fold(cleared, Result::and)
    }
}
