//! Queue pairs that take all planes of their NIC: one leg stands on the ring of each plane's port.
//!
//! **Life cycle.** The sending half itself is the leg of the plane that it was opened on, and leads the others, which are places among
//! the sending halves that have a turn, a pace and a name at their port and nothing else. Whichever port is free asks its leg, which sends
//! for the one that leads. Acknowledgements and replies come back by the plane of the packet that caused them.
//!
//! **Order.** Ports are advanced when they are touched, and what one sends of a queue pair another cannot send. So the ports of a NIC are
//! advanced together, transmission by transmission ([`Engine::pull_planes`]), and results do not depend on which was touched.
//!
//! **Invariants.** Where nobody asks for planes every sending half leads itself and has no other leg. The planes of a NIC are in one
//! process. A queue pair whose path is fixed keeps to its plane.

use smallvec::SmallVec;

use super::engine::Engine;
use super::nic::Turn;
use super::pairs::Pairs;
use super::sender::Sender;
use super::transport::{Endpoint, Transport};

/// Legs and whom they follow, by sending half.
#[derive(Clone, Debug, Default)]
pub(super) struct Planes {
    leads: Vec<u32>,
    /// But for itself.
    legs: Vec<Vec<u32>>,
    /// The leg that sent last.
    last: Vec<u32>,
}

impl Planes {
    /// A sending half has been opened that leads itself and these legs.
    fn open(&mut self, flow: u32, legs: Vec<u32>) {
        for leg in legs.iter().copied().chain([flow]) {
            let places = self.leads.len().max(leg as usize + 1);
            self.leads.resize(places, 0);
            self.legs.resize(places, Vec::new());
            self.last.resize(places, 0);
            self.leads[leg as usize] = flow;
        }
        self.legs[flow as usize] = legs;
        self.last[flow as usize] = flow;
    }

    /// The number of the leg after the one that sent last.
    fn first_in_turn(&self, flow: u32) -> usize {
        let (legs, last) = (&self.legs[flow as usize], self.last[flow as usize]);
        let number = legs.iter().position(|&leg| leg == last).map_or(0, |place| place + 1);
        (number + 1) % (legs.len() + 1)
    }
}

impl<E: Endpoint> Pairs<E> {
    /// The sending half that a leg sends for.
    #[inline]
    pub(super) fn lead(&self, leg: u32) -> u32 {
        self.planes.get().map_or(leg, |planes| planes.leads[leg as usize])
    }

    /// The legs of a sending half by number; the first is itself.
    #[inline]
    pub(super) fn leg(&self, flow: u32, number: usize) -> Option<u32> {
        if number == 0 {
            return Some(flow);
        }
        self.planes.get().and_then(|planes| planes.legs[flow as usize].get(number - 1).copied())
    }

    /// How many legs a sending half has, itself one of them.
    #[inline]
    pub(super) fn legs(&self, flow: u32) -> usize {
        self.planes.get().map_or(1, |planes| 1 + planes.legs[flow as usize].len())
    }

    /// Opens the legs of sending half `flow` at the other ports of its NIC, which has so many planes; `spreads`: if it takes them.
    pub(super) fn open_legs(&mut self, flow: u32, planes: u32, spreads: bool) {
        if self.planes.get().is_none() {
            return;
        }
        let (own, mut legs) = (self.senders[flow as usize].port, Vec::new());
        let first = own - own % planes;
        for port in (first..first + planes).filter(|&port| spreads && port != own) {
            let leg = self.senders[flow as usize].leg(port);
            legs.push(self.place_sender(leg));
        }
        if let Some(planes) = self.planes.get_mut() {
            planes.open(flow, legs);
        }
    }

    /// The legs of a sending half but for itself, which gives them up.
    pub(super) fn take_legs(&mut self, flow: u32) -> Vec<u32> {
        let legs = self.planes.get_mut().and_then(|planes| planes.legs.get_mut(flow as usize));
        legs.map_or_else(Vec::new, std::mem::take)
    }

    /// Earliest start of the next packet of a sending half, the gap to it, and the size of the last.
    #[inline]
    pub(super) fn pace(&self, flow: u32) -> (u64, u64, u16) {
        let sender = &self.senders[flow as usize];
        (sender.eligible, sender.gap, sender.last_wire)
    }

    /// A leg has sent a packet: it waits for its next by the pace that this asks for, and the half it follows by its own, which was
    /// `before`.
    #[inline]
    pub(super) fn hand_pace(&mut self, flow: u32, leg: u32, before: (u64, u64, u16)) {
        if let Some(planes) = self.planes.get_mut() {
            planes.last[flow as usize] = leg;
        }
        if leg == flow {
            return;
        }
        let pace = self.pace(flow);
        let lead = &mut self.senders[flow as usize];
        (lead.eligible, lead.gap, lead.last_wire) = before;
        let own = &mut self.senders[leg as usize];
        (own.eligible, own.gap, own.last_wire) = pace;
    }

    /// Whether a sending half stands on the ring of any port of which `counts` holds, but for the leg `except`.
    pub(super) fn stands(&self, flow: u32, except: Option<u32>, counts: impl Fn(u32) -> bool) -> bool {
        let mut number = 0;
        while let Some(leg) = self.leg(flow, number) {
            let Sender { turn, port, .. } = self.senders[leg as usize];
            if except != Some(leg) && matches!(turn, Turn::Ready | Turn::Paced | Turn::Parked) && counts(port)
            {
                return true;
            }
            number += 1;
        }
        false
    }
}

impl<T: Transport> Engine<T> {
    /// Brings the ports to `now` by which sending half `flow` may send.
    #[inline]
    pub(super) fn pull_for(&mut self, flow: u32, now: u64) {
        let port = self.pairs.senders[flow as usize].port;
        self.pull(port, now);
    }

    /// Lets the ports of all planes of a NIC, of which `p` is one, start everything whose turn has come by `now`: in the order in which
    /// transmissions begin, then of planes, for what one sends of a queue pair another does not.
    pub(super) fn pull_planes(&mut self, p: u32, now: u64) {
        let planes = self.fabric.topology.planes();
        let first = p - p % planes;
        // No port starts anything before it is free.
        let free = |port: u32| self.fabric.ports[port as usize].free_at;
        let mut next: SmallVec<[u64; 8]> = (first..first + planes).map(free).collect();
        while let Some((plane, &start)) =
            next.iter().enumerate().min_by_key(|&(plane, &start)| (start, plane))
            && start <= now
        {
            next[plane] = self.start_by(first + plane as u32, start);
        }
        for (port, later) in (first..).zip(next) {
            self.wake_at(port, later);
        }
    }

    /// A queue pair that waited for something may have its turn again. Its ports have been pulled to `now`. The leg after the one that
    /// sent last comes first, lest what is sent again and again takes the same plane each time.
    #[inline]
    pub(super) fn ready(&mut self, flow: u32, now: u64) {
        let count = self.pairs.legs(flow);
        let first = match self.pairs.planes.get() {
            Some(planes) if count > 1 => planes.first_in_turn(flow),
            _ => 0,
        };
        for number in (first..count).chain(0..first) {
            if let Some(leg) = self.pairs.leg(flow, number) {
                self.ready_leg(leg, flow, now);
            }
        }
    }
}
