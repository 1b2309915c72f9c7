// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a file lies on a volume: its extents on the block device of its file system, and where on the volume that device begins.
//!
//! The device is that of the volume itself (ublk, NBD, a loop device over a FUSE file), or a partition of it. The kernel does not
//! tell which volume is behind an NBD device, so its size must be that of the volume. Devices of device mapper (LVM, dm-crypt)
//! are refused: their bytes lie elsewhere.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use larder_io::file_extents;

const SECTOR: u64 = 512;

/// Ranges of the volume that the file has.
pub fn of_file(path: &Path, volume_bytes: u64) -> Result<Vec<Range<u64>>> {
    let file = File::open(path)?;
    let info = file.metadata()?;
    if !info.is_file() {
        bail!("is no regular file; accepted: the path of a file");
    }
    let (major, minor) = (rustix::fs::major(info.dev()), rustix::fs::minor(info.dev()));
    let start = begins(&PathBuf::from(format!("/sys/dev/block/{major}:{minor}")), volume_bytes)?;
    let extents = file_extents(&file)?;
    let moved = extents.into_iter().map(|range| start + range.start..start + range.end);
    let on_volume = moved.map(|range| range.start..range.end.min(volume_bytes));
    Ok(on_volume.filter(|range| !range.is_empty()).collect())
}

/// The byte of the volume at which a device begins, by its directory in `/sys`.
fn begins(device: &Path, volume_bytes: u64) -> Result<u64> {
    let device = device.canonicalize().ok().context(
        "its file system has no block device of its own; accepted: a file system on the volume's device",
    )?;
    let (disk, mut start) = match device.join("partition").exists() {
        true => (device.parent().unwrap_or(&device), number(&device, "start")? * SECTOR),
        false => (device.as_path(), 0),
    };
    if disk.join("dm").exists() {
        bail!(
            "lies on a device of device mapper, whose bytes lie elsewhere; accepted: ranges of the volume"
        );
    }
    let mut size = number(disk, "size")? * SECTOR;
    if disk.join("loop").exists() {
        let offset = number(disk, "loop/offset")?;
        (start, size) = (start + offset, size + offset);
    }
    if size / SECTOR != volume_bytes / SECTOR {
        let name = disk.file_name().unwrap_or_default().display();
        bail!(
            "lies on /dev/{name}, which has {size} bytes, and the volume has {volume_bytes}; accepted: a file on the volume's device"
        );
    }
    Ok(start)
}

fn number(device: &Path, attribute: &str) -> Result<u64> {
    let path = device.join(attribute);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    text.trim().parse().with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of `/sys` with these attributes.
    fn sys(attributes: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in attributes {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
        dir
    }

    #[test]
    fn a_disk_begins_at_0_and_a_partition_at_its_start() {
        let disk =
            sys(&[("size", "2048"), ("p1/partition", "1"), ("p1/start", "64"), ("p1/size", "9")]);
        assert_eq!(begins(disk.path(), 1 << 20).unwrap(), 0);
        assert_eq!(begins(&disk.path().join("p1"), 1 << 20).unwrap(), 64 * 512);
        let refused = begins(disk.path(), 2 << 20).unwrap_err().to_string();
        assert!(refused.contains("has 1048576 bytes, and the volume has 2097152"), "{refused}");
    }

    #[test]
    fn a_loop_device_begins_at_its_offset() {
        let disk = sys(&[("size", "2040"), ("loop/offset", "4096")]);
        assert_eq!(begins(disk.path(), 1 << 20).unwrap(), 4096);
    }

    #[test]
    fn other_devices_are_refused() {
        let mapper = sys(&[("size", "2048"), ("dm/name", "x")]);
        assert!(begins(mapper.path(), 1 << 20).unwrap_err().to_string().contains("device mapper"));
        assert!(begins(Path::new("/sys/dev/block/0:0"), 1 << 20).is_err());
    }
}
