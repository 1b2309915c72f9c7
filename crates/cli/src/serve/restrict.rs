// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the server drops before it serves: access to files that it does not use (Landlock), privileges of programs that
//! it might execute (`PR_SET_NO_NEW_PRIVS`), and system calls that it does not use (`system_calls`).
//!
//! Purpose: an attacker who controls the process through a fault in it has no more of the machine than the server uses.
//!
//! Invariants: it happens when the devices are open and before workers, listeners and the control socket exist, so that
//! every thread that reads bytes of a client is restricted. Open files stay as usable as they are. Nothing can be
//! executed afterwards. A kernel without Landlock or seccomp restricts less, with a line in the log.
//!
//! Rules: `/dev` may be read and written, because `larder attach` names any device, and so may the directory of a flash
//! file, to which a detached flash returns. A server without a flash may open any file for that. Files may be made and
//! removed only in the directories of state files, sockets and records for udev. A broken connection to an NBD server is
//! made again, for which the server reads certificates and the resolver's configuration again; a reload reads the server's
//! own certificates and the configuration. Other programs replace these files, and links lead to them, so the rights are on the directories of
//! the files themselves. A FUSE file needs no right: the helper (`helper`) mounts and unmounts it, which Landlock forbids
//! to the server.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, PathBeneath, PathFd, PathFdError, RestrictSelfAttr as _,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus,
    make_bitflags,
};
use larder_core::config::Durability;
use larder_front::listen::ListenSpec;
use larder_front::ublk::record;
use larder_io::DevSpec;
use larder_nbd::uri::Uri;

use super::open::Opened;
use super::system_calls;

/// The newest version of Landlock that is used; an older kernel restricts what it knows.
const VERSION: ABI = ABI::V5;
/// Rights on files that exist.
const USE: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | Truncate | IoctlDev});
/// Rights to read.
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
/// Rights in a directory whose files are replaced.
const REPLACE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | Truncate | MakeReg | RemoveFile
});
/// Rights in a directory of sockets.
const SOCKETS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadDir | MakeSock | RemoveFile});
/// What the C library and the server read: names of hosts, and the state of the machine.
const SYSTEM: [&str; 7] = ["/etc", "/proc", "/sys", "/lib", "/lib64", "/usr/lib", "/run/systemd"];

/// Restricts this process to what its volumes use. Returns whether it is restricted.
pub fn restrict(volumes: &[Opened]) -> Result<bool> {
    if volumes.iter().any(|v| v.checked.plan.args.unrestricted) {
        return Ok(false);
    }
    volumes.iter().try_for_each(make_directory)?;
    let status = enforce(&rights(volumes)).context("cannot restrict the server to its files")?;
    match status {
        RulesetStatus::FullyEnforced => tracing::debug!("restricted to its own files"),
        RulesetStatus::PartiallyEnforced => {
            tracing::debug!("restricted to its own files as far as the kernel can (Landlock)");
        }
        RulesetStatus::NotEnforced => {
            tracing::info!("not restricted to its own files: the kernel has no Landlock");
        }
    }
    if !system_calls::deny().context("cannot restrict the server's system calls")? {
        tracing::info!(
            "its system calls are not restricted: no seccomp for this kernel or processor"
        );
    }
    Ok(status != RulesetStatus::NotEnforced)
}

/// Makes the directory of the state file, which the server cannot make later.
fn make_directory(Opened { checked, flash, .. }: &Opened) -> Result<()> {
    // A volatile cache makes none.
    let state =
        checked.state.as_ref().filter(|_| checked.choices.durability != Durability::Volatile);
    match state.map_or(Ok(()), |state| state.directory().map(drop)) {
        // Without a flash there is nothing to record yet.
        Err(e) if flash.is_none() => {
            tracing::warn!("{e}; a flash cannot be attached later");
            Ok(())
        }
        made => made.map_err(|e| checked.plan.locate(e.into())),
    }
}

/// What may be used below which path.
type Right = (PathBuf, BitFlags<AccessFs>);

fn rights(volumes: &[Opened]) -> Vec<Right> {
    let mut rights: Vec<Right> = SYSTEM.map(|path| (path.into(), READ)).into();
    rights.push(("/dev".into(), USE));
    for Opened { checked, flash, .. } in volumes {
        match flash {
            None => rights.push(("/".into(), USE)),
            Some(flash) => rights.extend(flash.device.path().map(|file| (home(file), USE))),
        }
        if let Some(state) = &checked.state {
            rights.push((directory(state.path()), REPLACE));
        }
        // SIGHUP reads the configuration again; an editor replaces the file.
        rights.extend(checked.plan.file().map(|file| (home(file), READ)));
        for way in checked.ways.iter().chain(&checked.own_way) {
            rights.push((directory(&way.control), SOCKETS));
            let files = way.secure.iter().flat_map(|secure| secure.tls.files().paths());
            rights.extend(files.map(|file| (home(file), READ)));
        }
        let volumes = checked.plan.volumes();
        for listen in volumes.iter().flat_map(|volume| &volume.args.listen) {
            match &listen.spec {
                ListenSpec::Unix(path) | ListenSpec::VhostUser(path) => {
                    rights.push((directory(path), SOCKETS));
                }
                ListenSpec::Ublk(_) => rights.push((record::DIRECTORY.into(), REPLACE)),
                ListenSpec::Tcp(_) | ListenSpec::Fuse(_) => {}
            }
        }
        let origins = volumes.iter().filter_map(|volume| volume.args.origin.as_ref());
        let devices = origins.chain(&checked.plan.args.flash);
        rights.extend(devices.flat_map(connecting).map(|path| (path, READ)));
    }
    rights
}

fn enforce(rights: &[Right]) -> Result<RulesetStatus> {
    let set = Ruleset::default().handle_access(AccessFs::from_all(VERSION))?.create()?;
    let add = |set: RulesetCreated, (path, access): &Right| {
        let place = match PathFd::new(path) {
            Ok(place) => place,
            // What does not exist is not used.
            Err(PathFdError::OpenCall { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(set);
            }
            Err(e) => return Err(anyhow::Error::from(e)),
        };
        let access = if path.is_dir() { *access } else { *access & AccessFs::from_file(VERSION) };
        Ok(set.add_rule(PathBeneath::new(place, access))?)
    };
    let set = rights.iter().try_fold(set, add)?;
    // Threads of connections to an origin exist already; older kernels leave these out.
    Ok(set.all_threads(true)?.restrict_self()?.ruleset)
}

fn directory(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    whole.parent().map_or(whole.clone(), Path::to_owned)
}

/// The directory in which a file is, after all links.
fn home(file: &Path) -> PathBuf {
    directory(&file.canonicalize().unwrap_or_else(|_| file.to_owned()))
}

/// Directories of files that are read again for each connection to a device on another server.
fn connecting(device: &DevSpec) -> Vec<PathBuf> {
    let DevSpec::Nbd(Uri { tls, .. }) = device else { return Vec::new() };
    let (ca, dir) =
        tls.as_ref().map_or((None, None), |names| (names.ca.as_ref(), names.certificates.as_ref()));
    let in_dir = dir.into_iter().flat_map(std::fs::read_dir).flatten().flatten();
    let files = in_dir.map(|file| file.path()).chain(ca.cloned());
    let files = files.chain([PathBuf::from("/etc/resolv.conf")]);
    files.map(|file| home(&file)).chain(dir.cloned()).collect()
}
