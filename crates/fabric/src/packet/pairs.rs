//! Queue pairs: their halves, the NIC ports where they take turns, and their messages.
//!
//! **Life cycle.** A sending half has a name at its NIC port, by which its events find it, from its opening until it is done or
//! reset. It then leaves: it may still stand on a ring of its port. Once it does not, the pair is retired, and its places are free
//! when each half has counted as gone what the other sent ([`Pairs::is_silent`]).
//!
//! **Invariants.** Only halves that are not done have names. A pair is in `leaving` or in `retired`, never in both. Nothing that
//! happens depends on when places are freed.

use rustc_hash::FxHashMap;

use super::handles::QueuePair;
use super::impair::Clocks;
use super::legs::Planes;
use super::memory::Memories;
use super::message::{Arrivals, Incoming, NO_MESSAGE, Outgoing, Slots};
use super::nic_port::NicPort;
use super::packets::flag;
use super::queue_settings::Color;
use super::receiver::{Feedbacks, Receiver};
use super::reorder::Reordering;
use super::restore::Restored;
use super::sender::Sender;
use super::transport::{Endpoint, Kept, MemoryOf, Uses};

/// See the module page.
#[derive(Clone, Debug)]
pub(super) struct Pairs<E: Endpoint> {
    /// Halves: control packets name the sending one, data packets the receiving one.
    pub senders: Vec<Sender<E::Flow>>,
    pub receivers: Vec<Receiver<E::Peer>>,
    pub nics: Vec<NicPort>,
    /// Messages at their senders and at their receivers.
    pub outgoing: Slots<Outgoing>,
    pub incoming: Slots<Incoming>,
    /// What acknowledgements on their way say.
    pub feedbacks: Feedbacks,
    /// Those of the hosts.
    pub clocks: Clocks,
    /// By receiving half: what erasure coding has restored.
    pub restored: FxHashMap<u32, Restored>,
    /// What is kept of pairs of NICs.
    pub memories: Memories<MemoryOf<E>>,
    /// Queue pairs that take all planes.
    pub planes: Kept<<E::Uses as Uses>::Planes, Planes>,
    free_senders: Vec<u32>,
    free_receivers: Vec<u32>,
    /// Place of the sending half called so at its NIC port, while it is not done.
    named: FxHashMap<(u32, u32), u32>,
    /// Queue pairs that are done, but may have packets left in the network; looked through when there are so many.
    retired: Vec<QueuePair>,
    settle_at: usize,
    /// Queue pairs that are done or were reset, with senders that may stand on a ring.
    leaving: Vec<QueuePair>,
}

impl<E: Endpoint> Pairs<E> {
    /// None, at so many NIC ports.
    pub(super) fn new(nic_ports: u32, clocks: Clocks) -> Self {
        Self {
            senders: Vec::new(),
            receivers: Vec::new(),
            nics: vec![NicPort::default(); nic_ports as usize],
            outgoing: Slots::default(),
            incoming: Slots::default(),
            feedbacks: Feedbacks::default(),
            clocks,
            restored: FxHashMap::default(),
            memories: Memories::default(),
            planes: Kept::default(),
            free_senders: Vec::new(),
            free_receivers: Vec::new(),
            named: FxHashMap::default(),
            retired: Vec::new(),
            settle_at: 0,
            leaving: Vec::new(),
        }
    }

    /// Gives a new sending half a place, and a name at its NIC port.
    pub(super) fn open_sender(&mut self, sender: Sender<E::Flow>) -> u32 {
        let slot = self.place_sender(sender);
        let sender = &self.senders[slot as usize];
        self.named.insert((sender.port, sender.name), slot);
        slot
    }

    /// The same for one that no event is for.
    pub(super) fn place_sender(&mut self, mut sender: Sender<E::Flow>) -> u32 {
        let nic = &mut self.nics[sender.port as usize];
        sender.name = nic.opened;
        nic.opened += 1;
        if let Some(slot) = self.free_senders.pop() {
            self.senders[slot as usize] = sender;
            return slot;
        }
        self.senders.push(sender);
        self.senders.len() as u32 - 1
    }

    /// Gives a new receiving half a place.
    pub(super) fn open_receiver(&mut self, receiver: Receiver<E::Peer>) -> u32 {
        match self.free_receivers.pop() {
            Some(slot) => {
                self.receivers[slot as usize] = receiver;
                slot
            }
            None => {
                self.receivers.push(receiver);
                self.receivers.len() as u32 - 1
            }
        }
    }

    /// Tells a sending half its peer.
    pub(super) fn introduce(&mut self, sender: u32, receiver: u32) {
        self.senders[sender as usize].peer_slot = receiver;
    }

    /// Tells a receiving half its peer.
    pub(super) fn meet(&mut self, receiver: u32, sender: u32) {
        self.receivers[receiver as usize].peer_slot = sender;
    }

    /// The sending half that is called so at its NIC port, unless it is done.
    #[inline]
    pub(super) fn named(&self, port: u32, name: u32) -> Option<u32> {
        self.named.get(&(port, name)).copied()
    }

    /// Nobody waits for what a sending half sends.
    pub(super) fn set_sender_aside(&mut self, sender: u32) {
        self.senders[sender as usize].aside = true;
    }

    /// Nobody waits for what a receiving half receives.
    pub(super) fn set_receiver_aside(&mut self, receiver: u32) {
        self.receivers[receiver as usize].aside = true;
    }

    /// Packets of a sending half take this data queue and have this color.
    pub(super) fn classify(&mut self, sender: u32, queue: u8, color: Color) {
        let mut number = 0;
        while let Some(leg) = self.leg(sender, number) {
            let leg = &mut self.senders[leg as usize];
            (leg.queue, leg.color) = (queue, color);
            number += 1;
        }
    }

    /// Most that were open at once.
    pub(super) fn places(&self) -> usize {
        self.senders.len()
    }

    /// Bytes on the wire of packets of a queue pair in rising order, none of them acknowledged in order; each has `header` bytes more
    /// than it carries.
    pub(super) fn wire_bytes(&self, flow: u32, sequences: impl Iterator<Item = u32>, header: u64) -> u64 {
        let mut id = self.senders[flow as usize].oldest;
        let mut sum = 0;
        for sequence in sequences {
            while !self.outgoing[id].holds(sequence) {
                id = self.outgoing[id].next;
            }
            sum += self.outgoing[id].payload_of(sequence) + header;
        }
        sum
    }

    /// A message joins the queue pair that it was handed over to; which that is.
    pub(super) fn join(&mut self, id: u32) -> u32 {
        let message = &mut self.outgoing[id];
        let flow = message.flow;
        let sender = &mut self.senders[flow as usize];
        message.first = sender.limit;
        sender.limit += message.packets;
        if sender.oldest == NO_MESSAGE {
            sender.oldest = id;
        } else {
            let last = sender.last;
            self.outgoing[last].next = id;
        }
        if sender.sending == NO_MESSAGE {
            sender.sending = id;
        }
        sender.last = id;
        flow
    }

    /// Forgets messages that are known to have arrived. One that is used once is done with its own, and leaves; `homes` are the
    /// processes of its halves, asked with the receiver's NIC port.
    pub(super) fn strike(&mut self, flow: u32, homes: impl FnOnce(u32) -> [u32; 2]) {
        let sender = &mut self.senders[flow as usize];
        while sender.oldest != NO_MESSAGE {
            let message = self.outgoing[sender.oldest];
            if message.first + message.packets > sender.una {
                return;
            }
            self.outgoing.release(sender.oldest);
            sender.oldest = message.next;
        }
        if !sender.keep && !sender.retired && sender.una >= sender.limit {
            sender.retired = true;
            sender.beyond = Arrivals::default();
            sender.recycler = None;
            sender.rack = None;
            let (name, receiver) = ((sender.port, sender.name), sender.peer_slot);
            let homes = homes(sender.to);
            self.named.remove(&name);
            // It may have its turn still to come, for packets that have arrived after all.
            self.leaving.push(QueuePair { sender: flow, receiver, homes });
        }
    }

    /// Tells a receiving half of a message to come. They start in the order of time, then of telling.
    pub(super) fn expect(&mut self, flow: u32, message: Incoming) {
        let start = message.start;
        let id = self.incoming.insert(message);
        self.receivers[flow as usize].expect(id, start, &mut self.incoming);
    }

    /// The names of messages that a receiving half awaits, in order.
    pub(super) fn awaited(&self, receiver: &Receiver<E::Peer>) -> impl Iterator<Item = u64> {
        let mut next = receiver.first_awaited();
        std::iter::from_fn(move || {
            if next == NO_MESSAGE {
                return None;
            }
            let message = &self.incoming[next];
            next = message.next;
            Some(message.token)
        })
    }

    /// Messages that have not arrived: the caller's names, in no order that means anything.
    pub(super) fn unfinished(&self) -> Vec<u64> {
        self.incoming.live().map(|message| message.token).collect()
    }

    /// Resets a sending half whose port has been pulled: it has nothing more to send, and leaves.
    pub(super) fn reset_sender(&mut self, pair: QueuePair) {
        let flow = pair.sender;
        let port = self.senders[flow as usize].port;
        let outgoing = &mut self.outgoing;
        self.nics[port as usize].starts.retain(|&std::cmp::Reverse((.., message))| {
            let stays = outgoing[message].flow != flow;
            if !stays {
                outgoing.release(message);
            }
            stays
        });
        let mut message = self.senders[flow as usize].oldest;
        while message != NO_MESSAGE {
            let next = self.outgoing[message].next;
            self.outgoing.release(message);
            message = next;
        }
        let sender = &mut self.senders[flow as usize];
        (sender.oldest, sender.sending, sender.last) = (NO_MESSAGE, NO_MESSAGE, NO_MESSAGE);
        (sender.una, sender.limit, sender.again) = (sender.next, sender.next, sender.again_end);
        sender.resend.clear();
        sender.resent.clear();
        sender.rack = None;
        sender.beyond = Arrivals::default();
        sender.recycler = None;
        (sender.timer, sender.watch) = (u64::MAX, u64::MAX);
        (sender.keep, sender.retired) = (false, true);
        let name = (port, sender.name);
        self.named.remove(&name);
        self.leaving.push(pair);
    }

    /// Resets a receiving half.
    pub(super) fn reset_receiver(&mut self, flow: u32) {
        let mut message = self.receivers[flow as usize].forget();
        while message != NO_MESSAGE {
            let next = self.incoming[message].next;
            self.incoming.release(message);
            message = next;
        }
    }

    /// Whether so many are done that it is worth looking which of them have nothing left in the network.
    pub(super) fn is_to_settle(&self) -> bool {
        self.retired.len() + self.leaving.len() > self.settle_at
    }

    /// Those that are done, or were reset, and stand on no ring any more.
    pub(super) fn take_retired(&mut self) -> Vec<QueuePair> {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain(|pair| {
            let stands = self.stands(pair.sender, None, |_| true);
            if !stands {
                self.retired.push(*pair);
            }
            stands
        });
        self.leaving = leaving;
        std::mem::take(&mut self.retired)
    }

    /// Those that still have something left.
    pub(super) fn put_retired(&mut self, retired: Vec<QueuePair>) {
        self.settle_at = 2 * (retired.len() + self.leaving.len());
        self.retired = retired;
    }

    /// Data packets sent, and control packets that are no more.
    pub(super) fn sent_and_gone(&self, sender: u32) -> [u32; 2] {
        let sender = &self.senders[sender as usize];
        [sender.data_sent, sender.control_gone]
    }

    /// Whether one that is done has nothing left in the network: what one half sent, the other has counted as gone. Nothing
    /// that happens depends on when this is asked, for a sending half that is done lets pass what still comes, and a
    /// receiving half answers it, however long they keep their places.
    pub(super) fn is_silent(&self, receiver: u32, [data_sent, control_gone]: [u32; 2]) -> bool {
        let receiver = &self.receivers[receiver as usize];
        receiver.data_gone == data_sent && receiver.control_sent == control_gone
    }

    /// Frees the place of a sending half; where its packets' path lies, if they have one.
    pub(super) fn close_sender(&mut self, sender: u32) -> Option<u64> {
        let legs = self.take_legs(sender);
        self.free_senders.extend(legs);
        self.free_senders.push(sender);
        let sender = &self.senders[sender as usize];
        (sender.flags & flag::ROUTED != 0).then_some(sender.hash)
    }

    /// Frees the place of a receiving half; what its packets carried, and the lengths of both ways.
    pub(super) fn close_receiver(&mut self, receiver: u32, reordering: &mut Reordering) -> (u64, [u32; 2]) {
        self.free_receivers.push(receiver);
        self.restored.remove(&receiver);
        self.receivers[receiver as usize].close(reordering)
    }

    /// The leg of a sending half on a plane, of so many; itself where it has none there.
    pub(super) fn leg_on(&self, flow: u32, plane: u32, planes: u32) -> u32 {
        let mut number = 0;
        while let Some(leg) = self.leg(flow, number) {
            if self.senders[leg as usize].port % planes == plane % planes {
                return leg;
            }
            number += 1;
        }
        flow
    }

    /// Adds what those that are open hold out of order.
    pub(super) fn count_held(&self, sum: &mut Reordering) {
        let free: rustc_hash::FxHashSet<u32> = self.free_receivers.iter().copied().collect();
        for (_, receiver) in (0..).zip(&self.receivers).filter(|(place, _)| !free.contains(place)) {
            receiver.count_held(sum);
        }
    }
}
