// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a volume's [`StateRecord`]: `DIR/NAME.json` (design rule 10).
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
//! Why a file and not a place on the origin: all bytes of the origin belong to the client.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use larder_core::format::{FORMAT, OriginPlace, StateRecord, superseded};

use super::error::VolumeError;

/// The most bytes of a state file. One of 64 workers has 5 KiB.
const MOST_BYTES: u64 = 1 << 20;

/// The file, see the module.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
    origin: OriginPlace,
    /// The file that volumes without a name had in common in earlier versions; none for a volume with a name.
    earlier: Option<PathBuf>,
    /// Other files that were ignored with a warning.
    ignored: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// A file that is not a state file of this program.
struct Unusable {
    /// What is wrong with it.
    why: String,
    /// Its content, as far as it is text.
    text: String,
}

impl Unusable {
    /// Whether the content mentions this origin or this flash.
    fn concerns(&self, origin: &str, flash: Option<u64>) -> bool {
        let has = |value: &str| {
            serde_json::to_string(value).is_ok_and(|quoted| self.text.contains(&quoted))
        };
        (!origin.is_empty() && has(origin)) || flash.is_some_and(|id| has(&format!("{id:016x}")))
    }
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
        Self { earlier, ..Self::at(dir.join(format!("{safe}{tag}.json")), origin) }
    }

    fn at(path: PathBuf, origin: &str) -> Self {
        let origin = OriginPlace { resolved: origin.to_owned(), link: None };
        Self { path, origin, earlier: None, ignored: Arc::default() }
    }

    /// The same file; the user gave this link to the origin, in /dev.
    #[must_use]
    pub fn linked(mut self, link: Option<String>) -> Self {
        self.origin.link = link.map(Into::into);
        self
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
        let Some(record) =
            self.read_other(&Self::at(path.clone(), &self.origin.resolved), flash)?
        else {
            return Ok(());
        };
        if !flash.is_some_and(|id| record.names(id)) && record.origin != self.origin.resolved {
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
    pub fn origin(&self) -> &OriginPlace {
        &self.origin
    }

    /// The record in the file; nothing if there is no file.
    ///
    /// # Errors
    /// When it cannot be read or parsed.
    pub fn load(&self) -> Result<Option<StateRecord>, VolumeError> {
        match self.read()? {
            Ok(record) => Ok(record),
            Err(unusable) => Err(self.refused(&unusable)),
        }
    }

    /// As [`load`](Self::load), with what is wrong with a file that is not a state file.
    fn read(&self) -> Result<Result<Option<StateRecord>, Unusable>, VolumeError> {
        let fails = |e| cannot(&self.path, "read", &e);
        let unusable = |why: String, text| Ok(Err(Unusable { why, text }));
        // A pipe would block, and a device may not end.
        match fs::metadata(&self.path) {
            Ok(found) if !found.is_file() => {
                return unusable("it is not a regular file".to_owned(), String::new());
            }
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
            Err(e) => return Err(fails(e)),
        }
        let mut bytes = Vec::new();
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
            Err(e) => return Err(fails(e)),
        };
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(fails)?;
        let text = || String::from_utf8_lossy(&bytes).into_owned();
        if bytes.len() as u64 > MOST_BYTES {
            return unusable("it has more than 1MiB".to_owned(), text());
        }
        match serde_json::from_slice::<StateRecord>(&bytes) {
            Ok(record) if record.format == FORMAT => Ok(Ok(Some(record))),
            Ok(record) => {
                unusable(format!("its format has version {}, not {FORMAT}", record.format), text())
            }
            Err(e) if bytes.is_empty() => unusable("it is empty".to_owned(), e.to_string()),
            Err(e) => unusable(Self::in_one_line(&e.to_string()), text()),
        }
    }

    /// Text of a file, which may hold any characters, as one line.
    pub(super) fn in_one_line(words: &str) -> String {
        let escaped =
            |c: char| if c.is_control() { c.escape_default().collect() } else { c.to_string() };
        words.chars().map(escaped).collect()
    }

    fn refused(&self, unusable: &Unusable) -> VolumeError {
        VolumeError::Refused(format!(
            "state file {}: {}; restore it, or move it to another directory and start with --adopt, which keeps the \
             dirty data of a write-back cache; another cache starts cold without it",
            self.path.display(),
            unusable.why
        ))
    }

    /// The record of another file of the directory. One that cannot be parsed is ignored with a warning, unless it
    /// mentions the origin or the flash of this volume.
    fn read_other(
        &self,
        other: &Self,
        flash: Option<u64>,
    ) -> Result<Option<StateRecord>, VolumeError> {
        match other.read()? {
            Ok(record) => Ok(record),
            Err(unusable)
                if other.path == self.path || unusable.concerns(&self.origin.resolved, flash) =>
            {
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
        let Some(dir) = self.path.parent() else { return Ok(Vec::new()) };
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(cannot(dir, "read", &e)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| cannot(dir, "read", &e))?.path();
            let file = Self::at(path, &self.origin.resolved);
            if file.path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            found.extend(self.read_other(&file, flash)?.map(|state| (file, state)));
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
        match superseded(self.all_here(keeps)?, own, &self.origin.resolved, keeps) {
            Ok(records) => records.iter().try_for_each(|(file, record)| file.store(record)),
            Err(dirty) => {
                let (file, record) = *dirty;
                Err(VolumeError::Refused(format!(
                    "origin {}: flash {} may hold dirty data of it, as {} records; start with that flash and its \
                     preset, and run `larder detach`; or remove that file to lose the data",
                    Self::in_one_line(&record.origin),
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

/// The name of a volume without one: the last part of its origin's place, for people, and a checksum of the whole.
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
            origin_link: None,
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
    fn a_record_of_dirty_data_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| StateFile::new(dir.path(), name, "/san");
        file("clean").store(&state(1, "/san")).unwrap();
        file("dirty").store(&StateRecord { dirty: true, ..state(2, "/san") }).unwrap();
        for name in ["clean", "dirty", "new"] {
            let refused = file(name).put_out_of_use(None).unwrap_err();
            assert!(
                refused.to_string().contains("flash 0000000000000002 may hold dirty data"),
                "{refused}"
            );
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
        // Found by fuzzing: control characters of the file.
        fs::write(file.path(), r#"{"a\nb\u001b[1m": 1}"#).unwrap();
        let refused = file.load().unwrap_err().to_string();
        assert!(refused.contains(r"a\nb\u{1b}[1m") && !refused.contains(char::is_control));
        let strange =
            StateRecord { dirty: true, volume: "1\n2".to_owned(), ..self::state(0, "/s\tan") };
        file.store(&strange).unwrap();
        let refused = file.put_out_of_use(None).unwrap_err().to_string();
        assert!(refused.contains(r"/s\tan") && !refused.contains(char::is_control));
    }

    /// The other volumes of the directory start; the message states the file, the fault and the way out.
    #[test]
    fn a_file_that_cannot_be_parsed_blocks_the_volume_that_it_concerns() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, origin: &str| StateFile::new(dir.path(), name, origin);
        file("a", "/san/a").store(&state(1, "/san/a")).unwrap();
        let bad = file("bad", "/san/b").path().to_owned();
        for content in ["", "{", "[]", "{\"format\": 1}", "\0\0\0"] {
            fs::write(&bad, content).unwrap();
            file("a", "/san/a").put_out_of_use(Some(1)).unwrap();
            assert!(file("a", "/san/a").of_flash(1).unwrap().is_some());
            let refused = file("bad", "/san/b").put_out_of_use(None).unwrap_err().to_string();
            assert!(refused.contains("bad.json: ") && refused.contains("--adopt"), "{refused}");
            assert!(!refused.contains("StateRecord"), "{refused}");
        }
        let text = serde_json::to_string(&state(7, "/san/b")).unwrap();
        fs::write(&bad, &text[..text.len() - 9]).unwrap();
        assert!(file("other", "/san/b").put_out_of_use(None).is_err(), "the same origin");
        assert!(file("other", "/san/c").of_flash(7).is_err(), "the same flash");
        file("other", "/san/c").put_out_of_use(Some(8)).unwrap();
    }

    #[test]
    fn what_is_not_a_file_is_refused_and_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| StateFile::new(dir.path(), name, "/san");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            file("pipe").path(),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        std::os::unix::fs::symlink("/dev/zero", file("zero").path()).unwrap();
        fs::create_dir(file("directory").path()).unwrap();
        for name in ["pipe", "zero", "directory"] {
            let refused = file(name).load().unwrap_err();
            assert_eq!(refused.exit_code(), 4);
            assert!(refused.to_string().contains("it is not a regular file"), "{refused}");
        }
        fs::write(file("large").path(), vec![b' '; 2 << 20]).unwrap();
        assert!(file("large").load().unwrap_err().to_string().contains("more than 1MiB"));
        file("a").store(&state(1, "/san")).unwrap();
        file("a").put_out_of_use(Some(1)).unwrap();
    }
}
