//! dcPIM: Cai, Arashloo and Agarwal, "dcPIM: near-optimal proactive datacenter transport", SIGCOMM 2022.
//!
//! **Matching.** Time goes in epochs, which all hosts know. While the data of an epoch flows, hosts match for the next one in `rounds` rounds
//! of β control round trips (§3.2, §3.3). In each a receiver asks senders for as many of its `channels` as their flows can fill, half a round
//! later a sender grants what it has free, and as the next begins the receiver accepts. In the first round both prefer what is nearest to its
//! end, later they draw. A channel that is idle in the present epoch may be used at once, by the lowest priority (a prompt one).
//!
//! **Data.** Matches are of hosts. In its epoch a receiver gives each sender that it is matched with a token every channels / c packet times,
//! for the flow from there that is nearest to its end, while less than a window of that is out. A match lasts for its epoch, whatever ends. Flows
//! of at most a bandwidth–delay product are sent at once; what they lose is asked for as a long flow is. Ports know priorities by the
//! size of flows.
//!
//! **Slots left.** From the announcement of a flow that is sent at once on, the token clocks of a receiver pass over as many slots as it has
//! packets, of all its matches together; another announcement sets the number anew. So does the simulator of the paper's authors.
//!
//! **As far as it goes.** Clocks agree. A sender whose grants are accepted twice over shares its port.

mod nic;

use windtunnel_kernel::random::combine;
use windtunnel_kernel::{Span, Time};

pub use self::nic::DcPimNic;
use self::nic::{ACCEPT, ACK, Flow, GRANT, LEVELS, Match, Offer, Peer, REQUEST, RTS, TOKEN};
use super::Recovery;
use super::dispatch::{
    Dispatcher, Dispatching, FabricFacts, FlowFacts, Heard, Joined, Landed, Line, LinePort, Lines, Load,
    NicFacts, Note, Outbox, Parcel, Tally,
};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcPim {
    /// Rounds of a matching.
    pub rounds: u32,
    /// A round in control round trips.
    pub beta: f64,
    /// The data phase in matchings, at least 1.
    pub alpha: f64,
    /// Channels of a host.
    pub channels: u32,
    /// Rounds that go by what is left of flows; later ones draw.
    pub sorted_rounds: u32,
    /// Flows of at most so many bandwidth–delay products are sent at once.
    pub initial: f64,
    /// Whether one of just that size is not.
    pub strict: bool,
    /// Tokens out without data, in bandwidth–delay products, for all channels together.
    pub window: f64,
    /// From the last token of a pass to tokens for what is missing, in bandwidth–delay products of packet times.
    pub resend: f64,
    /// For how long a full window waits, likewise.
    pub window_timeout: f64,
    /// Whether a receiver leaves as many token slots as a flow that is sent at once has packets.
    pub hold: bool,
    /// Bytes that a port keeps waiting, where `network.buffers` is not given.
    pub port_buffer: u32,
    /// No say: losses are mended as above.
    pub recovery: Recovery,
    /// From an announcement to the next where nothing is heard.
    pub timeout: Span,
}

impl Default for DcPim {
    fn default() -> Self {
        Self {
            rounds: 4,
            beta: 1.3,
            alpha: 1.0,
            channels: 4,
            sorted_rounds: 1,
            initial: 1.0,
            strict: false,
            window: 1.0,
            resend: 1.0,
            window_timeout: 1.1,
            hold: true,
            port_buffer: 500_000,
            recovery: Recovery::TIMER,
            timeout: Span::from_us(1_000),
        }
    }
}

super::built_in::built_in! {
    DcPim: "hosts match senders with receivers for the epoch to come (dcPIM)", recovery: recovery, timeout: timeout,
    parameters: {
        "rounds" => Count(rounds), "rounds of a matching";
        "beta" => Positive(beta), "a round in control round trips";
        "alpha" => Positive(alpha), "the data phase in matchings, at least 1";
        "channels" => Count(channels), "channels of a host";
        "sorted_rounds" => Count(sorted_rounds), "rounds that go by what is left of flows";
        "initial_tokens" => Positive(initial), "flows of so many bandwidth–delay products are sent at once";
        "strict" => Flag(strict), "whether a flow of just that size is not";
        "token_window" => Positive(window), "tokens out without data, in bandwidth–delay products";
        "resend" => Positive(resend), "from a pass to the next over what is missing, in bandwidth–delay products";
        "window_timeout" => Positive(window_timeout), "for how long a full window waits, in bandwidth–delay products";
        "hold" => Flag(hold), "whether receivers leave token slots to the packets of flows that are sent at once";
        "port_buffer" => Count(port_buffer), "bytes of a port's buffer where `network.buffers` is not given";
    }
}

crate::dispatched!(DcPim);

impl Dispatcher for DcPim {
    type Used = Dispatching;
    type Nic = DcPimNic;
    const NAME: &'static str = "dcpim";
    const SPRAYS: bool = true;

    fn check(&self, _: &FabricFacts) -> Result<(), String> {
        if self.alpha < 1.0 {
            return Err(format!(
                "`alpha` is {}, expected at least 1: the next matching begins with the data phase",
                self.alpha
            ));
        }
        Ok(())
    }

    fn lines(&self, port: &LinePort, fabric: &FabricFacts) -> Lines {
        let shared = (!port.nic).then(|| fabric.buffer.unwrap_or(self.port_buffer));
        Lines { lines: vec![Line::default(); 7], shared }
    }

    fn open_nic(&self, nic: &mut DcPimNic, facts: &NicFacts) {
        let fabric = &facts.fabric;
        let bdp = f64::from(fabric.bdp_packets());
        nic.key = combine(combine(facts.seed, 0x6463_7069_6d00), u64::from(facts.port));
        nic.slot = fabric.packet_time().ps();
        let control = fabric.rate.serialise(windtunnel_kernel::Bytes::new(u64::from(fabric.control))).ps();
        let trip = fabric.propagation.ps() + u64::from(2 * fabric.hops) * control;
        nic.round = ((trip as f64 * self.beta).round() as u64).max(1);
        nic.rounds = u64::from(self.rounds);
        nic.matching = nic.rounds * nic.round;
        nic.phase = (nic.matching as f64 * self.alpha).round() as u64;
        nic.channels = self.channels;
        nic.per_channel = ((nic.phase / nic.slot.max(1)) as u32 / self.channels).max(1);
        nic.short = (bdp * self.initial) as u32;
        nic.window = ((bdp * self.window) as u32).max(1);
        nic.resend = (bdp * self.resend * nic.slot as f64) as u64;
        nic.window_timeout = (bdp * self.window_timeout * nic.slot as f64) as u64;
        nic.slack = trip / 2 + u64::from(self.channels) * nic.slot;
        nic.patience = self.timeout.ps();
        nic.paths = fabric.paths;
        nic.turn = facts.port.wrapping_mul(7);
    }

    fn open(&self, nic: &mut DcPimNic, _: &FlowFacts) {
        nic.flows.push(Flow::default());
    }

    fn accept(&self, nic: &mut DcPimNic, facts: &FlowFacts) {
        let mate = nic.mate(facts.peer);
        nic.peers.push(Peer { mate, ..Peer::default() });
    }

    fn abandon(&self, nic: &mut DcPimNic, flow: u32, back: bool) {
        if back {
            let peer = &mut nic.peers[flow as usize];
            peer.got.arrived = peer.got.limit;
        } else {
            let flow = &mut nic.flows[flow as usize];
            flow.una = flow.limit;
        }
    }

    fn on_message(&self, nic: &mut DcPimNic, message: &Joined, out: &mut Outbox) {
        let now = message.now.ps();
        let flow = &mut nic.flows[message.flow as usize];
        flow.limit += message.packets;
        (flow.size, flow.heard) = (message.packets, now);
        let short = message.packets < nic.short || message.packets == nic.short && !self.strict;
        if short {
            for sequence in message.first..message.first + message.packets {
                nic.tokens[1].push_back((u64::MAX, message.flow, sequence, 0));
            }
        }
        nic.announce(message.flow, now, short, out);
    }

    fn on_note(&self, nic: &mut DcPimNic, heard: &Heard, out: &mut Outbox) {
        let Note { kind, a, b, c } = heard.note;
        let now = heard.now.ps();
        let (number, few) = (c >> 8, (c & 255) as u32);
        match kind {
            RTS => {
                let short = u64::from(b) * nic.slot + nic.resend;
                let peer = &mut nic.peers[heard.flow as usize];
                if a > peer.got.limit {
                    peer.got.limit = a;
                    // What is sent at once is asked for when it should have come.
                    peer.sleeps = if c == 1 { now + short } else { 0 };
                    if c == 1 && self.hold {
                        nic.hold = b;
                    }
                } else if peer.got.left() == 0 {
                    // Announced again though all of it is here: what told so was lost.
                    let note = Note { kind: ACK, a: peer.got.expected, ..Note::default() };
                    nic.note(heard.flow, true, note, out);
                }
                nic.list(heard.flow, now);
            }
            REQUEST => {
                // A request of an older round than another is late.
                if nic.requests.is_empty() || number > nic.asked {
                    nic.requests.clear();
                    nic.asked = number;
                }
                if number == nic.asked && now <= nic.begins(number) + nic.round / 2 {
                    nic.requests.push(Offer { flow: heard.flow, left: b, channels: a, prompt: few });
                }
            }
            GRANT => {
                if nic.next_round == Some(number + 1) {
                    nic.grants.push(Offer { flow: heard.flow, left: b, channels: a, prompt: few });
                }
            }
            ACCEPT => {
                let epoch = c / nic.rounds;
                if epoch == nic.used_epoch {
                    nic.used[0] += a;
                    nic.used[1] += b;
                } else if epoch + 1 == nic.used_epoch {
                    nic.used[1] += a;
                }
            }
            TOKEN => {
                nic.flows[heard.flow as usize].heard = now;
                let priority = (c & 15) as usize;
                nic.tokens[priority.min(LEVELS - 1)].push_back((c >> 4, heard.flow, a, b));
            }
            _ => {
                let flow = &mut nic.flows[heard.flow as usize];
                flow.heard = now;
                if a > flow.una {
                    flow.una = a;
                    out.arrived(heard.flow, a);
                }
            }
        }
    }

    fn on_data(&self, nic: &mut DcPimNic, data: &Landed, out: &mut Outbox) {
        let peer = &mut nic.peers[data.flow as usize];
        peer.got.take(data);
        if data.fresh {
            // Data may come before what announces it.
            peer.got.limit = peer.got.limit.max(data.sequence + 1);
        }
        if data.whole || !data.fresh {
            nic.note(data.flow, true, Note { kind: ACK, a: data.expected, ..Note::default() }, out);
        }
        let now = data.now.ps();
        let peer = &nic.peers[data.flow as usize];
        let (mate, free) = (peer.mate, peer.got.out());
        let stopped = |each: &Match| each.mate == mate && each.next == u64::MAX;
        if let Some(place) = nic.present.iter().position(stopped)
            && free <= nic.window_of(&nic.present[place])
            && nic.nearest(mate, now).is_ok_and(|flow| flow == data.flow)
        {
            (nic.present[place].next, nic.present[place].until) = (now, u64::MAX);
        }
    }

    fn next(&self, nic: &mut DcPimNic, now: Time, _: &mut Outbox) -> Option<Parcel> {
        let now = now.ps();
        for level in 0..LEVELS {
            while let Some((good, number, sequence, token)) = nic.tokens[level].pop_front() {
                let flow = &nic.flows[number as usize];
                if good < now {
                    nic.counts[1] += 1;
                    continue;
                }
                if sequence < flow.una || flow.una >= flow.limit {
                    continue;
                }
                // 7 packets, 49, 343 and so on.
                let line = 1 + (0..5).take_while(|&power| flow.size > 7u32.pow(power + 1)).count() as u8;
                let path = nic.path();
                let rank = if level == 1 { 0 } else { token + 1 };
                return Some(Parcel {
                    flow: number,
                    back: false,
                    load: Load::Data(sequence),
                    line,
                    path,
                    rank,
                });
            }
        }
        None
    }

    fn timer(&self, nic: &DcPimNic) -> Option<Time> {
        let tokens =
            nic.present.iter().map(|each| each.next.min(each.until)).filter(|&at| at < u64::MAX).min();
        let round = nic.next_round.map(|number| nic.begins(number));
        let watch = nic.watch.front().map(|&(due, _)| due);
        [tokens, round, nic.answers(), watch].into_iter().flatten().min().map(Time::from_ps)
    }

    fn on_timer(&self, nic: &mut DcPimNic, now: Time, out: &mut Outbox) {
        let now = now.ps();
        if nic.answers().is_some_and(|at| at <= now) {
            nic.grant(self, out);
        }
        while let Some(number) = nic.next_round
            && nic.begins(number) <= now
        {
            nic.begin_round(self, number, out);
        }
        nic.give(now, out);
        while let Some(&(due, number)) = nic.watch.front()
            && due <= now
        {
            nic.watch.pop_front();
            let flow = &mut nic.flows[number as usize];
            flow.watched = false;
            if flow.una >= flow.limit {
                continue;
            }
            if flow.heard + nic.patience > now {
                flow.watched = true;
                nic.watch.push_back((now + nic.patience, number));
            } else {
                nic.announce(number, now, false, out);
            }
        }
    }

    fn tell(&self, nic: &DcPimNic, tally: &mut Tally) {
        tally.add("tokens_sent", nic.counts[0]);
        tally.add("tokens_expired", nic.counts[1]);
    }
}
