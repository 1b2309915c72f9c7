// SPDX-License-Identifier: MIT OR Apache-2.0
//! The jobs of a hierarchy: threads of applications, blocks on their way down, syncers.
//!
//! Invariant: all that happens follows from the order of events; a job that is over is used again.

use larder_model::{Nanos, SplitMix64};

use super::clock::{Acts, Clock, Turn};
use super::level::Level;
use super::writeback::Queue;
use super::{Architecture, Counts, Io, Seen, Source, Spec, WriteBack};

/// RAM's level and queue; under `unified` the level of both media.
pub(super) const RAM: usize = 0;
/// Flash's.
pub(super) const FLASH: usize = 1;

pub(super) struct Host {
    pub(super) levels: [Level; 2],
    pub(super) queues: [Queue; 2],
}

/// Where an application's thread is with its block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Between blocks.
    Idle,
    /// It waits for flash, and RAM is to have the block then.
    FlashRead,
    /// It waits for the filer, and the caches are to have the block then.
    FilerRead,
    /// It waits for the rest.
    Rest,
}

pub(super) struct App {
    thread: u32,
    /// Which of its reads are slow ones if they reach the filer: drawn for every read, so that runs
    /// with other caches meet the same.
    random: SplitMix64,
    io: Io,
    began: Nanos,
    counts: bool,
    phase: Phase,
}

pub(super) enum Kind {
    App(App),
    /// A block on its way down, from a level's slot.
    Write {
        level: usize,
        queue: usize,
        slot: u32,
        block: u32,
    },
    /// The syncer of a queue.
    Tick {
        queue: usize,
        every: Nanos,
    },
}

struct Job {
    host: u32,
    kind: Kind,
    acts: Acts,
}

pub(super) struct Run<'a, S, F> {
    pub(super) spec: &'a Spec,
    pub(super) clock: Clock,
    pub(super) hosts: Vec<Host>,
    jobs: Vec<Job>,
    idle: Vec<u32>,
    threads: u32,
    random: SplitMix64,
    /// Reads below this are fast, of 2^53.
    fast_below: u64,
    /// Blocks asked for so far.
    asked: u64,
    since: (Nanos, u64),
    pub(super) counts: Counts,
    source: &'a mut S,
    seen: F,
}

/// Runs a hierarchy until its source ends; `seen` receives every block after the warm-up.
pub fn run<S: Source, F: FnMut(Seen)>(spec: &Spec, source: &mut S, seen: F) -> Counts {
    let (ram, flash) = (spec.ram_blocks, spec.flash_blocks);
    let (upper, lower) = match spec.architecture {
        Architecture::Unified => (ram.saturating_add(flash), 0),
        _ => (ram, flash),
    };
    let level = |slots, host: u32| Level::new(slots, spec.replacement, spec.seed ^ u64::from(host));
    let queue = |policy| Queue::new(policy, spec.writers);
    let host = |n| Host {
        levels: [level(upper, n), level(lower, n)],
        queues: [queue(spec.ram_policy), queue(spec.flash_policy)],
    };
    let mut run = Run {
        spec,
        clock: Clock::new(spec.hosts, spec.one_packet_at_a_time),
        hosts: (0..spec.hosts).map(host).collect(),
        jobs: Vec::new(),
        idle: Vec::new(),
        threads: spec.hosts * spec.threads,
        random: SplitMix64::new(spec.seed),
        fast_below: (spec.times.fast_read_ratio * (1u64 << 53) as f64) as u64,
        asked: 0,
        since: (0, 0),
        counts: Counts::default(),
        source,
        seen,
    };
    run.start();
    while run.threads > 0
        && let Some(job) = run.clock.next()
    {
        run.turn(job);
    }
    run.counts.span_ns = run.clock.now - run.since.0;
    run.counts.packets = run.clock.packets - run.since.1;
    run.counts
}

/// What a job does when it has done all its acts.
enum After {
    /// It has more of them.
    GoesOn,
    /// It waits to be woken, or permanently.
    Rests,
    /// Its place is free.
    Ended,
}

impl<S: Source, F: FnMut(Seen)> Run<'_, S, F> {
    fn start(&mut self) {
        for host in 0..self.spec.hosts {
            for thread in 0..self.spec.threads {
                let io = Io { write: false, block: 0, blocks: 0 };
                let random = SplitMix64::new(self.random.next_u64());
                let app = App { thread, random, io, began: 0, counts: false, phase: Phase::Idle };
                self.begin(host, Kind::App(app));
            }
            for queue in [RAM, FLASH] {
                if let WriteBack::Periodic(every) = self.hosts[host as usize].queues[queue].policy {
                    let job = self.job(host, Kind::Tick { queue, every });
                    self.clock.wake(every, job);
                }
            }
        }
    }

    fn job(&mut self, host: u32, kind: Kind) -> u32 {
        if let Some(job) = self.idle.pop() {
            let old = &mut self.jobs[job as usize];
            (old.host, old.kind) = (host, kind);
            return job;
        }
        self.jobs.push(Job { host, kind, acts: Acts::default() });
        self.jobs.len() as u32 - 1
    }

    /// A new job, whose turn is now.
    fn begin(&mut self, host: u32, kind: Kind) -> u32 {
        let job = self.job(host, kind);
        self.clock.wake(self.clock.now, job);
        job
    }

    fn turn(&mut self, job: u32) {
        loop {
            let Job { host, acts, .. } = &mut self.jobs[job as usize];
            let host = *host;
            if self.clock.go_on(job, host, acts) == Turn::Waits {
                return;
            }
            let mut acts = std::mem::take(acts);
            let after = self.over(job, host, &mut acts);
            self.jobs[job as usize].acts = acts;
            match after {
                After::GoesOn => {}
                After::Rests => return,
                // Only now: the job that takes its place has acts of its own.
                After::Ended => return self.idle.push(job),
            }
        }
    }

    /// A job has done all its acts.
    fn over(&mut self, job: u32, host: u32, acts: &mut Acts) -> After {
        match &self.jobs[job as usize].kind {
            Kind::App(_) => self.application(job, host, acts),
            Kind::Write { level, queue, slot, block } => {
                let (queue, slot) = (*queue, *slot);
                let at = &mut self.hosts[host as usize];
                if at.levels[*level].end_write(slot, *block) {
                    at.queues[queue].push(slot);
                }
                at.queues[queue].ended();
                self.kick(host, queue);
                After::Ended
            }
            Kind::Tick { queue, every } => {
                let (queue, every) = (*queue, *every);
                self.hosts[host as usize].queues[queue].tick();
                self.clock.wake(self.clock.now + every, job);
                self.kick(host, queue);
                After::Rests
            }
        }
    }

    /// A thread continues with its block, or with the next; at its end it rests.
    fn application(&mut self, job: u32, host: u32, acts: &mut Acts) -> After {
        let Kind::App(app) = &mut self.jobs[job as usize].kind else { return After::Rests };
        let (io, phase) = (app.io, app.phase);
        match phase {
            Phase::FlashRead | Phase::FilerRead => {
                app.phase = Phase::Rest;
                self.enter(host, io.block, phase == Phase::FilerRead, acts);
                return After::GoesOn;
            }
            Phase::Rest => {
                let took = self.clock.now - app.began;
                if app.counts {
                    let sum =
                        if io.write { &mut self.counts.write_ns } else { &mut self.counts.read_ns };
                    *sum += took;
                    (self.seen)(Seen { write: io.write, took });
                }
                (app.io.block, app.io.blocks) = (io.block + 1, io.blocks - 1);
            }
            Phase::Idle => {}
        }
        if app.io.blocks == 0 {
            let Some(next) = self.source.next(host, app.thread) else {
                self.threads -= 1;
                return After::Rests;
            };
            app.io = next;
        }
        self.asked += 1;
        if self.asked == self.spec.warm_up_blocks + 1 {
            self.since = (self.clock.now, self.clock.packets);
            self.counts = Counts::default();
        }
        app.began = self.clock.now;
        app.counts = self.asked > self.spec.warm_up_blocks;
        let (io, counts) = (app.io, app.counts);
        let fast = (app.random.next_u64() >> 11) < self.fast_below;
        let phase = if io.write {
            self.write(host, io.block, counts, acts)
        } else {
            self.read(host, io.block, counts, fast, acts)
        };
        if let Kind::App(app) = &mut self.jobs[job as usize].kind {
            app.phase = phase;
        }
        After::GoesOn
    }

    /// Sends down what may go.
    pub(super) fn kick(&mut self, host: u32, queue: usize) {
        let level = self.level_of(queue);
        loop {
            let at = &mut self.hosts[host as usize];
            let Some(slot) = at.queues[queue].pop() else { return };
            let Some(block) = at.levels[level].begin_write(slot) else { continue };
            at.queues[queue].began();
            let job = self.begin(host, Kind::Write { level, queue, slot, block });
            let mut acts = std::mem::take(&mut self.jobs[job as usize].acts);
            self.write_down(host, queue, block, &mut acts);
            self.jobs[job as usize].acts = acts;
        }
    }

    /// Where the slots of a queue are.
    pub(super) fn level_of(&self, queue: usize) -> usize {
        if self.spec.architecture == Architecture::Unified { RAM } else { queue }
    }
}
