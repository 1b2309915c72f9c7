// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bench in a process of its own.
//!
//! The same command runs again with a variable set, and prints its rows as JSON. So the command
//! line needs to know nothing of it, and what the parent allocated before does not count.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::common::BenchOptions;
use super::row::Row;

const VARIABLE: &str = "LARDER_BENCH_CHILD";

/// Whether this process is such a child.
pub(super) fn is_child() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Runs `larder bench NAME` as a child; its rows.
pub(super) fn run(name: &str, options: &BenchOptions) -> Result<Vec<Row>> {
    let larder = options.larder()?;
    let mut command = Command::new(&larder);
    command.args(["bench", name, "--json", "--dir"]).arg(&options.dir);
    if options.quick {
        command.arg("--quick");
    }
    let failed = || format!("{} bench {name}", Path::display(&larder));
    let output = command
        .env(VARIABLE, "1")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(failed)?;
    ensure!(output.status.success(), "{} ended with {}", failed(), output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("the output of {}", failed()))
}
