// SPDX-License-Identifier: MIT OR Apache-2.0
//! A flash device is attached while a change of the origin is in flight: a population that read the origin before the
//! change ended must not validate its pages (design rule 4).

use larder_core::buf::Buf;
use larder_core::config::{CacheSpec, Limits, preset};
use larder_core::exec::{DevId, Io, IoKind, MILLISECOND, Nanos};
use larder_core::format::FlashPlan;
use larder_core::policy::admission::Schedule;
use larder_core::request::{Kind, Reply, Request};
use larder_core::shape::Shape;
use larder_core::shard::Shard;

const ORIGIN: DevId = DevId(0);
const UNIT: u64 = 64 << 10;
const PAGE: u64 = 4096;
const OLD: u8 = 1;
const NEW: u8 = 2;

/// A shard on two devices in memory, which can hold back writes to the origin.
struct Rig {
    shard: Shard,
    now: Nanos,
    origin: Vec<u8>,
    flash: Vec<u8>,
    holds_writes: bool,
    held: Vec<Io>,
    replies: Vec<Reply>,
}

impl Rig {
    fn new(name: &str) -> Self {
        let mut choices = preset(name).expect("the preset exists").choices();
        choices.unit_bytes = UNIT;
        if let Some(settings) = choices.periodic_mut() {
            settings.schedule = Schedule::Every(MILLISECOND);
            settings.hot = 0;
        }
        let spec = CacheSpec::try_from(choices).expect("a preset is lawful");
        let shape = Shape::new(4 * UNIT, UNIT, 1);
        Self {
            shard: Shard::new(shape, &spec, Limits::default(), ORIGIN),
            now: 0,
            origin: vec![OLD; 4 * UNIT as usize],
            flash: vec![0; 4 * UNIT as usize],
            holds_writes: false,
            held: Vec::new(),
            replies: Vec::new(),
        }
    }

    fn attach(&self, number: u32) {
        let dev = DevId(number);
        let plan = FlashPlan { dev, base: 0, slots: 4, block_bytes: 512, journal: None };
        self.shard.attach(plan, None);
    }

    fn read(&mut self, tag: u64) {
        let buf = Some(Buf::with_len(PAGE as usize));
        self.shard
            .submit(tag, Request { kind: Kind::Read, offset: 0, len: PAGE, buf, passive: false });
        self.settle();
    }

    fn write(&mut self, tag: u64) {
        let buf = Some(Buf::copy_of(&[NEW; PAGE as usize]));
        let kind = Kind::Write { fua: false };
        self.shard.submit(tag, Request { kind, offset: 0, len: PAGE, buf, passive: false });
        self.settle();
    }

    /// Executes all operations and tasks that are ready.
    fn settle(&mut self) {
        loop {
            self.shard.run(self.now);
            let mut moved = false;
            while let Some(io) = self.shard.next_io() {
                moved = true;
                let writes = matches!(io.kind, IoKind::Write { .. });
                if io.dev == ORIGIN && writes && self.holds_writes {
                    self.held.push(io);
                } else {
                    self.carry_out(io);
                }
            }
            while let Some(reply) = self.shard.next_reply() {
                moved = true;
                self.replies.push(reply);
            }
            if !moved {
                return;
            }
        }
    }

    fn carry_out(&mut self, mut io: Io) {
        let device = if io.dev == ORIGIN { &mut self.origin } else { &mut self.flash };
        let range = io.offset as usize..(io.offset + io.len) as usize;
        let memory = io.at..io.at + io.len as usize;
        match (io.kind, &mut io.buf) {
            (IoKind::Read, Some(buf)) => buf[memory].copy_from_slice(&device[range]),
            (IoKind::Write { .. }, Some(buf)) => device[range].copy_from_slice(&buf[memory]),
            _ => {}
        }
        self.shard.complete(io.id, Ok(()), io.buf);
    }

    /// The held writes reach the origin.
    fn release(&mut self) {
        self.holds_writes = false;
        for io in std::mem::take(&mut self.held) {
            self.carry_out(io);
        }
        self.settle();
    }

    fn rest(&mut self, span: Nanos) {
        let until = self.now + span;
        while let Some(at) = self.shard.next_deadline().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.settle();
        }
        self.now = until;
        self.settle();
    }

    fn answer(&self, tag: u64) -> (u8, bool) {
        let reply = self.replies.iter().find(|r| r.tag == tag).expect("it was answered");
        (reply.buf.as_ref().expect("a read brings data")[0], reply.hit)
    }
}

#[test]
fn a_population_conflicts_with_an_earlier_write_in_pass_through() {
    let mut rig = Rig::new("slru");
    rig.holds_writes = true;
    rig.write(1);
    rig.attach(1);
    // The client waits for its unit: all pages but the one that is being written become valid.
    rig.read(2);
    assert_eq!(rig.answer(2), (OLD, false), "the write is not answered yet");
    rig.release();
    rig.read(3);
    assert_eq!(rig.answer(3).0, NEW);
}

#[test]
fn an_exchange_conflicts_with_a_write_of_the_previous_attachment() {
    let mut rig = Rig::new("prwc");
    rig.attach(1);
    rig.holds_writes = true;
    rig.write(1);
    rig.shard.detach();
    rig.shard.fenced();
    rig.attach(2);
    // Updates try to admit the unit while the write is in flight, and again after its end.
    rig.rest(5 * MILLISECOND);
    rig.release();
    rig.rest(5 * MILLISECOND);
    rig.read(2);
    assert_eq!(rig.answer(2), (NEW, true));
}
