// SPDX-License-Identifier: MIT OR Apache-2.0
//! The database in a file system with the real command: it runs small, leaves nothing behind when it is
//! interrupted, and clears what a killed one left. Needs root, FUSE, loop devices and `sqlite3`;
//! where the machine lacks one, the tests say so and do nothing.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use larder_bench::demo;
use larder_bench::demo::oltp::memory::CGROUPS;
use larder_bench::demo::oltp::needs;
use larder_bench::demo::oltp::setup::Scale;
use larder_bench::demo::options::{DemoOptions, Part};
use larder_bench::demo::window::Window;
use larder_front::fuse::mounts::below;
use larder_testkit::command::{PATIENCE, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Whether this machine has what is needed.
fn can_run() -> bool {
    needs::check().inspect_err(|lacks| println!("skipped: {lacks}")).is_ok()
}

/// Loop devices over files below a directory, as `losetup` lists them.
fn loops(dir: &Path) -> Vec<String> {
    let list = run(Command::new("losetup").args(["--list", "--noheadings"])).ok();
    list.lines().filter(|l| l.contains(dir.to_str().unwrap())).map(str::to_owned).collect()
}

fn assert_nothing_left(dir: &Path) {
    assert_eq!(below(dir), Vec::<PathBuf>::new());
    assert_eq!(loops(dir), Vec::<String>::new());
    assert_eq!(std::fs::read_dir(dir.join("work")).unwrap().count(), 0);
}

#[test]
fn both_rows_are_run_and_nothing_is_lost() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // The second time as if there were no cgroups.
    for cgroups in [CGROUPS, "/nowhere"] {
        let oltp = Scale {
            volume_bytes: 48 << 20,
            flash_bytes: 64 << 20,
            rows: 24 << 10,
            memory_bytes: 8 << 20,
            clients: 2,
            window: Window { warm_up_seconds: 1, measured_seconds: 1 },
            cgroups: cgroups.into(),
        };
        let options = DemoOptions {
            parts: vec![Part::Oltp],
            dir: dir.path().to_owned(),
            larder: Some(env!("CARGO_BIN_EXE_larder").into()),
            oltp,
            ..DemoOptions::default()
        };
        demo::run(&options).unwrap();
        let text = std::fs::read(dir.path().join("oltp.json")).unwrap();
        let rows: Value = serde_json::from_slice(&text).unwrap();
        let names: Vec<_> = rows.as_array().unwrap().iter().map(|r| r["name"].clone()).collect();
        assert_eq!(names, ["direct", "larder"]);
        for row in rows.as_array().unwrap() {
            assert!(row["throughput"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["updates_since_start"].as_u64().unwrap() > 0, "{row}");
        }
        assert!(rows[0]["device_read_ratio"].as_f64().unwrap() > 0.25, "{rows}");
        assert!(rows[1]["flash_write_since_start_bytes"].as_u64().unwrap() > 0, "{rows}");
        assert_nothing_left(dir.path());
    }
}

/// A demo whose file system is mounted, and its clients at work.
fn start(dir: &Path) -> Child {
    let log = File::create(dir.join("log")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(["demo", "--part", "oltp", "--dir"]).arg(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let child = command.spawn().unwrap();
    let begin = Instant::now();
    let words = || std::fs::read_to_string(dir.join("log")).unwrap();
    while !words().contains("tx/s") {
        assert!(begin.elapsed() < PATIENCE, "{}", words());
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_killed_demo_is_cleared_by_the_next_and_ctrl_c_leaves_nothing() {
    if !can_run() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut killed = start(dir.path());
    assert!(below(dir.path()).len() >= 2 && loops(dir.path()).len() == 1);
    signal(&killed, Signal::KILL);
    killed.wait().unwrap();
    assert!(!below(dir.path()).is_empty() || !loops(dir.path()).is_empty());

    let mut interrupted = start(dir.path());
    assert_eq!(std::fs::read_dir(dir.path().join("work")).unwrap().count(), 1);
    signal(&interrupted, Signal::INT);
    let begin = Instant::now();
    while interrupted.try_wait().unwrap().is_none() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert_eq!(interrupted.wait().unwrap().code(), Some(130), "{log}");
    assert!(log.contains("interrupted"), "{log}");
    assert_nothing_left(dir.path());
}
