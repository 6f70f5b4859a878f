//! An endpoint that probes paths before it sends.
//!
//! Before a message's first packet a queue pair sends small probes, each by another path number, in the data queue where they wait
//! as a packet would. Whichever is answered first, unmarked if there is such a one, names the path that the packets take. The path
//! is probed for anew with the next message, after so many packets, and when packets on it come back marked; then packets do not
//! wait for the answers. A probe that is lost costs its time-out; after some in a row the packets go blindly.
//!
//! `docs/extend/transport.md` goes through this file; `tests/` holds it to what it promises.

use windtunnel_fabric::packet::transport::{
    Absent, Ack, Answer, Arrived, Endpoint, Lane, Loss, LossKind, PathChoice, PathFacts, Present, Probe,
    Probed, Recovery, Replied, Reply, Uses,
};
use windtunnel_kernel::{Span, Time};
use windtunnel_scenario::modules::{Modules, Parameters};

/// Parameters, the same for all queue pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probing {
    /// Path numbers that are probed at a time; 0 sends blindly, by one path.
    pub probes: u16,
    /// Packets after which a path is probed for anew.
    pub packets: u32,
    /// Probes in vain, all of a round each time, after which packets go blindly.
    pub rounds: u8,
}

impl Default for Probing {
    /// 8 path numbers, 256 packets, 3 rounds.
    fn default() -> Self {
        Self { probes: 8, packets: 256, rounds: 3 }
    }
}

/// What it asks of the engine: that its own packets are carried.
#[derive(Clone, Copy, Debug)]
pub struct Asks;

impl Uses for Asks {
    type Credit = Absent;
    type Telemetry = Absent;
    type Probes = Present;
    type Planes = Absent;
    type Memory = ();
}

/// The kind of its probes, and of the answers to them.
const LOOK: u8 = 0;

/// What a round of probes is for, and what it has found.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Names the round: answers to an earlier one say nothing.
    number: u32,
    /// Probes that are still to be sent, and answers that are still to come.
    to_send: u16,
    awaited: u16,
    /// When the next round begins if nothing is answered.
    due: Time,
    /// A marked answer, taken if no other comes.
    second: Option<u16>,
}

/// State of a sending half.
#[derive(Clone, Copy, Debug)]
pub struct ProbingFlow {
    window: u64,
    base_rtt: Span,
    /// The path number that packets take, and those sent since it was found.
    path: u16,
    sent: u32,
    /// Whether packets wait for the first answer.
    holds: bool,
    /// Rounds in a row that nothing came of.
    vain: u8,
    rounds: u32,
    round: Option<Round>,
}

impl Probing {
    /// Begins a round of probes, if none is under way.
    fn look(self, flow: &mut ProbingFlow, now: Time) {
        if self.probes == 0 || flow.round.is_some() {
            return;
        }
        flow.rounds += 1;
        let (to_send, due) = (self.probes, now + flow.base_rtt * 4);
        flow.round = Some(Round { number: flow.rounds, to_send, awaited: to_send, due, second: None });
    }

    /// Packets take `path` from now on.
    fn take(flow: &mut ProbingFlow, path: u16) {
        (flow.path, flow.sent, flow.holds, flow.vain) = (path, 0, false, 0);
    }
}

impl Endpoint for Probing {
    type Flow = ProbingFlow;
    type Peer = ();
    type Uses = Asks;

    const NAME: &'static str = "probing";

    fn recovery(&self) -> Recovery {
        // Packets of two paths overtake one another where the path changes.
        Recovery::Rack
    }

    fn open(&self, path: &PathFacts) -> ProbingFlow {
        ProbingFlow {
            window: path.bdp + path.bdp / 2 + u64::from(path.mtu),
            base_rtt: path.base_rtt,
            path: 0,
            sent: 0,
            holds: false,
            vain: 0,
            rounds: 0,
            round: None,
        }
    }

    fn window(&self, flow: &ProbingFlow) -> u64 {
        flow.window
    }

    fn timeout(&self, flow: &ProbingFlow) -> Span {
        Span::from_us(50).max(flow.base_rtt * 8)
    }

    fn on_message(&self, flow: &mut ProbingFlow, now: Time, _: u64) {
        self.look(flow, now);
        flow.holds = flow.round.is_some();
    }

    fn holds(&self, flow: &ProbingFlow) -> bool {
        flow.holds
    }

    /// The probes of a round leave one after the other, by path numbers 0, 1, 2, …
    fn probe(&self, flow: &mut ProbingFlow, _: Time) -> Option<Probe> {
        let round = flow.round.as_mut().filter(|round| round.to_send > 0)?;
        round.to_send -= 1;
        let path = self.probes - 1 - round.to_send;
        Some(Probe { kind: LOOK, value: round.number, path, lane: Lane::Data, ..Probe::default() })
    }

    fn on_probe(&self, (): &mut (), probe: &Probed) -> Option<Reply> {
        Some(Reply { kind: LOOK, value: probe.value, bytes: 0 })
    }

    fn on_reply(&self, flow: &mut ProbingFlow, reply: &Replied) {
        let Some(round) = flow.round.as_mut().filter(|round| round.number == reply.value) else { return };
        round.awaited -= 1;
        let second = *round.second.get_or_insert(reply.path);
        if !reply.echo {
            Self::take(flow, reply.path);
            flow.round = None;
        } else if round.awaited == 0 {
            Self::take(flow, second);
            flow.round = None;
        }
    }

    fn timer(&self, flow: &ProbingFlow) -> Option<Time> {
        flow.round.map(|round| round.due)
    }

    fn on_timer(&self, flow: &mut ProbingFlow, now: Time) {
        let Some(round) = flow.round.take_if(|round| round.due <= now) else { return };
        if let Some(path) = round.second {
            Self::take(flow, path);
            return;
        }
        flow.vain += 1;
        if flow.holds && flow.vain < self.rounds {
            self.look(flow, now);
        } else {
            // Blindly, by another path than before.
            let path = (flow.path + 1) % self.probes;
            Self::take(flow, path);
        }
    }

    fn path(&self, flow: &mut ProbingFlow, choice: &PathChoice) -> Option<u16> {
        flow.sent += 1;
        if flow.sent >= self.packets {
            flow.sent = 0;
            self.look(flow, choice.now);
        }
        // A power of two.
        Some((u32::from(flow.path) & (choice.paths - 1)) as u16)
    }

    fn on_ack(&self, flow: &mut ProbingFlow, ack: &Ack) {
        // What was sent before the path changed says nothing of it.
        if ack.echo && ack.path == flow.path {
            self.look(flow, ack.now);
        }
    }

    fn on_loss(&self, flow: &mut ProbingFlow, loss: &Loss) {
        if loss.kind == LossKind::Timeout {
            self.look(flow, loss.now);
        }
    }

    fn on_data(&self, (): &mut (), data: &Arrived) -> Answer {
        Answer { acknowledge: data.marked, notify: false }
    }
}

/// What this crate brings along: scenarios say `network: {transport: probing, load_balancer: spray}`.
pub fn modules() -> Modules {
    Modules::default()
        .transport("probes paths before it sends, and takes the one that answers first", probing)
}

/// The endpoint with a scenario's `network.parameters`.
fn probing(parameters: &Parameters) -> Result<Probing, String> {
    let mut probing = Probing::default();
    for (key, value) in parameters {
        let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
        match (key.as_str(), number) {
            ("probes", Some(probes)) => probing.probes = probes,
            ("packets", Some(packets)) if packets > 0 => probing.packets = u32::from(packets),
            ("probes" | "packets", _) => {
                return Err(format!("`{key}` is {value}, expected a number up to 65535"));
            }
            _ => return Err(format!("unknown parameter `{key}`, expected `probes` or `packets`")),
        }
    }
    Ok(probing)
}
