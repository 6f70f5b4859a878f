//! pFabric: Alizadeh et al., "pFabric: minimal near-optimal datacenter transport", SIGCOMM 2013.
//!
//! **Life of a packet.** A sender puts a window of packets, one bandwidth–delay product at first, into its NIC's queue at once. Each carries
//! what its flow has still to deliver. A port sends the first waiting packet of the flow whose packet has the least of that, and where it
//! holds too much drops the packet with the most (§4.2). Each packet is acknowledged, and an acknowledgement moves the window; after a
//! time-out the window is one packet (§4.3).
//!
//! **As far as it goes.** There is no probe mode, and losses show by the time-out alone, as in the simulator that dcPIM is compared in. A
//! NIC's queue is a port like others: what it drops is counted as lost in hosts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use windtunnel_kernel::{Span, Time};

use super::Recovery;
use super::dispatch::{
    Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, Line, LinePort, Lines, Load,
    NicFacts, Note, Order, Outbox, Parcel, Tally,
};
use crate::packet::message::Arrivals;

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PFabric {
    /// First window in bandwidth–delay products.
    pub initial: f64,
    /// Packets by which the window may grow beyond the first.
    pub growth: u32,
    /// Time-out in round trips of full packets; the paper has 3, the simulator 7.
    pub timeouts: f64,
    /// Bytes that a switch's port keeps waiting, where `network.buffers` is not given.
    pub port_buffer: u32,
    /// Bytes that a NIC's port keeps waiting.
    pub host_buffer: u32,
    /// No say: losses are mended as above.
    pub recovery: Recovery,
    /// Least time-out.
    pub timeout: Span,
}

impl Default for PFabric {
    fn default() -> Self {
        Self {
            initial: 1.0,
            growth: 3,
            timeouts: 7.0,
            port_buffer: 500_000,
            host_buffer: 500_000,
            recovery: Recovery::TIMER,
            timeout: Span::from_ps(1),
        }
    }
}

super::built_in::built_in! {
    PFabric: "ports send what is nearest to its end, and drop what is farthest (pFabric)", recovery: recovery, timeout: timeout,
    parameters: {
        "initial_window" => Positive(initial), "first window in bandwidth–delay products";
        "growth" => Count(growth), "packets by which a window may grow beyond the first";
        "timeouts" => Positive(timeouts), "time-out in round trips of full packets";
        "port_buffer" => Count(port_buffer), "bytes of a switch port's buffer where `network.buffers` is not given";
        "host_buffer" => Count(host_buffer), "bytes that a NIC's port keeps waiting";
    }
}

crate::dispatched!(PFabric);

/// A flow that is sent.
#[derive(Clone, Debug, Default)]
struct Flow {
    una: u32,
    limit: u32,
    next: u32,
    window: f64,
    threshold: f64,
    arrived: Arrivals,
    /// Packets of `arrived` beyond `una`.
    beyond: u32,
    due: u64,
    watched: bool,
}

/// A NIC port.
#[derive(Clone, Debug, Default)]
pub struct PFabricNic {
    first: f64,
    most: f64,
    patience: u64,
    paths: u32,
    flows: Vec<Flow>,
    /// When flows may time out, at the earliest.
    watch: BinaryHeap<Reverse<(u64, u32)>>,
    turn: u32,
    timeouts: u64,
    sent_again: u64,
}

impl PFabricNic {
    /// Sends what the window of a flow allows.
    fn pump(&mut self, number: u32, now: u64, out: &mut Outbox) {
        let flow = &mut self.flows[number as usize];
        let end = flow.limit.min(flow.una + flow.beyond + flow.window as u32);
        while flow.next < end {
            let sequence = flow.next;
            flow.next += 1;
            if flow.arrived.has(sequence) {
                continue;
            }
            self.turn = self.turn.wrapping_add(1);
            let rank = flow.limit - flow.una - flow.beyond;
            let path = (self.turn & (self.paths - 1)) as u16;
            out.send(Parcel { flow: number, back: false, load: Load::Data(sequence), line: 1, path, rank });
        }
        if flow.una < flow.limit && !flow.watched {
            flow.watched = true;
            flow.due = now + self.patience;
            self.watch.push(Reverse((flow.due, number)));
        }
    }
}

impl Dispatcher for PFabric {
    type Used = Dispatching;
    type Nic = PFabricNic;
    const NAME: &'static str = "pfabric";
    const SPRAYS: bool = true;
    const PULLS: bool = false;

    fn lines(&self, port: &LinePort, fabric: &FabricFacts) -> Lines {
        let shared = if port.nic { self.host_buffer } else { fabric.buffer.unwrap_or(self.port_buffer) };
        let data = Line { order: Order::Least, ..Line::default() };
        Lines { lines: vec![Line::default(), data], shared: Some(shared) }
    }

    fn open_nic(&self, nic: &mut PFabricNic, facts: &NicFacts) {
        let fabric = &facts.fabric;
        nic.first = (f64::from(fabric.bdp_packets()) * self.initial).floor().max(1.0);
        nic.most = nic.first + f64::from(self.growth);
        let trip = fabric.propagation.ps() + u64::from(2 * fabric.hops) * fabric.packet_time().ps();
        nic.patience = ((trip as f64 * self.timeouts) as u64).max(self.timeout.ps());
        nic.paths = fabric.paths;
        nic.turn = facts.port.wrapping_mul(7);
    }

    fn open(&self, nic: &mut PFabricNic, _: &FlowFacts) {
        let window = nic.first;
        nic.flows.push(Flow { window, threshold: 100_000.0, ..Flow::default() });
    }

    fn accept(&self, _: &mut PFabricNic, _: &FlowFacts) {}

    fn abandon(&self, nic: &mut PFabricNic, flow: u32, back: bool) {
        if !back {
            let flow = &mut nic.flows[flow as usize];
            (flow.una, flow.next) = (flow.limit, flow.limit);
        }
    }

    fn on_message(&self, nic: &mut PFabricNic, message: &Joined, out: &mut Outbox) {
        nic.flows[message.flow as usize].limit += message.packets;
        nic.pump(message.flow, message.now.ps(), out);
    }

    fn on_note(&self, nic: &mut PFabricNic, heard: &Heard, out: &mut Outbox) {
        let Note { a: expected, b: base, c: bits, .. } = heard.note;
        let flow = &mut nic.flows[heard.flow as usize];
        let before = flow.una;
        if expected > flow.una {
            let end = expected.min(flow.arrived.end);
            for sequence in flow.una..end {
                flow.beyond -= u32::from(flow.arrived.has(sequence));
            }
            flow.arrived.clear_range(flow.una, end);
            flow.una = expected;
            flow.next = flow.next.max(expected);
        }
        let mut left = bits;
        while left != 0 {
            let sequence = base + left.trailing_zeros();
            left &= left - 1;
            if sequence >= flow.una {
                flow.beyond += u32::from(flow.arrived.mark(flow.una, sequence));
            }
        }
        if flow.una > before {
            flow.window += if flow.window < flow.threshold { 1.0 } else { 1.0 / flow.window };
            flow.window = flow.window.min(nic.most);
            flow.due = heard.now.ps() + nic.patience;
            out.arrived(heard.flow, flow.una);
            nic.pump(heard.flow, heard.now.ps(), out);
        }
    }

    fn on_data(&self, nic: &mut PFabricNic, data: &Landed, out: &mut Outbox) {
        nic.turn = nic.turn.wrapping_add(1);
        let path = (nic.turn & (nic.paths - 1)) as u16;
        // What arrived now is among the 64 below the highest, or is told by itself.
        let near = data.sequence >= data.base && data.sequence - data.base < u64::BITS;
        let (base, bits) =
            if data.sequence < data.expected || near { (data.base, data.bits) } else { (data.sequence, 1) };
        let note = Note { kind: 0, a: data.expected, b: base, c: bits };
        out.send(Parcel { flow: data.flow, back: true, load: Load::Note(note), line: 0, path, rank: 0 });
    }

    fn timer(&self, nic: &PFabricNic) -> Option<Time> {
        nic.watch.peek().map(|&Reverse((due, _))| Time::from_ps(due))
    }

    fn on_timer(&self, nic: &mut PFabricNic, now: Time, out: &mut Outbox) {
        let now = now.ps();
        while let Some(&Reverse((due, number))) = nic.watch.peek()
            && due <= now
        {
            nic.watch.pop();
            let flow = &mut nic.flows[number as usize];
            if flow.una >= flow.limit {
                flow.watched = false;
                continue;
            }
            if flow.due > now {
                nic.watch.push(Reverse((flow.due, number)));
                continue;
            }
            nic.timeouts += 1;
            flow.threshold = (flow.window / 2.0).max(2.0);
            flow.window = 1.0;
            nic.sent_again += u64::from((flow.next - flow.una).saturating_sub(flow.beyond));
            flow.next = flow.una;
            flow.watched = false;
            nic.pump(number, now, out);
        }
    }

    fn tell(&self, nic: &PFabricNic, tally: &mut Tally) {
        tally.add("timeouts", nic.timeouts);
        tally.add("taken_for_lost", nic.sent_again);
    }
}
