// SPDX-License-Identifier: MIT OR Apache-2.0
//! `slow+`: a real device behind modelled latency.
//!
//! Purpose: demos and measurements against a disk that the machine does not have.
//!
//! Invariants: an operation ends when both the real device and the model have completed it. One model serves all
//! threads of the process, as one disk would. The thread that polls the model passes completions on to the threads that
//! own them, and wakes these.
//!
//! Why every thread with an operation in flight wakes at the model's next event, and not one of them: a chosen thread
//! may be busy or ending, and events of slow devices are rare.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, Read as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_core::exec::{Io, IoKind, Nanos};
use larder_model::{Description, Kind, Model, Op, is_path};

use crate::waker::Waker;

/// A driver that uses the model.
struct Member {
    waker: Waker,
    /// Its operations that the model has completed.
    finished: Vec<u32>,
}

struct State {
    model: Box<dyn Model>,
    /// By numbers that are not reused, so that late completions of a removed driver reach no other.
    members: BTreeMap<u32, Member>,
    next_member: u32,
}

/// The longest description of a device.
const MOST_BYTES: u64 = 1 << 20;

/// The model of a profile: a built-in one by its name, or a file by its path.
pub(super) fn model(profile: &str, bytes: u64, seed: u64) -> Result<Box<dyn Model>, String> {
    if !is_path(profile) {
        return larder_model::profile(profile, bytes, seed).map_err(|error| {
            format!(
                "{error}; or the path of a device description, which contains a / or ends in .toml"
            )
        });
    }
    let text = read(profile).map_err(|error| {
        format!("{profile}: cannot be read: {error}; accepted: the description of a device in TOML")
    })?;
    let description = Description::parse(profile, &text).map_err(|error| error.to_string())?;
    Ok(description.build(bytes, seed))
}

/// Reads a description up to its maximum length, because the path may be a device.
fn read(path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}

/// The model of a `slow+` device.
pub(crate) struct Slow(Mutex<State>);

impl Slow {
    pub(super) fn new(model: Box<dyn Model>) -> Self {
        Self(Mutex::new(State { model, members: BTreeMap::new(), next_member: 0 }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a driver; the returned number identifies it.
    pub(crate) fn join(&self, waker: Waker) -> u32 {
        let mut state = self.state();
        let member = state.next_member;
        state.next_member += 1;
        state.members.insert(member, Member { waker, finished: Vec::new() });
        member
    }

    pub(crate) fn leave(&self, member: u32) {
        self.state().members.remove(&member);
    }

    /// Submits an operation to the model under the driver's key.
    pub(crate) fn submit(&self, member: u32, key: u32, now: Nanos, io: &Io) {
        let (kind, fua) = match io.kind {
            IoKind::Read => (Kind::Read, false),
            IoKind::Write { fua } => (Kind::Write, fua),
            IoKind::Flush => (Kind::Flush, false),
            IoKind::Trim { fua } | IoKind::Zero { fua, .. } => (Kind::Trim, fua),
        };
        let id = u64::from(member) << 32 | u64::from(key);
        self.state().model.submit(now, id, Op { kind, offset: io.offset, len: io.len, fua });
    }

    /// Appends the driver's operations that the model has completed to `out`; returns the time of the
    /// model's next event.
    pub(crate) fn collect(&self, member: u32, now: Nanos, out: &mut Vec<u32>) -> Option<Nanos> {
        let mut state = self.state();
        let State { model, members, .. } = &mut *state;
        while let Some((id, _)) = model.poll(now) {
            let (owner, key) = ((id >> 32) as u32, id as u32);
            if owner == member {
                out.push(key);
            } else if let Some(other) = members.get_mut(&owner) {
                other.finished.push(key);
                other.waker.wake();
            }
        }
        if let Some(own) = members.get_mut(&member) {
            out.append(&mut own.finished);
        }
        model.next()
    }
}
