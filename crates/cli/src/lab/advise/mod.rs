// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder advise`: whether a flash cache pays for a trace or a served volume, how large, and in which mode.

mod args;
mod served;
mod words;

use anyhow::Result;

use self::args::Replayed;
use self::words::words;
use crate::out;

pub use self::args::AdviseArgs;

/// Runs the command. Advice against a cache is an answer, not a failure.
pub fn advise(args: &AdviseArgs) -> Result<()> {
    let (Some(path), Some((origin, flash))) = (&args.trace, args.profiles()) else {
        return served::advise(args);
    };
    let name = path.display().to_string();
    let advice = args.replay(Replayed { name, path, origin, flash })?;
    if args.control.json {
        return out::line(serde_json::to_string(&advice)?);
    }
    out::line(words(&advice))
}
