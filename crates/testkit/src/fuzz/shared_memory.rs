// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary bytes in the header of the memory that processes share.
//!
//! The input is a byte with the memory, a byte with changes of its length in pages, and then pieces: a word of the header
//! (u8), a length (u8), and that many bytes. Required: no panic. A memory that is joined has the sizes of its file, and its
//! last words can be read.

use std::cell::OnceCell;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use larder_core::pagelog::{Geometry, LogPolicy, LogSettings};
use larder_shared::{Memory, Shape, Words};

/// Words of the header that can be overwritten.
const WORDS: usize = 24;
const PAGE: u64 = 4096;

struct Image {
    file: File,
    bytes: u64,
    header: [u8; 8 * WORDS],
}

thread_local! {
    static IMAGES: OnceCell<[Image; 2]> = const { OnceCell::new() };
}

impl Image {
    fn of(page_bytes: u32, user_words: usize) -> Self {
        let log = Geometry { base: 0, blocks: 0, page_bytes, batch_pages: 4, volume: 7 };
        let log = Geometry { blocks: log.least_blocks(), ..log };
        let settings = LogSettings { policy: LogPolicy::Full, second_chance: true };
        let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile());
        let file = file.expect("a temporary file");
        let owned = OwnedFd::from(file.try_clone().expect("a descriptor"));
        drop(Memory::create(&owned, Shape { log, settings, user_words }).expect("memory"));
        let bytes = file.metadata().expect("a file").len();
        let mut header = [0; 8 * WORDS];
        file.read_exact_at(&mut header, 0).expect("a header");
        Self { file, bytes, header }
    }

    fn check(&self, longer: u8, mut pieces: &[u8]) {
        let mut header = self.header;
        while let Some(([word, len], rest)) = pieces.split_first_chunk() {
            let (piece, next) = rest.split_at(usize::from(*len).min(rest.len()));
            let at = 8 * (usize::from(*word) % WORDS);
            let len = piece.len().min(header.len() - at);
            header[at..at + len].copy_from_slice(&piece[..len]);
            pieces = next;
        }
        let bytes = match longer {
            0..128 => self.bytes + u64::from(longer) * PAGE,
            128..192 => self.bytes.saturating_sub(u64::from(longer - 127) * PAGE),
            _ => self.bytes << (longer - 192),
        };
        self.file.write_all_at(&header, 0).expect("it can be written");
        // More than a file can have: then its length is as it was.
        let _ = self.file.set_len(bytes);
        joined(&self.file);
        self.file.set_len(self.bytes).expect("its own length");
    }
}

fn joined(file: &File) {
    let file = file.as_fd().try_clone_to_owned().expect("a descriptor");
    let Ok(memory) = Memory::join(&file) else { return };
    let shape = memory.shape();
    assert!(shape.log.is_possible());
    assert_eq!(memory.user_words().len(), shape.user_words);
    // Not all of them: a file without blocks would get them.
    let last = |words: &[AtomicU64]| words.last().map(|word| word.load(Relaxed));
    std::hint::black_box((last(memory.user_words()), last(&Words::of(&memory))));
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some(([which, longer], pieces)) = data.split_first_chunk() else { return };
    IMAGES.with(|images| {
        let images = images.get_or_init(|| [Image::of(4096, 1_000), Image::of(8192, 0)]);
        images[usize::from(which & 1)].check(*longer, pieces);
    });
}
