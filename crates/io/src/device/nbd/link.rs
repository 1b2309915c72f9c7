// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads of an NBD device: for each connection one that connects and sends and one that receives, and one that
//! watches time limits.
//!
//! Invariants: no thread holds the lock while it waits for a socket or copies data. When the device is dropped, a
//! thread ends within the time limit of connecting.
//!
//! Why threads, although workers have a ring: several workers share a connection, a connection stays open when one of
//! them ends, and a round trip to a server costs more than waking a thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_core::exec::{IoKind, Nanos};
use larder_core::request::Errno;
use larder_nbd::client::{Client, ClientError, Completion, Options, Receiver, Sender};
use larder_nbd::uri::Uri;

use super::bounds::ServerBounds;
use super::op::Sending;
use super::state::State;
use super::step::ExportInfo;
use crate::clock;
use crate::device::file::ZERO_CHUNK;

/// The first pause before reconnecting; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long a dropped device waits for its server to close the connections.
const CLOSE_BOUND: Duration = Duration::from_secs(2);

/// State shared by the threads and the device.
pub(super) struct Shared {
    pub(super) uri: Uri,
    pub(super) options: Options,
    pub(super) export: ExportInfo,
    pub(super) remote: ServerBounds,
    pub(super) state: Mutex<State>,
    /// Notified when there is something to send, or a connection is retired.
    pub(super) work: Condvar,
    /// Notified when the first operation starts, or the device is dropped.
    pub(super) watch: Condvar,
}

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps, unless the device is dropped.
    fn pause<'a>(&self, state: MutexGuard<'a, State>, span: Duration) -> MutexGuard<'a, State> {
        let until = Instant::now() + span;
        let mut state = state;
        while !state.closing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.watch.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(format!("larder-nbd-{name}")).spawn(body).map(drop)
}

/// Maintains one connection, beginning with `client`.
pub(super) fn keep(shared: &Arc<Shared>, mut client: Option<Client>) {
    let mut pause = FIRST_PAUSE;
    let mut connected = client.is_some();
    loop {
        let found = match client.take() {
            Some(client) => Ok(client),
            None => connect(shared),
        };
        match found.and_then(|client| start(shared, client)) {
            Ok((link, sender)) => {
                if !std::mem::replace(&mut connected, true) {
                    tracing::info!("connected to {}", shared.uri);
                }
                let before = shared.state().answers;
                send_all(shared, link, sender);
                if shared.state().answers > before {
                    pause = FIRST_PAUSE;
                }
            }
            Err(why) => {
                if std::mem::replace(&mut connected, false) {
                    tracing::warn!("{why}; retrying");
                }
            }
        }
        let mut state = shared.pause(shared.state(), jittered(pause));
        pause = (pause * 2).min(LONGEST_PAUSE);
        while !state.closing && !state.may_connect() {
            state = shared.pause(state, FIRST_PAUSE);
        }
        if state.closing {
            return;
        }
    }
}

/// A random span between half and all of `span`, so that many clients do not reconnect at the same time.
fn jittered(span: Duration) -> Duration {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let chance = RandomState::new().build_hasher().finish() % 1024;
    span / 2 + span / 2 * chance as u32 / 1024
}

/// Reconnects; rejects an export that is not the one that was opened.
fn connect(shared: &Shared) -> Result<Client, String> {
    let client = Client::connect(&shared.uri, &shared.options).map_err(|e| e.to_string())?;
    let fits = shared.export.still_fits(client.info());
    let fits = match client.info().read_only() && shared.remote.writes {
        true => Err("it has become read-only".to_owned()),
        false => fits,
    };
    if let Err(why) = fits {
        let mut state = shared.state();
        if state.live_links() == 0 {
            state.fail_waiting();
        }
        return Err(format!("{} is not the export that was opened: {why}", shared.uri));
    }
    Ok(client)
}

/// Begins to use a connection.
fn start(shared: &Arc<Shared>, client: Client) -> Result<(u64, Sender), String> {
    let stream = client.stream().map_err(|e| e.to_string())?;
    let tells_status = client.info().allocation.is_some();
    let link = shared.state().add_link(Some(stream), tells_status);
    let (sender, receiver) = client.split();
    let own = Arc::clone(shared);
    let started = spawn("in", move || receive_all(&own, link, receiver));
    if let Err(e) = started {
        shared.state().over(link, "no thread");
        return Err(format!("cannot start a thread: {e}"));
    }
    Ok((link, sender))
}

/// Sends until the connection is retired.
fn send_all(shared: &Shared, link: u64, mut sender: Sender) {
    let mut zeroes = Vec::new();
    loop {
        let mut state = shared.state();
        let batch = loop {
            if state.closing {
                drop(state);
                let _ = sender.disconnect();
                return;
            }
            if !state.is_live(link) {
                return;
            }
            let batch = state.take(link, sender.next_cookie(), clock::now());
            if !batch.is_empty() {
                break batch;
            }
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        if let Err(e) = send(&mut sender, batch, &mut zeroes) {
            shared.state().retire(link, &e.to_string());
            shared.work.notify_all();
            return;
        }
    }
}

/// Sends requests. Each releases its data as soon as it is sent or copied, so that the receiver of the reply owns the
/// buffer.
fn send(sender: &mut Sender, batch: Vec<Sending>, zeroes: &mut Vec<u8>) -> Result<(), ClientError> {
    for Sending { step, data, asks_status } in batch {
        if asks_status {
            sender.queue_status(step.offset, step.len as u32, false)?;
            continue;
        }
        let bytes = match (&data, step.kind) {
            (Some((buf, range)), _) => buf.get(range.clone()).unwrap_or_default(),
            (None, IoKind::Write { .. }) => {
                zeroes.resize(ZERO_CHUNK as usize, 0);
                zeroes.get(..step.len as usize).unwrap_or_default()
            }
            _ => &[],
        };
        sender.queue(step.kind, step.offset, step.len, bytes)?;
    }
    sender.push()
}

/// Receives until the server closes the connection.
fn receive_all(shared: &Shared, link: u64, mut receiver: Receiver) {
    let why = loop {
        match receiver.wait() {
            Ok(Completion { cookie, result, extents }) => {
                if !extents.is_empty() {
                    shared.state().learned(link, cookie, extents);
                }
                let (data, result) = match result {
                    Ok(data) => (data, Ok(())),
                    Err(errno) => (Vec::new(), Err(errno)),
                };
                answered(shared, link, cookie, &data, result);
                receiver.recycle(data);
            }
            Err(e) => break e,
        }
    };
    if let ClientError::Protocol(_) = why {
        shared.state().distrust(link, &why.to_string());
        shared.work.notify_all();
        receiver.drain();
    }
    shared.state().over(link, &why.to_string());
    shared.work.notify_all();
    shared.watch.notify_all();
}

fn answered(shared: &Shared, link: u64, cookie: u64, data: &[u8], result: Result<(), Errno>) {
    let mut state = shared.state();
    if let Some(mut answered) = state.answered(link, cookie, result) {
        if answered.has_memory() {
            drop(state);
            answered.fill(data);
            state = shared.state();
        }
        state.settle(answered);
    }
    let more = state.waiting() > 0 || !state.is_usable(link);
    drop(state);
    if more {
        shared.work.notify_all();
    }
}

/// Watches time limits while operations are in flight, and closes the connections at the end.
pub(super) fn watch(shared: &Shared) {
    let nanos = |span: Duration| Nanos::try_from(span.as_nanos()).unwrap_or(Nanos::MAX);
    let ServerBounds { answer_within, give_up_after, .. } = shared.remote;
    let tick = (answer_within.min(give_up_after) / 8)
        .clamp(Duration::from_millis(5), Duration::from_secs(1));
    let mut state = shared.state();
    while !state.closing {
        state = if state.is_busy() {
            state.expire(clock::now(), nanos(answer_within), nanos(give_up_after));
            shared.work.notify_all();
            shared.watch.wait_timeout(state, tick).unwrap_or_else(PoisonError::into_inner).0
        } else {
            shared.watch.wait(state).unwrap_or_else(PoisonError::into_inner)
        };
    }
    let until = Instant::now() + CLOSE_BOUND;
    while state.has_links() && Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        state = shared.watch.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    state.hang_up();
}
