//! Legs of several planes, probes on each and what is kept of pairs of NICs know nothing of processes and threads, whatever queues,
//! pauses, paces, clocks and links do.

use std::sync::Arc;

use path_health::{HealthFlow, PathHealth, Paths};
use windtunnel_fabric::packet::transport::{
    Absent, Ack, Answer, Arrived, Endpoint, Lane, News, PathChoice, PathFacts, Present, Probe, Probed,
    Recovery, Replied, Reply, Uses,
};
use windtunnel_fabric::packet::{
    Balancer, BufferSettings, Engines, FabricPart, GilbertElliott, Impairments, OpenRequest, PacketSettings,
    ParallelSettings, PartChange, PartState, PfcSettings, QueueSettings, Share, Xoff, Xon,
};
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{ClosSpec, HostSpec, SwitchId, Tier, Topology, TopologySpec};

const HOSTS: u32 = 4;
const PLANES: u32 = 4;

/// As `path_health`, and every packet is 400 ns or more after the one before on its plane, and every tenth acknowledgement has
/// it probe all planes, in both lanes in turn.
#[derive(Clone, Debug)]
struct Busy(PathHealth);

#[derive(Clone, Copy, Debug)]
struct All;

impl Uses for All {
    type Credit = Absent;
    type Telemetry = Absent;
    type Probes = Present;
    type Planes = Present;
    type Memory = Paths;
}

#[derive(Clone, Debug)]
struct BusyFlow {
    health: HealthFlow,
    heard: u32,
    to_probe: u32,
    replies: u32,
}

impl Endpoint for Busy {
    type Flow = BusyFlow;
    type Peer = u32;
    type Uses = All;

    const NAME: &'static str = "busy";

    fn recovery(&self) -> Recovery {
        self.0.recovery()
    }

    fn open(&self, path: &PathFacts) -> BusyFlow {
        BusyFlow { health: self.0.open(path), heard: 0, to_probe: 0, replies: 0 }
    }

    fn window(&self, flow: &BusyFlow) -> u64 {
        self.0.window(&flow.health)
    }

    fn gap(&self, _: &BusyFlow, _: u16) -> Span {
        Span::from_ns(400)
    }

    fn timeout(&self, flow: &BusyFlow) -> Span {
        self.0.timeout(&flow.health)
    }

    fn on_ack(&self, flow: &mut BusyFlow, _: &Ack) {
        flow.heard += 1;
        if flow.heard.is_multiple_of(10) {
            flow.to_probe = PLANES;
        }
    }

    fn probe(&self, flow: &mut BusyFlow, _: Time) -> Option<Probe> {
        flow.to_probe = flow.to_probe.checked_sub(1)?;
        let lane = if flow.heard.is_multiple_of(20) { Lane::Data } else { Lane::Control };
        Some(Probe { kind: 7, value: flow.heard, path: 3, plane: flow.to_probe, bytes: 200, lane })
    }

    fn on_probe(&self, seen: &mut u32, probe: &Probed) -> Option<Reply> {
        *seen += 1;
        Some(Reply { kind: probe.kind, value: *seen, bytes: 90 })
    }

    fn reply(&self, seen: &mut u32, data: &Arrived) -> Option<Reply> {
        data.sequence.is_multiple_of(50).then_some(Reply { kind: 9, value: *seen, bytes: 0 })
    }

    fn on_reply(&self, flow: &mut BusyFlow, reply: &Replied) {
        assert!(reply.plane < PLANES && [7, 9].contains(&reply.kind));
        flow.replies += 1;
    }

    fn on_data(&self, _: &mut u32, data: &Arrived) -> Answer {
        self.0.on_data(&mut (), data)
    }

    fn remember(&self, paths: &mut Paths, flow: &mut BusyFlow, news: &News<'_>) {
        self.0.remember(paths, &mut flow.health, news);
    }

    fn path_by(&self, paths: &mut Paths, flow: &mut BusyFlow, choice: &PathChoice) -> Option<u16> {
        self.0.path_by(paths, &mut flow.health, choice)
    }

    fn takes_plane(&self, paths: &mut Paths, flow: &mut BusyFlow, plane: u32, now: Time) -> bool {
        self.0.takes_plane(paths, &mut flow.health, plane, now)
    }
}

/// Two leaves of 4 hosts in each plane, with a cable of 100 m to each of 4 spines.
fn two_leaves() -> Arc<Topology> {
    let rate = BitRate::from_gbps(400);
    let far = |tier: Tier| Tier { length_mm: 100_000, ..tier };
    let tiers = vec![far(Tier::new(HOSTS, rate)), far(Tier::new(2, rate))];
    let spec = ClosSpec { planes: PLANES, ..ClosSpec::new(2 * HOSTS, HostSpec::new(1, 1, rate), tiers) };
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fabric"))
}

/// Every host to two others, and three to one; two queue pairs between each, of two traffic classes.
fn run<E: Endpoint>(
    settings: &PacketSettings,
    endpoint: &E,
    parallel: ParallelSettings,
) -> impl PartialEq + use<E> {
    let settings = PacketSettings { parallel, ..settings.clone() };
    let mut engines =
        Engines::new(two_leaves(), settings, endpoint.clone(), Span::MAX).expect("settings that work");
    engines.keep_digest(&EventDigest::new());
    let mut sent = 0_u64;
    for host in 0..2 * HOSTS {
        let others = [(host * 3 + 1 + HOSTS) % (2 * HOSTS), 0];
        for (entropy, to) in (0..).zip(others).filter(|&(_, to)| to != host) {
            for class in [0, 1] {
                let entropy = 2 * entropy + u32::from(class);
                let request = OpenRequest { from: host, to, entropy, keep: false, route: [&[], &[]] };
                let pair = engines.open(Time::ZERO, &request);
                engines.classify(pair, class);
                engines.send(Time::from_ps(u64::from(host) * 300_000), pair, Bytes::new(150_000), sent);
                sent += 1;
            }
        }
    }
    let (mut done, mut samples) = (Vec::new(), Vec::new());
    while engines.next_time() != Time::NEVER {
        engines.run(Time::NEVER, u64::MAX, &mut done);
        engines.take_samples(&mut samples);
    }
    assert_eq!((done.len(), engines.packets_live()), (sent as usize, 0), "{:?}", engines.totals());
    engines.catch_up(Time::from_ps(1_000_000_000));
    let digest = engines.digest().expect("one is kept").value();
    (done, engines.totals(), samples, engines.port_reports(), digest)
}

fn check<E: Endpoint>(what: &str, settings: &PacketSettings, endpoint: &E) {
    let one = run(settings, endpoint, ParallelSettings::default());
    for (threads, processes) in [(1, Some(2)), (1, Some(5)), (2, None)] {
        let other = run(settings, endpoint, ParallelSettings { threads, processes, threshold: None });
        assert!(other == one, "{what}: {threads} threads, {processes:?} processes");
    }
}

#[test]
fn processes_change_nothing() {
    let topology = two_leaves();
    let up = topology.out_link(SwitchId(0), HOSTS + 2).expect("a cable up");
    let loss = GilbertElliott::independent(Share::Packets(0.3));
    let change = |ns: u64, state| PartChange {
        at: Time::from_ps(ns * 1_000),
        known: Time::from_ps((ns + 4_000) * 1_000),
        part: FabricPart::Cable(topology.nic_link(1, 1)),
        state,
    };
    let plain = PacketSettings {
        seed: 7,
        balancer: Balancer::Spray { paths: 16 },
        sample_every: Some(Span::from_ns(900)),
        mtu: Bytes::new(4_160),
        header: Bytes::new(64),
        ..PacketSettings::default()
    };
    let with = |impairments| PacketSettings { impairments, ..plain.clone() };
    let pauses = PacketSettings {
        queues: vec![
            QueueSettings { lossless: true, ..QueueSettings::default() },
            QueueSettings { priority: 1, ..QueueSettings::default() },
        ],
        classes: vec![0, 1],
        pfc: Some(PfcSettings {
            xoff: Xoff::Dynamic(0.05),
            xon: Xon::Below(Bytes::new(4_160)),
            ..PfcSettings::default()
        }),
        buffers: vec![BufferSettings { size: Bytes::new(900_000), alpha: 1.0, reserve: Bytes::ZERO }],
        ..plain.clone()
    };
    for (what, settings) in [
        ("idle", plain.clone()),
        ("losses", with(Impairments { losses: vec![(up, loss)], ..Impairments::default() })),
        (
            "a cable down and up",
            with(Impairments {
                changes: vec![change(6_000, PartState::Down), change(40_000, PartState::Up)],
                ..Impairments::default()
            }),
        ),
        ("drift", with(Impairments { clocks: vec![(2, 90_000), (5, -70_000)], ..Impairments::default() })),
        ("pauses", pauses),
    ] {
        check(what, &settings, &PathHealth::default());
        check(what, &settings, &Busy(PathHealth::default()));
    }
}
