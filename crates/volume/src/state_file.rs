// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a [`StateRecord`]: `DIR/NAME.json` (design rule 10), of a volume, or of a cache that several share.
//!
//! Volumes without a journal read and write the file too. They write to the origin, so before they serve, every flash of
//! the origin that an earlier run used, under this name or another in the same directory, is marked as out of use. Two
//! directories are independent of each other; docs/semantics.md states this.
//!
//! The modification time of a file shows whether an origin was written to while it was not served. A block device has
//! no such time; docs/semantics.md states this.
//!
//! A volume without a name gets one from its origin, so that each volume without a name has its own file. Volumes with
//! names need different ones: a volume that starts under the name of another replaces its record, and the flash of the
//! other starts cold.
//!
//! A file that cannot be parsed blocks the volume that it concerns: its own, and those whose flash or origin the file
//! mentions. The others start with a warning, so that one damaged file does not block a directory.
//!
//! A file counts only if no other user can write it or exchange it: it decides which flash holds current data. A file
//! that another user can write is as one that cannot be parsed. A file that another user owns is never read: it blocks
//! only the volume of its name. New files give no access to other users.
//!
//! Processes change the records of a directory in turns (`state_file/turn.rs`).
//!
//! Why a file and not a place on the origin: all bytes of the origin belong to the client.

mod ranges;
mod turn;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use larder_core::format::{FORMAT, FORMAT_SHARED, OriginPlace, StateRecord, superseded};
use larder_private::{Directory, Refuse, check, is_refusal};
use rustix::fs::{FileType, Mode, OFlags};

pub(crate) use self::turn::Turn;
use super::error::VolumeError;

/// The most bytes of a state file. One of 64 workers has 5 KiB.
const MOST_BYTES: u64 = 1 << 20;

/// The file, see the module.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Where the origins of its volumes lie.
    origins: Vec<OriginPlace>,
    /// The file that volumes without a name had in common in earlier versions; none for a volume with a name.
    earlier: Option<PathBuf>,
    /// The preset of the volume, which a record of an attached flash names.
    preset: Option<Box<str>>,
    /// Other files that were ignored with a warning.
    ignored: Arc<Mutex<BTreeSet<PathBuf>>>,
    /// The record that was stored last.
    stored: Arc<Mutex<Option<StateRecord>>>,
}

/// A file that is not a state file of this program.
struct Unusable {
    /// What is wrong with it.
    why: String,
    /// Its content, as far as it is text; empty if another user owns it.
    text: String,
    /// It is refused for its owner or mode: `why` states what is accepted.
    refused: bool,
}

impl Unusable {
    fn refused(why: &io::Error, text: String) -> Self {
        Self { why: why.to_string(), text, refused: true }
    }

    fn damaged(why: impl Into<String>, text: String) -> Self {
        Self { why: why.into(), text, refused: false }
    }

    /// Whether the content mentions one of these origins, or this flash.
    fn concerns(&self, origins: &[OriginPlace], flash: Option<u64>) -> bool {
        let has = |value: &str| {
            serde_json::to_string(value).is_ok_and(|quoted| self.text.contains(&quoted))
        };
        let mentions = |place: &OriginPlace| {
            let names = std::iter::once(&*place.resolved).chain(place.link.as_deref());
            names.filter(|name| !name.is_empty()).any(has)
        };
        origins.iter().any(mentions) || flash.is_some_and(|id| has(&format!("{id:016x}")))
    }
}

impl StateFile {
    /// The file in `dir` of the volume `name`, whose origin lies at the place `origin`.
    #[must_use]
    pub fn new(dir: &Path, name: &str, origin: &str) -> Self {
        let earlier = name.is_empty().then(|| dir.join("volume.json"));
        let origins =
            vec![OriginPlace { name: name.into(), resolved: origin.to_owned(), link: None }];
        let name = if name.is_empty() { name_of_origin(origin) } else { name.to_owned() };
        Self { earlier, ..Self::at(path_of(dir, &name), &origins) }
    }

    fn at(path: PathBuf, origins: &[OriginPlace]) -> Self {
        let origins = origins.to_vec();
        let (ignored, stored) = (Arc::default(), Arc::default());
        Self { path, origins, earlier: None, preset: None, ignored, stored }
    }

    /// The same file of volumes whose origins lie at these places, in this order.
    #[must_use]
    pub fn over(self, origins: Vec<OriginPlace>) -> Self {
        Self { origins, ..self }
    }

    /// The same file of a volume with this preset.
    #[must_use]
    pub fn under(mut self, preset: &str) -> Self {
        self.preset = Some(preset.into());
        self
    }

    /// The preset of its volume.
    #[must_use]
    pub fn preset(&self) -> Option<Box<str>> {
        self.preset.clone()
    }

    /// Moves the file that volumes without a name had in common to this volume's own path, durably, if it records this
    /// volume: this flash, or this origin. A volume that has a file already keeps it.
    ///
    /// # Errors
    /// When a file cannot be read, parsed or moved.
    pub fn take_earlier(&self, flash: Option<u64>) -> Result<(), VolumeError> {
        let Some(path) = self.earlier.as_ref().filter(|_| !self.path.exists()) else {
            return Ok(());
        };
        let Some(dir) = self.opened()? else { return Ok(()) };
        let earlier = Self::at(path.clone(), &self.origins);
        let Some(record) = self.read_other(&earlier, &dir, flash)? else { return Ok(()) };
        if !flash.is_some_and(|id| record.names(id)) && !record.is_of(&self.origins) {
            return Ok(());
        }
        let moved = dir.rename(name_in(path), self.name()).and_then(|()| dir.sync());
        moved.map_err(|e| cannot(path, "move", &e))?;
        tracing::info!("state file {} moved to {}", path.display(), self.path.display());
        Ok(())
    }

    /// Its directory. It is made, for this user only, if it does not exist.
    ///
    /// # Errors
    /// When it cannot be made, or other users can exchange files in it.
    pub fn directory(&self) -> Result<Directory, VolumeError> {
        let dir = self.dir();
        Directory::create(dir, Refuse::NOTHING, 0o700).map_err(|e| cannot(dir, "make", &e))
    }

    fn dir(&self) -> &Path {
        self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn name(&self) -> &OsStr {
        name_in(&self.path)
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the origins of its volumes lie.
    #[must_use]
    pub fn origins(&self) -> &[OriginPlace] {
        &self.origins
    }

    /// The record in the file; nothing if there is no file.
    ///
    /// # Errors
    /// When it cannot be read or parsed.
    pub fn load(&self) -> Result<Option<StateRecord>, VolumeError> {
        let Some(dir) = self.opened()? else { return Ok(None) };
        match self.read(&dir)? {
            Ok(record) => Ok(record),
            Err(unusable) => Err(self.refused(&unusable)),
        }
    }

    /// Its directory; none if it does not exist.
    fn opened(&self) -> Result<Option<Directory>, VolumeError> {
        match Directory::open(self.dir(), Refuse::NOTHING) {
            Ok(dir) => Ok(Some(dir)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(cannot(self.dir(), "read", &e)),
        }
    }

    /// As [`load`](Self::load) from its directory, with what is wrong with a file that is not a state file.
    fn read(&self, dir: &Directory) -> Result<Result<Option<StateRecord>, Unusable>, VolumeError> {
        let fails = |e| cannot(&self.path, "read", &e);
        let found = match stat_in(dir, self.name()) {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
            Err(e) => return Err(fails(e)),
        };
        let Some(found) = found else {
            return Ok(Err(Unusable::damaged("it is not a regular file", String::new())));
        };
        // Before it is opened: another user may own a file that this user cannot read.
        if let Err(e) = check(found, &self.path, Refuse::NOTHING) {
            return Ok(Err(Unusable::refused(&e, String::new())));
        }
        let file = match dir.file(self.name(), OFlags::RDONLY, 0, Refuse::NOTHING) {
            Ok(file) => File::from(file),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
            Err(e) => return Err(fails(e)),
        };
        let mut bytes = Vec::new();
        (&file).take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(fails)?;
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        // After it is read: what it mentions is blocked.
        if let Err(e) = check(&file, &self.path, Refuse::WRITE) {
            return Ok(Err(Unusable::refused(&e, text())));
        }
        if bytes.len() as u64 > MOST_BYTES {
            return Ok(Err(Unusable::damaged("it has more than 1MiB", text())));
        }
        Ok(match serde_json::from_slice::<StateRecord>(&bytes) {
            Ok(record) if [FORMAT, FORMAT_SHARED].contains(&record.format) => Ok(Some(record)),
            Ok(record) => {
                let why = format!(
                    "its format has version {}, not {FORMAT} or {FORMAT_SHARED}",
                    record.format
                );
                Err(Unusable::damaged(why, text()))
            }
            Err(_) if bytes.is_empty() => Err(Unusable::damaged("it is empty", String::new())),
            Err(e) => Err(Unusable::damaged(Self::in_one_line(&e.to_string()), text())),
        })
    }

    /// Text of a file, which may hold any characters, as one line.
    pub(super) fn in_one_line(words: &str) -> String {
        let escaped =
            |c: char| if c.is_control() { c.escape_default().collect() } else { c.to_string() };
        words.chars().map(escaped).collect()
    }

    fn refused(&self, unusable: &Unusable) -> VolumeError {
        let advice = match unusable.refused {
            true => "",
            false => {
                "; restore it, or move it to another directory and start with --adopt, which keeps the dirty data of \
                 a write-back cache; another cache starts cold without it"
            }
        };
        let (path, why) = (self.path.display(), &unusable.why);
        VolumeError::Refused(format!("state file {path}: {why}{advice}"))
    }

    /// The record of another file of the directory. One that cannot be parsed is ignored with a warning, unless it
    /// mentions the origin or the flash of this volume.
    fn read_other(
        &self,
        other: &Self,
        dir: &Directory,
        flash: Option<u64>,
    ) -> Result<Option<StateRecord>, VolumeError> {
        match other.read(dir)? {
            Ok(record) => Ok(record),
            Err(unusable) if other.path == self.path || unusable.concerns(&self.origins, flash) => {
                Err(other.refused(&unusable))
            }
            Err(unusable) => {
                let mut ignored = self.ignored.lock().unwrap_or_else(PoisonError::into_inner);
                if ignored.insert(other.path.clone()) {
                    tracing::warn!(
                        "state file {} of another volume is ignored: {}; that volume cannot start with it",
                        other.path.display(),
                        unusable.why
                    );
                }
                Ok(None)
            }
        }
    }

    /// The record in its directory that names this flash, whatever volume it is of.
    ///
    /// # Errors
    /// When the directory or a file in it cannot be read, or a file that concerns the volume cannot be parsed.
    pub fn of_flash(&self, volume: u64) -> Result<Option<(Self, StateRecord)>, VolumeError> {
        let all = self.all_here(Some(volume))?;
        Ok(all.into_iter().find(|(_, record)| record.names(volume)))
    }

    /// Makes it durable that the flash of this id, if a record names it, holds no dirty data and is out of use.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn give_up(&self, volume: u64) -> Result<(), VolumeError> {
        match self.of_flash(volume)? {
            Some((file, record)) => file.store(&record.cleaned().out_of_use()),
            None => Ok(()),
        }
    }

    /// The records of its directory; `flash` is the id of the volume's flash.
    fn all_here(&self, flash: Option<u64>) -> Result<Vec<(Self, StateRecord)>, VolumeError> {
        let Some(dir) = self.opened()? else { return Ok(Vec::new()) };
        let names = dir.names().map_err(|e| cannot(dir.path(), "read", &e))?;
        let mut found = Vec::new();
        for name in names {
            let path = dir.path().join(name);
            let is_own = path == self.path;
            let file = if is_own { self.clone() } else { Self::at(path, &self.origins) };
            if file.path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            found.extend(self.read_other(&file, &dir, flash)?.map(|state| (file, state)));
        }
        Ok(found)
    }

    /// Makes it durable that no flash may be used for this volume or this origin, except the flash
    /// `keeps`, if this file names it.
    ///
    /// # Errors
    /// When a file cannot be read or written, or names a flash that may hold dirty data: nothing is written then.
    pub fn put_out_of_use(&self, keeps: Option<u64>) -> Result<(), VolumeError> {
        let own = |file: &Self| file.path == self.path;
        let named = |file: &Self, name: &str| file.path == path_of(self.dir(), name);
        match superseded(self.all_here(keeps)?, own, named, &self.origins, keeps) {
            Ok(records) => records.iter().try_for_each(|(file, record)| file.store(record)),
            Err(dirty) => {
                let (file, record) = *dirty;
                Err(VolumeError::Refused(format!(
                    "origin {}: flash {} may hold dirty data of it, as {} records; start with that flash and its \
                     preset, and run `larder detach`; or remove that file to lose the data",
                    Self::in_one_line(&record.origins_in_words()),
                    Self::in_one_line(&record.volume),
                    file.path.display()
                )))
            }
        }
    }

    /// Replaces the record durably; creates the directory if it does not exist.
    ///
    /// # Errors
    /// When it cannot be written; the old file is then unchanged.
    pub fn store(&self, state: &StateRecord) -> Result<(), VolumeError> {
        let text = serde_json::to_vec_pretty(state)
            .map_err(|e| cannot(&self.path, "write", &io::Error::other(e)))?;
        debug_assert_eq!(serde_json::from_slice(&text).ok().as_ref(), Some(state));
        if text.len() as u64 > MOST_BYTES {
            // It could not be read again.
            let why = std::io::Error::other("it would have more than 1MiB");
            return Err(cannot(&self.path, "write", &why));
        }
        self.replace(&self.path, &text)?;
        *self.stored.lock().unwrap_or_else(PoisonError::into_inner) = Some(state.clone());
        Ok(())
    }

    /// Stores the record again that this process stored last, if the file was deleted since. If that fails, as when the
    /// directory was deleted, there is no record, and without one no start uses the flash.
    pub(crate) fn put_back(&self) {
        if self.path.exists() || !self.dir().exists() {
            return;
        }
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(state) = stored else { return };
        match self.store(&state) {
            Ok(()) => {
                let path = self.path.display();
                tracing::warn!("state file {path} was deleted; it is written again");
            }
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Replaces a file in its directory durably.
    fn replace(&self, path: &Path, text: &[u8]) -> Result<(), VolumeError> {
        let dir = self.directory()?;
        // Two processes may store at the same time, each a whole file.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let write = || {
            let new = name_in(&new);
            // Of a process of this number that was killed.
            dir.remove(new)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let mut file = File::from(dir.file(new, flags, 0o600, Refuse::ANY)?);
            file.write_all(text)?;
            file.sync_all()?;
            dir.rename(new, name_in(path))?;
            dir.sync()
        };
        write().map_err(|e| cannot(path, "write", &e))
    }
}

/// The name of a file in its directory.
fn name_in(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// A state file, opened only to inspect it; none if it is not a regular file, as a link, a pipe, whose open would block,
/// or a device, which may not end.
fn stat_in(dir: &Directory, name: &OsStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    Ok((FileType::from_raw_mode(found.st_mode) == FileType::RegularFile).then_some(file))
}

/// The name of a volume without one: the last part of its origin's place, for people, and a checksum of the whole.
fn name_of_origin(origin: &str) -> String {
    let last = origin.split('/').rfind(|part| !part.is_empty()).unwrap_or("volume");
    let last: String = last.chars().take(40).collect();
    format!("{}{}", plain(&last), tag(origin))
}

/// The path of the file of this name.
fn path_of(dir: &Path, name: &str) -> PathBuf {
    let safe = plain(name);
    // Two names that differ in what is replaced must not meet.
    let tag = if safe == name { String::new() } else { tag(name) };
    dir.join(format!("{safe}{tag}.json"))
}

fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

fn tag(name: &str) -> String {
    format!("-{:08x}", larder_core::checksum::crc32c(name.as_bytes()))
}

fn cannot(path: &Path, doing: &str, error: &io::Error) -> VolumeError {
    let what = match doing {
        "make" if !path.exists() => "it does not exist and cannot be created".to_owned(),
        "make" => "cannot use it".to_owned(),
        _ => format!("cannot {doing} it"),
    };
    // A refusal states what is accepted.
    let accepted = match is_refusal(error) {
        true => "",
        false => "; accepted: a directory that this user may write to",
    };
    let why = format!("{what}: {error}{accepted}");
    VolumeError::StateDirectory { directory: path.to_owned(), why }
}

#[cfg(test)]
mod tests;
