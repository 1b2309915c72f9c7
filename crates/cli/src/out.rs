// SPDX-License-Identifier: MIT OR Apache-2.0
//! Printing to standard output, where the reader may have gone or the disk be full.

use std::io::{ErrorKind, Write};

use anyhow::{Result, bail};

use crate::exit;

/// Prints text and ends the line. A reader that went away has what it wanted.
pub fn line(text: impl std::fmt::Display) -> Result<()> {
    let mut out = std::io::stdout();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            bail!(exit::failed(&format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}

/// The command line as it was given, for reports; words with spaces in quotes.
pub fn command_line() -> String {
    let quoted = |word: String| if word.contains(' ') { format!("'{word}'") } else { word };
    let words: Vec<String> = std::env::args().skip(1).map(quoted).collect();
    format!("larder {}", words.join(" "))
}

/// Tells the user something on standard error. Nobody may be there to read it any more: a server
/// goes on all the same.
macro_rules! tell {
    ($($words:tt)*) => {{
        larder_lab::tell!("larder: {}", format_args!($($words)*));
    }};
}
pub(crate) use tell;
