// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guards of an operation on flash: held until the device has answered, however late (design rule 5).

use std::cell::Cell;
use std::rc::Rc;

use super::attached::Attached;
use crate::cache::units::table::SlotPin;
use crate::claims::Claim;
use crate::event::Event;
use crate::exec::Guard;
use crate::request::Errno;
use crate::write_pool::PoolShare;

/// The result of an overdue operation, once the device has answered.
pub(crate) type LateAnswer = Rc<Cell<Option<Result<(), Errno>>>>;

/// The guards of an operation; the device's answer releases them.
#[derive(Default)]
pub(crate) struct Guards {
    /// The slot keeps its unit.
    pub pin: Option<SlotPin>,
    /// The pages stay claimed.
    pub claim: Option<Rc<Claim>>,
    /// The bytes stay counted in the pool.
    pub share: Option<PoolShare>,
    /// The half of the metadata stays reserved.
    pub _making: Option<Rc<()>>,
    /// Receives a late answer.
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
