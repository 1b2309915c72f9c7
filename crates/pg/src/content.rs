// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a page that the cache uses: the hash without the checksum, and the checksum.
//!
//! A frame's own checksum is stale as soon as the page was changed: the server writes checksums into private copies.

use crc_fast::{CrcAlgorithm, Digest};

/// Where the checksum lies in a page (`pd_checksum`).
const CHECKSUM: std::ops::Range<usize> = 8..10;
/// Where the page stores the end of its free space (`pd_upper`); 0 in a page that was never used.
const UPPER: std::ops::Range<usize> = 14..16;

/// CRC-64 of some bytes.
#[must_use]
pub fn crc(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// Hash of all but the checksum: CRC-64.
#[must_use]
pub fn hash(page: &[u8]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(&page[..CHECKSUM.start]);
    digest.update(&page[CHECKSUM.end..]);
    digest.finalize()
}

/// The position of its last change in the server's log (`pd_lsn`); 0: none.
#[must_use]
pub fn lsn(page: &[u8]) -> u64 {
    let half = |at: usize| {
        u64::from(u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]))
    };
    half(0) << 32 | half(4)
}

/// The checksum in it.
#[must_use]
pub fn checksum(page: &[u8]) -> u16 {
    u16::from_le_bytes([page[CHECKSUM.start], page[CHECKSUM.start + 1]])
}

/// Writes a checksum into it.
pub fn set_checksum(page: &mut [u8], checksum: u16) {
    page[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// Whether it was never used: a relation is extended by such pages.
#[must_use]
pub fn is_new(page: &[u8]) -> bool {
    page[UPPER] == [0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_but_the_checksum_counts() {
        let page: Vec<u8> = (0..8192_u32).map(|i| (i * 31 / 8) as u8).collect();
        let plain = hash(&page);
        for at in 0..page.len() {
            let mut other = page.clone();
            other[at] ^= 1;
            assert_eq!(hash(&other) == plain, CHECKSUM.contains(&at), "byte {at}");
        }
        let mut other = page.clone();
        set_checksum(&mut other, 0xABCD);
        assert_eq!((checksum(&other), hash(&other)), (0xABCD, plain));
    }

    #[test]
    fn a_page_of_zeroes_is_new() {
        let mut page = vec![0; 8192];
        assert!(is_new(&page));
        page[15] = 0x20;
        assert!(!is_new(&page));
    }
}
