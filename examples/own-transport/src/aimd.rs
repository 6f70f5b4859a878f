//! Additive increase, multiplicative decrease by marks, as a window.
//!
//! With window w in bytes, packets of m bytes and acknowledgements of b bytes,
//!
//! ```text
//! b bytes acknowledged, none of them marked      w ← w + increase · m · b / w
//! a mark, at most once in a round trip           w ← max(m, (1 − decrease) · w)
//! a time-out                                     w ← m
//! ```
//!
//! so that a round trip without a mark adds `increase` packets (Chiu and Jain 1989: of the linear rules this one comes to equal
//! shares). The first window is the bandwidth–delay product of the idle path. The engine owns sequence numbers,
//! segmentation, acknowledgements, retransmission and timers.

use windtunnel_fabric::packet::transport::{Ack, Endpoint, Loss, LossKind, PathFacts, Plain, Recovery};
use windtunnel_kernel::{Span, Time};
use windtunnel_scenario::modules::Parameters;

/// The law with its parameters, which are those of a scenario's `network.parameters`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aimd {
    /// Part of the window that a mark takes, above 0 and up to 1. Default: 0.5.
    pub decrease: f64,
    /// Packets that a round trip without a mark adds, above 0 and up to 100. Default: 1.
    pub increase: f64,
}

impl Aimd {
    /// The parameters where a scenario has none.
    pub const DEFAULT: Self = Self { decrease: 0.5, increase: 1.0 };
}

/// What a sender keeps of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct AimdFlow {
    /// Bytes that may be under way.
    window: f64,
    /// Bytes of a full packet.
    mtu: f64,
    /// Round trip without queues.
    base_rtt: Span,
    /// No second decrease before.
    settled: Time,
}

impl Endpoint for Aimd {
    type Flow = AimdFlow;
    type Peer = ();
    type Uses = Plain;

    const NAME: &'static str = "aimd";

    /// A packet is lost when three that were sent after it have arrived; it alone is sent again.
    fn recovery(&self) -> Recovery {
        Recovery::Selective { reorder: 3 }
    }

    fn open(&self, path: &PathFacts) -> AimdFlow {
        AimdFlow {
            window: path.bdp as f64,
            mtu: f64::from(path.mtu),
            base_rtt: path.base_rtt,
            settled: Time::ZERO,
        }
    }

    fn window(&self, flow: &AimdFlow) -> u64 {
        flow.window as u64
    }

    fn on_ack(&self, flow: &mut AimdFlow, ack: &Ack) {
        if ack.marked == 0 {
            flow.window += self.increase * flow.mtu * ack.bytes as f64 / flow.window;
        } else if ack.now >= flow.settled {
            flow.window = (flow.window * (1.0 - self.decrease)).max(flow.mtu);
            flow.settled = ack.now + ack.rtt;
        }
    }

    fn on_loss(&self, flow: &mut AimdFlow, loss: &Loss) {
        if loss.kind == LossKind::Timeout {
            flow.window = flow.mtu;
        }
    }

    fn timeout(&self, flow: &AimdFlow) -> Span {
        Span::from_us(100).max(flow.base_rtt * 8)
    }
}

/// The law with a scenario's `network.parameters`. The error is shown with its place, and ends the command with exit status 2.
pub fn aimd(parameters: &Parameters) -> Result<Aimd, String> {
    let mut law = Aimd::DEFAULT;
    for (key, value) in parameters {
        let (parameter, most, expected) = match key.as_str() {
            "decrease" => (&mut law.decrease, 1.0, "a part above 0 and up to 1"),
            "increase" => (&mut law.increase, 100.0, "packets a round trip, above 0 and up to 100"),
            _ => return Err(format!("unknown parameter `{key}`, expected `decrease` or `increase`")),
        };
        *parameter = value
            .as_f64()
            .filter(|&number| number > 0.0 && number <= most)
            .ok_or_else(|| format!("`{key}` is {value}, expected {expected}"))?;
    }
    Ok(law)
}
