// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command under test: run to completion, run as a server process, and run beside tools of other projects. Every
//! wait is bounded.

use std::ffi::OsStr;
use std::io::{Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use larder_nbd::client::{Client, Options};
use larder_nbd::uri::Uri;
use serde_json::Value;

use crate::load::initial;

/// Time limit of any operation; the test then fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Every preset whose origin is always current; page logs write through here.
pub const PRESETS: [&str; 7] =
    ["sce", "larder", "slru", "flashcache", "enhanceio", "bcache", "face"];

/// The output of a command and how it ended.
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
    /// Standard output of a successful command.
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }
}

pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// Waits for a child to end, at most for `patience`.
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

/// Runs a command to completion; one that exceeds the time limit is killed and fails the test.
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

/// Runs a program of another project.
pub fn tool(words: &[&str]) -> Ended {
    run(Command::new(words[0]).args(&words[1..]))
}

thread_local! {
    /// State files of one test; each test has its own thread.
    static STATE: tempfile::TempDir = tempfile::tempdir().unwrap();
}

/// The `larder` that cargo built for the tests of the command, two directories above them.
#[must_use]
pub fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("larder");
    assert!(program.exists(), "{} is missing: cargo build", program.display());
    program
}

/// `larder`, which logs only warnings.
pub fn larder<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program());
    command.args(args).env("LARDER_LOG", "warn").env_remove("RUST_BACKTRACE");
    STATE.with(|dir| command.env("STATE_DIRECTORY", dir.path()));
    command
}

/// Runs `larder` with these arguments to completion.
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

/// Whether a program of another project is installed. In CI its absence fails the test.
pub fn have(program: &str, package: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&paths).any(|dir| dir.join(program).is_file());
    or_skip(there, program, &format!("apt-get install {package}"))
}

/// A program that `scripts/deps test` builds. In CI its absence fails the test.
pub fn built(name: &str) -> Option<PathBuf> {
    let target = program().ancestors().nth(2).unwrap().to_owned();
    let path = target.join("tools/bin").join(name);
    or_skip(path.is_file(), name, "scripts/deps test").then_some(path)
}

fn or_skip(there: bool, program: &str, install: &str) -> bool {
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(there || !ci, "{program} is missing: {install}");
    if !there {
        println!("skipped: {program} is missing: {install}");
    }
    there
}

/// Fills a file with the oracle's initial values. A new one gives no access to other users.
pub fn make_initial(path: &Path, bytes: u64) {
    let mut options = std::fs::File::options();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).unwrap().write_all(&initial(0, bytes)).unwrap();
}
