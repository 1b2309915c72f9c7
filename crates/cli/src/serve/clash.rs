// SPDX-License-Identifier: MIT OR Apache-2.0
//! Things that all volumes of a process may use only once: devices, sockets, addresses.
//!
//! Purpose: two caches on one device destroy its data, and two servers at one socket hide each
//! other. The kernel detects some of it, late and in other words; this check runs before the first device is opened,
//! compares devices whatever their paths, and names both places in one line.
//!
//! Invariants: checks, and writes nothing; only missing directories of control sockets are made,
//! since the sockets of clients may be meant to stand there too.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use larder_front::control::make_home;
use larder_front::fuse::mounter::Mounter;
use larder_front::listen::{self, Listen, ListenSpec};
use larder_io::{DevSpec, whole_path};
use larder_volume::VolumeError;

use super::args::ServeArgs;
use super::config::Plan;
use super::open::{Checked, Way};

/// A thing that there is once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Thing {
    /// A file, by its file system and inode.
    File(u64, u64),
    /// A block device, by its number.
    Block(u64),
    /// Something that is not there yet, by its whole path.
    Path(PathBuf),
    /// The export of a server.
    Address(String),
}

/// Refuses devices and places that are given twice.
pub fn check(volumes: &[Checked]) -> Result<()> {
    let mut seen = HashMap::new();
    for checked in volumes {
        let origins = checked.plan.volumes().iter();
        let origins = origins.map(|volume| ("origin", volume, volume.args.origin.as_ref()));
        let flash = ("flash", &checked.plan, checked.plan.args.flash.as_ref());
        for (role, of, device) in origins.chain([flash]) {
            let Some(device) = device else { continue };
            let whose = whose(of, role);
            let Some(thing) = device_thing(device) else { continue };
            if let Some(other) = seen.insert(thing, whose.clone()) {
                return Err(VolumeError::Refused(format!(
                    "device '{device}': given twice, as {other} and as {whose}; accepted: a device of its own for each"
                ))
                .into());
            }
        }
    }
    sockets(volumes)
}

/// Refuses places where the server cannot listen.
pub fn check_places(checked: &Checked, mounter: &dyn Mounter) -> Result<()> {
    let look = |plan: &Plan, way: &Way| {
        make_home(&way.control)?;
        listen::check(&ListenSpec::Unix(way.control.clone()), mounter)
            .map_err(|e| named(e, plan.args.control.is_none()))?;
        let mut listeners = plan.args.listen.iter();
        listeners.try_for_each(|listen| listen::check(&listen.spec, mounter))
    };
    reached(checked)
        .try_for_each(|(plan, way)| look(plan, way).map_err(|e: VolumeError| plan.locate(e.into())))
}

/// The volumes of a cache, and the cache itself if they share it, with how each is reached.
fn reached(checked: &Checked) -> impl Iterator<Item = (&Plan, &Way)> {
    let own = checked.own_way.iter().map(|way| (&checked.plan, way));
    checked.plan.volumes().iter().zip(&checked.ways).chain(own)
}

/// Adds to the error of a default control socket that is taken that --name gives another.
fn named(error: VolumeError, is_default: bool) -> VolumeError {
    match error {
        VolumeError::Refused(why) if is_default => {
            VolumeError::Refused(format!("{why}, or give --name NAME for another control socket"))
        }
        error => error,
    }
}

/// A role, and its volume where there are several.
fn whose(plan: &Plan, what: &str) -> String {
    match plan.several {
        true => format!("{what} of {}", plan.title()),
        false => what.to_owned(),
    }
}

/// Listeners and control sockets. Volumes may share a socket for NBD, since its clients name the
/// export; a file is one volume.
fn sockets(volumes: &[Checked]) -> Result<()> {
    let mut seen: HashMap<Thing, (String, Option<usize>)> = HashMap::new();
    let all: Vec<(&Plan, &Way)> = volumes.iter().flat_map(reached).collect();
    for (index, (plan, way)) in all.iter().enumerate() {
        let args = &plan.args;
        let numbered = args.listen.iter().filter(|listen| listen.spec != ListenSpec::Ublk(None));
        let listeners = numbered.map(|Listen { spec, .. }| {
            let sharer = (!spec.is_single()).then_some(index);
            (listener_thing(spec), "listen", sharer)
        });
        let control = (path_thing(&way.control), "control", None);
        for (thing, flag, sharer) in listeners.chain([control]) {
            let whose = whose(plan, &format!("--{flag}"));
            let shown = shown(&thing);
            let Some((other, by)) = seen.insert(thing, (whose.clone(), sharer)) else { continue };
            let shared = by.zip(sharer).is_some_and(|(a, b)| a != b);
            let sharing = by.filter(|_| shared).and_then(|by| all.get(by));
            if let Some(flag) = sharing.and_then(|(other, _)| differing(&other.args, args)) {
                return Err(VolumeError::Usage(format!(
                    "{shown}: shared by volumes with different {flag}; accepted: the same for all of them"
                ))
                .into());
            }
            if !shared {
                return Err(VolumeError::Refused(format!(
                    "{shown}: given twice, as {other} and as {whose}; accepted: a place of its own for each"
                ))
                .into());
            }
        }
    }
    Ok(())
}

/// The first setting that differs between volumes at one socket and must not: a client is authenticated before it
/// names its volume.
fn differing(a: &ServeArgs, b: &ServeArgs) -> Option<&'static str> {
    let (ours, others) = (&a.tls, &b.tls);
    let flags = [
        ("--listen-mode", a.listen_mode == b.listen_mode),
        ("--tls-cert", ours.tls_cert == others.tls_cert),
        ("--tls-key", ours.tls_key == others.tls_key),
        ("--tls-client-ca", ours.tls_client_ca == others.tls_client_ca),
        ("--tls-client-crl", ours.tls_client_crl == others.tls_client_crl),
        ("--tls-client-fingerprint", ours.tls_client_fingerprint == others.tls_client_fingerprint),
        ("--tls-require", ours.tls_require == others.tls_require),
    ];
    flags.into_iter().find(|(_, same)| !same).map(|(flag, _)| flag)
}

fn shown(thing: &Thing) -> String {
    match thing {
        Thing::Path(path) => path.display().to_string(),
        Thing::Address(address) => address.clone(),
        Thing::File(..) | Thing::Block(_) => "the device".to_owned(),
    }
}

fn device_thing(device: &DevSpec) -> Option<Thing> {
    match device {
        DevSpec::Path(path) => {
            let Ok(stat) = rustix::fs::stat(path) else { return Some(path_thing(path)) };
            let block = rustix::fs::FileType::from_raw_mode(stat.st_mode)
                == rustix::fs::FileType::BlockDevice;
            Some(if block {
                Thing::Block(stat.st_rdev)
            } else {
                Thing::File(stat.st_dev, stat.st_ino)
            })
        }
        DevSpec::Slow { inner, .. } => device_thing(inner),
        // The same export, however one gets there.
        DevSpec::Nbd(_) => Some(Thing::Address(device.place())),
        // Each is memory of its own.
        DevSpec::Mem(_) | DevSpec::Null(_) => None,
    }
}

fn listener_thing(spec: &ListenSpec) -> Thing {
    match spec {
        ListenSpec::Unix(path) | ListenSpec::Fuse(path) | ListenSpec::VhostUser(path) => {
            path_thing(path)
        }
        ListenSpec::Tcp(_) | ListenSpec::Ublk(_) => Thing::Address(spec.to_string()),
    }
}

fn path_thing(path: &Path) -> Thing {
    Thing::Path(whole_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_socket_that_is_taken_asks_for_a_name() {
        let refused = || VolumeError::Refused("s: another server listens there".to_owned());
        assert!(
            named(refused(), true)
                .to_string()
                .ends_with("or give --name NAME for another control socket")
        );
        assert_eq!(named(refused(), false).to_string(), refused().to_string());
    }
}
