//! Homa: Montazeri, Li, Alizadeh and Ousterhout, "Homa: a receiver-driven low-latency transport protocol using network priorities", SIGCOMM
//! 2018.
//!
//! **Life of a message.** Its first RTTbytes leave unasked (§3.2), at a priority by its size that its receiver has worked out from the sizes of
//! what it got ([`levels`], §3.4). Of the rest a packet leaves for each that the receiver grants. A receiver grants to a few messages at once,
//! those with the least left (SRPT), so that RTTbytes of each are granted and have not arrived (§3.3, §3.5), each at a priority of its own
//! below those of unasked packets, the lowest ones where few are granted to. A sender's port serves the message with the least left to send.
//! The receiver acknowledges a whole message.
//!
//! **Overcommitment.** How many messages are granted to at once is the number of scheduled priorities (§3.5): a sender that has better to do
//! leaves the link to the next. They come from different senders.
//!
//! **Losses** show by time-outs (§3.7). A receiver that has granted and hears nothing asks for what is missing (RESEND); a sender that has not
//! sent it yet says so (BUSY). A sender that hears nothing of a message sends its first packet once more, after twice the time each turn: the
//! paper's clients ask for their answers, and here nobody waits for one.
//!
//! **As far as it goes.** Messages go one way: no RPCs, and so no unasked bytes of answers marked by incast control (§3.6). A queue pair
//! delivers its messages in order, as the engine does for all transports. Sizes count in packets.

mod levels;
mod nic;
mod receive;

use windtunnel_kernel::{Span, Time};

use super::Recovery;
use super::dispatch::{
    Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, Line, LinePort, Lines,
    MOST_LINES, NicFacts, Outbox, Parcel, Tally,
};
pub use nic::HomaNic;

/// Parameters: what the paper sets, and what it leaves open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Homa {
    /// Priorities of ports, notes on the highest.
    pub levels: u32,
    /// RTTbytes in packets; those that fill the way there and the way of a grant back.
    pub rtt_packets: Option<u32>,
    /// Priorities for what is sent unasked; by its share of what arrives.
    pub unscheduled_levels: Option<u32>,
    /// Messages granted to at once; as many as there are scheduled priorities.
    pub overcommitment: Option<u32>,
    /// Whether those come from different senders.
    pub one_per_sender: bool,
    /// Messages after which a receiver works out the priorities anew.
    pub measure_every: u32,
    /// Bytes that a switch's port keeps waiting, where `network.buffers` is not given.
    pub port_buffer: u32,
    /// No say: losses are mended as above.
    pub recovery: Recovery,
    /// Silence after which a receiver asks for what is missing, and a sender sends again.
    pub timeout: Span,
}

impl Default for Homa {
    fn default() -> Self {
        Self {
            levels: 8,
            rtt_packets: None,
            unscheduled_levels: None,
            overcommitment: None,
            one_per_sender: true,
            measure_every: 64,
            port_buffer: 500_000,
            recovery: Recovery::TIMER,
            timeout: Span::from_us(1_000),
        }
    }
}

super::built_in::built_in! {
    Homa: "receivers grant to the messages nearest to their ends, a priority for each (Homa)", recovery: recovery, timeout: timeout,
    parameters: {
        "levels" => Count(levels), "priorities of ports, from 2 to 8";
        "rtt_packets" => Packets(rtt_packets), "RTTbytes in packets, sent unasked and granted ahead; left out: those of a round trip";
        "unscheduled_levels" => Packets(unscheduled_levels), "priorities for what is sent unasked; left out: by its share of what arrives";
        "overcommitment" => Packets(overcommitment), "messages granted to at once; left out: the scheduled priorities";
        "one_per_sender" => Flag(one_per_sender), "whether those come from different senders";
        "measure_every" => Count(measure_every), "messages after which a receiver works out the priorities anew";
        "port_buffer" => Count(port_buffer), "bytes of a switch port's buffer where `network.buffers` is not given";
    }
    check: |homa| {
        let unfit = |key, message: String| Err(super::Unfit { key, message });
        if !(2..=MOST_LINES as u32).contains(&homa.levels) {
            return unfit("levels", format!("expected from 2 to {MOST_LINES} priorities, found {}", homa.levels));
        }
        match homa.unscheduled_levels {
            Some(count) if count >= homa.levels => {
                unfit("unscheduled_levels", format!("expected less than `levels`: {}, found {count}", homa.levels))
            }
            _ => Ok(()),
        }
    },
}

crate::dispatched!(Homa);

impl Homa {
    /// RTTbytes on this fabric, in packets.
    pub fn rtt(&self, fabric: &FabricFacts) -> u32 {
        self.rtt_packets.unwrap_or_else(|| fabric.loop_packets())
    }
}

impl Dispatcher for Homa {
    type Used = Dispatching;
    type Nic = HomaNic;
    const NAME: &'static str = "homa";
    const SPRAYS: bool = true;

    fn check(&self, fabric: &FabricFacts) -> Result<(), String> {
        if (1..self.levels).contains(&fabric.priorities) {
            return Err(format!(
                "`network.queues` has {} priorities, expected `levels`: {}; without `network.queues` its ports have them",
                fabric.priorities, self.levels
            ));
        }
        Ok(())
    }

    fn lines(&self, port: &LinePort, fabric: &FabricFacts) -> Lines {
        let shared = (!port.nic).then(|| fabric.buffer.unwrap_or(self.port_buffer));
        Lines { lines: vec![Line::default(); self.levels as usize], shared }
    }

    fn open_nic(&self, nic: &mut HomaNic, facts: &NicFacts) {
        nic.open(self, facts);
    }

    fn open(&self, nic: &mut HomaNic, _: &FlowFacts) {
        nic.add_flow(self);
    }

    fn accept(&self, nic: &mut HomaNic, facts: &FlowFacts) {
        nic.inbox.add_peer(facts.peer);
    }

    fn abandon(&self, nic: &mut HomaNic, flow: u32, back: bool) {
        if back {
            nic.inbox.abandon(flow);
        } else {
            nic.abandon(flow);
        }
    }

    fn on_message(&self, nic: &mut HomaNic, message: &Joined, _: &mut Outbox) {
        nic.message(message);
    }

    fn on_note(&self, nic: &mut HomaNic, heard: &Heard, out: &mut Outbox) {
        nic.heard(heard, out);
    }

    fn on_data(&self, nic: &mut HomaNic, data: &Landed, out: &mut Outbox) {
        nic.landed(self, data, out);
    }

    fn next(&self, nic: &mut HomaNic, now: Time, _: &mut Outbox) -> Option<Parcel> {
        nic.next(now)
    }

    fn timer(&self, nic: &HomaNic) -> Option<Time> {
        nic.due()
    }

    fn on_timer(&self, nic: &mut HomaNic, now: Time, out: &mut Outbox) {
        nic.tick(now, out);
    }

    fn tell(&self, nic: &HomaNic, tally: &mut Tally) {
        nic.tell(tally);
    }
}
