// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes as one side of an NBD negotiation.
//!
//! The first byte says which side is ours and how it is set up. Demanded: no panic; the server agrees
//! upon an export that it has, after whole options and without a byte of what follows them, and says
//! no more than a bound; a client believes a size, flags and block sizes that are lawful.

use std::io::{self, Cursor, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use larder_front::nbd::export::{Export, Exports};
use larder_front::nbd::handshake::{MAX_OPTIONS, Outcome, Security, begin, resume};
use larder_nbd::client::{Client, ClientError, Options};
use larder_nbd::codec::{MAX_PAYLOAD, OptionHeader};

/// The longest answer of the server to one option: a list of two exports, each with its description.
const MOST_ANSWER: usize = 2 * (20 + 4 + 64) + 200;

/// The peer: what it says, and what it was told.
struct Peer<'a> {
    says: Cursor<&'a [u8]>,
    told: Vec<u8>,
}

impl Read for Peer<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.says.read(into)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.told.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// See the module.
pub fn check(data: &[u8]) {
    let Some((setup, bytes)) = data.split_first() else { return };
    if setup & 1 == 0 { server(*setup, bytes) } else { client(*setup, bytes) }
}

fn server(setup: u8, bytes: &[u8]) {
    let mut disk = Export::new("disk", 1 << 30);
    disk.description = "for people".to_owned();
    let other = Export { read_only: true, ..Export::new("", 4096) };
    let exports = Exports::new(vec![disk, other]).expect("lawful");
    let security = [Security::Plain, Security::Offered, Security::Required, Security::Secured]
        [usize::from(setup >> 1 & 3)];
    let mut peer = Peer { says: Cursor::new(bytes), told: Vec::new() };
    let resumed = security == Security::Secured;
    let outcome = if resumed {
        resume(&mut peer, &exports, setup & 8 != 0).map(Outcome::Chosen)
    } else {
        begin(&mut peer, &exports, security)
    };
    let read = peer.says.position() as usize;
    assert!(peer.told.len() <= 18 + (MAX_OPTIONS + 1) * MOST_ANSWER, "{}", peer.told.len());
    let Ok(outcome) = outcome else { return };
    // Flags, and then whole options up to the last one.
    let mut at = if resumed { 0 } else { 4 };
    while at < read {
        let header = bytes[at..].first_chunk().and_then(OptionHeader::decode);
        at += OptionHeader::LEN + header.expect("an option was read").len as usize;
    }
    assert_eq!(at, read, "nothing of what follows is read");
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
    // So short that the socket takes it all at once, whatever the client does.
    let said = &bytes[..bytes.len().min(32 << 10)];
    if theirs.write_all(said).and_then(|()| theirs.shutdown(Shutdown::Write)).is_err() {
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
        Err(ClientError::TimedOut) => panic!("it waits for a server that is gone"),
        Err(error) => one_line(&error.to_string()),
    }
}

/// What people are told is one line, whatever the peer put into it.
fn one_line(text: &str) {
    assert!(!text.chars().any(char::is_control), "{text:?}");
}
