//! The flow model on a fabric with failed cables: against the same fabric without, and against nothing left at all.

use std::sync::Arc;

use crate::networks::{arrivals, message};
use windtunnel_fabric::flow::FlowNetwork;
use windtunnel_fabric::reroute::{Rerouter, SharedRerouter, lock};
use windtunnel_fabric::{Departure, Network};
use windtunnel_kernel::{BitRate, Bytes, EndpointId, Span, Time};
use windtunnel_topology::{
    ClosSpec, Detour, Forwarder, HostSpec, LinkId, Policy, Reach, Tier, Topology, TopologySpec,
};

const BYTES: u64 = 1 << 20;
/// A cable and the switch behind it.
const HOP: Span = Span::from_ns(350);

/// Four leaves of four hosts under four spines, single links.
fn topology() -> Arc<Topology> {
    let rate = BitRate::from_gbps(100);
    let tiers = [4, 4].map(|ports| Tier {
        length_mm: 30_000,
        switch_latency: Span::from_ns(200),
        ..Tier::new(ports, rate)
    });
    let spec = ClosSpec::new(16, HostSpec::new(1, 1, rate), tiers.to_vec());
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a valid topology"))
}

fn link(topology: &Topology, name: &str) -> LinkId {
    let mut links = (0..topology.link_count() as u32).map(LinkId);
    links.find(|&link| topology.link_name(link) == name).expect("a link of that name")
}

/// When a message from host 0 to host 4 arrives with `failed` cables, and the account.
fn arrival(failed: &[&str], detour: Detour) -> (Option<Time>, SharedRerouter) {
    let topology = topology();
    let mut forwarder = Forwarder::new(topology.clone(), Policy { detour, weighted: false });
    for name in failed {
        forwarder.fail_cable(link(&topology, name));
    }
    forwarder.converge();
    let rerouter = Rerouter::shared(forwarder);
    let mut network = FlowNetwork::new(topology, crate::common::jumbo_flows())
        .expect("valid settings")
        .rerouted(rerouter.clone());
    let departure = Departure { entropy: 3, line: 1, ..message(9, 0, 4, BYTES) };
    network.depart(Time::ZERO, departure);
    let at = arrivals(&mut network).first().map(|&(at, _)| at);
    (at, rerouter)
}

/// Serialisation of the bytes with their headers, and `hops` cables each with the switch behind it but the last.
fn expected(hops: u64) -> Time {
    let wire = Bytes::new(BYTES + BYTES.div_ceil(8_934) * 66);
    Time::ZERO + BitRate::from_gbps(100).serialise(wire) + HOP * (hops - 1) + Span::from_ns(150)
}

#[test]
fn where_a_legal_path_is_left_it_takes_as_long() {
    for failed in [&[][..], &["leaf0 -> spine0", "leaf0 -> spine1", "leaf1 -> spine3"]] {
        let (at, rerouter) = arrival(failed, Detour::Forbid);
        assert_eq!(at, Some(expected(4)), "{failed:?}");
        let account = lock(&rerouter);
        assert_eq!((account.detoured(), account.cut_off()), (0, None));
    }
}

/// Leaf 0 keeps spine 0 and leaf 1 keeps spine 1: only a valley through a third leaf joins them.
const VALLEY: [&str; 6] = [
    "leaf0 -> spine1",
    "leaf0 -> spine2",
    "leaf0 -> spine3",
    "spine0 -> leaf1",
    "leaf1 -> spine2",
    "leaf1 -> spine3",
];

#[test]
fn a_detour_takes_two_hops_more_and_is_counted() {
    let (at, rerouter) = arrival(&VALLEY, Detour::Allow);
    assert_eq!(at, Some(expected(6)));
    let account = lock(&rerouter);
    assert_eq!(account.first_detoured(), [(EndpointId(0), EndpointId(4))]);
    assert_eq!((account.detoured(), account.cut_off()), (1, None));
}

#[test]
fn a_pair_that_nothing_joins_is_named_and_its_message_never_arrives() {
    for (failed, detour) in [(&VALLEY[..], Detour::Forbid), (&["leaf1 -> host4/nic0"], Detour::Allow)] {
        let (at, rerouter) = arrival(failed, detour);
        assert_eq!(at, None);
        let cut_off = lock(&rerouter).cut_off().expect("the pair");
        assert_eq!((cut_off.from, cut_off.to), (EndpointId(0), EndpointId(4)));
        assert_eq!(cut_off.reach, Reach::Unreachable);
    }
}
