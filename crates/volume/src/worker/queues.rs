// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker's queues: their operations in its ring, and their removal. Requests and results are those of `clients.rs`.
//!
//! Invariant: a queue is removed when it is closed and none of its requests is in flight. So its number is not used again
//! while a request of it could end.

use std::sync::Arc;

use larder_core::request::Errno;

use super::{Message, Worker};
use crate::client::{Client, Place, Served};
use crate::queue::Queue;
use crate::session::Phase;

impl Worker {
    pub(super) fn welcome_queue(&mut self, volume: u32, mut queue: Box<dyn Queue>) {
        if self.stopping.is_some() {
            return;
        }
        self.serial += 1;
        let serial = self.serial;
        let entry = self.queues.vacant_entry();
        let client = Client { place: Place::Queue(entry.key() as u32), serial, volume };
        let (mailboxes, index) = (Arc::clone(&self.mailboxes), self.index as usize);
        queue.set_wake(Arc::new(move || {
            let touch = move |worker: &mut Self| _ = worker.touch(client);
            mailboxes[index].post(Message::Run(Box::new(touch)));
        }));
        entry.insert(Served { serial, volume, queue });
        self.touched.push(client.place);
        self.look_soon();
    }

    /// Takes the events of queues from the ring.
    pub(super) fn take_queue_events(&mut self) {
        while let Some(event) = self.driver.next_queue_event() {
            if let Some(served) = self.queues.get_mut(event.queue as usize) {
                served.queue.ended(event.token, event.result);
                self.touched.push(Place::Queue(event.queue));
            }
        }
    }

    /// Starts what a queue wants started, and removes it at its end.
    pub(super) fn arm_queue(&mut self, number: u32) {
        let Some(Served { queue, serial, .. }) = self.queues.get_mut(number as usize) else {
            return;
        };
        while let Some((token, op)) = queue.next_op() {
            self.driver.queue_op(number, token, op);
        }
        if queue.phase() != Phase::Closed {
            return;
        }
        if queue.in_flight() > 0 {
            let serial = *serial;
            return self.drop_bulk(Some(serial), Errno::EIO);
        }
        let Served { queue, .. } = self.queues.remove(number as usize);
        self.driver.drop_queue(number);
        tracing::debug!("queue {number} closed: {}", queue.why());
    }

    pub(super) fn stop_queues(&mut self) {
        for (number, served) in &mut self.queues {
            served.queue.stop();
            self.touched.push(Place::Queue(number as u32));
        }
    }

    pub(super) fn queue_bytes(&self) -> u64 {
        self.queues.iter().map(|(_, served)| served.queue.memory_bytes()).sum()
    }
}
