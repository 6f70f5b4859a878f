//! Weights of equal-cost ports are in proportion to the surviving shortest legal paths behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::{self, Hop, Legality, break_some, check_faults, targets};
use windtunnel_kernel::{BitRate, RandomStream};
use windtunnel_topology::{
    BuildingSpec, CableSpec, ClosSpec, CrossSpec, Forwarder, HostSpec, Itinerary, LinkId, Peer, Policy,
    PortSet, Reach, RegionsSpec, SwitchId, Tier, Topology, TopologySpec,
};

const RATE: BitRate = BitRate::from_gbps(100);

fn up_down(topology: &Topology, state: u32, hop: Hop) -> Option<u32> {
    if topology.tier(hop.next) > topology.tier(hop.at) { (state == 0).then_some(0) } else { Some(1) }
}

/// Between buildings of which every two have cables.
fn up_cross_down(topology: &Topology, state: u32, hop: Hop) -> Option<u32> {
    let building = |switch| topology.coordinates(switch)[0];
    if building(hop.at) != building(hop.next) {
        return (state == 0 && building(hop.next) == building(hop.to)).then_some(1);
    }
    up_down(topology, state, hop)
}

type Place = (SwitchId, u32);

/// Legal paths over living cables from a place with the given number of hops.
fn count(
    topology: &Topology,
    legal: Legality,
    dead: &BTreeSet<LinkId>,
    (at, state): Place,
    to: SwitchId,
    hops: u32,
    known: &mut BTreeMap<(Place, u32), u64>,
) -> u64 {
    if hops == 0 {
        return u64::from(at == to);
    }
    if let Some(&paths) = known.get(&((at, state), hops)) {
        return paths;
    }
    let mut paths = 0;
    for port in 0..topology.ports(at) {
        let Some(Peer::Switch { switch: next, .. }) = topology.peer(at, port) else { continue };
        if dead.contains(&topology.out_link(at, port).expect("cabled")) {
            continue;
        }
        if let Some(state) = legal(topology, state, Hop { at, next, to }) {
            paths += count(topology, legal, dead, (next, state), to, hops - 1, known);
        }
    }
    known.insert(((at, state), hops), paths);
    paths
}

fn check_weights(spec: &TopologySpec, legal: Legality, seed: u64, percent: u64) {
    let topology = Arc::new(Topology::new(spec).expect("a valid spec"));
    let policy = Policy { weighted: true, ..Policy::default() };
    let mut forwarder = Forwarder::new(Arc::clone(&topology), policy);
    let dead = break_some(&mut forwarder, &mut RandomStream::new(seed, "faults", 0), percent);
    forwarder.converge();
    let (mut ports, mut checked) = (PortSet::new(), 0);
    for (&to, target) in &targets(&topology) {
        let mut known = BTreeMap::new();
        for at in (0..topology.switches()).map(SwitchId).filter(|&at| at != to) {
            let (reach, _) = forwarder.equal_cost(at, target, Itinerary::DIRECT, &mut ports);
            if reach != Reach::Legal || forwarder.weights().is_empty() {
                continue;
            }
            let (_, hops) = support::search(&topology, legal, &dead, at, to).expect("a legal path");
            let sums = forwarder.weights();
            let weight = |index: usize| sums[index] - if index == 0 { 0 } else { sums[index - 1] };
            let behind: Vec<u64> = ports
                .iter()
                .map(|port| {
                    let Some(Peer::Switch { switch: next, .. }) = topology.peer(at, port) else {
                        panic!("a switch")
                    };
                    let state = legal(&topology, 0, Hop { at, next, to }).expect("a legal hop");
                    count(&topology, legal, &dead, (next, state), to, hops - 1, &mut known)
                })
                .collect();
            for (index, &paths) in behind.iter().enumerate() {
                assert_eq!(weight(index) * behind[0], weight(0) * paths, "{behind:?} {sums:?}");
            }
            checked += 1;
        }
    }
    assert!(checked > 0, "no set was weighted");
}

fn tiers(ports: &[u32], bundle: u32) -> Vec<Tier> {
    let mut tiers: Vec<Tier> = ports.iter().map(|&ports| Tier::new(ports, RATE)).collect();
    tiers[1..].iter_mut().for_each(|tier| tier.bundle = bundle);
    tiers
}

#[test]
fn of_clos_networks() {
    for (hosts, ports, bundle) in
        [(16, &[2, 2, 4][..], 1), (16, &[4, 4, 8], 2), (16, &[2, 2, 2, 2], 1), (8, &[4, 4], 2)]
    {
        let spec = ClosSpec::new(hosts, HostSpec::new(1, 1, RATE), tiers(ports, bundle));
        for seed in 0..3 {
            check_weights(&TopologySpec::Clos(spec.clone()), &up_down, seed, 10 + 10 * seed);
        }
    }
}

#[test]
fn of_regions() {
    let building = |name: &str, ports: &[u32], bundle| BuildingSpec {
        name: name.to_owned(),
        region: 0,
        hosts: 8,
        tiers: tiers(ports, bundle),
        scale_up: None,
    };
    for cables in [3, 4, 8, 11] {
        let cross = [[0, 1], [2, 1], [0, 2]];
        let cross = cross.map(|between| CrossSpec { between, count: cables, cable: CableSpec::new(RATE) });
        let spec = TopologySpec::Regions(RegionsSpec {
            host: HostSpec::new(1, 1, RATE),
            buildings: vec![building("a", &[2, 2, 2], 1), building("b", &[4, 4], 2), building("c", &[8], 1)],
            cross: cross.to_vec(),
            propagation_ps_per_m: 5_000,
        });
        for seed in 0..3 {
            check_weights(&spec, &up_cross_down, seed, 5 + 10 * seed);
        }
    }
}

/// Sets of more ports than a word has bits, and bundles that cross words.
#[test]
fn of_wide_switches() {
    for bundle in [1, 2] {
        let mut tiers = tiers(&[35, 4], bundle);
        tiers[0].oversubscription = 0.25;
        let spec = TopologySpec::Clos(ClosSpec::new(70, HostSpec::new(1, 1, RATE), tiers));
        check_weights(&spec, &up_down, 1, 20);
        check_faults(&Arc::new(Topology::new(&spec).expect("valid")), &up_down, 2, 20);
    }
}
