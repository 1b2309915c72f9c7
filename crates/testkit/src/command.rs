// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command under test: run to its end, as a server in a process of its own, and beside the tools
//! of other projects. Nothing here waits without a bound.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use larder_nbd::client::{Client, Options};
use larder_nbd::uri::Uri;
use serde_json::Value;

use crate::load::initial;

/// Longer than anything may take; then the test fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Every preset under which the origin has everything; page logs write through here.
pub const PRESETS: [&str; 6] = ["sce", "slru", "flashcache", "enhanceio", "bcache", "face"];

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code, or 128 and the signal's number.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ended {
    /// Standard output, of a success.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }
}

pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// Waits for a child's end, for so long at the most.
fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if begin.elapsed() > patience {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs a command to its end; one that does not end in time is killed and fails the test.
pub fn run(command: &mut Command) -> Ended {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let collect = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = collect(Box::new(child.stdout.take().unwrap()));
    let err = collect(Box::new(child.stderr.take().unwrap()));
    let Some(status) = wait(&mut child, PATIENCE) else {
        child.kill().unwrap();
        panic!("{command:?} did not end within {PATIENCE:?}");
    };
    Ended { code: code(status), out: out.join().unwrap(), err: err.join().unwrap() }
}

thread_local! {
    /// State files of one test: each has a thread of its own.
    static STATE: tempfile::TempDir = tempfile::tempdir().unwrap();
}

/// The `larder` that cargo built for the tests of the command: two directories above theirs.
#[must_use]
pub fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("larder");
    assert!(program.exists(), "{} is missing: cargo build", program.display());
    program
}

/// `larder`, quiet in the log but for warnings.
pub fn larder<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program());
    command.args(args).env("LARDER_LOG", "warn").env_remove("RUST_BACKTRACE");
    STATE.with(|dir| command.env("STATE_DIRECTORY", dir.path()));
    command
}

/// `larder` with these words, run to its end.
pub fn larder_says(args: &[&str]) -> Ended {
    run(&mut larder(args))
}

/// The one JSON value on a command's standard output.
pub fn one_json(out: &str) -> Value {
    serde_json::from_str(out).unwrap_or_else(|e| panic!("not one JSON value: {e}: {out}"))
}

/// A connection to an export.
pub fn connect(uri: &Uri) -> Client {
    let options = Options { io_timeout: Some(PATIENCE), ..Options::default() };
    Client::connect(uri, &options).unwrap()
}

/// Whether a program of another project is there. Where it has to be (in CI), its absence fails
/// the test.
pub fn have(program: &str, package: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&paths).any(|dir| dir.join(program).is_file());
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(there || !ci, "{program} is missing: apt-get install {package}");
    if !there {
        println!("skipped: install {package}");
    }
    there
}

/// Fills a file with the oracle's initial values.
pub fn make_initial(path: &Path, bytes: u64) {
    std::fs::write(path, initial(0, bytes)).unwrap();
}
