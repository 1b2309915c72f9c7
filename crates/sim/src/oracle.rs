// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reads may return: linearisability per 512-byte sector, and what a flush must have kept.
//!
//! Purpose: the judge of every test of the engine. Each write puts a value of its own into each
//! of its sectors (sector number and write number), so a read says which write it saw, and a
//! byte from the wrong place, a torn mix and an old value are told apart.
//!
//! Theory: a history of a register whose writes are unique is linearisable exactly if, with one
//! zone per write (from the earliest end to the latest start among the write and its reads), no
//! two forward zones overlap and no backward zone lies inside a forward one (Gibbons and Korach,
//! 1997). Zeroes come from many trims and zeroings, so a zero is held to the weaker rule that
//! some zeroing could still have been the latest, and other values that no zeroing must have
//! wiped them out.

use std::collections::BTreeMap;

use larder_core::buf::SECTOR;
use larder_core::exec::Nanos;

/// The number of a write; 0 is what the device held before.
pub type WriteId = u64;

const MAGIC: u64 = 0x4c61_7264_6572_2121;

/// Fills a sector with the value of a write.
pub fn fill(sector: u64, write: WriteId, bytes: &mut [u8]) {
    for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = match i % 4 {
            0 => MAGIC,
            1 => sector,
            2 => write,
            _ => MAGIC ^ sector ^ write.rotate_left(17),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// What a sector was found to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The value of a write.
    Of(WriteId),
    /// Zeroes.
    Zero,
}

/// Reads a sector's value; an error says what is wrong with it.
pub fn value(sector: u64, bytes: &[u8]) -> Result<Value, String> {
    if bytes.iter().all(|b| *b == 0) {
        return Ok(Value::Zero);
    }
    let word = |i: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
        u64::from_le_bytes(word)
    };
    if word(0) != MAGIC {
        return Err(format!("sector {sector} holds bytes that nobody wrote"));
    }
    let write = word(2);
    let mut expected = [0; SECTOR];
    fill(word(1), write, &mut expected);
    if bytes != expected {
        return Err(format!("sector {sector} holds a torn mix, begun with write {write}"));
    }
    if word(1) != sector {
        return Err(format!("sector {sector} holds the bytes of sector {}", word(1)));
    }
    Ok(Value::Of(write))
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: Nanos,
    /// `Nanos::MAX` while not answered, or answered with an error.
    end: Nanos,
}

#[derive(Clone, Debug, Default)]
struct Sector {
    writes: BTreeMap<WriteId, Span>,
    zeroes: Vec<(WriteId, Span)>,
    reads: Vec<(Value, Span)>,
}

/// The judge of one volume's history, see the module.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    sectors: BTreeMap<u64, Sector>,
    next: WriteId,
}

fn sectors(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / SECTOR as u64..(offset + len).div_ceil(SECTOR as u64)
}

impl Oracle {
    /// A write begins; its number, and the bytes it is to write.
    pub fn write_begins(&mut self, offset: u64, len: u64, now: Nanos) -> (WriteId, Vec<u8>) {
        self.next += 1;
        let mut bytes = vec![0; len as usize];
        for (chunk, sector) in bytes.chunks_mut(SECTOR).zip(sectors(offset, len)) {
            fill(sector, self.next, chunk);
            let span = Span { start: now, end: Nanos::MAX };
            self.sectors.entry(sector).or_default().writes.insert(self.next, span);
        }
        (self.next, bytes)
    }

    /// A trim or zeroing begins; its number.
    pub fn zero_begins(&mut self, offset: u64, len: u64, now: Nanos) -> WriteId {
        self.next += 1;
        for sector in sectors(offset, len) {
            let span = Span { start: now, end: Nanos::MAX };
            self.sectors.entry(sector).or_default().zeroes.push((self.next, span));
        }
        self.next
    }

    /// A write, trim or zeroing was answered without error.
    pub fn answered(&mut self, id: WriteId, offset: u64, len: u64, now: Nanos) {
        for sector in sectors(offset, len) {
            let sector = self.sectors.entry(sector).or_default();
            if let Some(span) = sector.writes.get_mut(&id) {
                span.end = now;
            }
            if let Some((_, span)) = sector.zeroes.iter_mut().find(|(i, _)| *i == id) {
                span.end = now;
            }
        }
    }

    /// A read returned these bytes; an error if a sector's content can not be right.
    pub fn read(
        &mut self,
        offset: u64,
        bytes: &[u8],
        start: Nanos,
        end: Nanos,
    ) -> Result<(), String> {
        for (chunk, number) in bytes.chunks(SECTOR).zip(sectors(offset, bytes.len() as u64)) {
            let seen = value(number, chunk)?;
            let span = Span { start, end };
            let Some(sector) = self.sectors.get_mut(&number) else {
                if seen == Value::Of(0) {
                    continue;
                }
                return Err(format!("sector {number}, which nobody wrote, holds {seen:?}"));
            };
            sector.check_read(seen, span).map_err(|e| format!("sector {number}: {e}"))?;
            sector.reads.push((seen, span));
        }
        Ok(())
    }

    /// Judges the whole history.
    pub fn judge(&self) -> Result<(), String> {
        for (number, sector) in &self.sectors {
            sector.judge().map_err(|e| format!("sector {number}: {e}"))?;
        }
        Ok(())
    }

    /// Whether `found` may be what a sector durably holds, after a flush asked for at `flushed`
    /// completed: not older than any write that had been answered by then.
    pub fn durable(&self, number: u64, found: &[u8], flushed: Nanos) -> Result<(), String> {
        let Some(sector) = self.sectors.get(&number) else { return Ok(()) };
        let span = Span { start: flushed, end: Nanos::MAX };
        let seen = value(number, found)?;
        sector.check_read(seen, span).map_err(|e| format!("durable sector {number}: {e}"))
    }

    /// Whether `found` may be what a sector durably holds, once write `id` was answered under
    /// FUA: not older than that write.
    pub fn durable_fua(&self, number: u64, found: &[u8], id: WriteId) -> Result<(), String> {
        let seen = value(number, found)?;
        let Some(sector) = self.sectors.get(&number) else { return Ok(()) };
        let Some(write) = sector.writes.get(&id) else { return Ok(()) };
        let (seen_id, ended) = match seen {
            Value::Of(0) => (0, 0),
            Value::Of(id) => (id, sector.writes.get(&id).map_or(Nanos::MAX, |s| s.end)),
            Value::Zero => return Ok(()),
        };
        if seen_id != id && ended < write.start {
            return Err(format!(
                "sector {number} durably holds write {seen_id}, older than the answered FUA write {id}"
            ));
        }
        Ok(())
    }

    /// The world goes on after a crash in which `sector` was found to hold `found`: that is its
    /// only past from now on, at times up to [`Oracle::PAST`].
    pub fn restart(&mut self, found: &[(u64, Value)]) {
        self.sectors.clear();
        for (number, value) in found {
            let sector = self.sectors.entry(*number).or_default();
            let span = Span { start: Self::PAST, end: Self::PAST };
            match value {
                Value::Of(0) => {}
                Value::Of(id) => drop(sector.writes.insert(*id, span)),
                Value::Zero => sector.zeroes.push((0, span)),
            }
        }
    }

    /// When the past before a crash ended, see [`Oracle::restart`].
    pub const PAST: Nanos = 1;

    /// The sectors that were ever written, trimmed or zeroed.
    pub fn touched(&self) -> impl Iterator<Item = u64> {
        self.sectors.iter().filter(|(_, s)| s.writes.len() + s.zeroes.len() > 0).map(|(n, _)| *n)
    }
}

impl Sector {
    /// Whether something that must have come after `early` had ended before `read` began.
    fn overwritten(&self, early: Span, read: Span) -> Option<WriteId> {
        let wiped = |s: &Span| early.end < s.start && s.end < read.start;
        let write = self.writes.iter().find(|(_, s)| wiped(s)).map(|(id, _)| *id);
        write.or_else(|| self.zeroes.iter().find(|(_, s)| wiped(s)).map(|(id, _)| *id))
    }

    fn check_read(&self, seen: Value, read: Span) -> Result<(), String> {
        let before = Span { start: 0, end: 0 };
        let stale = |id: WriteId, by: WriteId| {
            Err(format!(
                "a read at {}..{} saw write {id}, but write {by} came after it and was answered before the read began",
                read.start, read.end
            ))
        };
        match seen {
            Value::Of(id) => {
                let write = if id == 0 { Some(before) } else { self.writes.get(&id).copied() };
                let Some(write) = write else {
                    return Err(format!("saw write {id}, which never wrote here"));
                };
                if write.start > read.end {
                    return Err(format!("saw write {id} before it began"));
                }
                self.overwritten(write, read).map_or(Ok(()), |by| stale(id, by))
            }
            Value::Zero => {
                let begun = |(_, z): &&(WriteId, Span)| z.start <= read.end;
                let fresh = |(_, z): &(WriteId, Span)| self.overwritten(*z, read).is_none();
                if self.zeroes.iter().filter(begun).any(fresh) {
                    return Ok(());
                }
                Err(format!(
                    "a read at {}..{} saw zeroes that nothing explains",
                    read.start, read.end
                ))
            }
        }
    }

    fn judge(&self) -> Result<(), String> {
        // (earliest end, latest start, write) of each write that was seen or answered.
        let mut zones: Vec<(Nanos, Nanos, WriteId)> = vec![(0, 0, 0)];
        zones.extend(self.writes.iter().map(|(id, s)| (s.end, s.start, *id)));
        for (seen, read) in &self.reads {
            let Value::Of(id) = seen else { continue };
            if let Some(zone) = zones.iter_mut().find(|z| z.2 == *id) {
                *zone = (zone.0.min(read.end), zone.1.max(read.start), *id);
            }
        }
        let forward = |z: &&(Nanos, Nanos, WriteId)| z.0 < z.1;
        for a in zones.iter().filter(forward) {
            for b in zones.iter().filter(|b| b.2 != a.2 && b.0 != Nanos::MAX) {
                // b's zone overlaps a's (both forward) or lies inside it (b backward).
                let clash = a.0 < b.1 && b.0 < a.1;
                if clash {
                    return Err(format!(
                        "no order of writes {} and {} explains all reads",
                        a.2, b.2
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector_of(write: WriteId) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        fill(3, write, &mut bytes);
        bytes
    }

    /// A history over sector 3: writes 1 and 2 at 10..20 and 15..40.
    fn two_writes() -> Oracle {
        let mut oracle = Oracle::default();
        let (first, _) = oracle.write_begins(1536, 512, 10);
        let (second, _) = oracle.write_begins(1536, 512, 15);
        oracle.answered(first, 1536, 512, 20);
        oracle.answered(second, 1536, 512, 40);
        oracle
    }

    #[test]
    fn concurrent_writes_may_take_either_order_but_only_one() {
        let mut oracle = two_writes();
        oracle.read(1536, &sector_of(2), 16, 18).unwrap();
        oracle.read(1536, &sector_of(1), 50, 55).unwrap();
        oracle.judge().unwrap();
        oracle.read(1536, &sector_of(2), 60, 65).unwrap();
        assert!(oracle.judge().is_err(), "2, then 1, then 2 again");
    }

    #[test]
    fn stale_future_foreign_and_torn_values_are_told() {
        let mut oracle = two_writes();
        let mut read = |w, s, e| oracle.read(1536, &sector_of(w), s, e);
        assert!(read(0, 50, 60).unwrap_err().contains("came after it"));
        assert!(read(2, 5, 9).unwrap_err().contains("before it began"));
        assert!(read(9, 50, 60).unwrap_err().contains("never wrote"));
        let mut torn = sector_of(1);
        torn[256..].copy_from_slice(&sector_of(2)[256..]);
        assert!(oracle.read(1536, &torn, 50, 60).unwrap_err().contains("torn"));
        assert!(oracle.read(1024, &sector_of(1), 50, 60).unwrap_err().contains("of sector 3"));
    }

    #[test]
    fn new_then_old_is_no_order() {
        let mut oracle = Oracle::default();
        let (_, _) = oracle.write_begins(1536, 512, 10); // never answered
        oracle.read(1536, &sector_of(1), 20, 30).unwrap();
        oracle.read(1536, &sector_of(0), 40, 50).unwrap();
        assert!(oracle.judge().is_err());
    }

    #[test]
    fn zeroes_need_a_zeroing_that_nothing_wiped_out() {
        let mut oracle = two_writes();
        assert!(oracle.read(1536, &[0; 512], 50, 60).is_err());
        let zero = oracle.zero_begins(1536, 512, 70);
        oracle.answered(zero, 1536, 512, 80);
        oracle.read(1536, &[0; 512], 90, 95).unwrap();
        assert!(oracle.read(1536, &sector_of(2), 90, 95).is_err());
    }
}
