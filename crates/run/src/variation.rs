//! How the hosts of a run differ from what is written of all.

use windtunnel_cluster::variation::Variation;
use windtunnel_kernel::{CalendarTime, EndpointId, Time};
use windtunnel_plan::Plan;

/// How hosts differ, with its instants counted from the episode's start.
pub(crate) fn variation(plan: &Plan, start: CalendarTime) -> Variation {
    with_speeds(plan, start, Variation::new(plan.seed, plan.noise.clone()))
}

/// `variation`, with what the scenario says of the speeds and clocks of its hosts.
pub(crate) fn with_speeds(plan: &Plan, start: CalendarTime, mut variation: Variation) -> Variation {
    let topology = &plan.fabric.topology;
    let per_host = topology.endpoints_per_host();
    for rule in &plan.speeds {
        let from = rule.from.map_or(0, |from| from.ps().saturating_sub(start.network_time().ps()));
        for host in rule.hosts.clone() {
            let gpus = rule.gpu.map_or(0..per_host, |gpu| gpu..gpu + 1);
            for gpu in gpus {
                let endpoint = EndpointId(host * per_host + gpu);
                variation.set_speed(topology.endpoints(), endpoint, Time::from_ps(from), rule.speed);
            }
        }
    }
    for &(host, fast) in &plan.troubles.drift {
        for endpoint in (host * per_host..(host + 1) * per_host).map(EndpointId) {
            variation.set_clock(topology.endpoints(), endpoint, 1.0 + fast as f64 / 1e9);
        }
    }
    variation
}
