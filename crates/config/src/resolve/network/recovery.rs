//! How losses are mended: what a scenario writes, or what goes with its transport and its paths.

use windtunnel_fabric::coding::Coding;
use windtunnel_fabric::packet::transport::{ERASURE, Recovery, SELECTIVE};
use windtunnel_fabric::packet::{Balancer, TransportChoice};

use super::parameters::Refused;
use super::paths::packet_balancer;
use crate::schema::Network;

/// Later packets that show a loss where packets take many paths: the reach of MP-RDMA's bitmap.
const FAR: u32 = 64;
/// The same on one path.
const NEAR: u32 = 3;

/// Whether packets of a queue pair take many paths at a time.
fn spreads(network: &Network) -> bool {
    packet_balancer(network).is_some_and(Balancer::spreads)
}

/// The parity that messages carry along, as far as it can be.
pub(in crate::resolve) fn coding_of(network: &Network) -> Option<Coding> {
    let keys = network.recovery.filter(|written| *written.of == ERASURE)?.erasure;
    Coding::new(keys.data, keys.parity).ok()
}

/// What takes the place of a transport's usual recovery where packets overtake one another: what goes by their order would take
/// those overtaken for lost.
pub(super) fn usual(recovery: Recovery, network: &Network) -> Recovery {
    match recovery {
        Recovery::GoBackN if spreads(network) => Recovery::Rack,
        Recovery::Selective { reorder } if reorder < u32::MAX && spreads(network) => Recovery::Rack,
        other => other,
    }
}

/// A law with the recovery that the scenario writes; `usual` is that of its transport.
///
/// # Errors
/// [`Refused`] for packets to be counted where nothing counts them, or in two places.
pub(super) fn mending(
    law: TransportChoice,
    usual: Recovery,
    network: &Network,
) -> Result<TransportChoice, (&'static str, Refused)> {
    let Some(written) = network.recovery else { return Ok(law) };
    let refused = |place, message: &str, hint: &str| {
        Err((place, Refused { key: String::new(), message: message.to_owned(), hint: Some(hint.to_owned()) }))
    };
    if law.is_dispatched() {
        let message = "this transport mends losses by rules of its own";
        return refused("recovery", message, "leave `recovery` out");
    }
    let counted = network.parameters.contains_key("reorder");
    if counted && (*written.of != SELECTIVE || written.reorder.is_some()) {
        let message = "expected `recovery: selective` beside packets that show a loss";
        return refused("parameters.reorder", message, "write `recovery: {selective: {reorder: …}}` alone");
    }
    if written.reorder == Some(0) {
        return refused(
            "recovery.selective.reorder",
            "expected a whole number from 1 on, found 0",
            "3 is usual",
        );
    }
    if *written.of == ERASURE {
        let keys = written.erasure;
        return match Coding::new(keys.data, keys.parity) {
            Err(error) => refused("recovery.erasure", &error.to_string(), "32 and 8 are usual"),
            // What is missing shows once its block has passed.
            Ok(_) if spreads(network) => Ok(law.mending(Recovery::Rack)),
            Ok(_) => Ok(law.mending(Recovery::Selective { reorder: FAR })),
        };
    }
    let one_path = packet_balancer(network).is_some_and(Balancer::is_fixed);
    let own = match usual {
        Recovery::Selective { reorder } if reorder < u32::MAX => reorder,
        _ => 0,
    };
    let reorder = written.reorder.unwrap_or(own.max(if one_path { NEAR } else { FAR }));
    Ok(if counted { law } else { law.mending((written.of.recovery)(reorder)) })
}

/// In words.
pub(super) fn words(recovery: Recovery) -> String {
    match recovery {
        Recovery::None => "none".to_owned(),
        Recovery::GoBackN => "go-back-N".to_owned(),
        Recovery::TIMER => "by NACKs and time-outs".to_owned(),
        Recovery::Selective { reorder } => format!("selective, {reorder} packets show a loss"),
        Recovery::Rack => "by time (RACK)".to_owned(),
    }
}
