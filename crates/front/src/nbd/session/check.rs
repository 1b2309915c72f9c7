// SPDX-License-Identifier: MIT OR Apache-2.0
//! Validates one request before any of it is executed.
//!
//! Purpose: a pure function from a header to a [`Verdict`], which the session obeys.
//!
//! Where the protocol leaves a choice:
//! - A length of zero succeeds without I/O, if the rest of the request is valid.
//! - `CACHE` is not advertised, but some clients send it; it is a hint, so it succeeds without I/O.
//! - A block status of length zero is an error; without the context it is an unknown command.
//! - `FUA` is accepted with every command, as the protocol requires, and has an effect for writes, trims and zeroings
//!   only.

use larder_core::request::{Errno, Kind};
use larder_nbd::codec::{EPERM, RequestHeader, cmd};
use larder_nbd::status::FLAG_REQ_ONE;
use larder_volume::session::What;

use crate::nbd::export::Export;

/// What the session does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Pass it on.
    Ask(Kind),
    /// Return the extents of the range, or only the first.
    Status {
        /// Whether only the first extent is requested.
        one: bool,
    },
    /// Reply success without I/O.
    Nothing,
    /// Reply an error, with a message.
    Refuse(Errno, &'static str),
    /// The client disconnects.
    Disconnect,
}

/// The limits of an export that a session enforces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    bytes: u64,
    align_mask: u64,
    max_payload: u32,
    read_only: bool,
    passive: bool,
    structured: bool,
    /// Whether `base:allocation` was negotiated.
    pub(super) allocation: bool,
}

impl Rules {
    pub(super) fn new(export: &Export, structured: bool) -> Self {
        Self {
            bytes: export.bytes,
            align_mask: u64::from(export.min_block_bytes).saturating_sub(1),
            max_payload: export.max_payload_bytes,
            read_only: export.read_only,
            passive: export.passive,
            structured,
            allocation: false,
        }
    }

    /// What a volume is asked for a valid request of this kind.
    pub(super) fn what(&self, kind: Kind) -> What {
        match kind {
            Kind::Read if self.passive => What::PassiveRead,
            kind => What::Io(kind),
        }
    }

    /// The flags that a command may have besides `FUA`; `None` if the command is unknown.
    fn flags(&self, command: u16) -> Option<u16> {
        match command {
            cmd::READ if self.structured => Some(cmd::FLAG_DF),
            cmd::WRITE_ZEROES => Some(cmd::FLAG_NO_HOLE),
            cmd::BLOCK_STATUS if self.allocation => Some(FLAG_REQ_ONE),
            cmd::READ | cmd::WRITE | cmd::DISC | cmd::FLUSH | cmd::TRIM | cmd::CACHE => Some(0),
            _ => None,
        }
    }

    pub(super) fn check(&self, h: &RequestHeader) -> Verdict {
        let refuse = |why| Verdict::Refuse(Errno::EINVAL, why);
        if h.command == cmd::DISC {
            return Verdict::Disconnect;
        }
        let Some(flags) = self.flags(h.command) else {
            return refuse("unknown command; accepted: read, write, flush, trim, write zeroes");
        };
        if h.flags & !(flags | cmd::FLAG_FUA) != 0 {
            return refuse("a flag that was not offered for this command");
        }
        let fua = h.flags & cmd::FLAG_FUA != 0;
        let kind = match h.command {
            cmd::READ => Some(Kind::Read),
            cmd::WRITE => Some(Kind::Write { fua }),
            cmd::TRIM => Some(Kind::Trim { fua }),
            cmd::WRITE_ZEROES => {
                Some(Kind::Zero { fua, may_unmap: h.flags & cmd::FLAG_NO_HOLE == 0 })
            }
            cmd::FLUSH if h.offset == 0 && h.len == 0 => return Verdict::Ask(Kind::Flush),
            cmd::FLUSH => return refuse("offset and length of a flush must be zero"),
            _ => None,
        };
        let changes = !matches!(kind, None | Some(Kind::Read));
        if self.read_only && changes {
            return Verdict::Refuse(EPERM, "the export is read-only");
        }
        if let Some(refusal) = self.check_range(h) {
            return refusal;
        }
        if h.command == cmd::BLOCK_STATUS {
            return match h.len {
                0 => refuse("the length of a block status must not be zero"),
                _ => Verdict::Status { one: h.flags & FLAG_REQ_ONE != 0 },
            };
        }
        match kind {
            Some(kind) if h.len > 0 => Verdict::Ask(kind),
            _ => Verdict::Nothing,
        }
    }

    fn check_range(&self, h: &RequestHeader) -> Option<Verdict> {
        let refuse = |why| Some(Verdict::Refuse(Errno::EINVAL, why));
        if (h.offset | u64::from(h.len)) & self.align_mask != 0 {
            return refuse("offset and length must be multiples of the minimum block size");
        }
        if matches!(h.command, cmd::READ | cmd::WRITE) && h.len > self.max_payload {
            return refuse("the length exceeds the maximum payload");
        }
        let end = h.offset.checked_add(u64::from(h.len));
        if end.is_none_or(|end| end > self.bytes) {
            let extends = matches!(h.command, cmd::WRITE | cmd::WRITE_ZEROES);
            let errno = if extends { Errno::ENOSPC } else { Errno::EINVAL };
            return Some(Verdict::Refuse(errno, "the range exceeds the size of the export"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn verdict(
        change: fn(&mut Export),
        command: u16,
        flags: u16,
        offset: u64,
        len: u32,
    ) -> Verdict {
        let mut export = Export::new("", MIB);
        change(&mut export);
        Rules::new(&export, true).check(&RequestHeader { flags, command, cookie: 1, offset, len })
    }

    fn code(command: u16, flags: u16, offset: u64, len: u32) -> i32 {
        match verdict(|_| (), command, flags, offset, len) {
            Verdict::Refuse(errno, _) => errno.0,
            _ => 0,
        }
    }

    #[test]
    fn valid_requests_map_to_their_kind() {
        let ask = |command, flags| verdict(|_| (), command, flags, 512, 1024);
        assert_eq!(ask(cmd::READ, cmd::FLAG_DF), Verdict::Ask(Kind::Read));
        assert_eq!(ask(cmd::READ, cmd::FLAG_FUA), Verdict::Ask(Kind::Read));
        assert_eq!(ask(cmd::WRITE, 0), Verdict::Ask(Kind::Write { fua: false }));
        assert_eq!(ask(cmd::WRITE, cmd::FLAG_FUA), Verdict::Ask(Kind::Write { fua: true }));
        assert_eq!(ask(cmd::TRIM, cmd::FLAG_FUA), Verdict::Ask(Kind::Trim { fua: true }));
        let zero = |may_unmap| Verdict::Ask(Kind::Zero { fua: false, may_unmap });
        assert_eq!(ask(cmd::WRITE_ZEROES, 0), zero(true));
        assert_eq!(ask(cmd::WRITE_ZEROES, cmd::FLAG_NO_HOLE), zero(false));
        assert_eq!(ask(cmd::CACHE, 0), Verdict::Nothing);
        assert_eq!(ask(cmd::DISC, 0xffff), Verdict::Disconnect);
        assert_eq!(verdict(|_| (), cmd::FLUSH, 0, 0, 0), Verdict::Ask(Kind::Flush));
    }

    #[test]
    fn ranges_beyond_the_export_are_rejected() {
        assert_eq!(code(cmd::READ, 0, MIB - 512, 512), 0);
        assert_eq!(code(cmd::READ, 0, MIB - 512, 1024), 22);
        assert_eq!(code(cmd::TRIM, 0, MIB, 512), 22);
        assert_eq!(code(cmd::WRITE, 0, MIB, 512), 28);
        assert_eq!(code(cmd::WRITE_ZEROES, 0, 0, u32::MAX - 511), 28);
        assert_eq!(code(cmd::WRITE, 0, 0u64.wrapping_sub(512), 1024), 28);
        assert_eq!(code(cmd::READ, 0, 0u64.wrapping_sub(512), 512), 22);
    }

    #[test]
    fn requests_without_effect_succeed() {
        for command in [cmd::READ, cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES, cmd::CACHE] {
            assert_eq!(verdict(|_| (), command, 0, 512, 0), Verdict::Nothing);
            assert_eq!(verdict(|_| (), command, 0, MIB, 0), Verdict::Nothing);
            assert_ne!(code(command, 0, MIB + 512, 0), 0);
        }
    }

    #[test]
    fn invalid_requests_are_rejected() {
        assert_eq!(code(cmd::READ, 0, 1, 512), 22);
        assert_eq!(code(cmd::WRITE, 0, 0, 511), 22);
        assert_eq!(code(cmd::BLOCK_STATUS, 0, 0, 512), 22);
        assert_eq!(code(99, 0, 0, 512), 22);
        assert_eq!(code(cmd::WRITE, cmd::FLAG_DF, 0, 512), 22);
        assert_eq!(code(cmd::WRITE_ZEROES, cmd::FLAG_FAST_ZERO, 0, 512), 22);
        assert_eq!(code(cmd::READ, 1 << 15, 0, 512), 22);
        assert_eq!(code(cmd::FLUSH, 0, 0, 512), 22);
        assert_eq!(code(cmd::FLUSH, 0, 512, 0), 22);
        let big = |command| verdict(|e| e.bytes = 1 << 40, command, 0, 0, 33 << 20);
        assert!(matches!(big(cmd::READ), Verdict::Refuse(Errno::EINVAL, _)));
        assert!(matches!(big(cmd::WRITE), Verdict::Refuse(Errno::EINVAL, _)));
        assert!(matches!(big(cmd::TRIM), Verdict::Ask(_)));
        let plain = Rules::new(&Export::new("", MIB), false);
        let flags = cmd::FLAG_DF;
        let read = RequestHeader { flags, command: cmd::READ, cookie: 1, offset: 0, len: 512 };
        assert!(matches!(plain.check(&read), Verdict::Refuse(Errno::EINVAL, _)));
    }

    #[test]
    fn block_status_needs_its_negotiated_context() {
        let mut rules = Rules::new(&Export::new("", MIB), true);
        let command = cmd::BLOCK_STATUS;
        let header = |flags, offset, len| RequestHeader { flags, command, cookie: 1, offset, len };
        assert!(matches!(rules.check(&header(0, 0, 512)), Verdict::Refuse(Errno::EINVAL, _)));
        rules.allocation = true;
        assert_eq!(rules.check(&header(0, 512, 512)), Verdict::Status { one: false });
        let one = rules.check(&header(FLAG_REQ_ONE | cmd::FLAG_FUA, 0, MIB as u32));
        assert_eq!(one, Verdict::Status { one: true });
        for (flags, offset, len) in [
            (0, 0, 0),
            (0, MIB, 0),
            (0, MIB, 512),
            (0, 0, u32::MAX - 511),
            (0, 0u64.wrapping_sub(512), 1024),
            (0, 1, 512),
            (0, 0, 100),
            (cmd::FLAG_DF, 0, 512),
            (cmd::FLAG_NO_HOLE, 0, 512),
        ] {
            let refused = rules.check(&header(flags, offset, len));
            assert!(matches!(refused, Verdict::Refuse(Errno::EINVAL, _)), "{flags} {offset} {len}");
        }
        let read = RequestHeader { command: cmd::READ, ..header(FLAG_REQ_ONE, 0, 512) };
        assert!(matches!(rules.check(&read), Verdict::Refuse(Errno::EINVAL, _)));
    }

    #[test]
    fn a_read_only_export_rejects_every_change() {
        let ro = |command| verdict(|e| e.read_only = true, command, 0, 0, 512);
        for command in [cmd::WRITE, cmd::TRIM, cmd::WRITE_ZEROES] {
            assert!(matches!(ro(command), Verdict::Refuse(EPERM, _)));
        }
        assert_eq!(ro(cmd::READ), Verdict::Ask(Kind::Read));
        assert_eq!(verdict(|e| e.read_only = true, cmd::FLUSH, 0, 0, 0), Verdict::Ask(Kind::Flush));
    }
}
