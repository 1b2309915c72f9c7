// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary bytes as one side of an NBD negotiation.
//!
//! The first byte selects Larder's side and its setup. Required: no panic. The server agrees on an export that it has,
//! after complete options and without reading beyond them, and its output is bounded. A client accepts only a valid
//! size, flags and block sizes.

use std::io::{self, Cursor, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use larder_front::nbd::export::{Export, Exports};
use larder_front::nbd::handshake::{MAX_OPTIONS, Outcome, Security, begin, resume};
use larder_nbd::client::{Client, ClientError, Options};
use larder_nbd::codec::{MAX_PAYLOAD, OptionHeader};

/// The longest reply of the server to one option: a list of two exports with descriptions.
const MOST_ANSWER: usize = 2 * (20 + 4 + 64) + 200;

/// The peer: its bytes, and what it received.
struct Peer<'a> {
    input: Cursor<&'a [u8]>,
    output: Vec<u8>,
}

impl Read for Peer<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.input.read(into)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks one input.
pub fn check(data: &[u8]) {
    let Some((setup, bytes)) = data.split_first() else { return };
    if setup & 1 == 0 { server(*setup, bytes) } else { client(*setup, bytes) }
}

fn server(setup: u8, bytes: &[u8]) {
    let mut disk = Export::new("disk", 1 << 30);
    disk.description = "for people".to_owned();
    let other = Export { read_only: true, ..Export::new("", 4096) };
    let exports = Exports::new(vec![disk, other]).expect("valid exports");
    let security = [Security::Plain, Security::Offered, Security::Required, Security::Secured]
        [usize::from(setup >> 1 & 3)];
    let mut peer = Peer { input: Cursor::new(bytes), output: Vec::new() };
    let admit = &mut |_| if setup & 16 == 0 { Ok(()) } else { Err("no seat".to_owned()) };
    let resumed = security == Security::Secured;
    let outcome = if resumed {
        resume(&mut peer, &exports, setup & 8 != 0, admit).map(Outcome::Chosen)
    } else {
        begin(&mut peer, &exports, security, admit)
    };
    let read = peer.input.position() as usize;
    assert!(peer.output.len() <= 18 + (MAX_OPTIONS + 1) * MOST_ANSWER, "{}", peer.output.len());
    let Ok(outcome) = outcome else { return };
    assert!(
        setup & 16 == 0 || matches!(outcome, Outcome::StartTls { .. }),
        "served without a seat"
    );
    // The input is flags, then complete options up to the last one.
    let mut at = if resumed { 0 } else { 4 };
    while at < read {
        let header = bytes[at..].first_chunk().and_then(OptionHeader::decode);
        at += OptionHeader::LEN + header.expect("an option was read").len as usize;
    }
    assert_eq!(at, read, "no byte after the last option is read");
    match outcome {
        Outcome::Chosen(agreed) => {
            assert!(exports.get(agreed.export).is_some());
            assert!(agreed.structured || !agreed.allocation);
            assert!(security != Security::Required);
        }
        Outcome::StartTls { .. } => {
            assert!(matches!(security, Security::Offered | Security::Required));
        }
    }
}

fn client(setup: u8, bytes: &[u8]) {
    let options = Options {
        connect_timeout: Duration::from_secs(5),
        io_timeout: Some(Duration::from_secs(5)),
        structured: setup & 2 != 0,
        allocation: setup & 4 != 0,
    };
    let Ok((ours, mut theirs)) = UnixStream::pair() else { return };
    // Short enough that the socket accepts it at once, whatever the client does.
    let sent = &bytes[..bytes.len().min(32 << 10)];
    if theirs.write_all(sent).and_then(|()| theirs.shutdown(Shutdown::Write)).is_err() {
        return;
    }
    match Client::over(ours, "disk", &options) {
        Ok(client) => {
            let info = client.info();
            assert!(info.min_block_bytes.is_power_of_two() && info.min_block_bytes <= 1 << 16);
            assert!(info.preferred_block_bytes >= info.min_block_bytes.max(512));
            assert!((info.min_block_bytes..=MAX_PAYLOAD).contains(&info.max_payload_bytes));
            assert!(info.can(1) && (options.structured || !info.structured));
            assert!(info.allocation.is_none() || options.allocation && info.structured);
        }
        Err(ClientError::TimedOut) => panic!("the client waits for a closed connection"),
        Err(error) => one_line(&error.to_string()),
    }
}

/// An error message is one line, whatever the peer sent.
fn one_line(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
