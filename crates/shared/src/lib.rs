// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page log that several processes share, each of which may be killed at any instruction.
//!
//! Purpose: runs [`larder_core::pagelog`] in a program of several processes, such as a database server. The log's
//! memory is a file that all processes map, its lock is a robust mutex in that memory, the flash is a file that each
//! process opens, and the origin is an [`Origin`]. There are no tasks: the member that fills a batch writes it, and the
//! member that needs room makes it. Threads exist only for a slow origin (`spread.rs`). Pages are numbers; their
//! content is opaque.
//!
//! | content | file |
//! | --- | --- |
//! | the mapping and its parts; raw memory | `memory.rs` |
//! | robust mutexes; the guard of one | `mutex.rs`, `locked.rs` |
//! | members, dead members, and burials that they left unfinished | `members.rs` |
//! | the log's host in one process; its devices | `host.rs` |
//! | flash, reached by the process itself or served by another one; requests to that one | `flash.rs`; `serve.rs`, `requests.rs` |
//! | an origin that is one file; several threads for a slow one | `one_file.rs`, `spread.rs` |
//! | calls of the flash device that are measured | `timed.rs` |
//! | pages read, written, buried, flushed, and the locks for each | `pages.rs` |
//!
//! # Invariants
//! Rules S1 to S4 of docs/design.md: what a dead process holds (S1), who completes its changes (S2), the order of locks
//! (S3), and that no process waits for room while it holds a page (S4).
//!
//! Why not process ids with start times as names: each check would have to read /proc, a thread that ended is not
//! covered, and a zombie keeps both. Why not a server process for all of the log: every page would cost a copy and two
//! context switches. A process may serve flash alone (`serve.rs`), where a device's time is added anyway.
//!
//! A member belongs to one thread, because a mutex identifies its owner by thread; hence nothing here is `Send`. After
//! a `fork` the child has none of its parent's mutexes: it joins as a new member.
#![deny(unsafe_code)]

mod file;
mod flash;
mod host;
mod locked;
mod members;
mod memory;
mod mutex;
mod one_file;
mod pages;
mod requests;
mod serve;
mod spread;
mod timed;

pub use file::write_pages;
pub use flash::{Device, Flash, Waits};
pub use host::{Devices, Member, Origin};
pub use locked::Locked;
pub use members::NEIGHBOURS;
pub use memory::{MEMBERS, Memory, Shape, WRITERS, Words};
pub use one_file::OneFile;
pub use pages::{Pages, StartError, StopError};
pub use serve::{Took, Watch, serve};
pub use spread::together;
pub use timed::FlashCall;

pub use larder_core::pagelog::now;
