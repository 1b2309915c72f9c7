// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cached volume whose origin is an export of another project's server, which is killed and
//! started again under judged load: clients wait, or are told of an error within the bound, and
//! never see a wrong byte; when the server returns so does service.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use larder_core::request::Errno;
use larder_io::{Access, Device, ServerBounds};
use larder_testkit::load::{PATIENCE, Tolerance, eventually};
use larder_testkit::rig::{BYTES, Rig, Setup};

struct Nbdkit {
    socket: PathBuf,
    file: PathBuf,
    child: Option<Child>,
}

impl Nbdkit {
    /// None where it is not installed, which is a failure in CI.
    fn start(dir: &std::path::Path) -> Option<Self> {
        let there = Command::new("nbdkit").arg("--version").stdout(Stdio::null()).status().is_ok();
        let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(there || !ci, "nbdkit is missing: apt-get install nbdkit");
        if !there {
            println!("skipped: install nbdkit");
            return None;
        }
        let file = dir.join("remote");
        std::fs::File::create(&file).unwrap().set_len(BYTES).unwrap();
        let mut server = Self { socket: dir.join("remote.sock"), file, child: None };
        server.up();
        Some(server)
    }

    fn up(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        let mut command = Command::new("nbdkit");
        // One request at a time: a read beside a write may see half of a sector in the page cache,
        // which is the server's doing and not what is judged here.
        command.args(["-f", "--filter=noparallel", "-U"]).arg(&self.socket);
        command.arg("file").arg(&self.file).arg("serialize=all-requests");
        self.child = Some(command.stderr(Stdio::null()).spawn().unwrap());
        eventually("nbdkit listens", || self.socket.exists());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.child.as_ref().unwrap());
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn device(&self, answer: Duration, give_up: Duration) -> Device {
        let uri = format!("nbd+unix:///?socket={}", self.socket.display());
        let remote = ServerBounds::new(answer, give_up);
        Device::open_within(&uri.parse().unwrap(), Access::ReadWrite, remote).unwrap()
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        self.kill();
    }
}

fn everything() -> Tolerance {
    Tolerance { range: 0..BYTES, flushes: true, errno: Errno::EIO }
}

fn only_flushes() -> Tolerance {
    Tolerance { range: 0..0, flushes: true, errno: Errno::EIO }
}

/// Longer than the server is away, or shorter: then there are errors.
fn under_load(give_up: Duration, away: Duration, tolerance: Tolerance) {
    let setups = [Setup::default(), Setup { workers: 3, in_flight: 64, ..Setup::default() }];
    for (seed, setup) in setups.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let Some(mut server) = Nbdkit::start(dir.path()) else { return };
        let device = server.device(Duration::from_millis(400).min(give_up), give_up);
        let rig = Rig::over(device, dir, setup, seed as u64);
        rig.hits();
        rig.load.judge.tolerate(Some(tolerance.clone()));
        for round in 0..3 {
            rig.load.progress(30);
            server.kill();
            let begin = Instant::now();
            std::thread::sleep(away);
            server.up();
            rig.load.progress(30);
            assert!(begin.elapsed() < PATIENCE, "round {round}");
        }
        rig.hits();
        // Flushes fail since the first loss, and so does the one at the end.
        drop(rig.close());
    }
}

#[test]
fn clients_wait_for_a_server_that_returns_in_time() {
    under_load(Duration::from_secs(20), Duration::from_millis(300), only_flushes());
}

#[test]
fn clients_are_told_of_a_server_that_does_not() {
    under_load(Duration::from_millis(300), Duration::from_millis(1200), everything());
}

/// A flash device that comes back empty is not believed: it is gone, and clients see nothing of it.
#[test]
fn a_remote_flash_that_forgets_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut server) = Nbdkit::start(dir.path()) else { return };
    let device = server.device(Duration::from_secs(1), Duration::from_secs(2));
    let rig = Rig::start(Setup { workers: 2, in_flight: 64, ..Setup::default() }, 9);
    rig.volume.detach(PATIENCE, |_| {}).unwrap();
    rig.attach(&device).unwrap();
    rig.await_state("caching");
    rig.hits();
    server.kill();
    std::fs::write(&server.file, vec![0; BYTES as usize]).unwrap();
    server.up();
    rig.await_state("failed");
    rig.load.progress(100);
    rig.finish();
}

/// Stopped in the middle of its work, it carries old requests out when it goes on.
#[test]
fn a_server_that_stalls_undoes_nothing_when_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = Nbdkit::start(dir.path()) else { return };
    let device = server.device(Duration::from_millis(100), Duration::from_millis(600));
    let setup = Setup { workers: 2, in_flight: 64, ..Setup::default() };
    let rig = Rig::over(device, dir, setup, 7);
    // On a busy machine an answer may be overdue before the server was ever stopped.
    rig.load.judge.tolerate(Some(everything()));
    rig.hits();
    for stop in [50, 250, 1500, 50, 250] {
        rig.load.progress(30);
        server.signal(rustix::process::Signal::STOP);
        std::thread::sleep(Duration::from_millis(stop));
        server.signal(rustix::process::Signal::CONT);
    }
    rig.load.progress(100);
    rig.hits();
    drop(rig.close());
}
