// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounts of this process's namespace, from `/proc/self/mountinfo`.
//!
//! Why not `stat`: on a mount whose server is dead or stopped it fails or blocks, and just then the caller must know
//! whether the mount is its own and still there.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The file system's device number, `MAJOR:MINOR`; differs between two mounts of Larder.
    pub device: String,
    /// The file system's type.
    pub kind: String,
}

/// The topmost mount at a path, if there is one.
pub fn top(path: &Path) -> Option<Mounted> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    last(&String::from_utf8_lossy(&text), path)
}

/// The mount points at a path or below it, in the order of the mounts.
#[must_use]
pub fn below(path: &Path) -> Vec<PathBuf> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    points(&String::from_utf8_lossy(&text)).filter(|point| point.starts_with(path)).collect()
}

/// All mount points.
fn points(mountinfo: &str) -> impl Iterator<Item = PathBuf> {
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape)
}

/// The last line with this mount point: later mounts hide earlier ones.
fn last(mountinfo: &str, path: &Path) -> Option<Mounted> {
    let mut found = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(2);
        let (device, point) = (fields.next()?, fields.nth(1)?);
        (unescape(point) == path).then(|| Mounted {
            device: device.to_owned(),
            kind: after.split(' ').next().unwrap_or_default().to_owned(),
        })
    });
    found.next_back()
}

/// Decodes the octal escapes of blanks, tabs, newlines and backslashes in a path.
fn unescape(text: &str) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_at_a_path_is_the_topmost() {
        let text = "\
            22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            40 22 0:30 / /mnt/a\\040b rw shared:2 master:1 - tmpfs tmpfs rw\n\
            41 40 0:31 / /mnt/a\\040b rw,nosuid - fuse.larder larder:db rw,user_id=0\n";
        let at = |path: &str| last(text, Path::new(path));
        let ours = Mounted { device: "0:31".to_owned(), kind: "fuse.larder".to_owned() };
        assert_eq!(at("/mnt/a b"), Some(ours));
        assert_eq!(at("/").map(|m| m.kind), Some("ext4".to_owned()));
        assert_eq!(at("/mnt"), None);
        let found: Vec<_> = points(text).collect();
        assert_eq!(found, ["/", "/mnt/a b", "/mnt/a b"].map(PathBuf::from));
    }

    #[test]
    fn the_real_mountinfo_is_parsed() {
        assert!(top(Path::new("/proc")).is_some_and(|m| m.kind == "proc"));
        assert!(below(Path::new("/proc")).contains(&PathBuf::from("/proc")));
    }
}
