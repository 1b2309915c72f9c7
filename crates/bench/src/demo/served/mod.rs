// SPDX-License-Identifier: MIT OR Apache-2.0
//! A volume that is served for a row: started, watched while a load runs, stopped.
//!
//! Invariants: the server's counters are taken at the start of the load and after each of its seconds.

pub mod row;
pub mod way;

use std::path::Path;

use anyhow::Result;

use self::row::Measured;
use self::way::{Medium, Way};
use super::options::DemoOptions;
use super::place::{Place, utf8};
use super::progress::Progress;
use super::server::{Server, Spec, Stats};
use super::tally::Tally;
use super::window::Window;

/// A volume, see the module.
#[derive(Debug)]
pub struct Served<'a> {
    options: &'a DemoOptions,
    way: Way,
    server: Server,
}

impl<'a> Served<'a> {
    /// Starts a fresh server, whose volume is also the file `file`, where one is named.
    ///
    /// # Errors
    /// It does not serve.
    pub fn start(
        options: &'a DemoOptions,
        place: &Place,
        way: Way,
        file: Option<&Path>,
        progress: &mut Progress,
    ) -> Result<Self> {
        let mut flags = way.flags(options, place)?;
        if let Some(file) = file {
            flags.extend(["--listen".to_owned(), format!("fuse:{}", utf8(file)?)]);
        }
        progress.begin(&format!("{}: larder serve {}", way.name, flags.join(" ")));
        let (program, dir) = (options.program()?, place.sockets().to_owned());
        let spec = Spec { program, flags, dir, name: way.name };
        let server = Server::start(&spec, || options.stopped())?;
        Ok(Self { options, way, server })
    }

    /// Runs a load, which is given the server and what to tell each second that ended, with the
    /// requests (their `unit` a second is shown) answered since the start.
    ///
    /// # Errors
    /// That of the load, or the server does not answer.
    pub fn load(
        &mut self,
        window: Window,
        unit: &str,
        progress: &mut Progress,
        load: impl FnOnce(&Server, &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<Tally>,
    ) -> Result<Measured> {
        let (way, server) = (self.way, &self.server);
        let mut samples = vec![server.stats()?];
        let mut answered = 0;
        let mut watch = |second, now| {
            self.options.stopped()?;
            let (stats, before) = (server.stats()?, samples.last().copied().unwrap_or_default());
            let rate = now - std::mem::replace(&mut answered, now);
            progress.update(|| line(way, window, second, &stats.since(&before), (rate, unit)));
            samples.push(stats);
            Ok(())
        };
        let tally = load(server, &mut watch).map_err(|error| self.server.explain(error))?;
        let rss_bytes = self.server.rss_bytes()?;
        Ok(Measured { way, tally, samples, window, rss_bytes })
    }

    /// Stops the server.
    ///
    /// # Errors
    /// It does not end well.
    pub fn stop(self) -> Result<()> {
        self.server.stop()
    }
}

/// How it goes in a second, with requests a second.
fn line(way: Way, window: Window, second: u64, stats: &Stats, (rate, unit): (u64, &str)) -> String {
    let phase = if second <= window.warm_up_seconds { "warm-up" } else { "measuring" };
    let (name, end) = (way.name, window.end_seconds());
    let device = match way.medium {
        Medium::Flash => String::new(),
        _ => format!(", {} KiB read from the device", stats.origin_read_bytes >> 10),
    };
    let hits = match way.medium {
        Medium::Cached(_) => format!(", {:.1} % hits", stats.hit_ratio() * 100.0),
        _ => String::new(),
    };
    format!("{name} {second}/{end} s, {phase}: {rate} {unit}{device}{hits}")
}
