// SPDX-License-Identifier: MIT OR Apache-2.0
//! NBD clients that send what they like: raw bytes of a negotiation and of requests.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};

use larder_nbd::codec::{FIXED_NEWSTYLE, NO_ZEROES, OptionHeader, RequestHeader, opt};

pub use larder_nbd::codec::cmd::{READ, TRIM, WRITE, WRITE_ZEROES as ZERO};

/// The header of an option.
#[must_use]
pub fn option(option: u32, len: u32) -> [u8; OptionHeader::LEN] {
    OptionHeader { option, len }.encode()
}

/// The header of a request; the offset is its cookie.
#[must_use]
pub fn request(command: u16, offset: u64, len: u32) -> [u8; RequestHeader::LEN] {
    RequestHeader { flags: 0, command, cookie: offset, offset, len }.encode()
}

/// The client's answer to the greeting.
#[must_use]
pub fn client_flags() -> [u8; 4] {
    u32::from(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes()
}

/// The handshake of the oldest kind, after which the stream is ready for raw requests; the size of the export.
///
/// # Errors
/// The server closes the connection.
pub fn negotiate(stream: &mut (impl Read + Write)) -> std::io::Result<u64> {
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(&client_flags())?;
    stream.write_all(&option(opt::EXPORT_NAME, 0))?;
    let mut info = [0; 10];
    stream.read_exact(&mut info)?;
    Ok(u64::from_be_bytes(info[..8].try_into().unwrap()))
}

/// A TCP connection from an address of this machine.
#[must_use]
pub fn connect_from(from: Ipv4Addr, to: SocketAddrV4) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let stream = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&stream, &SocketAddrV4::new(from, 0)).unwrap();
    connect(&stream, &to).unwrap();
    stream.into()
}
