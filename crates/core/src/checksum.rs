// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checksum of all metadata and page logs on flash: CRC-32C.

/// CRC-32C of the bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The checksum of bytes that come in parts.
pub struct Digest(crc_fast::Digest);

impl Default for Digest {
    fn default() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }
}

impl Digest {
    /// The next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// CRC-32C of all of them.
    #[must_use]
    pub fn finish(self) -> u32 {
        self.0.finalize() as u32
    }
}
