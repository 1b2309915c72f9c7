// SPDX-License-Identifier: MIT OR Apache-2.0
//! NBD clients that send what they like: raw bytes of a negotiation and of requests.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};

/// Commands.
pub const READ: u16 = 0;
/// A write.
pub const WRITE: u16 = 1;
/// A trim.
pub const TRIM: u16 = 4;
/// A zeroing.
pub const ZERO: u16 = 6;

/// The header of an option.
#[must_use]
pub fn option(number: u32, len: u32) -> Vec<u8> {
    [b"IHAVEOPT".as_slice(), &number.to_be_bytes(), &len.to_be_bytes()].concat()
}

/// The header of a request; the offset is its cookie.
#[must_use]
pub fn request(command: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// The handshake of the oldest kind, after which the stream is ready for raw requests; the size of the export.
///
/// # Errors
/// The server closes the connection.
pub fn negotiate(stream: &mut (impl Read + Write)) -> std::io::Result<u64> {
    stream.read_exact(&mut [0; 18])?;
    stream.write_all(&3_u32.to_be_bytes())?;
    stream.write_all(&option(1, 0))?;
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
