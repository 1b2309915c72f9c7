// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request of a trace, independent of the format.

/// The upper bound of offsets on a device: page numbers hold the device in the bits above.
pub const DEVICE_BYTES: u64 = 1 << 44;

/// Bytes of a page, the unit in which accesses are counted.
pub const PAGE_BYTES: u64 = 4096;

/// A request of so many bytes takes a loop over its pages a noticeable time.
pub const LONG_BYTES: u32 = 16 << 20;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read.
    Read,
    /// A write.
    Write,
    /// The trace does not state it.
    Unknown,
}

/// A request. [`Record::new`] guarantees that it is valid: not empty, and not beyond [`DEVICE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time of issue; 0 in a trace without times. May decrease, as in traces of several threads.
    pub ts_us: u64,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Length in bytes, never zero.
    pub len_bytes: u32,
    /// The operation.
    pub op: Op,
    /// The device.
    pub dev: u8,
}

impl Record {
    /// A valid request.
    ///
    /// # Errors
    /// The request is invalid; the error states what is accepted.
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

    /// The first byte after the request; cannot overflow in a valid record.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + u64::from(self.len_bytes)
    }

    /// The units of `unit_bytes` that the request touches, numbered over all devices: the device occupies the bits from
    /// 44 of the byte address.
    #[must_use]
    pub fn units(&self, unit_bytes: u64) -> std::ops::Range<u64> {
        let base = u64::from(self.dev) << 44;
        (base + self.offset_bytes) / unit_bytes..(base + self.end_bytes()).div_ceil(unit_bytes)
    }

    /// The pages of 4 KiB that the request touches.
    #[must_use]
    pub fn pages(&self) -> std::ops::Range<u64> {
        self.units(PAGE_BYTES)
    }
}
