// SPDX-License-Identifier: MIT OR Apache-2.0
//! The timing of Holland et al., "Flash caching on the storage client" (ATC'13), Table 1.
//!
//! Constants for simulators that follow single blocks through RAM, flash, network and filer. The same figures drive the
//! models of the profiles `holland-ram`, `holland-flash` and `holland-filer`. A block is 4 KiB. The paper has neither
//! queues in front of RAM and flash nor a limit at the filer; only the network segment carries one packet at a time.

use crate::Nanos;

/// The durations of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holland {
    /// RAM: a block read or written.
    pub ram_ns_per_block: Nanos,
    /// Flash: a block read.
    pub flash_read_ns: Nanos,
    /// Flash: a block written.
    pub flash_write_ns: Nanos,
    /// Network: a packet without its bits. An I/O sends one packet each way.
    pub packet_ns: Nanos,
    /// Network: a bit; 32,768 ns for a block.
    pub ns_per_bit: Nanos,
    /// Filer: a block that was prefetched or cached.
    pub filer_fast_read_ns: Nanos,
    /// Filer: a block read from its disks.
    pub filer_slow_read_ns: Nanos,
    /// Filer: a block written.
    pub filer_write_ns: Nanos,
    /// Share of fast reads, at random. The paper's Fig. 5 has 0.80 to 0.95.
    pub fast_read_ratio: f64,
}

impl Holland {
    /// Table 1 as printed.
    #[must_use]
    pub const fn table_1() -> Self {
        Self {
            ram_ns_per_block: 400,
            flash_read_ns: 88_000,
            flash_write_ns: 21_000,
            packet_ns: 8_200,
            ns_per_bit: 1,
            filer_fast_read_ns: 92_000,
            filer_slow_read_ns: 7_952_000,
            filer_write_ns: 92_000,
            fast_read_ratio: 0.90,
        }
    }

    /// How long a packet with this many bytes of data occupies the segment.
    #[must_use]
    pub const fn packet_with(&self, bytes: u64) -> Nanos {
        self.packet_ns + bytes * 8 * self.ns_per_bit
    }
}

#[cfg(test)]
mod tests {
    use super::Holland;

    /// The paper's sums: 8 ms for a slow read, end to end.
    #[test]
    fn adds_up_to_eight_milliseconds() {
        let times = Holland::table_1();
        let round_trip_ns = times.packet_with(0) + times.packet_with(4096);
        assert_eq!(round_trip_ns, 49_168);
        assert_eq!((round_trip_ns + times.filer_slow_read_ns) / 1_000, 8_001);
        assert_eq!((round_trip_ns + times.filer_fast_read_ns) / 1_000, 141);
    }
}
