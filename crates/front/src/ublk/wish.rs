// SPDX-License-Identifier: MIT OR Apache-2.0
//! What device a volume wants: its parameters, queues and flags.
//!
//! Invariants: a request with data crosses no border of a stripe, which is a border of a unit too, unless stripes are so
//! short that requests would become small. Blocks are those of the origin. Lengths are in the kernel's sectors of 512 bytes.

use larder_core::shape::Shape;
use larder_io::Geometry;
use larder_io::ublk::uapi::{Basic, Discard, attribute, feature};
use larder_io::ublk::{DeviceInfo, Params};
use larder_volume::Volume;

use super::word::Word;
use crate::blocks::{block_sizes, empty_bytes};
use crate::grant::Grant;

/// Requests of a queue.
const DEPTH: u16 = 128;
/// The longest request with data, as the engine cuts it.
const MOST_IO_BYTES: u32 = 1 << 20;
/// Shorter stripes are no borders of requests.
const LEAST_CHUNK_BYTES: u64 = 64 << 10;
/// The largest block of the kernel's page cache.
const MOST_BLOCK_BYTES: u32 = 4096;
const SECTOR: u64 = 512;

/// A device that a volume wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Its number; `None`: any.
    pub id: Option<u32>,
    /// The word by which a later server recognises it.
    pub word: Word,
    /// It waits for another server when its own ended.
    pub survives: bool,
    /// Its parameters.
    pub params: Params,
    /// Its queues.
    pub queues: u16,
}

impl Wish {
    /// The device of a volume.
    ///
    /// # Errors
    /// The kernel cannot have such a device, in one line.
    pub fn of(volume: &Volume, id: Option<u32>, grant: Grant) -> Result<Self, String> {
        let geometry = volume.origin().geometry();
        if geometry.block_bytes > MOST_BLOCK_BYTES {
            return Err(format!(
                "{}: its blocks have {} bytes; accepted for ublk: up to {MOST_BLOCK_BYTES}",
                volume.origin().name(),
                geometry.block_bytes
            ));
        }
        let params = params(&geometry, &volume.cache().shape(), volume.has_volatile_cache(), grant);
        let (word, survives) = (Word::of(volume), volume.answers_survive());
        Ok(Self { id, word, survives, params, queues: volume.cache().config().workers as u16 })
    }

    /// What the driver is asked for.
    pub fn info(&self) -> DeviceInfo {
        let recovery = if self.survives { feature::RECOVERY | feature::REISSUE } else { 0 };
        DeviceInfo {
            queues: self.queues,
            depth: DEPTH,
            most_io_bytes: MOST_IO_BYTES,
            id: self.id.unwrap_or(u32::MAX),
            flags: feature::ENCODED | feature::USER_COPY | recovery,
            server_word: self.word.bits,
            ..DeviceInfo::default()
        }
    }
}

fn params(geometry: &Geometry, shape: &Shape, has_cache: bool, grant: Grant) -> Params {
    let stripe = shape.stripe_bytes();
    let chunk = if stripe < LEAST_CHUNK_BYTES { 0 } else { stripe / SECTOR };
    let (block, physical) = block_sizes(geometry);
    let (logical, physical) = (block.trailing_zeros() as u8, physical.trailing_zeros() as u8);
    let mut attributes = if has_cache { attribute::VOLATILE_CACHE | attribute::FUA } else { 0 };
    if grant != Grant::Full {
        attributes |= attribute::READ_ONLY;
    }
    let (trim, zero) = empty_bytes(geometry, grant);
    let basic = Basic {
        attributes,
        logical_shift: logical,
        physical_shift: physical,
        best_shift: physical,
        least_shift: physical,
        most_sectors: MOST_IO_BYTES / SECTOR as u32,
        chunk_sectors: u32::try_from(chunk).unwrap_or(0),
        sectors: geometry.bytes / SECTOR,
        ..Basic::default()
    };
    let discard = Discard {
        granularity: block,
        most_sectors: (trim / SECTOR) as u32,
        most_zeroes_sectors: (zero / SECTOR) as u32,
        segments: 1,
        ..Discard::default()
    };
    Params::new(basic, discard)
}

#[cfg(test)]
mod tests {
    use larder_core::config::preset;
    use larder_io::Device;
    use larder_volume::CacheConfig;

    use super::*;

    fn geometry() -> Geometry {
        let geometry = Device::null(1 << 30).geometry();
        Geometry { block_bytes: 512, physical_block_bytes: 4096, ..geometry }
    }

    #[test]
    fn borders_and_blocks_are_those_of_the_volume() {
        let shape = Shape::new(1 << 30, 1 << 20, 2);
        let Params { basic, discard, .. } = params(&geometry(), &shape, true, Grant::Full);
        assert_eq!((basic.sectors, basic.chunk_sectors, basic.most_sectors), (1 << 21, 2048, 2048));
        assert_eq!((basic.logical_shift, basic.physical_shift), (9, 12));
        assert_eq!(basic.attributes, attribute::VOLATILE_CACHE | attribute::FUA);
        assert_eq!(
            (discard.granularity, discard.most_sectors, discard.segments),
            (512, 1 << 21, 1)
        );
        let large = Geometry { block_bytes: 4096, can_trim: false, ..geometry() };
        let Params { basic, discard, .. } = params(&large, &shape, false, Grant::Full);
        assert_eq!((basic.attributes, basic.logical_shift, discard.most_sectors), (0, 12, 0));
        assert!(discard.most_zeroes_sectors > 0);
        let small = Shape::new(1 << 30, 4096, 2);
        assert_eq!(params(&geometry(), &small, true, Grant::Full).basic.chunk_sectors, 0);
        assert_eq!(params(&geometry(), &small.wide(), true, Grant::Full).basic.chunk_sectors, 2048);
    }

    #[test]
    fn clients_that_only_read_get_a_device_that_is_read_only() {
        let shape = Shape::new(1 << 30, 1 << 20, 1);
        let Params { basic, discard, .. } = params(&geometry(), &shape, true, Grant::Backup);
        assert_ne!(basic.attributes & attribute::READ_ONLY, 0);
        assert_eq!((discard.most_sectors, discard.most_zeroes_sectors), (0, 0));
    }

    #[test]
    fn a_device_survives_only_what_its_answers_survive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("origin");
        std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let volume = |origin: &Device, name: &str| {
            let choices = preset("sce").unwrap().choices();
            Volume::start(CacheConfig::of(origin.clone(), choices, 2).named(name))
        };
        let file = larder_io::DevSpec::Path(path);
        let file = Device::open(&file, larder_io::Access::ReadWrite).unwrap();
        let local = volume(&file, "a").unwrap();
        let wish = Wish::of(&local, Some(3), Grant::Full).unwrap();
        assert!(wish.survives);
        let info = wish.info();
        assert_eq!((info.id, info.queues, info.depth), (3, 2, DEPTH));
        assert_eq!(info.flags, feature::ENCODED | feature::USER_COPY | 3 << 3);
        let memory = volume(&Device::mem(64 << 20), "a").unwrap();
        let memory = Wish::of(&memory, None, Grant::Full).unwrap();
        assert!(!memory.survives);
        assert_eq!((memory.info().id, memory.info().flags & (3 << 3)), (u32::MAX, 0));
    }
}
