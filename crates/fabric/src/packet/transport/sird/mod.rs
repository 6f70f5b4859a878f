//! SIRD: Prasopoulos, Kosta, Bugnion and Kogias, "SIRD: a sender-informed, receiver-driven datacenter transport protocol", NSDI 2025.
//!
//! **Life of a message.** One of at most UnschT leaves unasked, up to a bandwidth–delay product of it. A longer one asks for credit (a packet
//! without payload), and each credit lets one packet of it leave.
//!
//! **Credit.** A receiver has at most B of credit out, to all senders together, and gives it at slightly less than its line rate. To each
//! sender it has at most that sender's bucket out: the least of two, each changed once a window as DCTCP changes its own (additive increase,
//! and a decrease by the smoothed share of packets that bore a signal). One follows the congested-sender bit (csn), which a packet bears
//! where its sender holds more than SThr of credit; the other follows the network's marks, set by queues above NThr. So credit goes to
//! senders that can use it, and a receiver that keeps B ≥ BDP + SThr never lacks packets.
//!
//! **Who comes first** is left to the ends: a receiver gives credit to the message with the least left, or in turn; a sender shares part of
//! its port fairly by receiver and gives the rest to the message with the least left. Switches need no priorities; with two, credit and what
//! leaves unasked go first.
//!
//! **Losses** show by time-outs. Credit that brought nothing for long is taken back and given again; a message sent unasked that is not
//! acknowledged asks for credit, which names the packets that are missing.
//!
//! **Invariant.** Credit out and not expired is at most B, so of what was asked for at most B is on its way to a receiver.

mod receive;
mod send;

use windtunnel_kernel::{Span, Time};

use super::Recovery;
use super::built_in::Word;
use super::dispatch::{
    Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, Line, LinePort, Lines, Load,
    NicFacts, Note, Outbox, Parcel, Tally,
};
use receive::Inbox;
use send::Outgoing;

/// Sender's: packets from `a` to before `b` want credit.
const REQUEST: u8 = 0;
/// Receiver's: packet `a` of the message that ends at `b` may leave.
const CREDIT: u8 = 1;
/// Receiver's: all below `a`, and the message that ends at `b`, have arrived.
const ACK: u8 = 2;

/// In the rank of a packet: its sender holds much credit; it was asked for. Below stands where its message ends.
const CSN: u32 = 1 << 31;
const ASKED: u32 = 1 << 30;

/// Lines, the highest priority first.
const CONTROL: u8 = 0;
const UNASKED: u8 = 1;
const DATA: u8 = 2;

/// Parameters: what the paper sets, and what it leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sird {
    /// B, in bandwidth–delay products.
    pub bucket: f64,
    /// SThr, in bandwidth–delay products.
    pub sender_threshold: f64,
    /// NThr, in bandwidth–delay products.
    pub network_threshold: f64,
    /// UnschT: longest message that leaves unasked, in bandwidth–delay products.
    pub unscheduled_threshold: f64,
    /// Bandwidth–delay product in packets; those that fill the way there and back.
    pub bdp_packets: Option<u32>,
    /// Rate of credit, as a share of the line rate.
    pub pace: f64,
    /// Weight of the newest window in the share of packets that bore a signal.
    pub g: f64,
    /// Least bucket of a sender, in bandwidth–delay products.
    pub least_bucket: f64,
    /// Whom a receiver gives credit to.
    pub receiver_policy: Word,
    /// Share of a sender's packets that goes round its receivers.
    pub sender_fair: f64,
    /// Whether a sender with one receiver says that it holds much.
    pub csn_alone: bool,
    /// Whether credit, and what leaves unasked, have priorities of their own.
    pub priorities: bool,
    /// Bytes that a switch's port keeps waiting, where `network.buffers` is not given.
    pub port_buffer: u32,
    /// No say: losses are mended as above.
    pub recovery: Recovery,
    /// Silence after which credit is taken back, and asked for again.
    pub timeout: Span,
}

/// Whom a receiver gives credit to.
const SRPT: Word = Word { at: 0, of: &["srpt", "round_robin"], expected: "`srpt` or `round_robin`" };

impl Default for Sird {
    fn default() -> Self {
        Self {
            bucket: 1.5,
            sender_threshold: 0.5,
            network_threshold: 1.25,
            unscheduled_threshold: 1.0,
            bdp_packets: None,
            pace: 0.99,
            g: 1.0 / 16.0,
            least_bucket: 0.1,
            receiver_policy: SRPT,
            sender_fair: 0.5,
            csn_alone: false,
            priorities: true,
            port_buffer: 500_000,
            recovery: Recovery::TIMER,
            timeout: Span::from_us(1_000),
        }
    }
}

super::built_in::built_in! {
    Sird: "receivers give credit to senders that say they can use it (SIRD)", recovery: recovery, timeout: timeout,
    parameters: {
        "bucket" => Positive(bucket), "B: credit that a receiver has out, in bandwidth–delay products";
        "sender_threshold" => Positive(sender_threshold), "SThr: credit above which a sender says that it is congested, likewise";
        "network_threshold" => Positive(network_threshold), "NThr: bytes waiting above which a queue marks, likewise";
        "unscheduled_threshold" => Any(unscheduled_threshold), "UnschT: longest message that leaves unasked, likewise";
        "bdp_packets" => Packets(bdp_packets), "bandwidth–delay product in packets; left out: those of a round trip";
        "pace" => Part(pace), "rate of credit, as a share of the line rate";
        "g" => Part(g), "weight of the newest window in the share of packets with a signal";
        "least_bucket" => Positive(least_bucket), "least bucket of a sender, in bandwidth–delay products";
        "receiver_policy" => Word(receiver_policy), "whose turn is next at a receiver: the least left, or each message's in turn";
        "sender_fair" => Part(sender_fair), "share of a sender's packets that goes round its receivers, the rest to the least left";
        "csn_alone" => Flag(csn_alone), "whether a sender with one receiver says that it is congested";
        "priorities" => Flag(priorities), "whether credit, and what leaves unasked, go before the rest";
        "port_buffer" => Count(port_buffer), "bytes of a switch port's buffer where `network.buffers` is not given";
    }
    check: |sird| {
        let unfit = |key, message: String| Err(super::Unfit { key, message });
        if sird.least_bucket > 1.0 {
            return unfit("least_bucket", format!("expected at most 1, the first and largest bucket, found {}", sird.least_bucket));
        }
        Ok(())
    },
}

crate::dispatched!(Sird);

impl Sird {
    /// Bandwidth–delay product on this fabric, in packets.
    pub fn bdp(&self, fabric: &FabricFacts) -> u32 {
        self.bdp_packets.unwrap_or_else(|| fabric.loop_packets())
    }

    /// B on this fabric, in packets.
    pub fn most_credit(&self, fabric: &FabricFacts) -> u32 {
        part(self.bucket, self.bdp(fabric)).max(1)
    }

    /// The line of something.
    fn line(&self, line: u8) -> u8 {
        if self.priorities { line } else { 0 }
    }
}

/// A share of so many packets.
fn part(share: f64, packets: u32) -> u32 {
    (share * f64::from(packets)) as u32
}

/// A NIC port.
#[derive(Clone, Debug, Default)]
pub struct SirdNic {
    paths: u32,
    turn: u32,
    outgoing: Outgoing,
    inbox: Inbox,
    /// Kept for its allocation.
    told: Vec<(u32, bool, Note)>,
}

impl SirdNic {
    fn path(&mut self) -> u16 {
        self.turn = self.turn.wrapping_add(1);
        (self.turn & (self.paths - 1)) as u16
    }

    /// Sends the notes that the halves want sent.
    fn tell_all(&mut self, sird: &Sird, out: &mut Outbox) {
        let mut told = std::mem::take(&mut self.told);
        for (flow, back, note) in told.drain(..) {
            let path = self.path();
            let line = sird.line(CONTROL);
            out.send(Parcel { flow, back, load: Load::Note(note), line, path, rank: 0 });
        }
        self.told = told;
    }
}

impl Dispatcher for Sird {
    type Used = Dispatching;
    type Nic = SirdNic;
    const NAME: &'static str = "sird";
    const SPRAYS: bool = true;

    fn check(&self, fabric: &FabricFacts) -> Result<(), String> {
        if self.priorities && (1..3).contains(&fabric.priorities) {
            return Err(format!(
                "`network.queues` has {} priorities, expected 3: credit, what leaves unasked, and the rest; without \
                 `network.queues` its ports have them, and `priorities: false` needs one",
                fabric.priorities
            ));
        }
        Ok(())
    }

    fn lines(&self, port: &LinePort, fabric: &FabricFacts) -> Lines {
        let mark_above = if port.nic {
            u32::MAX
        } else {
            let packets = part(self.network_threshold, self.bdp(fabric)).max(1);
            packets.saturating_mul(fabric.mtu)
        };
        let data = Line { mark_above, ..Line::default() };
        let lines = if self.priorities { vec![Line::default(), data, data] } else { vec![data] };
        Lines { lines, shared: (!port.nic).then(|| fabric.buffer.unwrap_or(self.port_buffer)) }
    }

    fn open_nic(&self, nic: &mut SirdNic, facts: &NicFacts) {
        nic.paths = facts.fabric.paths;
        nic.turn = facts.port.wrapping_mul(7);
        nic.outgoing.open(self, &facts.fabric);
        nic.inbox.open(self, &facts.fabric);
    }

    fn open(&self, nic: &mut SirdNic, facts: &FlowFacts) {
        nic.outgoing.add_flow(facts.peer);
    }

    fn accept(&self, nic: &mut SirdNic, facts: &FlowFacts) {
        nic.inbox.add_peer(facts.peer);
    }

    fn abandon(&self, nic: &mut SirdNic, flow: u32, back: bool) {
        if back {
            nic.inbox.abandon(flow);
        } else {
            nic.outgoing.abandon(flow);
        }
    }

    fn on_message(&self, nic: &mut SirdNic, message: &Joined, out: &mut Outbox) {
        nic.outgoing.message(message, &mut nic.told);
        nic.tell_all(self, out);
    }

    fn on_note(&self, nic: &mut SirdNic, heard: &Heard, out: &mut Outbox) {
        let Note { kind, a, b, .. } = heard.note;
        let now = heard.now.ps();
        match kind {
            REQUEST => nic.inbox.asked(heard.flow, a, b, now, &mut nic.told),
            CREDIT => nic.outgoing.credited(heard.flow, a, b, now),
            _ => nic.outgoing.arrived(heard.flow, a, b, out),
        }
        nic.tell_all(self, out);
    }

    fn on_data(&self, nic: &mut SirdNic, data: &Landed, out: &mut Outbox) {
        nic.inbox.landed(data, &mut nic.told);
        nic.tell_all(self, out);
    }

    fn next(&self, nic: &mut SirdNic, now: Time, _: &mut Outbox) -> Option<Parcel> {
        let (flow, sequence, rank) = nic.outgoing.next(now.ps())?;
        let line = self.line(if rank & ASKED == 0 { UNASKED } else { DATA });
        let path = nic.path();
        Some(Parcel { flow, back: false, load: Load::Data(sequence), line, path, rank })
    }

    fn timer(&self, nic: &SirdNic) -> Option<Time> {
        [nic.outgoing.due(), nic.inbox.due()].into_iter().flatten().min().map(Time::from_ps)
    }

    fn on_timer(&self, nic: &mut SirdNic, now: Time, out: &mut Outbox) {
        nic.outgoing.tick(now.ps(), &mut nic.told);
        nic.inbox.tick(now.ps(), &mut nic.told);
        nic.tell_all(self, out);
    }

    fn tell(&self, nic: &SirdNic, tally: &mut Tally) {
        nic.outgoing.tell(tally);
        nic.inbox.tell(tally);
    }
}
