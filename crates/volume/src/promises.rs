// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a volume promises the users of a block device, whatever protocol they use.
//!
//! Invariant: an answer holds as long as the volume exists. Nothing that can be changed meanwhile changes it: the choices
//! and the origin are fixed, and a flash that is attached later is one of the same choices.

use super::lock::lock;
use super::volume::Volume;

impl Volume {
    /// Whether an answered write may be lost in a power cut until a FLUSH. Only a clean cache over a disk without a volatile
    /// write cache has none: each answered write is on the disk. Like the kernel, it believes what the disk reports.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        !self.cache().config.choices.origin_has_answers() || self.origin().has_volatile_cache()
    }

    /// Whether a later process can answer for each write that this one answered, flushed or not, and no operation of this
    /// process changes a device once the later one has opened it. An export of a server may execute a request after the
    /// connection that sent it is gone.
    #[must_use]
    pub fn answers_survive(&self) -> bool {
        let local = |device: &larder_io::Device| matches!(device.identity(), Ok(Some(_)));
        let state = lock(&self.cache().state);
        let flash = state.attached.as_ref().is_none_or(|a| local(&a.flash.device));
        self.cache().config.choices.answers_survive() && local(self.origin()) && flash
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_core::config::preset;
    use larder_io::Device;

    use super::*;
    use crate::CacheConfig;

    fn volume(preset_name: &str, origin: &Device) -> Arc<Volume> {
        let choices = preset(preset_name).unwrap().choices();
        Volume::start(CacheConfig::of(origin.clone(), choices, 1)).unwrap()
    }

    #[test]
    fn files_and_write_back_need_flushes_and_only_local_devices_outlive_a_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("origin");
        std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let file = larder_io::DevSpec::Path(path);
        let file = Device::open(&file, larder_io::Access::ReadWrite).unwrap();
        for (name, survives) in [("larder", true), ("sce", true), ("prwc", true), ("face", false)] {
            let volume = volume(name, &file);
            assert_eq!(
                (volume.has_volatile_cache(), volume.answers_survive()),
                (true, survives),
                "{name}"
            );
        }
        let memory = volume("sce", &Device::mem(64 << 20));
        assert!(memory.has_volatile_cache() && !memory.answers_survive());
    }
}
