// SPDX-License-Identifier: MIT OR Apache-2.0
//! The database: SQLite, one `sqlite3` process a client.
//!
//! Purpose: makes the table, opens clients, checks the table after a row.
//!
//! Invariants: an account's filler is a function of its id, and its version counts its updates, so
//! that the check detects a row that is wrong, old or another's; a commit is on the device when it is
//! answered (WAL, `synchronous=FULL`).
//!
//! Why `sqlite3` as a process and not SQLite as a library: the memory of a process can be bounded,
//! ours must not be; and the build stays without a database in C. It answers a line after a line,
//! so a transaction costs two switches between processes besides. Why not PostgreSQL: its cluster
//! wants a user of its own and an installation many times as large, and shows nothing more.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::demo::system::command;

/// Bytes of its pages.
pub const PAGE_BYTES: u64 = 4096;
/// Rows of a page.
pub const ROWS_PER_PAGE: u64 = 4;
/// Bytes of a row's filler, such that four rows fill a page except for the growth of versions.
const FILLER: usize = 980;
/// A prime, so that ids and fillers look unlike.
const PRIME: u64 = 2_654_435_761;
/// Bytes read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// How long making or checking the whole database may take.
const BOUND: Duration = Duration::from_secs(60);
/// How long a client may take to end: the last one writes the log into the database.
const CLOSE_BOUND: Duration = Duration::from_secs(30);
/// Without the user's own settings.
const FLAGS: [&str; 5] = ["-batch", "-bail", "-init", "/dev/null", "-noheader"];
/// How a client begins. Its own cache is small; what it reads again comes from the page cache.
const OPEN: &str = "PRAGMA synchronous=FULL;PRAGMA cache_size=-512;PRAGMA temp_store=MEMORY;\
                    SELECT 'ready';\n";

/// What the row of an id holds besides its version.
#[must_use]
pub fn filler(id: u32) -> String {
    format!("{:0FILLER$}", u64::from(id) * PRIME % (1 << 32))
}

/// Makes the table with so many rows, in a file on a quick device.
///
/// # Errors
/// It cannot be made.
pub fn make(path: &Path, rows: u32, stopped: impl Fn() -> Result<()>) -> Result<()> {
    let sql = format!(
        "PRAGMA page_size={PAGE_BYTES}; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; \
         CREATE TABLE account (id INTEGER PRIMARY KEY, version INTEGER NOT NULL, filler TEXT NOT \
         NULL); \
         WITH RECURSIVE ids(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id < {}) \
         INSERT INTO account SELECT id, 0, printf('%0{FILLER}d', id * {PRIME} % 4294967296) FROM \
         ids; \
         PRAGMA journal_mode=WAL;",
        rows - 1
    );
    query(path, &sql, stopped).context("cannot make the database").map(drop)
}

fn query(path: &Path, sql: &str, stopped: impl Fn() -> Result<()>) -> Result<String> {
    let words = FLAGS.map(AsRef::as_ref).into_iter().chain([path.as_os_str(), sql.as_ref()]);
    command::run("sqlite3", words, BOUND, stopped)
}

/// Checks the database, which no process uses, as a whole: its structure, and that it holds `rows` rows
/// and `updates` updates.
///
/// # Errors
/// It does not.
pub fn verify(
    path: &Path,
    rows: u32,
    updates: u64,
    stopped: impl Fn() -> Result<()>,
) -> Result<()> {
    read_ahead(path, &stopped).context("the database cannot be read")?;
    let sql = "PRAGMA integrity_check; SELECT count(*), sum(version), sum(length(filler)) FROM \
               account;";
    let found = query(path, sql, stopped).context("the database is damaged")?;
    let expected = format!("ok\n{rows}|{updates}|{}", u64::from(rows) * FILLER as u64);
    ensure!(
        found == expected,
        "the database lost something: integrity, rows|updates|bytes are {}, and must be {}",
        found.replace('\n', ", "),
        expected.replace('\n', ", ")
    );
    Ok(())
}

/// Brings the file into the page cache: the check asks for it page by page, in an order of its own.
fn read_ahead(path: &Path, stopped: impl Fn() -> Result<()>) -> Result<()> {
    let (mut file, mut chunk) = (File::open(path)?, vec![0; CHUNK_BYTES]);
    while file.read(&mut chunk)? > 0 {
        stopped()?;
    }
    Ok(())
}

/// The statements that read rows.
#[must_use]
pub fn read_statement(ids: &[u32]) -> String {
    let selects = ids.iter().map(|id| format!("SELECT version,filler FROM account WHERE id={id};"));
    format!("BEGIN;{}COMMIT;\n", selects.collect::<String>())
}

/// The statements that change a row; it answers with the new version and a line when it is safe.
#[must_use]
pub fn update_statement(id: u32) -> String {
    format!(
        "BEGIN IMMEDIATE;UPDATE account SET version=version+1 WHERE id={id};SELECT version FROM \
         account WHERE id={id};COMMIT;SELECT '{SAFE}';\n"
    )
}

/// What is answered once a commit is done.
pub const SAFE: &str = "safe";

/// The version in the answer for a row.
///
/// # Errors
/// It is not that row.
pub fn parse_row(id: u32, line: &str) -> Result<u32> {
    let (version, found) = line.split_once('|').unwrap_or((line, ""));
    if found != filler(id) {
        let start: String = line.chars().take(40).collect();
        let end: String =
            line.chars().skip(40.max(line.chars().count().saturating_sub(20))).collect();
        bail!("account {id} holds other data: {start}...{end}");
    }
    version.parse().with_context(|| format!("account {id} has the version {version:?}"))
}

/// A client; its process ends with it.
#[derive(Debug)]
pub struct Client {
    child: Child,
}

/// Where a client's statements go and its answers come from; with the end of the process it fails.
#[derive(Debug)]
pub struct Conversation {
    statements: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Client {
    /// Opens the database; `adopt` sees the process before it has read anything.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(
        database: &Path,
        log: &Path,
        adopt: impl Fn(u32) -> Result<()>,
    ) -> Result<(Self, Conversation)> {
        let complaints = File::options().create(true).append(true).open(log);
        let complaints = complaints.with_context(|| log.display().to_string())?;
        let mut command = command::command("sqlite3");
        command.args(FLAGS).arg(database);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints);
        let mut client = Self { child: command.spawn().context("sqlite3 cannot be run")? };
        let ends = (client.child.stdin.take(), client.child.stdout.take());
        let (Some(statements), Some(answers)) = ends else { bail!("sqlite3 without pipes") };
        adopt(client.child.id())?;
        let mut conversation = Conversation { statements, answers: BufReader::new(answers) };
        let opened = conversation.ask(&format!(".timeout 20000\n{OPEN}"), 1)?;
        ensure!(opened == ["ready"], "sqlite3 answered {opened:?} at its start");
        Ok((client, conversation))
    }

    /// Whether the process has ended by itself.
    #[must_use]
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it now, whatever it is doing.
    pub fn kill(&mut self) {
        command::end(&mut self.child);
    }

    /// Waits for its end, once its conversation is over.
    ///
    /// # Errors
    /// It failed, or does not end.
    pub fn close(mut self) -> Result<()> {
        let ended = command::wait(&mut self.child, CLOSE_BOUND, || Ok(()))?;
        let ended = ended.context("sqlite3 does not end")?;
        ensure!(ended.success(), "sqlite3 ended with {ended}");
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.kill();
        }
    }
}

impl Conversation {
    /// Sends a line of statements and waits for so many lines of answers.
    ///
    /// # Errors
    /// The process ended, which it does at the first error.
    pub fn ask(&mut self, statements: &str, lines: usize) -> Result<Vec<String>> {
        let ended = "sqlite3 ended";
        self.statements.write_all(statements.as_bytes()).context(ended)?;
        let mut answers = Vec::with_capacity(lines);
        for _ in 0..lines {
            let mut line = String::new();
            ensure!(self.answers.read_line(&mut line).context(ended)? > 0, ended);
            line.truncate(line.trim_end_matches('\n').len());
            answers.push(line);
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go_on() -> Result<()> {
        Ok(())
    }

    #[test]
    fn a_row_is_told_from_any_other() {
        assert_eq!(filler(3).len(), FILLER);
        assert_eq!(parse_row(3, &format!("17|{}", filler(3))).unwrap(), 17);
        let wrong = |line: &str| parse_row(3, line).unwrap_err().to_string();
        assert!(wrong(&format!("17|{}", filler(4))).contains("account 3 holds other data"));
        assert!(wrong("").contains("holds other data"));
        assert!(wrong(&format!("x|{}", filler(3))).contains("version \"x\""));
    }

    #[test]
    fn statements_are_one_line_each() {
        let read = read_statement(&[5, 9]);
        assert_eq!(read.matches("SELECT").count(), 2);
        for line in [read, update_statement(5)] {
            assert!(line.ends_with(";\n") && line.matches('\n').count() == 1, "{line}");
        }
    }

    #[test]
    fn a_database_is_made_used_and_judged() {
        if command::find("sqlite3").is_none() {
            println!("skipped: sqlite3 is missing");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("db"), dir.path().join("log"));
        make(&path, 1000, go_on).unwrap();
        let pages = path.metadata().unwrap().len() / PAGE_BYTES;
        assert!((1000 / ROWS_PER_PAGE..1000 / ROWS_PER_PAGE + 5).contains(&pages), "{pages}");
        let (client, mut conversation) = Client::open(&path, &log, |_| Ok(())).unwrap();
        let answer = conversation.ask(&update_statement(7), 2).unwrap();
        assert_eq!(answer, ["1", SAFE]);
        let rows = conversation.ask(&read_statement(&[7, 8]), 2).unwrap();
        assert_eq!((parse_row(7, &rows[0]).unwrap(), parse_row(8, &rows[1]).unwrap()), (1, 0));
        drop(conversation);
        client.close().unwrap();
        verify(&path, 1000, 1, go_on).unwrap();
        let error = verify(&path, 1000, 2, go_on).unwrap_err().to_string();
        assert!(error.contains("ok, 1000|1|980000") && error.contains("1000|2|"), "{error}");

        let (client, mut conversation) = Client::open(&path, &log, |_| Ok(())).unwrap();
        assert!(conversation.ask("SELECT * FROM nowhere;\n", 1).is_err());
        assert!(client.close().unwrap_err().to_string().contains("exit status"));
        let complaint = std::fs::read_to_string(&log).unwrap();
        assert!(complaint.contains("no such table"), "{complaint}");
    }
}
