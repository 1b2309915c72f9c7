// SPDX-License-Identifier: MIT OR Apache-2.0
//! `fuse`: a loop device over our FUSE file beside one over nbdfuse's, the file that nbdkit's users
//! would mount on a kernel without `nbd`.
//!
//! Method: equal media. `larder serve --origin mem:1GiB --listen fuse:FILE` stands beside `nbdfuse
//! FILE` over `nbdkit memory 1G`; both are filled with the same noise, both files carry a loop
//! device with direct I/O, and fio reads and writes 4 KiB at random places of it. Both run side by
//! side and take turns, so the ratio of a pair is of the same seconds.
//!
//! Needs root: loop devices are the kernel's. Everything made is removed on every path; a mount
//! of a killed server is detached without waiting.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::common::{BenchOptions, progress};
use super::nbd::fio::{Outcome, parse};
use super::nbd::servers::{Guard, Noise, nbdkit_version};
use super::quiet::{Counted, Watch};
use super::row::{Goal, Row, median};
use crate::demo::server::{Server, Spec};
use crate::demo::system::mounts::Loop;

const NAME: &str = "fuse";
const MIB: u64 = 1 << 20;
/// How long a mount may take to appear.
const START_BOUND: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);

/// How long and how large.
#[derive(Clone, Copy)]
struct Scale {
    bytes: u64,
    rounds: usize,
    span: Duration,
}

/// A load on the loop device.
#[derive(Clone, Copy)]
struct Job {
    depth: u32,
    reads_percent: u32,
    /// The least ratio, where there is a goal.
    least: Option<f64>,
}

const JOBS: [Job; 3] = [
    Job { depth: 32, reads_percent: 100, least: Some(2.0) },
    Job { depth: 1, reads_percent: 100, least: None },
    Job { depth: 32, reads_percent: 70, least: None },
];

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    ensure!(rustix::process::geteuid().is_root(), "needs root, for its loop devices");
    for path in ["/dev/fuse", "/dev/loop-control"] {
        ensure!(Path::new(path).exists(), "{path} is missing");
    }
    let version = format!("{}, {}", nbdkit_version()?, nbdfuse_version()?);
    let scale = match options.quick {
        true => Scale { bytes: 64 * MIB, rounds: 1, span: Duration::from_secs(1) },
        false => Scale { bytes: 1024 * MIB, rounds: 9, span: Duration::from_secs(1) },
    };
    let dir = TempDir::with_prefix_in("larder-bench-", &options.dir)
        .with_context(|| format!("a directory in {}", options.dir.display()))?;
    let ours = Contestant::larder(&options.larder()?, dir.path(), scale.bytes)?;
    let peer = Contestant::nbdfuse(dir.path(), scale.bytes)?;
    progress(NAME, "both are filled");
    JOBS.iter().map(|job| compare(job, &ours, &peer, scale, &version)).collect()
}

fn nbdfuse_version() -> Result<String> {
    let output = Command::new("nbdfuse").arg("--version").stdin(Stdio::null()).output();
    let output = output.context("nbdfuse cannot be run; it is in Debian's package libnbd-bin")?;
    let words = String::from_utf8_lossy(&output.stdout);
    Ok(words.lines().next().unwrap_or("nbdfuse").to_owned())
}

fn compare(
    job: &Job,
    ours: &Contestant,
    peer: &Contestant,
    scale: Scale,
    version: &str,
) -> Result<Row> {
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..scale.rounds {
        for turn in 0..2 {
            let (who, results) = match (turn + round) % 2 {
                0 => (ours, &mut mine),
                _ => (peer, &mut theirs),
            };
            results.push(job.run(who, scale).with_context(|| who.words.clone())?);
        }
    }
    progress(NAME, job.words());
    let others: Vec<f64> = mine.iter().zip(&theirs).map(|(o, t)| o.others.max(t.others)).collect();
    let counted = Counted::quietest(&others);
    let iops = |side: &[Outcome]| counted.each(side, |o| o.iops);
    let figures = |side: &[Outcome]| {
        let p50 = median(&counted.each(side, |o| o.p50_us));
        let p99 = median(&counted.each(side, |o| o.p99_us));
        format!("{p50:.1} us p50, {p99:.1} us p99")
    };
    let goals: Vec<Goal> = job.least.map(Goal::RatioAtLeast).into_iter().collect();
    let mut row = Row::new(NAME, format!("loop / nbdfuse, {}", job.words()), "IOPS")
        .paired(&format!("{version}: {}", peer.words), &iops(&mine), &iops(&theirs))
        .command(format!("{}; losetup --direct-io=on; {}", ours.words, job.command(&ours.device)));
    if !goals.is_empty() {
        row = row.goals(&goals);
    }
    let (mine, theirs) = (figures(&mine), figures(&theirs));
    Ok(row.note(format!("ours {mine}; peer {theirs}; {}", counted.words())))
}

impl Job {
    fn words(&self) -> String {
        let what = if self.reads_percent == 100 { "reads" } else { "70/30 mix" };
        format!("4 KiB random {what}, depth {}", self.depth)
    }

    fn arguments(&self, device: &Path) -> Vec<String> {
        let rw = if self.reads_percent == 100 { "randread" } else { "randrw" };
        let mut arguments = vec![
            "--name=larder".to_owned(),
            "--ioengine=libaio".to_owned(),
            format!("--filename={}", device.display()),
            format!("--rw={rw}"),
            "--bs=4k".to_owned(),
            "--direct=1".to_owned(),
            format!("--iodepth={}", self.depth),
            "--norandommap".to_owned(),
            "--randrepeat=0".to_owned(),
            "--time_based".to_owned(),
        ];
        if self.reads_percent < 100 {
            arguments.push(format!("--rwmixread={}", self.reads_percent));
        }
        arguments
    }

    /// The command, for a reader who repeats the run.
    fn command(&self, device: &Path) -> String {
        format!("fio {} --runtime=1", self.arguments(device).join(" "))
    }

    fn run(&self, who: &Contestant, scale: Scale) -> Result<Outcome> {
        let watch = Watch::begin(Some(who.pid))?;
        let output = Command::new("fio")
            .args(self.arguments(&who.device))
            .arg(format!("--runtime={}ms", scale.span.as_millis()))
            .arg("--output-format=json")
            .stdin(Stdio::null())
            .output()
            .context("fio cannot be run; it is Debian's package fio")?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "fio ended with {}: {}", output.status, words.trim());
        let text = String::from_utf8_lossy(&output.stdout);
        let json = text.find('{').map_or("", |at| &text[at..]);
        let (outcome, _) = parse(json).context("the output of fio")?;
        Ok(Outcome { others: watch.others()?, ..outcome })
    }
}

/// A file that takes part, with a loop device over it. Fields are dropped in this order.
struct Contestant {
    /// Its command.
    words: String,
    device: PathBuf,
    pid: u32,
    _loop: Loop,
    _mounted: Mounted,
    _servers: Servers,
}

/// The servers behind the file.
enum Servers {
    Larder(#[allow(dead_code)] Server), // held for its end
    Nbdfuse(#[allow(dead_code)] Guard, #[allow(dead_code)] Guard),
}

impl Contestant {
    fn larder(larder: &Path, dir: &Path, bytes: u64) -> Result<Self> {
        let file = dir.join("ours.img");
        let flags = ["--origin".to_owned(), format!("mem:{}MiB", bytes / MIB)];
        let words = format!("larder serve {} --listen fuse:FILE", flags.join(" "));
        let mut flags = flags.to_vec();
        flags.extend(["--listen".to_owned(), format!("fuse:{}", file.display())]);
        let spec = Spec { program: larder.to_owned(), flags, dir: dir.to_owned(), name: "fuse" };
        let server = Server::start(&spec, || Ok(()))?;
        let pid = server.pid();
        Self::over(words, file, pid, Servers::Larder(server), bytes)
    }

    fn nbdfuse(dir: &Path, bytes: u64) -> Result<Self> {
        let (socket, file) = (dir.join("nbdkit.sock"), dir.join("peer.img"));
        File::create(&file).with_context(|| file.display().to_string())?;
        let size = format!("{}M", bytes / MIB);
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket);
        let nbdkit = Guard(silent(nbdkit.args(["memory", &size])).context("nbdkit")?);
        await_that("nbdkit", || socket.exists())?;
        let mut nbdfuse = Command::new("nbdfuse");
        let nbdfuse = Guard(silent(nbdfuse.arg(&file).arg("--unix").arg(&socket))?);
        let words = format!("nbdfuse FILE over nbdkit memory {size}");
        let pid = nbdfuse.0.id();
        Self::over(words, file, pid, Servers::Nbdfuse(nbdfuse, nbdkit), bytes)
    }

    /// Waits for the file, fills it and puts a loop device over it.
    fn over(words: String, file: PathBuf, pid: u32, servers: Servers, bytes: u64) -> Result<Self> {
        let mounted = Mounted(file);
        let file = &mounted.0;
        await_that(&words, || file.metadata().is_ok_and(|meta| meta.len() == bytes))?;
        let mut noise = Noise::new();
        let mut filled = File::options().write(true).open(file).context(words.clone())?;
        for _ in 0..bytes / MIB {
            filled.write_all(noise.next()).context(words.clone())?;
        }
        drop(filled);
        let looped = Loop::attach(file, || Ok(()))?;
        let device = looped.device().to_owned();
        Ok(Self { words, device, pid, _loop: looped, _mounted: mounted, _servers: servers })
    }
}

fn silent(command: &mut Command) -> std::io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn await_that(what: &str, holds: impl Fn() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > START_BOUND {
            bail!("{what}: does not serve within {} s", START_BOUND.as_secs());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Unmounts at the end, if still mounted.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let command = silent(Command::new("umount").arg("--lazy").arg(&self.0));
        let _ = command.and_then(|mut c| c.wait());
    }
}
