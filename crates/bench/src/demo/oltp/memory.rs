// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that the database is allowed, page cache included.
//!
//! Purpose: data larger than memory, on a machine that has memory for all of it. A memory cgroup
//! (version 2, or 1 where that is what the machine has) holds the database's processes, and what
//! they read and write is charged to it. Where none can be made, the database's file is taken out
//! of the page cache ([`Memory::touched`]) before more of it can be there than is allowed.
//!
//! Invariants: never more of the database is in the page cache than the bound; with a cgroup that
//! is the bound of its processes too. The cgroup goes with the guard, one of a demo that was killed
//! with the next demo; no setting of the machine is changed.
//!
//! Why not `sqlite3`'s own cache alone: what it does not hold, the page cache would.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use larder_io::format_size;
use rustix::fs::Advice;

use super::database::PAGE_BYTES;

/// Where cgroups are, on every Linux.
pub const CGROUPS: &str = "/sys/fs/cgroup";
const PREFIX: &str = "larder-demo-";
/// How long a cgroup may take to become empty.
const EMPTY_BOUND: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(5);
/// Version 1: where the controller has its tree, and the file of the bound.
const V1: (&str, &str) = ("memory", "memory.limit_in_bytes");
const V2_BOUND: &str = "memory.max";

/// The bound, see the module.
#[derive(Debug)]
pub struct Memory {
    bytes: u64,
    how: How,
}

#[derive(Debug)]
enum How {
    Cgroup(PathBuf),
    /// The database's file, and the pages of it that may have come into memory.
    Forget(File, AtomicU64),
}

impl Memory {
    /// Allows so many bytes for a database in this file; `cgroups` is where those are.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn limit(cgroups: &Path, bytes: u64, database: &Path) -> Result<Self> {
        let how = match cgroup(cgroups, bytes) {
            Some(dir) => How::Cgroup(dir),
            None => {
                let file = File::open(database).with_context(|| database.display().to_string())?;
                How::Forget(file, AtomicU64::new(0))
            }
        };
        Ok(Self { bytes, how })
    }

    /// Puts a process under the bound.
    ///
    /// # Errors
    /// The system refuses.
    pub fn adopt(&self, pid: u32) -> Result<()> {
        match &self.how {
            How::Cgroup(dir) => std::fs::write(dir.join("cgroup.procs"), pid.to_string())
                .with_context(|| format!("cannot put a process into {}", dir.display())),
            How::Forget(..) => Ok(()),
        }
    }

    /// So many more pages of the database may have come into memory.
    ///
    /// # Errors
    /// They cannot be taken out.
    pub fn touched(&self, pages: u64) -> Result<()> {
        if let How::Forget(file, count) = &self.how {
            let before = count.fetch_add(pages, Ordering::Relaxed);
            if (before + pages) * PAGE_BYTES >= self.bytes {
                count.store(0, Ordering::Relaxed);
                rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?;
            }
        }
        Ok(())
    }

    /// How it is bounded, for people.
    #[must_use]
    pub fn words(&self) -> String {
        let bytes = format_size(self.bytes);
        match self.how {
            How::Cgroup(_) => format!("{bytes}, page cache included, by a memory cgroup"),
            How::Forget(..) => format!(
                "{bytes} of page cache (no memory cgroup can be made here; the file is taken out \
                 of the page cache whenever so much of it was touched)"
            ),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let How::Cgroup(dir) = &self.how {
            let begin = Instant::now();
            while std::fs::remove_dir(dir).is_err() && begin.elapsed() < EMPTY_BOUND {
                std::thread::sleep(POLL);
            }
        }
    }
}

/// Makes a cgroup of bounded memory where that is possible.
fn cgroup(root: &Path, bytes: u64) -> Option<PathBuf> {
    let v1 = root.join(V1.0);
    let (tree, bound) = match v1.join(V1.1).exists() {
        true => (v1, V1.1),
        false => (root.to_owned(), V2_BOUND),
    };
    if !tree.join("cgroup.procs").exists() {
        return None;
    }
    remove_leftovers(&tree);
    let dir = tree.join(format!("{PREFIX}{}", std::process::id()));
    std::fs::create_dir(&dir).ok()?;
    let bounded = dir.join(bound).exists()
        && std::fs::write(dir.join(bound), bytes.to_string()).is_ok()
        && std::fs::read_to_string(dir.join(bound))
            .is_ok_and(|text| text.trim().parse().is_ok_and(|limit: u64| limit <= bytes));
    if !bounded {
        let _ = std::fs::remove_dir(&dir);
        return None;
    }
    // Absent on many machines, and without swap nothing to forbid.
    let _ = std::fs::write(dir.join("memory.swap.max"), "0");
    Some(dir)
}

/// Removes the cgroups of demos that were killed: those of no process, or of a former one with our
/// number. One that is in use cannot be removed.
fn remove_leftovers(tree: &Path) {
    let Ok(entries) = std::fs::read_dir(tree) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        let lives = |pid: u32| Path::new("/proc").join(pid.to_string()).exists();
        if pid.is_some_and(|pid| pid == std::process::id() || !lives(pid)) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::system::command;

    #[test]
    fn without_cgroups_the_file_is_forgotten_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        std::fs::write(&path, "x").unwrap();
        let memory = Memory::limit(dir.path(), 10 * PAGE_BYTES, &path).unwrap();
        memory.adopt(1).unwrap();
        let count = || match &memory.how {
            How::Forget(_, count) => count.load(Ordering::Relaxed),
            How::Cgroup(dir) => panic!("{dir:?}"),
        };
        memory.touched(9).unwrap();
        assert_eq!(count(), 9);
        memory.touched(1).unwrap();
        assert_eq!(count(), 0);
        assert!(memory.words().contains("no memory cgroup"));
    }

    #[test]
    fn a_tree_without_the_controller_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        // No process has the number 0, and one the number 1.
        for name in ["larder-demo-0", "larder-demo-1"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        // Version 2 without `memory` in its subtree_control: a new directory has no `memory.max`.
        assert_eq!(cgroup(dir.path(), 1 << 20), None);
        let left = |name: &str| dir.path().join(name).exists();
        assert!(left("cgroup.procs") && left("larder-demo-1") && !left("larder-demo-0"));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_real_cgroup_bounds_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        std::fs::write(&path, "x").unwrap();
        let memory = Memory::limit(Path::new(CGROUPS), 32 << 20, &path).unwrap();
        let How::Cgroup(made) = &memory.how else {
            println!("skipped: no memory cgroup can be made here");
            return;
        };
        let made = made.clone();
        let mut child = command::command("sleep").arg("1000").spawn().unwrap();
        let adopted = memory.adopt(child.id());
        let procs = std::fs::read_to_string(made.join("cgroup.procs")).unwrap();
        command::end(&mut child);
        adopted.unwrap();
        assert!(procs.lines().any(|pid| pid == child.id().to_string()), "{procs}");
        drop(memory);
        assert!(!made.exists());
    }
}
