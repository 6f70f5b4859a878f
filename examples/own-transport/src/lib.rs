//! A transport, load balancers and a stage of switches of one's own: the crate that a user of Windtunnel writes, whole.
//!
//! [`Aimd`] is the transport, [`Evading`] the load balancer at the sender, [`Drill`] the one in switches, [`Tcn`] the stage;
//! [`modules`] registers them under their names, and that is all: the command beside this file (`src/main.rs`) runs scenarios that say `network: {transport: aimd}`, and so does the
//! `windtunnel` command with the Python module of this crate in the place of its own engine:
//!
//! ```console
//! $ cargo run -p own-transport -- examples/own-transport/scenario.yaml
//! $ cargo build --release -p own-transport --features python
//! $ cp target/release/libown_transport.so own_transport.abi3.so
//! $ WINDTUNNEL_ENGINE=own_transport PYTHONPATH=. windtunnel run examples/own-transport/scenario.yaml
//! ```

mod drill;
#[cfg(feature = "python")]
mod python;
mod tcn;

use windtunnel_fabric::packet::transport::{
    Ack, Endpoint, Loss, LossKind, PathChoice, PathChooser, PathFacts, Plain, Recovery, SwitchStage,
};
use windtunnel_kernel::{Span, Time};
use windtunnel_scenario::modules::{Kind, Modules, Parameters, balancer, chooser, stage};

pub use drill::Drill;
use drill::drill;
pub use tcn::Tcn;
use tcn::tcn;

/// Additive increase, multiplicative decrease by marks: a packet more each round trip without a mark, and at the first
/// mark of a round trip a part of the window less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aimd {
    /// Part of the window that a mark takes, above 0 and up to 1.
    pub decrease: f64,
}

/// A sender's state.
#[derive(Clone, Copy, Debug)]
pub struct AimdFlow {
    window: f64,
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
            flow.window += flow.mtu * ack.bytes as f64 / flow.window;
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

/// Takes path numbers in turn, and leaves the last one that was marked out for some packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evading {
    /// Packets for which a marked path is left out.
    pub packets: u32,
}

/// What a queue pair remembers.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvadingState {
    turn: u32,
    marked: u16,
    left: u32,
}

impl PathChooser for Evading {
    type State = EvadingState;

    const NAME: &'static str = "evading";

    fn open(&self, _: &PathFacts) -> EvadingState {
        EvadingState::default()
    }

    fn choose(&self, state: &mut EvadingState, choice: &PathChoice) -> u16 {
        let path = choice.in_turn(state.turn);
        state.turn = state.turn.wrapping_add(1);
        if state.left > 0 {
            state.left -= 1;
            if path == state.marked {
                state.turn = state.turn.wrapping_add(1);
                return choice.in_turn(state.turn.wrapping_sub(1));
            }
        }
        path
    }

    fn on_ack(&self, state: &mut EvadingState, ack: &Ack) {
        if ack.echo {
            (state.marked, state.left) = (ack.path, self.packets);
        }
    }
}

/// What this program brings along.
pub fn modules() -> Modules {
    Modules::default()
        .transport("additive increase, multiplicative decrease by marks", aimd)
        .path_chooser("path numbers in turn, but not those marked of late", evading)
        .switch_balancer("the least loaded of drawn ports and the best of last time (DRILL)", drill)
        .describe(Kind::Stage, Tcn::NAME, "marks what has waited for long (TCN); with `aimd`")
        .with(aimd, chooser(evading))
        .with(aimd, balancer(drill))
        .with(aimd, stage(tcn))
        .with(aimd, (stage(tcn), chooser(evading)))
}

/// The load balancer with the parameters of a scenario's `network.path_chooser`.
fn evading(parameters: &Parameters) -> Result<Evading, String> {
    let mut evading = Evading { packets: 64 };
    for (key, value) in parameters {
        match (key.as_str(), value.as_u64().and_then(|packets| u32::try_from(packets).ok())) {
            ("packets", Some(packets)) => evading.packets = packets,
            ("packets", None) => return Err(format!("`packets` is {value}, expected a number of packets")),
            _ => return Err(format!("unknown parameter `{key}`, expected `packets`")),
        }
    }
    Ok(evading)
}

/// The transport with a scenario's `network.parameters`.
fn aimd(parameters: &Parameters) -> Result<Aimd, String> {
    let mut aimd = Aimd { decrease: 0.5 };
    for (key, value) in parameters {
        match (key.as_str(), value.as_f64()) {
            ("decrease", Some(part)) if part > 0.0 && part <= 1.0 => aimd.decrease = part,
            ("decrease", _) => {
                return Err(format!("`decrease` is {value}, expected a part above 0 and up to 1"));
            }
            _ => return Err(format!("unknown parameter `{key}`, expected `decrease`")),
        }
    }
    Ok(aimd)
}
