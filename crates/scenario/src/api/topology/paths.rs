//! Paths of flows, and all equally good paths of a pair.

use serde_json::{Value, json};
use windtunnel_kernel::{EndpointId, NicId};
use windtunnel_plan::error::InputError;
use windtunnel_topology::{Forwarder, LinkTier, Node, PathClass, Paths, Reach, Route, Topology};

use super::request::{PairQuery, PathQuery, endpoint};

/// The way of each flow.
pub(super) fn paths(asked: &[PathQuery], forwarder: &mut Forwarder) -> Result<Vec<Value>, InputError> {
    asked.iter().enumerate().map(|(index, query)| path(index, query, forwarder)).collect()
}

fn path(index: usize, query: &PathQuery, forwarder: &mut Forwarder) -> Result<Value, InputError> {
    let topology = forwarder.topology().clone();
    let from = endpoint(&query.from, &format!("paths[{index}].from"), &topology)?;
    let to = endpoint(&query.to, &format!("paths[{index}].to"), &topology)?;
    check_nic(query.nic, &format!("paths[{index}].nic"), &topology)?;
    let (balancer, nic) = (query.balancer(), NicId(query.nic));
    let mut route = Route::new();
    let reach = match forwarder.route(balancer, query.seed, from, to, nic, query.entropy, &mut route) {
        Ok(reach) | Err(reach) => reach,
    };
    let joined = reach.forwards();
    let single = route.links.iter().all(|(_, share)| *share == 1.0);
    let of_fabric = |&&(link, _): &&(_, f64)| {
        !matches!(topology.link(link).tier, LinkTier::ScaleUpOut | LinkTier::ScaleUpIn)
    };
    let switches = route.links.iter().filter(of_fabric).count().saturating_sub(1);
    let links: Vec<Value> = route
        .links
        .iter()
        .map(|&(link, share)| {
            let known = topology.link(link);
            let (a, b) = topology.link_ends(link);
            json!({
                "name": topology.link_name(link),
                "from": topology.node_name(a),
                "to": topology.node_name(b),
                "tier": known.tier.name(),
                "share": share,
                "rate_bps": known.rate.bps(),
                "latency_ps": known.latency.ps(),
                "length_m": topology.cable_length_mm(link) as f64 / 1e3,
                "loss": known.loss,
            })
        })
        .collect();
    let class = topology.path_class(from, to);
    Ok(json!({
        "from": gpu(&topology, from),
        "to": gpu(&topology, to),
        "nic": query.nic,
        "entropy": query.entropy,
        "balancer": balancer.name(),
        "seed": query.seed,
        "class": class.name(),
        "verdict": reach.name(),
        "latency_ps": joined.then_some(route.latency.ps()),
        "switches": (joined && single).then_some(switches),
        "links": links,
    }))
}

/// The equal-cost ports of every switch on the way of each pair.
pub(super) fn ecmp(asked: &[PairQuery], forwarder: &mut Forwarder) -> Result<Vec<Value>, InputError> {
    asked.iter().enumerate().map(|(index, query)| pair(index, query, forwarder)).collect()
}

fn pair(index: usize, query: &PairQuery, forwarder: &mut Forwarder) -> Result<Value, InputError> {
    let topology = forwarder.topology().clone();
    let from = endpoint(&query.from, &format!("ecmp[{index}].from"), &topology)?;
    let to = endpoint(&query.to, &format!("ecmp[{index}].to"), &topology)?;
    check_nic(query.nic, &format!("ecmp[{index}].nic"), &topology)?;
    let class = topology.path_class(from, to);
    let mut answer = json!({
        "from": gpu(&topology, from),
        "to": gpu(&topology, to),
        "nic": query.nic,
        "from_nic": Value::Null,
        "to_nic": Value::Null,
        "class": class.name(),
        "verdict": Reach::Legal.name(),
        "paths": 1,
        "planes": [],
    });
    if class <= PathClass::ScaleUp {
        return Ok(answer);
    }
    let nics = [from, to].map(|end| topology.nic(end, NicId(query.nic)));
    let [from_nic, to_nic] = nics.map(|nic| topology.node_name(Node::Nic(nic)));
    let (mut planes, mut count, mut best) = (Vec::new(), 0.0, Reach::Unreachable);
    for plane in 0..topology.planes() {
        // A NIC whose own cable is dead is not in the plane.
        let ends = nics.map(|nic| topology.nic_link(nic, plane));
        let cut = ends.iter().any(|&link| forwarder.is_dead(link));
        let found = Paths::between(forwarder, nics[0], nics[1], plane);
        let reach = if cut { Reach::Unreachable } else { found.reach };
        let joined = reach.forwards();
        best = best.min(reach);
        let paths = if joined { found.count() } else { 0.0 };
        count += paths;
        let stops = found.stops.iter().filter(|_| joined);
        let switches: Vec<Value> = stops.map(|stop| self::stop(&topology, stop)).collect();
        planes.push(json!({
            "plane": plane,
            "verdict": reach.name(),
            "paths": whole(paths),
            "switches": switches,
        }));
    }
    answer["from_nic"] = json!(from_nic);
    answer["to_nic"] = json!(to_nic);
    answer["verdict"] = json!(best.name());
    answer["paths"] = whole(count);
    answer["planes"] = json!(planes);
    Ok(answer)
}

fn stop(topology: &Topology, stop: &windtunnel_topology::Stop) -> Value {
    let sum: u64 = stop.ports.iter().map(|(_, weight, _)| weight).sum();
    let port = |&(port, weight, _): &(u32, u64, Option<usize>)| {
        let link = topology.out_link(stop.switch, port);
        json!({
            "port": port,
            "to": link.map(|link| topology.node_name(topology.link_ends(link).1)),
            "link": link.map(|link| topology.link_name(link)),
            "weight": weight,
            "share": stop.share * weight as f64 / sum as f64,
        })
    };
    json!({
        "switch": topology.node_name(Node::Switch(stop.switch)),
        "verdict": stop.reach.name(),
        "hops_left": stop.hops,
        "paths": whole(stop.paths),
        "share": stop.share,
        "ports": stop.ports.iter().map(port).collect::<Vec<_>>(),
    })
}

/// A count as a whole number where it is one exactly.
pub(super) fn whole(count: f64) -> Value {
    if count < 9_007_199_254_740_992.0 { json!(count as u64) } else { json!(count) }
}

fn gpu(topology: &Topology, endpoint: EndpointId) -> String {
    topology.node_name(Node::Gpu(endpoint))
}

fn check_nic(nic: u8, key: &str, topology: &Topology) -> Result<(), InputError> {
    let nics = topology.nics_per_endpoint();
    if u32::from(nic) < nics {
        return Ok(());
    }
    let plural = if nics == 1 { "" } else { "s" };
    Err(InputError::new(key, format!("a GPU has {nics} NIC{plural}, counted from 0, found {nic}")))
}
