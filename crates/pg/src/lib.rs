// SPDX-License-Identifier: MIT OR Apache-2.0
//! A longer buffer pool for stock PostgreSQL: pages that leave shared buffers go to flash, and come back from there.
//!
//! Purpose: the page log ([`larder_core::pagelog`], shared between processes by [`larder_shared`]) under the server's
//! own file I/O (FaCE). One library, loaded in either of two ways: as an extension
//! (`shared_preload_libraries = 'larder'`), or by `LD_PRELOAD`. Both set a hook that the server calls when its shared
//! memory is there; then the postmaster arms the cache, and redirects the executable's imports.
//!
//! | the ... | file |
//! | --- | --- |
//! | paths of a page, and the rules that they keep | `pool.rs` |
//! | what becomes of changed pages under `through`, `bounded`, `full` | `policy/` |
//! | flash, as one process sees it | `flash.rs` |
//! | reads and writes of files, page by page | `transfer.rs` |
//! | what the server calls instead of the C library | `hooks.rs`; how it comes to that: `got.rs` |
//! | start and stop | `arm.rs` |
//! | what an earlier start left | `earlier.rs`, `memory.rs`, `kept.rs`, `control.rs`, `wal.rs` |
//! | what the server wants to be durable | `commit.rs` |
//! | flash as a part of the database | `policy/full.rs`, `part.rs`, `journal.rs`, `guard.rs` |
//! | this process's part | `here.rs` |
//! | numbers of forks; names of files | `names.rs`, `file.rs` |
//! | what processes share beside the log; frames, epochs, counters | `area.rs` |
//! | where changed pages go from flash | `disk.rs`, `unflushed.rs`, `spare.rs` |
//! | bytes of a page; what can go wrong | `content.rs`, `error.rs` |
//! | the server: its functions, what it is like; settings; state | `server.rs`, `instance.rs`, `settings.rs`, `status.rs` |
//!
//! Why not a patch or a fork of the server: nobody would run it. Why not its storage manager's table: its functions
//! change in minor releases, and the C library's do not.
#![deny(unsafe_code)]

mod area;
mod arm;
mod commit;
mod content;
mod control;
mod disk;
mod earlier;
mod entry;
mod error;
mod file;
mod flash;
#[cfg(test)]
mod full_tests;
mod got;
mod guard;
mod here;
mod hooks;
mod instance;
mod journal;
mod kept;
mod memory;
pub mod mutant;
mod names;
mod part;
mod policy;
mod pool;
#[cfg(test)]
mod pool_tests;
mod server;
mod settings;
mod spare;
mod status;
mod transfer;
mod unflushed;
mod wal;
