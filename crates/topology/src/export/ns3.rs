//! `topology.txt` of ns-3's HPCC and SimAI forks.

use std::fmt::Write;

use rustc_hash::FxHashSet;

use super::{cannot, units};
use crate::graph::{GraphError, GraphLink, GraphSpec, NodeKind};

/// The graph as text for ns-3: SimAI's form if it says what is inside a host, HPCC's otherwise. Nodes are numbered in
/// their order; SimAI wants GPUs first, then its `NVSwitches`, one a server, then the switches.
///
/// # Errors
/// [`GraphError`] for parallel cables, of which ns-3 keeps one; and in SimAI's form for hosts whose cables are not one
/// and the same number for every GPU.
pub fn ns3(graph: &GraphSpec) -> Result<String, GraphError> {
    match graph.host.filter(|host| host.gpus > 1) {
        None => hpcc(graph),
        Some(host) => match host.scale_up.size.unwrap_or(host.gpus) {
            1 => simai(graph, host.gpus, true),
            size if size == host.gpus => simai(graph, host.gpus, false),
            size => {
                let what = format!(
                    "expected a scale-up network of all {} GPUs of a host for SimAI, or none, found one of {size}",
                    host.gpus
                );
                Err(cannot(&graph.source, what, None))
            }
        },
    }
}

fn row(text: &mut String, (a, b): (u32, u32), link: &GraphLink) {
    let (rate, latency) = (units::rate(link.rate, ""), units::time(link.latency, ""));
    let _ = writeln!(text, "{a} {b} {rate} {latency} {}", link.loss);
}

fn no_parallel(graph: &GraphSpec, pairs: &[(u32, u32)]) -> Result<(), GraphError> {
    let mut seen = FxHashSet::default();
    for (number, &(a, b)) in pairs.iter().enumerate() {
        if !seen.insert((a.min(b), a.max(b))) {
            let link = &graph.links[number];
            let name = |node: u32| &graph.nodes[node as usize].name;
            let what = format!(
                "expected no parallel links for ns-3, which keeps one for a pair of nodes, found two between `{}` and \
                 `{}`",
                name(link.a),
                name(link.b)
            );
            return Err(cannot(
                &graph.source,
                what,
                Some("one link of the sum of their rates loads the fabric alike"),
            ));
        }
    }
    Ok(())
}

fn ids(text: &mut String, ids: impl Iterator<Item = u32>) {
    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    let _ = writeln!(text, "{}", ids.join(" "));
}

fn hpcc(graph: &GraphSpec) -> Result<String, GraphError> {
    let pairs: Vec<(u32, u32)> = graph.links.iter().map(|link| (link.a, link.b)).collect();
    no_parallel(graph, &pairs)?;
    let mut text = format!("{} {} {}\n", graph.nodes.len(), graph.switch_count(), graph.links.len());
    let switch = |node: &u32| graph.nodes[*node as usize].kind == NodeKind::Switch;
    ids(&mut text, (0..graph.nodes.len() as u32).filter(switch));
    for (link, &pair) in graph.links.iter().zip(&pairs) {
        row(&mut text, pair, link);
    }
    Ok(text)
}

fn simai(graph: &GraphSpec, gpus: u32, no_scale_up: bool) -> Result<String, GraphError> {
    let host = graph.host.expect("the caller has seen it");
    let servers = graph.host_count() as u32;
    let nv_switches = if no_scale_up { 0 } else { servers };
    let first_switch = servers * gpus + nv_switches;
    let (mut next_host, mut next_switch) = (0, first_switch);
    let number = |node: &crate::graph::GraphNode| {
        let next = if node.kind == NodeKind::Host { &mut next_host } else { &mut next_switch };
        *next += 1;
        *next - 1
    };
    let numbers: Vec<u32> = graph.nodes.iter().map(number).collect();
    let is_host = |node: u32| graph.nodes[node as usize].kind == NodeKind::Host;
    let per_gpu = host.nics / gpus;
    let mut used = vec![0u32; servers as usize];
    let mut end = |node: u32| -> Option<u32> {
        let number = numbers[node as usize];
        if !is_host(node) {
            return Some(number);
        }
        let nic = &mut used[number as usize];
        *nic += 1;
        (*nic <= host.nics && per_gpu > 0).then(|| number * gpus + (*nic - 1) / per_gpu.max(1))
    };
    let uneven = || {
        let what = format!(
            "expected {} links at every host for SimAI, a whole number for each of its {gpus} GPUs, found another number",
            host.nics
        );
        cannot(&graph.source, what, None)
    };
    let mut pairs = Vec::with_capacity(graph.links.len());
    for link in &graph.links {
        pairs.push((end(link.a).ok_or_else(uneven)?, end(link.b).ok_or_else(uneven)?));
    }
    if !host.nics.is_multiple_of(gpus) || used.iter().any(|&nics| nics != host.nics) {
        return Err(uneven());
    }
    no_parallel(graph, &pairs)?;
    let links = pairs.len() + (nv_switches * gpus) as usize;
    let nodes = next_switch;
    let mut text = format!("{nodes} {gpus} {nv_switches} {} {links} {}\n", graph.switch_count(), "GPU");
    ids(&mut text, servers * gpus..nodes);
    if !no_scale_up {
        // Half of the way from GPU to GPU on either side of the NVSwitch.
        let scale_up = host.scale_up;
        if !scale_up.latency.ps().is_multiple_of(2) {
            let what = format!(
                "expected a scale-up latency of an even number of ps, found {} ps",
                scale_up.latency.ps()
            );
            return Err(cannot(&graph.source, what, None));
        }
        let half = windtunnel_kernel::Span::from_ps(scale_up.latency.ps() / 2);
        for gpu in 0..servers * gpus {
            let link = GraphLink { a: 0, b: 0, rate: scale_up.rate, latency: half, loss: 0.0 };
            row(&mut text, (gpu, servers * gpus + gpu / gpus), &link);
        }
    }
    for (link, pair) in graph.links.iter().zip(pairs) {
        row(&mut text, pair, link);
    }
    Ok(text)
}
