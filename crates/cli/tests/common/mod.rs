// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tests of the command share: running it to its end, a server as a child process, and
//! the tools of other projects. Nothing here waits without a bound.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses a part; one that cannot go on fails

#[path = "../../../front/tests/volume_faults/load.rs"]
pub mod load;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use larder_front::nbd::client::{Client, Options};
use larder_front::nbd::uri::{Address, Uri};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

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

fn code(status: ExitStatus) -> i32 {
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

/// `larder`, quiet in the log but for warnings.
pub fn larder<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
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

/// A directory for one test, with an origin and sockets in it.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// An empty one.
    pub fn new() -> Self {
        Self { dir: tempfile::Builder::new().prefix("larder-test-").tempdir().unwrap() }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path in it, as a word of a command.
    pub fn word(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Makes a sparse file of zeroes.
    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let file = std::fs::File::create(self.path(name)).unwrap();
        file.set_len(bytes).unwrap();
        self.path(name)
    }

    /// Words of `serve` with the sockets `nbd` and `control` of this place.
    pub fn serve(&self, more: &[&str]) -> Vec<String> {
        let mut words = vec!["serve".to_owned()];
        words.extend(["--listen".to_owned(), format!("nbd+unix:{}", self.word("nbd"))]);
        words.extend(["--control".to_owned(), self.word("control")]);
        words.extend(more.iter().map(|&w| w.to_owned()));
        words
    }

    /// Everything that the volume holds, as a client reads it.
    pub fn read_all(&self, bytes: u64) -> Vec<u8> {
        let mut all = vec![0; bytes as usize];
        self.client().read_at(0, &mut all).unwrap();
        all
    }

    /// Words of `serve` for the file `origin` behind a file `flash` of so many MiB, with small
    /// units and eager population.
    pub fn serve_cached(&self, flash_mib: u64, more: &[&str]) -> Vec<String> {
        let (origin, flash) = (self.word("origin"), self.word("flash"));
        let mut words = self.serve(&["--origin", &origin, "--flash", &flash, "--unit", "64KiB"]);
        words.extend(["--flash-size".to_owned(), format!("{flash_mib}MiB")]);
        let eager = "--populate-workers 4 --populate-miss 0% --populate-free 0% \
            --populate-period 0 --displace-heat 1 --clock-ceiling 1 --populate-io 16KiB";
        words.extend(eager.split_whitespace().map(str::to_owned));
        words.extend(more.iter().map(|&w| w.to_owned()));
        words
    }

    /// Words of `serve` for the file `origin` behind a small file `flash`, by a preset: small units
    /// where those of the preset are large, and eager population.
    pub fn serve_preset(&self, preset: &str, more: &[&str]) -> Vec<String> {
        if preset == "sce" {
            return self.serve_cached(4, more);
        }
        let (origin, flash) = (self.word("origin"), self.word("flash"));
        let mut words = self.serve(&["--origin", &origin, "--flash", &flash, "--preset", preset]);
        // A header of 1 MiB, and room for some buckets on each of three workers.
        words.extend(["--flash-size", "5MiB"].map(str::to_owned));
        if preset == "slru" {
            words.extend(["--unit", "64KiB"].map(str::to_owned));
        }
        if preset == "face" {
            words.extend(["--batch-pages", "8", "--unit", "64KiB"].map(str::to_owned));
            if !more.contains(&"--write-policy") {
                words.extend(["--write-policy", "through"].map(str::to_owned));
            }
        }
        words.extend(more.iter().map(|&w| w.to_owned()));
        words
    }

    /// The export on the socket `nbd`.
    pub fn uri(&self) -> Uri {
        Uri { address: Address::Unix(self.path("nbd")), export: String::new(), tls: None }
    }

    /// The same for other programs.
    pub fn uri_word(&self) -> String {
        self.uri().to_string()
    }

    /// A connection to the export.
    pub fn client(&self) -> Client {
        connect(&self.uri())
    }

    /// Asks the server on the socket `control`.
    pub fn ask(&self, command: &[&str]) -> Ended {
        let control = self.word("control");
        let mut words = vec![command[0], "--control", &control];
        words.extend(&command[1..]);
        larder_says(&words)
    }

    /// `stats --json`.
    pub fn stats(&self) -> Value {
        one_json(&self.ask(&["stats", "--json"]).ok())
    }

    /// `status --json`.
    pub fn status(&self) -> Value {
        one_json(&self.ask(&["status", "--json"]).ok())
    }

    /// A counter or state of `stats`.
    pub fn stat(&self, key: &str) -> u64 {
        self.stats()[key].as_u64().unwrap()
    }
}

/// A connection to an export.
pub fn connect(uri: &Uri) -> Client {
    let options = Options { io_timeout: Some(PATIENCE), ..Options::default() };
    Client::connect(uri, &options).unwrap()
}

/// A server in a process of its own; killed when dropped.
pub struct Server {
    child: Child,
    log: Arc<Mutex<String>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Starts `larder` with these words and waits until it is ready everywhere.
    pub fn start(words: &[String]) -> Self {
        Self::try_start(words).unwrap_or_else(|ended| panic!("{words:?}: {ended:?}"))
    }

    /// As [`start`](Self::start); how it ended, if it did not become ready.
    pub fn try_start(words: &[String]) -> Result<Self, Ended> {
        Self::try_start_at(words, words.iter().filter(|w| *w == "--listen").count())
    }

    /// As [`start`](Self::start), by a configuration of so many exports at listeners.
    pub fn start_config(config: &Path, doors: usize) -> Self {
        let words = ["serve".to_owned(), config.to_str().unwrap().to_owned()];
        Self::try_start_at(&words, doors).unwrap_or_else(|ended| panic!("{ended:?}"))
    }

    fn try_start_at(words: &[String], doors: usize) -> Result<Self, Ended> {
        let mut command = larder(words);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (log, from) = (Arc::new(Mutex::<String>::default()), child.stderr.take().unwrap());
        let written = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                let mut log = written.lock().unwrap();
                *log += &line;
                log.push('\n');
            }
        });
        let mut server = Self { child, log, reader: Some(reader) };
        let begin = Instant::now();
        while server.log().matches("larder: ready at").count() < doors {
            assert!(begin.elapsed() < PATIENCE, "not ready: {}", server.log());
            if let Some(status) = server.child.try_wait().unwrap() {
                return Err(server.ended(status));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// Starts on devices whose last server was just killed; the kernel may take a moment to end
    /// its operations and locks.
    pub fn restart(words: &[String]) -> Self {
        let begin = Instant::now();
        loop {
            match Self::try_start(words) {
                Ok(server) => return server,
                Err(ended) => {
                    let locked = ended.code == 4 && ended.err.contains("in use");
                    assert!(locked && begin.elapsed() < PATIENCE, "{ended:?}");
                }
            }
        }
    }

    fn ended(&mut self, status: ExitStatus) -> Ended {
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        Ended { code: code(status), out: String::new(), err: self.log() }
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Where it is ready, in the order of the listeners.
    pub fn addresses(&self) -> Vec<String> {
        let log = self.log();
        log.lines().filter_map(|l| l.strip_prefix("larder: ready at ")).map(str::to_owned).collect()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether it has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub fn wait(&mut self, patience: Duration) -> Ended {
        let status = wait(&mut self.child, patience);
        let status = status.unwrap_or_else(|| panic!("still there: {}", self.log()));
        self.ended(status)
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.wait(PATIENCE).code, 128 + 9);
    }

    /// SIGTERM, and a good end.
    pub fn stop(mut self) -> Ended {
        self.signal(Signal::TERM);
        let ended = self.wait(PATIENCE);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(!ended.err.contains("panicked"), "{ended:?}");
        ended
    }

    /// A figure in bytes of `/proc/PID/status`.
    pub fn memory(&self, key: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    std::fs::write(path, load::initial(0, bytes)).unwrap();
}
