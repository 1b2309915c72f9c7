// SPDX-License-Identifier: MIT OR Apache-2.0
//! Splits operations into the requests that an export supports.
//!
//! Invariants: the steps of an operation depend only on the operation, its progress, and the export's description at
//! the time of opening; a connection whose export supports less is not used. Without FUA a flush follows the last
//! write; without write-zeroes, zeroes are written; without trim, a trim has no effect.

use std::ops::Range;

use larder_core::exec::IoKind;
use larder_nbd::client::Info;
use larder_nbd::codec::can;

use crate::device::file::ZERO_CHUNK;

/// The longest trim or zeroing of one request.
const LONGEST: u64 = 1 << 30;

/// The relevant capabilities of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExportInfo {
    pub(super) bytes: u64,
    pub(super) block: u32,
    pub(super) preferred: u32,
    /// The longest payload, in whole blocks.
    pub(super) payload: u64,
    flags: u16,
}

/// Flags on which requests depend.
const MATTER: u16 = can::FLUSH | can::FUA | can::TRIM | can::WRITE_ZEROES | can::MULTI_CONN;

/// One request of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) kind: IoKind,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Step {
    /// The range that it changes.
    pub(super) fn writes(&self) -> Option<Range<u64>> {
        let writes = !matches!(self.kind, IoKind::Read | IoKind::Flush);
        writes.then(|| self.offset..self.offset + self.len)
    }

    /// Whether it is durable once it is acknowledged.
    pub(super) fn is_durable(&self) -> bool {
        match self.kind {
            IoKind::Write { fua } | IoKind::Trim { fua } | IoKind::Zero { fua, .. } => fua,
            IoKind::Read | IoKind::Flush => false,
        }
    }

    /// The progress of an operation after this step; beyond its length after the flush.
    pub(super) fn end_progress(&self, offset: u64, len: u64) -> u64 {
        if self.kind == IoKind::Flush { len + 1 } else { self.offset + self.len - offset }
    }
}

impl ExportInfo {
    /// The capabilities that an export describes, with blocks of at least `least` bytes; an error if it cannot be used.
    pub(super) fn of(info: &Info, least: u32, most: u32) -> Result<Self, String> {
        let block = info.min_block_bytes.max(least);
        if block > most {
            return Err(format!("its blocks are {block} bytes; accepted: up to {most}"));
        }
        let payload = u64::from(info.max_payload_bytes / block * block);
        if payload == 0 {
            let most = info.max_payload_bytes;
            return Err(format!("its maximum payload is {most} bytes; accepted: at least {block}"));
        }
        let bytes = info.bytes - info.bytes % u64::from(block);
        let preferred = info.preferred_block_bytes;
        Ok(Self { bytes, block, preferred, payload, flags: info.flags & MATTER })
    }

    pub(super) fn can(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether the export can still be used as when it was opened.
    pub(super) fn still_fits(&self, info: &Info) -> Result<(), String> {
        let bytes = info.bytes - info.bytes % u64::from(self.block);
        if bytes != self.bytes {
            return Err(format!("its size is {bytes} bytes instead of {}", self.bytes));
        }
        let smaller = u64::from(info.max_payload_bytes) < self.payload;
        if info.min_block_bytes > self.block || smaller || !info.can(self.flags) {
            return Err("it supports less than when it was opened".to_owned());
        }
        Ok(())
    }

    /// The next step of an operation with this progress, if there is one.
    pub(super) fn step(&self, kind: IoKind, offset: u64, len: u64, progress: u64) -> Option<Step> {
        if kind == IoKind::Flush {
            return (progress == 0).then_some(Step { kind, offset: 0, len: 0 });
        }
        let has_fua = self.can(can::FUA);
        if matches!(kind, IoKind::Trim { .. }) && !self.can(can::TRIM) {
            return None;
        }
        if progress >= len {
            let fua = match kind {
                IoKind::Write { fua } | IoKind::Trim { fua } | IoKind::Zero { fua, .. } => fua,
                IoKind::Read | IoKind::Flush => false,
            };
            let wanted = fua && !has_fua && progress == len;
            return wanted.then_some(Step { kind: IoKind::Flush, offset: 0, len: 0 });
        }
        let (kind, most) = match kind {
            IoKind::Write { fua } => (IoKind::Write { fua: fua && has_fua }, self.payload),
            IoKind::Trim { fua } => (IoKind::Trim { fua: fua && has_fua }, LONGEST),
            IoKind::Zero { fua, may_unmap } if self.can(can::WRITE_ZEROES) => {
                (IoKind::Zero { fua: fua && has_fua, may_unmap }, LONGEST)
            }
            IoKind::Zero { fua, .. } => {
                (IoKind::Write { fua: fua && has_fua }, self.payload.min(ZERO_CHUNK))
            }
            kind => (kind, self.payload),
        };
        let most = most - most % u64::from(self.block);
        Some(Step { kind, offset: offset + progress, len: (len - progress).min(most) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(flags: u16) -> Info {
        Info {
            bytes: (1 << 20) + 100,
            flags: flags | can::HAS_FLAGS,
            min_block_bytes: 1,
            preferred_block_bytes: 4096,
            max_payload_bytes: 10_000,
            structured: true,
            allocation: None,
            name: None,
            description: None,
        }
    }

    /// All steps of an operation at 4096.
    fn steps(flags: u16, kind: IoKind, len: u64) -> Vec<(IoKind, u64, u64)> {
        let export = ExportInfo::of(&info(flags), 512, 4096).unwrap();
        let (mut found, mut progress) = (Vec::new(), 0);
        while let Some(step) = export.step(kind, 4096, len, progress) {
            found.push((step.kind, step.offset, step.len));
            progress = step.end_progress(4096, len);
        }
        found
    }

    #[test]
    fn operations_are_split_into_supported_requests() {
        let (plain, durable) = (IoKind::Write { fua: false }, IoKind::Write { fua: true });
        let zero = IoKind::Zero { fua: true, may_unmap: true };
        let trim = IoKind::Trim { fua: false };
        let flush = (IoKind::Flush, 0, 0);
        let cut = |kind| vec![(kind, 4096, 9728), (kind, 13824, 512)];
        assert_eq!(steps(0, IoKind::Read, 10240), cut(IoKind::Read));
        assert_eq!(steps(can::FUA, durable, 10240), cut(durable));
        assert_eq!(steps(0, durable, 10240), [cut(plain), vec![flush]].concat());
        assert_eq!(steps(0, IoKind::Flush, 0), [flush]);
        assert_eq!(steps(0, trim, 4096), []);
        assert_eq!(steps(can::TRIM, trim, 1 << 19), [(trim, 4096, 1 << 19)]);
        assert_eq!(steps(0, zero, 512), [(plain, 4096, 512), flush]);
        assert_eq!(steps(can::WRITE_ZEROES | can::FUA, zero, 1 << 19), [(zero, 4096, 1 << 19)]);
    }

    #[test]
    fn a_changed_export_is_detected() {
        let export = ExportInfo::of(&info(can::FLUSH), 512, 4096).unwrap();
        assert_eq!(export.bytes, 1 << 20);
        assert_eq!(export.still_fits(&info(can::FLUSH | can::FUA)), Ok(()));
        assert!(export.still_fits(&info(0)).is_err());
        let other = |change: fn(&mut Info)| {
            let mut info = info(can::FLUSH);
            change(&mut info);
            export.still_fits(&info).unwrap_err()
        };
        assert!(other(|i| i.bytes += 512).contains("size"));
        assert!(other(|i| i.max_payload_bytes = 4096).contains("less"));
        assert!(other(|i| i.min_block_bytes = 4096).contains("less"));
        let tiny = Info { max_payload_bytes: 256, ..info(0) };
        assert!(ExportInfo::of(&tiny, 512, 4096).unwrap_err().contains("256"));
        let coarse = Info { min_block_bytes: 8192, ..info(0) };
        assert!(ExportInfo::of(&coarse, 512, 4096).unwrap_err().contains("8192"));
    }
}
