// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reads may return: linearisability per 512-byte sector, and what a flush must have made durable.
//!
//! Purpose: the judge of every test of the engine. Each write puts a value of its own into each
//! of its sectors (sector number and write number), so a read shows which write it saw, and the oracle
//! distinguishes a byte from the wrong place, a torn mix and an old value.
//!
//! Theory: a history of a register whose writes are unique is linearisable exactly if, with one
//! zone per write (from the earliest end to the latest start among the write and its reads), no
//! two forward zones overlap and no backward zone lies inside a forward one (Gibbons and Korach,
//! 1997). Zeroes come from many trims and zeroings, so a zero is checked by the weaker rule that
//! some zeroing can have been the latest, and another value by the rule that no zeroing must have
//! erased it.

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

/// The sector and the write whose value these bytes are, if they are one.
#[must_use]
pub fn write_of(bytes: &[u8]) -> Option<(u64, WriteId)> {
    let (words, rest) = bytes.as_chunks::<8>();
    let word = |i: usize| words.get(i).map(|w| u64::from_le_bytes(*w));
    let (magic, sector, write, check) = (word(0)?, word(1)?, word(2)?, word(3)?);
    if magic != MAGIC || check != MAGIC ^ sector ^ write.rotate_left(17) {
        return None;
    }
    let whole = words.chunks(4).all(|four| four == &words[..four.len()]);
    (whole && rest.is_empty()).then_some((sector, write))
}

/// Reads a sector's value; an error states what is wrong with it.
pub fn value(sector: u64, bytes: &[u8]) -> Result<Value, String> {
    match write_of(bytes) {
        Some((own, write)) if own == sector => return Ok(Value::Of(write)),
        Some((other, _)) => return Err(format!("it holds the bytes of sector {other}")),
        None => {}
    }
    if bytes.iter().all(|b| *b == 0) {
        return Ok(Value::Zero);
    }
    if bytes.starts_with(&MAGIC.to_le_bytes()) {
        return Err("it holds a torn mix".to_owned());
    }
    Err("it holds bytes that no client wrote".to_owned())
}

/// What is wrong with a sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its number.
    pub sector: u64,
    /// Why.
    pub what: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sector {}: {}", self.sector, self.what)
    }
}

impl From<Wrong> for String {
    fn from(wrong: Wrong) -> Self {
        wrong.to_string()
    }
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: Nanos,
    /// `Nanos::MAX` while not answered, or answered with an error.
    end: Nanos,
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.end {
            Nanos::MAX => write!(f, "whatever happened from {} ns on", self.start),
            end => write!(f, "a read at {}..{end} ns", self.start),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Write {
    id: WriteId,
    span: Span,
    /// Its zone: the earliest end and the latest start among it and its reads.
    zone: (Nanos, Nanos),
}

#[derive(Clone, Debug, Default)]
struct Sector {
    number: u64,
    /// In the order of their numbers, so of their starts too.
    writes: Vec<Write>,
    zeroes: Vec<(WriteId, Span)>,
    /// The zone of what the device held before.
    before: Option<(Nanos, Nanos)>,
    /// When the latest write began that was answered under FUA.
    fua: Option<Nanos>,
    /// All that were answered under FUA.
    fuas: Vec<Span>,
}

/// The judge of one volume's history, see the module.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// One more than the place of a sector's state, 0 for none.
    index: Vec<u32>,
    sectors: Vec<Sector>,
    next: WriteId,
    /// Flushes that were answered.
    flushes: Vec<Span>,
}

fn sectors(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / SECTOR as u64..(offset + len).div_ceil(SECTOR as u64)
}

impl Oracle {
    fn get(&self, number: u64) -> Option<&Sector> {
        let place = self.index.get(number as usize)?.checked_sub(1)?;
        self.sectors.get(place as usize)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Sector> {
        let place = self.index.get(number as usize)?.checked_sub(1)?;
        self.sectors.get_mut(place as usize)
    }

    fn entry(&mut self, number: u64) -> &mut Sector {
        let at = number as usize;
        if self.index.len() <= at {
            self.index.resize(at + 1, 0);
        }
        if self.index[at] == 0 {
            self.sectors.push(Sector { number, ..Sector::default() });
            self.index[at] = self.sectors.len() as u32;
        }
        &mut self.sectors[self.index[at] as usize - 1]
    }

    /// A write begins; returns its number, and the bytes that it writes.
    pub fn write_begins(&mut self, offset: u64, len: u64, now: Nanos) -> (WriteId, Vec<u8>) {
        self.next += 1;
        let id = self.next;
        let mut bytes = vec![0; len as usize];
        for (chunk, sector) in bytes.chunks_mut(SECTOR).zip(sectors(offset, len)) {
            fill(sector, id, chunk);
            let span = Span { start: now, end: Nanos::MAX };
            self.entry(sector).writes.push(Write { id, span, zone: (Nanos::MAX, now) });
        }
        (id, bytes)
    }

    /// A trim or zeroing begins; its number.
    pub fn zero_begins(&mut self, offset: u64, len: u64, now: Nanos) -> WriteId {
        self.next += 1;
        let id = self.next;
        for sector in sectors(offset, len) {
            let span = Span { start: now, end: Nanos::MAX };
            self.entry(sector).zeroes.push((id, span));
        }
        id
    }

    /// A write, trim or zeroing was answered without error.
    pub fn answered(&mut self, id: WriteId, offset: u64, len: u64, now: Nanos) {
        for sector in sectors(offset, len) {
            let sector = self.entry(sector);
            if let Some(write) = sector.write_mut(id) {
                write.span.end = now;
                write.zone.0 = write.zone.0.min(now);
            } else if let Some((_, span)) = sector.zeroes.iter_mut().find(|(i, _)| *i == id) {
                span.end = now;
            }
        }
    }

    /// The write, trim or zeroing that was answered was one under FUA: nothing older may be read afterwards.
    pub fn answered_fua(&mut self, id: WriteId, offset: u64, len: u64) {
        for sector in sectors(offset, len) {
            let sector = self.entry(sector);
            let zero = || sector.zeroes.iter().find(|(i, _)| *i == id).map(|(_, span)| *span);
            let span = sector.write(id).map(|w| w.span).or_else(zero);
            sector.fua = sector.fua.max(span.map(|span| span.start));
            sector.fuas.extend(span);
        }
    }

    /// A read returned these bytes; an error if a sector's content cannot be right.
    ///
    /// # Errors
    /// The first sector that is wrong.
    pub fn read(
        &mut self,
        offset: u64,
        bytes: &[u8],
        start: Nanos,
        end: Nanos,
    ) -> Result<(), Wrong> {
        for (chunk, number) in bytes.chunks(SECTOR).zip(sectors(offset, bytes.len() as u64)) {
            self.read_sector(number, chunk, start, end)?;
        }
        Ok(())
    }

    /// As [`Oracle::read`], of one sector.
    ///
    /// # Errors
    /// What is wrong.
    pub fn read_sector(
        &mut self,
        number: u64,
        bytes: &[u8],
        start: Nanos,
        end: Nanos,
    ) -> Result<(), Wrong> {
        let wrong = |what| Wrong { sector: number, what };
        let seen = value(number, bytes).map_err(wrong)?;
        let span = Span { start, end };
        let Some(sector) = self.get_mut(number) else {
            if seen == Value::Of(0) {
                return Ok(());
            }
            return Err(wrong(format!("no client wrote it, and it holds {seen:?}")));
        };
        sector.check_read(seen, span).map_err(wrong)?;
        sector.note_read(seen, span);
        Ok(())
    }

    /// Whether a read may have returned this sector; it is not part of the history.
    #[must_use]
    pub fn could_be(&self, number: u64, bytes: &[u8], start: Nanos, end: Nanos) -> bool {
        let Ok(seen) = value(number, bytes) else { return false };
        let span = Span { start, end };
        self.get(number).map_or(seen == Value::Of(0), |s| s.check_read(seen, span).is_ok())
    }

    /// Judges the whole history.
    ///
    /// # Errors
    /// A sector whose history has no order.
    pub fn judge(&self) -> Result<(), Wrong> {
        let mut zones = Vec::new();
        for sector in &self.sectors {
            let wrong = |what| Wrong { sector: sector.number, what };
            sector.judge(&mut zones).map_err(wrong)?;
        }
        Ok(())
    }

    /// Whether `found` may be what a sector durably holds, after a flush asked for at `flushed`
    /// completed: not older than any write that had been answered at that time.
    ///
    /// # Errors
    /// Why not.
    pub fn durable(&self, number: u64, seen: Value, flushed: Nanos) -> Result<(), Wrong> {
        let Some(sector) = self.get(number) else { return Ok(()) };
        let span = Span { start: flushed, end: Nanos::MAX };
        let wrong = |what| Wrong { sector: number, what: format!("durably, {what}") };
        sector.check_read(seen, span).map_err(wrong)
    }

    /// Whether `seen` may be what a sector durably holds, given what was answered
    /// under FUA: not older than any of them.
    ///
    /// # Errors
    /// Why not.
    pub fn durable_fua(&self, number: u64, seen: Value) -> Result<(), Wrong> {
        let Some(sector) = self.get(number) else { return Ok(()) };
        let Some(fua) = sector.fua else { return Ok(()) };
        if sector.ended(seen).is_some_and(|ended| ended < fua) {
            let what = format!("it durably holds {seen:?}, older than an answered FUA write");
            return Err(Wrong { sector: number, what });
        }
        Ok(())
    }

    /// A flush was answered.
    pub fn flushed(&mut self, start: Nanos, end: Nanos) {
        self.flushes.push(Span { start, end });
    }

    /// Whether a device that holds these values is a state of the volume that a power loss may leave: if it has a write, it also
    /// has what a flush or FUA made durable before that write began. Returns false if it has no write of this history.
    ///
    /// # Errors
    /// A sector that is too old.
    pub fn in_order(&self, found: &[(u64, Value)]) -> Result<bool, Wrong> {
        let began = |(number, value): &(u64, Value)| match *value {
            Value::Of(id) => Some(self.get(*number)?.write(id)?.span.start),
            Value::Zero => None,
        };
        let newest = found.iter().filter_map(began).filter(|start| *start > Self::PAST).max();
        let Some(newest) = newest else { return Ok(false) };
        let before = |span: &&Span| span.end < newest;
        let flushes = self.flushes.iter().filter(before).map(|flush| flush.start);
        // What was found after the last crash was durable.
        let durable = flushes.fold(Self::PAST + 1, Nanos::max);
        for &(number, value) in found {
            self.durable(number, value, durable)?;
            let Some(sector) = self.get(number) else { continue };
            let fua = sector.fuas.iter().filter(before).map(|span| span.start).max();
            if fua.is_some_and(|fua| sector.ended(value).is_some_and(|ended| ended < fua)) {
                let what = format!("it holds {value:?}, older than a FUA write before others");
                return Err(Wrong { sector: number, what });
            }
        }
        Ok(true)
    }

    /// Whether a sector may be zero by a zeroing of this history.
    #[must_use]
    pub fn zeroes(&self, number: u64) -> bool {
        let later = |(_, span): &(WriteId, Span)| span.start > Self::PAST;
        self.get(number).is_some_and(|sector| sector.zeroes.iter().any(later))
    }

    /// The world continues after a crash in which these sectors were found to hold these values:
    /// these become their only past, at times up to [`Oracle::PAST`].
    pub fn restart(&mut self, found: &[(u64, Value)]) {
        self.sectors.clear();
        self.flushes.clear();
        self.index.fill(0);
        for (number, value) in found {
            let sector = self.entry(*number);
            let span = Span { start: Self::PAST, end: Self::PAST };
            match value {
                Value::Of(0) => {}
                Value::Of(id) => {
                    sector.writes.push(Write { id: *id, span, zone: (Self::PAST, Self::PAST) });
                }
                Value::Zero => sector.zeroes.push((0, span)),
            }
        }
    }

    /// When the past before a crash ended, see [`Oracle::restart`].
    pub const PAST: Nanos = 1;

    /// The sectors that were ever written, trimmed or zeroed.
    pub fn touched(&self) -> impl Iterator<Item = u64> {
        let written = |s: &&Sector| s.writes.len() + s.zeroes.len() > 0;
        self.sectors.iter().filter(written).map(|s| s.number)
    }
}

impl Sector {
    fn write(&self, id: WriteId) -> Option<&Write> {
        self.writes.get(self.writes.binary_search_by_key(&id, |w| w.id).ok()?)
    }

    fn write_mut(&mut self, id: WriteId) -> Option<&mut Write> {
        let place = self.writes.binary_search_by_key(&id, |w| w.id).ok()?;
        self.writes.get_mut(place)
    }

    /// When the write or zeroing ended that put this value; `None` if it is of an earlier history.
    fn ended(&self, seen: Value) -> Option<Nanos> {
        match seen {
            Value::Of(0) => Some(0),
            Value::Of(id) => self.write(id).map(|w| w.span.end),
            Value::Zero => self.zeroes.iter().map(|(_, span)| span.end).max(),
        }
    }

    /// Whether something that must have come after `early` had ended before `read` began.
    fn overwritten(&self, early: Span, read: Span) -> Option<WriteId> {
        // Starts never decrease, so the newest are checked first and the rest not at all.
        let later = self.writes.iter().rev().take_while(|w| w.span.start > early.end);
        let write = later.into_iter().find(|w| w.span.end < read.start).map(|w| w.id);
        let wiped = |s: &Span| early.end < s.start && s.end < read.start;
        write.or_else(|| self.zeroes.iter().find(|(_, s)| wiped(s)).map(|(id, _)| *id))
    }

    fn check_read(&self, seen: Value, read: Span) -> Result<(), String> {
        let before = Span { start: 0, end: 0 };
        let stale = |id: WriteId, by: WriteId| {
            Err(format!(
                "{read} saw write {id}, but write {by} came after it and was answered before that began"
            ))
        };
        match seen {
            Value::Of(id) => {
                let write = if id == 0 { Some(before) } else { self.write(id).map(|w| w.span) };
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
                Err(format!("{read} returned zeroes that no write, trim or zeroing explains"))
            }
        }
    }

    fn note_read(&mut self, seen: Value, read: Span) {
        let zone = match seen {
            Value::Of(0) => self.before.get_or_insert((0, 0)),
            Value::Of(id) => match self.write_mut(id) {
                Some(write) => &mut write.zone,
                None => return,
            },
            Value::Zero => return,
        };
        *zone = (zone.0.min(read.end), zone.1.max(read.start));
    }

    /// Whether the zones fit together; `zones` is scratch memory.
    fn judge(&self, zones: &mut Vec<(Nanos, Nanos, WriteId)>) -> Result<(), String> {
        let before = self.before.unwrap_or((0, 0));
        let all = || {
            let writes = self.writes.iter().map(|w| (w.zone.0, w.zone.1, w.id));
            std::iter::once((before.0, before.1, 0)).chain(writes)
        };
        let clash = |a: WriteId, b: WriteId| {
            Err(format!("no order of writes {a} and {b} explains all reads"))
        };
        zones.clear();
        zones.extend(all().filter(|z| z.0 < z.1));
        zones.sort_unstable();
        for pair in zones.windows(2) {
            // Forward zones overlap.
            if pair[1].0 < pair[0].1 {
                return clash(pair[0].2, pair[1].2);
            }
        }
        for inner in all().filter(|z| z.0 >= z.1 && z.0 != Nanos::MAX) {
            // A backward zone inside a forward one: the last that begins before it.
            let place = zones.partition_point(|z| z.0 < inner.1);
            if let Some(outer) = place.checked_sub(1).and_then(|p| zones.get(p))
                && inner.0 < outer.1
            {
                return clash(outer.2, inner.2);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
