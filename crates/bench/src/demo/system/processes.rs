// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that work in a directory of the demo's.
//!
//! Invariants: a process is signalled only if its working directory is that directory or lies below it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// How long killed processes may take to end.
const END_BOUND: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// Processes whose working directory is this one or lies below it.
fn processes(directory: &Path) -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let pid = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        fs::read_link(entry.path().join("cwd")).ok()?.starts_with(directory).then_some(pid)
    };
    all.flatten().filter_map(pid).collect()
}

/// Kills the processes that work in a directory, and waits until they are gone.
///
/// # Errors
/// A process remains.
pub fn end_below(directory: &Path) -> Result<()> {
    let begin = Instant::now();
    loop {
        let left = processes(directory);
        if left.is_empty() {
            return Ok(());
        }
        for pid in left {
            let _ = kill_process(pid, Signal::KILL);
        }
        ensure!(begin.elapsed() < END_BOUND, "processes in {} do not end", directory.display());
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_what_works_below_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("in2"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        let sleep = |at: &Path| Command::new("sleep").arg("100").current_dir(at).spawn().unwrap();
        let (mut ours, mut other) = (sleep(&inside), sleep(&outside));
        // A child counts as gone once it is waited for.
        let waited = std::thread::spawn(move || ours.wait().unwrap());
        end_below(&inside.canonicalize().unwrap()).unwrap();
        assert!(!waited.join().unwrap().success());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
