// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of dirty data to the origins, and volumes that leave a shared cache and join it again.
//!
//! A volume that leaves has its dirty data copied to its origin, and its units are evicted; the others keep theirs. It is served
//! from its origin then. Its journal's records of that are durable before it leaves, so the state file needs no change, and it may
//! join again at any time.
//!
//! The same makes a volume usable whose origin changed while the flash was not in use: it leaves before it has clients, then
//! the state file permits the use of what flash has of it, which is nothing, and it joins.

use std::time::{Duration, Instant};

use larder_core::shard::Clear;

use super::cache::{Cache, lock};
use super::error::VolumeError;
use super::volume::Volume;

/// How long a start may take to remove the units of a volume. The devices are asked for nothing else meanwhile.
const RENEWAL: Duration = Duration::from_secs(3600);

impl Cache {
    /// Copies dirty data from flash to the origins, and evicts if asked. It continues after `bound`; another call waits for it
    /// again.
    ///
    /// # Errors
    /// When a device fails, or `bound` is over.
    pub(super) fn clear(&self, clear: Clear, bound: Duration) -> Result<(), VolumeError> {
        let deadline = Instant::now() + bound;
        self.ask(move |worker| worker.shard.clear(clear))?;
        loop {
            let done = self.ask(move |worker| worker.shard.cleared(clear))?;
            if let Some(Err(errno)) = done.iter().flatten().find(|result| result.is_err()) {
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
                    "{} units are dirty after {} s; copying them to the origin continues, and the same command waits for it",
                    self.stats_of(clear.volume)?.units_dirty,
                    bound.as_secs()
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Empties flash of the units of a volume that may be older than its origin, and permits to cache it.
    pub(super) fn renew(&self, volume: u32) -> Result<(), VolumeError> {
        self.leave(volume, RENEWAL)?;
        // A flash that failed meanwhile still has its units.
        if self.ask(|worker| worker.shard.cache_status().is_none())?.contains(&true) {
            return Ok(());
        }
        self.note_renewed(volume)?;
        self.ask(move |worker| worker.shard.join(volume))?;
        Ok(())
    }

    fn leave(&self, volume: u32, bound: Duration) -> Result<(), VolumeError> {
        self.clear(Clear { volume: Some(volume), evict: true }, bound)
    }
}

impl Volume {
    /// Takes the volume out of its cache: its dirty data is copied, its units leave, and it is served from its origin. A
    /// volume that is alone detaches the flash.
    ///
    /// # Errors
    /// No flash is attached, or the volume is outside already; the origin fails, or it is not done within `bound`: the volume
    /// stays in the cache then.
    pub fn leave_cache(&self, bound: Duration) -> Result<(), VolumeError> {
        let _change = lock(&self.change);
        let name = self.name();
        match &lock(&self.state).attached {
            Some(attached) if !attached.leaving => {}
            _ => return Err(VolumeError::Refused("no flash device is attached".to_owned())),
        }
        if lock(&self.state).outside.contains(&self.number()) {
            return Err(VolumeError::Refused(format!(
                "volume '{name}' has left its cache already"
            )));
        }
        let number = self.number();
        if let Err(error) = self.cache().leave(number, bound) {
            self.ask(move |worker| worker.shard.join(number))?;
            return Err(error);
        }
        lock(&self.state).outside.insert(number);
        tracing::info!("volume '{name}' has left its cache; it is served from its origin");
        Ok(())
    }

    /// Takes the volume into its cache again.
    ///
    /// # Errors
    /// It is in its cache.
    pub fn join_cache(&self) -> Result<(), VolumeError> {
        let _change = lock(&self.change);
        let (name, number) = (self.name(), self.number());
        if !lock(&self.state).outside.contains(&number) {
            return Err(VolumeError::Refused(format!("volume '{name}' is in its cache")));
        }
        self.ask(move |worker| worker.shard.join(number))?;
        lock(&self.state).outside.remove(&number);
        tracing::info!("volume '{name}' is in its cache again");
        Ok(())
    }
}
