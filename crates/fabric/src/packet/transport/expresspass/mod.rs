//! ExpressPass: Cho, Jang and Han, "Credit-scheduled delay-bounded congestion control for datacenters", SIGCOMM 2017.
//!
//! **Life of a packet.** A sender asks for credits as it has data. The receiver sends credits at a rate of their own for each queue pair, and
//! each lets one full packet leave. Every port, a NIC's too, passes credits no faster than the packets that they call for fit through the
//! same link the other way: one each (packet + credit)/C, some 5% of the link for packets of 1,538 B (§3.1). It keeps a few credits waiting and
//! drops those beyond. So no data packet meets a full queue, if credits take the links of their data: the way back is the way there.
//!
//! **Credit feedback control** (algorithm 1). Data names the credit that it spends, and a gap shows credits dropped. For each round trip of
//! credits, once their data has come, with C' = C (1 + target loss): where the share dropped is at most the target, w = (w + w_max)/2 if it was so the last time too, and
//! rate = (1 - w) rate + w C'; otherwise rate = rate (1 - loss)(1 + target loss) and w = max(w/2, w_min).
//!
//! **Ends.** A sender says what it has with each message (CREDIT_REQUEST), and that it has nothing more (CREDIT_STOP); credits that come after
//! are wasted. A receiver acknowledges whole messages.
//!
//! **Losses** of data are for broken links alone. A receiver that knows of more and hears nothing asks for what is missing; a sender that
//! hears nothing asks for credits again.

mod nic;

use std::cmp::Reverse;

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Span, Time};

use super::Recovery;
use super::dispatch::{
    Bucket, Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, Line, LinePort, Lines,
    NicFacts, Note, Outbox, Tally,
};
pub use nic::ExpressPassNic;
use nic::{Flow, NEWEST, Peer};

/// Sender's: data up to `a` wants credits.
const REQUEST: u8 = 0;
/// Receiver's: credit `a`.
const CREDIT: u8 = 1;
/// Sender's: all up to `a` has been sent.
const STOP: u8 = 2;
/// Receiver's: all below `a` has arrived.
const ACK: u8 = 3;
/// Receiver's: all below `a` has arrived, of those from `b` on a bit each of `c`, and the rest is missing.
const NACK: u8 = 4;

/// Lines, the highest priority first.
const CONTROL: u8 = 0;
const CREDITS: u8 = 1;
const DATA: u8 = 2;

/// Parameters: what the paper sets, and what it leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpressPass {
    /// Share of the credits' link time that ports pass.
    pub credit_rate: f64,
    /// Credits that a port keeps waiting.
    pub credit_queue: u32,
    /// Credits that a port may pass at once.
    pub credit_burst: u32,
    /// First rate of a queue pair's credits, as a share of the most.
    pub initial_rate: f64,
    /// First, least and largest aggressiveness.
    pub w_init: f64,
    /// See above.
    pub w_min: f64,
    /// See above.
    pub w_max: f64,
    /// Share of credits whose loss is aimed at.
    pub target_loss: f64,
    /// Part by which gaps between credits are longer or shorter than the rate has it.
    pub jitter: f64,
    /// Least rate, in credits a round trip.
    pub least_rate: f64,
    /// Whether the loss that changes a rate is that of the credits which were sent in one round trip at that rate.
    pub whole_rounds: bool,
    /// Whether the way back is the way there.
    pub symmetric: bool,
    /// Bytes of data that a switch's port keeps waiting, where `network.buffers` is not given.
    pub port_buffer: u32,
    /// No say: losses are mended as above.
    pub recovery: Recovery,
    /// Silence after which what is missing, or credits, are asked for again.
    pub timeout: Span,
}

impl Default for ExpressPass {
    fn default() -> Self {
        Self {
            credit_rate: 1.0,
            credit_queue: 8,
            credit_burst: 2,
            initial_rate: 1.0 / 16.0,
            w_init: 1.0 / 16.0,
            w_min: 0.01,
            w_max: 0.5,
            target_loss: 0.1,
            jitter: 0.1,
            least_rate: 1.0,
            whole_rounds: true,
            symmetric: true,
            port_buffer: 500_000,
            recovery: Recovery::TIMER,
            timeout: Span::from_us(1_000),
        }
    }
}

super::built_in::built_in! {
    ExpressPass: "receivers send credits, which switches let pass as fast as data fits the other way (ExpressPass)",
    recovery: recovery, timeout: timeout,
    parameters: {
        "credit_rate" => Part(credit_rate), "share of the rate at which credits' data fills a link, that ports pass";
        "credit_queue" => Count(credit_queue), "credits that a port keeps waiting";
        "credit_burst" => Count(credit_burst), "credits that a port may pass at once";
        "initial_rate" => Part(initial_rate), "α: first rate of a queue pair's credits, as a share of the most";
        "w_init" => Part(w_init), "first aggressiveness factor w";
        "w_min" => Part(w_min), "least w";
        "w_max" => Part(w_max), "largest w";
        "target_loss" => Part(target_loss), "share of credits whose loss is aimed at";
        "jitter" => Any(jitter), "part by which a gap between credits is longer or shorter, below 1";
        "least_rate" => Positive(least_rate), "least rate of a queue pair's credits, in credits a round trip";
        "whole_rounds" => Flag(whole_rounds), "whether a loss is that of the credits of one round trip at one rate, or of what came back in one";
        "symmetric" => Flag(symmetric), "whether credits take the links of their data";
        "port_buffer" => Count(port_buffer), "bytes of data of a switch port's buffer where `network.buffers` is not given";
    }
    check: |pass| {
        let unfit = |key, message: String| Err(super::Unfit { key, message });
        if pass.w_min > pass.w_max {
            return unfit("w_min", format!("expected at most `w_max`: {}, found {}", pass.w_max, pass.w_min));
        }
        if pass.w_init < pass.w_min || pass.w_init > pass.w_max {
            let message = format!("expected from `w_min` to `w_max`: {} to {}, found {}", pass.w_min, pass.w_max, pass.w_init);
            return unfit("w_init", message);
        }
        if pass.jitter >= 1.0 {
            return unfit("jitter", format!("expected less than 1, found {}", pass.jitter));
        }
        Ok(())
    },
}

crate::dispatched!(ExpressPass);

impl Dispatcher for ExpressPass {
    type Used = Dispatching;
    type Nic = ExpressPassNic;
    const NAME: &'static str = "expresspass";

    fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    fn check(&self, fabric: &FabricFacts) -> Result<(), String> {
        if self.symmetric && fabric.paths > 1 {
            return Err("`load_balancer` gives each packet a path of its own, expected `ecmp`: credits must take the links of \
                        their data; `symmetric: false` says that they do not"
                .to_owned());
        }
        if fabric.control > fabric.mtu {
            return Err(format!(
                "`control` is {} B, expected at most `mtu`: {} B",
                fabric.control, fabric.mtu
            ));
        }
        Ok(())
    }

    fn lines(&self, port: &LinePort, fabric: &FabricFacts) -> Lines {
        let bytes = f64::from(fabric.mtu + fabric.control);
        let interval = (bytes * 8e12 / (port.rate.bps() as f64 * self.credit_rate)).round() as u64;
        let bucket = Some(Bucket { interval: Span::from_ps(interval.max(1)), depth: self.credit_burst });
        let credits = Line { packets: self.credit_queue, bucket, ..Line::default() };
        let room = if port.nic { u32::MAX } else { fabric.buffer.unwrap_or(self.port_buffer) };
        Lines { lines: vec![Line::default(), credits, Line { bytes: room, ..Line::default() }], shared: None }
    }

    fn open_nic(&self, nic: &mut ExpressPassNic, facts: &NicFacts) {
        let fabric = &facts.fabric;
        let bytes = f64::from(fabric.mtu + fabric.control);
        nic.most = fabric.rate.bps() as f64 * self.credit_rate / (bytes * 8e12);
        nic.patience = self.timeout.ps();
        nic.paths = fabric.paths;
        nic.turn = facts.port.wrapping_mul(7);
        nic.seed = combine(facts.seed, u64::from(facts.port));
    }

    fn open(&self, nic: &mut ExpressPassNic, _: &FlowFacts) {
        nic.flows.push(Flow::default());
    }

    fn accept(&self, nic: &mut ExpressPassNic, _: &FlowFacts) {
        nic.peers.push(Peer::default());
    }

    fn abandon(&self, nic: &mut ExpressPassNic, flow: u32, back: bool) {
        if back {
            let peer = &mut nic.peers[flow as usize];
            peer.got.arrived = peer.got.limit;
            peer.on = false;
        } else {
            let flow = &mut nic.flows[flow as usize];
            (flow.una, flow.next) = (flow.limit, flow.limit);
            flow.again.clear();
        }
    }

    fn on_message(&self, nic: &mut ExpressPassNic, message: &Joined, out: &mut Outbox) {
        let now = message.now.ps();
        let flow = &mut nic.flows[message.flow as usize];
        flow.limit += message.packets;
        flow.heard = now;
        nic.request(message.flow, now, out);
    }

    fn on_note(&self, nic: &mut ExpressPassNic, heard: &Heard, out: &mut Outbox) {
        let Note { kind, a, b, c } = heard.note;
        let now = heard.now.ps();
        let place = heard.flow as usize;
        match kind {
            REQUEST => {
                let got = &mut nic.peers[place].got;
                got.limit = got.limit.max(a);
                if got.left() == 0 {
                    let note = Note { kind: ACK, a: got.expected, ..Note::default() };
                    nic.note(heard.flow, true, note, out);
                    return;
                }
                nic.peers[place].heard = now;
                nic.start(self, heard.flow, now, out);
                nic.watch_peer(heard.flow, now);
            }
            CREDIT => nic.spend(heard.flow, a, now, out),
            STOP => {
                let peer = &mut nic.peers[place];
                peer.got.limit = peer.got.limit.max(a);
                peer.on = false;
                nic.watch_peer(heard.flow, now);
            }
            ACK | NACK => {
                let flow = &mut nic.flows[place];
                flow.heard = now;
                if a > flow.una {
                    flow.una = a;
                    out.arrived(heard.flow, a);
                }
                if kind == NACK && flow.una < flow.limit {
                    let known = |at: u32| at - b < u64::BITS && c >> (at - b) & 1 == 1;
                    let end = flow.next.min(b.saturating_add(u64::BITS));
                    flow.again = (b.max(flow.una)..end).filter(|&at| !known(at)).collect();
                    nic.request(heard.flow, now, out);
                }
            }
            _ => {}
        }
    }

    fn on_data(&self, nic: &mut ExpressPassNic, data: &Landed, out: &mut Outbox) {
        let now = data.now.ps();
        let peer = &mut nic.peers[data.flow as usize];
        peer.heard = now;
        peer.got.limit = peer.got.limit.max(data.sequence + 1);
        peer.got.take(data);
        // The credits before it that have not come back were dropped.
        while let Some(&(credit, sent)) = nic.peers[data.flow as usize].sent.front()
            && credit <= data.rank
        {
            let peer = &mut nic.peers[data.flow as usize];
            peer.sent.pop_front();
            if self.whole_rounds && sent as f64 >= peer.changed as f64 + peer.rtt {
                nic.adjust(self, data.flow, now);
            }
            let peer = &mut nic.peers[data.flow as usize];
            let counts = !self.whole_rounds || sent >= peer.changed;
            peer.known += u32::from(counts);
            if credit < data.rank {
                peer.dropped += u32::from(counts);
                nic.missed += 1;
            } else {
                let rtt = (now - sent) as f64;
                peer.rtt = if peer.rtt > 0.0 { peer.rtt + NEWEST * (rtt - peer.rtt) } else { rtt };
            }
        }
        let peer = &mut nic.peers[data.flow as usize];
        // A sender that has more has said so, before the packets of it.
        peer.on &= peer.got.left() > 0;
        if data.whole || !data.fresh {
            let note = Note { kind: ACK, a: data.expected, ..Note::default() };
            nic.note(data.flow, true, note, out);
        }
    }

    fn timer(&self, nic: &ExpressPassNic) -> Option<Time> {
        let clock = nic.clock.peek().map(|&Reverse((due, ..))| due);
        let watch = nic.watch.front().map(|&(due, ..)| due);
        [clock, watch].into_iter().flatten().min().map(Time::from_ps)
    }

    fn on_timer(&self, nic: &mut ExpressPassNic, now: Time, out: &mut Outbox) {
        let now = now.ps();
        while let Some(&Reverse((due, number, event))) = nic.clock.peek()
            && due <= now
        {
            nic.clock.pop();
            let peer = &nic.peers[number as usize];
            if peer.on && peer.event == event {
                if !self.whole_rounds {
                    nic.adjust(self, number, now);
                }
                nic.credit(self, number, now, out);
            }
        }
        while let Some(&(due, number, receives)) = nic.watch.front()
            && due <= now
        {
            nic.watch.pop_front();
            nic.look(number, receives, now, out);
        }
    }

    fn tell(&self, nic: &ExpressPassNic, tally: &mut Tally) {
        tally.add("credits_sent", nic.credits);
        tally.add("credits_spent", nic.spent);
        tally.add("credits_wasted", nic.wasted);
        tally.add("credits_missed", nic.missed);
        tally.add("asked_again", nic.asked_again);
    }
}
