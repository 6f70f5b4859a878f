//! Destination-modulo paths load every link of a full tree alike under a uniform all-to-all (Zahavi 2010).

use windtunnel_kernel::{BitRate, EndpointId, Id, NicId};
use windtunnel_topology::{
    ClosSpec, HostSpec, LinkId, LinkTier, LoadBalancer, Route, Tier, Topology, TopologySpec,
};

/// Flows on every link of an all-to-all between endpoints of different hosts, in link order.
fn loads(topology: &Topology, balancer: LoadBalancer) -> Vec<(LinkTier, f64)> {
    let mut loads: Vec<(LinkTier, f64)> =
        (0..topology.link_count()).map(|link| (topology.link(LinkId::from_index(link)).tier, 0.0)).collect();
    let mut route = Route::new();
    let per_host = topology.endpoints_per_host();
    for from in 0..topology.endpoints() {
        for to in (0..topology.endpoints()).filter(|to| to / per_host != from / per_host) {
            for nic in 0..topology.nics_per_endpoint() {
                let (from, to) = (EndpointId(from), EndpointId(to));
                topology.route(balancer, 7, from, to, NicId(nic as u8), 0, &mut route);
                for &(link, share) in &route.links {
                    loads[link.0 as usize].1 += share;
                }
            }
        }
    }
    loads
}

const NIC_TIERS: [LinkTier; 2] = [LinkTier::NicUp, LinkTier::NicDown];
const SWITCH_TIERS: [LinkTier; 4] = [LinkTier::Up(0), LinkTier::Down(0), LinkTier::Up(1), LinkTier::Down(1)];

fn assert_equal(topology: &Topology, tiers: &[LinkTier]) {
    let loads = loads(topology, LoadBalancer::DestinationModulo);
    for &tier in tiers {
        let of_tier: Vec<f64> = loads.iter().filter(|load| load.0 == tier).map(|load| load.1).collect();
        assert!(!of_tier.is_empty(), "{tier}");
        assert!(of_tier[0] > 0.0 && of_tier.iter().all(|&load| load == of_tier[0]), "{tier}: {of_tier:?}");
    }
}

fn assert_equal_per_tier(topology: &Topology) {
    assert_equal(topology, &NIC_TIERS);
    assert_equal(topology, &SWITCH_TIERS);
}

fn fat_tree(k: u32) -> ClosSpec {
    ClosSpec::fat_tree(k, BitRate::from_gbps(400))
}

fn build(spec: ClosSpec) -> Topology {
    Topology::new(&TopologySpec::Clos(spec)).unwrap()
}

#[test]
fn fat_trees_are_loaded_evenly() {
    for k in [4, 8] {
        let topology = build(fat_tree(k));
        assert_eq!(topology.hosts(), k * k * k / 4);
        assert_equal_per_tier(&topology);
        // An uplink of a leaf carries k/2 senders' flows to all hosts outside the leaf, over k/2 uplinks.
        let outside = f64::from(topology.hosts() - k / 2);
        let leaf_up = loads(&topology, LoadBalancer::DestinationModulo)
            .into_iter()
            .find(|load| load.0 == LinkTier::Up(0))
            .map(|load| load.1);
        assert_eq!(leaf_up, Some(outside));
    }
}

#[test]
fn planes_are_loaded_evenly() {
    let mut spec = fat_tree(8);
    spec.planes = 2;
    spec.tiers[0].rate = BitRate::from_gbps(800);
    let topology = build(spec);
    assert_equal(&topology, &SWITCH_TIERS);
    // A NIC has 127 peers, which no two planes share evenly.
    for (tier, load) in loads(&topology, LoadBalancer::DestinationModulo) {
        assert!(!matches!(tier, LinkTier::NicUp | LinkTier::NicDown) || (63.0..=64.0).contains(&load));
    }
}

/// Half the uplinks, two parallel links each, and a top that is as wide as the tier below asks for.
#[test]
fn bundles_and_oversubscription_are_loaded_evenly() {
    let rate = BitRate::from_gbps(400);
    let mut tiers = vec![Tier::new(8, rate), Tier::new(8, rate), Tier::new(8, rate)];
    (tiers[0].oversubscription, tiers[1].bundle) = (2.0, 2);
    assert_equal_per_tier(&build(ClosSpec::new(256, HostSpec::new(1, 1, rate), tiers)));
}

/// Rails: equal per tier among all-to-all traffic of whole hosts, and rail-aligned traffic uses every uplink.
#[test]
fn rails_are_loaded_evenly() {
    let rate = BitRate::from_gbps(400);
    let mut host = HostSpec::new(4, 4, rate);
    host.rails = true;
    let topology = build(ClosSpec::new(16, host, vec![Tier::new(8, rate), Tier::new(8, rate)]));
    assert_equal(&topology, &NIC_TIERS);
    assert_equal(&topology, &SWITCH_TIERS[..2]);
    let mut used = std::collections::BTreeSet::new();
    let mut route = Route::new();
    for host in 0..8 {
        let (from, to) = (EndpointId(4 * host + 2), EndpointId(4 * (host + 8) + 2));
        topology.route(LoadBalancer::DestinationModulo, 0, from, to, NicId(0), 0, &mut route);
        assert_eq!(route.links.len(), 4);
        used.insert(route.links[1].0);
    }
    assert_eq!(used.len(), 8, "eight rail-aligned flows take eight uplinks of their leaf");
}

/// Spraying gives the same totals, as fluid.
#[test]
fn spraying_is_even() {
    let topology = build(fat_tree(4));
    let modulo = loads(&topology, LoadBalancer::DestinationModulo);
    for (sprayed, whole) in loads(&topology, LoadBalancer::Spray).into_iter().zip(modulo) {
        assert!((sprayed.1 - whole.1).abs() < 1e-9, "{sprayed:?} {whole:?}");
    }
}
