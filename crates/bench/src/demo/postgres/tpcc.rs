// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load: the project's TPC-C mix (`postgres/tpcc`), which is part of this program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::cluster::Server;
use super::tools::Tools;
use crate::demo::system::command::run_command;

macro_rules! files {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../../postgres/tpcc/", $name)))),*]
    };
}

static FILES: [(&str, &str); 11] = files![
    "run" "schema.sql" "functions.sql" "load.sql" "keys.sql" "consistency.sql" "new-order.sql"
    "payment.sql" "order-status.sql" "delivery.sql" "stock-level.sql"
];
/// A load, a run or a check may take so long beyond its given time.
const BOUND: Duration = Duration::from_secs(1800);

/// The output of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Figures {
    /// New-orders that ended, a minute.
    pub new_orders_per_minute: f64,
    /// Of all five.
    pub transactions_per_second: f64,
    /// Of new-order.
    pub new_order_p95_ms: f64,
    /// Of all five.
    pub p50_ms: f64,
    /// Of all five.
    pub p95_ms: f64,
    /// Of all five.
    pub p99_ms: f64,
    /// Serialization failures and deadlocks.
    pub failed: u64,
    /// From the first to the last transaction.
    pub seconds: f64,
}

/// The files of the load, below a directory.
#[derive(Clone, Debug)]
pub struct Tpcc {
    run: PathBuf,
}

impl Tpcc {
    /// Writes them there.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn unpack(directory: &Path) -> Result<Self> {
        fs::create_dir(directory)?;
        for (name, text) in FILES {
            fs::write(directory.join(name), text)?;
        }
        let run = directory.join("run");
        fs::set_permissions(&run, fs::Permissions::from_mode(0o755))?;
        Ok(Self { run })
    }

    fn ask(
        &self,
        (tools, server): (&Tools, &Server<'_>),
        words: &[&str],
        stopped: impl Fn() -> Result<()>,
    ) -> Result<String> {
        let command = server.aimed(tools.prepared(&self.run, words));
        run_command(command, BOUND, stopped)
    }

    /// Makes and fills the tables.
    ///
    /// # Errors
    /// It fails.
    pub fn load(
        &self,
        at: (&Tools, &Server<'_>),
        warehouses: u32,
        stopped: impl Fn() -> Result<()>,
    ) -> Result<String> {
        self.ask(at, &["load", &warehouses.to_string()], stopped)
    }

    /// Runs the mix.
    ///
    /// # Errors
    /// It fails.
    pub fn go(
        &self,
        at: (&Tools, &Server<'_>),
        (seconds, clients, seed): (u64, usize, u64),
        stopped: impl Fn() -> Result<()>,
    ) -> Result<Figures> {
        let words = [seconds.to_string(), clients.to_string(), seed.to_string()];
        let words: Vec<&str> =
            ["go", "--json"].into_iter().chain(words.iter().map(String::as_str)).collect();
        let said = self.ask(at, &words, stopped)?;
        serde_json::from_str(&said).with_context(|| format!("figures of the load: {said}"))
    }

    /// Checks consistency.
    ///
    /// # Errors
    /// A condition is violated.
    pub fn check(&self, at: (&Tools, &Server<'_>), stopped: impl Fn() -> Result<()>) -> Result<()> {
        self.ask(at, &["check"], stopped).map(drop).context("TPC-C consistency")
    }
}
