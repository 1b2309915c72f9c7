// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of pinned and excluded ranges, beside the state file: `DIR/NAME.ranges`, with the ranges of each volume of the cache.
//!
//! It decides what is cached and not which data is current, so a file that cannot be used blocks no start. Until it is written again,
//! the volume has the ranges of its configuration alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::PathBuf;

use larder_private::{Refuse, check};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::{StateFile, cannot, name_in};
use crate::error::VolumeError;
use crate::volume_ranges::VolumeRanges;

/// The version of the file.
const FORMAT: u32 = 1;
/// The most bytes of it: each of 64 volumes may have 2 x 4096 ranges.
const MOST_BYTES: u64 = 64 << 20;

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ranges {
    format: u32,
    /// By the name of the volume.
    volumes: BTreeMap<String, VolumeRanges>,
}

impl StateFile {
    /// Where the ranges are.
    pub(crate) fn ranges_path(&self) -> PathBuf {
        self.path.with_extension("ranges")
    }

    /// The ranges that commands pinned and excluded, by the name of the volume; none without a file.
    ///
    /// # Errors
    /// The file cannot be read, or other users can write it, or it is none of this program.
    pub(crate) fn load_ranges(&self) -> Result<BTreeMap<String, VolumeRanges>, VolumeError> {
        let path = self.ranges_path();
        let read = || -> io::Result<Option<Vec<u8>>> {
            let Some(dir) = self.opened().map_err(io::Error::other)? else { return Ok(None) };
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
            let file = match dir.file(name_in(&path), flags, 0, Refuse::WRITE) {
                Ok(file) => File::from(file),
                Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(e),
            };
            check(&file, &path, Refuse::WRITE)?;
            let mut bytes = Vec::new();
            file.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
            Ok(Some(bytes))
        };
        let Some(bytes) = read().map_err(|e| cannot(&path, "read", &e))? else {
            return Ok(BTreeMap::new());
        };
        let wrong = |why: String| VolumeError::Refused(format!("{}: {why}", path.display()));
        let found: Ranges =
            serde_json::from_slice(&bytes).map_err(|e| wrong(Self::in_one_line(&e.to_string())))?;
        match found.format {
            FORMAT => Ok(found.volumes),
            other => Err(wrong(format!("its format has version {other}; accepted: {FORMAT}"))),
        }
    }

    /// Replaces the ranges of a volume durably; those of others in the file stay.
    ///
    /// # Errors
    /// The file cannot be written; it is then unchanged.
    pub(crate) fn store_ranges(
        &self,
        volume: &str,
        ranges: &VolumeRanges,
    ) -> Result<(), VolumeError> {
        // A file that cannot be used has nothing to keep.
        let mut volumes = self.load_ranges().unwrap_or_default();
        volumes.insert(volume.to_owned(), ranges.clone());
        let path = self.ranges_path();
        let text = serde_json::to_vec_pretty(&Ranges { format: FORMAT, volumes })
            .map_err(|e| cannot(&path, "write", &io::Error::other(e)))?;
        self.replace(&path, &text)
    }
}
