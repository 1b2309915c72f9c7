// SPDX-License-Identifier: MIT OR Apache-2.0
//! A larger buffer pool for stock PostgreSQL: pages that shared buffers evict are cached on flash and read from there.
//!
//! Purpose: the page log ([`larder_core::pagelog`], shared between processes by [`larder_shared`]) under the server's
//! own file I/O (FaCE). One library, loaded in either of two ways: as an extension
//! (`shared_preload_libraries = 'larder'`), or by `LD_PRELOAD`. Both set a hook that the server calls when its shared
//! memory exists. Then the postmaster arms the cache, and redirects the imports of the executable.
//!
//! | the ... | file |
//! | --- | --- |
//! | paths of a page, and the rules that they keep; lookups on flash | `pool.rs`; `look.rs` |
//! | pages that are read through a ring (scans), which are not admitted; `larder.admit` | `ring.rs`; `admits.rs` |
//! | handling of changed pages under `through`, `bounded`, `full` | `policy/` |
//! | flash, as one process sees it; the process that reads and writes it | `flash.rs`; `flash_process.rs` |
//! | whether flash is used (`larder.disable()`), and takes changes; a policy that changes | `switch.rs`; `reload.rs`, `following.rs` |
//! | reads and writes of files, page by page; pages that the kernel caches | `transfer.rs`; `near.rs` |
//! | what the server calls instead of the C library | `hooks.rs`; redirected by `got.rs` |
//! | imports that a server must have, and those that it may have | `imports.rs` |
//! | start and stop | `arm.rs` |
//! | what an earlier start left | `earlier.rs`, `memory.rs`, `place.rs`, `kept.rs`, `control.rs`, `wal.rs` |
//! | flushes of the server; write-back in advance of them | `commit.rs`; `ahead.rs`, `pace.rs` |
//! | flash as a part of the database | `policy/full.rs`, `part.rs`, `journal.rs`, `guard.rs` |
//! | state in this process; what the process is | `here.rs`; `process.rs` |
//! | numbers of extents, which are parts of forks; names of files | `names.rs`, `extent.rs`, `file.rs` |
//! | shared memory beside the log: frames, epochs, counters | `area.rs` |
//! | times of devices, reads by relation; as SQL has them | `tally.rs`; `statistics.rs` |
//! | relations whose pages stay on flash; read in advance | `pins.rs`; `prewarm.rs` |
//! | writes of changed pages from flash to the disk | `disk.rs`, `unflushed.rs`, `spare.rs` |
//! | bytes of a page; copies of bytes that other processes change; errors | `content.rs`, `frame.rs`, `error.rs` |
//! | the server: its functions, its properties; settings; state | `server.rs`, `instance.rs`, `settings.rs`, `status.rs` |
//!
//! Why not a patch or a fork of the server: operators run the server of their distribution. Why not the table of the
//! storage manager: its functions change in minor releases, and those of the C library do not.
#![deny(unsafe_code)]

mod admits;
mod ahead;
mod area;
mod arm;
mod commit;
mod content;
mod control;
mod disk;
mod earlier;
mod entry;
mod error;
mod extent;
mod file;
mod flash;
mod flash_process;
mod following;
mod frame;
#[cfg(test)]
mod full_tests;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod got;
mod guard;
mod here;
mod hooks;
mod imports;
mod instance;
mod journal;
mod kept;
mod look;
mod memory;
pub mod mutant;
mod names;
mod near;
mod pace;
mod part;
mod pins;
mod place;
mod policy;
mod pool;
#[cfg(test)]
mod pool_tests;
mod prewarm;
#[cfg(test)]
mod prewarm_tests;
mod process;
mod reload;
#[cfg(any(test, feature = "fuzz"))]
mod rig;
mod ring;
mod server;
mod settings;
mod spare;
#[cfg(test)]
mod state_tests;
mod statistics;
mod status;
mod switch;
#[cfg(test)]
mod switch_tests;
mod tally;
mod transfer;
mod unflushed;
mod wal;
