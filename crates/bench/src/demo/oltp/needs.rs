// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the machine must have for a file system and a database, and how to get it.
//!
//! Purpose: if something is missing, the demo must end in order and name it; [`Skipped`] is that
//! message, in one line.
//!
//! Invariants: nothing is tried that changes the machine. What can only be found out by trying (the
//! first loop device, the first mount) is tried on a plain file, before Larder is part of it, so
//! that no fault of Larder's can pass for a machine that lacks something.

use std::path::Path;

use crate::demo::outcome::Skipped;
use crate::demo::system::command;

/// `CAP_SYS_ADMIN`, without which not even root mounts.
const SYS_ADMIN: u64 = 1 << 21;
/// Programs and the Debian packages that they come in.
const PROGRAMS: [(&str, &str); 6] = [
    ("sqlite3", "sqlite3"),
    ("mkfs.ext4", "e2fsprogs"),
    ("fsck.ext4", "e2fsprogs"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("umount", "mount"),
];

/// The relevant properties of the machine.
#[derive(Clone, Debug)]
struct Facts {
    root: bool,
    may_mount: bool,
    fuse: bool,
    loops: bool,
    /// Packages of programs that are missing.
    lacking: Vec<&'static str>,
}

impl Facts {
    fn gather() -> Self {
        let mut lacking: Vec<_> = PROGRAMS
            .iter()
            .filter(|(program, _)| command::find(program).is_none())
            .map(|(_, package)| *package)
            .collect();
        lacking.dedup();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            root: rustix::process::geteuid().is_root(),
            may_mount: capabilities(&status).is_none_or(|c| c & SYS_ADMIN != 0),
            fuse: Path::new("/dev/fuse").exists(),
            loops: Path::new("/dev/loop-control").exists(),
            lacking,
        }
    }

    /// What is missing and how to get it; nothing if all is there.
    fn missing(&self) -> Option<String> {
        let mut missing = Vec::new();
        let mut need = |lacks: bool, what: &str| {
            if lacks {
                missing.push(what.to_owned());
            }
        };
        need(!self.root, "root (sudo target/release/larder demo --part oltp)");
        need(self.root && !self.may_mount, "the right to mount (run it outside of the container)");
        need(!self.fuse, "/dev/fuse (modprobe fuse)");
        need(!self.loops, "loop devices (modprobe loop)");
        let packages = self.lacking.join(" ");
        need(!packages.is_empty(), &format!("packages (apt-get install {packages})"));
        (!missing.is_empty()).then(|| format!("it needs {}", missing.join(" and ")))
    }
}

/// The effective capabilities in `/proc/PID/status`.
fn capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Whether the machine has what is needed.
///
/// # Errors
/// It does not.
pub fn check() -> Result<(), Skipped> {
    Facts::gather().missing().map_or(Ok(()), |missing| Err(Skipped(missing)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_remedy_in_one_line() {
        let all =
            Facts { root: true, may_mount: true, fuse: true, loops: true, lacking: Vec::new() };
        assert_eq!(all.missing(), None);
        let said = |facts: Facts| facts.missing().unwrap();
        let user = Facts { root: false, may_mount: false, ..all.clone() };
        let words = said(user);
        assert!(words.contains("sudo") && !words.contains("mount"), "{words}");
        let bound = Facts { may_mount: false, ..all.clone() };
        assert!(said(bound).contains("right to mount"));
        let bare = Facts { fuse: false, loops: false, lacking: vec!["sqlite3", "mount"], ..all };
        assert_eq!(
            said(bare),
            "it needs /dev/fuse (modprobe fuse) and loop devices (modprobe loop) and packages \
             (apt-get install sqlite3 mount)"
        );
    }

    #[test]
    fn capabilities_are_read() {
        let text = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n";
        assert!(capabilities(text).is_some_and(|c| c & SYS_ADMIN != 0));
        assert_eq!(capabilities("CapEff:\t00000000a80425fb\n").map(|c| c & SYS_ADMIN), Some(0));
        assert_eq!(capabilities("Name:\tx\n"), None);
    }
}
