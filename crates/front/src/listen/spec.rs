// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `--listen` names, as the user writes it.
//!
//! Invariant: what is printed is accepted again, with the same meaning.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::grant::Grant;
use crate::vhost_user::device::MOST_QUEUES;

/// The accepted forms of LISTEN, for messages.
const ACCEPTED: &str = "nbd+unix:PATH, nbd://HOST:PORT, fuse:PATH, ublk[:NUMBER] or vhost-user:PATH, with ro: or backup: before it for clients that only read";

/// An address to listen on, as the user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenSpec {
    /// NBD on a unix socket.
    Unix(PathBuf),
    /// NBD on TCP, as `HOST:PORT`.
    Tcp(String),
    /// A file, over FUSE.
    Fuse(PathBuf),
    /// A block device, `/dev/ublkbN`; without a number, any.
    Ublk(Option<u32>),
    /// A virtual machine's disk, on a unix socket.
    VhostUser(PathBuf),
}

impl ListenSpec {
    /// The most queues that it serves, with so many workers: those of a guest, or of a block device.
    #[must_use]
    pub fn most_queues(&self, workers: u32) -> u64 {
        match self {
            Self::VhostUser(_) => u64::from(MOST_QUEUES),
            Self::Ublk(_) => u64::from(workers),
            Self::Unix(_) | Self::Tcp(_) | Self::Fuse(_) => 0,
        }
    }

    /// Whether it is a single volume, and not a socket whose clients choose theirs.
    #[must_use]
    pub const fn is_single(&self) -> bool {
        matches!(self, Self::Fuse(_) | Self::Ublk(_) | Self::VhostUser(_))
    }
}

impl FromStr for ListenSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("listener '{text}': {what}; accepted: {ACCEPTED}"));
        if let Some(path) = text.strip_prefix("nbd+unix:") {
            // The form of the NBD URI is a frequent mistake.
            return match path {
                "" => wrong("the path is empty"),
                p if p.starts_with("//") => wrong("has a superfluous slash after the colon"),
                p => Ok(Self::Unix(PathBuf::from(p))),
            };
        }
        if let Some(address) = text.strip_prefix("nbd://") {
            let address = address.trim_end_matches('/');
            let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            return match port {
                Some(Ok(_)) => Ok(Self::Tcp(address.to_owned())),
                _ => wrong("needs a host and a port"),
            };
        }
        if let Some(path) = text.strip_prefix("fuse:") {
            return if path.is_empty() {
                wrong("the path is empty")
            } else {
                Ok(Self::Fuse(path.into()))
            };
        }
        if let Some(path) = text.strip_prefix("vhost-user:") {
            return match path {
                "" => wrong("the path is empty"),
                path => Ok(Self::VhostUser(path.into())),
            };
        }
        if text == "ublk" {
            return Ok(Self::Ublk(None));
        }
        if let Some(number) = text.strip_prefix("ublk:") {
            return match number.parse() {
                // A block device's minor number has 20 bits.
                Ok(id) if id < 1 << 20 => Ok(Self::Ublk(Some(id))),
                _ => wrong("the number of a device is from 0 to 1048575"),
            };
        }
        wrong("has an unknown form")
    }
}

impl fmt::Display for ListenSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "nbd+unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "nbd://{address}"),
            Self::Fuse(path) => write!(f, "fuse:{}", path.display()),
            Self::VhostUser(path) => write!(f, "vhost-user:{}", path.display()),
            Self::Ublk(None) => write!(f, "ublk"),
            Self::Ublk(Some(id)) => write!(f, "ublk:{id}"),
        }
    }
}

/// A listener, as the user writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// What its clients may do.
    pub grant: Grant,
    /// Its address.
    pub spec: ListenSpec,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (grant, spec) = Grant::split(text);
        Ok(Self { grant, spec: spec.parse()? })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.grant.prefix(), self.spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_forms() {
        for good in [
            "nbd+unix:/run/x.sock",
            "nbd://127.0.0.1:10809",
            "nbd://[::1]:0",
            "fuse:/x",
            "ublk",
            "ublk:0",
            "ublk:1048575",
            "vhost-user:/run/x.sock",
        ] {
            assert_eq!(good.parse::<ListenSpec>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "nbd+unix:",
            "nbd+unix:///x?socket=y",
            "nbd://host",
            "fuse:",
            "x",
            "ublk:",
            "ublk:-1",
            "ublk:1048576",
            "ublk0",
            "vhost-user:",
        ] {
            let error = bad.parse::<ListenSpec>().unwrap_err();
            assert!(error.contains("accepted: nbd+unix:PATH"), "{error}");
        }
    }

    #[test]
    fn a_prefix_restricts_what_clients_may_do() {
        for (text, grant) in [
            ("nbd+unix:/x", Grant::Full),
            ("ro:nbd+unix:/x", Grant::ReadOnly),
            ("backup:nbd://127.0.0.1:0", Grant::Backup),
            ("ro:fuse:/x", Grant::ReadOnly),
        ] {
            let listen: Listen = text.parse().unwrap();
            assert_eq!((listen.grant, listen.to_string()), (grant, text.to_owned()));
        }
        for bad in ["ro:", "ro:backup:nbd+unix:/x", "rw:nbd+unix:/x"] {
            let error = bad.parse::<Listen>().unwrap_err();
            assert!(error.contains("with ro: or backup: before it"), "{error}");
        }
    }
}
