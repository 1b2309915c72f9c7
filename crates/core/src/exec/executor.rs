// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks, timers, and operations in flight of one shard.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use super::op::{DevId, Ended, Guard, Io, IoId, IoKind, Nanos};
use crate::buf::Buf;
use crate::request::Errno;

pub(super) type TaskId = usize;
type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

enum State {
    Pending,
    Overdue,
    Done(Result<(), Errno>, Option<Buf>),
}

struct Op<G> {
    state: State,
    waiter: TaskId,
    /// No task waits for it.
    orphan: bool,
    guard: Option<G>,
    serial: u64,
}

struct Task {
    /// None while it runs.
    body: Option<BoxedTask>,
    group: Option<u32>,
}

struct Inner<G> {
    now: Cell<Nanos>,
    current: Cell<TaskId>,
    tasks: RefCell<Slab<Task>>,
    ready: RefCell<VecDeque<TaskId>>,
    ops: RefCell<Slab<Op<G>>>,
    serial: Cell<u64>,
    outbox: RefCell<VecDeque<Io>>,
    timers: RefCell<BinaryHeap<Reverse<(Nanos, u64, TaskId)>>>,
    /// Operations with a time limit, in the order of their deadlines. All time limits of a shard are equal, so a new one is the last,
    /// unless the limit was lowered.
    bounds: RefCell<VecDeque<(Nanos, u32, u64)>>,
}

/// A handle on the executor of one shard.
pub struct Exec<G: Guard = ()>(Rc<Inner<G>>);

impl<G: Guard> Clone for Exec<G> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<G: Guard> Default for Exec<G> {
    fn default() -> Self {
        Self(Rc::new(Inner {
            now: Cell::new(0),
            current: Cell::new(usize::MAX),
            tasks: RefCell::default(),
            ready: RefCell::default(),
            ops: RefCell::default(),
            serial: Cell::new(0),
            outbox: RefCell::default(),
            timers: RefCell::default(),
            bounds: RefCell::default(),
        }))
    }
}

impl<G: Guard> Exec<G> {
    /// The time of the current [`run`](Self::run).
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.0.now.get()
    }

    /// Starts a task; it runs with the next [`run`](Self::run).
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.spawn_in(None, task);
    }

    /// Starts a task of a group; it runs with the next [`run`](Self::run).
    pub fn spawn_in(&self, group: Option<u32>, task: impl Future<Output = ()> + 'static) {
        let task = Task { body: Some(Box::pin(task)), group };
        let id = self.0.tasks.borrow_mut().insert(task);
        self.wake(id);
    }

    /// The group of the task that runs.
    #[must_use]
    pub fn group(&self) -> Option<u32> {
        self.0.tasks.borrow().get(self.current())?.group
    }

    /// The task that runs.
    pub(super) fn current(&self) -> TaskId {
        self.0.current.get()
    }

    pub(super) fn wake(&self, task: TaskId) {
        self.0.ready.borrow_mut().push_back(task);
    }

    /// Sets the clock to `now`, fires due timers and time limits, and runs all ready tasks.
    pub fn run(&self, now: Nanos) {
        debug_assert!(now >= self.0.now.get(), "the clock went backwards");
        self.0.now.set(now);
        self.fire(now);
        loop {
            let Some(id) = self.0.ready.borrow_mut().pop_front() else { break };
            let Some(mut task) = self.take_task(id) else { continue };
            self.0.current.set(id);
            let poll = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            match poll {
                Poll::Ready(()) => drop(self.0.tasks.borrow_mut().remove(id)),
                Poll::Pending => self.0.tasks.borrow_mut()[id].body = Some(task),
            }
        }
    }

    fn take_task(&self, id: TaskId) -> Option<BoxedTask> {
        self.0.tasks.borrow_mut().get_mut(id)?.body.take()
    }

    fn fire(&self, now: Nanos) {
        let mut timers = self.0.timers.borrow_mut();
        while timers.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            if let Some(Reverse((_, _, task))) = timers.pop() {
                self.wake(task);
            }
        }
        drop(timers);
        let mut bounds = self.0.bounds.borrow_mut();
        let mut ops = self.0.ops.borrow_mut();
        while let Some(&(at, key, serial)) = bounds.front() {
            let live = ops.get_mut(key as usize).filter(|op| op.serial == serial);
            match live {
                Some(op) if matches!(op.state, State::Pending) && !op.orphan => {
                    if at > now {
                        break;
                    }
                    op.state = State::Overdue;
                    self.wake(op.waiter);
                }
                _ => {}
            }
            bounds.pop_front();
        }
    }

    /// Drops all tasks and all operations.
    pub fn stop(&self) {
        // Tasks first and without a borrow: dropping one may drop futures, which access the operations.
        let tasks = std::mem::take(&mut *self.0.tasks.borrow_mut());
        drop(tasks);
        let ops = std::mem::take(&mut *self.0.ops.borrow_mut());
        drop(ops);
        self.0.outbox.borrow_mut().clear();
        self.0.ready.borrow_mut().clear();
    }

    /// The latest time of the next [`run`](Self::run), if no operation completes before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        if !self.0.ready.borrow().is_empty() {
            return Some(self.now());
        }
        let timer = self.0.timers.borrow().peek().map(|Reverse((at, ..))| *at);
        let bound = self.0.bounds.borrow().front().map(|(at, ..)| *at);
        match (timer, bound) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The next operation to execute.
    #[must_use]
    pub fn next_io(&self) -> Option<Io> {
        self.0.outbox.borrow_mut().pop_front()
    }

    /// Number of operations that were started and are not completed.
    #[must_use]
    pub fn ios_open(&self) -> usize {
        self.0.ops.borrow().len()
    }

    /// Completes an operation and returns its buffer.
    pub fn complete(&self, id: IoId, result: Result<(), Errno>, buf: Option<Buf>) {
        let key = id.0 as usize;
        let guard = {
            let mut ops = self.0.ops.borrow_mut();
            let Some(op) = ops.get_mut(key) else {
                debug_assert!(false, "completion of an unknown operation");
                return;
            };
            if op.orphan || matches!(op.state, State::Overdue) {
                let op = ops.remove(key);
                drop(ops);
                if let Some(guard) = &op.guard {
                    guard.late(result);
                }
                return;
            }
            op.state = State::Done(result, buf);
            self.wake(op.waiter);
            op.guard.take()
        };
        drop(guard);
    }

    /// Starts an operation; the future ends with the device's answer or, with a `bound`, when that time limit expires.
    #[allow(clippy::too_many_arguments)] // the fields of one operation
    pub fn io(
        &self,
        dev: DevId,
        kind: IoKind,
        offset: u64,
        len: u64,
        buf: Option<Buf>,
        at: usize,
        guard: Option<G>,
        bound: Option<Nanos>,
    ) -> IoFuture<G> {
        let serial = self.0.serial.replace(self.0.serial.get() + 1);
        let op = Op {
            state: State::Pending,
            waiter: self.0.current.get(),
            orphan: false,
            guard,
            serial,
        };
        let key = self.0.ops.borrow_mut().insert(op) as u32;
        if let Some(bound) = bound {
            self.bound(self.now() + bound, key, serial);
        }
        let io = Io { id: IoId(key), dev, kind, offset, len, buf, at };
        self.0.outbox.borrow_mut().push_back(io);
        IoFuture { exec: self.clone(), key: Some(key as usize) }
    }

    fn bound(&self, at: Nanos, key: u32, serial: u64) {
        let mut bounds = self.0.bounds.borrow_mut();
        match bounds.back() {
            Some((last, ..)) if *last > at => {
                let place = bounds.partition_point(|(other, ..)| *other <= at);
                bounds.insert(place, (at, key, serial));
            }
            _ => bounds.push_back((at, key, serial)),
        }
    }

    /// Continues after the tasks that are ready now.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            self.wake(self.current());
            Poll::Pending
        })
        .await;
    }

    /// Waits for this time.
    pub async fn sleep(&self, span: Nanos) {
        let (until, mut set) = (self.now() + span, false);
        std::future::poll_fn(|_| {
            if self.now() >= until {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut set, true) {
                self.timer(until);
            }
            Poll::Pending
        })
        .await;
    }

    /// Wakes the current task at this time.
    pub(super) fn timer(&self, at: Nanos) {
        let serial = self.0.serial.replace(self.0.serial.get() + 1);
        self.0.timers.borrow_mut().push(Reverse((at, serial, self.0.current.get())));
    }
}

/// An operation in flight, see [`Exec::io`].
pub struct IoFuture<G: Guard> {
    exec: Exec<G>,
    key: Option<usize>,
}

impl<G: Guard> Future for IoFuture<G> {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Ended> {
        let Some(key) = self.key else { return Poll::Pending };
        let exec = self.exec.clone();
        let mut ops = exec.0.ops.borrow_mut();
        match ops[key].state {
            State::Pending => {
                ops[key].waiter = exec.0.current.get();
                Poll::Pending
            }
            State::Overdue => {
                ops[key].orphan = true;
                self.key = None;
                Poll::Ready(Ended::TimedOut)
            }
            State::Done(..) => {
                self.key = None;
                let State::Done(result, buf) = ops.remove(key).state else { unreachable!() };
                Poll::Ready(Ended::Done(result, buf))
            }
        }
    }
}

impl<G: Guard> Drop for IoFuture<G> {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let mut ops = self.exec.0.ops.borrow_mut();
        if matches!(ops[key].state, State::Done(..)) {
            ops.remove(key);
        } else {
            ops[key].orphan = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overdue_operation_keeps_its_guard_until_the_device_answers() {
        struct Pin(Rc<Cell<u32>>);
        impl Guard for Pin {
            fn late(&self, _: Result<(), Errno>) {
                self.0.set(self.0.get() + 10);
            }
        }
        impl Drop for Pin {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        let exec: Exec<Pin> = Exec::default();
        let (seen, ended) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (e, pin, done) = (exec.clone(), Pin(Rc::clone(&seen)), Rc::clone(&ended));
        exec.spawn(async move {
            let buf = Some(Buf::with_len(4096));
            let io = e.io(DevId(0), IoKind::Read, 0, 4096, buf, 0, Some(pin), Some(100));
            assert!(matches!(io.await, Ended::TimedOut));
            done.set(true);
        });
        exec.run(0);
        let io = exec.next_io().unwrap();
        assert_eq!(exec.next_deadline(), Some(100));
        exec.run(99);
        assert!(!ended.get());
        exec.run(100);
        assert!(ended.get());
        assert_eq!((seen.get(), exec.ios_open()), (0, 1));
        exec.complete(io.id, Ok(()), io.buf);
        assert_eq!((seen.get(), exec.ios_open()), (11, 0));
    }

    #[test]
    fn a_shorter_limit_does_not_wait_for_a_longer_one() {
        let exec: Exec = Exec::default();
        let ended = Rc::new(RefCell::new(Vec::new()));
        for limit in [100, 10, 50, 10] {
            let (e, done) = (exec.clone(), Rc::clone(&ended));
            exec.spawn(async move {
                let io = e.io(DevId(0), IoKind::Flush, 0, 0, None, 0, None, Some(limit));
                assert!(matches!(io.await, Ended::TimedOut));
                done.borrow_mut().push((e.now(), limit));
            });
        }
        exec.run(0);
        while let Some(at) = exec.next_deadline() {
            exec.run(at);
        }
        assert_eq!(*ended.borrow(), [(10, 10), (10, 10), (50, 50), (100, 100)]);
    }

    #[test]
    fn tasks_run_in_the_order_in_which_they_became_ready() {
        let exec: Exec = Exec::default();
        let log = Rc::new(RefCell::new(Vec::new()));
        for (name, span) in [("late", 20), ("soon", 10), ("same", 10)] {
            let (e, l) = (exec.clone(), Rc::clone(&log));
            exec.spawn(async move {
                e.sleep(span).await;
                l.borrow_mut().push(name);
            });
        }
        exec.run(0);
        while let Some(at) = exec.next_deadline() {
            exec.run(at);
        }
        assert_eq!(*log.borrow(), ["soon", "same", "late"]);
    }

    #[test]
    fn a_task_that_yields_continues_after_those_that_are_ready() {
        let exec: Exec = Exec::default();
        let log = Rc::new(RefCell::new(Vec::new()));
        for group in [Some(1), None, Some(2)] {
            let (e, l) = (exec.clone(), Rc::clone(&log));
            exec.spawn_in(group, async move {
                if e.group() == Some(1) {
                    e.yield_now().await;
                }
                l.borrow_mut().push(e.group());
            });
        }
        exec.run(0);
        assert_eq!(*log.borrow(), [None, Some(2), Some(1)]);
    }
}
