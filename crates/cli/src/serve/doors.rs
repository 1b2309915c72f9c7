// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doors of clients and of the operator: control sockets, files, and sockets for NBD that volumes may share.
//!
//! Invariants: a socket is bound once; volumes that name the same one are its exports, in their
//! order. Dropping the doors closes them.

use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use larder_front::control::{Control, Rules};
use larder_front::door::{Door, Openers};
use larder_front::grant::Grant;
use larder_front::listen::{Listen, ListenSpec};
use larder_front::nbd::export::{Export, Exports};
use larder_front::socket::Rights;
use larder_nbd::uri::Address;
use larder_volume::{Volume, VolumeError};

use super::config::print::print;
use super::served::{Entry, Served};
use crate::metrics;
use crate::out::{Priority, say, tell};

/// The open doors.
pub struct Doors {
    _controls: Vec<Control>,
    listeners: Vec<Open>,
    metrics: Option<metrics::Server>,
}

/// An open door.
struct Open {
    door: Door,
    /// The names of its exports.
    exports: Vec<String>,
    /// TCP clients need a certificate of the user's authority.
    known: bool,
    /// Clients of an export can write.
    writable: bool,
}

impl Doors {
    /// Refuses what a device that is there now would prevent, before a flash is written.
    pub fn check(served: &Served, openers: &Openers) -> Result<()> {
        for s in served.entries().filter(|s| !s.volume.origin().is_absent()) {
            let check = |listen| Door::check(listen, s.volume, openers);
            s.plan.args.listen.iter().try_for_each(check).map_err(|e| s.plan.locate(e.into()))?;
        }
        Ok(())
    }

    /// Opens all of them. `restricted`: the process may use only its own files.
    pub fn open(
        served: &[Served],
        metrics: Option<TcpListener>,
        restricted: bool,
        openers: &Openers,
    ) -> Result<Self> {
        let mut controls = Vec::new();
        for s in served {
            // A path that is no UTF-8 can be served, and not printed.
            let config = print(std::slice::from_ref(&s.plan));
            let config: Arc<str> = config.unwrap_or_else(|e| format!("# {e:#}")).into();
            for (target, way, plan) in s.targets() {
                let rules = Rules { readers: way.readers, restricted, config: Arc::clone(&config) };
                let control = Control::start(&way.control, rules, target);
                controls.push(control.map_err(|e| plan.locate(e.into()))?);
            }
        }
        let mut listeners = Vec::new();
        for (listen, sharers) in shared(served) {
            let export = |(s, grant): &Sharer<'_>| Export::of(s.volume).granting(*grant);
            let exports = sharers.iter().map(export).collect();
            let exports = Exports::new(exports).map_err(|e| VolumeError::Usage(e.to_string()))?;
            let names = exports.iter().map(|e| e.name.clone()).collect();
            let writable = exports.iter().any(|e| !e.read_only);
            let sharers: Vec<Entry<'_>> = sharers.into_iter().map(|(s, _)| s).collect();
            let volumes = sharers.iter().map(|s| Arc::clone(s.volume)).collect();
            let (volumes, exports) = (Arc::new(volumes), Arc::new(exports));
            let mode = sharers.first().and_then(|s| s.plan.args.listen_mode);
            let rights = Rights { mode, group: None };
            let secure = sharers.first().and_then(|s| s.way.secure.clone());
            let door = Door::open(listen, volumes, exports, secure, rights, openers)?;
            let known = sharers.iter().all(|s| s.plan.args.tls.tls_client_ca.is_some());
            listeners.push(Open { door, exports: names, known, writable });
        }
        let caches = || served.iter().map(|s| Arc::clone(&s.cache)).collect();
        let metrics = metrics.map(|at| metrics::serve(at, caches())).transpose()?;
        Ok(Self { _controls: controls, listeners, metrics })
    }

    /// Prints the addresses for clients.
    pub fn tell(&self) {
        if let Some(Ok(address)) = self.metrics.as_ref().map(metrics::Server::address) {
            warn_of_open_port(&address.ip().to_string(), "read the metrics");
            tell!("metrics at http://{address}/metrics");
        }
        for Open { door, exports, known, writable } in &self.listeners {
            if let Some(Address::Tcp { host, .. }) = door.address().filter(|_| !known) {
                let may = if *writable { "read and write the volume" } else { "read the volume" };
                warn_of_open_port(&host, may);
            }
            for export in exports {
                tell!("ready at {}", door.words(export));
            }
        }
    }

    /// Accepts no new clients, unmounts files and removes devices, within `bound`; the control sockets stay.
    pub fn close_listeners(&mut self, bound: Duration, hurry: impl Fn() -> bool + Sync) {
        let doors = self.listeners.drain(..).map(|open| open.door).collect();
        Door::close(doors, bound, hurry);
    }

    /// Closes the files and devices of a volume that is no longer served.
    pub fn close_files(&mut self, volume: &Arc<Volume>) {
        let of_it = |open: &Open| open.door.volume().is_some_and(|v| Arc::ptr_eq(v, volume));
        self.listeners.retain(|open| !of_it(open));
    }
}

/// A volume of a listener, and what its clients may do.
type Sharer<'a> = (Entry<'a>, Grant);

/// Each listener with the volumes that name it, in the order of their first naming. A device of any number is one for each
/// volume.
fn shared(served: &[Served]) -> Vec<(&Listen, Vec<Sharer<'_>>)> {
    let mut listeners: Vec<(&Listen, Vec<Sharer<'_>>)> = Vec::new();
    for s in served.iter().flat_map(Served::entries) {
        let is_missing = s.volume.origin().is_absent();
        for listen in &s.plan.args.listen {
            let Listen { grant, spec } = listen;
            // A file or a device needs a volume at once; clients of a socket are refused by its name.
            if is_missing && spec.is_single() {
                tracing::warn!("{}: {spec} is not offered: the origin is missing", s.plan.title());
                continue;
            }
            let same = |(known, _): &&mut (&Listen, _)| known.spec == *spec;
            match listeners.iter_mut().find(same).filter(|_| *spec != ListenSpec::Ublk(None)) {
                Some((_, sharers)) => sharers.push((s, *grant)),
                None => listeners.push((listen, vec![(s, *grant)])),
            }
        }
    }
    listeners
}

/// Warns about a port without authentication (no client certificates) that other machines can reach.
fn warn_of_open_port(host: &str, may: &str) {
    if is_open(host) {
        say(Priority::Warning, format_args!("warning: everyone who can reach {host} can {may}"));
    }
}

/// Whether other machines can reach a host: only addresses of the loopback are known to be closed.
fn is_open(host: &str) -> bool {
    !host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_loopback_is_closed() {
        for closed in ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"] {
            assert!(!is_open(closed), "{closed}");
        }
        for open in ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1", "localhost.example"] {
            assert!(is_open(open), "{open}");
        }
    }
}
