// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is in a page: bytes that say which page and which version of it they are.
//!
//! Purpose: a read can be checked, and what it wrongly brought can be named: an old version,
//! another page, zeroes, or data that was never written.
//!
//! Invariants: content is a function of page and version alone; every 512-byte sector names its
//! page, version and place in a header and is filled with noise of its own, so that the check distinguishes a page
//! made of two versions from either.
//!
//! Why not a checksum over random bytes: content that can be computed is compared in full.

use std::fmt;
use std::ops::RangeInclusive;

use crate::demo::device_file::PAGE_BYTES;

/// Bytes of a sector, the unit of consistency.
const SECTOR_BYTES: usize = 512;

const WORD: usize = size_of::<u64>();
const MAGIC: u64 = u64::from_le_bytes(*b"demopage");
/// Words of a sector's header: magic, page, version and sector.
const HEADER_WORDS: usize = 3;
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// `splitmix64`'s finaliser: every bit depends on every bit.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The words of a sector.
fn words(page: u32, version: u32, sector: usize) -> impl Iterator<Item = u64> {
    let seed = mix(u64::from(page) << 32 | u64::from(version)) ^ mix(sector as u64 + 1);
    let header = [MAGIC, u64::from(page), u64::from(version) << 32 | sector as u64];
    let noise = (1..).map(move |i: u64| mix(seed.wrapping_add(i.wrapping_mul(GOLDEN))));
    header.into_iter().chain(noise).take(SECTOR_BYTES / WORD)
}

/// Writes the content of a version of a page.
pub fn fill(page: u32, version: u32, into: &mut [u8]) {
    for (at, sector) in into.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        for (place, word) in sector.chunks_exact_mut(WORD).zip(words(page, version, at)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
}

fn word(sector: &[u8], at: usize) -> u64 {
    let mut bytes = [0; WORD];
    bytes.copy_from_slice(&sector[at * WORD..(at + 1) * WORD]);
    u64::from_le_bytes(bytes)
}

/// A sector that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    page: u32,
    /// Its place in the page.
    sector: usize,
    /// The versions that were lawful.
    lawful: RangeInclusive<u32>,
    found: Found,
}

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Zeroes,
    /// This version of this sector of this page, whole.
    Content {
        page: u32,
        version: u32,
        sector: usize,
    },
    /// Nothing that was ever written.
    Unknown,
}

fn identify(sector: &[u8]) -> Found {
    if sector.iter().all(|b| *b == 0) {
        return Found::Zeroes;
    }
    let (page, tail) = (word(sector, 1), word(sector, HEADER_WORDS - 1));
    let (version, at) = ((tail >> 32) as u32, (tail & u64::from(u32::MAX)) as usize);
    match u32::try_from(page) {
        Ok(page) if is(sector, page, version, at) => Found::Content { page, version, sector: at },
        _ => Found::Unknown,
    }
}

fn is(sector: &[u8], page: u32, version: u32, at: usize) -> bool {
    words(page, version, at).enumerate().all(|(i, expected)| word(sector, i) == expected)
}

/// Checks the content of a page, each sector on its own: each must be one of the lawful versions.
///
/// # Errors
/// The first sector that is none of them.
pub fn check(page: u32, lawful: RangeInclusive<u32>, data: &[u8]) -> Result<(), Mismatch> {
    for (at, sector) in data.chunks_exact(SECTOR_BYTES).enumerate() {
        let version = (word(sector, HEADER_WORDS - 1) >> 32) as u32;
        if !lawful.contains(&version) || !is(sector, page, version, at) {
            return Err(Mismatch { page, sector: at, lawful, found: identify(sector) });
        }
    }
    Ok(())
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { page, sector, lawful, .. } = self;
        let offset_bytes = u64::from(*page) * PAGE_BYTES as u64 + (sector * SECTOR_BYTES) as u64;
        write!(f, "byte {offset_bytes} of the volume (page {page}, sector {sector}) must be ")?;
        match (lawful.start(), lawful.end()) {
            (0, 0) => write!(f, "the initial fill")?,
            (a, b) if a == b => write!(f, "version {a}")?,
            (a, b) => write!(f, "one of the versions {a} to {b}")?,
        }
        match self.found {
            Found::Zeroes => write!(f, "; it reads as zeroes"),
            Found::Unknown => write!(f, "; it reads as data that was never written"),
            Found::Content { page: p, version: v, sector: s } if (p, s) == (*page, *sector) => {
                let age = if v < *lawful.start() { "stale" } else { "not yet written" };
                write!(f, "; it reads as its version {v} ({age})")
            }
            Found::Content { page, version, sector } => {
                write!(f, "; it reads as version {version} of page {page}, sector {sector}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(page: u32, version: u32) -> Vec<u8> {
        let mut bytes = vec![0; PAGE_BYTES];
        fill(page, version, &mut bytes);
        bytes
    }

    #[test]
    fn the_lawful_versions_pass_and_a_page_may_be_of_two() {
        let (old, new) = (page(9, 4), page(9, 5));
        assert_eq!(check(9, 4..=4, &old), Ok(()));
        assert_eq!(check(9, 4..=5, &new), Ok(()));
        let both = [&old[..SECTOR_BYTES], &new[SECTOR_BYTES..]].concat();
        assert_eq!(check(9, 4..=5, &both), Ok(()));
        assert_eq!(check(9, 5..=5, &both).unwrap_err().sector, 0);
        assert_eq!(check(9, 4..=4, &both).unwrap_err().sector, 1);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |data: &[u8]| check(9, 4..=4, data).unwrap_err().to_string();
        assert!(wrong(&page(9, 3)).contains("version 3 (stale)"));
        assert!(wrong(&page(9, 5)).contains("version 5 (not yet written)"));
        assert!(wrong(&page(8, 4)).contains("version 4 of page 8, sector 0"));
        assert!(wrong(&[0; PAGE_BYTES]).contains("zeroes"));
        let mut bytes = page(9, 4);
        bytes[PAGE_BYTES - 1] ^= 1;
        let line = wrong(&bytes);
        assert!(line.contains("data that was never written") && line.contains("sector 7"));
        bytes.copy_from_slice(&page(9, 4));
        bytes[..2 * SECTOR_BYTES].rotate_left(SECTOR_BYTES);
        assert!(wrong(&bytes).contains("version 4 of page 9, sector 1"));
    }

    #[test]
    fn every_flipped_bit_is_seen() {
        let mut bytes = page(1, 0);
        for bit in (0..PAGE_BYTES * 8).step_by(37) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(check(1, 0..=0, &bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
