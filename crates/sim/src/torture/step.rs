// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a history is made of.

use std::fmt;

use larder_core::buf::SECTOR;
use larder_core::exec::Nanos;
use larder_core::request::Kind;
use larder_core::shard::Arrangement;

/// A kind of crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The power fails: unflushed sectors are there or not.
    Power,
    /// The process dies: the devices lose nothing.
    Process,
    /// The power fails, and the flash device is another one afterwards.
    FlashLost,
}

/// What goes wrong, from one moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The trouble of the plan begins.
    Begins,
    /// It ends: operations that hang are answered, a device that disappeared returns.
    Ends,
    /// A bit flips in this sector of flash.
    Flip(u64, u32),
}

/// What becomes of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It is cached, and not evicted.
    Pin,
    /// It is never admitted.
    Exclude,
    /// Neither.
    Forget,
}

impl Rule {
    fn name(self) -> &'static str {
        match self {
            Self::Pin => "pinned",
            Self::Exclude => "excluded",
            Self::Forget => "neither pinned nor excluded",
        }
    }
}

/// One step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client asks for something.
    Ask(Kind, u64, u64),
    /// So many events happen.
    Go(u32),
    /// Time passes.
    Rest(Nanos),
    /// What if the power failed now? So many outcomes; the life continues with none of them.
    Cut(u64, u32),
    /// A crash, after which another life begins; whether it first reads everything back.
    Crash(u64, Stop, bool),
    /// Something goes wrong.
    Fault(Fault),
    /// The administrator asks for a write-back of all dirty data.
    Flush,
    /// The administrator detaches a flash device without dirty data.
    Detach,
    /// The administrator asks for a write-back of all dirty data, and detaches the flash device afterwards.
    Leave,
    /// The administrator takes a volume out of the cache that it shares ...
    Depart(u32),
    /// ... and into it again.
    Return(u32),
    /// The administrator attaches a flash device, where there is none: the last one, or else another.
    Attach(bool),
    /// The administrator warms or evicts a range.
    Arrange(Arrangement, u64, u64),
    /// The administrator has a range read back and compared with its checksums.
    Scrub(u64, u64),
    /// The administrator has so many tenths of flash used.
    Resize(u64),
    /// The administrator pins or excludes a range.
    Rule(Rule, u64, u64),
    /// The administrator changes settings.
    Set(u64),
    /// The volume is about to stop: all of the cache's state is made durable.
    Settle,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ask(Kind::Flush, ..) => write!(f, "flush"),
            Self::Ask(kind, offset, len) => {
                let name = match kind {
                    Kind::Read => "read",
                    Kind::Write { fua: false } => "write",
                    Kind::Write { fua: true } => "write under FUA",
                    Kind::Trim { .. } => "trim",
                    _ => "zero",
                };
                let (first, count) = (offset / SECTOR as u64, len / SECTOR as u64);
                write!(f, "{name} {count} sectors from {first}")
            }
            Self::Go(events) => write!(f, "{events} events happen"),
            Self::Rest(span) => write!(f, "{} us pass", span / 1000),
            Self::Cut(_, outcomes) => write!(f, "{outcomes} outcomes of a power cut are judged"),
            Self::Crash(_, stop, back) => {
                let what = match stop {
                    Stop::Power => "the power fails",
                    Stop::Process => "the process dies",
                    Stop::FlashLost => "the power fails, and flash is another device",
                };
                write!(f, "{what}{}", if back { "; everything is read back" } else { "" })
            }
            Self::Flush => write!(f, "the origin is to have everything"),
            Self::Detach => write!(f, "flash is taken away"),
            Self::Leave => write!(f, "flash is taken away when the origin has everything"),
            Self::Depart(volume) => write!(f, "volume {volume} is to leave the cache"),
            Self::Return(volume) => write!(f, "volume {volume} joins the cache again"),
            Self::Attach(true) => write!(f, "flash is attached again"),
            Self::Attach(false) => write!(f, "another flash is attached"),
            Self::Arrange(what, offset, len) => {
                let name = if what == Arrangement::Warm { "warmed" } else { "evicted" };
                let (first, count) = (offset / SECTOR as u64, len / SECTOR as u64);
                write!(f, "{count} sectors from {first} are {name}")
            }
            Self::Scrub(offset, len) => {
                let (first, count) = (offset / SECTOR as u64, len / SECTOR as u64);
                write!(f, "{count} sectors from {first} are scrubbed")
            }
            Self::Resize(tenths) => write!(f, "{tenths} tenths of flash are used now"),
            Self::Rule(rule, offset, len) => {
                let (first, count) = (offset / SECTOR as u64, len / SECTOR as u64);
                write!(f, "{count} sectors from {first} are {}", rule.name())
            }
            Self::Set(salt) => write!(f, "settings change ({salt})"),
            Self::Settle => write!(f, "all state is made durable"),
            Self::Fault(Fault::Begins) => write!(f, "the trouble begins"),
            Self::Fault(Fault::Ends) => write!(f, "the trouble ends"),
            Self::Fault(Fault::Flip(sector, bit)) => {
                write!(f, "bit {bit} of flash sector {sector} flips")
            }
        }
    }
}
