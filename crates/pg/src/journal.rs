// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names that a start needs where flash is a part of the database (`full`): numbers of forks, and `pg_control`.
//!
//! `larder.kept` is a snapshot of all of it with a stamp. `larder.names` beside it records the changes since: rows of
//! five 64-bit little-endian words, entry of the table of forks and its three words, and the CRC-64 of the row, its
//! place and the stamp. A row whose entry is [`CONTROL`] has a hash of `pg_control` instead. The first incomplete
//! row ends the journal.
//!
//! # Invariants
//! 1. A number is durable before a flush of a relation file of its fork returns and before `pg_control` is written. So is
//!    the end of a number. A page on flash with an unknown number was never flushed for the server.
//! 2. `pg_control` has the hash of the last row of its kind, or of the row before.
//!
//! Space for the journal and for the next `larder.kept` is allocated at the start, so that a full flash file system stops no
//! server later.
//!
//! Why no write with every name: a crash may lose what was not flushed, and recovery from the server's log repeats it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use larder_private::{Directory, Refuse};
use rustix::fs::OFlags;

use crate::area::{Area, Mark};
use crate::content::crc;
use crate::kept::{self, Kept};
use crate::names::ENTRIES;
use crate::spare::Spare;

/// Names the latch of names that change, and of the journal.
pub const LATCH: u64 = u64::MAX;
/// In place of an entry: the row is a hash of `pg_control`.
const CONTROL: u64 = u64::MAX;
const ROW: usize = 4;
const ROW_BYTES: usize = (ROW + 1) * 8;
/// The most rows; then the snapshot and the journal are rewritten.
const ROWS_MOST: u64 = 100_000;

/// The journal of a directory on flash.
pub struct Journal {
    /// The directory.
    pub directory: Arc<Directory>,
    /// Used when the process has no descriptors left.
    pub spare: Arc<Spare>,
}

impl Journal {
    /// Makes changes of names durable, and with `control` the hash that `pg_control` is about to have. The caller holds the
    /// latch.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn sync(&self, area: &Area, control: Option<u64>) -> io::Result<()> {
        self.spare.with(|| sync(area, &self.directory, control))
    }
}

/// A journal as it was found.
pub struct Replayed {
    /// The kept names and their changes.
    pub kept: Kept,
    /// The hashes that `pg_control` may have.
    pub controls: Vec<u64>,
    rows: u64,
}

impl Replayed {
    /// Whether this journal has all rows that this memory records.
    #[must_use]
    pub fn is_of(&self, area: &Area) -> bool {
        let (stamp, rows) = (area.get(Mark::JournalStamp), area.get(Mark::JournalRows));
        stamp == self.kept.stamp && rows <= self.rows
    }
}

const NAME: &str = "larder.names";

fn check(stamp: u64, place: u64, row: &[u64]) -> u64 {
    let words = [stamp, place].into_iter().chain(row.iter().copied());
    crc(&words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
}

/// The rows of this stamp.
fn read(directory: &Directory, stamp: u64) -> io::Result<Vec<[u64; ROW]>> {
    let bytes = directory.read(NAME)?.unwrap_or_default();
    let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().unwrap_or_default());
    let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    let whole =
        |(place, row): &(usize, &[u64])| check(stamp, *place as u64, &row[..ROW]) == row[ROW];
    let rows = words.chunks_exact(ROW + 1).enumerate().take_while(whole);
    Ok(rows.map(|(_, row)| [row[0], row[1], row[2], row[3]]).collect())
}

fn sync(area: &Area, directory: &Directory, control: Option<u64>) -> io::Result<()> {
    let changed = area.get(Mark::NamesChanged);
    if changed == area.get(Mark::NamesDurable) && control.is_none() {
        return Ok(());
    }
    let anew = area.get(Mark::JournalRows) > ROWS_MOST;
    if anew {
        let kept = Kept::read(directory)?.ok_or(io::ErrorKind::NotFound)?;
        let (control, names) = (area.get(Mark::Control), area.names().save().collect());
        Kept { stamp: Kept::new_stamp(), control, names, ..kept }.save(directory)?;
    }
    let stamp = Kept::read_stamp(directory)?;
    if stamp != area.get(Mark::JournalStamp) {
        begin(area, stamp, &[]);
    }
    let durable = |row: &[u64; ROW]| area.durable()[row[0] as usize].load(Acquire) == row[3];
    let mut rows: Vec<[u64; ROW]> = area.names().save().filter(|row| !durable(row)).collect();
    let names = rows.len();
    // A process may be about to write `pg_control`: its row is in the journal that is replaced.
    let next = Some(area.get(Mark::ControlNext)).filter(|next| anew && *next != 0);
    rows.extend(control.or(next).map(|hash| [CONTROL, hash, 0, 0]));
    let first = area.get(Mark::JournalRows);
    append(directory, stamp, first, &rows)?;
    for row in &rows[..names] {
        area.durable()[row[0] as usize].store(row[3], Release);
    }
    area.set(Mark::JournalRows, first + rows.len() as u64);
    area.set(Mark::NamesDurable, changed);
    Ok(())
}

/// Begins a journal without rows under this stamp, with these names; changes of others are recorded again.
pub fn begin(area: &Area, stamp: u64, names: &[[u64; ROW]]) {
    area.durable().iter().for_each(|word| word.store(0, Release));
    for row in names {
        area.durable()[row[0] as usize].store(row[3], Release);
    }
    area.set(Mark::JournalRows, 0);
    area.set(Mark::JournalStamp, stamp);
}

/// The kept names of the last stamp with their changes.
///
/// # Errors
/// If it cannot be read.
pub fn replay(kept: Kept, directory: &Directory) -> io::Result<Replayed> {
    let mut controls = vec![kept.control];
    let mut names = kept.names;
    let rows = read(directory, kept.stamp)?;
    let count = rows.len() as u64;
    for row in rows {
        match row[0] {
            CONTROL => controls.push(row[1]),
            // Later rows are restored over earlier ones.
            _ => names.push(row),
        }
    }
    let controls = controls.split_off(controls.len().saturating_sub(2));
    Ok(Replayed { kept: Kept { names, ..kept }, controls, rows: count })
}

/// Allocates space for the most rows.
///
/// # Errors
/// If there is not enough space.
pub fn reserve(directory: &Directory) -> io::Result<()> {
    let rows = ROWS_MOST + ENTRIES as u64 + 2;
    kept::reserve(&open(directory)?, rows * ROW_BYTES as u64)?;
    directory.sync()
}

fn open(directory: &Directory) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE;
    directory.file(NAME, flags, 0o600, Refuse::ANY).map(File::from)
}

fn append(directory: &Directory, stamp: u64, first: u64, rows: &[[u64; ROW]]) -> io::Result<()> {
    let encode = |(place, row): (u64, &[u64; ROW])| {
        let check = check(stamp, place, row);
        row.iter().copied().chain([check]).flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
    };
    let bytes: Vec<u8> = (first..).zip(rows).flat_map(encode).collect();
    let file = open(directory)?;
    file.write_all_at(&bytes, first * ROW_BYTES as u64)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_with_the_first_that_is_not_whole() {
        let place = tempfile::tempdir().unwrap();
        let directory = &Directory::open(place.path(), Refuse::WRITE).unwrap();
        let read = |stamp| read(directory, stamp).unwrap();
        assert_eq!(read(5), Vec::<[u64; ROW]>::new());
        append(directory, 5, 0, &[[1, 2, 3, 4], [CONTROL, 9, 0, 0]]).unwrap();
        append(directory, 5, 2, &[[1, 2, 3, 5]]).unwrap();
        assert_eq!(read(5), [[1, 2, 3, 4], [CONTROL, 9, 0, 0], [1, 2, 3, 5]]);
        assert_eq!(read(6), Vec::<[u64; ROW]>::new(), "another stamp's");
        // A later stamp's first row, and an earlier one's behind it.
        append(directory, 6, 0, &[[7, 7, 7, 7]]).unwrap();
        assert_eq!(read(6), [[7, 7, 7, 7]]);
        let file = File::options().write(true).open(place.path().join(NAME)).unwrap();
        append(directory, 6, 1, &[[8, 8, 8, 8], [9, 9, 9, 9]]).unwrap();
        file.write_all_at(&[1], ROW_BYTES as u64 + 20).unwrap();
        assert_eq!(read(6), [[7, 7, 7, 7]], "torn");
    }
}
