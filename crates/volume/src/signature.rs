// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is found on a flash that is refused: `ext4 'db' (UUID ...)`, from the command `blkid` of util-linux.
//!
//! Invariants: the name is only words in an error. Whether the device is refused was decided before, and where `blkid`
//! is missing, fails or takes long, the error has no name.
//!
//! Why the command: it knows about eighty signatures and is on every machine with udev. A binding to libblkid needs its
//! headers and clang to build; a table of our own would name a part.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where the command is. The variable PATH is not used: the server may run as root.
const PROGRAMS: [&str; 3] = ["/usr/sbin/blkid", "/sbin/blkid", "/usr/bin/blkid"];
/// How long it may take, on a device that answers slowly.
const BOUND: Duration = Duration::from_secs(5);
/// The most bytes of its answer.
const MOST_BYTES: u64 = 16 << 10;
/// Its exit code where signatures contradict each other.
const SEVERAL: i32 = 8;

/// What is on a file or block device, if it has a known signature.
pub(crate) fn found_on(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    let program = PROGRAMS.iter().find(|program| Path::new(program).exists())?;
    let mut command = Command::new(program);
    command.args(["-p", "-o", "export"]).arg(&path).env_clear();
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let code = wait(&mut child)?;
    if code == SEVERAL {
        return Some(format!("several signatures (wipefs {} lists them)", path.display()));
    }
    let mut text = String::new();
    child.stdout.take()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    named(&text)
}

/// Its exit code; none if it was ended at the bound or by a signal. Its answer is shorter than a pipe holds.
fn wait(child: &mut Child) -> Option<i32> {
    let begin = Instant::now();
    while begin.elapsed() < BOUND {
        match child.try_wait() {
            Ok(Some(status)) => return status.code(),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => break,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// The words for an answer of the command: lines of `KEY=VALUE`.
fn named(answer: &str) -> Option<String> {
    let value = |key: &str| {
        let mut lines = answer.lines().filter_map(|line| line.split_once('='));
        lines.find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    let mut words = match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), _) => kind.to_owned(),
        (None, Some(kind)) => format!("a partition table ({kind})"),
        (None, None) => return None,
    };
    if let Some(label) = value("LABEL") {
        words += &format!(" '{label}'");
    }
    if let Some(uuid) = value("UUID").or(value("PTUUID")) {
        words += &format!(" (UUID {uuid})");
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_named() {
        let named = |answer| named(answer).unwrap_or_default();
        let answer = "DEVNAME=/dev/x\nLABEL=db\nUUID=1-2\nTYPE=ext4\nUSAGE=filesystem\n";
        assert_eq!(named(answer), "ext4 'db' (UUID 1-2)");
        assert_eq!(named("TYPE=LVM2_member\n"), "LVM2_member");
        assert_eq!(named("PTUUID=7\nPTTYPE=gpt\n"), "a partition table (gpt) (UUID 7)");
        assert_eq!((named(""), named("USAGE=other\nx")), (String::new(), String::new()));
    }

    #[test]
    fn a_signature_is_found_and_zeroes_have_none() {
        if !PROGRAMS.iter().any(|program| Path::new(program).exists()) {
            return println!("skipped: no blkid, install util-linux");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("-disk");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        assert_eq!(found_on(&path), None);
        // A swap area of version 1: its signature ends the first page.
        let mut bytes = vec![0; 1 << 20];
        bytes[1024] = 1;
        bytes[1028..1032].copy_from_slice(&255_u32.to_le_bytes());
        bytes[4086..4096].copy_from_slice(b"SWAPSPACE2");
        std::fs::write(&path, bytes).unwrap();
        assert!(found_on(&path).unwrap().starts_with("swap"));
        assert_eq!(found_on(&dir.path().join("none")), None);
    }
}
