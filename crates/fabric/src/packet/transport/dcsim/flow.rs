//! What a NIC keeps of a flow that it sends, and of one that it receives.

use std::collections::VecDeque;

use crate::packet::message::Arrivals;

/// Sending: packets that wait for a SIM-ACK, and those that have left. What a SIM and its answer ask for is its first cache line.
#[derive(Clone, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Flow {
    /// Place of its collective.
    pub group: u32,
    /// Packets before `next` have been bound, but for those in `again`; there are `limit`.
    next: u32,
    limit: u32,
    /// Those that SIMs have been promised, where a packet is chosen as it leaves.
    promised: u32,
    /// SIMs queued or under way.
    pub sims: u32,
    /// Whether it stands in its collective's ring.
    pub ringed: bool,
    /// All packets before have been acknowledged, and those in `beyond`.
    una: u32,
    /// Not acknowledged in time: the first to go.
    again: VecDeque<u32>,
    beyond: Arrivals,
}

impl Flow {
    /// A message's packets come after those before.
    pub(super) fn join(&mut self, packets: u32) {
        self.limit += packets;
    }

    /// Packets that leave without a SIM: they are bound at once.
    pub(super) fn skip(&mut self, first: u32, packets: u32) {
        debug_assert_eq!(self.next, first, "what came before has been bound");
        self.next = first + packets;
    }

    /// Whether nothing of earlier messages waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// n_DATA: packets that wait and have not been promised.
    pub(super) fn waiting(&self) -> u32 {
        self.again.len() as u32 + self.limit - self.next - self.promised
    }

    /// Whether another SIM may be sent, each of which stands for `each` packets.
    pub(super) fn wants_sim(&self, each: u32) -> bool {
        u64::from(self.sims) * u64::from(each) < u64::from(self.waiting())
    }

    /// Takes the first packet that waits.
    pub(super) fn bind(&mut self) -> Option<u32> {
        if let Some(sequence) = self.again.pop_front() {
            return Some(sequence);
        }
        (self.next < self.limit).then(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Promises a packet, to be chosen later.
    pub(super) fn promise(&mut self) -> bool {
        let has = self.waiting() > 0;
        self.promised += u32::from(has);
        has
    }

    /// Chooses a packet that was promised.
    pub(super) fn keep_promise(&mut self) -> Option<u32> {
        self.promised = self.promised.saturating_sub(1);
        self.bind()
    }

    /// Whether a packet has not been acknowledged.
    pub(super) fn awaits(&self, sequence: u32) -> bool {
        sequence >= self.una && !self.beyond.has(sequence)
    }

    /// A packet has not been acknowledged in time; whether it is to be sent again.
    pub(super) fn is_overdue(&mut self, sequence: u32) -> bool {
        let overdue = self.awaits(sequence);
        if overdue {
            self.again.push_back(sequence);
        }
        overdue
    }

    /// Everything before `expected` has arrived, and what `bits` say from `base` on; whether that moves on what is known in order.
    pub(super) fn acknowledge(&mut self, expected: u32, base: u32, bits: u64) -> Option<u32> {
        let before = self.una;
        if expected > self.una {
            self.beyond.clear_range(self.una, expected.min(self.beyond.end));
            self.una = expected;
        }
        if bits != 0 && base >= self.una {
            self.beyond.mark_bits(self.una, base, u128::from(bits));
        }
        let Self { again, una, beyond, .. } = self;
        again.retain(|sequence| *sequence >= *una && !beyond.has(*sequence));
        (self.una > before).then_some(self.una)
    }

    /// Nothing more is to be sent.
    pub(super) fn give_up(&mut self) {
        self.again.clear();
        (self.next, self.una, self.promised) = (self.limit, self.limit, 0);
    }
}

/// Receiving: what a DATA-ACK would say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    /// DATA not yet answered.
    pub pending: u32,
    /// When they are answered at the latest.
    pub due: u64,
    pub expected: u32,
    pub base: u32,
    pub bits: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_bound_in_order_and_overdue_ones_go_first() {
        let mut flow = Flow::default();
        flow.join(4);
        assert!(flow.wants_sim(1));
        assert_eq!([flow.bind(), flow.bind(), flow.bind()], [Some(0), Some(1), Some(2)]);
        assert_eq!(flow.acknowledge(1, 2, 1), Some(1));
        assert!(flow.is_overdue(1) && !flow.is_overdue(0) && !flow.is_overdue(2));
        assert_eq!((flow.waiting(), flow.bind(), flow.bind(), flow.bind()), (2, Some(1), Some(3), None));
    }

    #[test]
    fn sims_stay_within_what_waits() {
        let mut flow = Flow::default();
        flow.join(5);
        flow.sims = 2;
        assert!(flow.wants_sim(2) && !flow.wants_sim(3));
        assert!(flow.promise());
        assert_eq!(flow.waiting(), 4);
        assert_eq!((flow.keep_promise(), flow.waiting()), (Some(0), 4));
    }
}
