// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a clean stop writes beside the log: the owner of the log, and the numbers of extents.
//!
//! `larder.kept` in the flash directory: 64-bit little-endian words, followed by the CRC-64 of all. It is written to a new
//! file and renamed. A start removes it before it changes anything, so it exists only while it is true. Where flash is a
//! part of the database (`full`) it has a stamp and stays, and `journal.rs` records the changes since.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use larder_core::pagelog::Geometry;
use larder_private::{Directory, Refuse};
use rustix::fs::{FallocateFlags, Mode, OFlags};

use crate::content::crc;
use crate::names::{ENTRIES, Names};

const MAGIC: u64 = u64::from_le_bytes(*b"LARDPGK3");
/// As the file of an older library begins, whose log has other numbers of pages.
const OLD_MAGIC: u64 = u64::from_le_bytes(*b"LARDPGK2");
/// Words before the names.
const HEAD: usize = 11;
const NAMES: usize = 8;
const STAMP: usize = 9;
const ROW: usize = 4;
/// The most bytes of the content.
const BYTES_MOST: u64 = 8 * (HEAD + ROW * ENTRIES + 1) as u64;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Identifies the cluster.
    pub system: u64,
    /// Hash of `pg_control`.
    pub control: u64,
    /// The log.
    pub log: Geometry,
    /// 0: valid until the next start. Otherwise the database may need the log, and the journal has this stamp.
    pub stamp: u64,
    /// Number of the log's file in its file system: a copy has another.
    pub file: u64,
    /// See [`Names::save`].
    pub names: Vec<[u64; ROW]>,
    /// An older library wrote it: its log cannot be used, and has no names here.
    pub is_old: bool,
}

/// Stamp of a log that is, or was, about to be a part of the database, and has no dirty pages.
pub const SETTLED: u64 = 1;

const NAME: &str = "larder.kept";
const NEW_NAME: &str = "larder.kept.new";

/// The file may be longer than its content: truncating it would release its space.
fn open_new(directory: &Directory) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE;
    directory.file(NEW_NAME, flags, 0o600, Refuse::ANY).map(File::from)
}

/// Allocates space for a file without changing its length.
///
/// # Errors
/// If there is not enough space. File systems that cannot allocate are no error.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        other => Ok(other?),
    }
}

impl Kept {
    /// A stamp that was not used before.
    #[must_use]
    pub fn new_stamp() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos() as u64).max(SETTLED + 1)
    }

    /// Whether the database may need the log.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.stamp > SETTLED
    }

    fn encode(&self) -> Vec<u8> {
        let Geometry { base, blocks, page_bytes, batch_pages, volume } = self.log;
        let head: [u64; HEAD] = [
            MAGIC,
            self.system,
            self.control,
            base,
            u64::from(blocks),
            u64::from(page_bytes),
            u64::from(batch_pages),
            volume,
            self.names.len() as u64,
            self.stamp,
            self.file,
        ];
        let words = head.iter().chain(self.names.iter().flatten());
        let mut bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(crc(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        let rows = usize::try_from(word(bytes.chunks_exact(8).nth(NAMES)?)).ok()?;
        let length = rows.checked_mul(ROW)?.checked_add(HEAD)?.checked_mul(8)?;
        let (body, behind) = bytes.split_at_checked(length)?;
        if crc(body) != word(behind.get(..8)?) {
            return None;
        }
        let words: Vec<u64> = body.chunks_exact(8).map(word).collect();
        let (head, rows) = words.split_at_checked(HEAD)?;
        let is_old = head[0] == OLD_MAGIC;
        if head[0] != MAGIC && !is_old {
            return None;
        }
        let small = |word: u64| u32::try_from(word).ok();
        let log = Geometry {
            base: head[3],
            blocks: small(head[4])?,
            page_bytes: small(head[5])?,
            batch_pages: small(head[6])?,
            volume: head[7],
        };
        let row = |row: &[u64]| [row[0], row[1], row[2], row[3]];
        let names = rows.chunks_exact(ROW).filter(|_| !is_old).map(row).collect();
        let (stamp, file) = (head[STAMP], head[10]);
        Some(Self { system: head[1], control: head[2], log, stamp, file, names, is_old })
    }

    /// Writes it, durably.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, directory: &Directory) -> io::Result<()> {
        // The space of this file becomes that of the next one, so both have enough.
        let reserve = || drop((self.stamp != 0).then(|| Self::reserve(directory)));
        reserve();
        let file = open_new(directory)?;
        file.write_all_at(&self.encode(), 0)?;
        file.sync_all()?;
        drop(file);
        directory.rename(NEW_NAME, NAME)?;
        directory.sync()?;
        reserve();
        Ok(())
    }

    /// Allocates space for the next one.
    ///
    /// # Errors
    /// If there is not enough space.
    pub fn reserve(directory: &Directory) -> io::Result<()> {
        reserve(&open_new(directory)?, BYTES_MOST)
    }

    /// The content of the file, if it is complete.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(directory: &Directory) -> io::Result<Option<Self>> {
        Ok(directory.read(NAME)?.and_then(|bytes| Self::decode(&bytes)))
    }

    /// The content of the file if this user owns it, whatever access others have: a start that refuses it must know whether
    /// the database needs it. Others may own the directory, so the file is checked as it is open, and only then read.
    #[must_use]
    pub fn read_refused(directory: &Path) -> Option<Self> {
        // A FIFO without a writer would block the open.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(directory.join(NAME), flags, Mode::empty()).ok()?;
        let file = File::from(file);
        let data = file.metadata().ok()?;
        if !data.is_file() || data.uid() != rustix::process::geteuid().as_raw() {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(BYTES_MOST).read_to_end(&mut bytes).ok()?;
        Self::decode(&bytes)
    }

    /// The stamp of the file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_stamp(directory: &Directory) -> io::Result<u64> {
        let mut bytes = [0; 8];
        let file = File::from(directory.file(NAME, OFlags::RDONLY, 0, Refuse::ANY)?);
        file.read_exact_at(&mut bytes, 8 * STAMP as u64)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Removes it, durably.
    ///
    /// # Errors
    /// If that fails.
    pub fn remove(directory: &Directory) -> io::Result<()> {
        [NAME, NEW_NAME].into_iter().try_for_each(|name| directory.remove(name))?;
        directory.sync()
    }

    /// Puts the names into an empty table; returns whether they are consistent.
    #[must_use]
    pub fn restore(&self, names: Names<'_>) -> bool {
        self.names.iter().all(|row| names.restore(*row))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    fn kept() -> Kept {
        let log = Geometry { base: 0, blocks: 1_000, page_bytes: 8192, batch_pages: 64, volume: 9 };
        Kept {
            system: 1,
            control: 2,
            log,
            stamp: 3,
            file: 6,
            names: vec![[3, 4, 5, 6], [7, 8, 9, 10]],
            is_old: false,
        }
    }

    #[test]
    fn what_was_kept_is_there_until_it_is_taken_away() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path(), Refuse::WRITE).unwrap();
        assert_eq!(Kept::read(&directory).unwrap(), None);
        kept().save(&directory).unwrap();
        assert_eq!(Kept::read(&directory).unwrap(), Some(kept()));
        assert_eq!(Kept::read_stamp(&directory).unwrap(), 3);
        Kept::remove(&directory).unwrap();
        Kept::remove(&directory).unwrap();
        assert_eq!(Kept::read(&directory).unwrap(), None);
    }

    /// The owner of a refused directory chooses what lies there under this name.
    #[test]
    fn only_a_file_of_this_user_is_read_from_a_refused_directory() {
        let place = tempfile::tempdir().unwrap();
        let read = || Kept::read_refused(place.path());
        let (at, aside) = (place.path().join(NAME), place.path().join("aside"));
        std::fs::write(&aside, kept().encode()).unwrap();
        symlink(&aside, &at).unwrap();
        assert_eq!(read(), None, "a link");
        std::fs::remove_file(&at).unwrap();
        mknodat(CWD, &at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(read(), None, "a FIFO, which does not block");
        std::fs::remove_file(&at).unwrap();
        std::fs::create_dir(&at).unwrap();
        assert_eq!(read(), None, "a directory");
        std::fs::remove_dir(&at).unwrap();
        if rustix::process::geteuid().is_root() {
            std::fs::copy(&aside, &at).unwrap();
            chown(&at, Some(54_321), None).unwrap();
            assert_eq!(read(), None, "another user's");
        }
        std::fs::rename(&aside, &at).unwrap();
        // Longer than memory: only its first bytes are read.
        File::options().write(true).open(&at).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(), Some(kept()));
    }

    #[test]
    fn the_file_of_an_older_library_is_known_as_one() {
        let mut bytes = kept().encode();
        let end = bytes.len() - 8;
        bytes[..8].copy_from_slice(&OLD_MAGIC.to_le_bytes());
        let check = crc(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&check);
        let old = Kept { names: Vec::new(), is_old: true, ..kept() };
        assert_eq!(Kept::decode(&bytes), Some(old));
    }

    #[test]
    fn damage_anywhere_is_seen() {
        let bytes = kept().encode();
        assert_eq!(Kept::decode(&bytes), Some(kept()));
        let longer = [&bytes[..], &[7; 9]].concat();
        assert_eq!(Kept::decode(&longer), Some(kept()), "what an earlier one left behind it");
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert_eq!(Kept::decode(&other), None, "byte {at}");
            assert_eq!(Kept::decode(&bytes[..at]), None, "cut at {at}");
        }
    }
}
