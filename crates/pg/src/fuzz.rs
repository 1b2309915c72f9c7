// SPDX-License-Identifier: MIT OR Apache-2.0
//! The check of the fuzz target `postgres_files`: arbitrary bytes as the files that a start of the server reads.
//!
//! The input is a byte with what to fix, a byte with the start, and then pieces: a structure (u8), an offset in it (u16), a
//! length (u8), and that many bytes. The pieces overwrite parts of what an earlier start left: `larder.kept`, the journal
//! of names, the guard, `pg_control`, a segment of the server's log, the header and the marks of the shared memory.
//! Fixing computes checksums so that damage passes them.
//!
//! Required: no panic, no endless loop. A start that is refused gives a one-line error. A start that is accepted works:
//! a page that is written and committed is there after the next crash and start.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use larder_core::pagelog::LogPolicy;
use larder_shared::Memory;

use crate::area::{self, Mark};
use crate::content::crc;
use crate::control::{self, Control};
use crate::earlier;
use crate::error::Unusable;
use crate::guard::Guard;
use crate::kept::Kept;
use crate::memory::How;
use crate::rig::{FORK, PAGE, Place, Run, fetch, page_of};

// What is fixed.
const KEPT: u8 = 1;
const NAMES: u8 = 2;
/// `larder.kept` has the hash of `pg_control`.
const CONTROL: u8 = 4;

// The start.
const POLICY: u8 = 3;
/// The memory of the earlier start still exists.
const LEFT: u8 = 4;

/// Files of which the images are the contents, below the directory of flash and below that of data.
const FILES: [(bool, &str); 5] = [
    (true, "larder.kept"),
    (true, "larder.names"),
    (false, "backup_label"),
    (false, control::PATH),
    (false, "pg_wal/000000010000000000000001"),
];
const FLASH: &str = "larder.flash";
/// Bytes of the shared memory's header, and of the marks.
const HEADER: usize = 17 * 8;
const MARKS: usize = 8 * area::MARKS;
const CRC_ROW: usize = 40;

/// What an earlier start left.
#[derive(Clone)]
struct Images {
    /// As in [`FILES`], then the memory's header and marks.
    images: [Vec<u8>; FILES.len() + 2],
    flash: Vec<u8>,
    memory: Vec<u8>,
}

thread_local! {
    static LEFT_BEHIND: RefCell<Option<(Place, Images)>> = const { RefCell::new(None) };
}

fn path(place: &Place, (on_flash, name): (bool, &str)) -> std::path::PathBuf {
    if on_flash { place.flash.path() } else { place.data.path() }.join(name)
}

fn write(path: &Path, bytes: &[u8]) {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(bytes)).expect("it can be written");
}

/// `pg_control` of a running server whose log has a page, and a segment of that log.
fn server_files() -> [Vec<u8>; 2] {
    let mut control = vec![0; 64];
    for (at, word) in [(0, 77_u64), (12, 6 << 32 | 1), (40, 16 << 20)] {
        control[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    let mut segment = vec![7; 2 * PAGE];
    for page in 0..2 {
        let address = (16_u64 << 20) + (page * PAGE) as u64;
        segment[page * PAGE + 8..][..8].copy_from_slice(&address.to_le_bytes());
    }
    [control, segment]
}

/// A start under `full` with some pages and names, and what it leaves when it is killed.
fn leave() -> (Place, Images) {
    let shared = Path::new("/dev/shm");
    let parent = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let mut place = Place::within(&parent);
    let [control, segment] = server_files();
    place.server.control = Control::of(&control).expect("long enough");
    for dir in ["global", "pg_wal"] {
        fs::create_dir(place.data.path().join(dir)).expect("a directory");
    }
    let run = place.start(LogPolicy::Full).expect("an empty start");
    (0..10).for_each(|block| run.put(&FORK, block, 7));
    run.commit(&FORK);
    run.pool.commit_control(&place.server.control).expect("a journal");
    let area = run.pool.area();
    let tail = control::hash(&segment[PAGE..]);
    let marks = [Mark::WalTimeline, Mark::WalNumber, Mark::WalEnd, Mark::WalBytes, Mark::WalHash];
    let written = [1, 1, 2 * PAGE as u64, PAGE as u64, tail];
    marks.into_iter().zip(written).for_each(|(mark, value)| area.set(mark, value));
    area.set(Mark::Lsn, (16 << 20) + PAGE as u64);
    let read = |file| fs::read(path(&place, file)).unwrap_or_default();
    let file = place.memories().files().expect("a directory").pop().expect("the memory");
    let memory = Memory::join(&file).expect("the memory of this start");
    let words = memory.user_words()[..MARKS / 8].iter().map(|word| word.load(Relaxed));
    let marks = words.flat_map(u64::to_le_bytes).collect();
    let file = File::from(file);
    drop(run);
    let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("it can be read");
    let images = [
        read(FILES[0]),
        read(FILES[1]),
        read(FILES[2]),
        control,
        segment,
        bytes[..HEADER].to_vec(),
        marks,
    ];
    let flash = read((true, FLASH));
    (place, Images { images, flash, memory: bytes })
}

impl Images {
    /// Overwrites parts of the images. Beyond the last image, one gets another length.
    fn overwrite(&mut self, mut pieces: &[u8]) {
        while let Some(([which, low, high, len], rest)) = pieces.split_first_chunk() {
            let (piece, next) = rest.split_at(usize::from(*len).min(rest.len()));
            let at = usize::from(u16::from_le_bytes([*low, *high]));
            match self.images.get_mut(usize::from(which & 7)) {
                Some(image) if !image.is_empty() => {
                    let at = at % image.len();
                    let len = piece.len().min(image.len() - at);
                    image[at..at + len].copy_from_slice(&piece[..len]);
                }
                _ => self.images[usize::from(which >> 3) % FILES.len()].resize(at % (4 * PAGE), 0),
            }
            pieces = next;
        }
    }

    /// Computes checksums.
    fn fix(&mut self, what: u8) {
        let [kept, names, _, control, ..] = &mut self.images;
        if what & CONTROL != 0 && kept.len() >= 24 {
            kept[16..24].copy_from_slice(&control::hash(control).to_le_bytes());
        }
        let word = |bytes: &[u8], at: usize| {
            bytes
                .get(8 * at..8 * at + 8)
                .map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        };
        // The body of `larder.kept` is a head of 11 words and rows of 4, whose count is the ninth.
        let body = (word(kept, 8) as usize).saturating_mul(32).saturating_add(88);
        if what & KEPT != 0 && kept.len().saturating_sub(8) >= body {
            let crc = crc(&kept[..body]);
            kept[body..body + 8].copy_from_slice(&crc.to_le_bytes());
        }
        if what & NAMES != 0 {
            let stamp = word(kept, 9).to_le_bytes();
            for (place, row) in names.chunks_exact_mut(CRC_ROW).enumerate() {
                let bytes = [&stamp[..], &(place as u64).to_le_bytes(), &row[..32]].concat();
                row[32..].copy_from_slice(&crc(&bytes).to_le_bytes());
            }
        }
    }

    /// Writes all files, and the memory if it still exists.
    fn place(&self, place: &Place, left: bool) {
        for (file, image) in FILES.into_iter().zip(&self.images) {
            write(&path(place, file), image);
        }
        let flash = File::options().write(true).open(path(place, (true, FLASH)));
        let flash = flash.expect("it exists");
        flash.set_len(self.flash.len() as u64).expect("it can be made longer");
        flash.write_all_at(&self.flash, 0).expect("it can be written");
        let base = place.data.path().join("base");
        fs::remove_dir_all(&base).expect("a directory");
        fs::create_dir_all(base.join("5")).expect("a directory");
        place.file().set_len(32 * PAGE as u64).expect("it can be made longer");
        place.memories().remove().expect("it can be removed");
        if left {
            self.place_memory(place);
        }
    }

    fn place_memory(&self, place: &Place) {
        let [.., header, marks] = &self.images;
        let file = place.memories().create().expect("a file");
        let bytes = File::from(file.try_clone().expect("a descriptor"));
        bytes.set_len(self.memory.len() as u64).expect("it can be made longer");
        for (at, chunk) in (0..).step_by(PAGE).zip(self.memory.chunks(PAGE)) {
            if chunk.iter().any(|byte| *byte != 0) {
                bytes.write_all_at(chunk, at).expect("it can be written");
            }
        }
        let memory = Memory::join(&file).expect("as it was left");
        for (word, bytes) in memory.user_words().iter().zip(marks.chunks_exact(8)) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap_or_default()), Relaxed);
        }
        bytes.write_all_at(header, 0).expect("it can be written");
    }
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some(([fixed, how], pieces)) = data.split_first_chunk() else { return };
    LEFT_BEHIND.with_borrow_mut(|left| {
        let (place, images) = left.get_or_insert_with(leave);
        let mut images = images.clone();
        images.overwrite(pieces);
        images.fix(*fixed);
        images.place(place, how & LEFT != 0);
        start(place, *how);
    });
}

fn start(place: &mut Place, how: u8) {
    let (data, flash) = (place.data.path(), place.flash.path());
    let Ok(control) = Control::read(data) else { return };
    let kept = Kept::read(&place.directory()).expect("it can be read");
    assert_eq!(Kept::read_refused(flash), kept);
    if Guard::read(data).is_ok_and(|guard| guard.is_none()) && kept.is_none() {
        assert!(!earlier::is_needed(data, flash));
    }
    if let Err(error) = earlier::expect_log(data, flash) {
        one_line(&error);
    }
    place.server.control = control;
    let policy = [LogPolicy::Full, LogPolicy::Full, LogPolicy::Bounded, LogPolicy::Through];
    match place.start(policy[usize::from(how & POLICY)]) {
        Ok(run) => works(place, run),
        Err(error) => one_line(&error),
    }
}

/// Uses an accepted start, and starts again after a crash.
fn works(place: &Place, run: Run) {
    let is_needed = run.how != How::Empty;
    for block in 0..32 {
        let page = run.pool.page(&FORK, block);
        let fetched = page.and_then(|page| fetch(&run.pool, page));
        assert!(fetched.is_none_or(|bytes| bytes.len() == PAGE));
    }
    let page = run.pool.page(&FORK, 3);
    let written = page.is_some_and(|page| run.pool.absorb(page, &page_of(9)) == Ok(true));
    let committed = written && run.pool.commit(&FORK, 0).is_ok();
    let needed = earlier::is_needed(place.data.path(), place.flash.path());
    place.crash(run);
    if committed && needed {
        let run = place.start(LogPolicy::Full);
        let run = run.map_err(|error| error.to_string()).expect("as this start left it");
        assert_eq!(run.has(&FORK, 3), Some(9), "{is_needed}");
    }
}

fn one_line(error: &Unusable) {
    let text = error.to_string();
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

#[cfg(test)]
mod tests {
    use larder_testkit::fuzz::campaign::Campaign;
    use larder_testkit::fuzz::corpus;

    const IMAGES: Campaign = Campaign { variable: "LARDER_DAMAGED_IMAGES", few: 100 };

    #[test]
    fn files_of_an_earlier_start_are_used_or_rejected() {
        let inputs = corpus("postgres_files");
        assert!(inputs.len() > 10, "{} inputs", inputs.len());
        for (file, data) in inputs {
            let judged = std::panic::catch_unwind(|| super::check(&data));
            assert!(judged.is_ok(), "{}", file.display());
        }
    }

    #[test]
    fn damaged_files_of_an_earlier_start_are_used_or_rejected() {
        IMAGES.run("postgres_files", super::check);
    }

    /// Without damage every start succeeds.
    #[test]
    fn what_was_left_is_used() {
        let (place, images) = super::leave();
        for (left, how) in [(false, super::How::Recovered), (true, super::How::AsLeft)] {
            images.place(&place, left);
            let run = place.start(super::LogPolicy::Full).ok().unwrap();
            assert_eq!((run.how, run.has(&super::FORK, 3)), (how, Some(7)));
            super::works(&place, run);
        }
    }
}
