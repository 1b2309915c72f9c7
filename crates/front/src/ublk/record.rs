// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record from which udev learns the volume's name of a device, for the link `/dev/larder/NAME`
//! (`dist/udev/larder-name`).
//!
//! Invariants: a record exists before the kernel announces the block device, and as long as the device, also while the
//! device waits for its next server. It states the inode of the character device's node, which no later device of this
//! number has: the record of a device that is gone names no other program's device.
//!
//! Why a file: the driver keeps no text for a device, and a rule of udev must not wait for the server, which at this
//! moment waits for the kernel. A record that cannot be written costs the link and nothing else.

use std::fs::{OpenOptions, read_to_string, remove_file};
use std::io::{Error, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Where udev looks.
pub const DIRECTORY: &str = "/run/larder";
/// The longest name of a link; the longest name of a file, without room for `-part` and a number.
const MOST_BYTES: usize = 240;

fn file(directory: &Path, id: u32) -> PathBuf {
    directory.join(format!("ublkb{id}.volume"))
}

/// Records the volume's name of a device. A volume without a name has no link.
pub fn write(id: u32, name: &str) {
    let written = match link_name(name) {
        None => return,
        Some(link) => std::fs::metadata(format!("/dev/ublkc{id}"))
            .and_then(|node| write_in(Path::new(DIRECTORY), id, node.ino(), &link)),
    };
    if let Err(e) = written {
        let record = file(Path::new(DIRECTORY), id);
        tracing::warn!("/dev/ublkb{id}: no link below /dev/larder: {}: {e}", record.display());
    }
}

fn write_in(directory: &Path, id: u32, inode: u64, link: &str) -> Result<(), Error> {
    let (file, line) = (file(directory, id), format!("{inode} {link}\n"));
    // A rule may read it at any moment, so that of a device that continues stays as it is.
    if read_to_string(&file).is_ok_and(|old| old == line) {
        return Ok(());
    }
    match remove_file(&file) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    // A link that another user made is not followed.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&file)?
        .write_all(line.as_bytes())
}

/// Removes the record of a device that is gone.
pub fn remove(id: u32) {
    let _ = remove_file(file(Path::new(DIRECTORY), id));
}

/// A volume's name as the name of a link, as udev encodes labels: other characters than these become `\xNN`, byte by
/// byte, so that different volumes have different links. `None` if there is no name, or one that is too long.
fn link_name(name: &str) -> Option<String> {
    let mut link = String::new();
    for (at, byte) in name.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || b"#+-.:=@_".contains(&byte);
        // A hidden file, or the directory itself.
        if is_plain && !(at == 0 && byte == b'.') {
            link.push(char::from(byte));
        } else {
            link += &format!("\\x{byte:02x}");
        }
    }
    (!link.is_empty() && link.len() <= MOST_BYTES).then_some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_a_file_below_the_directory() {
        let cases = [
            ("db", "db"),
            ("a/b c", "a\\x2fb\\x20c"),
            ("..", "\\x2e."),
            ("\u{e9}\\x", "\\xc3\\xa9\\x5cx"),
        ];
        for (name, link) in cases {
            assert_eq!(link_name(name).as_deref(), Some(link));
        }
        assert_eq!((link_name(""), link_name(&"/".repeat(61))), (None, None));
        assert!(link_name(&"x".repeat(MOST_BYTES)).is_some());
    }

    #[test]
    fn a_record_replaces_that_of_an_earlier_device() {
        let dir = tempfile::tempdir().unwrap();
        let (outside, record) = (dir.path().join("outside"), file(dir.path(), 3));
        std::os::unix::fs::symlink(&outside, &record).unwrap();
        write_in(dir.path(), 3, 7, "a").unwrap();
        assert_eq!(read_to_string(&record).unwrap(), "7 a\n");
        assert!(!outside.exists(), "a link was followed");
        let made = std::fs::metadata(&record).unwrap().ino();
        write_in(dir.path(), 3, 7, "a").unwrap();
        assert_eq!(std::fs::metadata(&record).unwrap().ino(), made, "it was written again");
        write_in(dir.path(), 3, 8, "a").unwrap();
        assert_eq!(read_to_string(&record).unwrap(), "8 a\n");
        assert!(write_in(&dir.path().join("none"), 3, 8, "a").is_err());
    }
}
