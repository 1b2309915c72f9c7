// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request of a trace, whatever its format.

/// A device's last byte lies below this, since page numbers hold the device above it.
pub const DEVICE_BYTES: u64 = 1 << 44;

/// Bytes of a page, the unit in which a trace's accesses are counted.
pub const PAGE_BYTES: u64 = 4096;

/// What a request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// It read.
    Read,
    /// It wrote.
    Write,
    /// The trace does not say.
    Unknown,
}

/// A request. Made by [`Record::new`] it is lawful: not empty, and its end is not above
/// [`DEVICE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was issued; 0 in a trace without times. May go back: traces of several threads do.
    pub ts_us: u64,
    /// Its first byte on its device.
    pub offset_bytes: u64,
    /// Its length, never zero.
    pub len_bytes: u32,
    /// What it did.
    pub op: Op,
    /// Its device.
    pub dev: u8,
}

impl Record {
    /// A lawful request.
    ///
    /// # Errors
    /// What is wrong with it and what is accepted.
    pub fn new(ts_us: u64, dev: u8, op: Op, offset: u64, len: u64) -> Result<Self, String> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= DEVICE_BYTES);
        match u32::try_from(len) {
            Ok(len_bytes) if len_bytes > 0 && fits => {
                Ok(Self { ts_us, offset_bytes: offset, len_bytes, op, dev })
            }
            _ => Err(format!(
                "{len} bytes at offset {offset}; accepted: at least one byte, less than 4 GiB, \
                 ending at 16 TiB or before"
            )),
        }
    }

    /// The first byte behind it; cannot overflow in a lawful record.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + u64::from(self.len_bytes)
    }

    /// The units of `unit_bytes` that it touches, as numbers over all devices: the device stands
    /// above bit 44 of the byte address.
    #[must_use]
    pub fn units(&self, unit_bytes: u64) -> std::ops::Range<u64> {
        let base = u64::from(self.dev) << 44;
        (base + self.offset_bytes) / unit_bytes..(base + self.end_bytes()).div_ceil(unit_bytes)
    }

    /// The pages of 4 KiB that it touches.
    #[must_use]
    pub fn pages(&self) -> std::ops::Range<u64> {
        self.units(PAGE_BYTES)
    }
}
