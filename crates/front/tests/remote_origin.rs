// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cached volume whose origin is an export of nbdkit, which is killed and restarted under verified load: clients
//! wait, or get an error within the time limit, and never see a wrong byte. Service resumes when the server returns.
#![allow(clippy::unwrap_used)] // a test that cannot continue fails

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use larder_core::request::Errno;
use larder_io::{Access, Device, Privacy, ServerBounds};
use larder_testkit::load::{PATIENCE, Tolerance, accepts};
use larder_testkit::rig::{BYTES, Rig, Setup};

struct Nbdkit {
    socket: PathBuf,
    file: PathBuf,
    child: Option<Child>,
}

impl Nbdkit {
    /// `None` where nbdkit is not installed, which is a failure in CI.
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
        // One request at a time: with parallel requests a read beside a write may return half of a sector from the page
        // cache, which is nbdkit's behaviour and not tested here.
        command.args(["-f", "--filter=noparallel", "-U"]).arg(&self.socket);
        command.arg("file").arg(&self.file).arg("serialize=all-requests");
        self.child = Some(command.stderr(Stdio::null()).spawn().unwrap());
        accepts(&self.socket);
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
        Device::open_within(&uri.parse().unwrap(), Access::ReadWrite, Privacy::Any, remote).unwrap()
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

/// Kills the server for `away`: if that is longer than `give_up`, clients get errors.
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
        // Since the first lost server every flush fails, including the one at the end.
        drop(rig.close());
    }
}

#[test]
fn clients_wait_for_a_server_that_returns_in_time() {
    under_load(Duration::from_secs(20), Duration::from_millis(300), only_flushes());
}

#[test]
fn clients_get_an_error_from_a_server_that_does_not() {
    under_load(Duration::from_millis(300), Duration::from_millis(1200), everything());
}

/// A flash device that comes back empty fails, and clients do not notice.
#[test]
fn a_remote_flash_that_loses_its_data_fails() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut server) = Nbdkit::start(dir.path()) else { return };
    let device = server.device(Duration::from_secs(1), Duration::from_secs(2));
    let rig = Rig::start(Setup { workers: 2, in_flight: 64, ..Setup::default() }, 9);
    rig.volume.cache().detach(PATIENCE, |_| {}).unwrap();
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

/// A stopped server executes old requests when it continues.
#[test]
fn a_stalled_server_undoes_no_write_when_it_continues() {
    let dir = tempfile::tempdir().unwrap();
    let Some(server) = Nbdkit::start(dir.path()) else { return };
    let device = server.device(Duration::from_millis(100), Duration::from_millis(600));
    let setup = Setup { workers: 2, in_flight: 64, ..Setup::default() };
    let rig = Rig::over(device, dir, setup, 7);
    // On a busy machine a reply may be overdue before the server is stopped.
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
