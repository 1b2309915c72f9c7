// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was written to the write-ahead log last.
//!
//! `pg_control` identifies the state of a data directory only as of the last checkpoint. A snapshot of the running server
//! that was taken later and restored after a crash has the same `pg_control`, and fewer changes than flash. The server's log
//! has every change before a page on the disk or on flash has it. So the shared memory records the end of the last write to
//! `pg_wal` and the hash of its last bytes, and is valid only while `pg_wal` has them.
//!
//! Where flash is a part of the database (`full`) nothing begins empty. There it is enough that the log reaches as far as
//! what flash has was logged, to a page of the log: so the memory knows the highest LSN of all pages that flash took.
//!
//! Log writers take turns (the server sees to it), so one place to note is enough: what is about to be written, and what
//! was. A write that was cut short matches neither, and flash begins empty. Each note ends with its hash, so a process that
//! dies in the middle leaves a note that is not compared, and no signal needs to be blocked.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::area::{Area, Mark};
use crate::control::hash;
use crate::file::Segment;
use crate::frame;
use crate::here;

/// The bytes of a write that are hashed: its last page, and the size of a page.
const TAIL: usize = 8192;

const NEXT: [Mark; 5] = [
    Mark::WalNextTimeline,
    Mark::WalNextNumber,
    Mark::WalNextEnd,
    Mark::WalNextBytes,
    Mark::WalNextHash,
];
const LAST: [Mark; 5] =
    [Mark::WalTimeline, Mark::WalNumber, Mark::WalEnd, Mark::WalBytes, Mark::WalHash];

/// The `len` bytes from this address on are about to be written there.
///
/// # Safety
/// They are mapped and writable.
pub unsafe fn about_to_be(segment: Segment, at: u64, address: usize, len: usize) {
    let count = len.min(TAIL);
    // SAFETY: the caller's contract.
    let tail = unsafe { frame::copy(address + len - count, count) };
    let values =
        [u64::from(segment.timeline), segment.number, at + len as u64, count as u64, hash(&tail)];
    if let Some(area) = here::area() {
        // Without a hash it is not compared.
        area.set(Mark::WalNextHash, 0);
        NEXT.into_iter().zip(values).for_each(|(mark, value)| area.set(mark, value));
    }
}

/// They were.
pub fn is() {
    if let Some(area) = here::area() {
        area.set(Mark::WalHash, 0);
        LAST.into_iter().zip(NEXT).for_each(|(last, next)| area.set(last, area.get(next)));
    }
}

/// Whether the data directory's log has what was written last.
#[must_use]
pub fn is_there(data: &Path, area: &Area) -> bool {
    let nothing = [Mark::WalHash, Mark::WalNextHash].iter().all(|mark| area.get(*mark) == 0);
    nothing || [LAST, NEXT].iter().any(|marks| has(data, marks.map(|mark| area.get(mark))))
}

/// Where in the server's log the last write ended, or was about to.
#[must_use]
pub fn end(area: &Area, segment_bytes: u64) -> u64 {
    let of = |[_, number, end, _, _]: [Mark; 5]| {
        let number = area.get(number);
        // Memory with any content must not panic; the end is compared with the server's log.
        let within = (number & u64::from(u32::MAX)).saturating_mul(segment_bytes);
        (number >> 32 << 32).saturating_add(within).saturating_add(area.get(end))
    };
    of(LAST).max(of(NEXT))
}

/// Whether the data directory's log, in segments of this size, has been written up to this place.
#[must_use]
pub fn reaches(data: &Path, lsn: u64, segment_bytes: u64) -> bool {
    let Some(last) = lsn.checked_sub(1) else { return true };
    let Ok(entries) = std::fs::read_dir(data.join("pg_wal")) else { return false };
    let in_a_number = (1 << 32) / segment_bytes.max(1);
    let segment = last / segment_bytes.max(1);
    let number = ((segment / in_a_number.max(1)) << 32) | (segment % in_a_number.max(1));
    let page = last / TAIL as u64 * TAIL as u64;
    let there = |entry: std::fs::DirEntry| {
        let segment = Segment::of(entry.file_name().as_encoded_bytes())?;
        let mut address = [0; 8];
        let file = File::open(entry.path()).ok().filter(|_| segment.number == number)?;
        // The header of a page has its address. A recycled segment has headers with other addresses.
        file.read_exact_at(&mut address, page % segment_bytes + 8).ok()?;
        (u64::from_le_bytes(address) == page).then_some(())
    };
    entries.flatten().any(|entry| there(entry).is_some())
}

fn has(data: &Path, [timeline, number, end, bytes, expected]: [u64; 5]) -> bool {
    let Ok(timeline) = u32::try_from(timeline) else { return false };
    let name = Segment { timeline, number }.name();
    let Ok(file) = File::open(data.join("pg_wal").join(name)) else { return false };
    let mut tail = vec![0; bytes.min(TAIL as u64) as usize];
    let at = end.checked_sub(bytes);
    expected != 0
        && at.is_some_and(|at| file.read_exact_at(&mut tail, at).is_ok())
        && hash(&tail) == expected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_last_is_taken_for_it() {
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(data.path().join("pg_wal")).unwrap();
        let segment = Segment { timeline: 1, number: 1 };
        let path = data.path().join("pg_wal").join(segment.name());
        std::fs::write(&path, vec![5; 20_000]).unwrap();
        let of = |bytes: &[u8], end: u64| [1, 1, end, bytes.len() as u64, hash(bytes)];
        assert!(has(data.path(), of(&[5; 8192], 16_384)));
        assert!(!has(data.path(), of(&[6; 8192], 16_384)));
        assert!(!has(data.path(), of(&[5; 8192], 24_576)), "beyond the end");
        assert!(!has(data.path(), [1, 2, 8192, 8192, hash(&[5; 8192])]), "no such segment");
        assert!(!has(data.path(), [1, 1, 8192, 8192, 0]));
    }

    #[test]
    fn a_log_reaches_as_far_as_its_pages_say() {
        let data = tempfile::tempdir().unwrap();
        std::fs::create_dir(data.path().join("pg_wal")).unwrap();
        let size = 16 << 20;
        // Segment 0x1_0000_0003 of such a size, two pages written, the third of an older segment.
        let start = (1_u64 << 32) + 3 * size;
        let file = data.path().join("pg_wal").join("000000020000000100000003");
        let file = File::create(file).unwrap();
        file.set_len(size).unwrap();
        for (page, address) in [(0, start), (1, start + 8192), (2, 5 * size + 2 * 8192)] {
            file.write_all_at(&address.to_le_bytes(), page * 8192 + 8).unwrap();
        }
        let reaches = |lsn| reaches(data.path(), lsn, size);
        assert!([0, start + 1, start + 8192, start + 2 * 8192].into_iter().all(reaches));
        assert!(![start, start + 2 * 8192 + 1, start + size + 40].into_iter().any(reaches));
    }
}
