// SPDX-License-Identifier: MIT OR Apache-2.0
//! `volumes`: what volumes without load cost a node.
//!
//! Method: one server with many volumes, and many servers with one volume each, as a process of the same program. Origins are
//! `null:` devices of 1 GiB; the flash of each volume is a file of 4 MiB, with a journal. Memory is the proportional set size:
//! what several processes share counts once. Processor time is that of some seconds after the start, with no client.
//!
//! Why not a load: what a load costs is that of its requests (`hit-path`, `nbd`), however many volumes they go to.
//!
//! Why small buffers: the start of a server is refused if its volumes could need more memory than there is. With the default
//! settings a volume may take 75 MiB, of which it uses none without a load.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::param::clock_ticks_per_second;
use rustix::process::Signal;

use super::common::{BenchOptions, progress};
use super::quiet::process_ticks;
use super::row::{Goal, Row};
use crate::process::{Process, permit_descriptors};

const NAME: &str = "volumes";
const MIB: f64 = (1 << 20) as f64;
/// How long a server may take until it is ready, and until it has stopped.
const BOUND: Duration = Duration::from_secs(300);
/// After the start, before anything is measured.
const SETTLES: Duration = Duration::from_secs(5);
/// Settings with which a volume may take about 6 MiB.
const SMALL: &str =
    "write_buffer = \"1MiB\"\npopulate_io = \"128KiB\"\nrecorder = \"0\"\nworkers = 1\n";
/// Connections of a volume, for each user.
const CONNECTIONS: u32 = 4;
/// What a volume may cost, in MiB and in percent of a processor.
const MOST_MIB: f64 = 4.0;
const MOST_PERCENT: f64 = 0.1;

/// What servers without load take, all together.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    bytes: u64,
    threads: u64,
    descriptors: u64,
    ticks: u64,
}

pub(super) fn run(options: &BenchOptions) -> Result<Vec<Row>> {
    let (many, alone, idle) = if options.quick { (20, 3, 2) } else { (1000, 100, 30) };
    let idle = Duration::from_secs(idle);
    permit_descriptors(); // a server needs four for each volume
    let dir = tempfile::tempdir_in(&options.dir).context("a directory for the flash files")?;
    let larder = options.larder()?;
    let mut rows = Vec::new();
    for (case, servers, volumes) in [("one process", 1, many), ("a process each", alone, 1)] {
        progress(NAME, format!("{} volumes in {case}", servers * volumes));
        let began = Instant::now();
        let mut running = (0..servers)
            .map(|number| start(&larder, &dir.path().join(format!("{volumes}-{number}")), volumes))
            .collect::<Result<Vec<_>>>()?;
        let ready = began.elapsed();
        std::thread::sleep(SETTLES);
        let before = cost(&running)?;
        std::thread::sleep(idle);
        let after = cost(&running)?;
        let began = Instant::now();
        stop(&mut running)?;
        let stopped = began.elapsed();
        let times = format!(
            "ready after {:.1} s, stopped after {:.1} s",
            ready.as_secs_f64(),
            stopped.as_secs_f64()
        );
        let ticks = after.ticks - before.ticks;
        rows.extend(of(case, servers * volumes, &after, &times));
        rows.push(processor(case, servers * volumes, ticks, idle));
    }
    Ok(rows)
}

/// The rows of what volumes take.
fn of(case: &str, volumes: u64, cost: &Cost, times: &str) -> Vec<Row> {
    let each = |count: u64| count as f64 / volumes as f64;
    let row =
        |what: &str, unit: &str| Row::new(NAME, format!("{volumes} volumes, {case}: {what}"), unit);
    vec![
        row("memory of each", "MiB")
            .alone(each(cost.bytes) / MIB)
            .goals(&[Goal::OursAtMost(MOST_MIB)])
            .note(times),
        row("threads of each", "").alone(each(cost.threads)),
        row("descriptors of each", "").alone(each(cost.descriptors)),
    ]
}

fn processor(case: &str, volumes: u64, ticks: u64, idle: Duration) -> Row {
    let seconds = ticks as f64 / clock_ticks_per_second() as f64;
    let percent = 100.0 * seconds / idle.as_secs_f64() / volumes as f64;
    Row::new(NAME, format!("{volumes} volumes, {case}: processor, each"), "%")
        .alone(percent)
        .goals(&[Goal::OursAtMost(MOST_PERCENT)])
        .note(format!("of one processor, in {} s without a client", idle.as_secs()))
}

/// Starts a server with so many volumes, whose files are in `dir`, and waits until it serves all.
fn start(larder: &Path, dir: &Path, volumes: u64) -> Result<Process> {
    fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let config = dir.join("larder.toml");
    fs::write(&config, configuration(dir, volumes)?)
        .with_context(|| config.display().to_string())?;
    let mut command = Command::new(larder);
    command.arg("serve").arg(&config);
    let mut process = Process::spawn(&mut command, &dir.join("log"), BOUND)?;
    if let Some(exit) = process.wait_until_ready(volumes as usize, BOUND, || Ok(()))? {
        bail!("larder serve ended with {exit} at its start{}", process.last_words());
    }
    Ok(process)
}

fn configuration(dir: &Path, volumes: u64) -> Result<String> {
    let dir = dir.to_str().context("a directory whose name is no text")?;
    let mut text = format!(
        "connections = {CONNECTIONS}\nstate = \"{dir}\"\nlisten = \"nbd+unix:{dir}/nbd\"\n{SMALL}\n"
    );
    for number in 0..volumes {
        writeln!(
            text,
            "[volume.v{number}]\norigin = \"null:1GiB\"\nflash = \"{dir}/flash{number}\"\n\
             flash_size = \"4MiB\"\ncontrol = \"{dir}/v{number}.sock\"\n"
        )?;
    }
    Ok(text)
}

/// What the servers take now.
fn cost(running: &[Process]) -> Result<Cost> {
    let mut sum = Cost::default();
    for process in running {
        let pid = process.pid();
        let entries = |what: &str| -> Result<u64> {
            let path = format!("/proc/{pid}/{what}");
            Ok(fs::read_dir(&path).with_context(|| path.clone())?.count() as u64)
        };
        sum.bytes += process.proportional_bytes()?;
        sum.threads += entries("task")?;
        sum.descriptors += entries("fd")?;
        sum.ticks += process_ticks(&pid.to_string(), false)?;
    }
    Ok(sum)
}

/// Stops them all at once, and waits.
fn stop(running: &mut [Process]) -> Result<()> {
    running.iter().for_each(|process| process.signal(Signal::TERM));
    for process in running {
        let ended = process.wait(BOUND)?.context("a server did not stop")?;
        ensure!(ended.success(), "a server ended with {ended}{}", process.last_words());
    }
    Ok(())
}
