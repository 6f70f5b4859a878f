//! Any topology as a graph, node by node and cable by cable: what the exporters write.

use windtunnel_kernel::Span;

use super::spec::{GraphLink, GraphNode, GraphSpec, NodeKind};
use crate::link::{LinkId, Node};
use crate::port::{Peer, SwitchId};
use crate::spec::{HostSpec, ScaleUpSpec};
use crate::topology::Topology;

impl GraphSpec {
    /// Hosts `host0`, `host1`, … and then all switches, by their names; the cables of a host are those of its first NIC
    /// into every plane, then of its second. Pipeline delays of switches become part of the cables' latency, half of a
    /// delay at either end of a path through the switch (rounded up to a ps): paths between hosts keep their latency.
    pub fn unrolled(topology: &Topology) -> Self {
        let host = |host: u32| GraphNode { name: format!("host{host}"), kind: NodeKind::Host, tier: None };
        let switch = |switch: u32| GraphNode {
            name: topology.node_name(Node::Switch(SwitchId(switch))),
            kind: NodeKind::Switch,
            tier: Some(topology.tier(SwitchId(switch))),
        };
        let hosts = topology.hosts();
        let nodes = (0..hosts).map(host).chain((0..topology.switches()).map(switch)).collect();
        let mut links = Vec::with_capacity(topology.link_count() / 2);
        // A link's latency has the delay of the switch at its far end.
        let half = |into: LinkId| {
            let link = topology.link(into);
            Span::from_ps((link.latency - link.propagation).ps().div_ceil(2))
        };
        let mut join = |a: u32, b: u32, there: LinkId, ends: Span| {
            let link = topology.link(there);
            let latency = link.propagation + ends;
            links.push(GraphLink { a, b, rate: link.rate, latency, loss: link.loss });
        };
        for nic in 0..topology.nics() {
            for plane in 0..topology.planes() {
                let (leaf, _) = topology.attachment(nic, plane);
                let up = topology.nic_link(nic, plane);
                join(nic / topology.nics_per_host(), hosts + leaf.0, up, half(up));
            }
        }
        for switch in (0..topology.switches()).map(SwitchId) {
            for port in 0..topology.ports(switch) {
                let Some(Peer::Switch { switch: peer, port: back }) = topology.peer(switch, port) else {
                    continue;
                };
                // Each cable once.
                if (switch, port) > (peer, back) {
                    continue;
                }
                let (Some(there), Some(back)) =
                    (topology.out_link(switch, port), topology.out_link(peer, back))
                else {
                    unreachable!("a port with a peer has a link")
                };
                join(hosts + switch.0, hosts + peer.0, there, half(there) + half(back));
            }
        }
        let host = Some(inside(topology));
        Self { nodes, links, host, source: topology.shape_name().to_owned() }
    }
}

/// What is inside a host; in a graph every port of a NIC is a NIC of its own.
fn inside(topology: &Topology) -> HostSpec {
    let (gpus, domain) = (topology.endpoints_per_host(), topology.scale_up_size());
    let (mut rate, mut latency) = (windtunnel_kernel::BitRate::ZERO, Span::ZERO);
    if domain > 1 {
        // The first link leaves the first GPU into its scale-up domain.
        let out = topology.link(LinkId(0));
        (rate, latency) = (out.rate, out.latency);
    }
    let size = if domain == gpus { None } else { Some(domain) };
    let nics = topology.nics_per_host() * topology.planes();
    HostSpec { gpus, nics, rails: false, scale_up: ScaleUpSpec { size, rate, latency } }
}
