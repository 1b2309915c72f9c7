// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a volume's [`StateRecord`]: `DIR/NAME.json` (design rule 10).
//!
//! The file counts for volumes without a journal too. They write to the origin, so whatever an earlier run left on flash
//! for it, under this name or another in the same directory, is put out of use before they serve. Two directories know
//! nothing of each other; docs/semantics.md says so.
//!
//! An origin that somebody wrote to while it was not served is told by its time where the origin is a file. Of a block
//! device nobody keeps such a time, and docs/semantics.md says so.
//!
//! A volume without a name gets one from its origin, so that volumes without names have a file each. Volumes with names
//! need different ones: a volume that starts under the name of another replaces it, and the flash of the other starts
//! cold.
//!
//! Why a file and not a place on the origin: the origin's bytes are all the client's.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use larder_core::format::{FORMAT, StateRecord, superseded};

use super::error::VolumeError;

/// The file, see the module.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
    origin: String,
    /// The file that volumes without a name had in common in earlier versions; none for a volume with a name.
    earlier: Option<PathBuf>,
}

impl StateFile {
    /// The file in `dir` of the volume `name`, whose origin lies at the place `origin`.
    #[must_use]
    pub fn new(dir: &Path, name: &str, origin: &str) -> Self {
        let earlier = name.is_empty().then(|| dir.join("volume.json"));
        let name = if name.is_empty() { name_of_origin(origin) } else { name.to_owned() };
        let safe = plain(&name);
        // Two names that differ in what is replaced must not meet.
        let tag = if safe == name { String::new() } else { tag(&name) };
        Self { path: dir.join(format!("{safe}{tag}.json")), origin: origin.to_owned(), earlier }
    }

    /// Moves the file that volumes without a name had in common to this volume's own path, durably, if it records this
    /// volume: this flash, or this origin. A volume that has a file already keeps it.
    ///
    /// # Errors
    /// When a file cannot be read, understood or moved.
    pub fn take_earlier(&self, flash: Option<u64>) -> Result<(), VolumeError> {
        let Some(path) = self.earlier.as_ref().filter(|_| !self.path.exists()) else {
            return Ok(());
        };
        let earlier = Self { path: path.clone(), origin: self.origin.clone(), earlier: None };
        let Some(record) = earlier.load()? else { return Ok(()) };
        if !flash.is_some_and(|id| record.names(id)) && record.origin != self.origin {
            return Ok(());
        }
        let dir = self.path.parent().unwrap_or_else(|| Path::new("."));
        let moved = fs::rename(path, &self.path).and_then(|()| File::open(dir)?.sync_all());
        moved.map_err(|e| cannot(path, "move", &e))?;
        tracing::info!("state file {} moved to {}", path.display(), self.path.display());
        Ok(())
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where its volume's origin lies.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// What it says; nothing if there is none.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub fn load(&self) -> Result<Option<StateRecord>, VolumeError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(cannot(&self.path, "read", &e)),
        };
        let wrong = |what: String| {
            VolumeError::Refused(format!(
                "{}: {what}; accepted: a state file of this program, or none: a cache then starts cold, and the dirty data of a write-back cache is not used",
                self.path.display()
            ))
        };
        let state: StateRecord =
            serde_json::from_slice(&bytes).map_err(|e| wrong(in_one_line(&e.to_string())))?;
        if state.format != FORMAT {
            return Err(wrong(format!("is of version {}", state.format)));
        }
        Ok(Some(state))
    }

    /// The record in its directory that names this flash, whatever volume it is of.
    ///
    /// # Errors
    /// When the directory or a file in it cannot be read or understood.
    pub fn of_flash(&self, volume: u64) -> Result<Option<(Self, StateRecord)>, VolumeError> {
        Ok(self.all_here()?.into_iter().find(|(_, record)| record.names(volume)))
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

    fn all_here(&self) -> Result<Vec<(Self, StateRecord)>, VolumeError> {
        let Some(dir) = self.path.parent() else { return Ok(Vec::new()) };
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(cannot(dir, "read", &e)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| cannot(dir, "read", &e))?.path();
            let file = Self { path, origin: self.origin.clone(), earlier: None };
            if file.path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            found.extend(file.load()?.map(|state| (file, state)));
        }
        Ok(found)
    }

    /// Makes it durable that no flash may be used for this volume or this origin, but for the flash
    /// `keeps`, if this file names it.
    ///
    /// # Errors
    /// When a file cannot be read or written, or names a flash that alone has some of the data:
    /// nothing is written then.
    pub fn put_out_of_use(&self, keeps: Option<u64>) -> Result<(), VolumeError> {
        let own = |file: &Self| file.path == self.path;
        match superseded(self.all_here()?, own, &self.origin, keeps) {
            Ok(records) => records.iter().try_for_each(|(file, record)| file.store(record)),
            Err((file, record)) => Err(VolumeError::Refused(format!(
                "origin {}: flash {} alone has some of its data, says {}; start with that flash and the \
                 preset that it had, and run `larder detach`; or remove that file to lose the data",
                in_one_line(&record.origin),
                in_one_line(&record.volume),
                file.path.display()
            ))),
        }
    }

    /// Replaces what it says, durably; the directory is made if need be.
    ///
    /// # Errors
    /// When it cannot be written; the old file is still whole then.
    pub fn store(&self, state: &StateRecord) -> Result<(), VolumeError> {
        let dir = self.path.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(dir).map_err(|e| cannot(dir, "make", &e))?;
        let text = serde_json::to_vec_pretty(state)
            .map_err(|e| cannot(&self.path, "write", &std::io::Error::other(e)))?;
        debug_assert_eq!(serde_json::from_slice(&text).ok().as_ref(), Some(state));
        // Two processes may store at the same time, each a whole file.
        let new = self.path.with_extension(format!("{}.new", std::process::id()));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            File::open(dir)?.sync_all()
        };
        write().map_err(|e| cannot(&self.path, "write", &e))
    }
}

/// The name of a volume that was given none: the last part of its origin's place, for people, and a checksum of the whole.
fn name_of_origin(origin: &str) -> String {
    let last = origin.split('/').rfind(|part| !part.is_empty()).unwrap_or("volume");
    let last: String = last.chars().take(40).collect();
    format!("{}{}", plain(&last), tag(origin))
}

fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    name.chars().map(plain).collect()
}

fn tag(name: &str) -> String {
    format!("-{:08x}", larder_core::checksum::crc32c(name.as_bytes()))
}

/// Words of a file, which may hold anything, for people.
fn in_one_line(words: &str) -> String {
    let escaped =
        |c: char| if c.is_control() { c.escape_default().collect() } else { c.to_string() };
    words.chars().map(escaped).collect()
}

fn cannot(path: &Path, doing: &str, error: &std::io::Error) -> VolumeError {
    let what = match doing {
        "make" if !path.exists() => "it does not exist and cannot be created".to_owned(),
        _ => format!("cannot {doing} it"),
    };
    let why = format!("{what}: {error}; accepted: a directory that this user may write to");
    VolumeError::StateDirectory { directory: path.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(volume: u64, origin: &str) -> StateRecord {
        StateRecord {
            format: FORMAT,
            volume: format!("{volume:016x}"),
            in_use: true,
            dirty: false,
            origin: origin.to_owned(),
            origin_bytes: 4096,
            origin_mtime_ns: Some(-5),
            reached: vec![(3, 14)],
        }
    }

    /// Under another name, too: writes to an origin make every flash of it stale.
    #[test]
    fn other_flash_of_the_same_origin_is_put_out_of_use() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, origin: &str| StateFile::new(dir.path(), name, origin);
        let in_use = |name: &str| file(name, "").load().unwrap().unwrap().in_use;
        file("a", "/san").store(&state(1, "/san")).unwrap();
        file("b", "/san").store(&state(2, "/san")).unwrap();
        file("c", "/other").store(&state(3, "/other")).unwrap();
        file("a", "/san").put_out_of_use(Some(1)).unwrap();
        assert_eq!(["a", "b", "c"].map(in_use), [true, false, true]);
        // The same name with another origin.
        file("c", "/san").put_out_of_use(None).unwrap();
        assert_eq!(["a", "b", "c"].map(in_use), [false, false, false]);
        StateFile::new(&dir.path().join("none"), "x", "/san").put_out_of_use(None).unwrap();
        assert!(!dir.path().join("none").exists());
    }

    #[test]
    fn what_flash_alone_has_is_not_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| StateFile::new(dir.path(), name, "/san");
        file("clean").store(&state(1, "/san")).unwrap();
        file("dirty").store(&StateRecord { dirty: true, ..state(2, "/san") }).unwrap();
        for name in ["clean", "dirty", "new"] {
            let refused = file(name).put_out_of_use(None).unwrap_err();
            assert!(refused.to_string().contains("flash 0000000000000002 alone has"), "{refused}");
        }
        assert!(file("clean").load().unwrap().unwrap().in_use, "nothing was written");
        file("dirty").put_out_of_use(Some(2)).unwrap();
        assert!(!file("clean").load().unwrap().unwrap().in_use);
    }

    /// Three volumes without a name; the second had the file that they once had in common.
    #[test]
    fn volumes_without_a_name_have_a_file_each() {
        let dir = tempfile::tempdir().unwrap();
        let file = |origin: &str| StateFile::new(dir.path(), "", origin);
        let name = |origin: &str| file(origin).path().file_name().unwrap().to_owned();
        assert_eq!(name("/srv/disk.img").to_str().unwrap(), "disk.img-a0f68d0d.json");
        assert_ne!(name("/srv/disk.img"), name("/mnt/disk.img"));
        assert!(name("nbd://host:10809/a?b").to_str().unwrap().starts_with("a_b-"));
        let earlier = StateFile::new(dir.path(), "volume", "");
        let dirty = StateRecord { dirty: true, ..state(255, "/srv/b") };
        earlier.store(&dirty).unwrap();
        file("/srv/a").take_earlier(Some(1)).unwrap();
        assert_eq!(file("/srv/a").load().unwrap(), None, "it is of another volume");
        file("/srv/a").put_out_of_use(None).unwrap();
        file("/srv/b").take_earlier(None).unwrap();
        assert_eq!(file("/srv/b").load().unwrap(), Some(dirty.clone()), "by the origin");
        assert!(!earlier.path().exists());
        earlier.store(&StateRecord { origin: "/old/path".to_owned(), ..dirty.clone() }).unwrap();
        file("/srv/b").take_earlier(Some(255)).unwrap();
        assert!(earlier.path().exists(), "a volume keeps the file that it has");
        file("/srv/c").take_earlier(Some(255)).unwrap();
        assert_eq!(file("/srv/c").load().unwrap().unwrap().volume, dirty.volume, "by the flash");
        StateFile::new(dir.path(), "named", "/srv/b").take_earlier(Some(255)).unwrap();
    }

    #[test]
    fn what_is_stored_is_loaded_and_damage_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::new(&dir.path().join("sub"), "päck/chen", "/san");
        assert_eq!(file.load().unwrap(), None);
        let state = state(0xff, "/san");
        file.store(&state).unwrap();
        assert_eq!(file.load().unwrap(), Some(state));
        assert_ne!(
            file.path(),
            StateFile::new(&dir.path().join("sub"), "p_ck_chen", "/san").path()
        );
        for damaged in [&b"{}"[..], b"\xff\xfe{", b""] {
            fs::write(file.path(), damaged).unwrap();
            assert!(matches!(file.load(), Err(VolumeError::Refused(_))));
        }
        fs::write(file.path(), "{}").unwrap();
        assert!(matches!(file.load(), Err(VolumeError::Refused(_))));
        // Found by fuzzing: whatever the file says, people are told one line.
        fs::write(file.path(), r#"{"a\nb\u001b[1m": 1}"#).unwrap();
        let refused = file.load().unwrap_err().to_string();
        assert!(refused.contains(r"a\nb\u{1b}[1m") && !refused.contains(char::is_control));
        let strange =
            StateRecord { dirty: true, volume: "1\n2".to_owned(), ..self::state(0, "/s\tan") };
        file.store(&strange).unwrap();
        let refused = file.put_out_of_use(None).unwrap_err().to_string();
        assert!(refused.contains(r"/s\tan") && !refused.contains(char::is_control));
    }
}
