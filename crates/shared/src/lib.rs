// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page log that several processes share, any of which may be killed at any instruction.
//!
//! Purpose: the driver of [`larder_core::pagelog`] for a program of processes, such as a database server: the log's
//! memory is a file that all of them map, its lock is a robust mutex in there, flash is a file that
//! each of them opens, the origin what it says it is. There are no threads and no tasks: whoever fills a batch writes it, and whoever needs room
//! makes it. Pages are numbers; nothing is known of what they hold.
//!
//! | the ... | file |
//! | --- | --- |
//! | mapping, its parts; raw memory | `memory.rs` |
//! | robust mutexes; one that is held | `mutex.rs`, `locked.rs` |
//! | who takes part, and who is gone; burials that somebody left half done | `members.rs` |
//! | what the log asks of a process; its devices | `host.rs` |
//! | an origin that is one file; several threads for a slow one | `one_file.rs`, `spread.rs` |
//! | pages read, written, buried, flushed: which is held when | `pages.rs` |
//!
//! # Invariants
//! Rules S1 to S4 of docs/design.md: what a dead process holds (S1), who completes its changes (S2), the order of locks
//! (S3), and that no process waits for room while it holds a page (S4).
//!
//! Why not numbers of processes and their start times as names: they need a look at /proc for every question, say
//! nothing of a thread that ended, and a zombie still has them. Why not a server process with a queue: a copy and
//! two switches for every page, and its death would be everybody's.
//!
//! A member is of one thread (a mutex knows its owner by thread), hence nothing here is `Send`. After a `fork`
//! the child has none of its parent's mutexes: it joins as a member of its own.
#![deny(unsafe_code)]

mod file;
mod host;
mod locked;
mod members;
mod memory;
mod mutex;
mod one_file;
mod pages;
mod spread;

pub use file::write_pages;
pub use host::{Devices, Member, Origin};
pub use locked::Locked;
pub use members::NEIGHBOURS;
pub use memory::{MEMBERS, Memory, Shape, Words};
pub use one_file::OneFile;
pub use pages::{Pages, StartError, StopError};
pub use spread::together;

pub use larder_core::pagelog::now;
