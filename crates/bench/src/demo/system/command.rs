// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands of the system, none of which may take for ever.
//!
//! Invariants: a command that exceeds its bound, or that runs when the demo must stop, is killed; a signal
//! from the terminal does not reach it, so that what it does is either done or undone by the demo.
//!
//! Why files and not pipes for its output: no thread has to read while the demo waits.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const POLL: Duration = Duration::from_millis(5);
/// Where tools of the administrator are, which most users' PATH leaves out.
const SYSTEM_DIRS: &str = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";

/// The directories in which programs are looked for.
#[must_use]
pub fn path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    if !path.is_empty() {
        path.push(":");
    }
    path.push(SYSTEM_DIRS);
    path
}

/// Where a program is, if it is anywhere.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&path()).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// A command of its own process group that is found where an administrator's tools are.
#[must_use]
pub fn command(program: &str) -> Command {
    let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
    command.env("PATH", path()).env("LC_ALL", "C").process_group(0).stdin(Stdio::null());
    command
}

/// Runs a command to its end; what it wrote to standard output, without blanks around it.
///
/// # Errors
/// It cannot be run, fails, is not done within `bound`, or `stopped` returns an error.
pub fn run<W: AsRef<OsStr>>(
    program: &str,
    words: impl IntoIterator<Item = W>,
    bound: Duration,
    stopped: impl Fn() -> Result<()>,
) -> Result<String> {
    let mut command = command(program);
    command.args(words);
    run_command(command, bound, stopped)
}

/// As [`run`], with a command that was made already.
///
/// # Errors
/// As there.
pub fn run_command(
    mut command: Command,
    bound: Duration,
    stopped: impl Fn() -> Result<()>,
) -> Result<String> {
    let program = PathBuf::from(command.get_program());
    let program = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let files = || -> std::io::Result<_> { Ok((tempfile::tempfile()?, tempfile::tempfile()?)) };
    let (mut out, mut err) = files().context("a temporary file")?;
    command.stdout(out.try_clone()?).stderr(err.try_clone()?);
    let mut child = command.spawn().with_context(|| format!("{program} cannot be run"))?;
    let ended = wait(&mut child, bound, stopped);
    if !matches!(ended, Ok(Some(_))) {
        end(&mut child);
    }
    let Some(status) = ended? else {
        bail!("{program} was not done within {} s", bound.as_secs());
    };
    let (said, complaint) = (read(&mut out)?, read(&mut err)?);
    let words = if complaint.is_empty() { &said } else { &complaint };
    ensure!(status.success(), "{program} ended with {status}: {}", words.replace('\n', "; "));
    Ok(said)
}

fn read(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Waits for a child's end; `None` if it does not come within `bound`.
///
/// # Errors
/// The system's, or that of `stopped`.
pub fn wait(
    child: &mut Child,
    bound: Duration,
    stopped: impl Fn() -> Result<()>,
) -> Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        stopped()?;
        if begin.elapsed() >= bound {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Kills a child; one that waits for a device may end later, and the demo does not wait for it.
pub fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = wait(child, Duration::from_secs(1), || Ok(()));
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    const BOUND: Duration = Duration::from_secs(20);

    fn shell(line: &str, bound: Duration) -> Result<String> {
        run("sh", ["-c", line], bound, || Ok(()))
    }

    #[test]
    fn what_a_command_says_comes_back() {
        assert_eq!(shell("echo ' 7 '; echo x >&2", BOUND).unwrap(), "7");
        let error = shell("echo out; echo one >&2; echo two >&2; exit 3", BOUND).unwrap_err();
        assert_eq!(error.to_string(), "sh ended with exit status: 3: one; two");
        let error = run("no-such-program", [""; 0], BOUND, || Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "no-such-program cannot be run");
        // More than a pipe would hold.
        let long = shell("head -c 300000 /dev/zero | tr '\\0' x", BOUND).unwrap();
        assert_eq!(long.len(), 300_000);
    }

    #[test]
    fn one_that_hangs_is_ended() {
        let begin = Instant::now();
        let error = shell("exec sleep 1000", Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("not done within"), "{error}");
        let stopped = || Err(anyhow!("interrupted"));
        let error = run("sleep", ["1000"], BOUND, stopped).unwrap_err();
        assert_eq!(error.to_string(), "interrupted");
        assert!(begin.elapsed() < BOUND);
    }

    #[test]
    fn tools_of_the_administrator_are_found() {
        assert!(find("sh").is_some() && find("no-such-program").is_none());
        assert!(path().to_string_lossy().contains("/usr/sbin"));
    }
}
