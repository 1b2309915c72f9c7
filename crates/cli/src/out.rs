// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results on standard output, messages on standard error.
//!
//! Where standard error is the journal of systemd, each line begins with its priority as sd-daemon(3) defines it, and
//! has neither a time nor colours: the journal records the time. Elsewhere lines are plain.

use std::fmt;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use anyhow::{Result, bail};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::exit;

/// The priority of a message, as in syslog(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The command or a volume failed.
    Error = 3,
    /// A condition that needs attention.
    Warning = 4,
    /// Normal operation.
    Info = 6,
    /// For developers.
    Debug = 7,
}

impl From<Level> for Priority {
    fn from(level: Level) -> Self {
        match level {
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warning,
            Level::INFO => Self::Info,
            _ => Self::Debug,
        }
    }
}

/// Whether standard error is the journal: systemd names its device and inode in `JOURNAL_STREAM`. A child that
/// redirects its standard error inherits the variable, so that it alone does not suffice.
fn is_journal() -> bool {
    static IS: OnceLock<bool> = OnceLock::new();
    let look = || {
        let named = std::env::var("JOURNAL_STREAM").ok()?;
        let (device, inode) = named.split_once(':')?;
        let (device, inode) = (device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?);
        let stat = rustix::fs::fstat(std::io::stderr().as_fd()).ok()?;
        Some((stat.st_dev, stat.st_ino) == (device, inode))
    };
    *IS.get_or_init(|| look().unwrap_or(false))
}

/// A message in one line: values in it may have control characters.
fn in_one_line(message: fmt::Arguments<'_>) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    message.to_string().chars().map(escape).collect()
}

/// Prints a message to standard error. A closed standard error does not stop the command.
pub fn say(priority: Priority, message: fmt::Arguments<'_>) {
    let message = in_one_line(message);
    let mut err = std::io::stderr();
    let _ = match is_journal() {
        true => writeln!(err, "<{}>{message}", priority as u8),
        false => writeln!(err, "larder: {message}"),
    };
}

/// A message of normal operation.
macro_rules! tell {
    ($($words:tt)*) => {
        $crate::out::say($crate::out::Priority::Info, format_args!($($words)*))
    };
}
pub(crate) use tell;

/// A message about an error.
macro_rules! complain {
    ($($words:tt)*) => {
        $crate::out::say($crate::out::Priority::Error, format_args!($($words)*))
    };
}
pub(crate) use complain;

/// What `LARDER_LOG` accepts.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
const DEFAULT_LEVEL: &str = "info";

/// Sends log events of all crates to standard error.
pub fn log_to_stderr() {
    let given = std::env::var("LARDER_LOG").unwrap_or_default();
    let accepted = level(&given);
    let filter = EnvFilter::new(accepted.unwrap_or(DEFAULT_LEVEL));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // A closed standard error leaves no place to report its errors.
        .log_internal_errors(false);
    match is_journal() {
        true => log.event_format(JournalFormat).init(),
        false => log.init(),
    }
    if accepted.is_none() {
        tracing::warn!(
            "LARDER_LOG: got '{given}', accepted {}; the log has the level {DEFAULT_LEVEL}",
            LEVELS.join(", ")
        );
    }
}

/// The level of a value of `LARDER_LOG`; of an empty one, the default.
fn level(given: &str) -> Option<&'static str> {
    if given.is_empty() {
        return Some(DEFAULT_LEVEL);
    }
    LEVELS.into_iter().find(|level| level.eq_ignore_ascii_case(given))
}

/// A log event as one line of the journal.
struct JournalFormat;

impl<S, N> FormatEvent<S, N> for JournalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", Priority::from(*event.metadata().level()) as u8)?;
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Prints text and a line end to standard output. A reader that closed the pipe early is no error.
pub fn line(text: impl fmt::Display) -> Result<()> {
    let mut out = std::io::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            bail!(exit::failed(&format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}

/// The command line as it was given, for reports; words with spaces in quotes.
#[cfg(feature = "lab")]
pub fn command_line() -> String {
    let quoted = |word: String| if word.contains(' ') { format!("'{word}'") } else { word };
    let words: Vec<String> = std::env::args().skip(1).map(quoted).collect();
    format!("larder {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        let text = in_one_line(format_args!("unit: got '{}', é", "1\n\x1b[2J"));
        assert_eq!(text, "unit: got '1\\n\\u{1b}[2J', é");
    }

    #[test]
    fn the_log_has_a_known_level_whatever_the_environment_has() {
        assert_eq!(
            [level(""), level("WARN"), level("debug")],
            [Some("info"), Some("warn"), Some("debug")]
        );
        assert_eq!([level("warning"), level("loud"), level("larder=debug")], [None; 3]);
    }
}
