// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file whose header describes a memory that it cannot hold is not joined: no size in it is used before it is checked.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};
use larder_shared::{Memory, Shape};

const USER_WORDS: usize = 1_000;

fn memory() -> (File, u64) {
    let log = Geometry { base: 0, blocks: 0, page_bytes: 4096, batch_pages: 4, volume: 7 };
    let log = Geometry { blocks: log.least_blocks(), ..log };
    let settings = LogSettings { policy: LogPolicy::Full, second_chance: true };
    let file = tempfile::tempfile().unwrap();
    let shape = Shape { log, settings, user_words: USER_WORDS };
    drop(Memory::create(&OwnedFd::from(file.try_clone().unwrap()), shape).unwrap());
    let bytes = file.metadata().unwrap().len();
    (file, bytes)
}

fn joins(file: &File) -> bool {
    let Ok(memory) = Memory::join(&OwnedFd::from(file.try_clone().unwrap())) else { return false };
    // What a member would read.
    let words = memory.user_words();
    words.last().is_some() && memory.shape().log.blocks > 0
}

#[test]
fn sizes_that_wrap_or_exceed_the_file_are_refused() {
    let (file, bytes) = memory();
    assert!(joins(&file));
    let mut header = [0; 4096];
    file.read_exact_at(&mut header, 0).unwrap();
    // The words of the header that are sizes: first byte, blocks, bytes of a page, pages of a batch, words of the user.
    for at in [1, 2, 3, 4, 8] {
        let word =
            |header: &[u8]| u64::from_le_bytes(header[8 * at..8 * at + 8].try_into().unwrap());
        let right = word(&header);
        // A few more words may fit into the rest of the last page.
        let wrapping = (12..64).map(|bit| right.wrapping_add(1 << bit));
        let others =
            [0, 1, 3, u64::MAX, u64::MAX / 8, (1 << 61) + 1, 1 << 32 | right, bytes, bytes / 8];
        for value in wrapping.chain(others).filter(|value| *value != right) {
            // A base elsewhere is possible: only the flash shows whether the log lies there.
            if at == 1 && value.is_multiple_of(4096) && value < (1 << 63) - (1 << 40) {
                continue;
            }
            file.write_all_at(&value.to_le_bytes(), 8 * at as u64).unwrap();
            assert!(!joins(&file), "word {at}: {value:#x} instead of {right:#x}");
        }
        file.write_all_at(&right.to_le_bytes(), 8 * at as u64).unwrap();
    }
    assert!(joins(&file));
    for length in [0, 100, 4096, bytes - 4096, bytes + 4096] {
        file.set_len(length).unwrap();
        assert!(!joins(&file), "{length} bytes");
        file.set_len(bytes).unwrap();
        file.write_all_at(&header, 0).unwrap();
    }
}
