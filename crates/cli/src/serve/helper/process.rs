// SPDX-License-Identifier: MIT OR Apache-2.0
//! The helper itself: it mounts and unmounts for the server that started it.
//!
//! Invariants: it acts only on the listeners of its command line, which the server wrote before it had clients. A
//! request that it does not know ends it. At its end, whatever the cause, it unmounts what it mounted. Signals for a
//! group of processes (a terminal, a service manager) do not end it: the server ends first, then the socket. It cannot
//! be traced by another process of its user, and holds no descriptor of the kernel's requests, so that a file of a
//! killed server fails at once.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use clap::Args;
use larder_front::fuse::descriptor::{receive, send};
use larder_front::fuse::mount::{Terms, Unmounted};
use larder_front::fuse::mounter::{Direct, Mounter};
use larder_front::grant::Grant;
use larder_front::listen::{Listen, ListenSpec};
use larder_volume::VolumeError;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::wire::{MOST_BYTES, Reply, Request, Verb};
use crate::exit;
use crate::serve::capabilities;

/// The listeners of the helper.
#[derive(Args, Debug)]
pub struct HelperArgs {
    /// The files that it mounts
    #[arg(value_name = "LISTEN")]
    pub listen: Vec<Listen>,
}

/// Serves requests on standard input until it is closed.
///
/// # Errors
/// Standard input is not the socket of a server, or a request is unknown.
pub fn run(args: &HelperArgs) -> Result<()> {
    protect()?;
    let places: Vec<PathBuf> = args.listen.iter().filter_map(path).collect();
    let direct = Direct::new(args.listen.iter().filter_map(|listen| {
        let read_only = listen.grant != Grant::Full;
        Some((path(listen)?, Terms { all: false, read_only }))
    }));
    answer_all(&direct, &places)
}

fn path(listen: &Listen) -> Option<PathBuf> {
    match &listen.spec {
        ListenSpec::Fuse(path) => Some(path.clone()),
        _ => None,
    }
}

/// Protects this process against others of its user, and from signals.
fn protect() -> Result<()> {
    // Of no terminal, which could interrupt or stop it, or a program that it executes. It fails for the leader of a group,
    // which a shell started.
    let _ = rustix::process::setsid();
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_name(c"larder-helper")?;
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        // A handler, because programs that are executed would inherit that a signal is ignored.
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    capabilities::keep(capabilities::OF_HELPER).context("the helper cannot drop capabilities")
}

fn answer_all(direct: &Direct, places: &[PathBuf]) -> Result<()> {
    let socket = std::io::stdin();
    let mut bytes = [0; MOST_BYTES];
    loop {
        let received = receive(&socket, &mut bytes);
        let (len, _) = received.map_err(|e| {
            exit::failed(&format!("standard input: {e}; accepted: the socket of a server"))
        })?;
        if len == 0 {
            direct.outlive();
            return Ok(());
        }
        let request = bytes.get(..len).and_then(Request::parse);
        let known = request.and_then(|r| Some((r.verb, places.get(r.place)?)));
        let Some((verb, path)) = known else {
            bail!(exit::failed("the helper got a request that it does not know, and ends"));
        };
        let (reply, device) = match verb {
            Verb::Check => (failure(direct.check(path)), None),
            Verb::Mount => match direct.mount(path) {
                Ok(mounted) if mounted.is_dir => {
                    (Reply::Directory(mounted.path), Some(mounted.device))
                }
                Ok(mounted) => (Reply::File(mounted.path), Some(mounted.device)),
                Err(e) => (failure(Err(e)), None),
            },
            Verb::Unmount => match direct.unmount(path) {
                Ok(Unmounted::Done) => (Reply::Done, None),
                Ok(Unmounted::Busy) => (Reply::Busy, None),
                Err(e) => (Reply::Failed(e.to_string()), None),
            },
            Verb::Detach => match direct.detach(path) {
                Ok(()) => (Reply::Done, None),
                Err(e) => (Reply::Failed(e.to_string()), None),
            },
        };
        // A server that is gone has closed the socket, which the next receive notices.
        let _ = send(&socket, &reply.bytes(), device.as_ref().map(AsFd::as_fd));
    }
}

fn failure(result: Result<(), VolumeError>) -> Reply {
    match result {
        Ok(()) => Reply::Done,
        Err(VolumeError::Refused(why)) => Reply::Refused(why),
        Err(e) => Reply::Usage(e.to_string()),
    }
}
