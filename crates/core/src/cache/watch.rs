// SPDX-License-Identifier: MIT OR Apache-2.0
//! The task of a cache of several volumes that notices which origins are overdue, and which answer again (`overdue.rs`).
//!
//! Invariant: a volume is held at the slots that it has exactly while its origin is overdue, whichever flash is attached.

use std::rc::Rc;

use super::Current;
use crate::context::Context;
use crate::event::Event;

/// The task.
pub(crate) async fn run(cx: Rc<Context>, current: Rc<Current>) {
    let overdue = Rc::clone(&cx.origins.overdue);
    loop {
        let (late, answers, next) = overdue.check();
        late.iter().for_each(|volume| cx.events.emit(Event::OriginOverdue { volume }));
        answers.iter().for_each(|volume| cx.events.emit(Event::OriginAnswers { volume }));
        current.hold_overdue(overdue.volumes());
        if !late.is_empty() {
            overdue.wake_working();
        }
        overdue.change(next).await;
    }
}
