// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares every header with bytes written by hand from the protocol's text.

use super::*;

/// Bytes of a hex string with blanks.
fn hex(s: &str) -> Vec<u8> {
    let digits: Vec<u32> = s.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| (d[0] * 16 + d[1]) as u8).collect()
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap()
}

#[test]
fn greeting() {
    let greeting = Greeting { flags: FIXED_NEWSTYLE | NO_ZEROES };
    let bytes = greeting.encode();
    assert_eq!(&bytes[..16], b"NBDMAGICIHAVEOPT");
    assert_eq!(bytes[16..], [0, 3]);
    assert_eq!(Greeting::decode(&bytes), Some(greeting));
    let oldstyle = hex("4e42444d41474943 0000420281861253 0000");
    assert_eq!(Greeting::decode(&array(&oldstyle)), None);
}

#[test]
fn option_header_and_reply() {
    let header = OptionHeader { option: opt::GO, len: 0x102 };
    let bytes = hex("49484156454f5054 00000007 00000102");
    assert_eq!(header.encode().to_vec(), bytes);
    assert_eq!(OptionHeader::decode(&array(&bytes)), Some(header));
    assert_eq!(OptionHeader::decode(&[0; 16]), None);

    let reply = OptionReply { option: opt::LIST, kind: rep::ERR_UNKNOWN, len: 5 };
    let bytes = hex("0003e889045565a9 00000003 80000006 00000005");
    assert_eq!(reply.encode().to_vec(), bytes);
    assert_eq!(OptionReply::decode(&array(&bytes)), Some(reply));
    assert_eq!(OptionReply::decode(&[0; 20]), None);
}

#[test]
fn request_header() {
    let header = RequestHeader {
        flags: cmd::FLAG_FUA,
        command: cmd::WRITE,
        cookie: 0x0102_0304_0506_0708,
        offset: 0x1000,
        len: 512,
    };
    let bytes = hex("25609513 0001 0001 0102030405060708 0000000000001000 00000200");
    assert_eq!(header.encode().to_vec(), bytes);
    assert_eq!(RequestHeader::decode(&array(&bytes)), Ok(header));
    let mut bad = array::<28>(&bytes);
    bad[0] = 0x26;
    assert_eq!(RequestHeader::decode(&bad), Err(0x2660_9513));
}

#[test]
fn replies() {
    let reply = SimpleReply { error: 22, cookie: 7 };
    let bytes = hex("67446698 00000016 0000000000000007");
    assert_eq!(reply.encode().to_vec(), bytes);
    assert_eq!(SimpleReply::decode_rest(&array(&bytes[4..])), Some(reply));

    let header = ChunkHeader {
        flags: chunk::FLAG_DONE,
        kind: chunk::ERROR_OFFSET,
        cookie: u64::MAX,
        len: 14,
    };
    let bytes = hex("668e33ef 0001 8002 ffffffffffffffff 0000000e");
    assert_eq!(header.encode().to_vec(), bytes);
    assert_eq!(ChunkHeader::decode_rest(&array(&bytes[4..])), Some(header));
}

#[test]
fn errors_map_to_the_protocols_numbers() {
    for errno in [EPERM, Errno::EIO, Errno::ENOMEM, Errno::EINVAL, Errno::ENOSPC, Errno::ESHUTDOWN]
    {
        assert_eq!(errno_of_wire(wire_error(errno)), errno);
    }
    assert_eq!(wire_error(Errno::ETIMEDOUT), 5);
    assert_eq!(wire_error(Errno::ENXIO), 5);
    assert_eq!(wire_error(Errno(30)), 1);
    assert_eq!(wire_error(Errno(122)), 28);
    assert_eq!(wire_error(Errno::EOPNOTSUPP), 22);
    assert_eq!(wire_error(Errno(0)), 5);
    assert_eq!(errno_of_wire(95), Errno::EOPNOTSUPP);
    assert_eq!(errno_of_wire(u32::MAX), Errno::EINVAL);
}

#[test]
fn a_cursor_ends_where_the_slice_ends() {
    let mut c = Cursor(&[0, 0, 0, 2, b'h', b'i', 9]);
    assert_eq!(c.string(), Some("hi"));
    assert_eq!(c.end(), None);
    assert_eq!(c.u16(), None);
    assert_eq!(c.bytes(1), Some(&[9][..]));
    assert_eq!(c.end(), Some(()));
    assert_eq!(Cursor(&[0xff; 8]).string(), None);
    assert_eq!(Cursor(&[0, 0, 0, 1, 0xff]).string(), None);
}
