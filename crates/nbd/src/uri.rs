// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of exports: `nbd://host[:port]/export` and `nbd+unix:///export?socket=PATH`, and with TLS `nbds://` and
//! `nbds+unix://`.
//!
//! Purpose: the URIs of `doc/uri.md` of NetworkBlockDevice/nbd, without user names and pre-shared keys. The export is
//! everything after the first slash of the path, percent-decoded. With TLS, `tls-certificates=DIR` names a directory
//! with `ca-cert.pem` and, for servers that require client certificates, `client-cert.pem` and `client-key.pem`.
//! `tls-hostname=NAME` is the server's name if it differs from the host. `tls-ca=FILE` is a Larder extension: the
//! authority's certificate alone.
//!
//! Invariants: a URI that does not parse gets a one-line error with the accepted forms; nothing is ignored silently.
//! `Uri::parse(&uri.to_string()) == Ok(uri)`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

use super::codec::{MAX_STRING, PORT};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp {
        /// Name or address, IPv6 without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// The server's address.
    pub address: Address,
    /// The export's name; empty for the default export.
    pub export: String,
    /// The TLS parameters; `None` without TLS.
    pub tls: Option<Names>,
}

/// TLS parameters: which authority the client trusts, and its own identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// A directory with `ca-cert.pem`, and optionally `client-cert.pem` and `client-key.pem`.
    pub certificates: Option<PathBuf>,
    /// The authority's certificate, instead of the one in the directory.
    pub ca: Option<PathBuf>,
    /// The server's name in its certificate, instead of the host.
    pub hostname: Option<String>,
}

/// A URI that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{uri:?}: {what}; accepted: nbd://HOST[:PORT]/EXPORT and nbd+unix:///EXPORT?socket=PATH, and nbds \
     with tls-certificates=DIR"
)]
pub struct UriError {
    uri: String,
    what: &'static str,
}

impl FromStr for Uri {
    type Err = UriError;
    fn from_str(s: &str) -> Result<Self, UriError> {
        Self::parse(s)
    }
}

impl Uri {
    /// Parses a URI.
    ///
    /// # Errors
    /// The URI has none of the accepted forms.
    pub fn parse(s: &str) -> Result<Self, UriError> {
        parse(s).map_err(|what| UriError { uri: s.chars().take(256).collect(), what })
    }
}

fn parse(s: &str) -> Result<Uri, &'static str> {
    let (scheme, rest) = s.split_once("://").ok_or("not a URI")?;
    let (unix, tls) = match scheme {
        "nbd" => (false, false),
        "nbd+unix" => (true, false),
        "nbds" => (false, true),
        "nbds+unix" => (true, true),
        _ => return Err("unknown scheme"),
    };
    if rest.contains('#') {
        return Err("a fragment (#) is not supported");
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let export = String::from_utf8(decode(path)?).map_err(|_| "the export is not UTF-8")?;
    if export.len() > MAX_STRING || export.contains('\0') {
        return Err("the export's name is longer than 4096 bytes or contains a NUL character");
    }
    let (socket, names) = parse_query(query)?;
    if !tls && names != Names::default() {
        return Err("a TLS parameter needs the scheme nbds or nbds+unix");
    }
    let tls = tls.then_some(names);
    let address = match (unix, socket) {
        (true, Some(_)) if !authority.is_empty() => return Err("a unix socket has no host"),
        (true, Some(path)) => Address::Unix(path),
        (true, None) => return Err("the parameter socket=PATH is missing"),
        (false, Some(_)) => return Err("the parameter socket=PATH needs the scheme nbd+unix"),
        (false, None) => parse_authority(authority)?,
    };
    Ok(Uri { address, export, tls })
}

fn parse_query(query: &str) -> Result<(Option<PathBuf>, Names), &'static str> {
    let (mut socket, mut names) = (None, Names::default());
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = OsString::from_vec(decode(value)?);
        let place = match key {
            "socket" => &mut socket,
            "tls-certificates" => &mut names.certificates,
            "tls-ca" => &mut names.ca,
            "tls-hostname" => {
                let name = value.into_string().map_err(|_| "the server's name is not UTF-8")?;
                if name.is_empty() || names.hostname.replace(name).is_some() {
                    return Err("the server's name is empty or given twice");
                }
                continue;
            }
            _ => return Err("an unknown query parameter"),
        };
        if value.is_empty() || place.replace(PathBuf::from(value)).is_some() {
            return Err("a path is empty or given twice");
        }
    }
    Ok((socket, names))
}

fn parse_authority(authority: &str) -> Result<Address, &'static str> {
    if authority.contains('@') {
        return Err("a user name is not supported");
    }
    let (host, port) = if let Some(v6) = authority.strip_prefix('[') {
        let (host, rest) = v6.split_once(']').ok_or("a bracket is not closed")?;
        if !rest.is_empty() && !rest.starts_with(':') {
            return Err("unexpected text between the bracket and the port");
        }
        (host, rest.strip_prefix(':'))
    } else {
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        if port.is_some_and(|p| p.contains(':')) {
            return Err("an IPv6 address needs brackets");
        }
        (host, port)
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    let host = String::from_utf8(decode(host)?).map_err(|_| "the host is not UTF-8")?;
    let port = match port {
        None | Some("") => PORT,
        Some(port) => port.parse().map_err(|_| "the port is not a number up to 65535")?,
    };
    Ok(Address::Tcp { host, port })
}

fn decode(s: &str) -> Result<Vec<u8>, &'static str> {
    let mut out = Vec::with_capacity(s.len());
    let mut bytes = s.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => out.push((high * 16 + low) as u8),
            _ => return Err("a % is not followed by two hexadecimal digits"),
        }
    }
    Ok(out)
}

fn encode(f: &mut fmt::Formatter<'_>, bytes: &[u8], plain: &[u8]) -> fmt::Result {
    for &b in bytes {
        if b.is_ascii_alphanumeric() || b"-._~/".contains(&b) || plain.contains(&b) {
            write!(f, "{}", char::from(b))?;
        } else {
            write!(f, "%{b:02X}")?;
        }
    }
    Ok(())
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut query: Vec<(&str, &[u8])> = Vec::new();
        let scheme = if self.tls.is_some() { "nbds" } else { "nbd" };
        match &self.address {
            Address::Tcp { host, port } => {
                let v6 = host.contains(':');
                write!(f, "{scheme}://{}", if v6 { "[" } else { "" })?;
                encode(f, host.as_bytes(), if v6 { b":" } else { b"" })?;
                write!(f, "{}:{port}/", if v6 { "]" } else { "" })?;
            }
            Address::Unix(path) => {
                write!(f, "{scheme}+unix:///")?;
                query.push(("socket", bytes(path)));
            }
        }
        encode(f, self.export.as_bytes(), b"")?;
        if let Some(Names { certificates, ca, hostname }) = &self.tls {
            query.extend(certificates.iter().map(|p| ("tls-certificates", bytes(p))));
            query.extend(ca.iter().map(|p| ("tls-ca", bytes(p))));
            query.extend(hostname.iter().map(|name| ("tls-hostname", name.as_bytes())));
        }
        for (i, (key, value)) in query.into_iter().enumerate() {
            write!(f, "{}{key}=", if i == 0 { '?' } else { '&' })?;
            encode(f, value, b"")?;
        }
        Ok(())
    }
}

fn bytes(path: &std::path::Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> Uri {
        let address = Address::Tcp { host: host.into(), port };
        Uri { address, export: export.into(), tls: None }
    }

    #[test]
    fn accepted() {
        let unix = |path: &str, export: &str| Uri {
            address: Address::Unix(path.into()),
            export: export.into(),
            tls: None,
        };
        let secure = |uri: Uri, certificates: Option<&str>, hostname: Option<&str>| {
            let (certificates, hostname) =
                (certificates.map(PathBuf::from), hostname.map(str::to_owned));
            Uri { tls: Some(Names { certificates, ca: None, hostname }), ..uri }
        };
        for (text, uri) in [
            ("nbd://example.com/disk", tcp("example.com", PORT, "disk")),
            ("nbd://example.com", tcp("example.com", PORT, "")),
            ("nbd://example.com//disk", tcp("example.com", PORT, "/disk")),
            ("nbd://example.com/hello%20world", tcp("example.com", PORT, "hello world")),
            ("nbd://127.0.0.1:1234/", tcp("127.0.0.1", 1234, "")),
            ("nbd://[::1]:99/a/b", tcp("::1", 99, "a/b")),
            ("nbd://[::1]", tcp("::1", PORT, "")),
            ("nbd+unix:///?socket=/tmp/s", unix("/tmp/s", "")),
            ("nbd+unix:///disk?socket=nbd.sock", unix("nbd.sock", "disk")),
            ("nbds://x", secure(tcp("x", PORT, ""), None, None)),
            (
                "nbds://[::1]/d?tls-certificates=/a%20b&tls-hostname=y",
                secure(tcp("::1", PORT, "d"), Some("/a b"), Some("y")),
            ),
            (
                "nbds+unix:///d?tls-certificates=/c&socket=/s",
                secure(unix("/s", "d"), Some("/c"), None),
            ),
            ("nbd+unix:///?socket=%2Ftmp%2Fa%3Fb", unix("/tmp/a?b", "")),
        ] {
            assert_eq!(Uri::parse(text).as_ref(), Ok(&uri), "{text}");
            assert_eq!(Uri::parse(&uri.to_string()), Ok(uri), "{text}");
        }
    }

    #[test]
    fn refused() {
        for (text, why) in [
            ("/dev/sda", "not a URI"),
            ("http://x/", "unknown scheme"),
            ("nbds://x/?tls-psk-file=/k", "unknown query"),
            ("nbds://x/?tls-verify-peer=false", "unknown query"),
            ("nbds://x/?tls-hostname=", "name is empty"),
            ("nbds://x/?tls-ca=a&tls-ca=b", "twice"),
            ("nbd:///x", "host is missing"),
            ("nbd://u@x/", "user name"),
            ("nbd://x:70000/", "port"),
            ("nbd://::1/", "brackets"),
            ("nbd://[::1/", "not closed"),
            ("nbd://[::1]9/", "between"),
            ("nbd://x/%zz", "hexadecimal"),
            ("nbd://x/%2", "hexadecimal"),
            ("nbd://x/%ff", "UTF-8"),
            ("nbd://x/a#b", "fragment"),
            ("nbd://x/?socket=/s", "nbd+unix"),
            ("nbd://x/?tls-hostname=y", "needs the scheme nbds"),
            ("nbd+unix:///x", "socket=PATH is missing"),
            ("nbd+unix:///x?socket=", "empty"),
            ("nbd+unix:///x?socket=a&socket=b", "twice"),
            ("nbd+unix://host/x?socket=a", "no host"),
        ] {
            let e = Uri::parse(text).unwrap_err().to_string();
            assert!(e.contains(why) && e.contains("accepted: nbd"), "{text}: {e}");
        }
    }
}
