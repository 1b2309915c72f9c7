// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of dirty data to the origins, and volumes that leave a shared cache and join it again.
//!
//! A volume that leaves has its dirty data copied to its origin, and its units are evicted; the others keep theirs. It is served
//! from its origin then. The journal's records of that are durable before it leaves. The state file has it as out of use, so that
//! its origin may be changed, or served without the cache, also after a crash.
//!
//! The same makes a volume usable whose origin changed while the flash was not in use: it leaves before it has clients, then
//! the state file permits the use of what flash has of it, which is nothing, and it joins.

use std::time::{Duration, Instant};

use larder_core::exec::DevId;
use larder_core::request::Errno;
use larder_core::shard::Clear;

use super::cache::Cache;
use super::error::VolumeError;
use super::lock::lock;
use super::volume::Volume;

/// How long a start may take to remove the units of a volume. The devices are asked for nothing else meanwhile.
const RENEWAL: Duration = Duration::from_secs(3600);

impl Cache {
    /// Copies dirty data from flash to the origins, and evicts if asked. It continues after `bound`, except that of a volume
    /// that leaves; another call waits for it again.
    ///
    /// # Errors
    /// When a device fails, or `bound` is over.
    pub(super) fn clear(&self, clear: Clear, bound: Duration) -> Result<(), VolumeError> {
        let deadline = Instant::now() + bound;
        self.ask(move |worker| worker.shard.clear(clear))?;
        loop {
            let done = self.ask(move |worker| worker.shard.cleared(clear))?;
            if let Some(Err(errno)) = done.iter().flatten().find(|result| result.is_err()) {
                if let Some(damaged) = self.damaged(clear.volume, *errno) {
                    return Err(damaged);
                }
                let device = match clear.volume {
                    Some(volume) => self.parts[volume as usize].origin.name().to_owned(),
                    None => self.config.origins_in_words(),
                };
                let doing = "copying dirty data to it";
                return Err(VolumeError::Device { device, doing, errno: *errno });
            }
            if done.iter().all(Option::is_some) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(VolumeError::TooSlow(format!(
                    "not finished after {} s: {} dirty units left; {}",
                    bound.as_secs(),
                    self.stats_of(clear.volume)?.units_dirty,
                    match clear {
                        Clear { volume: Some(_), evict: true } => "the volume stays in the cache",
                        _ => "the copy continues; repeat the command to wait for it",
                    }
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Dirty data could not be copied because it is damaged, not because the origin failed. The report of a worker may come after
    /// its answer.
    fn damaged(&self, volume: Option<u32>, errno: Errno) -> Option<VolumeError> {
        if errno != Errno::EIO {
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
        let state = lock(&self.state);
        // The origin fails too: that is its own error.
        if !state.origin_refuses.is_empty() {
            return None;
        }
        state.dirty_damaged.keys().find(|of| volume.is_none_or(|volume| volume == **of))?;
        let device = state.flash_name()?;
        let doing = "copying its dirty data, part of which is damaged (larder scrub lists it),";
        Some(VolumeError::Device { device, doing, errno })
    }

    /// Empties flash of the units of a volume that may be older than its origin, and permits to cache it.
    pub(super) fn renew(&self, volume: u32) -> Result<(), VolumeError> {
        // If it fails, the volume does not join: the start fails.
        self.clear(Clear { volume: Some(volume), evict: true }, RENEWAL)?;
        // A flash that failed meanwhile still has its units.
        if self.ask(|worker| worker.shard.cache_status().is_none())?.contains(&true) {
            return Ok(());
        }
        self.note_use(volume, true)?;
        self.join(volume)
    }

    /// Removes a volume's units; it stays in the cache if that fails.
    pub(super) fn leave(&self, volume: u32, bound: Duration) -> Result<(), VolumeError> {
        let left = self.clear(Clear { volume: Some(volume), evict: true }, bound);
        left.or_else(|error| self.join(volume).and(Err(error)))
    }

    fn join(&self, volume: u32) -> Result<(), VolumeError> {
        self.ask(move |worker| worker.shard.join(volume)).map(drop)
    }

    /// The flash that is in use.
    fn flash_in_use(&self) -> Result<DevId, VolumeError> {
        let none = || VolumeError::Refused("no flash device is attached".to_owned());
        lock(&self.state).in_use().ok_or_else(none)
    }
}

impl Volume {
    /// Takes the volume out of its cache: its dirty data is copied, its units leave, and it is served from its origin, which
    /// has all of its data durably. Commands to the other volumes do not wait for it.
    ///
    /// # Errors
    /// No flash is attached, or the volume is outside already; the origin fails, or it is not done within `bound`: the volume
    /// stays in the cache then.
    pub fn leave_cache(&self, bound: Duration) -> Result<(), VolumeError> {
        let (began, number) = (Instant::now(), self.number());
        self.check_present()?;
        let dev = self.begin_to_leave()?;
        let left = self.cache().leave(number, bound);
        let left = left.and_then(|()| self.flush_origin(bound.saturating_sub(began.elapsed())));
        let _change = lock(&self.cache().change);
        lock(&self.cache().state).departing.remove(&number);
        let left = left.and_then(|()| match self.cache().flash_in_use()? == dev {
            true => self.cache().note_use(number, false),
            false => Err(VolumeError::Refused("another flash was attached meanwhile".to_owned())),
        });
        if let Err(error) = left {
            self.cache().join(number)?;
            return Err(error);
        }
        lock(&self.cache().state).outside.insert(number);
        tracing::info!("volume '{}' has left its cache; it is served from its origin", self.name());
        Ok(())
    }

    /// The flash that the volume is about to leave.
    fn begin_to_leave(&self) -> Result<DevId, VolumeError> {
        let _change = lock(&self.cache().change);
        let dev = self.cache().flash_in_use()?;
        let (name, mut state) = (self.name(), lock(&self.cache().state));
        let refused = |why: &str| Err(VolumeError::Refused(format!("volume '{name}' {why}")));
        if state.outside.contains(&self.number()) {
            return refused("has left its cache already");
        }
        if !state.departing.insert(self.number()) {
            return refused("is being detached by another command; wait for that one");
        }
        Ok(dev)
    }

    /// Takes the volume into its cache again.
    ///
    /// # Errors
    /// No flash is attached, or the volume is in its cache.
    pub fn join_cache(&self) -> Result<(), VolumeError> {
        let _change = lock(&self.cache().change);
        let (name, number) = (self.name(), self.number());
        self.cache().flash_in_use()?;
        if !lock(&self.cache().state).outside.contains(&number) {
            return Err(VolumeError::Refused(format!("volume '{name}' is in its cache")));
        }
        self.cache().note_use(number, true)?;
        self.cache().join(number)?;
        lock(&self.cache().state).outside.remove(&number);
        tracing::info!("volume '{name}' is in its cache again");
        Ok(())
    }
}
