// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server's negotiation over bytes in memory: valid clients get what the protocol promises, and negotiations with
//! hostile ones end.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::io::{self, Cursor, Read, Write};

use larder_front::nbd::export::{Export, Exports};
use larder_front::nbd::handshake::{
    HandshakeError, MAX_OPTION_BYTES, MAX_OPTIONS, Negotiated, Security, begin, negotiate,
};
use larder_nbd::codec::{OptionHeader, OptionReply, can, info, opt, rep};
use larder_nbd::status::{BASE_ALLOCATION, query};
use proptest::prelude::*;

/// A stream that provides `input` and records the output.
struct Wire {
    input: Cursor<Vec<u8>>,
    output: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // Only a few bytes at a time.
        let n = buf.len().min(7);
        self.input.read(&mut buf[..n])
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.output.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn exports() -> Exports {
    let mut big = Export::new("big", 1 << 40);
    big.description = "the large one".into();
    big.min_block_bytes = 4096;
    let mut fixed = Export::new("fixed", 1 << 20);
    fixed.read_only = true;
    Exports::new(vec![big, fixed]).unwrap()
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    [&OptionHeader { option, len: data.len() as u32 }.encode(), data].concat()
}

fn named(name: &str, rest: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name.as_bytes(), rest].concat()
}

/// The server's replies, after its greeting, to `flags` and `input`; its result; and the bytes it read.
fn talk(flags: u32, input: &[u8]) -> (Result<Negotiated, HandshakeError>, Vec<u8>, usize) {
    let input = [&flags.to_be_bytes(), input].concat();
    let mut wire = Wire { input: Cursor::new(input), output: Vec::new() };
    let result = negotiate(&mut wire, &exports());
    assert_eq!(wire.output[..18], *b"NBDMAGICIHAVEOPT\0\x03");
    let read = wire.input.position() as usize - 4;
    (result, wire.output.split_off(18), read)
}

/// Splits replies.
fn replies(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_first_chunk().unwrap();
        let OptionReply { option, kind, len } = OptionReply::decode(header).unwrap();
        let (data, rest) = rest.split_at(len as usize);
        replies.push((option, kind, data.to_vec()));
        bytes = rest;
    }
    replies
}

fn fact(kind: u16, parts: &[&[u8]]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &parts.concat()].concat()
}

#[test]
fn go_describes_the_export_and_begins_transmission() {
    let asked = [3, info::NAME, info::DESCRIPTION, info::BLOCK_SIZE].map(u16::to_be_bytes);
    let mut input = option(opt::STRUCTURED_REPLY, &[]);
    input.extend(option(opt::GO, &named("big", asked.as_flattened())));
    let len = input.len();
    input.extend([0x25, 0x60, 0x95, 0x13]); // the transmission phase's first bytes
    let (result, out, read) = talk(3, &input);
    let want =
        Negotiated { export: 0, structured: true, block_sizes_known: true, allocation: false };
    assert_eq!((result.unwrap(), read), (want, len));
    let flags = Export::new("", 0).flags(true);
    assert_ne!(flags & can::DF, 0);
    let size = (1u64 << 40).to_be_bytes();
    let blocks = [4096u32, 4096, 32 << 20].map(u32::to_be_bytes);
    assert_eq!(
        replies(&out),
        [
            (opt::STRUCTURED_REPLY, rep::ACK, vec![]),
            (opt::GO, rep::INFO, fact(info::EXPORT, &[&size, &flags.to_be_bytes()])),
            (opt::GO, rep::INFO, fact(info::NAME, &[b"big"])),
            (opt::GO, rep::INFO, fact(info::DESCRIPTION, &[b"the large one"])),
            (opt::GO, rep::INFO, fact(info::BLOCK_SIZE, &[blocks.as_flattened()])),
            (opt::GO, rep::ACK, vec![]),
        ]
    );
}

#[test]
fn info_describes_and_an_unknown_export_allows_another_attempt() {
    let mut input = option(opt::INFO, &named("fixed", &[0, 0]));
    input.extend(option(opt::GO, &named("none", &[0, 0])));
    input.extend(option(opt::GO, &named("", &[0, 0]))); // two exports, neither of them default
    input.extend(option(opt::GO, &named("fixed", &[0, 0])));
    let (result, out, _) = talk(1, &input);
    let want =
        Negotiated { export: 1, structured: false, block_sizes_known: false, allocation: false };
    assert_eq!(result.unwrap(), want);
    let kinds: Vec<u32> = replies(&out).iter().map(|r| r.1).collect();
    let described = [rep::INFO, rep::INFO, rep::ACK];
    assert_eq!(kinds[..3], described);
    assert_eq!(kinds[3..5], [rep::ERR_UNKNOWN; 2]);
    assert_eq!(kinds[5..], described);
    let facts = &replies(&out)[0].2;
    let flags = u16::from_be_bytes([facts[10], facts[11]]);
    let both = can::READ_ONLY | can::DF | can::TRIM;
    assert_eq!(flags & both, can::READ_ONLY);
}

#[test]
fn export_name_replies_without_a_header() {
    for (flags, len) in [(3, 10), (1, 134), (0, 134)] {
        let (result, out, _) = talk(flags, &option(opt::EXPORT_NAME, b"fixed"));
        assert_eq!(result.unwrap().export, 1);
        assert_eq!((out.len(), &out[..8]), (len, &(1u64 << 20).to_be_bytes()[..]));
        assert!(out[10..].iter().all(|b| *b == 0));
    }
    for name in [&b"none"[..], b"", b"\xff\xff"] {
        let (result, out, _) = talk(3, &option(opt::EXPORT_NAME, name));
        assert!(matches!(result, Err(HandshakeError::UnknownExport(_))));
        assert!(out.is_empty());
    }
}

#[test]
fn list_abort_and_unsupported_options() {
    let mut input = option(opt::LIST, &[]);
    input.extend(option(opt::LIST, b"x"));
    input.extend(option(opt::STRUCTURED_REPLY, b"x"));
    input.extend(option(opt::STARTTLS, &[]));
    input.extend(option(opt::EXTENDED_HEADERS, &[]));
    input.extend(option(4711, &[7; 60_000]));
    input.extend(option(opt::ABORT, b"ignored"));
    input.extend(option(opt::LIST, &[]));
    let (result, out, _) = talk(3, &input);
    assert!(matches!(result, Err(HandshakeError::Aborted)));
    let replies = replies(&out);
    assert_eq!(replies[0], (opt::LIST, rep::SERVER, named("big", b"the large one")));
    assert_eq!(replies[1], (opt::LIST, rep::SERVER, named("fixed", b"")));
    let rest: Vec<_> = replies[2..].iter().map(|r| (r.0, r.1)).collect();
    assert_eq!(
        rest,
        [
            (opt::LIST, rep::ACK),
            (opt::LIST, rep::ERR_INVALID),
            (opt::STRUCTURED_REPLY, rep::ERR_INVALID),
            (opt::STARTTLS, rep::ERR_UNSUP),
            (opt::EXTENDED_HEADERS, rep::ERR_UNSUP),
            (4711, rep::ERR_UNSUP),
            (opt::ABORT, rep::ACK),
        ]
    );
}

#[test]
fn the_only_context_is_listed_and_chosen() {
    let list = |name: &str, asked: &[&str]| option(opt::LIST_META_CONTEXT, &query(name, asked));
    let set = |name: &str, asked: &[&str]| option(opt::SET_META_CONTEXT, &query(name, asked));
    let mut input = set("big", &[BASE_ALLOCATION]); // before structured replies
    input.extend(option(opt::STRUCTURED_REPLY, &[]));
    for (name, asked) in [
        ("fixed", &[][..]),
        ("fixed", &["base:"]),
        ("fixed", &["qemu:x", BASE_ALLOCATION, BASE_ALLOCATION]),
        ("fixed", &["base:alloc", "", "qemu:"]),
        ("none", &[]),
    ] {
        input.extend(list(name, asked));
    }
    input.extend(set("big", &["base:", "base:nothing"]));
    input.extend(set("big", &["x", BASE_ALLOCATION]));
    input.extend(option(opt::ABORT, &[]));
    let (_, out, _) = talk(3, &input);
    let replies = replies(&out);
    let kinds: Vec<u32> = replies.iter().map(|r| r.1).collect();
    let (ack, found) = (rep::ACK, rep::META_CONTEXT);
    let (invalid, unknown) = (rep::ERR_INVALID, rep::ERR_UNKNOWN);
    let listed = [found, ack, found, ack, found, ack, ack, unknown];
    assert_eq!(kinds[..2], [invalid, ack]);
    assert_eq!(kinds[2..10], listed);
    assert_eq!(kinds[10..], [ack, found, ack, ack]);
    assert_eq!(replies[2].2, [&[0; 4], BASE_ALLOCATION.as_bytes()].concat());
    assert_eq!(replies[11].2, [&[0, 0, 0, 1], BASE_ALLOCATION.as_bytes()].concat());
}

/// Only the last choice counts, and only for its export.
#[test]
fn a_context_is_chosen_for_one_export_until_the_next_choice() {
    let set = |name: &str, asked: &[&str]| option(opt::SET_META_CONTEXT, &query(name, asked));
    let chosen = set("big", &[BASE_ALLOCATION]);
    let ends = |more: &[Vec<u8>], name: &str, structured: bool| {
        let begin = option(opt::STRUCTURED_REPLY, &[]);
        let begin = if structured { begin } else { Vec::new() };
        let go = option(opt::GO, &named(name, &[0, 0]));
        let (result, ..) = talk(3, &[begin, more.concat(), go].concat());
        result.unwrap().allocation
    };
    let once = std::slice::from_ref(&chosen);
    assert!(ends(once, "big", true));
    assert!(ends(&[set("fixed", &[BASE_ALLOCATION]), chosen.clone()], "big", true));
    assert!(!ends(once, "fixed", true));
    assert!(!ends(once, "big", false));
    assert!(!ends(&[], "big", true));
    for undone in [
        set("big", &[]),
        set("big", &["base:"]),
        set("none", &[BASE_ALLOCATION]),
        option(opt::SET_META_CONTEXT, &[0xff; 9]),
    ] {
        assert!(!ends(&[chosen.clone(), undone.clone()], "big", true));
        assert!(ends(&[undone, chosen.clone()], "big", true));
    }
    // Listing neither chooses nor voids a choice.
    let list = option(opt::LIST_META_CONTEXT, &query("big", &[]));
    assert!(ends(&[chosen.clone(), list.clone()], "big", true) && !ends(&[list], "big", true));
}

#[test]
fn malformed_contexts_are_rejected_and_the_negotiation_continues() {
    let mut lies = query("big", &[]);
    let count = lies.len() - 4;
    lies[count..].fill(0xff);
    let flood = vec![""; 16_000];
    let long = "x".repeat(5000);
    let whole = query("big", &[BASE_ALLOCATION]);
    for (data, kind) in [
        (&b""[..], rep::ERR_INVALID),
        (&whole[..whole.len() - 1], rep::ERR_INVALID),
        (&[&whole[..], &[0]].concat(), rep::ERR_INVALID),
        (&lies, rep::ERR_INVALID),
        (&query(&long, &[]), rep::ERR_INVALID),
        (&query("big", &[&long]), rep::ERR_INVALID),
        (&query("big", &flood), rep::ACK),
    ] {
        for which in [opt::LIST_META_CONTEXT, opt::SET_META_CONTEXT] {
            let mut input = option(opt::STRUCTURED_REPLY, &[]);
            input.extend(option(which, data));
            input.extend(option(opt::GO, &named("big", &[0, 0])));
            let (result, out, _) = talk(3, &input);
            assert!(!result.unwrap().allocation);
            assert_eq!(replies(&out)[1].1, kind);
        }
    }
}

#[test]
fn malformed_info_is_rejected_and_the_negotiation_continues() {
    let long = named(&"x".repeat(5000), &[0, 0]);
    let bad: [&[u8]; 7] = [
        b"",
        b"\0\0\0",
        &[0xff; 6],
        &[0; 4],
        &named("big", &[0, 1]),
        &named("big", &[0; 3]),
        &long,
    ];
    for data in bad {
        for which in [opt::INFO, opt::GO] {
            let input = [option(which, data), option(opt::GO, &named("big", &[0, 0]))].concat();
            let (result, out, _) = talk(3, &input);
            assert_eq!(result.unwrap().export, 0);
            assert_eq!(replies(&out)[0].1, rep::ERR_INVALID);
        }
    }
}

#[test]
fn malformed_beginnings_end_the_negotiation() {
    use HandshakeError as E;
    assert!(matches!(talk(4, &[]).0, Err(E::Flags(4))));
    assert!(matches!(talk(u32::MAX, &[]).0, Err(E::Flags(_))));
    assert!(matches!(talk(3, &[0; 16]).0, Err(E::Magic)));
    assert!(matches!(talk(3, b"GET / HTTP/1.1\r\n\r\n").0, Err(E::Magic)));
    for n in 0..20 {
        let input = &option(opt::GO, &named("big", &[0, 0]))[..n];
        assert!(matches!(talk(3, input).0, Err(E::Closed)));
    }
    let mut half = Wire { input: Cursor::new(vec![0, 0]), output: Vec::new() };
    assert!(matches!(negotiate(&mut half, &exports()), Err(E::Closed)));
}

#[test]
fn option_data_and_options_are_bounded() {
    use HandshakeError as E;
    for which in [opt::GO, opt::LIST, 4711] {
        for len in [MAX_OPTION_BYTES + 1, u32::MAX] {
            let (result, out, read) = talk(3, &OptionHeader { option: which, len }.encode());
            assert!(matches!(result, Err(E::TooLong { option, .. }) if option == which));
            assert_eq!((replies(&out)[0].1, read), (rep::ERR_TOO_BIG, 16));
        }
    }
    let header = OptionHeader { option: opt::EXPORT_NAME, len: u32::MAX }.encode();
    let (result, out, _) = talk(3, &header);
    assert!(matches!(result, Err(E::TooLong { .. })) && out.is_empty());

    let flood = option(opt::LIST, &[]).repeat(10_000);
    let (result, out, read) = talk(3, &flood);
    assert!(matches!(result, Err(E::TooMany)));
    assert_eq!((replies(&out).len(), read), (3 * MAX_OPTIONS, 16 * MAX_OPTIONS));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_options_end_without_a_panic_and_with_well_formed_replies(
        flags in prop_oneof![4 => Just(3u32), 1 => any::<u32>()],
        options in proptest::collection::vec(
            (prop_oneof![9 => 2u32..12, 1 => any::<u32>()],
             prop_oneof![
                 3 => proptest::collection::vec(any::<u8>(), 0..40),
                 1 => Just(named("big", &[0, 1, 0, 3])),
                 1 => Just(Vec::new()),
             ]),
            0..20),
        junk in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut input: Vec<u8> = options.iter().flat_map(|(o, data)| option(*o, data)).collect();
        input.extend(junk);
        let (result, out, read) = talk(flags, &input);
        prop_assert!(read <= input.len());
        let replies = replies(&out);
        if result.is_ok() {
            let last = replies.last().map(|r| (r.0, r.1));
            prop_assert_eq!(last, Some((opt::GO, rep::ACK)));
        }
    }
}

#[test]
fn a_client_without_a_seat_gets_the_reason() {
    let named = named("big", &[0, 0]);
    let options =
        [option(opt::INFO, &named), option(opt::GO, &named), option(opt::EXPORT_NAME, b"big")];
    let input = [&3_u32.to_be_bytes()[..], &options.concat()].concat();
    let mut wire = Wire { input: Cursor::new(input), output: Vec::new() };
    let mut asked = Vec::new();
    let result = begin(&mut wire, &exports(), Security::Plain, &mut |export| {
        asked.push(export);
        Err("no seat".to_owned())
    });
    assert!(matches!(result, Err(HandshakeError::Refused(why)) if why == "no seat"));
    assert_eq!(asked, [0, 0], "once for GO and once for EXPORT_NAME");
    let refusal = OptionReply { option: opt::GO, kind: rep::ERR_POLICY, len: 7 }.encode();
    let refusal = [&refusal[..], b"no seat"].concat();
    assert!(wire.output.ends_with(&refusal), "nothing follows the error");
}
