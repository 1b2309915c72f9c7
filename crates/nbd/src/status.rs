// SPDX-License-Identifier: MIT OR Apache-2.0
//! Block status: which ranges are data or holes, in the context `base:allocation`.
//!
//! Purpose: the wire format of descriptors and of the options with which a client requests contexts; servers and
//! clients use it.
//!
//! Invariants: decoding keeps at most [`MOST_KEPT`] extents, whatever the peer sends; an empty descriptor does not
//! decode.

use std::io::Read;

use larder_core::extent::{Extent, push};

use crate::codec::Cursor;

/// The only supported context.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The query with which a client lists all contexts of the namespace.
pub const BASE: &str = "base:";
/// The number that the server assigns to the context.
pub const CONTEXT: u32 = 1;
/// Flag of a request: one descriptor, not longer than the request.
pub const FLAG_REQ_ONE: u16 = 1 << 3;
/// The type of a chunk with descriptors.
pub const CHUNK: u16 = 5;

/// Flag of a descriptor: nothing is allocated.
const HOLE: u32 = 1 << 0;
/// Flag of a descriptor: reads as zeroes.
const ZERO: u32 = 1 << 1;

/// Extents kept from a reply; the client can request the rest again.
pub const MOST_KEPT: usize = 1024;
/// The longest chunk that is read: twice what known servers send at most.
const MOST_BYTES: u32 = 16 << 20;

/// The payload of a chunk: a context and its descriptors. An extent that is too long for a descriptor is truncated and
/// ends the list.
#[must_use]
pub fn encode(context: u32, extents: &[Extent]) -> Vec<u8> {
    let mut out = context.to_be_bytes().to_vec();
    for extent in extents {
        let len = u32::try_from(extent.len).unwrap_or(u32::MAX);
        let flags = if extent.hole { HOLE } else { 0 } | if extent.zero { ZERO } else { 0 };
        out.extend(len.to_be_bytes());
        out.extend(flags.to_be_bytes());
        if u64::from(len) < extent.len {
            break;
        }
    }
    out
}

/// Reads the payload of a chunk of `len` bytes and returns its context and first extents, or `None` if it is malformed.
///
/// # Errors
/// The stream's error.
pub fn read(from: &mut impl Read, len: u32) -> std::io::Result<Option<(u32, Vec<Extent>)>> {
    if !(12..=MOST_BYTES).contains(&len) || !(len - 4).is_multiple_of(8) {
        return Ok(None);
    }
    let mut context = [0; 4];
    from.read_exact(&mut context)?;
    let (mut list, mut full) = (Vec::new(), false);
    for _ in 0..(len - 4) / 8 {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        let mut c = Cursor(&bytes);
        let (Some(len @ 1..), Some(flags)) = (c.u32(), c.u32()) else { return Ok(None) };
        full |= list.len() >= MOST_KEPT;
        if !full {
            let (hole, zero) = (flags & HOLE != 0, flags & ZERO != 0);
            push(&mut list, Extent { len: u64::from(len), hole, zero });
        }
    }
    Ok(Some((u32::from_be_bytes(context), list)))
}

/// Encodes the data of the options about contexts: an export and the requested contexts.
#[must_use]
pub fn query(export: &str, contexts: &[&str]) -> Vec<u8> {
    let mut out = (export.len() as u32).to_be_bytes().to_vec();
    out.extend(export.as_bytes());
    out.extend((contexts.len() as u32).to_be_bytes());
    for context in contexts {
        out.extend((context.len() as u32).to_be_bytes());
        out.extend(context.as_bytes());
    }
    out
}

/// Decodes what [`query`] encodes: the export's name and the queries. `None` if it is malformed.
#[must_use]
pub fn parse_query(data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let mut c = Cursor(data);
    let (export, count) = (c.string()?, c.u32()?);
    let mut queries = Vec::new();
    // Each query takes at least four bytes, so the data bounds the loop.
    for _ in 0..count {
        queries.push(c.string()?);
    }
    c.end()?;
    Some((export, queries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_round_trip() {
        let list = [
            Extent::data(512),
            Extent::hole(4096),
            Extent { len: 1, hole: false, zero: true },
            Extent { len: 7, hole: true, zero: false },
        ];
        let bytes = encode(9, &list);
        assert_eq!(bytes.len(), 36);
        assert_eq!(bytes[4..12], [0, 0, 2, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[12..20], [0, 0, 0x10, 0, 0, 0, 0, 3]);
        let got = read(&mut &bytes[..], bytes.len() as u32).unwrap();
        assert_eq!(got, Some((9, list.to_vec())));
        // An extent that is too long is truncated, and the extents after it are omitted.
        let long = encode(1, &[Extent::data(1 << 40), Extent::hole(5)]);
        let got = read(&mut &long[..], long.len() as u32).unwrap();
        assert_eq!(got, Some((1, vec![Extent::data(u64::from(u32::MAX))])));
    }

    #[test]
    fn malformed_payloads_are_rejected_and_memory_is_bounded() {
        let empty = encode(1, &[Extent::data(512), Extent::data(0)]);
        assert_eq!(read(&mut &empty[..], empty.len() as u32).unwrap(), None);
        for len in [0, 4, 11, 13, 19, MOST_BYTES + 4, u32::MAX] {
            assert_eq!(read(&mut std::io::repeat(1), len).unwrap(), None, "{len}");
        }
        assert!(read(&mut &empty[..10], 12).is_err());
        let flood: Vec<Extent> = (0..5000)
            .map(|i| if i % 2 == 0 { Extent::data(512) } else { Extent::hole(512) })
            .collect();
        let bytes = encode(1, &flood);
        let mut left = &bytes[..];
        let (_, list) = read(&mut left, bytes.len() as u32).unwrap().unwrap();
        assert!(left.is_empty() && list == flood[..MOST_KEPT]);
    }

    #[test]
    fn queries_round_trip_and_malformed_ones_are_rejected() {
        let data = query("disk", &[BASE, "x:y", ""]);
        assert_eq!(parse_query(&data), Some(("disk", vec![BASE, "x:y", ""])));
        assert_eq!(parse_query(&query("", &[])), Some(("", vec![])));
        assert_eq!(parse_query(&data[..data.len() - 1]), None);
        assert_eq!(parse_query(&[&data[..], &[0]].concat()), None);
        let mut lies = query("", &[]);
        lies[4..8].fill(0xff);
        assert_eq!(parse_query(&lies), None);
        assert_eq!(parse_query(&query("", &[&"x".repeat(4097)])), None);
    }
}
