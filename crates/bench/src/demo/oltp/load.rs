// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transactions, and the clients that make them.
//!
//! Purpose: nine of ten read four rows by key, one changes a row and is answered when that is on the
//! device. Keys are drawn by Zipf's law, and popular ones lie anywhere in the table.
//!
//! Invariants: every row read is the one that was asked for, in a version that it may have (in the
//! [`Book`] a row is a page); an update makes the next version. When a load ends, in whatever way,
//! its clients' processes end within a bound.
//!
//! Why one update at a time: SQLite has one writer, and programs that know it queue before it
//! rather than let it poll. A client's wait for its turn is part of its latency.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use larder_lab::load::zipf::Zipf;
use larder_model::SplitMix64;

use super::database::{self, Client, Conversation, PAGE_BYTES};
use super::memory::Memory;
use super::setup::Scale;
use crate::demo::book::Book;
use crate::demo::clients::{self, Clock};
use crate::demo::tally::{Class, Tally};

/// Rows that a reading transaction reads.
pub const READ_ROWS: usize = 4;
/// One transaction of so many is an update.
pub const UPDATE_EVERY: u64 = 10;
/// Zipf's exponent, as in the benches.
pub const ZIPF: f64 = 0.9;
/// Rank times this prime is the key, modulo the number of rows: neighbours in rank lie far apart.
const SCATTER: u64 = 2_654_435_761;
/// How long the transactions in flight may take at the end.
const END_BOUND: Duration = Duration::from_secs(30);
/// How long killed processes may take.
const KILL_BOUND: Duration = Duration::from_secs(5);

/// What the clients share.
struct Load<'a> {
    rows: u32,
    zipf: Zipf,
    book: &'a Book,
    memory: &'a Memory,
    /// Held by the client that updates.
    turn: Mutex<()>,
}

/// Runs the load with these clients, who choose by `seed`; `second` receives which second ended and
/// how many transactions were answered, and may end it; `abort` makes the operations that still wait for a
/// device fail.
///
/// # Errors
/// A row is wrong, a client fails, or `second` does.
pub fn run(
    clients: Vec<(Client, Conversation)>,
    (book, memory): (&Book, &Memory),
    (scale, seed): (&Scale, u64),
    second: impl FnMut(u64, u64) -> Result<()>,
    abort: impl FnOnce(),
) -> Result<Tally> {
    let (rows, zipf, turn) = (scale.rows, Zipf::new(scale.rows, ZIPF), Mutex::new(()));
    let load = Load { rows, zipf, book, memory, turn };
    let (mut clients, conversations): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
    let numbered = (1..).zip(conversations);
    let session = |(number, conversation), clock: &Clock, tally: &mut Tally| {
        let random = SplitMix64::new(seed << 8 | number);
        Session { load: &load, clock, conversation, random, tally }.run()
    };
    let finish = |ended: clients::Ended<'_>| {
        let in_time = ended(END_BOUND);
        if !in_time {
            clients.iter_mut().for_each(Client::kill);
            if !ended(KILL_BOUND) {
                abort();
            }
        }
        ensure!(in_time, "a transaction was not done within {} s", END_BOUND.as_secs());
        Ok(())
    };
    let tally = clients::run(numbered, scale.window, session, second, finish)?;
    clients.into_iter().try_for_each(Client::close)?;
    Ok(tally)
}

/// The row of a rank.
fn key(rank: u32, rows: u32) -> u32 {
    (u64::from(rank) * SCATTER % u64::from(rows)) as u32
}

struct Session<'a> {
    load: &'a Load<'a>,
    clock: &'a Clock,
    conversation: Conversation,
    random: SplitMix64,
    tally: &'a mut Tally,
}

impl Session<'_> {
    fn run(mut self) -> Result<()> {
        while !self.clock.stopped() {
            if self.random.below(UPDATE_EVERY) == 0 { self.update()? } else { self.read()? }
        }
        Ok(())
    }

    fn draw(&mut self) -> u32 {
        key(self.load.zipf.draw(&mut self.random), self.load.rows)
    }

    fn read(&mut self) -> Result<()> {
        let keys: [u32; READ_ROWS] = std::array::from_fn(|_| self.draw());
        let book = self.load.book;
        let oldest = keys.map(|key| book.begin_read(key..key + 1));
        let sent = Instant::now();
        let lines = self.conversation.ask(&database::read_statement(&keys), keys.len())?;
        self.answered(Class::Read, keys.len(), sent);
        for ((key, oldest), line) in keys.into_iter().zip(oldest).zip(lines) {
            let version = database::parse_row(key, &line)?;
            for lawful in book.end_read(key..key + 1, &oldest) {
                if !lawful.contains(&version) {
                    bail!("account {key} reads as version {version} and must be one of {lawful:?}");
                }
            }
        }
        self.tally.verified += READ_ROWS as u64;
        self.load.memory.touched(READ_ROWS as u64)
    }

    fn update(&mut self) -> Result<()> {
        let key = self.draw();
        let sent = Instant::now();
        let turn = self.load.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let versions = self.load.book.begin_write(key..key + 1);
        let version = versions.and_then(|versions| versions.first().copied());
        let version = version.with_context(|| format!("account {key} is updated twice at once"))?;
        let answer = self.conversation.ask(&database::update_statement(key), 2)?;
        if answer != [version.to_string().as_str(), database::SAFE] {
            bail!("the update of account {key} to version {version} was answered {answer:?}");
        }
        self.load.book.end_write(key..key + 1);
        drop(turn);
        self.answered(Class::Write, 1, sent);
        self.load.memory.touched(1)
    }

    /// Counts a transaction over so many rows, each of which lies in a page.
    fn answered(&mut self, class: Class, rows: usize, sent: Instant) {
        let bytes = rows as u64 * PAGE_BYTES;
        self.clock.answered(self.tally, class, bytes, sent..Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::demo::system::command;
    use crate::demo::window::Window;

    const ROWS: u32 = 2000;

    #[test]
    fn every_row_has_a_rank_and_neighbours_lie_apart() {
        for rows in [ROWS, 196_608] {
            let keys: HashSet<u32> = (0..rows).map(|rank| key(rank, rows)).collect();
            assert_eq!(keys.len(), rows as usize);
        }
        let keys: Vec<_> = (0..100).map(|rank| key(rank, 196_608)).collect();
        assert!(keys.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 256));
    }

    /// Runs a load of a second on a database of its own, and the outcome.
    fn short(book: &Book, spoil: &str) -> Result<(Tally, u64)> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("db");
        database::make(&path, ROWS, || Ok(()))?;
        let memory = Memory::limit(dir.path(), 1 << 20, &path)?;
        let open = |_| Client::open(&path, &dir.path().join("log"), |_| Ok(()));
        let mut clients = (0..3).map(open).collect::<Result<Vec<_>>>()?;
        if !spoil.is_empty() {
            clients[0].1.ask(&format!("{spoil};SELECT 1;\n"), 1)?;
        }
        let window = Window { warm_up_seconds: 0, measured_seconds: 1 };
        let scale = Scale { rows: ROWS, window, ..Scale::default() };
        let tally = run(clients, (book, &memory), (&scale, 1), |_, _| Ok(()), || ())?;
        let updates = book.writes();
        database::verify(&path, ROWS, updates, || Ok(())).map(|()| (tally, updates))
    }

    #[test]
    fn what_was_acknowledged_is_there_and_what_is_wrong_is_found() {
        if command::find("sqlite3").is_none() {
            println!("skipped: sqlite3 is missing");
            return;
        }
        let (tally, updates) = short(&Book::new(ROWS as usize), "").unwrap();
        assert!(tally.reads.count() > 0 && tally.writes.count() > 0);
        assert!(updates >= tally.writes.count() && tally.verified >= 4 * tally.reads.count());
        let wrong = |spoil| short(&Book::new(ROWS as usize), spoil).unwrap_err().to_string();
        let error = wrong("UPDATE account SET version = 3");
        assert!(error.contains("reads as version") || error.contains("was answered"), "{error}");
        let error = wrong("UPDATE account SET filler = replace(filler, 7, 8)");
        assert!(error.contains("holds other data"), "{error}");
    }
}
