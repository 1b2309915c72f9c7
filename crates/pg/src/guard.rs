// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guard: it keeps a server without the library from using a data directory whose pages are on flash (`full`).
//!
//! It is a file `backup_label` in the data directory with other content than a backup label. Every server reads that file
//! before recovery, and exits if it cannot parse it; the library hides it from its own server. The guard names the log that
//! it belongs to. Base backups leave out files of that name.
//!
//! Why not `pg_control`: the server reads that before it loads libraries. Why not a setting: it ignores unknown ones with
//! a dot in their names.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::Unusable;

/// Its name in a data directory.
pub const NAME: &str = "backup_label";
const FIRST: &str = "LARDER: this is no backup label. Do not delete it.";

/// A guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The log's volume.
    pub volume: u64,
    /// Where the log lies.
    pub directory: PathBuf,
}

impl Guard {
    fn text(&self) -> String {
        let Self { volume, directory } = self;
        format!(
            "{FIRST}\n\
             Pages of this database are on flash alone (larder.policy = full).\n\
             volume: {volume:016x}\n\
             directory: {}\n\
             Start the server with larder in shared_preload_libraries and that flash. To bring all pages back to \
             this directory, start it once so with larder.policy = through.\n",
            directory.display()
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        text.starts_with(FIRST).then_some(())?;
        let volume = u64::from_str_radix(field("volume: ")?, 16).ok()?;
        Some(Self { volume, directory: PathBuf::from(field("directory: ")?) })
    }

    /// The guard of a data directory.
    ///
    /// # Errors
    /// If there is a file that cannot be read, or a damaged guard.
    pub fn read(data: &Path) -> Result<Option<Self>, Unusable> {
        let text = match fs::read(data.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => String::from_utf8_lossy(&other?).into_owned(),
        };
        match text.starts_with(FIRST) {
            true => Self::parse(&text).ok_or(Unusable::DamagedGuard(NAME)).map(Some),
            false => Ok(None),
        }
    }

    /// Whether a file is one.
    #[must_use]
    pub fn is_at(path: &Path) -> bool {
        fs::read(path).is_ok_and(|bytes| bytes.starts_with(FIRST.as_bytes()))
    }

    /// Writes the guard, durably.
    ///
    /// # Errors
    /// If that fails.
    pub fn put(&self, data: &Path) -> io::Result<()> {
        let new = data.join("larder_guard.new");
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(new, data.join(NAME))?;
        File::open(data)?.sync_all()
    }

    /// Removes the guard durably, if there is one.
    ///
    /// # Errors
    /// If that fails.
    pub fn remove(data: &Path) -> io::Result<()> {
        if Self::is_at(&data.join(NAME)) {
            fs::remove_file(data.join(NAME))?;
            File::open(data)?.sync_all()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_is_what_was_put_and_nothing_else_is_one() {
        let data = tempfile::tempdir().unwrap();
        let guard = Guard { volume: 0xABC, directory: PathBuf::from("/ssd/larder of mine") };
        assert_eq!(Guard::read(data.path()).unwrap(), None);
        guard.put(data.path()).unwrap();
        assert_eq!(Guard::read(data.path()).unwrap(), Some(guard.clone()));
        assert!(Guard::is_at(&data.path().join(NAME)));
        let text = fs::read_to_string(data.path().join(NAME)).unwrap();
        fs::write(data.path().join(NAME), text.replace("volume: ", "volume: x")).unwrap();
        assert!(Guard::read(data.path()).is_err());
        Guard::remove(data.path()).unwrap();
        fs::write(data.path().join(NAME), "START WAL LOCATION: 0/2000028\n").unwrap();
        assert_eq!(Guard::read(data.path()).unwrap(), None);
        Guard::remove(data.path()).unwrap();
        assert!(data.path().join(NAME).exists(), "a label of a backup stays");
    }
}
