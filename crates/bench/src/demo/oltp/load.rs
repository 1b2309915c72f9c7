// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transactions, and the clients that make them.
//!
//! Purpose: closed-loop: each client sends the next transaction when one is answered. Nine of ten
//! read four rows by key, one changes a row and is answered when that is on the device. Keys are
//! drawn by Zipf's law, and popular ones lie anywhere in the table.
//!
//! Invariants: every row read is the one that was asked for, in a version that it may have (the
//! [`Book`] of the replay, a row standing for a page); an update brings the next version. When a
//! load ends, in whatever way, its clients' processes are on their way out, within a bound.
//!
//! Why one update at a time: SQLite has one writer, and programs that know it queue before it
//! rather than let it poll. A client's wait for its turn is part of its latency.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use larder_lab::load::zipf::Zipf;
use larder_model::SplitMix64;

use super::super::book::Book;
use super::super::content::PAGE_BYTES;
use super::super::replay::watch;
use super::super::tally::{Class, Tally};
use super::super::workload::{Step, Verb};
use super::database::{self, Client, Conversation};
use super::memory::Memory;

/// Rows that a reading transaction reads.
pub const READ_ROWS: usize = 4;
/// One transaction of so many is an update.
pub const UPDATE_EVERY: u64 = 10;
/// Zipf's exponent, as in the benches.
pub const ZIPF: f64 = 0.9;
/// Rank times this prime is the key, modulo the number of rows: neighbours in rank lie far apart.
const SCATTER: u64 = 2_654_435_761;
/// How long the transactions under way may take in the end.
const END_BOUND: Duration = Duration::from_secs(30);
/// How long killed processes may take.
const KILL_BOUND: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rows of the table.
    pub rows: u32,
    /// Seed of the clients' choices.
    pub seed: u64,
    /// What counts, since the start.
    pub window: (Duration, Duration),
}

impl Plan {
    fn window(&self) -> Range<Duration> {
        self.window.0..self.window.1
    }
}

/// What the clients share.
struct Load<'a> {
    plan: Plan,
    zipf: Zipf,
    book: &'a Book,
    memory: &'a Memory,
    start: Instant,
    /// Held by who updates.
    turn: Mutex<()>,
    answered: AtomicU64,
    stop: AtomicBool,
}

/// Runs the load with these clients; `second` is told which second ended and how many transactions
/// were answered, and may end it; `abort` makes whoever still waits for a device fail.
///
/// # Errors
/// A row is wrong, a client fails, or `second` says so.
pub fn run(
    clients: &mut [Client],
    conversations: Vec<Conversation>,
    (book, memory): (&Book, &Memory),
    plan: Plan,
    mut second: impl FnMut(u64, u64) -> Result<()>,
    abort: impl Fn(),
) -> Result<Tally> {
    let load = Load {
        plan,
        zipf: Zipf::new(plan.rows, ZIPF),
        book,
        memory,
        start: Instant::now(),
        turn: Mutex::new(()),
        answered: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let load = &load;
        let threads: Vec<_> = (1..)
            .zip(conversations)
            .map(|(n, conversation)| scope.spawn(move || Session::new(load, conversation, n).run()))
            .collect();
        let answered = |s| second(s, load.answered.load(Ordering::Relaxed));
        let watched = watch(load.start, plan.window.1, &load.stop, answered);
        load.stop.store(true, Ordering::SeqCst);
        let finished = || threads.iter().all(|t| t.is_finished());
        let in_time = wait(END_BOUND, finished);
        if !in_time {
            clients.iter_mut().for_each(Client::kill);
            if !wait(KILL_BOUND, finished) {
                abort();
            }
        }
        let mut sum = Tally::new(plan.window());
        let mut result = Ok(());
        for thread in threads {
            match thread.join() {
                Ok(Ok(tally)) => sum.merge(&tally),
                Ok(Err(error)) => result = result.and(Err(error)),
                Err(_) => result = result.and(Err(anyhow!("a client's thread panicked"))),
            }
        }
        // Who is told to stop may see failures besides; the reason comes first.
        watched.and(result)?;
        ensure!(in_time, "a transaction was not done within {} s", END_BOUND.as_secs());
        Ok(sum)
    })
}

fn wait(bound: Duration, holds: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !holds() && begin.elapsed() < bound {
        std::thread::sleep(POLL);
    }
    holds()
}

/// The row of a rank.
fn key(rank: u32, rows: u32) -> u32 {
    (u64::from(rank) * SCATTER % u64::from(rows)) as u32
}

/// A row, as the book's page.
fn row(verb: Verb, key: u32) -> Step {
    Step { verb, page: key, pages: 1 }
}

struct Session<'a> {
    load: &'a Load<'a>,
    conversation: Conversation,
    random: SplitMix64,
    tally: Tally,
}

impl<'a> Session<'a> {
    fn new(load: &'a Load<'a>, conversation: Conversation, number: u64) -> Self {
        let random = SplitMix64::new(load.plan.seed << 8 | number);
        Self { load, conversation, random, tally: Tally::new(load.plan.window()) }
    }

    fn run(mut self) -> Result<Tally> {
        let result = self.go();
        if result.is_err() {
            self.load.stop.store(true, Ordering::SeqCst);
        }
        result.map(|()| self.tally)
    }

    fn go(&mut self) -> Result<()> {
        while !self.load.stop.load(Ordering::SeqCst) {
            if self.random.below(UPDATE_EVERY) == 0 { self.update()? } else { self.read()? }
        }
        Ok(())
    }

    fn draw(&mut self) -> u32 {
        key(self.load.zipf.draw(&mut self.random), self.load.plan.rows)
    }

    fn read(&mut self) -> Result<()> {
        let keys: [u32; READ_ROWS] = std::array::from_fn(|_| self.draw());
        let book = self.load.book;
        let oldest = keys.map(|key| book.begin_read(&row(Verb::Read, key)));
        let sent = Instant::now();
        let lines = self.conversation.ask(&database::read_statement(&keys), keys.len())?;
        self.answered(Class::Read, keys.len(), sent);
        for ((key, oldest), line) in keys.into_iter().zip(oldest).zip(lines) {
            let version = database::parse_row(key, &line)?;
            for lawful in book.end_read(&row(Verb::Read, key), &oldest) {
                if !lawful.contains(&version) {
                    bail!("account {key} reads as version {version} and must be one of {lawful:?}");
                }
            }
        }
        self.tally.verified_pages += READ_ROWS as u64;
        self.load.memory.touched(READ_ROWS as u64)
    }

    fn update(&mut self) -> Result<()> {
        let key = self.draw();
        let sent = Instant::now();
        let turn = self.load.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let step = row(Verb::Write, key);
        let version =
            self.load.book.begin_write(&step).and_then(|versions| versions.first().copied());
        let version = version.with_context(|| format!("account {key} is updated twice at once"))?;
        let answer = self.conversation.ask(&database::update_statement(key), 2)?;
        if answer != [version.to_string().as_str(), database::SAFE] {
            bail!("the update of account {key} to version {version} was answered {answer:?}");
        }
        self.load.book.end_write(&step);
        drop(turn);
        self.answered(Class::Write, 1, sent);
        self.load.memory.touched(1)
    }

    /// Counts a transaction over so many rows, each of which lies in a page.
    fn answered(&mut self, class: Class, rows: usize, sent: Instant) {
        let (now, ended) = (Instant::now(), self.load.start.elapsed());
        self.load.answered.fetch_add(1, Ordering::Relaxed);
        self.tally.add(class, (rows * PAGE_BYTES) as u64, ended, now - sent);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::command;
    use super::*;

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
        let (mut clients, mut conversations): (Vec<_>, Vec<_>) =
            (0..3).map(open).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        if !spoil.is_empty() {
            conversations[0].ask(&format!("{spoil};SELECT 1;\n"), 1)?;
        }
        let window = (Duration::ZERO, Duration::from_secs(1));
        let plan = Plan { rows: ROWS, seed: 1, window };
        let with = (book, &memory);
        let tally = run(&mut clients, conversations, with, plan, |_, _| Ok(()), || ())?;
        for client in clients {
            client.close()?;
        }
        let updates = book.completed(0, ROWS as usize).into_iter().map(u64::from).sum();
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
        assert!(updates >= tally.writes.count() && tally.verified_pages >= 4 * tally.reads.count());
        let wrong = |spoil| short(&Book::new(ROWS as usize), spoil).unwrap_err().to_string();
        let error = wrong("UPDATE account SET version = 3");
        assert!(error.contains("reads as version") || error.contains("was answered"), "{error}");
        let error = wrong("UPDATE account SET filler = replace(filler, 7, 8)");
        assert!(error.contains("something else"), "{error}");
    }
}
