// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operation on flash keeps as it is until the device has really answered, however late (design rule 5).

use std::cell::Cell;
use std::rc::Rc;

use super::attached::Attached;
use crate::cache::units::table::SlotPin;
use crate::claims::Claim;
use crate::event::Event;
use crate::exec::Guard;
use crate::request::Errno;
use crate::write_pool::PoolShare;

/// How a device answered that was overdue, once it has.
pub(crate) type LateAnswer = Rc<Cell<Option<Result<(), Errno>>>>;

/// What an operation keeps; all of it is released when the device answers.
#[derive(Default)]
pub(crate) struct Guards {
    /// The slot keeps its unit.
    pub pin: Option<SlotPin>,
    /// The pages stay claimed.
    pub claim: Option<Rc<Claim>>,
    /// The bytes stay counted in the pool.
    pub share: Option<PoolShare>,
    /// A half of the metadata counts as being written.
    pub _making: Option<Rc<()>>,
    /// Where a late answer is left.
    pub answer: Option<LateAnswer>,
}

/// The guards of an operation in flight, and its device.
pub(crate) struct InFlight {
    pub(super) device: Rc<Attached>,
    pub(super) guards: Guards,
}

impl Guard for InFlight {
    fn late(&self, result: Result<(), Errno>) {
        if let Some(answer) = &self.guards.answer {
            answer.set(Some(result));
        }
        if self.device.health.answered() && !self.device.closed() {
            self.device.emit(Event::FlashResumed { dev: self.device.dev });
        }
    }
}
