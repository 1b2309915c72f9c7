// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shard's own executor: it turns straight-line `async` paths into device operations asked
//! for and completions told of.
//!
//! Purpose: the paths (read, write, populate ...) read top to bottom, and yet the engine names no
//! runtime, thread, file or socket. Seen from outside there is a queue of operations to take
//! ([`Exec::next_io`]), a call to report each result ([`Exec::complete`]), a time to be called
//! again at ([`Exec::next_deadline`]) and [`Exec::run`]. Every driver (io_uring, virtual time)
//! is a loop over these four.
//!
//! Invariants:
//! - Single-threaded and deterministic: tasks run in the order in which they became ready.
//! - An operation is completed exactly once by the driver. What it holds (its buffer and its
//!   guard) stays in the table until then, even when the task that asked has given up waiting:
//!   design rule 5.
//! - A woken task may find nothing to do; every future here looks at its own state again.
//!
//! Why not an executor from a crate: their wakers are atomically counted and their tasks are
//! `Send`; here all waiting is on things that this module owns, so a waker is a task number, and
//! a cached read costs well under a microsecond.
//!
//! | the ... | file |
//! | --- | --- |
//! | operations, devices, time | `op.rs` |
//! | tasks, timers, operations in flight | `executor.rs` |
//! | a flag that one task waits for | `signal.rs` |
//! | several futures at a time | `each.rs` |
//! | a list of tasks that wait for one change | `wait_list.rs` |

mod each;
mod executor;
mod op;
mod signal;
mod wait_list;

pub use self::each::each;
pub use self::executor::{Exec, IoFuture};
pub use self::op::{DevId, Ended, Guard, Io, IoId, IoKind, MILLISECOND, Nanos, SECOND};
pub use self::signal::Signal;
pub use self::wait_list::WaitList;
