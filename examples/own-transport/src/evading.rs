//! A load balancer at the sender: path numbers in turn, but not the last one that was marked.

use windtunnel_fabric::packet::transport::{Ack, PathChoice, PathChooser, PathFacts};
use windtunnel_scenario::modules::Parameters;

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

/// The load balancer with the parameters of a scenario's `network.path_chooser`.
pub fn evading(parameters: &Parameters) -> Result<Evading, String> {
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
