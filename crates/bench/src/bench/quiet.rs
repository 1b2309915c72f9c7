// SPDX-License-Identifier: MIT OR Apache-2.0
//! What else runs on the machine, to select the quieter rounds.
//!
//! Method: more rounds are run than are counted, and those count during which other processes had
//! the least of the machine's processor time. The choice looks at that alone and never at a figure
//! that was measured, so it favours no side; rows state how much time other processes had.
//!
//! Why not wait for silence: a machine that is shared may never be silent.

use anyhow::{Context, Result};

/// Of the rounds that were run, this share counts.
const COUNTED: f64 = 0.6;

/// Processor time so far, in ticks: of the whole machine, and of the measured processes.
#[derive(Clone, Copy)]
struct Ticks {
    busy: u64,
    total: u64,
    own: u64,
}

/// A span of time in which other processes are watched.
pub(super) struct Watch {
    server: Option<u32>,
    begin: Ticks,
}

impl Watch {
    /// Begins. This process, its children that end meanwhile and `server` do not count as other processes.
    pub(super) fn begin(server: Option<u32>) -> Result<Self> {
        Ok(Self { server, begin: Ticks::now(server)? })
    }

    /// The share of the machine that other processes used.
    pub(super) fn others(&self) -> Result<f64> {
        let (begin, end) = (self.begin, Ticks::now(self.server)?);
        let busy = end.busy.saturating_sub(begin.busy);
        let own = end.own.saturating_sub(begin.own);
        let total = end.total.saturating_sub(begin.total).max(1);
        Ok(busy.saturating_sub(own) as f64 / total as f64)
    }
}

impl Ticks {
    fn now(server: Option<u32>) -> Result<Self> {
        let own = process_ticks("self", true)?;
        let server = server.map_or(Ok(0), |pid| process_ticks(&pid.to_string(), false))?;
        let text = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
        let (busy, total) = machine_ticks(&text).context("/proc/stat")?;
        Ok(Self { busy, total, own: own + server })
    }
}

/// Busy and all ticks of the machine. Waiting for a disk is idle; time that the host gave to other
/// guests is busy.
fn machine_ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|w| w.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    let total: u64 = ticks.iter().sum();
    Some((total - idle, total))
}

/// User and system time of a process, in ticks of 10 ms; with `children`, of those too that it has
/// waited for.
pub(super) fn process_ticks(pid: &str, children: bool) -> Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    // The name in parentheses may hold anything, so what follows its end is counted.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = rest.split_whitespace().skip(11).take(if children { 4 } else { 2 });
    fields.map(|word| word.parse::<u64>().with_context(|| path.clone())).sum()
}

/// Which rounds count, given the share of other processes in each.
pub(super) struct Counted {
    rounds: Vec<usize>,
    /// The largest share of other processes in one of them.
    most: f64,
    left_out: usize,
}

impl Counted {
    pub(super) fn quietest(others: &[f64]) -> Self {
        let mut rounds: Vec<usize> = (0..others.len()).collect();
        rounds.sort_by(|a, b| others[*a].total_cmp(&others[*b]));
        let count = ((others.len() as f64 * COUNTED).ceil() as usize).max(1);
        rounds.truncate(count);
        let most = rounds.last().map_or(0.0, |round| others[*round]);
        let left_out = others.len() - rounds.len();
        Self { rounds, most, left_out }
    }

    /// A figure of the rounds that count.
    pub(super) fn each<T>(&self, results: &[T], figure: impl Fn(&T) -> f64) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| results.get(*round)).map(figure).collect()
    }

    pub(super) fn words(&self) -> String {
        format!(
            "others and interrupts had up to {:.0} % of the machine; {} busier rounds left out",
            self.most * 100.0,
            self.left_out
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_process_is_read() {
        let begin = std::time::Instant::now();
        let mut sum = 0u64;
        while begin.elapsed() < std::time::Duration::from_millis(60) {
            sum = sum.wrapping_add(begin.elapsed().as_nanos() as u64);
        }
        assert!(process_ticks("self", true).unwrap() > 0, "{sum}");
        assert!(process_ticks("4294967295", false).is_err());
    }

    #[test]
    fn waiting_is_not_work_and_stolen_time_is() {
        let ticks = machine_ticks("cpu  10 1 5 100 50 2 3 4 7 7\ncpu0 1 1 1 1\n");
        assert_eq!(ticks, Some((25, 175)));
    }

    #[test]
    fn the_quieter_rounds_count() {
        let counted = Counted::quietest(&[0.5, 0.1, 0.9, 0.2, 0.05]);
        assert_eq!(counted.each(&[1.0, 2.0, 3.0, 4.0, 5.0], |x| *x), [5.0, 2.0, 4.0]);
        let words = "others and interrupts had up to 20 % of the machine; 2 busier rounds left out";
        assert_eq!(counted.words(), words);
        assert_eq!(Counted::quietest(&[0.7]).each(&[1.0], |x| *x), [1.0]);
    }
}
