// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open requests, identified by the session's own tickets.
//!
//! Invariants: a ticket identifies one use of one slot, so a duplicate or late result matches no request. There are
//! never more slots than requests were open at a time.

use larder_nbd::codec::{RequestHeader, cmd};

/// A request between its header and its reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// How often the slot was used; the upper half of the ticket.
    turn: u32,
    busy: bool,
    command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
    /// The payload that was counted for it, and the memory of its buffers.
    pub(super) payload: u64,
    pub(super) cost: u64,
}

impl Slot {
    pub(super) fn asks_status(&self) -> bool {
        self.command == cmd::BLOCK_STATUS
    }

    pub(super) fn is_read(&self) -> bool {
        self.command == cmd::READ
    }
}

/// All slots of a session.
#[derive(Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn open(&mut self, h: &RequestHeader, payload: u64, cost: u64) -> u32 {
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        let turn = self.slots.get(index as usize).map_or(0, |s| s.turn.wrapping_add(1));
        let (command, cookie, offset, len) = (h.command, h.cookie, h.offset, h.len);
        let slot = Slot { turn, busy: true, command, cookie, offset, len, payload, cost };
        match self.slots.get_mut(index as usize) {
            Some(place) => *place = slot,
            None => self.slots.push(slot),
        }
        index
    }

    pub(super) fn get(&self, index: u32) -> Slot {
        self.slots[index as usize]
    }

    pub(super) fn ticket(&self, index: u32) -> u64 {
        (u64::from(self.get(index).turn) << 32) | u64::from(index)
    }

    /// The slot of a ticket, if its request is open.
    pub(super) fn find(&self, ticket: u64) -> Option<u32> {
        let (index, turn) = (ticket as u32, (ticket >> 32) as u32);
        let slot = self.slots.get(index as usize)?;
        (slot.busy && slot.turn == turn).then_some(index)
    }

    pub(super) fn close(&mut self, index: u32) -> Slot {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.busy, "an NBD request ended twice");
        slot.busy = false;
        self.free.push(index);
        *slot
    }

    pub(super) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_ends_with_its_request() {
        let header = RequestHeader { flags: 0, command: 0, cookie: 5, offset: 0, len: 512 };
        let mut slots = Slots::default();
        let (a, b) = (slots.open(&header, 1, 1), slots.open(&header, 2, 2));
        let (ticket_a, ticket_b) = (slots.ticket(a), slots.ticket(b));
        assert_ne!(ticket_a, ticket_b);
        assert_eq!(slots.find(ticket_a), Some(a));
        slots.close(a);
        assert_eq!(slots.find(ticket_a), None);
        let again = slots.open(&header, 3, 3);
        assert_eq!(again, a);
        assert_eq!(slots.find(ticket_a), None);
        assert_eq!(slots.find(slots.ticket(again)), Some(a));
        assert_eq!((slots.in_use(), slots.find(u64::MAX)), (2, None));
    }
}
