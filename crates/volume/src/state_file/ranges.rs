// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of pinned and excluded ranges, beside the state file: `DIR/NAME.ranges`, with the ranges of each volume of the cache.
//!
//! It decides what is cached and not which data is current, so a file that cannot be used blocks no start: the volumes have the ranges
//! of their configuration alone. The next command sets such a file aside as `NAME.ranges.unusable`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::ops::Range;
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
        let wrong = |why: &str| {
            let accepted =
                "accepted: a regular file that larder wrote and no other user may write to";
            VolumeError::Refused(format!("{}: {why}; {accepted}", path.display()))
        };
        let Some(bytes) = read().map_err(|e| wrong(&e.to_string()))? else {
            return Ok(BTreeMap::new());
        };
        let found: Ranges = serde_json::from_slice(&bytes)
            .map_err(|e| wrong(&Self::in_one_line(&e.to_string())))?;
        if found.format != FORMAT {
            return Err(wrong(&format!("its format has version {}, not {FORMAT}", found.format)));
        }
        let of = |volume: &VolumeRanges| [&volume.pinned[..], &volume.excluded[..]].concat();
        if let Some(range) = found.volumes.values().flat_map(of).find(Range::is_empty) {
            return Err(wrong(&format!("from {} to {} is no range", range.start, range.end)));
        }
        Ok(found.volumes)
    }

    /// Replaces the ranges of these volumes durably; those of others in the file stay.
    ///
    /// # Errors
    /// The file cannot be written; it is then unchanged.
    pub(crate) fn store_ranges(
        &self,
        of: impl Iterator<Item = (String, VolumeRanges)>,
    ) -> Result<(), VolumeError> {
        let path = self.ranges_path();
        let mut volumes = match self.load_ranges() {
            Ok(volumes) => volumes,
            Err(error) => {
                let aside = path.with_extension("ranges.unusable");
                let moved = self
                    .directory()?
                    .rename(name_in(&path), name_in(&aside))
                    .map_err(|e| cannot(&path, "move", &e));
                moved?;
                tracing::warn!("{error}; it is {} now", aside.display());
                BTreeMap::new()
            }
        };
        volumes.extend(of);
        let text = serde_json::to_vec_pretty(&Ranges { format: FORMAT, volumes })
            .map_err(|e| cannot(&path, "write", &io::Error::other(e)))?;
        self.replace(&path, &text)
    }
}
