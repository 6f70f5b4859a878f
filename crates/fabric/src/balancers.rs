//! Load balancers by name: what each network model takes them for.

use windtunnel_kernel::Span;
use windtunnel_kernel::registry::Entry;
use windtunnel_topology::LoadBalancer;

use crate::packet::Balancer;

/// What a scenario says beside the name.
#[derive(Clone, Copy, Debug)]
pub struct Around {
    /// Path numbers that packets go round or draw from.
    pub paths: u32,
    /// Pause that ends a flowlet.
    pub gap: Span,
}

/// How a path is chosen among equal ones.
#[derive(Clone, Copy, Debug)]
pub struct Balancing {
    /// Its name and a line about it.
    pub entry: Entry,
    /// What messages and flows take it for.
    pub flows: LoadBalancer,
    /// What packets take it for; `None`: there are no packets with it, which take real paths.
    pub packets: Option<fn(Around) -> Balancer>,
}

impl PartialEq for Balancing {
    fn eq(&self, other: &Self) -> bool {
        self.entry == other.entry
    }
}

impl Default for &Balancing {
    fn default() -> Self {
        &ECMP
    }
}

/// A hash of the flow at each switch.
pub const ECMP: Balancing = Balancing {
    entry: Entry::new("ecmp", "a hash of the flow at each switch"),
    flows: LoadBalancer::Ecmp,
    packets: Some(|_| Balancer::Ecmp),
};

/// The up port by the destination's number.
pub const DESTINATION_MODULO: Balancing = Balancing {
    entry: Entry::new(
        "destination_modulo",
        "the up port is the destination modulo the number of ports (D-mod-k)",
    ),
    flows: LoadBalancer::DestinationModulo,
    packets: Some(|_| Balancer::DestinationModulo),
};

/// Packets in turn over path numbers.
pub const SPRAY: Balancing = Balancing {
    entry: Entry::new(
        "spray",
        "packets go round path numbers, or as a path chooser says (at flow fidelity equal parts over all shortest paths)",
    ),
    flows: LoadBalancer::Spray,
    packets: Some(|around| Balancer::Spray { paths: around.paths }),
};

/// Source routes by number.
pub const SOURCE: Balancing = Balancing {
    entry: Entry::new(
        "source",
        "as `spray`, but a path number names a path: numbers in a row take each port of a switch once, as source routes \
         (SRv6) do (at flow fidelity `spray`)",
    ),
    flows: LoadBalancer::Spray,
    packets: Some(|around| Balancer::Source { paths: around.paths }),
};

/// LetFlow (Vanini et al., "Let it flow", NSDI 2017).
pub const FLOWLET: Balancing = Balancing {
    entry: Entry::new(
        "flowlet",
        "a switch draws a new path for packets that come more than `flowlet_gap` after the ones of their flow before \
         (LetFlow; at flow fidelity `ecmp`)",
    ),
    flows: LoadBalancer::Ecmp,
    packets: Some(|around| Balancer::Flowlet { gap: around.gap }),
};

/// The least loaded port.
pub const ADAPTIVE: Balancing = Balancing {
    entry: Entry::new(
        "adaptive",
        "every packet takes the least loaded of the equal ports at every switch, or as a balancer of the switches says \
         (at flow fidelity `spray`)",
    ),
    flows: LoadBalancer::Spray,
    packets: Some(|_| Balancer::Adaptive),
};

/// Ports in turn.
pub const ROUND_ROBIN: Balancing = Balancing {
    entry: Entry::new(
        "round_robin",
        "packets that come to a switch by one port take the equal ports in turn, control packets too (at flow fidelity \
         `spray`)",
    ),
    flows: LoadBalancer::Spray,
    packets: Some(|_| Balancer::RoundRobin),
};

/// REPS (Bonato et al., "REPS: recycled entropy packet spraying", 2024).
pub const REPS: Balancing = Balancing {
    entry: Entry::new(
        "reps",
        "the sender uses path numbers again whose packets came through unmarked (REPS; at flow fidelity `spray`)",
    ),
    flows: LoadBalancer::Spray,
    packets: Some(|around| Balancer::Reps { paths: around.paths }),
};

/// No shared path.
pub const IDEAL: Balancing = Balancing {
    entry: Entry::new("ideal", "no path inside the fabric is ever shared: only the NICs count"),
    flows: LoadBalancer::Ideal,
    packets: None,
};

/// All, in the order in which they are listed.
pub const BALANCERS: [&Balancing; 9] =
    [&ECMP, &DESTINATION_MODULO, &SPRAY, &SOURCE, &FLOWLET, &ADAPTIVE, &ROUND_ROBIN, &REPS, &IDEAL];

windtunnel_kernel::table! { Balancing: "load balancer", BALANCERS }
