//! Exchanges whose messages have one rate: one flow against all messages, each by itself.

use std::sync::Arc;

use crate::networks::{self, arrivals};
use windtunnel_fabric::flow::{FlowNetwork, FlowSettings};
use windtunnel_fabric::{Arrival, InStep, Network};
use windtunnel_kernel::{BitRate, Bytes, EndpointId, RandomStream, Span, Time};
use windtunnel_topology::{
    CableSpec, ClosSpec, Dimension, DirectSpec, HostSpec, LinkId, LoadBalancer, ScaleUpSpec, Tier, Topology,
    TopologySpec, TorusRouting, TorusSpec,
};

/// A drawn fabric with a drawn exchange on it.
struct Case {
    network: FlowNetwork,
    members: Vec<EndpointId>,
    entropy: u32,
    bytes: u64,
    by_nic: bool,
    gpus: u32,
}

fn case(seed: u64) -> Case {
    let mut random = RandomStream::new(seed, "in step", 0);
    let mut pick = |choices: &[u32]| choices[random.below(choices.len() as u64) as usize];
    let (gpus, hosts) = (pick(&[1, 2, 4]), pick(&[2, 4, 6, 8]));
    let nics = pick(&[gpus, gpus, 1]);
    let scale_up = ScaleUpSpec {
        size: None,
        rate: BitRate::from_gbps(pick(&[100, 3_200]).into()),
        latency: Span::from_ns(250),
    };
    let spec = HostSpec { gpus, nics, rails: false, scale_up };
    let leaf = pick(&[hosts * nics, (hosts * nics / 2).max(2)]);
    let mut tiers = vec![
        Tier::new(leaf, BitRate::from_gbps(400)),
        Tier::new(32, BitRate::from_gbps(pick(&[100, 400]).into())),
    ];
    for tier in &mut tiers {
        tier.length_mm = pick(&[0, 30_000]).into();
    }
    if leaf == hosts * nics {
        tiers.pop();
    }
    let topology =
        Arc::new(Topology::new(&TopologySpec::Clos(ClosSpec::new(hosts, spec, tiers))).expect("a fabric"));
    let balancers = [LoadBalancer::Ecmp, LoadBalancer::Spray, LoadBalancer::Ideal];
    let balancer = balancers[pick(&[0, 1, 2]) as usize];
    let settings =
        FlowSettings { balancer, seed, nic_latency: Span::from_ns(700), ..crate::common::jumbo_flows() };
    let slow: Vec<(LinkId, f64)> =
        if pick(&[0, 0, 1]) == 1 { vec![(topology.nic_link(0, 0), 0.5)] } else { Vec::new() };
    let all = topology.endpoints();
    let count = pick(&[all, all, (all / 2).max(2)]);
    let first = pick(&[0, all - count]);
    let members = (first..first + count).map(EndpointId).collect();
    let network = FlowNetwork::with_rates(topology, settings, &slow).expect("rates");
    Case {
        network,
        members,
        entropy: pick(&[1, 7, 99]),
        bytes: pick(&[1, 5_000, 1_000_000]).into(),
        by_nic: nics < gpus,
        gpus,
    }
}

/// When the last message of each member arrives if all are sent at once, and the mean of all in seconds.
fn by_message(seed: u64) -> (Vec<Time>, f64) {
    let Case { mut network, members, entropy, bytes, .. } = case(seed);
    let mut to = Vec::new();
    for &from in &members {
        for (index, &peer) in members.iter().enumerate().filter(|&(_, &peer)| peer != from) {
            let message = networks::message(to.len() as u32, from.0, peer.0, bytes);
            network.depart(Time::ZERO, windtunnel_fabric::Departure { entropy, line: 1, ..message });
            to.push(index);
        }
    }
    let mut last = vec![Time::ZERO; members.len()];
    for (at, arrival) in arrivals(&mut network) {
        let Arrival::Message { message } = arrival else { panic!("only messages were sent") };
        let last = &mut last[to[message as usize]];
        *last = (*last).max(at);
    }
    (last, network.delivered().times.mean_seconds().expect("messages"))
}

#[test]
fn one_flow_ends_with_its_messages() {
    let (mut merged, mut shared, mut refused) = (0, 0, 0);
    for seed in 0..400 {
        let Case { mut network, members, entropy, bytes, by_nic, gpus } = case(seed);
        let Some(InStep { group, spread }) = network.prepare_in_step(&members, entropy) else {
            refused += 1;
            continue;
        };
        let span = network.coupled_span(group, Bytes::new(bytes), 1);
        network.start_coupled(Time::ZERO, 0, group, Bytes::new(bytes), 1, 0);
        let [(end, Arrival::Coupled { run: 0 })] = arrivals(&mut network)[..] else { panic!("one end") };
        let close = |a: Time, b: Time| a.ps().abs_diff(b.ps()) <= 4 + a.ps() / 1_000_000_000;
        assert!(close(end, Time::from_ps(span.ps())), "seed {seed}: {end} for {span:?}");
        let (messages, mean) = by_message(seed);
        let (first, last) = (messages.iter().min().unwrap(), messages.iter().max().unwrap());
        assert!(close(end, *last), "seed {seed}: {end} for {last}");
        assert!(
            *last - *first <= spread + Span::from_ps(4 + last.ps() / 1_000_000_000),
            "seed {seed}: {first} to {last}, {spread:?}"
        );
        let count = members.len() as u64;
        assert_eq!(
            (network.delivered().messages, network.delivered().bytes),
            (count * (count - 1), count * (count - 1) * bytes)
        );
        // Inside a host a message has no completion time.
        let beside =
            |from: &EndpointId| members.iter().filter(|to| to.0 / gpus != from.0 / gpus).count() as u64;
        assert_eq!(network.delivered().times.count(), members.iter().map(beside).sum::<u64>());
        let counted = network.delivered().times.mean_seconds().expect("messages");
        assert!((counted - mean).abs() < 1e-6 * mean + 1e-11, "seed {seed}: {counted} for {mean}");
        merged += 1;
        shared += u64::from(by_nic);
    }
    assert!(merged > 100 && refused > 100 && shared > 10, "{merged} {refused} {shared}");
}

/// Three neighbours on a ring of five hosts, whose cables are as fast as their NICs: the middle one has one hop to each, the others two
/// to each other. Two messages cross every cable, so all have one rate, and the middle one has all a hop's latency sooner.
#[test]
fn members_in_the_middle_have_all_sooner() {
    let network = || {
        let rate = BitRate::from_gbps(400);
        let cable = CableSpec { length_mm: 1_000_000, ..CableSpec::new(rate) };
        let spec = TopologySpec::Torus(TorusSpec {
            direct: DirectSpec::new(rate),
            dimensions: vec![Dimension { size: 5, wrap: true, links: 1, cable }],
            routing: TorusRouting::DimensionOrder,
        });
        let settings = FlowSettings { balancer: LoadBalancer::Ecmp, ..crate::common::jumbo_flows() };
        FlowNetwork::with_rates(Arc::new(Topology::new(&spec).expect("a ring")), settings, &[])
            .expect("rates")
    };
    let members: Vec<EndpointId> = (0..3).map(EndpointId).collect();
    let InStep { spread, .. } = network().prepare_in_step(&members, 1).expect("one rate");
    let mut by_message = network();
    for (id, (from, to)) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)].into_iter().enumerate() {
        by_message.depart(Time::ZERO, networks::message(id as u32, from, to, 1_000_000));
    }
    let mut ends = arrivals(&mut by_message);
    ends.sort_unstable_by_key(|&(at, _)| at);
    let hop = ends[5].0 - ends[3].0;
    // 1 km of fibre takes 5 us; the two messages of two hops are the last.
    assert!(hop > Span::from_us(4) && ends[4].0 == ends[5].0, "{ends:?}");
    assert!(spread.ps().abs_diff(hop.ps()) <= 4, "{spread:?} for {hop:?}");
}
