// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket, over which `larder status`, `stats`, `flush`, `detach`, `attach` and `trace record` reach a
//! serving process.
//!
//! This module is the server. [`wire`] has the messages, [`client`] the client, and [`record`] both ends of a
//! recording.
//!
//! Invariants: only the socket's owner may connect; a client has [`REQUEST_BOUND`] to send its request, which has at
//! most [`MOST_LINE`] bytes.

pub mod client;
pub mod record;
pub mod wire;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use larder_core::format::Wishes;
use larder_io::{Access, DevSpec, Device};
use larder_nbd::deadline::Deadlined;
use larder_volume::{FlashDevice, Volume, VolumeError};
use serde_json::{Value, json};

use self::wire::{Answer, Command, MOST_LINE, REQUEST_BOUND, write_answer};
use crate::listen::bind_unix;

/// Control clients served at a time.
const MOST_CLIENTS: usize = 16;

/// The control socket of a volume; dropping it removes the socket.
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens for control clients.
    ///
    /// # Errors
    /// The socket cannot be bound.
    pub fn start(path: &Path, volume: Arc<Volume>) -> Result<Self, VolumeError> {
        if let Some(dir) = path.parent() {
            let fail = |e| {
                VolumeError::Usage(format!("{}: cannot create the directory: {e}", dir.display()))
            };
            std::fs::create_dir_all(dir).map_err(fail)?;
        }
        let listener = bind_unix(path)?;
        let owner_only = std::fs::Permissions::from_mode(0o600);
        let fail = |e| VolumeError::Usage(format!("{}: {e}", path.display()));
        std::fs::set_permissions(path, owner_only).map_err(fail)?;
        let body = move || accept(&listener, &volume);
        let thread = std::thread::Builder::new().name("larder-control".to_owned()).spawn(body);
        thread.map_err(VolumeError::Thread)?;
        Ok(Self { path: path.to_owned() })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn accept(listener: &UnixListener, volume: &Arc<Volume>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if clients.fetch_add(1, Ordering::SeqCst) >= MOST_CLIENTS {
            clients.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (volume, served) = (Arc::clone(volume), Arc::clone(&clients));
        let body = move || {
            // An error means that the client is gone; no one is left to report it to.
            let _ = serve(stream, &volume);
            served.fetch_sub(1, Ordering::SeqCst);
        };
        let thread = std::thread::Builder::new().name("larder-control".to_owned());
        if thread.spawn(body).is_err() {
            clients.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn serve(stream: UnixStream, volume: &Volume) -> std::io::Result<()> {
    let mut line = String::new();
    let request = Deadlined::new(&stream, REQUEST_BOUND).take(MOST_LINE);
    let read = BufReader::new(request).read_line(&mut line);
    stream.set_write_timeout(Some(REQUEST_BOUND))?;
    let answer = |answer: Answer| write_answer(&stream, &answer);
    let command = match read.map_err(|e| e.to_string()).and_then(|_| parse(&line)) {
        Ok(command) => command,
        Err(message) => return answer(Answer::Error { code: 2, message }),
    };
    let mut last = String::new();
    let progress = |text: String| {
        if text != last {
            let _ = answer(Answer::Progress(text.clone()));
            last = text;
        }
    };
    let result = execute(command, volume, &stream, progress);
    answer(match result {
        Ok(value) => Answer::Ok(value),
        Err(e) => Answer::Error { code: e.exit_code(), message: e.to_string() },
    })
}

fn parse(line: &str) -> Result<Command, String> {
    serde_json::from_str(line).map_err(|e| {
        format!("control request: {e}; accepted: one JSON object a line with \"command\": status, stats, flush, detach, attach or record")
    })
}

/// Limits a client's time limit to one day.
fn bounded(seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(24 * 3600))
}

fn execute(
    command: Command,
    volume: &Volume,
    stream: &UnixStream,
    mut progress: impl FnMut(String),
) -> Result<Value, VolumeError> {
    let value = |v| serde_json::to_value(v).map_err(|e| VolumeError::Usage(e.to_string()));
    match command {
        Command::Status => volume.status().and_then(|s| value(json!(s))),
        Command::Stats => volume.stats().and_then(|s| value(json!(s))),
        Command::Flush { bound_seconds } => {
            volume.flush(bounded(bound_seconds))?;
            Ok(json!({ "flushed": true }))
        }
        Command::Detach { bound_seconds } => {
            let bound = bounded(bound_seconds);
            let began = std::time::Instant::now();
            volume.detach(bound, |n| {
                if began.elapsed() > Duration::from_secs(1) {
                    progress(format!("waiting for flash operations on {n} workers"));
                }
            })?;
            Ok(json!({ "detached": true }))
        }
        Command::Attach { flash, flash_bytes, format } => {
            let spec: DevSpec = flash.parse().map_err(|e| VolumeError::Usage(format!("{e}")))?;
            let device = Device::open(&spec, Access::ReadWrite)?;
            let choices = &volume.config().choices;
            let wishes = Wishes { formats: format, adopted: false };
            let flash = FlashDevice::prepare(device, flash_bytes, volume.shape(), choices, wishes)?;
            let units = flash.plan.slots();
            volume.attach(flash)?;
            Ok(json!({ "attached": true, "units_total": units }))
        }
        Command::Record => record::serve(stream, volume),
    }
}
