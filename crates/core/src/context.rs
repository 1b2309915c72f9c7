// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a shard that all kinds of cache share and that survives a detach of flash: executor, origins, claims,
//! admission, counters, replies.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use larder_policy::write_budget::WriteBudget;

use crate::buf::Buf;
use crate::cache::in_flight::WritesInFlight;
use crate::claims::Claims;
use crate::config::{AdmissionChoice, Limits, LimitsInUse};
use crate::event::Events;
use crate::exec::{DevId, Exec, Nanos, SECOND, Signal};
use crate::flash::{InFlight, Sums};
use crate::format::FlashPlan;
use crate::mutant;
use crate::origins::Origins;
use crate::out_of_use::Fence;
use crate::population::demand::Population;
use crate::range_rules::RangeRules;
use crate::request::{Errno, MAX_PIECE_BYTES, Reply};
use crate::runs::{Runs, Tag};
use crate::shape::Shape;
use crate::stats::Stats;
use crate::volumes::Volumes;
use crate::write_pool::WritePool;

/// Bytes of a shard's write pool: at least one piece, so that it admits a write.
fn pool_bytes(limits: &Limits, shape: &Shape) -> u64 {
    (limits.write_through_bytes / u64::from(shape.shards))
        .max(MAX_PIECE_BYTES.min(limits.write_through_bytes))
}

/// Shared state of a shard.
pub(crate) struct Context {
    pub exec: Exec<InFlight>,
    pub shape: Shape,
    pub limits: LimitsInUse,
    pub origins: Origins,
    pub population: Population,
    pub claims: Claims,
    pub in_flight: WritesInFlight,
    pub pool: WritePool,
    pub fence: Fence,
    pub stats: Rc<Stats>,
    pub events: Events,
    replies: RefCell<VecDeque<Reply>>,
    pub runs: Runs,
    /// What ranges are pinned and excluded, and the signal that it, or what is cached, changed as a whole.
    pub rules: RefCell<Arc<RangeRules>>,
    pub rules_changed: Signal,
    budget: RefCell<Option<WriteBudget>>,
    open: Cell<u64>,
    /// When the newest request was taken.
    opened_at: Cell<Option<Nanos>>,
}

impl Context {
    pub(crate) fn new(
        shape: Shape,
        volumes: Volumes,
        limits: Limits,
        admission: &AdmissionChoice,
        origin: DevId,
    ) -> Rc<Self> {
        let (exec, stats, events) = (Exec::default(), Rc::<Stats>::default(), Events::default());
        Rc::new(Self {
            origins: Origins::new(volumes, &shape, &limits, origin, (&exec, &stats, &events)),
            population: Population::new(admission, &shape),
            pool: WritePool::new(pool_bytes(&limits, &shape)),
            in_flight: WritesInFlight::new(&exec),
            exec,
            shape,
            limits: Rc::new(Cell::new(limits)),
            claims: Claims::default(),
            fence: Fence::default(),
            stats,
            events,
            replies: RefCell::default(),
            runs: Runs::default(),
            rules: RefCell::default(),
            rules_changed: Signal::default(),
            budget: RefCell::new(None),
            open: Cell::new(0),
            opened_at: Cell::new(None),
        })
    }

    /// Takes those of the limits that may change.
    pub(crate) fn adjust(&self, to: &Limits) {
        let limits = self.limits.get().adjusted(to);
        self.limits.set(limits);
        self.pool.resize(pool_bytes(&limits, &self.shape));
        self.begin_budget();
        self.origins.iter().for_each(|origin| origin.pace.adjust(&limits));
        self.population.wake(&self.exec);
    }

    /// The parts that a flash device uses.
    pub(crate) fn device(&self) -> (&Exec<InFlight>, &Rc<Stats>, &Events) {
        (&self.exec, &self.stats, &self.events)
    }

    /// Bytes of the shard's tier of RAM.
    pub(crate) fn ram_bytes(&self) -> u64 {
        self.limits.get().ram_bytes / u64::from(self.shape.shards)
    }

    /// The checksums of a device's cached data, if it has any.
    pub(crate) fn sums(&self, plan: &FlashPlan, warm: bool) -> Option<Sums> {
        let bytes = self.limits.get().verify_bytes / u64::from(self.shape.shards);
        Sums::of(plan, &self.shape, (bytes, warm))
    }

    /// A request was taken; it is open until [`reply`](Self::reply).
    pub(crate) fn opened(&self) {
        self.open.set(self.open.get() + 1);
        self.opened_at.set(Some(self.exec.now()));
    }

    /// How long it takes at least until no client has sent a request for a time `idle`; `None` if so, and no request is open.
    pub(crate) fn busy_for(&self, idle: Nanos) -> Option<Nanos> {
        let since = self.opened_at.get().map_or(Nanos::MAX, |at| self.exec.now() - at);
        match idle {
            0 => None,
            // A request that an overdue origin leaves open is not a busy client.
            _ if self.open() > 0
                && (self.origins.overdue().is_empty()
                    || mutant::is_active("hung-counts-as-busy")) =>
            {
                Some(idle)
            }
            _ => idle.checked_sub(since).filter(|left| *left > 0),
        }
    }

    /// Whether what lies at this place is never admitted.
    #[inline]
    pub(crate) fn excludes(&self, at: u64) -> bool {
        self.rules.borrow().excludes(at)
    }

    /// Takes the write budget of the limits.
    pub(crate) fn begin_budget(&self) {
        let per_day = self.limits.get().flash_write_budget.div_ceil(u64::from(self.shape.shards));
        let written = self.stats.get().flash_write_bytes;
        let begins = || WriteBudget::new(per_day, self.exec.now(), written);
        let mut budget = self.budget.borrow_mut();
        // One that stays the same keeps its debt.
        if budget.map(|budget| budget.per_day()) != Some(per_day).filter(|bytes| *bytes > 0) {
            *budget = (per_day > 0).then(begins);
        }
    }

    fn with_budget<R>(&self, ask: impl FnOnce(&mut WriteBudget, Nanos, u64) -> R) -> Option<R> {
        let mut budget = self.budget.borrow_mut();
        Some(ask(budget.as_mut()?, self.exec.now(), self.stats.get().flash_write_bytes))
    }

    /// Whether the write budget lets units be admitted.
    pub(crate) fn may_admit(&self) -> bool {
        self.with_budget(WriteBudget::admits).unwrap_or(true)
            || mutant::is_active("budget-not-kept")
    }

    /// Whether the write budget lets writes be copied to flash.
    pub(crate) fn may_copy(&self) -> bool {
        self.with_budget(WriteBudget::copies).unwrap_or(true)
            || mutant::is_active("budget-not-kept")
    }

    /// Waits until units may be admitted, for a second at most; returns whether they may.
    pub(crate) async fn budget_allows(&self) -> bool {
        if self.may_admit() {
            return true;
        }
        let wait = self.with_budget(WriteBudget::wait).unwrap_or(1);
        self.exec.sleep(wait.min(SECOND)).await;
        false
    }

    /// Bytes of the write budget that are left, or owed if negative.
    pub(crate) fn budget_left(&self) -> Option<i64> {
        self.with_budget(WriteBudget::left)
    }

    /// Answers a client.
    pub(crate) fn reply(&self, tag: Tag, result: Result<(), Errno>, buf: Option<Buf>, hit: bool) {
        if let Some(reply) = self.runs.take(tag, result, buf, hit) {
            self.open.set(self.open.get() - 1);
            self.replies.borrow_mut().push_back(reply);
        }
    }

    /// Answers a client with what was read.
    pub(crate) fn reply_read(&self, tag: Tag, read: Result<Buf, Errno>, hit: bool) {
        let (result, data) = read.map_or_else(|e| (Err(e), None), |data| (Ok(()), Some(data)));
        self.reply(tag, result, data, hit);
    }

    /// The next answer.
    pub(crate) fn next_reply(&self) -> Option<Reply> {
        self.replies.borrow_mut().pop_front()
    }

    /// Requests that are not answered yet.
    pub(crate) fn open(&self) -> u64 {
        self.open.get()
    }
}
