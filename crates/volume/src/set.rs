// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of settings while a cache serves.
//!
//! Invariants: a change is checked whole before any of it is made, changes exclude each other, and none waits for an attach or a
//! detach. Changed settings last until the server ends or reads its configuration again.

use larder_core::config::CacheSpec;

use super::cache::Cache;
use super::error::VolumeError;
use super::fits::check_memory;
use super::lock::lock;
use super::settings::{Change, Settings};
use super::worker::Worker;

impl Cache {
    /// The settings in use.
    #[must_use]
    pub fn settings(&self) -> Settings {
        *lock(&self.settings)
    }

    /// Whether a change would be accepted.
    ///
    /// # Errors
    /// A value is not accepted.
    pub fn check(&self, change: &Change) -> Result<(), VolumeError> {
        let before = self.settings();
        self.check_change(&before, &before.changed(change))
    }

    fn check_change(&self, before: &Settings, after: &Settings) -> Result<(), VolumeError> {
        after.check()?;
        self.spec_with(after)?;
        let slots = lock(&self.state).attached.as_ref().map_or(0, |a| a.flash.plan.slots());
        let bytes = |settings| self.memory_with(settings, slots).worst_bytes();
        check_memory(bytes(after).saturating_sub(bytes(before)))
    }

    /// Changes settings; returns those in use now.
    ///
    /// # Errors
    /// A value is not accepted, and nothing was changed; or a worker does not answer: it takes the settings once it does.
    pub fn set(&self, change: &Change) -> Result<Settings, VolumeError> {
        if *change == Change::default() {
            return Ok(self.settings());
        }
        let _one = lock(&self.setting);
        let before = self.settings();
        let settings = before.changed(change);
        self.check_change(&before, &settings)?;
        *lock(&self.settings) = settings;
        if (before.recorder_bytes == 0) != (settings.recorder_bytes == 0) {
            let slots = lock(&self.state).attached.as_ref().map(|a| a.flash.plan.slots());
            self.fit_curves(slots.map(|slots| self.flash_bytes(slots)));
            lock(&self.kept).fill(None);
        }
        self.adjust_workers()?;
        Ok(settings)
    }

    /// Workers take the settings, for the flash that is attached.
    pub(crate) fn adjust_workers(&self) -> Result<(), VolumeError> {
        let device_bytes =
            lock(&self.state).attached.as_ref().map(|a| a.flash.device.geometry().bytes);
        let settings = self.settings();
        let limits = settings.limits(&self.config.limits, device_bytes);
        let ring_bytes = settings.ring_bytes(self.config.workers);
        let spec = self.spec_with(&settings)?;
        self.ask(move |worker: &mut Worker| {
            worker.adjust(&settings, (&limits, &spec), ring_bytes);
        })?;
        Ok(())
    }

    /// The specification of the cache with settings.
    fn spec_with(&self, settings: &Settings) -> Result<CacheSpec, VolumeError> {
        let choices = settings.choices(&self.config.choices)?;
        CacheSpec::try_from(choices).map_err(|rejected| VolumeError::Usage(rejected.to_string()))
    }

    /// Bytes that may be written to flash in a day; none without a bound.
    pub(crate) fn daily_writes(&self, device_bytes: Option<u64>) -> Option<u64> {
        let bytes = self.settings().flash_write_budget.bytes(device_bytes);
        (bytes > 0).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test stops at the first failure

    use larder_core::config::{DEFAULT_PRESET, preset};
    use larder_io::Device;

    use super::*;
    use crate::CacheConfig;

    fn config() -> CacheConfig {
        CacheConfig::of(Device::mem(1 << 20), preset(DEFAULT_PRESET).unwrap().choices(), 2)
    }

    #[test]
    fn a_change_is_made_whole_or_not_at_all() {
        let cache = Cache::start(config()).unwrap();
        let before = cache.settings();
        for bad in [
            Change { populate_share_ratio: Some(1.1), ..Change::default() },
            Change { populate_share_ratio: Some(f64::NAN), ..Change::default() },
            Change { populate_io_bytes: Some(5000), ..Change::default() },
            Change { client_idle_ns: Some(1), ..Change::default() },
            Change { client_idle_ns: Some(u64::MAX), ..Change::default() },
            Change { recorder_bytes: Some(u64::MAX), ..Change::default() },
        ] {
            let bad = Change { populate: Some(false), ..bad };
            assert!(cache.set(&bad).unwrap_err().to_string().contains("accepted"), "{bad:?}");
            assert_eq!(cache.settings(), before);
        }
        let change = Change { populate: Some(false), recorder_bytes: Some(0), ..Change::default() };
        let after = cache.set(&change).unwrap();
        assert_eq!(after, Settings { populate: false, recorder_bytes: 0, ..before });
        assert_eq!((cache.settings(), cache.set(&Change::default()).unwrap()), (after, after));
    }
}
