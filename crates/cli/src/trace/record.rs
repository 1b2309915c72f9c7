// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder trace record`: the requests of clients of a served volume.
//!
//! Invariant: the recorded requests become a file however the recording ends, except after an error of the file itself,
//! or an end by SIGKILL or a second signal.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use larder_core::exec::Nanos;
use larder_front::control::client::Failed;
use larder_front::control::record;
use larder_front::control::wire::End;
use larder_io::rough_size;
use larder_trace::{DEVICE_BYTES, Format, Op, Record};
use larder_volume::Recorded;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::output::Output;
use crate::control::ControlArgs;
use crate::exit::Coded;
use crate::operate::volume_bytes;
use crate::out;
use crate::units::span;

/// The volume and the output.
#[derive(Args, Debug)]
pub struct RecordArgs {
    #[command(flatten)]
    pub control: ControlArgs,
    /// Output file; a name that ends in .zst is compressed
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// btr, csv, fio or oracleGeneral [default: by the name of FILE]
    #[arg(long, value_name = "FORMAT", value_parser = Format::by_name)]
    pub format: Option<Format>,
    /// Span of the recording [default: until Ctrl-C, or until the volume stops]
    #[arg(long = "for", value_name = "SPAN", value_parser = span)]
    pub span: Option<Nanos>,
    /// Requests to record at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
}

/// A recording in progress.
struct Recording {
    output: Output,
    limit: u64,
    span: Duration,
    began: Option<Instant>,
    reads: u64,
    failure: Option<anyhow::Error>,
}

impl Recording {
    /// Writes the requests; whether to continue.
    fn hear(&mut self, requests: &[Recorded]) -> ControlFlow<()> {
        let began = *self.began.get_or_insert_with(|| {
            out::tell!("recording; Ctrl-C ends it");
            Instant::now()
        });
        let until_us = u64::try_from(self.span.as_micros()).unwrap_or(u64::MAX);
        for request in requests.iter().filter(|request| request.at_us < until_us) {
            if self.is_full() {
                break;
            }
            if let Err(error) = self.write(request) {
                self.failure = Some(error);
            }
        }
        match self.is_full() || began.elapsed() >= self.span {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Whether nothing more is wanted or can be written.
    fn is_full(&self) -> bool {
        self.failure.is_some() || self.output.written() == self.limit
    }

    fn write(&mut self, request: &Recorded) -> Result<()> {
        let op = if request.writes { Op::Write } else { Op::Read };
        let len = u64::from(request.len_bytes);
        let record = Record::new(request.at_us, 0, op, request.offset_bytes, len);
        self.output.write(&[record.map_err(|e| anyhow!(e))?])?;
        self.reads += u64::from(!request.writes);
        Ok(())
    }
}

/// Runs the command.
pub fn record(args: &RecordArgs) -> Result<()> {
    let path = args.control.socket()?;
    let bytes = volume_bytes(&path)?;
    if bytes > DEVICE_BYTES {
        let (bytes, most) = (rough_size(bytes), rough_size(DEVICE_BYTES));
        bail!("{}: a volume of {bytes}; accepted by traces: up to {most}", path.display());
    }
    let (stop, signals) = (Arc::new(AtomicBool::new(false)), [SIGINT, SIGTERM, SIGHUP]);
    let mut recording = Recording {
        output: Output::create_until(&args.out, args.format, &signals, Arc::clone(&stop))?,
        limit: args.limit.unwrap_or(u64::MAX),
        span: args.span.map_or(Duration::MAX, Duration::from_nanos),
        began: None,
        reads: 0,
        failure: None,
    };
    let ended = record::record(&path, |requests| match recording.hear(requests) {
        ControlFlow::Continue(()) if !stop.load(Ordering::SeqCst) => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    });
    end(args, recording, ended)
}

/// Gives the file its name, and prints what it holds.
fn end(args: &RecordArgs, recording: Recording, ended: Result<End, Failed>) -> Result<()> {
    let Recording { output, began, reads, failure, .. } = recording;
    if let Some(error) = failure {
        return Err(error);
    }
    let (Some(began), file) = (began, args.out.display()) else {
        bail!(ended.err().map(Coded::from).unwrap_or_default());
    };
    let (written, seconds) = (output.written(), began.elapsed().as_secs_f64());
    output.finish()?;
    let End { lost, stopped } = ended.map_err(|Failed { code, message }| {
        let message = format!("{message}; {file} has the {written} requests that came before");
        Coded { code, message }
    })?;
    if stopped {
        out::tell!("the volume has stopped");
    }
    if args.control.json {
        out::line(json!({
            "requests": written,
            "reads": reads,
            "writes": written - reads,
            "lost": lost,
            "duration_seconds": seconds,
        }))?;
    }
    if lost > 0 {
        let message = format!(
            "{file}: {written} requests were recorded and {lost} were lost, since this command or its disk was too slow"
        );
        bail!(Coded { code: 1, message });
    }
    Ok(())
}
