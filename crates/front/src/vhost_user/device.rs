// SPDX-License-Identifier: MIT OR Apache-2.0
//! Features and configuration of the virtio-blk device of a volume.
//!
//! Invariants: a cache that needs flushes is announced as for NBD and ublk (`Volume::has_volatile_cache`). A driver that
//! knows no FLUSH, or that turned the cache off, has each write durable when it is answered. The device has a queue for each
//! worker; a client may use up to [`MOST_QUEUES`].

use std::sync::atomic::{AtomicBool, Ordering};

use larder_io::Geometry;
use larder_volume::Volume;
use vhost::vhost_user::VhostUserProtocolFeatures;
use virtio_bindings::{virtio_blk as blk, virtio_config, virtio_ring};

use crate::blocks::{block_sizes, empty_bytes};
use crate::grant::Grant;

/// The most queues of a client. Workers share them.
pub const MOST_QUEUES: u16 = 128;
/// The most requests of a queue.
pub const MOST_DEPTH: u16 = 1024;
/// Segments of a request: those of a queue of 128 without its header and status.
const SEGMENTS: u32 = 126;
/// The longest segment. With all segments it is about the longest request.
const SEGMENT_BYTES: u32 = 256 << 10;
/// The longest request with data.
pub const MOST_DATA_BYTES: u64 = 32 << 20;
/// `VHOST_USER_F_PROTOCOL_FEATURES`.
pub const PROTOCOL: u64 = 1 << 30;
const SECTOR: u64 = 512;
/// The offset of the cache mode in the configuration, its only field that a driver writes.
const CACHE_MODE: usize = 32;
const CONFIG_BYTES: usize = 60;

/// The bit of a feature.
const fn bit(feature: u32) -> u64 {
    1 << feature
}

/// The device of a volume.
pub struct Device {
    /// The features that it offers.
    pub features: u64,
    config: [u8; CONFIG_BYTES],
    has_cache: bool,
    /// The driver knows FLUSH.
    flushes: AtomicBool,
    /// The driver did not turn the cache off.
    caches: AtomicBool,
}

impl Device {
    /// That of a volume.
    #[must_use]
    pub fn of(volume: &Volume, grant: Grant) -> Self {
        let (geometry, workers) = (volume.origin().geometry(), volume.cache().config().workers);
        Self::new(&geometry, volume.has_volatile_cache(), grant, workers as u16)
    }

    /// That of a disk with so many queues.
    #[must_use]
    pub fn new(geometry: &Geometry, has_cache: bool, grant: Grant, queues: u16) -> Self {
        let (trim, zero) = empty_bytes(geometry, grant);
        let mut features = PROTOCOL | bit(virtio_config::VIRTIO_F_VERSION_1);
        features |= bit(virtio_ring::VIRTIO_RING_F_EVENT_IDX);
        features |= bit(virtio_ring::VIRTIO_RING_F_INDIRECT_DESC);
        features |= bit(blk::VIRTIO_BLK_F_SEG_MAX) | bit(blk::VIRTIO_BLK_F_SIZE_MAX);
        features |= bit(blk::VIRTIO_BLK_F_BLK_SIZE) | bit(blk::VIRTIO_BLK_F_TOPOLOGY);
        features |= bit(blk::VIRTIO_BLK_F_MQ);
        for (has, feature) in [
            (has_cache, blk::VIRTIO_BLK_F_FLUSH),
            (has_cache, blk::VIRTIO_BLK_F_CONFIG_WCE),
            (trim > 0, blk::VIRTIO_BLK_F_DISCARD),
            (zero > 0, blk::VIRTIO_BLK_F_WRITE_ZEROES),
            (grant != Grant::Full, blk::VIRTIO_BLK_F_RO),
        ] {
            features |= if has { bit(feature) } else { 0 };
        }
        let (block, physical) = block_sizes(geometry);
        let exponent = (physical / block).trailing_zeros() as u8;
        let physical_blocks = (physical / block) as u16;
        let mut config = [0; CONFIG_BYTES];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &(geometry.bytes / SECTOR).to_le_bytes());
        put(8, &SEGMENT_BYTES.to_le_bytes());
        put(12, &SEGMENTS.to_le_bytes());
        put(20, &block.to_le_bytes());
        put(24, &[exponent, 0]);
        put(26, &physical_blocks.to_le_bytes());
        put(28, &u32::from(physical_blocks).to_le_bytes());
        put(CACHE_MODE, &[u8::from(has_cache)]);
        put(34, &queues.to_le_bytes());
        put(36, &((trim / SECTOR) as u32).to_le_bytes());
        put(40, &u32::from(trim > 0).to_le_bytes());
        put(44, &(block / SECTOR as u32).to_le_bytes());
        put(48, &((zero / SECTOR) as u32).to_le_bytes());
        put(52, &u32::from(zero > 0).to_le_bytes());
        put(56, &[u8::from(geometry.can_trim)]);
        let (flushes, caches) = (AtomicBool::new(false), AtomicBool::new(true));
        Self { features, config, has_cache, flushes, caches }
    }

    /// The features of the protocol.
    pub fn protocol() -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RESET_DEVICE
    }

    /// The driver of a client begins.
    pub fn begin(&self) {
        self.flushes.store(false, Ordering::SeqCst);
        self.caches.store(true, Ordering::SeqCst);
    }

    /// The driver uses these features.
    pub fn set_features(&self, features: u64) {
        let flushes = features & bit(blk::VIRTIO_BLK_F_FLUSH) != 0;
        self.flushes.store(flushes, Ordering::SeqCst);
    }

    /// Whether a write must be durable when it is answered.
    pub fn writes_through(&self) -> bool {
        let (flushes, caches) = (&self.flushes, &self.caches);
        self.has_cache && !(flushes.load(Ordering::SeqCst) && caches.load(Ordering::SeqCst))
    }

    /// A part of the configuration. Behind its end it is zero.
    pub fn config(&self, offset: u32, bytes: u32) -> Vec<u8> {
        let mut config = self.config;
        config[CACHE_MODE] &= u8::from(self.caches.load(Ordering::SeqCst));
        let range = (offset as usize)..(offset as usize).saturating_add(bytes as usize);
        range.map(|at| config.get(at).copied().unwrap_or_default()).collect()
    }

    /// Writes a part of the configuration; false if it cannot be written.
    pub fn set_config(&self, offset: u32, bytes: &[u8]) -> bool {
        let [mode] = bytes else { return false };
        if offset as usize != CACHE_MODE || !self.has_cache || *mode > 1 {
            return false;
        }
        self.caches.store(*mode == 1, Ordering::SeqCst);
        true
    }
}

/// Whether drivers and device suppress calls by indices.
pub fn has_event_index(features: u64) -> bool {
    features & bit(virtio_ring::VIRTIO_RING_F_EVENT_IDX) != 0
}

#[cfg(test)]
mod tests {
    use larder_core::config::preset;
    use larder_io::Device as Disk;
    use larder_volume::CacheConfig;

    use super::*;

    fn device(grant: Grant) -> Device {
        let choices = preset("sce").unwrap().choices();
        let origin = Disk::mem(64 << 20);
        Device::of(&Volume::start(CacheConfig::of(origin, choices, 2)).unwrap(), grant)
    }

    #[test]
    fn the_configuration_is_that_of_the_volume() {
        let device = device(Grant::Full);
        assert_eq!(device.config(0, 8), (64_u64 << 11).to_le_bytes());
        assert_eq!(device.config(34, 2), [2, 0]);
        assert_eq!(device.config(58, 4), [0; 4]);
        assert_eq!(device.config(u32::MAX, 2), [0; 2]);
        assert_ne!(device.features & bit(blk::VIRTIO_BLK_F_FLUSH), 0);
        assert_eq!(device.features & bit(blk::VIRTIO_BLK_F_RO), 0);
        let reads = self::device(Grant::Backup);
        assert_ne!(reads.features & bit(blk::VIRTIO_BLK_F_RO), 0);
        assert_eq!(reads.features & bit(blk::VIRTIO_BLK_F_WRITE_ZEROES), 0);
    }

    #[test]
    fn a_driver_without_flushes_or_without_a_cache_has_durable_writes() {
        let device = device(Grant::Full);
        assert!(device.writes_through(), "the driver knows no FLUSH yet");
        device.set_features(device.features);
        assert!(!device.writes_through() && device.config(32, 1) == [1]);
        assert!(device.set_config(32, &[0]));
        assert!(device.writes_through() && device.config(32, 1) == [0]);
        for (offset, bytes) in [(0, &[0_u8][..]), (32, &[2]), (32, &[1, 0]), (u32::MAX, &[1])] {
            assert!(!device.set_config(offset, bytes));
        }
        device.begin();
        assert_eq!(device.config(32, 1), [1]);
    }
}
