// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the server and its helper: each is one packet of a socket pair. A request is a word and the number
//! of a place. A reply is a word and a text; the reply to a mount also carries the descriptor of the kernel's requests.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The longest message.
pub const MOST_BYTES: usize = 8 << 10;

/// What the server asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Check,
    Mount,
    Unmount,
    Detach,
}

impl Verb {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Check, "check"),
        (Self::Mount, "mount"),
        (Self::Unmount, "unmount"),
        (Self::Detach, "detach"),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(verb, _)| *verb == self).map_or("", |(_, word)| word)
    }
}

/// A request about a place, which is named by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub verb: Verb,
    pub place: usize,
}

impl Request {
    pub fn bytes(self) -> Vec<u8> {
        format!("{} {}", self.verb.word(), self.place).into_bytes()
    }

    /// None: it is not a request.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (word, place) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        let (verb, _) = Verb::ALL.into_iter().find(|(_, name)| *name == word)?;
        let is_number = place.bytes().all(|b| b.is_ascii_digit());
        Some(Self { verb, place: place.parse().ok().filter(|_| is_number)? })
    }
}

/// What the helper replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    /// The file system is in use.
    Busy,
    /// Mounted over this file.
    File(PathBuf),
    /// Mounted over this directory.
    Directory(PathBuf),
    /// The place cannot be used: exit code 2.
    Usage(String),
    /// Refused for safety: exit code 4.
    Refused(String),
    /// It cannot be unmounted.
    Failed(String),
}

impl Reply {
    pub fn bytes(&self) -> Vec<u8> {
        let (word, text) = match self {
            Self::Done => ("done", &b""[..]),
            Self::Busy => ("busy", &b""[..]),
            Self::File(path) => ("file", path.as_os_str().as_bytes()),
            Self::Directory(path) => ("directory", path.as_os_str().as_bytes()),
            Self::Usage(why) => ("usage", why.as_bytes()),
            Self::Refused(why) => ("refused", why.as_bytes()),
            Self::Failed(why) => ("failed", why.as_bytes()),
        };
        let mut bytes = [word.as_bytes(), b" ", text].concat();
        bytes.truncate(MOST_BYTES);
        bytes
    }

    /// None: it is not a reply.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let blank = bytes.iter().position(|b| *b == b' ')?;
        let (word, text) = (bytes.get(..blank)?, bytes.get(blank + 1..)?);
        let path = || PathBuf::from(OsStr::from_bytes(text));
        let why = || String::from_utf8_lossy(text).into_owned();
        Some(match word {
            b"done" => Self::Done,
            b"busy" => Self::Busy,
            b"file" => Self::File(path()),
            b"directory" => Self::Directory(path()),
            b"usage" => Self::Usage(why()),
            b"refused" => Self::Refused(why()),
            b"failed" => Self::Failed(why()),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        for (verb, _) in Verb::ALL {
            let request = Request { verb, place: 12 };
            assert_eq!(Request::parse(&request.bytes()), Some(request));
        }
        let path = PathBuf::from(OsStr::from_bytes(b"/a b/\xff"));
        for reply in [
            Reply::Done,
            Reply::Busy,
            Reply::File(path.clone()),
            Reply::Directory(path),
            Reply::Usage("fuse:/a: is not empty".to_owned()),
            Reply::Refused("why".to_owned()),
            Reply::Failed(String::new()),
        ] {
            assert_eq!(Reply::parse(&reply.bytes()), Some(reply));
        }
    }

    #[test]
    fn other_bytes_are_no_message() {
        for bytes in [
            &b""[..],
            b"mount",
            b"mount ",
            b"mount -1",
            b"mount +1",
            b"mount 1 2",
            b"mount /etc",
            b"Mount 1",
            b"mount 99999999999999999999",
            b"mount \xff",
        ] {
            assert_eq!(Request::parse(bytes), None, "{bytes:?}");
        }
        assert_eq!(Reply::parse(b"done"), None);
        assert_eq!(Reply::parse(b"other text"), None);
    }
}
