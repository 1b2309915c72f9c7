// SPDX-License-Identifier: MIT OR Apache-2.0
//! The word by which a server recognises a device of its volume; the driver keeps it with the device.
//!
//! Invariants:
//! - It is the same in all versions of Larder: FNV-1a over the volume's name, and over what identifies its origin as long
//!   as the machine runs.
//! - Where a cluster's manager grants volumes to machines (`--generation`), the low 16 bits state the grant too, so that a
//!   device of an earlier grant is recognised and not continued. Its requests would overwrite what another machine wrote
//!   since. Grants are ordered as serial numbers of 16 bits are: a manager counts them.
//! - A manager's names are unique. Then the word is of the name alone: the origin may be another device in each grant.

use larder_volume::Volume;

/// Bits that state the grant.
const GRANT: u64 = 0xffff;

/// The word of a volume, see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// What the driver keeps.
    pub bits: u64,
    /// It states a grant.
    pub granted: bool,
}

/// What a device is to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    /// That of its volume.
    Own,
    /// That of its volume under an earlier grant.
    Earlier,
    /// That of its volume under a later grant.
    Later,
    /// That of another volume or program.
    Other,
}

impl Word {
    /// The word of a volume.
    #[must_use]
    pub fn of(volume: &Volume) -> Self {
        let named = fnv(volume.name().as_bytes(), fnv(b"larder\0", BASIS));
        match volume.generation() {
            0 => Self { bits: with_origin(volume, named), granted: false },
            generation => Self { bits: (named & !GRANT) | (generation & GRANT), granted: true },
        }
    }

    /// What a device is whose word has these bits.
    #[must_use]
    pub fn kin(self, bits: u64) -> Kin {
        if bits == self.bits {
            Kin::Own
        } else if !self.granted || (bits ^ self.bits) & !GRANT != 0 {
            Kin::Other
        } else if (self.bits as u16).wrapping_sub(bits as u16).cast_signed() > 0 {
            Kin::Earlier
        } else {
            Kin::Later
        }
    }
}

fn with_origin(volume: &Volume, hash: u64) -> u64 {
    match volume.origin().identity() {
        Ok(Some(identity)) => {
            fnv(&identity.inode.to_le_bytes(), fnv(&identity.dev.to_le_bytes(), hash))
        }
        _ => fnv(volume.origin().name().as_bytes(), hash),
    }
}

const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(bytes: &[u8], hash: u64) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(hash, step)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use larder_core::config::preset;
    use larder_io::Device;
    use larder_volume::CacheConfig;

    use super::*;

    fn volume(name: &str, generation: u64, origin: &Device) -> Arc<Volume> {
        let choices = preset("sce").unwrap().choices();
        let mut config = CacheConfig::of(origin.clone(), choices, 1).named(name);
        config.volumes[0].generation = generation;
        Volume::start(config).unwrap()
    }

    fn file(dir: &std::path::Path, name: &str) -> Device {
        let path = dir.join(name);
        std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        Device::open(&larder_io::DevSpec::Path(path), larder_io::Access::ReadWrite).unwrap()
    }

    #[test]
    fn without_a_manager_name_and_origin_count() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (file(dir.path(), "one"), file(dir.path(), "other"));
        let word = Word::of(&volume("a", 0, &one));
        assert_eq!(word.kin(Word::of(&volume("a", 0, &one)).bits), Kin::Own);
        assert_eq!(word.kin(word.bits ^ 1), Kin::Other);
        for different in [volume("b", 0, &one), volume("a", 0, &other), volume("a", 1, &one)] {
            assert_eq!(word.kin(Word::of(&different).bits), Kin::Other);
        }
        let memory = Word::of(&volume("a", 0, &Device::mem(64 << 20)));
        assert_eq!(memory.bits, fnv(b"larder\0amem:64MiB", BASIS));
    }

    #[test]
    fn with_a_manager_the_name_counts_and_the_grant_is_part_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (file(dir.path(), "one"), file(dir.path(), "other"));
        let word = |generation| Word::of(&volume("a", generation, &other));
        let kin = |generation, of: u64| word(generation).kin(word(of).bits);
        assert_eq!(word(7).kin(Word::of(&volume("a", 7, &one)).bits), Kin::Own);
        assert_eq!(word(7).kin(Word::of(&volume("b", 6, &one)).bits), Kin::Other);
        assert_eq!((kin(7, 6), kin(7, 1), kin(7, 8)), (Kin::Earlier, Kin::Earlier, Kin::Later));
        // The bits wrap around.
        assert_eq!((kin(65_536, 65_535), kin(65_535, 65_536)), (Kin::Earlier, Kin::Later));
    }
}
