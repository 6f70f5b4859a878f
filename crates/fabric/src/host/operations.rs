//! The operations a host holds: one slab for all, recycled through a free list.

use std::slice::from_ref;

use prefetch_index::prefetch_index;
use windtunnel_kernel::{Bytes, EndpointId, Tag, Time};

use crate::Ticket;

/// The end of a list, or "any source".
pub(super) const NONE: u32 = u32::MAX;

/// Where an operation is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// On the free list.
    Free,
    /// A computation that has not started.
    Calc,
    /// A message that has not left its sender.
    Send,
    /// A message on its way or waiting for the receiver's stream and NIC.
    Message,
    /// A message that came before its receive.
    Unexpected,
    /// A receive that is not posted yet.
    Receive,
    /// A posted receive.
    Posted,
    /// Abandoned: the slot is free once its event has come up.
    Gone,
}

/// One operation. A send becomes its message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// The caller's name.
    pub ticket: Ticket,
    /// Insertion number; once posted or unexpected, the place in that order.
    pub number: u64,
    /// Size of a message; picoseconds of a computation.
    pub amount: u64,
    /// Tag.
    pub tag: Tag,
    /// When the send of a message started.
    pub started: Time,
    /// When the receiver has taken an unexpected message in.
    pub taken: Time,
    /// Whose operation: of a message, its sender.
    pub endpoint: EndpointId,
    /// Of a message its receiver; of a receive its source, [`NONE`] for any.
    pub peer: u32,
    /// The next of its list.
    pub next: u32,
    /// What the load balancer hashes.
    pub entropy: u32,
    /// State.
    pub state: State,
    /// Stream.
    pub stream: u8,
    /// NIC.
    pub nic: u8,
    /// Traffic class.
    pub class: u8,
    /// Class of path.
    pub path: u8,
    /// [`RENDEZVOUS`] and [`ANY_TAG`].
    pub marks: u8,
    /// The queue pair that a message goes by; 0: a connection of its own.
    pub line: u16,
}

/// The sender's dependents wait for the receiver.
pub(super) const RENDEZVOUS: u8 = 1;
/// A receive takes any tag.
pub(super) const ANY_TAG: u8 = 2;

impl Operation {
    /// Whether it has `mark`.
    #[inline]
    pub(super) const fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    /// Has `mark`, or not.
    #[inline]
    pub(super) const fn mark(&mut self, mark: u8, has: bool) {
        self.marks = if has { self.marks | mark } else { self.marks & !mark };
    }

    /// An empty operation of `endpoint`.
    pub(super) const fn new(state: State, endpoint: EndpointId, ticket: Ticket, number: u64) -> Self {
        Self {
            ticket,
            number,
            amount: 0,
            tag: Tag(0),
            started: Time::ZERO,
            taken: Time::ZERO,
            endpoint,
            peer: NONE,
            next: NONE,
            entropy: 0,
            state,
            stream: 0,
            nic: 0,
            class: 0,
            path: 0,
            marks: 0,
            line: 0,
        }
    }

    /// Size of a message.
    pub(super) const fn bytes(&self) -> Bytes {
        Bytes::new(self.amount)
    }
}

/// All operations of a host model, by id.
#[derive(Clone, Debug)]
pub(super) struct Operations {
    slots: Vec<Operation>,
    free: u32,
}

impl Operations {
    /// None.
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE }
    }

    /// Takes an operation in.
    #[inline]
    pub(super) fn insert(&mut self, operation: Operation) -> u32 {
        let id = self.free;
        if id == NONE {
            self.slots.push(operation);
            return u32::try_from(self.slots.len() - 1).expect("more than 2^32 - 1 operations at once");
        }
        self.free = self.slots[id as usize].next;
        self.slots[id as usize] = operation;
        self.foresee(self.free);
        id
    }

    /// Has a slot brought from memory that will be needed soon: of very many operations no cache holds them all, and each list
    /// of them goes from one slot to any other. An id of none is none.
    #[inline]
    pub(super) fn foresee(&self, id: u32) {
        if let Some(slot) = self.slots.get(id as usize) {
            prefetch_index(from_ref(&slot.ticket), 0);
            // A slot is longer than a cache line.
            prefetch_index(from_ref(&slot.state), 0);
        }
    }

    /// Gives a slot back.
    #[inline]
    pub(super) fn release(&mut self, id: u32) {
        let slot = &mut self.slots[id as usize];
        slot.state = State::Free;
        slot.next = self.free;
        self.free = id;
    }

    /// All slots, free ones included, by id.
    pub(super) fn slots(&self) -> &[Operation] {
        &self.slots
    }
}

impl std::ops::Index<u32> for Operations {
    type Output = Operation;
    #[inline]
    fn index(&self, id: u32) -> &Operation {
        &self.slots[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Operations {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Operation {
        &mut self.slots[id as usize]
    }
}
