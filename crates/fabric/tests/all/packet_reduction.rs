//! Reduction in the network against closed forms: an all-reduce of an idle tree to the picosecond, its traffic on every link,
//! windows and rates of switches, losses; flow fidelity against packet fidelity; threads and partitions.

use std::sync::Arc;

use crate::networks::{arrivals, message};
use windtunnel_fabric::flow::{FlowNetwork, FlowSettings};
use windtunnel_fabric::packet::transport::{Dctcp, Ndp, Transport};
use windtunnel_fabric::packet::{
    BufferSettings, Counters, FabricPart, Impairments, PacketNetwork, PacketSettings, ParallelSettings,
    PartChange, PartState, PfcSettings, QueueSettings, TrimSettings,
};
use windtunnel_fabric::reduction::{ReductionSettings, Tree};
use windtunnel_fabric::{Arrival, CoupledId, Departure, Network};
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::{BitRate, Bytes, EndpointId, Span, Time};
use windtunnel_topology::{ClosSpec, LinkId, Node, Topology, TopologySpec};

const PAYLOAD: u64 = 4_096;
/// Picoseconds of a full packet of 4,160 B at 400 Gbps.
const FULL: u64 = 4_160 * 20;
const NIC: Span = Span::from_ps(700_000);

/// 128 hosts under three tiers: cables of 100 ns and 300 ns of pipeline in the racks, 300 ns of cable above.
fn topology(loss: f64) -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(8, BitRate::from_gbps(400));
    for (number, tier) in spec.tiers.iter_mut().enumerate() {
        tier.switch_latency = Span::from_ns(300);
        tier.length_mm = if number == 0 { 20_000 } else { 60_000 };
        tier.loss = loss;
    }
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

fn members(step: usize) -> Vec<EndpointId> {
    (0..128).step_by(step).map(EndpointId).collect()
}

fn settings(reduction: ReductionSettings) -> PacketSettings {
    PacketSettings { reduction, nic_latency: NIC, ..crate::common::even_packets() }
}

fn network<T: Transport>(
    topology: &Arc<Topology>,
    settings: PacketSettings,
    transport: T,
) -> PacketNetwork<T> {
    PacketNetwork::new(topology.clone(), settings, transport).expect("settings that work")
}

fn all_reduce(network: &mut impl Network, members: &[EndpointId], bytes: u64) -> (CoupledId, Time) {
    let group = network.prepare_reduction(members, 5);
    network.start_coupled(Time::ZERO, 0, group, Bytes::new(bytes), 1, 0);
    let arrived = arrivals(network);
    let [(at, Arrival::Coupled { run: 0 })] = arrived[..] else { panic!("one end, found {arrived:?}") };
    (group, at)
}

/// A segment's way up and down without serialisations, and how many links it is.
fn way(topology: &Topology, members: &[EndpointId], sums: &ReductionSettings) -> (u64, u64) {
    let tree = Tree::new(topology, None, 0, members, 5).expect("a tree");
    let (up, switches) = tree.climb(topology);
    let way = up + tree.descent(topology) + sums.latency * u64::from(switches);
    (way.ps(), 2 * u64::from(switches))
}

/// K segments follow one another at line rate, and the last goes over all links by itself.
#[test]
fn an_idle_tree_takes_one_vector_and_one_way_up_and_down() {
    let topology = topology(0.0);
    for (step, last) in [(1, PAYLOAD), (4, PAYLOAD), (16, 1_000), (1, 1)] {
        let members = members(step);
        for latency in [Span::ZERO, Span::from_ns(250)] {
            let sums = ReductionSettings { slots: 2_048, operations: 1, latency, rate: None };
            let (way, links) = way(&topology, &members, &sums);
            let packets = 300;
            let mut network = network(&topology, settings(sums), Dctcp::default());
            let (_, at) = all_reduce(&mut network, &members, (packets - 1) * PAYLOAD + last);
            let short = (last + 64) * 20;
            let expected = (packets - 1 + links - 1) * FULL + short + way + NIC.ps();
            assert_eq!(at, Time::from_ps(expected), "{} members, last segment of {last} B", members.len());
        }
    }
}

/// Each link of the tree carries the vector once each way: what a ring's carry 2 (n - 1) / n times.
#[test]
fn every_link_of_the_tree_carries_the_vector_once() {
    let (topology, members) = (topology(0.0), members(1));
    let mut network = network(&topology, settings(ReductionSettings::default()), Dctcp::default());
    let packets = 100;
    all_reduce(&mut network, &members, packets * PAYLOAD);
    let tree = Tree::new(&topology, None, 0, &members, 5).expect("a tree");
    let mut links = tree.links(&topology);
    links.sort_unstable();
    let reports = network.engine().port_reports();
    assert_eq!(reports.iter().map(|report| report.link).collect::<Vec<_>>(), links);
    assert!(reports.iter().all(|report| report.bytes == packets * 4_160 && report.data_packets == packets));
    assert_eq!(network.delivered().bytes, 128 * packets * PAYLOAD);
    let Counters { drops, retransmissions, timeouts, .. } = network.engine().totals();
    assert_eq!((drops, retransmissions, timeouts), (0, 0, 0));
}

/// With W segments in a round trip R longer than they take to send, W go out in each; with sums at a rate of their own, they
/// follow one another at that.
#[test]
fn slots_and_the_rate_of_sums_hold_a_reduction_back() {
    let (topology, members) = (topology(0.0), members(1));
    let packets = 1_000;
    let limited = ReductionSettings { slots: 64, operations: 4, ..ReductionSettings::default() };
    let (way_up_down, links) = way(&topology, &members, &limited);
    let (trip, window) = (way_up_down + links * FULL, u64::from(limited.window()));
    assert!(window * FULL < trip);
    let mut by_slots = network(&topology, settings(limited), Dctcp::default());
    let (_, at) = all_reduce(&mut by_slots, &members, packets * PAYLOAD);
    let (full, rest) = ((packets - 1) / window, (packets - 1) % window);
    assert_eq!(at, Time::from_ps((full + 1) * trip + rest * FULL + NIC.ps()));

    let rate = BitRate::from_gbps(100);
    let slow = ReductionSettings { slots: 1_024, operations: 1, rate: Some(rate), ..limited };
    let each = rate.serialise(Bytes::new(PAYLOAD)).ps();
    let mut by_rate = network(&topology, settings(slow), Dctcp::default());
    let (_, at) = all_reduce(&mut by_rate, &members, packets * PAYLOAD);
    assert_eq!(at, Time::from_ps(trip + links / 2 * each + (packets - 1) * each + NIC.ps()));

    // Flow fidelity is held back alike.
    for (sums, at) in [(limited, (full + 1) * trip), (slow, packets * each)] {
        let flow = flow_time(&topology, sums, &members, packets * PAYLOAD);
        assert!((flow / at as f64 - 1.0).abs() < 0.03, "flow takes {flow} ps, packets {at}");
    }
}

fn flow_time(
    topology: &Arc<Topology>,
    reduction: ReductionSettings,
    members: &[EndpointId],
    bytes: u64,
) -> f64 {
    let (mtu, header) = (Bytes::new(4_160), Bytes::new(64));
    let settings = FlowSettings { reduction, mtu, header, nic_latency: NIC, ..crate::common::jumbo_flows() };
    let mut network = FlowNetwork::new(topology.clone(), settings).expect("settings that work");
    let (group, at) = all_reduce(&mut network, members, bytes);
    assert_eq!(Time::ZERO + network.coupled_span(group, Bytes::new(bytes), 1), at);
    at.ps() as f64
}

#[test]
fn flow_and_packet_fidelity_agree_on_an_idle_tree() {
    let topology = topology(0.0);
    for (step, bytes) in [(1, 2_000_000), (8, 500_000), (2, 16 << 20)] {
        let members = members(step);
        let sums = ReductionSettings::default();
        let flow = flow_time(&topology, sums, &members, bytes);
        let mut network = network(&topology, settings(sums), Dctcp::default());
        let packet = all_reduce(&mut network, &members, bytes).1.ps() as f64;
        assert!((flow / packet - 1.0).abs() < 0.03, "flow {flow}, packet {packet} of {bytes} B");
    }
}

/// Several groups, messages between the same hosts, losses: everything ends, the same on any threads and partition.
#[test]
fn lost_packets_are_sent_again_and_threads_cannot_be_seen() {
    let topology = topology(0.002);
    let run = |parallel: ParallelSettings| {
        let sums = ReductionSettings { slots: 128, operations: 2, ..ReductionSettings::default() };
        let buffer = BufferSettings { size: Bytes::new(400_000), alpha: 1.0, reserve: Bytes::ZERO };
        let settings = PacketSettings { parallel, buffers: vec![buffer], ..settings(sums) };
        let mut network = network(&topology, settings, Dctcp::default());
        network.keep_digest(&EventDigest::new());
        let groups = [members(1), members(2), members(16)];
        for (run, members) in (0..).zip(&groups) {
            let group = network.prepare_reduction(members, run);
            network.start_coupled(
                Time::from_ps(u64::from(run) * 1_000_000),
                run,
                group,
                Bytes::new(900_000),
                1,
                0,
            );
        }
        for from in 0..32 {
            let departure = message(100 + from, from, (from * 5 + 40) % 128, 300_000);
            let departure = Departure { entropy: from, ..departure };
            network.depart(Time::from_ps(2_000_000), departure);
        }
        let arrived = arrivals(&mut network);
        assert_eq!(arrived.len(), groups.len() + 32);
        assert_eq!(network.engine().packets_live(), 0);
        let totals = network.engine().totals();
        assert!(totals.corrupted > 0 && totals.retransmissions > 0);
        (arrived, totals, network.engine().digest().expect("one is kept").value())
    };
    let one = run(ParallelSettings::default());
    for (threads, processes) in [(1, Some(3)), (2, None), (2, Some(5))] {
        let many = run(ParallelSettings { threads, processes, threshold: None });
        assert_eq!(one, many, "{threads} threads, {processes:?} processes");
    }
}

/// Runs beyond those that a switch takes at once wait for one to end.
#[test]
fn reductions_take_turns_at_a_switch() {
    let (topology, members) = (topology(0.0), members(1));
    let sums = ReductionSettings { slots: 256, operations: 1, ..ReductionSettings::default() };
    let mut alone = network(&topology, settings(sums), Dctcp::default());
    let (_, once) = all_reduce(&mut alone, &members, 1_000_000);
    let mut both = network(&topology, settings(sums), Dctcp::default());
    for run in 0..2 {
        let group = both.prepare_reduction(&members, 5);
        both.start_coupled(Time::ZERO, run, group, Bytes::new(1_000_000), 1, 0);
    }
    let arrived = arrivals(&mut both);
    let ends: Vec<u64> = arrived.iter().map(|&(at, _)| at.ps()).collect();
    assert_eq!(ends, [once.ps(), 2 * once.ps()], "one after the other");
}

/// A reduction and the messages of a queue pair share a NIC's link half and half; pauses and trimming do them no harm.
#[test]
fn a_reduction_shares_links_with_messages() {
    let (topology, members) = (topology(0.0), members(4));
    let bytes = 4_000_000;
    let mut shared = network(&topology, settings(ReductionSettings::default()), Dctcp::default());
    shared.depart(Time::ZERO, message(7, 0, 1, bytes));
    let group = shared.prepare_reduction(&members, 5);
    shared.start_coupled(Time::ZERO, 0, group, Bytes::new(bytes), 1, 0);
    let at = arrivals(&mut shared).iter().map(|&(at, _)| at.ps()).max().expect("two ends") as f64;
    let expected = (2 * bytes.div_ceil(PAYLOAD) * FULL) as f64;
    assert!((at / expected - 1.0).abs() < 0.03, "{at} ps, expected about {expected}");

    let queue = QueueSettings { lossless: true, ..QueueSettings::default() };
    let lossless = PacketSettings {
        queues: vec![queue],
        pfc: Some(PfcSettings::of(Bytes::new(4_160))),
        buffers: vec![BufferSettings { size: Bytes::new(4_000_000), alpha: 1.0, reserve: Bytes::ZERO }],
        ..settings(ReductionSettings::default())
    };
    let trimming = PacketSettings {
        trimming: Some(TrimSettings { queue: Some(Bytes::new(30_000)), rate: None }),
        ..settings(ReductionSettings::default())
    };
    let incast = |network: &mut dyn Network| {
        let group = network.prepare_reduction(&members, 5);
        for from in 1..24 {
            network.depart(Time::ZERO, message(from, from * 5, 0, 500_000));
        }
        network.start_coupled(Time::ZERO, 0, group, Bytes::new(1_000_000), 1, 0);
    };
    let mut paused = network(&topology, lossless, Dctcp::default());
    incast(&mut paused);
    assert_eq!(arrivals(&mut paused).len(), 24);
    let totals = paused.engine().totals();
    assert!(totals.pauses > 0 && totals.drops == 0, "{totals:?}");
    let mut trimmed = network(&topology, trimming, Ndp::default());
    incast(&mut trimmed);
    assert_eq!(arrivals(&mut trimmed).len(), 24);
}

/// A cable of the tree that goes down in mid-run holds the reduction up until it is back; for good, it ends the run with a NIC
/// named that waits in vain.
#[test]
fn a_tree_that_loses_a_cable_waits_for_it() {
    let (topology, members) = (topology(0.0), members(4));
    let tree = Tree::new(&topology, None, 0, &members, 5).expect("a tree");
    let between = |link: &LinkId| {
        let (from, to) = topology.link_ends(*link);
        matches!((from, to), (Node::Switch(_), Node::Switch(_)))
    };
    let cable = tree.links(&topology).into_iter().find(between).expect("a tree of more than one switch");
    let run = |steps: &[(u64, PartState)]| {
        let changes = steps.iter().map(|&(us, state)| {
            let at = Time::from_ps(us * 1_000_000);
            PartChange { at, known: at, part: FabricPart::Cable(cable), state }
        });
        let impairments = Impairments { changes: changes.collect(), ..Impairments::default() };
        let settings = PacketSettings { impairments, ..settings(ReductionSettings::default()) };
        let mut network = network(&topology, settings, Dctcp::default());
        let group = network.prepare_reduction(&members, 5);
        network.start_coupled(Time::ZERO, 0, group, Bytes::new(4_000_000), 1, 0);
        let ends: Vec<Time> = arrivals(&mut network).into_iter().map(|(at, _)| at).collect();
        (ends, network.engine().totals().link_down, network.engine().silent_pair())
    };
    let (whole, none, _) = run(&[]);
    assert_eq!((whole.len(), none), (1, 0));
    let (late, lost, silent) = run(&[(10, PartState::Down), (60, PartState::Up)]);
    assert!(
        late.len() == 1 && late[0] > whole[0] + Span::from_us(50) && lost > 0,
        "{late:?} {whole:?} {lost}"
    );
    assert_eq!(silent, None);
    let (never, lost, silent) = run(&[(10, PartState::Down)]);
    assert!(never.is_empty() && lost > 0);
    let [waits, _] = silent.expect("a NIC that waits in vain");
    assert!(members.iter().any(|member| member.0 == waits), "{waits}");
}
