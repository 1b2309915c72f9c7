// SPDX-License-Identifier: MIT OR Apache-2.0
//! The label on a flash device: its volume, its format, and the places of its sections.
//!
//! Two copies of one block of [`LABEL_BYTES`], at bytes 0 and [`SECOND_COPY`]; an intact copy is enough. All bytes before
//! [`HEADER_BYTES`] belong to the label. It is written only when a device is formatted, so a crash of a running cache cannot
//! tear it.
//!
//! Layout, little-endian: magic (8 bytes), version (u32), CRC-32C of the block with this field zero (u32), volume id (u64),
//! unit bytes (u64), slots that there is room for (u64), shards (u32), number of sections (u32), bytes of a log (u64), flags (u64; 1: metadata has
//! dirty regions, 2: metadata has reference factors), bytes of the origin (u64, 0 without metadata); per section kind (u32),
//! first byte (u64), bytes (u64).
//!
//! Version 2 has page logs, a section for each shard. Each section also has blocks of the log, entries of a segment, pages
//! of a batch (u32 each, 0 in other sections). A program for version 1 rejects version 2.
//!
//! Version 3 is version 1 for several volumes: the last 8 bytes of the block are the [`digest`] of their names and sizes
//! (u64), in the order of their places.
//!
//! Version 4 is version 1 or 3 (the digest is then not 0) with a section of checksums, see `sums`.
//!
//! A volatile cache has no metadata section: its label only permits formatting the device again.

use crate::checksum::crc32c;
use crate::config::Choices;
use crate::journal::entry::Entry;

/// Bytes of one copy of the label.
pub const LABEL_BYTES: usize = 4096;
/// First byte of the second copy.
pub const SECOND_COPY: u64 = 64 << 10;
/// First byte after both copies.
pub const LABELS_END: u64 = SECOND_COPY + LABEL_BYTES as u64;
/// First byte of the first section of a formatted device.
pub const HEADER_BYTES: u64 = 1 << 20;
/// The most shards of a volume.
pub const MOST_SHARDS: u32 = 64;

const MAGIC: [u8; 8] = *b"LARDER\0\x01";
/// The version of the format ...
pub const VERSION: u32 = 1;
/// ... of that with page logs ...
pub const VERSION_LOGS: u32 = 2;
/// ... of that of several volumes ...
pub const VERSION_SHARED: u32 = 3;
/// ... and of that with checksums of cached pages.
pub const VERSION_SUMS: u32 = 4;
const SECTIONS_AT: usize = 72;
const DIGEST_AT: usize = LABEL_BYTES - 8;

/// Bytes of an entry in the table of sections.
fn section_bytes(version: u32) -> usize {
    if version == VERSION_LOGS { 32 } else { 20 }
}

/// The most bytes of all shards' logs together under periodic update, so that a half is no larger than in PRWC (Table 1),
/// where a unit is touched once while it is cached.
pub const LOG_PERIODIC: u64 = 5 << 18;

/// Optional content of metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeps {
    /// The dirty regions of each unit.
    pub dirty: bool,
    /// The reference factor of every origin unit.
    pub factors: bool,
}

impl Keeps {
    /// The content that these choices need.
    #[must_use]
    pub fn of(choices: &Choices) -> Self {
        Self { dirty: choices.write.flash_keeps(), factors: choices.admission.is_periodic() }
    }

    /// The kind of a slot's entry.
    #[must_use]
    pub fn entry(self) -> Entry {
        if self.dirty { Entry::Dirty } else { Entry::Valid }
    }

    /// Number of reference factors, for an origin of `units` units.
    #[must_use]
    pub fn factors(self, units: u64) -> u64 {
        if self.factors { units } else { 0 }
    }

    /// The most bytes of one log of all shards together.
    #[must_use]
    pub fn logs_most(self) -> u64 {
        if self.factors { LOG_PERIODIC } else { u64::MAX }
    }
}

/// The digest of several volumes, given by name and bytes: it differs if their names, sizes or order differ. Never 0.
pub fn digest<'a>(volumes: impl Iterator<Item = (&'a str, u64)>) -> u64 {
    let mut bytes = Vec::new();
    for (name, size) in volumes {
        bytes.extend((name.len() as u64).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(size.to_le_bytes());
    }
    1 << 32 | u64::from(crc32c(&bytes))
}

/// The content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// The metadata of all shards, see `journal`.
    Metadata,
    /// The slots of units.
    Slots,
    /// The checksums of cached pages, see `sums`.
    Sums,
    /// The page log of a shard, see `pagelog`.
    Log {
        /// Blocks of its ring.
        blocks: u32,
        /// Entries of a segment.
        segment: u32,
        /// Pages of a batch.
        batch_pages: u32,
    },
}

/// A part of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its content.
    pub kind: SectionKind,
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// A label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Volume id: new with every formatting.
    pub volume: u64,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Slots that metadata and checksums have room for, or blocks of all page logs.
    pub slots: u64,
    /// Shards with metadata or a page log.
    pub shards: u32,
    /// Bytes of one shard's log of metadata; 0 without metadata.
    pub log_bytes: u64,
    /// Optional content of the metadata.
    pub keeps: Keeps,
    /// Bytes of the origin, or of the space of several; 0 in a volatile cache.
    pub origin_bytes: u64,
    /// The [`digest`] of several volumes; 0 of one, and in a volatile cache.
    pub volumes: u64,
    /// The sections.
    pub sections: Vec<Section>,
}

/// The label that was found at the beginning of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A label.
    Label(Label),
    /// A label of an unknown version.
    Unknown {
        /// The version found.
        version: u32,
    },
    /// A label with a wrong checksum or content, in both copies.
    Damaged,
    /// No label.
    Nothing,
}

impl Label {
    /// The section of this kind.
    #[must_use]
    pub fn section(&self, kind: SectionKind) -> Option<&Section> {
        self.sections.iter().find(|s| s.kind == kind)
    }

    /// The first page log, if it has any.
    #[must_use]
    pub fn log(&self) -> Option<&Section> {
        self.sections.iter().find(|s| matches!(s.kind, SectionKind::Log { .. }))
    }

    /// Whether a restart may be warm: it has a journal or page logs.
    #[must_use]
    pub fn keeps_metadata(&self) -> bool {
        self.section(SectionKind::Metadata).is_some() || self.log().is_some()
    }

    /// The label's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; LABEL_BYTES] {
        let mut out = Vec::with_capacity(LABEL_BYTES);
        out.extend(MAGIC);
        let version = match self.log() {
            Some(_) => VERSION_LOGS,
            None if self.section(SectionKind::Sums).is_some() => VERSION_SUMS,
            None if self.volumes != 0 => VERSION_SHARED,
            None => VERSION,
        };
        out.extend(version.to_le_bytes());
        out.extend([0; 4]);
        out.extend([self.volume, self.unit_bytes, self.slots].iter().flat_map(|n| n.to_le_bytes()));
        out.extend(self.shards.to_le_bytes());
        out.extend((self.sections.len() as u32).to_le_bytes());
        out.extend(self.log_bytes.to_le_bytes());
        let flags = u64::from(self.keeps.dirty) | u64::from(self.keeps.factors) << 1;
        out.extend(flags.to_le_bytes());
        out.extend(self.origin_bytes.to_le_bytes());
        debug_assert_eq!(out.len(), SECTIONS_AT);
        for section in &self.sections {
            let (kind, log): (u32, [u32; 3]) = match section.kind {
                SectionKind::Metadata => (1, [0; 3]),
                SectionKind::Slots => (2, [0; 3]),
                SectionKind::Sums => (4, [0; 3]),
                SectionKind::Log { blocks, segment, batch_pages } => {
                    (3, [blocks, segment, batch_pages])
                }
            };
            out.extend(kind.to_le_bytes());
            out.extend(section.offset.to_le_bytes());
            out.extend(section.bytes.to_le_bytes());
            if version == VERSION_LOGS {
                out.extend(log.iter().flat_map(|n| n.to_le_bytes()));
            }
        }
        let mut bytes = [0; LABEL_BYTES];
        bytes[..out.len()].copy_from_slice(&out);
        bytes[DIGEST_AT..].copy_from_slice(&self.volumes.to_le_bytes());
        let crc = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the label from the beginning of a device, at least up to [`LABELS_END`].
    #[must_use]
    pub fn find(bytes: &[u8]) -> Found {
        let second = bytes.get(SECOND_COPY as usize..).unwrap_or_default();
        match (Self::find_one(bytes), Self::find_one(second)) {
            (Found::Label(label), _) | (_, Found::Label(label)) => Found::Label(label),
            (Found::Nothing, other) | (other, _) => other,
        }
    }

    fn find_one(bytes: &[u8]) -> Found {
        let Some(bytes) = bytes.get(..LABEL_BYTES).filter(|b| b[..8] == MAGIC) else {
            return Found::Nothing;
        };
        let mut zeroed = bytes.to_vec();
        zeroed[12..16].fill(0);
        if u32_at(bytes, 12) != crc32c(&zeroed) {
            return Found::Damaged;
        }
        match u32_at(bytes, 8) {
            version @ (VERSION | VERSION_LOGS | VERSION_SHARED | VERSION_SUMS) => {
                Self::decode(bytes, version).map_or(Found::Damaged, Found::Label)
            }
            version => Found::Unknown { version },
        }
    }

    fn decode(bytes: &[u8], version: u32) -> Option<Self> {
        let (count, each) = (u32_at(bytes, 44) as usize, section_bytes(version));
        let table = bytes.get(SECTIONS_AT..SECTIONS_AT + count.checked_mul(each)?)?;
        let section = |entry: &[u8]| {
            let kind = match u32_at(entry, 0) {
                1 => SectionKind::Metadata,
                2 => SectionKind::Slots,
                3 if version == VERSION_LOGS => SectionKind::Log {
                    blocks: u32_at(entry, 20),
                    segment: u32_at(entry, 24),
                    batch_pages: u32_at(entry, 28),
                },
                4 if version == VERSION_SUMS => SectionKind::Sums,
                _ => return None,
            };
            Some(Section { kind, offset: u64_at(entry, 4), bytes: u64_at(entry, 12) })
        };
        let flags = u64_at(bytes, 56);
        Some(Self {
            volume: u64_at(bytes, 16),
            unit_bytes: u64_at(bytes, 24),
            slots: u64_at(bytes, 32),
            shards: u32_at(bytes, 40),
            log_bytes: u64_at(bytes, 48),
            keeps: Keeps { dirty: flags & 1 == 1, factors: flags & 2 == 2 },
            origin_bytes: u64_at(bytes, 64),
            volumes: match version {
                VERSION_SHARED | VERSION_SUMS => u64_at(bytes, DIGEST_AT),
                _ => 0,
            },
            sections: table.chunks_exact(each).map(section).collect::<Option<_>>()?,
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        let metadata = Section { kind: SectionKind::Metadata, offset: 1 << 20, bytes: 3 << 20 };
        let slots = Section { kind: SectionKind::Slots, offset: 4 << 20, bytes: 64 << 20 };
        Label {
            volume: 0x1234_5678_9abc_def0,
            unit_bytes: 1 << 20,
            slots: 64,
            shards: 2,
            log_bytes: 8 << 20,
            keeps: Keeps { dirty: true, factors: false },
            origin_bytes: 1 << 40,
            volumes: 0,
            sections: vec![metadata, slots],
        }
    }

    fn device(first: &[u8], second: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; SECOND_COPY as usize + LABEL_BYTES];
        bytes[..first.len()].copy_from_slice(first);
        bytes[SECOND_COPY as usize..][..second.len()].copy_from_slice(second);
        bytes
    }

    #[test]
    fn a_label_is_found_in_either_copy_and_damage_is_detected() {
        let good = label().encode();
        let mut bad = good;
        bad[100] ^= 1;
        assert_eq!(Label::find(&good), Found::Label(label()));
        assert_eq!(Label::find(&device(&bad, &good)), Found::Label(label()));
        assert_eq!(Label::find(&device(&[], &good)), Found::Label(label()));
        assert_eq!(Label::find(&device(&bad, &bad)), Found::Damaged);
        assert_eq!(Label::find(&device(&[], &[])), Found::Nothing);
        assert_eq!(Label::find(b"short"), Found::Nothing);
    }

    #[test]
    fn a_label_with_page_logs_has_version_2() {
        let log = |n: u64| Section {
            kind: SectionKind::Log { blocks: 2_000, segment: 250, batch_pages: 64 },
            offset: (1 << 20) + n * (9 << 20),
            bytes: 9 << 20,
        };
        let logs = Label { sections: (0..64).map(log).collect(), log_bytes: 0, ..label() };
        let bytes = logs.encode();
        assert_eq!((u32_at(&bytes, 8), u32_at(&label().encode(), 8)), (2, 1));
        assert_eq!(Label::find(&bytes), Found::Label(logs));
    }

    #[test]
    fn a_label_of_several_volumes_has_version_3_and_their_digest() {
        let digest = |volumes: &[(&str, u64)]| digest(volumes.iter().copied());
        let (a, b) = (("a", 1 << 30), ("b", 1 << 30));
        let known = digest(&[a, b]);
        for other in [[b, a], [a, ("c", b.1)], [a, ("b", 1 << 29)]] {
            assert_ne!(digest(&other), known);
        }
        let shared = Label { volumes: known, ..label() };
        let bytes = shared.encode();
        assert_eq!(u32_at(&bytes, 8), VERSION_SHARED);
        assert_eq!(Label::find(&bytes), Found::Label(shared));
    }

    #[test]
    fn a_label_with_checksums_has_version_4() {
        let sums = Section { kind: SectionKind::Sums, offset: 3 << 20, bytes: 1 << 20 };
        for volumes in [0, 1 << 32] {
            let mut label = Label { volumes, ..label() };
            label.sections.insert(1, sums);
            let bytes = label.encode();
            assert_eq!(u32_at(&bytes, 8), VERSION_SUMS);
            assert_eq!(Label::find(&bytes), Found::Label(label));
        }
    }

    #[test]
    fn an_unknown_version_is_reported() {
        let mut bytes = label().encode();
        bytes[8] = 9;
        bytes[12..16].fill(0);
        let crc = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Label::find(&bytes), Found::Unknown { version: 9 });
    }
}
