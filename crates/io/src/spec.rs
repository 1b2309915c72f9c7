// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name of a device on the command line and in a configuration: DEV in the help.
//!
//! ```text
//! DEV = PATH | mem:SIZE | null:SIZE | slow+PATH?profile=NAME|FILE.toml&seed=N
//!     | nbd://host[:port]/export | nbd+unix:///export?socket=PATH
//!     | nbds://host[:port]/export?tls-certificates=DIR | nbds+unix:///export?socket=PATH&...
//! ```
//!
//! Purpose: the text only; [`Device::open`](crate::Device::open) opens the device.
//!
//! Invariants: `FromStr` parses what `Display` prints to the same value. A text without a known prefix is a path,
//! except that an address with an unknown scheme (`xyz://`) is rejected, so that a misspelt scheme does not create or
//! open a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use larder_nbd::uri::{Address, Uri, UriError};

use larder_core::size::{SizeError, format_size, parse_size};

/// The accepted forms of DEV, for messages.
pub const ACCEPTED: &str = "PATH, mem:SIZE, null:SIZE, nbd://HOST[:PORT]/EXPORT, \
    nbd+unix:///EXPORT?socket=PATH or slow+DEV?profile=NAME&seed=N";

/// A device as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DevSpec {
    /// A regular file or a block device.
    Path(PathBuf),
    /// A device of this size in this process's memory.
    Mem(u64),
    /// A device of this size that reads as zeroes and discards writes.
    Null(u64),
    /// A real device behind modelled latency.
    Slow {
        /// The device, a path or memory.
        inner: Box<DevSpec>,
        /// The name of the model, or the path of its description.
        profile: String,
        /// The seed of the model's random numbers; 0 if not given.
        seed: Option<u64>,
    },
    /// The export of an NBD server.
    Nbd(Uri),
}

/// Why a text is not a [`DevSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The text is empty.
    #[error("the device is empty; accepted: {ACCEPTED}")]
    Empty,
    /// The size after `mem:` or `null:` is wrong.
    #[error("device '{text}': {error}")]
    Size {
        /// The whole text.
        text: String,
        /// What is wrong.
        error: SizeError,
    },
    /// The address of an NBD export is wrong.
    #[error("device {0}")]
    Address(#[from] UriError),
    /// Any other error.
    #[error("device '{text}': {what}; accepted: {accepted}")]
    Malformed {
        /// The whole text.
        text: String,
        /// What is wrong, where.
        what: String,
        /// What is accepted.
        accepted: &'static str,
    },
}

const SLOW_ACCEPTED: &str = "slow+PATH?profile=NAME or slow+mem:SIZE?profile=NAME, optionally with &seed=N; instead of NAME \
     the path of a device's description, with a / or as .toml";

impl DevSpec {
    /// A text that is equal for all names of the same device: links are followed, relative paths are made absolute, and
    /// the latency model and TLS parameters are omitted.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Path(path) => {
                path.canonicalize().unwrap_or_else(|_| whole_path(path)).display().to_string()
            }
            Self::Slow { inner, .. } => inner.place(),
            Self::Nbd(uri) => {
                let address = match &uri.address {
                    Address::Unix(path) => Address::Unix(whole_path(path)),
                    tcp @ Address::Tcp { .. } => tcp.clone(),
                };
                Uri { address, tls: None, ..uri.clone() }.to_string()
            }
            Self::Mem(_) | Self::Null(_) => self.to_string(),
        }
    }

    /// The link in /dev that was given for a device, if it is one: the system makes it point to the same device after a
    /// restart, when the device itself may have another path.
    #[must_use]
    pub fn link(&self) -> Option<String> {
        match self {
            Self::Path(path) => {
                let whole = whole_path(path);
                let is_link =
                    whole.starts_with("/dev") && whole.display().to_string() != self.place();
                is_link.then(|| whole.display().to_string())
            }
            Self::Slow { inner, .. } => inner.link(),
            Self::Nbd(_) | Self::Mem(_) | Self::Null(_) => None,
        }
    }

    /// Whether data written to the device survives this process.
    #[must_use]
    pub fn outlives_process(&self) -> bool {
        match self {
            Self::Path(_) | Self::Nbd(_) => true,
            Self::Slow { inner, .. } => inner.outlives_process(),
            Self::Mem(_) | Self::Null(_) => false,
        }
    }
}

/// An absolute path whose directory's links are followed, as far as it exists.
#[must_use]
pub fn whole_path(path: &Path) -> PathBuf {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new(".")).canonicalize();
    match (dir, path.file_name()) {
        (Ok(dir), Some(file)) => dir.join(file),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

impl FromStr for DevSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let size = |s: &str| match parse_size(s) {
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(SpecError::Size { text: text.to_owned(), error }),
        };
        if text.is_empty() {
            Err(SpecError::Empty)
        } else if let Some(rest) = text.strip_prefix("mem:") {
            Ok(Self::Mem(size(rest)?))
        } else if let Some(rest) = text.strip_prefix("null:") {
            Ok(Self::Null(size(rest)?))
        } else if let Some(rest) = text.strip_prefix("slow+") {
            parse_slow(text, rest)
        } else if is_nbd(text) {
            Ok(Self::Nbd(text.parse()?))
        } else if let Some(scheme) = unknown_scheme(text) {
            let what = format!("the scheme '{scheme}' is unknown");
            Err(malformed(text, what, ACCEPTED))
        } else {
            Ok(Self::Path(PathBuf::from(text)))
        }
    }
}

fn malformed(text: &str, what: impl Into<String>, accepted: &'static str) -> SpecError {
    SpecError::Malformed { text: text.to_owned(), what: what.into(), accepted }
}

/// `xyz` of a text that begins with `xyz://`.
fn unknown_scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once("://")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    (!scheme.is_empty() && scheme.chars().all(plain)).then_some(scheme)
}

fn parse_slow(text: &str, rest: &str) -> Result<DevSpec, SpecError> {
    let refuse = |what: String| malformed(text, what, SLOW_ACCEPTED);
    let (inner, query) =
        rest.rsplit_once('?').ok_or_else(|| refuse("?profile=NAME is missing".into()))?;
    let (mut profile, mut seed) = (None, None);
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("profile", name)) if !name.is_empty() && profile.is_none() => {
                profile = Some(name.to_owned());
            }
            Some(("seed", number)) if seed.is_none() => {
                let bad = |_| refuse(format!("seed '{number}' is not a whole number"));
                seed = Some(number.parse().map_err(bad)?);
            }
            _ => {
                return Err(refuse(format!(
                    "the parameter '{pair}' is unknown, empty or repeated"
                )));
            }
        }
    }
    let profile = profile.ok_or_else(|| refuse("profile=NAME is missing".into()))?;
    match inner.parse()? {
        inner @ (DevSpec::Path(_) | DevSpec::Mem(_)) => {
            Ok(DevSpec::Slow { inner: Box::new(inner), profile, seed })
        }
        _ => Err(refuse(format!("'{inner}' cannot have modelled latency"))),
    }
}

fn is_nbd(text: &str) -> bool {
    ["nbd://", "nbd+unix://", "nbds://", "nbds+unix://"].iter().any(|s| text.starts_with(s))
}

impl fmt::Display for DevSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Mem(bytes) => write!(f, "mem:{}", format_size(*bytes)),
            Self::Null(bytes) => write!(f, "null:{}", format_size(*bytes)),
            Self::Slow { inner, profile, seed } => {
                write!(f, "slow+{inner}?profile={profile}")?;
                seed.map_or(Ok(()), |seed| write!(f, "&seed={seed}"))
            }
            Self::Nbd(uri) => uri.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(inner: DevSpec, seed: Option<u64>) -> DevSpec {
        DevSpec::Slow { inner: Box::new(inner), profile: "hdd-7200".into(), seed }
    }

    #[test]
    fn every_form_is_parsed_and_printed() {
        let path = |p: &str| DevSpec::Path(PathBuf::from(p));
        for (text, spec) in [
            ("/dev/sdb", path("/dev/sdb")),
            ("disk.img", path("disk.img")),
            ("./mem:1", path("./mem:1")),
            ("odd?name", path("odd?name")),
            ("mem:64GiB", DevSpec::Mem(64 << 30)),
            ("null:1.5TiB", DevSpec::Null(3 << 39)),
            ("slow+/dev/sdb?profile=hdd-7200&seed=7", slow(path("/dev/sdb"), Some(7))),
            ("slow+a?b?profile=hdd-7200", slow(path("a?b"), None)),
            ("slow+mem:1GiB?profile=hdd-7200", slow(DevSpec::Mem(1 << 30), None)),
            ("nbd://host:10809/x", DevSpec::Nbd("nbd://host/x".parse().unwrap())),
            ("nbd+unix:///x?socket=/s", DevSpec::Nbd("nbd+unix:///x?socket=/s".parse().unwrap())),
        ] {
            assert_eq!(text.parse(), Ok(spec.clone()));
            assert_eq!(spec.to_string(), text);
        }
    }

    #[test]
    fn all_names_of_a_device_have_one_place() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("disk"), dir.path().join("link"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let place = |text: &str| text.parse::<DevSpec>().unwrap().place();
        let named = place(file.to_str().unwrap());
        assert_eq!(place(link.to_str().unwrap()), named);
        assert_eq!(place(&format!("slow+{}?profile=hdd-7200&seed=3", link.display())), named);
        assert_eq!(place("nbds://host/x?tls-certificates=/c"), place("nbd://host:10809/x"));
        let new = dir.path().join("new");
        assert_eq!(place(new.to_str().unwrap()), whole_path(&new).display().to_string());
    }

    #[test]
    fn errors_are_one_line_and_name_the_text() {
        for text in [
            "",
            "mem:",
            "mem:lots",
            "null:-3",
            "rbd://pool/image",
            "slow+/dev/sdb",
            "slow+/dev/sdb?seed=1",
            "slow+/dev/sdb?profile=",
            "slow+/dev/sdb?profile=a&profile=b",
            "slow+/dev/sdb?profile=a&seed=x",
            "slow+/dev/sdb?profile=a&speed=9",
            "slow+null:1GiB?profile=a",
            "slow+?profile=a",
            "nbd://",
            "nbd+unix:///x",
        ] {
            let line = text.parse::<DevSpec>().unwrap_err().to_string();
            assert!(line.contains("accepted") && !line.contains('\n'), "{line}");
        }
    }
}
