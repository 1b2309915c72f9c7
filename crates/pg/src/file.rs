// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which file of a data directory a path names.
//!
//! Relation files are `base/<database>/<relation>`, `global/<relation>` and
//! `pg_tblspc/<tablespace>/<version>/<database>/<relation>`, then `_fsm`, `_vm` or `_init` for another fork, then
//! `.<n>` for a segment but the first. Temporary relations (`t<backend>_<relation>`) belong to one process and are
//! not cached. Segments of the write-ahead log are `pg_wal/<24 hexadecimal digits>`.

/// A fork of a relation: all its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fork {
    /// OID of the tablespace.
    pub tablespace: u32,
    /// OID of the database, 0 of shared relations.
    pub database: u32,
    /// Number of the relation's files.
    pub relation: u32,
    /// 0 main, 1 free space map, 2 visibility map, 3 init.
    pub kind: u8,
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum File {
    /// Nothing.
    #[default]
    Other,
    /// A segment of a fork.
    Segment(Fork, u32),
    /// `global/pg_control`.
    Control,
    /// A segment of the write-ahead log.
    Wal(Segment),
}

/// A segment of the write-ahead log: its name as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The timeline.
    pub timeline: u32,
    /// The rest of the name.
    pub number: u64,
}

impl Segment {
    /// Of a file in `pg_wal`: 24 hexadecimal digits.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(name).ok()?;
        let digits = |b: u8| b.is_ascii_digit() || (b'A'..=b'F').contains(&b);
        if name.len() != 24 || !name.bytes().all(digits) {
            return None;
        }
        let timeline = u32::from_str_radix(&name[..8], 16).ok()?;
        let number = u64::from_str_radix(&name[8..], 16).ok()?;
        Some(Self { timeline, number })
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> String {
        format!("{:08X}{:016X}", self.timeline, self.number)
    }
}

const DEFAULT_TABLESPACE: u32 = 1663;
const GLOBAL_TABLESPACE: u32 = 1664;

impl File {
    /// What a path names: one below `data`, or relative to it, as a server's working directory is.
    #[must_use]
    pub fn of(path: &[u8], data: &[u8]) -> Self {
        let below = path.strip_prefix(data).and_then(|rest| rest.strip_prefix(b"/"));
        let path = below.unwrap_or(path);
        let path = path.strip_prefix(b"./").unwrap_or(path);
        if path == b"global/pg_control" {
            return Self::Control;
        }
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|p| !p.is_empty()).collect();
        let (tablespace, database, name) = match parts[..] {
            [b"base", database, name] => (Some(DEFAULT_TABLESPACE), number(database), name),
            [b"global", name] => (Some(GLOBAL_TABLESPACE), Some(0), name),
            [b"pg_tblspc", space, _, database, name] => (number(space), number(database), name),
            [b"pg_wal", name] => return Segment::of(name).map_or(Self::Other, Self::Wal),
            _ => return Self::Other,
        };
        let (Some(tablespace), Some(database)) = (tablespace, database) else { return Self::Other };
        let Some((relation, kind, segment)) = parse(name) else { return Self::Other };
        Self::Segment(Fork { tablespace, database, relation, kind }, segment)
    }
}

impl Fork {
    /// The path of a segment, relative to the data directory; `version` names the server's directory in a tablespace.
    #[must_use]
    pub fn path(&self, segment: u64, version: &str) -> String {
        let Self { tablespace, database, relation, kind } = *self;
        let fork = ["", "_fsm", "_vm", "_init"][usize::from(kind & 3)];
        let segment = if segment == 0 { String::new() } else { format!(".{segment}") };
        let name = format!("{relation}{fork}{segment}");
        match tablespace {
            DEFAULT_TABLESPACE => format!("base/{database}/{name}"),
            GLOBAL_TABLESPACE => format!("global/{name}"),
            _ => format!("pg_tblspc/{tablespace}/{version}/{database}/{name}"),
        }
    }
}

/// A number as the server writes it: digits, no leading zero.
fn number(text: &[u8]) -> Option<u32> {
    let plain = text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || text[0] != b'0');
    if text.is_empty() || !plain {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Relation, fork and segment.
fn parse(name: &[u8]) -> Option<(u32, u8, u32)> {
    let mut dots = name.splitn(2, |b| *b == b'.');
    let (base, segment) = (dots.next()?, dots.next());
    let segment = segment.map_or(Some(0), |s| number(s).filter(|s| *s > 0))?;
    let mut parts = base.splitn(2, |b| *b == b'_');
    let relation = number(parts.next()?)?;
    let kind = match parts.next() {
        None => 0,
        Some(b"fsm") => 1,
        Some(b"vm") => 2,
        Some(b"init") => 3,
        Some(_) => return None,
    };
    Some((relation, kind, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork(tablespace: u32, database: u32, relation: u32, kind: u8) -> Fork {
        Fork { tablespace, database, relation, kind }
    }

    #[test]
    fn paths_of_relations_are_known_and_made() {
        for (path, fork, segment) in [
            ("base/5/16384", fork(1663, 5, 16384, 0), 0),
            ("base/5/16384.3", fork(1663, 5, 16384, 0), 3),
            ("base/5/16384_fsm", fork(1663, 5, 16384, 1), 0),
            ("base/5/16384_vm.1", fork(1663, 5, 16384, 2), 1),
            ("global/1262", fork(1664, 0, 1262, 0), 0),
            ("pg_tblspc/77/PG_15_202209061/5/9_init", fork(77, 5, 9, 3), 0),
        ] {
            assert_eq!(File::of(path.as_bytes(), b"/data"), File::Segment(fork, segment), "{path}");
            assert_eq!(fork.path(segment.into(), "PG_15_202209061"), path);
            let whole = format!("/data/{path}");
            assert_eq!(File::of(whole.as_bytes(), b"/data"), File::Segment(fork, segment));
        }
        assert_eq!(File::of(b"global/pg_control", b"/data"), File::Control);
        assert_eq!(File::of(b"./base/5/1", b"/data"), File::Segment(fork(1663, 5, 1, 0), 0));
    }

    #[test]
    fn other_files_are_not() {
        for path in [
            "base/5/t3_16384",
            "base/5/PG_VERSION",
            "base/5/pg_filenode.map",
            "base/5/16384.0",
            "base/5/16384_tmp",
            "base/5/016384",
            "base/5/99999999999",
            "base/pgsql_tmp/pgsql_tmp1.0",
            "global/pg_control.tmp",
            "/elsewhere/base/5/16384",
            "base/5/16384/x",
            "",
        ] {
            assert_eq!(File::of(path.as_bytes(), b"/data"), File::Other, "{path}");
        }
    }

    #[test]
    fn segments_have_names() {
        let segment = Segment { timeline: 3, number: 0x0000_000A_0000_00FE };
        assert_eq!(segment.name(), "000000030000000A000000FE");
        assert_eq!(Segment::of(segment.name().as_bytes()), Some(segment));
        for other in ["00000003.history", "xlogtemp.123", "000000030000000a000000fe", ""] {
            assert_eq!(Segment::of(other.as_bytes()), None);
        }
    }
}
