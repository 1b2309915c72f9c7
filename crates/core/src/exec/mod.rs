// SPDX-License-Identifier: MIT OR Apache-2.0
//! The executor of a shard: runs straight-line `async` paths over device operations.
//!
//! It keeps runtimes, threads, files and sockets out of the engine. A driver (io_uring, virtual time) is a loop over four
//! calls: it takes operations ([`Exec::next_io`]), reports their results ([`Exec::complete`]), and calls [`Exec::run`] at
//! [`Exec::next_deadline`].
//!
//! Invariants:
//! - Single-threaded and deterministic: tasks run in the order in which they became ready.
//! - The driver completes an operation exactly once. Its buffer and its guard stay in the table until then, also after a
//!   timeout (design rule 5).
//! - A task may be woken without cause; every future checks its own state again.
//!
//! Why not an executor from a crate: its wakers are atomically counted and its tasks are `Send`. Here tasks wait only for
//! state of this module, so a waker is a task number, and a cached read takes well under a microsecond.
//!
//! | the ... | file |
//! | --- | --- |
//! | operations, devices, time | `op.rs` |
//! | tasks, timers, operations in flight | `executor.rs` |
//! | a flag that one task waits for | `signal.rs` |
//! | several futures in one task | `each.rs` |
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
