// SPDX-License-Identifier: MIT OR Apache-2.0
//! fio as an NBD client.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The requests of a client: 4 KiB at random places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub depth: u32,
    pub connections: u32,
    pub reads_percent: u32,
}

/// The result.
pub(in crate::bench) struct Outcome {
    pub iops: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// The server's processor time for each request.
    pub cpu_us: f64,
    /// The share of the machine that other processes used meanwhile.
    pub others: f64,
}

/// Whether there is a fio that speaks NBD.
pub(super) fn check() -> Result<()> {
    match Command::new("fio").arg("--enghelp=nbd").stdin(Stdio::null()).output() {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("uri") => Ok(()),
        Ok(_) => bail!("this fio has no nbd engine; the one of Debian's package fio has"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("fio is not installed; it is Debian's package fio")
        }
        Err(error) => Err(error).context("fio"),
    }
}

impl Job {
    pub(super) fn words(&self) -> String {
        let what = if self.reads_percent == 100 { "reads" } else { "70/30 mix" };
        let connections =
            if self.connections == 1 { String::new() } else { format!(" x {}", self.connections) };
        format!("{what}, depth {}{connections}", self.depth)
    }

    fn arguments(&self, socket: &Path) -> Vec<String> {
        let rw = if self.reads_percent == 100 { "randread" } else { "randrw" };
        let mut arguments = vec![
            "--name=larder".to_owned(),
            "--ioengine=nbd".to_owned(),
            format!("--uri=nbd+unix:///?socket={}", socket.display()),
            format!("--rw={rw}"),
            "--bs=4k".to_owned(),
            format!("--iodepth={}", self.depth),
            format!("--numjobs={}", self.connections),
            "--group_reporting".to_owned(),
            "--norandommap".to_owned(),
            "--randrepeat=0".to_owned(),
            "--time_based".to_owned(),
        ];
        if self.reads_percent < 100 {
            arguments.push(format!("--rwmixread={}", self.reads_percent));
        }
        arguments
    }

    /// The command, for a reader who repeats the run.
    pub(super) fn command(&self, socket: &Path) -> String {
        format!("fio {} --runtime=1", self.arguments(socket).join(" "))
    }

    /// Runs fio; the caller measures the server and the machine. Returns the number of requests too.
    pub(super) fn run(&self, socket: &Path, bytes: u64, span: Duration) -> Result<(Outcome, f64)> {
        let output = Command::new("fio")
            .args(self.arguments(socket))
            .arg(format!("--size={bytes}"))
            .arg(format!("--runtime={}ms", span.as_millis()))
            .arg("--output-format=json")
            .stdin(Stdio::null())
            .output()
            .context("fio")?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "fio ended with {}: {}", output.status, words.trim());
        let text = String::from_utf8_lossy(&output.stdout);
        // Its engine prints a greeting before the JSON.
        let json = text.find('{').map_or("", |at| &text[at..]);
        parse(json).context("the output of fio")
    }
}

/// Reads the output of a job.
pub(in crate::bench) fn parse(json: &str) -> Result<(Outcome, f64)> {
    let value: Value = serde_json::from_str(json)?;
    let job = value.pointer("/jobs/0").context("no job")?;
    ensure!(job.get("error").and_then(Value::as_i64) == Some(0), "the job failed");
    let number = |path: &str| job.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    let iops = number("/read/iops") + number("/write/iops");
    let requests = number("/read/total_ios") + number("/write/total_ios");
    ensure!(iops > 0.0 && requests > 0.0, "no request was answered");
    let p50_us = number("/read/clat_ns/percentile/50.000000") / 1e3;
    let p99_us = number("/read/clat_ns/percentile/99.000000") / 1e3;
    Ok((Outcome { iops, p50_us, p99_us, cpu_us: 0.0, others: 0.0 }, requests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_are_added_up() {
        let json = r#"{"jobs": [{"error": 0,
            "read": {"iops": 70.5, "total_ios": 141,
                     "clat_ns": {"percentile": {"50.000000": 12500, "99.000000": 90000}}},
            "write": {"iops": 29.5, "total_ios": 59}}]}"#;
        let (outcome, requests) = parse(json).unwrap();
        assert_eq!((outcome.iops, requests), (100.0, 200.0));
        assert_eq!((outcome.p50_us, outcome.p99_us), (12.5, 90.0));
        assert!(parse(r#"{"jobs": [{"error": 5}]}"#).is_err());
        assert!(parse("").is_err());
    }
}
