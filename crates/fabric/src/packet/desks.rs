//! What is kept of NIC ports that a dispatcher leads: its own state of each, the numbers of the halves there, and what has arrived.
//!
//! [`dispatch`](super::dispatch) calls the dispatcher.

use super::engine::Engine;
use super::lines::PortLines;
use super::transport::{Dispatcher, Outbox, Tally, Transport};

/// Length of the intervals that [`Delivery`] counts by.
pub(super) const INTERVAL: u64 = 10_000_000;

/// A NIC port.
#[derive(Clone, Debug, Default)]
pub(super) struct Desk<N> {
    pub state: N,
    /// Places of the halves that send and receive here, by their numbers.
    pub sends: Vec<u32>,
    pub receives: Vec<u32>,
    /// When the earliest event of its timer is.
    pub timer: Option<u64>,
    /// When it was last reached by anything, or given a message.
    pub heard: u64,
}

/// A half of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Half {
    pub number: u32,
    /// Of a sending half its entropy, of a receiving one the highest packet that has arrived and one.
    pub note: u32,
    pub class: u8,
}

/// What arrived in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Bytes on the wire of data packets that had not arrived before.
    pub bytes: u64,
    /// Data packets.
    pub packets: u64,
    /// Of them those that came after a later one of their queue pair.
    pub late: u64,
    /// Sum of their times from the first bit at the sender's port to the last bit here, in picoseconds.
    pub delay: u64,
    /// Sum of the parts of them spent in lines of switches.
    pub queueing: u64,
}

impl Delivery {
    /// Adds what another process saw.
    pub(super) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.packets += other.packets;
        self.late += other.late;
        self.delay += other.delay;
        self.queueing += other.queueing;
    }
}

/// See the module page.
#[derive(Clone, Debug, Default)]
pub(super) struct Dispatch<N> {
    pub lines: PortLines,
    pub desks: Vec<Desk<N>>,
    pub senders: Vec<Half>,
    pub receivers: Vec<Half>,
    pub outbox: Outbox,
    /// By intervals of [`INTERVAL`].
    pub deliveries: Vec<Delivery>,
    /// Data packets whose transmission has begun at a NIC port, and the longest delay.
    pub sent: u64,
    pub longest: u64,
}

pub(super) fn put(halves: &mut Vec<Half>, slot: u32, half: Half) {
    if halves.len() <= slot as usize {
        halves.resize(slot as usize + 1, Half::default());
    }
    halves[slot as usize] = half;
}

impl<T: Transport> Engine<T> {
    /// What dispatchers counted; `None` where there are none.
    pub fn tally(&self) -> Option<Tally> {
        let dispatch = self.dispatch.get()?;
        let mut tally = Tally::default();
        for desk in &dispatch.desks {
            self.dispatcher.tell(&desk.state, &mut tally);
        }
        tally.add("data_packets_sent", dispatch.sent);
        tally.add("data_packets_arrived", dispatch.deliveries.iter().map(|each| each.packets).sum());
        tally.add("data_bytes_arrived", dispatch.deliveries.iter().map(|each| each.bytes).sum());
        tally.add("arrived_late", dispatch.deliveries.iter().map(|each| each.late).sum());
        tally.add("one_way_delay_ps", dispatch.deliveries.iter().map(|each| each.delay).sum());
        tally.raise("one_way_delay_longest_ps", dispatch.longest);
        let (mut host, mut network, mut notes) = (0, 0, 0);
        for (number, port) in (0u32..).zip(&self.fabric.ports) {
            let counters = &port.counters;
            let lost = u64::from(counters.drops - counters.control_drops);
            notes += u64::from(counters.control_drops);
            if self.fabric.is_of_switch(number) {
                network += lost;
            } else {
                host += lost;
            }
        }
        tally.add("data_lost_in_hosts", host);
        tally.add("data_lost_in_network", network);
        tally.add("notes_lost", notes);
        tally.add("queueing_ps", dispatch.deliveries.iter().map(|each| each.queueing).sum());
        Some(tally)
    }

    /// What arrived, by intervals of 10 µs; `None` where there is no dispatcher.
    pub fn deliveries(&self) -> Option<&[Delivery]> {
        Some(&self.dispatch.get()?.deliveries)
    }
}
