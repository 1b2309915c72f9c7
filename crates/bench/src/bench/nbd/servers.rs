// SPDX-License-Identifier: MIT OR Apache-2.0
//! The servers that are compared: larder and nbdkit, as child processes.
//!
//! Invariants: a child ends with its guard, and with this process (larder by the guard's signal on
//! our death, nbdkit by `--exit-with-parent`).

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use larder_core::request::Kind;
use larder_front::control::client;
use larder_front::control::wire::Command as Asked;
use larder_model::SplitMix64;
use larder_nbd::client::{Client, Options};
use larder_nbd::uri::{Address, Uri};

use super::fio::{Job, Outcome};
use crate::bench::quiet::{Watch, process_ticks};
use crate::demo::server::{Server, Spec};

/// How long a server may take until it serves, and a cache to become warm.
pub(super) const MIB: u64 = 1 << 20;
const START_BOUND: Duration = Duration::from_secs(20);
const WARM_BOUND: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);
/// Units that are read before their population is waited for: fewer than the engine keeps in mind.
const WINDOW: u64 = 64;

/// A server that takes part.
pub(super) struct Contestant {
    /// In a row's case.
    pub name: &'static str,
    /// Its command.
    pub words: String,
    socket: PathBuf,
    pid: u32,
    running: Running,
}

enum Running {
    Larder(Server),
    Nbdkit(Guard),
}

/// Kills nbdkit at the end; it holds no data to save.
pub(in crate::bench) struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// "nbdkit 1.32.5", or a line on what is missing.
pub(in crate::bench) fn nbdkit_version() -> Result<String> {
    match Command::new("nbdkit").arg("--version").stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => bail!("nbdkit --version ended with {}", output.status),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("nbdkit is not installed; it is Debian's package nbdkit")
        }
        Err(error) => Err(error).context("nbdkit"),
    }
}

impl Contestant {
    pub(super) fn larder_in_memory(larder: &Path, sockets: &Path, bytes: u64) -> Result<Self> {
        let origin = format!("mem:{}MiB", bytes / MIB);
        Self::larder(larder, sockets, "memory", vec!["--origin".to_owned(), origin])
    }

    /// A cached volume whose origin and flash are files in `files`. Its workers never slow down,
    /// so that the cache becomes full.
    pub(super) fn larder_on_files(
        larder: &Path,
        sockets: &Path,
        files: &Path,
        bytes: u64,
    ) -> Result<Self> {
        let origin = noise_file(files, "origin", bytes)?;
        let flash = files.join("flash");
        // Room for the header.
        let flash_size = format!("{}MiB", bytes / MIB + 2);
        let mut flags = vec!["--origin".to_owned(), origin.display().to_string()];
        flags.extend(["--flash".to_owned(), flash.display().to_string()]);
        flags.extend(["--flash-size".to_owned(), flash_size]);
        for (flag, value) in [
            ("--populate-workers", "8"),
            ("--populate-miss", "0%"),
            ("--populate-free", "0%"),
            ("--populate-period", "0"),
        ] {
            flags.extend([flag.to_owned(), value.to_owned()]);
        }
        Self::larder(larder, sockets, "cached", flags)
    }

    fn larder(
        larder: &Path,
        sockets: &Path,
        name: &'static str,
        flags: Vec<String>,
    ) -> Result<Self> {
        let words = format!("larder serve {}", flags.join(" "));
        let spec = Spec { program: larder.to_owned(), flags, dir: sockets.to_owned(), name };
        let server = Server::start(&spec, || Ok(()))?;
        let path = sockets.join(format!("{name}.control"));
        let status =
            client::ask(&path, &Asked::Status, |_| {}).map_err(|failed| anyhow!(failed.message))?;
        let pid = status.get("pid").and_then(|pid| pid.as_u64()).context("larder status: pid")?;
        let (socket, running) = (sockets.join(format!("{name}.nbd")), Running::Larder(server));
        Ok(Self { name: "larder", words, socket, pid: pid as u32, running })
    }

    pub(super) fn nbdkit_memory(sockets: &Path, bytes: u64) -> Result<Self> {
        let arguments = ["memory".to_owned(), format!("{}M", bytes / MIB)];
        Self::nbdkit("nbdkit memory", sockets, None, &arguments)
    }

    pub(super) fn nbdkit_file(sockets: &Path, files: &Path, bytes: u64) -> Result<Self> {
        let file = noise_file(files, "plain", bytes)?;
        let arguments = ["file".to_owned(), file.display().to_string()];
        Self::nbdkit("nbdkit file", sockets, None, &arguments)
    }

    /// As a cache for the same promises as ours: writes are on the origin when they are answered,
    /// and reads are admitted to the cache.
    pub(super) fn nbdkit_cache(sockets: &Path, files: &Path, bytes: u64) -> Result<Self> {
        let file = noise_file(files, "cached", bytes)?;
        let arguments = [
            "--filter=cache".to_owned(),
            "file".to_owned(),
            file.display().to_string(),
            "cache=writethrough".to_owned(),
            "cache-on-read=true".to_owned(),
        ];
        Self::nbdkit("nbdkit cache filter", sockets, Some(files), &arguments)
    }

    fn nbdkit(
        name: &'static str,
        sockets: &Path,
        cache: Option<&Path>,
        arguments: &[String],
    ) -> Result<Self> {
        let socket = sockets.join(format!("{}.nbd", name.replace(' ', "-")));
        let log = sockets.join(format!("{}.log", name.replace(' ', "-")));
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(&socket);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log).with_context(|| log.display().to_string())?);
        if let Some(dir) = cache {
            command.env("TMPDIR", dir);
        }
        let child = command.spawn().context("nbdkit")?;
        let (pid, words) = (child.id(), format!("nbdkit {}", arguments.join(" ")));
        let running = Running::Nbdkit(Guard(child));
        let mut contestant = Self { name, words, socket, pid, running };
        contestant.wait(&log)?;
        Ok(contestant)
    }

    /// Waits until an nbdkit serves.
    fn wait(&mut self, log: &Path) -> Result<()> {
        let begin = Instant::now();
        loop {
            if let Running::Nbdkit(guard) = &mut self.running
                && let Some(status) = guard.0.try_wait()?
            {
                let words = std::fs::read_to_string(log).unwrap_or_default();
                bail!("{} ended with {status}: {}", self.words, words.trim());
            }
            match self.connect() {
                Ok(client) => return Ok(client.disconnect()?),
                Err(error) if begin.elapsed() > START_BOUND => return Err(error),
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    fn connect(&self) -> Result<Client> {
        let address = Address::Unix(self.socket.clone());
        let options = Options { io_timeout: Some(START_BOUND), ..Options::default() };
        Ok(Client::connect(&Uri { address, export: String::new(), tls: None }, &options)?)
    }

    /// Writes noise over all of it.
    pub(super) fn fill(&self, bytes: u64) -> Result<()> {
        let mut client = self.connect()?;
        let mut noise = Noise::new();
        for offset in (0..bytes).step_by(MIB as usize) {
            client.write_at(offset, noise.next(), false)?;
        }
        client.flush()?;
        Ok(client.disconnect()?)
    }

    /// Reads all of it until it is cached, where there is a cache.
    pub(super) fn warm(&self, bytes: u64) -> Result<()> {
        let mut client = self.connect()?;
        match &self.running {
            Running::Larder(server) => warm_larder(server, &mut client, bytes)?,
            Running::Nbdkit(_) => {
                let mut memory = vec![0; MIB as usize];
                for offset in (0..bytes).step_by(MIB as usize) {
                    client.read_at(offset, &mut memory)?;
                }
            }
        }
        Ok(client.disconnect()?)
    }

    /// Runs fio against it.
    pub(super) fn measure(&self, job: &Job, bytes: u64, span: Duration) -> Result<Outcome> {
        let pid = self.pid.to_string();
        let (watch, before) = (Watch::begin(Some(self.pid))?, process_ticks(&pid, false)?);
        let (outcome, requests) =
            job.run(&self.socket, bytes, span).with_context(|| self.words.clone())?;
        let ticks = process_ticks(&pid, false)?.saturating_sub(before);
        let (cpu_us, others) = (ticks as f64 * 10_000.0 / requests, watch.others()?);
        Ok(Outcome { cpu_us, others, ..outcome })
    }
}

/// Reads some units until all of each is read from flash, then the next.
fn warm_larder(server: &Server, client: &mut Client, bytes: u64) -> Result<()> {
    let begin = Instant::now();
    let units = bytes / MIB;
    for first in (0..units).step_by(WINDOW as usize) {
        let window = first..units.min(first + WINDOW);
        let read_all = |client: &mut Client| -> Result<u64> {
            let before = server.stats()?.read_hits;
            for unit in window.clone() {
                // First and last page: parts of a unit become valid one after the other.
                for offset in [unit * MIB, (unit + 1) * MIB - 4096] {
                    client.submit(Kind::Read, offset, 4096, &[])?;
                    client.wait()?.result?;
                }
            }
            Ok(server.stats()?.read_hits - before)
        };
        while read_all(client)? < 2 * (window.end - window.start) {
            ensure!(begin.elapsed() < WARM_BOUND, "the cache does not become warm");
            std::thread::sleep(POLL * 5);
        }
    }
    Ok(())
}

/// Bytes that differ from zeroes and from each other.
pub(in crate::bench) struct Noise {
    random: SplitMix64,
    block: Vec<u8>,
}

impl Noise {
    pub(in crate::bench) fn new() -> Self {
        Self { random: SplitMix64::new(1), block: vec![0; MIB as usize] }
    }

    pub(in crate::bench) fn next(&mut self) -> &[u8] {
        for word in self.block.chunks_exact_mut(8) {
            word.copy_from_slice(&self.random.next_u64().to_ne_bytes());
        }
        &self.block
    }
}

fn noise_file(dir: &Path, name: &str, bytes: u64) -> Result<PathBuf> {
    let path = dir.join(format!("{name}.img"));
    let (mut noise, failed) = (Noise::new(), || path.display().to_string());
    let mut file = File::create(&path).with_context(failed)?;
    for _ in 0..bytes / MIB {
        file.write_all(noise.next()).with_context(failed)?;
    }
    Ok(path)
}
