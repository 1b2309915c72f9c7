// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server in a process of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Ended, PATIENCE, code, larder, wait};

/// See the module; killed when dropped.
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
