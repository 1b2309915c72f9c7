// SPDX-License-Identifier: MIT OR Apache-2.0
//! `larder top`: a live view of serving processes, by their control sockets.
//!
//! Invariants: a thread for each volume asks for its samples, so that a volume without an answer delays neither the
//! screen nor the others. The command restores the terminal at its end, by a key, SIGINT, SIGTERM or an error. Where standard output is no terminal, one snapshot is printed.

mod lines;
mod sample;
mod screen;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use larder_core::exec::Nanos;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

use self::sample::{Sample, Watched};
use crate::control::{control_dir, control_sockets};
use crate::exit::{self, Coded};
use crate::out;
use crate::units::span;

/// The servers to watch.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Control socket, repeatable [default: all in /run/larder or $XDG_RUNTIME_DIR/larder]
    #[arg(long, value_name = "SOCKET")]
    pub control: Vec<PathBuf>,
    /// Interval between two samples, over which rates are computed
    #[arg(long, default_value = "1s", value_parser = span, value_name = "SPAN")]
    pub interval: Nanos,
    /// Print one snapshot as text; the default if standard output is no terminal
    #[arg(long)]
    pub once: bool,
    /// Print one snapshot as one JSON value
    #[arg(long)]
    pub json: bool,
}

/// How often the view polls for a key.
const LOOK: Duration = Duration::from_millis(100);
/// How often the view searches for new sockets.
const SEARCH: Duration = Duration::from_secs(2);

/// The command.
pub fn top(args: &TopArgs) -> Result<()> {
    let interval = Duration::from_nanos(args.interval.clamp(100_000_000, 3_600_000_000_000));
    if args.json || args.once || !std::io::stdout().is_terminal() {
        return once(args, interval);
    }
    let sockets = sockets(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    // SIGHUP ends the process: a closed terminal needs no restoring, and crossterm would read its end forever.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut terminal = ratatui::try_init()?;
    let shown = View::new(sockets, interval).run(&mut terminal, args, &stop);
    ratatui::restore();
    shown
}

/// The sockets that were named, or all in the default directory.
fn sockets(args: &TopArgs) -> Result<Vec<PathBuf>> {
    if !args.control.is_empty() {
        return Ok(args.control.clone());
    }
    let sockets = control_sockets()?;
    if sockets.is_empty() {
        let dir = control_dir()?;
        let dir = dir.display();
        bail!("{dir}: no server listens there: is one running? --control must be as for serve");
    }
    Ok(sockets)
}

/// One snapshot of all volumes, over one interval.
fn once(args: &TopArgs, interval: Duration) -> Result<()> {
    let mut volumes: Vec<Watched> = sockets(args)?.into_iter().map(Watched::new).collect();
    for round in 0..2 {
        if round == 1 {
            std::thread::sleep(interval);
        }
        for volume in &mut volumes {
            let answer = Sample::take(&volume.control);
            volume.update(answer);
        }
    }
    if args.json {
        out::line(Value::Array(volumes.iter().map(Watched::json).collect()))?;
    } else {
        for volume in volumes.iter().filter(|v| v.error.is_none()) {
            out::line(format!("{}  {}", volume.name(), lines::state(volume)))?;
            lines::lines(volume).iter().try_for_each(|line| out::line(format!("  {line}")))?;
        }
    }
    let silent: Vec<&String> = volumes.iter().filter_map(|v| v.error.as_ref()).collect();
    match silent.first() {
        Some(why) if silent.len() == volumes.len() => {
            bail!(Coded { code: 2, message: (*why).clone() })
        }
        Some(_) if !args.json => {
            silent.iter().for_each(|why| out::tell!("{why}"));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Waits for a key, for [`LOOK`] at most; returns false if the terminal has ended. Terminal libraries read such a terminal
/// without end, and its SIGHUP may be ignored (`nohup`).
fn wait_for_input() -> std::io::Result<bool> {
    // Standard input may be no terminal.
    let terminal = std::io::stdout();
    let span = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    let mut asked = [PollFd::new(&terminal, PollFlags::IN)];
    match poll(&mut asked, Some(&span)) {
        // A change of size.
        Ok(_) | Err(Errno::INTR) => {
            Ok(!asked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR))
        }
        Err(failed) => Err(failed.into()),
    }
}

/// The live view.
struct View {
    volumes: Vec<Watched>,
    interval: Duration,
    answers: Receiver<(PathBuf, Result<Sample, String>)>,
    answer: Sender<(PathBuf, Result<Sample, String>)>,
    first: usize,
}

impl View {
    fn new(sockets: Vec<PathBuf>, interval: Duration) -> Self {
        let (answer, answers) = channel();
        let mut view = Self { volumes: Vec::new(), interval, answers, answer, first: 0 };
        sockets.into_iter().for_each(|socket| view.watch(socket));
        view
    }

    /// Begins to ask a volume, unless it is asked already.
    fn watch(&mut self, control: PathBuf) {
        if self.volumes.iter().any(|v| v.control == control) {
            return;
        }
        let (answer, interval, socket) = (self.answer.clone(), self.interval, control.clone());
        let ask = move || {
            while answer.send((socket.clone(), Sample::take(&socket))).is_ok() {
                std::thread::sleep(interval);
            }
        };
        let mut watched = Watched::new(control);
        if let Err(e) = std::thread::Builder::new().name("larder-top".to_owned()).spawn(ask) {
            watched.update(Err(format!("cannot start a thread: {e}")));
        }
        self.volumes.push(watched);
    }

    fn run(
        mut self,
        terminal: &mut DefaultTerminal,
        args: &TopArgs,
        stop: &AtomicBool,
    ) -> Result<()> {
        let lost = |e: std::io::Error| exit::failed(&format!("the terminal is lost: {e}"));
        let mut searched = Instant::now();
        while !stop.load(Ordering::SeqCst) {
            while let Ok((control, answer)) = self.answers.try_recv() {
                if let Some(volume) = self.volumes.iter_mut().find(|v| v.control == control) {
                    volume.update(answer);
                }
            }
            if searched.elapsed() > SEARCH {
                searched = Instant::now();
                sockets(args).into_iter().flatten().for_each(|socket| self.watch(socket));
            }
            let (volumes, first) = (&self.volumes, self.first);
            terminal.draw(|frame| screen::draw(frame, volumes, first)).map_err(lost)?;
            let has_ended = !wait_for_input().map_err(lost)?;
            if has_ended
                || event::poll(Duration::ZERO).map_err(lost)?
                    && !self.take(&event::read().map_err(lost)?)
            {
                break;
            }
        }
        Ok(())
    }

    /// Whether to continue after a key; a new size is drawn in the next round.
    fn take(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else { return true };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::Down => {
                self.first = (self.first + 1).min(self.volumes.len().saturating_sub(1));
            }
            _ => {}
        }
        true
    }
}
