//! MRC over planes: what they are worth, what a cable of one costs, and how paths come back.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{Mrc, Nscc, Transport};
use windtunnel_fabric::packet::{
    Balancer, BufferSettings, Completion, Counters, Engines, FabricPart, Impairments, OpenRequest,
    PacketSettings, ParallelSettings, PartChange, PartState, PortReport, TrimSettings,
};
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{ClosSpec, HostSpec, SwitchId, Tier, Topology, TopologySpec};

const HOSTS: u32 = 8;
const UPLINKS: u32 = 8;
const BYTES: u64 = 16_000_000;
const US: u64 = 1_000_000;

/// Two leaves of 8 hosts in each of `planes`, with a cable of 20 m to each of 8 spines; NICs of 800 Gbps over all planes.
fn two_leaves(planes: u32) -> Arc<Topology> {
    let rate = BitRate::from_gbps(800);
    let near = |tier: Tier| Tier { length_mm: 20_000, ..tier };
    let part = BitRate::from_bps(rate.bps() / u64::from(planes));
    let tiers = vec![near(Tier::new(HOSTS, rate)), near(Tier::new(2, part))];
    let spec = ClosSpec { planes, ..ClosSpec::new(2 * HOSTS, HostSpec::new(1, 1, rate), tiers) };
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fabric"))
}

fn mrc(planes: u32) -> Mrc {
    Mrc { evs: planes * UPLINKS, ..Mrc::default() }
}

/// The cable of NIC 0 in plane 0 is down in these times, in µs; nobody else learns of it.
fn broken(topology: &Topology, times: &[(u64, u64)]) -> Impairments {
    let part = FabricPart::Cable(topology.nic_link(0, 0));
    let turn = |us: u64, state| PartChange {
        part,
        state,
        at: Time::from_ps(us * US),
        known: Time::from_ps(1 << 60),
    };
    let changes = times.iter().flat_map(|&(from, to)| [turn(from, PartState::Down), turn(to, PartState::Up)]);
    Impairments { changes: changes.collect(), ..Impairments::default() }
}

fn settings(impairments: Impairments) -> PacketSettings {
    PacketSettings {
        seed: 3,
        balancer: Balancer::Source { paths: 64 },
        trimming: Some(TrimSettings { queue: Some(Bytes::new(200_000)), rate: None }),
        buffers: vec![BufferSettings { size: Bytes::new(64_000_000), alpha: 1.0, reserve: Bytes::ZERO }],
        impairments,
        ..crate::common::even_packets()
    }
}

struct Seen {
    done: Vec<Completion>,
    totals: Counters,
    reports: Vec<PortReport>,
    digest: u128,
}

impl Seen {
    fn us(&self, message: usize) -> f64 {
        self.done[message].at.since(self.done[message].start).seconds() * 1e6
    }
}

/// Messages of `BYTES` from one NIC to another, each on a queue pair of its own, from an instant in µs on.
fn run<T: Transport>(
    topology: &Arc<Topology>,
    settings: PacketSettings,
    transport: T,
    messages: &[(u32, u32, u64)],
) -> Seen {
    let mut engines =
        Engines::new(topology.clone(), settings, transport, Span::MAX).expect("settings that work");
    engines.keep_digest(&EventDigest::new());
    for (token, &(from, to, at)) in (0..).zip(messages) {
        let request = OpenRequest { from, to, entropy: token as u32, keep: false, route: [&[], &[]] };
        let pair = engines.open(Time::ZERO, &request);
        engines.send(Time::from_ps(at * US), pair, Bytes::new(BYTES), token);
    }
    let mut done = Vec::new();
    while engines.next_time() != Time::NEVER {
        engines.run(Time::NEVER, u64::MAX, &mut done);
    }
    let totals = engines.totals();
    assert_eq!((done.len(), engines.packets_live()), (messages.len(), 0), "{totals:?}");
    done.sort_by_key(|completion: &Completion| completion.token);
    let digest = engines.digest().expect("one is kept").value();
    Seen { done, totals, reports: engines.port_reports(), digest }
}

/// Eight planes of an eighth of the rate are worth one of the whole, and each carries an eighth.
#[test]
fn a_queue_pair_fills_all_planes() {
    let on =
        |planes| run(&two_leaves(planes), settings(Impairments::default()), mrc(planes), &[(0, HOSTS, 0)]);
    let (one, eight) = (on(1), on(8));
    assert_eq!((eight.totals.retransmissions, eight.totals.probes), (0, 0));
    assert!(
        (eight.us(0) / one.us(0) - 1.0).abs() < 0.03,
        "{} us on eight, {} us on one",
        eight.us(0),
        one.us(0)
    );
    let topology = two_leaves(8);
    let sent: Vec<u64> = (0..8)
        .map(|plane| {
            let link = topology.nic_link(0, plane);
            eight.reports.iter().find(|report| report.link == link).map_or(0, |report| report.data_packets)
        })
        .collect();
    let (least, most) = (sent.iter().min().unwrap_or(&0), sent.iter().max().unwrap_or(&0));
    assert!(most - least <= 8, "{sent:?}");
    // Ultra Ethernet's queue pair has one plane.
    let uec = run(&topology, settings(Impairments::default()), Nscc::default(), &[(0, HOSTS, 0)]);
    assert!((uec.us(0) / eight.us(0) - 8.0).abs() < 0.4, "{} us on one of eight planes", uec.us(0));
}

/// Source routes by number: packets take each of the eight cables up equally often.
#[test]
fn numbers_in_a_row_take_each_cable_once() {
    let topology = two_leaves(1);
    let seen = run(&topology, settings(Impairments::default()), mrc(1), &[(0, HOSTS, 0)]);
    let up: Vec<u64> = (0..topology.ports(SwitchId(0)))
        .filter_map(|port| topology.out_link(SwitchId(0), port))
        .filter(|&link| topology.link(link).tier.name() == "leaf-up")
        .filter_map(|link| seen.reports.iter().find(|report| report.link == link))
        .map(|report| report.data_packets)
        .collect();
    assert_eq!(up.len(), UPLINKS as usize);
    let packets = BYTES.div_ceil(4_096);
    assert_eq!(up.iter().sum::<u64>(), packets);
    assert!(up.iter().all(|&one| one.abs_diff(packets / 8) <= packets / 80), "{up:?}");
}

/// A cable that is down for good leaves seven eighths, for the NIC that sends by it and for one that sends to it.
#[test]
fn a_broken_cable_costs_an_eighth() {
    let topology = two_leaves(8);
    let ways = [(0, HOSTS, 0), (HOSTS + 1, 0, 0)];
    let healthy = run(&topology, settings(Impairments::default()), mrc(8), &ways);
    let down = run(&topology, settings(broken(&topology, &[(30, 1 << 40)])), mrc(8), &ways);
    assert!(down.totals.link_down > 0, "packets were lost");
    for message in [0, 1] {
        let share = healthy.us(message) / down.us(message);
        assert!((0.83..0.92).contains(&share), "message {message} keeps {share} of its bandwidth");
    }
}

/// It flaps: less than an eighth is lost, nobody waits for a time-out, and later the plane carries its part again.
#[test]
fn a_flapping_cable_comes_back() {
    let topology = two_leaves(8);
    let ways = [(0, HOSTS, 0), (0, HOSTS, 400)];
    let healthy = run(&topology, settings(Impairments::default()), mrc(8), &ways);
    let flaps = run(&topology, settings(broken(&topology, &[(40, 70), (100, 130)])), mrc(8), &ways);
    assert!(flaps.totals.probes > 0);
    assert!(flaps.us(0) < healthy.us(0) * 8.0 / 7.0, "{} us, {} us without", flaps.us(0), healthy.us(0));
    assert!(
        (flaps.us(1) / healthy.us(1) - 1.0).abs() < 0.02,
        "{} us, {} us without",
        flaps.us(1),
        healthy.us(1)
    );
}

/// Trimmed packets are congestion: an incast trims, and no path is probed.
#[test]
fn an_incast_retires_no_path() {
    let topology = two_leaves(8);
    let ways: Vec<(u32, u32, u64)> = (1..8).map(|host| (HOSTS + host, 0, 0)).collect();
    let seen = run(&topology, settings(Impairments::default()), mrc(8), &ways);
    assert!(seen.totals.trims > 0, "{:?}", seen.totals);
    assert!(seen.totals.probes < seen.totals.trims / 100, "{:?}", seen.totals);
    let last = (0..ways.len()).map(|message| seen.us(message)).fold(0.0, f64::max);
    // Seven messages and their headers through one NIC.
    let ideal = 7.0 * BYTES as f64 * 4_160.0 / 4_096.0 * 8.0 / 800e3;
    assert!(last < 1.1 * ideal, "{last} us, {ideal} us at line rate");
}

#[test]
fn processes_change_nothing() {
    let topology = two_leaves(8);
    let ways = [(0, HOSTS, 0), (HOSTS + 1, 0, 0), (3, 9, 5)];
    let at = |threads, processes| {
        let parallel = ParallelSettings { threads, processes, threshold: None };
        let settings = PacketSettings { parallel, ..settings(broken(&topology, &[(40, 90)])) };
        let seen = run(&topology, settings, mrc(8), &ways);
        (seen.done, seen.digest)
    };
    let one = at(1, None);
    for (threads, processes) in [(1, Some(3)), (2, None)] {
        assert!(at(threads, processes) == one, "{threads} threads, {processes:?} processes");
    }
}
