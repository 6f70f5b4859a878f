//! Threads and partitions cannot be seen: the same completions, counters, port reports, samples and digest of events, for
//! every transport, with marks, drops, losses, spraying, several queues, pauses, failed cables.

use std::sync::Arc;

use proptest::prelude::*;
use windtunnel_fabric::packet::transport::{
    Around, BalancerPacket, BalancerPort, BalancerSwitch, Balancing, Bbr, Cubic, Dcqcn, Dctcp, Eqds, Hpcc,
    MpRdma, Ndp, NewReno, NoTransport, Nscc, Rccc, Recovery, StagePacket, StagePort, StageVerdict, Staging,
    Swift, SwitchBalancer, SwitchStage, Transport,
};
use windtunnel_fabric::packet::{
    Balancer, BufferSettings, Completion, Counters, Discipline, DropProfile, EcnSettings, Engines,
    FabricPart, Forwarding, GilbertElliott, Impairments, MarkAt, OpenRequest, PacketSettings,
    ParallelSettings, PartChange, PartState, PfcSettings, PortReport, QueueSample, QueueSettings, Shaper,
    Share, TrimSettings, Xoff, Xon,
};
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::{BitRate, Bytes, RandomStream, Span, Time};
use windtunnel_topology::{
    CableSpec, ClosSpec, Dimension, DirectSpec, DragonflyRouting, DragonflySpec, Forwarder, LinkId, Peer,
    Policy, SwitchId, Topology, TopologySpec, TorusRouting, TorusSpec,
};

const RATE: BitRate = BitRate::from_gbps(400);

/// Cables of 100 ns and 300 ns of pipeline in the racks, three times as long above.
fn fat_tree(k: u32, planes: u32, loss: f64) -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(k, RATE);
    for (number, tier) in spec.tiers.iter_mut().enumerate() {
        tier.switch_latency = Span::from_ns(300);
        tier.length_mm = if number == 0 { 20_000 } else { 60_000 };
        tier.loss = loss;
    }
    for tier in &mut spec.tiers[1..] {
        tier.rate = BitRate::from_bps(tier.rate.bps() / u64::from(planes));
    }
    spec.planes = planes;
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

/// Packets choose the shorter queue as they enter.
fn dragonfly() -> Arc<Topology> {
    let cable = |length_mm| CableSpec { length_mm, ..CableSpec::new(RATE) };
    let spec = DragonflySpec {
        direct: DirectSpec {
            hosts_per_router: 2,
            nic: cable(10_000),
            router_latency: Span::from_ns(300),
            ..DirectSpec::new(RATE)
        },
        groups: 5,
        routers: 4,
        global_links: 1,
        local: cable(5_000),
        global: cable(50_000),
        routing: DragonflyRouting::UgalL,
    };
    Arc::new(Topology::new(&TopologySpec::Dragonfly(spec)).expect("a dragonfly"))
}

/// (start, sender, receiver, bytes, whether it goes by the pair's own queue pair)
type Sent = (u64, u32, u32, u64, bool);

/// What a run lets be seen.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    done: Vec<Completion>,
    totals: Counters,
    reports: Vec<PortReport>,
    samples: Vec<QueueSample>,
    /// Messages that never arrive, and links whose pauses wait for one another.
    unfinished: Vec<u64>,
    cycle: Vec<LinkId>,
    paused: Span,
    hops: (u64, u64),
    digest: u128,
}

struct Scenario<T: Transport> {
    topology: Arc<Topology>,
    settings: PacketSettings,
    transport: T,
    sent: Vec<Sent>,
    failed: Vec<LinkId>,
    /// From a completion to what follows: with some, each message is answered by half of its bytes.
    reaction: Option<Span>,
    /// Looks at counters in the middle.
    look_at: Option<Time>,
}

impl<T: Transport> Scenario<T> {
    fn engines(&self, parallel: ParallelSettings) -> Engines<T> {
        let settings = PacketSettings { parallel, ..self.settings.clone() };
        let reaction = self.reaction.unwrap_or(Span::MAX);
        let engines = Engines::new(self.topology.clone(), settings, self.transport.clone(), reaction)
            .expect("settings that work")
            .keep_together();
        if self.failed.is_empty() {
            return engines;
        }
        let mut forwarder = Forwarder::new(self.topology.clone(), Policy::default());
        for &link in &self.failed {
            forwarder.fail_cable(link);
        }
        forwarder.converge();
        engines.rerouted(&forwarder)
    }

    fn run(&self, parallel: ParallelSettings) -> (Seen, usize) {
        let mut engines = self.engines(parallel);
        engines.keep_digest(&EventDigest::new());
        let mut pairs = std::collections::BTreeMap::new();
        let mut send =
            |engines: &mut Engines<T>, now: Time, token: u64, (start, from, to, bytes, shared): Sent| {
                let mut open = |keep| {
                    let entropy = u32::from(keep);
                    engines.open(now, &OpenRequest { from, to, entropy, keep, route: [&[], &[]] })
                };
                let pair =
                    if shared { *pairs.entry((from, to)).or_insert_with(|| open(true)) } else { open(false) };
                engines.classify(pair, (from % 3) as u8);
                engines.send(Time::from_ps(start), pair, Bytes::new(bytes), token);
            };
        for (token, &sent) in (0..).zip(&self.sent) {
            send(&mut engines, Time::ZERO, token, sent);
        }
        let mut looked = None;
        let mut all: Vec<Completion> = Vec::new();
        let mut samples = Vec::new();
        let mut answered = 0;
        loop {
            // The front's next event: an answer that is due, or a look.
            let due = self.reaction.and_then(|reaction| Some(all.get(answered)?.at + reaction));
            let look = self.look_at.filter(|_| looked.is_none());
            let limit = due.unwrap_or(Time::NEVER).min(look.unwrap_or(Time::NEVER));
            if limit == Time::NEVER && engines.next_time() == Time::NEVER {
                break;
            }
            let mut done = Vec::new();
            let reached = engines.run(limit, 1 << 14, &mut done);
            engines.take_samples(&mut samples);
            assert!(done.iter().all(|done| done.at <= reached));
            all.append(&mut done);
            if look == Some(reached) {
                engines.catch_up(reached);
                looked = Some(engines.port_reports());
            }
            let ready =
                |done: &Completion| self.reaction.is_some_and(|reaction| done.at + reaction <= reached);
            while let Some(done) = all.get(answered).filter(|done| ready(done)) {
                let token = done.token;
                answered += 1;
                if let Some(&(_, from, to, bytes, shared)) = self.sent.get(token as usize) {
                    let answer = (reached.ps(), to, from, bytes / 2 + 1, shared);
                    send(&mut engines, reached, token + self.sent.len() as u64, answer);
                }
            }
        }
        let (cycle, mut unfinished) = (engines.pause_cycle(), engines.unfinished());
        unfinished.sort_unstable();
        let live = engines.packets_live() > 0;
        assert_eq!(live, !cycle.is_empty(), "every packet is gone in the end, if none is stuck");
        let last = all.last().map_or(Time::ZERO, |done| done.at);
        // Long after the last event of any process.
        engines.catch_up(last + Span::from_us(1_000_000));
        let mut reports = looked.unwrap_or_default();
        reports.extend(engines.port_reports());
        let digest = engines.digest().expect("one is kept");
        assert_eq!(digest.events(), engines.totals().events);
        let seen = Seen {
            done: all,
            totals: engines.totals(),
            reports,
            samples,
            unfinished,
            cycle,
            paused: engines.paused(),
            hops: engines.packet_hops(),
            digest: digest.value(),
        };
        (seen, engines.spread().map_or(1, |spread| spread.processes))
    }

    /// Runs over several threads and partitions and returns what all saw.
    fn check(&self) -> Seen {
        let (one, processes) = self.run(ParallelSettings::default());
        assert_eq!(processes, 1);
        let spreads = [
            (1, Some(2), None),
            (1, Some(5), None),
            (2, None, None),
            (2, Some(2), Some(Span::from_ns(500))),
            (3, Some(7), None),
            (4, Some(64), Some(Span::from_ps(1))),
        ];
        for (threads, processes, threshold) in spreads {
            let parallel = ParallelSettings { threads, processes, threshold };
            let (other, found) = self.run(parallel);
            assert!(found > 1, "{parallel:?}: one process");
            assert_eq!(other.done, one.done, "{parallel:?}");
            assert_eq!(other.totals, one.totals, "{parallel:?}");
            assert!(other.samples == one.samples, "{parallel:?}: samples differ");
            for (other, one) in other.reports.iter().zip(&one.reports) {
                assert_eq!(other, one, "{parallel:?}");
            }
            assert_eq!(other, one, "{parallel:?}");
        }
        one
    }
}

fn settings(balancer: Balancer) -> PacketSettings {
    PacketSettings {
        seed: 3,
        balancer,
        buffers: vec![BufferSettings { size: Bytes::new(400_000), alpha: 1.0, reserve: Bytes::new(5_000) }],
        ecn: Some(EcnSettings {
            rate: RATE,
            kmin: Bytes::new(20_000),
            kmax: Bytes::new(80_000),
            pmax: 0.5,
            at: MarkAt::Enqueue,
        }),
        ..crate::common::even_packets()
    }
}

fn permutation(hosts: u32, bytes: u64) -> Vec<Sent> {
    let order = RandomStream::new(1, "permutation", 0).permutation(hosts as usize);
    order.iter().zip(order.iter().cycle().skip(1)).map(|(&from, &to)| (0, from, to, bytes, false)).collect()
}

fn incast(senders: u32, bytes: u64) -> Vec<Sent> {
    (1..=senders).map(|from| (u64::from(from % 3) * 1_000, from, 0, bytes, from % 2 == 0)).collect()
}

fn scenario<T: Transport>(
    topology: &Arc<Topology>,
    settings: PacketSettings,
    transport: T,
    sent: Vec<Sent>,
) -> Scenario<T> {
    Scenario {
        topology: topology.clone(),
        settings,
        transport,
        sent,
        failed: Vec::new(),
        reaction: None,
        look_at: Some(Time::from_ps(7_000_000)),
    }
}

const TIMEOUT: Span = Span::from_us(100);

#[test]
fn permutations_and_incasts_of_every_transport() {
    fn both<T: Transport>(transport: T, balancer: Balancer) {
        let topology = fat_tree(4, 1, 0.0);
        for reaction in [None, Some(Span::from_ns(700))] {
            let found = Scenario {
                reaction,
                ..scenario(&topology, settings(balancer), transport.clone(), permutation(16, 300_000))
            };
            let found = found.check();
            let count = if reaction.is_some() { 32 } else { 16 };
            assert_eq!(found.done.len(), count, "{}", T::NAME);
            let incast = Scenario {
                reaction,
                ..scenario(&topology, settings(balancer), transport.clone(), incast(15, 100_000))
            };
            let found = incast.check();
            assert!(found.done.len() >= 15, "{}: {:?}", T::NAME, found.totals);
            assert!(found.totals.marks > 0, "{}", T::NAME);
        }
    }
    let spray = Balancer::Spray { paths: 16 };
    let reorder = Recovery::Selective { reorder: 3 };
    both(Nscc { timeout: TIMEOUT, ..Nscc::default() }, spray);
    both(Dctcp { timeout: TIMEOUT, ..Dctcp::default() }, Balancer::Ecmp);
    both(Dcqcn { timeout: TIMEOUT, ..Dcqcn::default() }, Balancer::Ecmp);
    both(Swift::default(), Balancer::DestinationModulo);
    both(NewReno::default(), Balancer::Ecmp);
    both(Cubic::default(), Balancer::Ecmp);
    both(Bbr::default(), Balancer::Ecmp);
    both(MpRdma { timeout: TIMEOUT, ..MpRdma::default() }, spray);
    both(NoTransport { window: 50_000, timeout: TIMEOUT, recovery: reorder }, Balancer::Ecmp);
}

#[test]
fn losses_cut_through_and_planes() {
    for (planes, forwarding) in [(1, Forwarding::StoreAndForward), (2, Forwarding::CutThrough)] {
        let topology = fat_tree(4, planes, 0.003);
        for balancer in [Balancer::Ecmp, Balancer::Spray { paths: 8 }] {
            let settings = PacketSettings { forwarding, ..settings(balancer) };
            let reorder = if balancer == Balancer::Ecmp { 3 } else { u32::MAX };
            for recovery in [Recovery::Selective { reorder }, Recovery::Rack] {
                let transport = Dctcp { recovery, timeout: TIMEOUT, ..Dctcp::default() };
                let mut sent = permutation(16, 400_000);
                sent.extend(incast(9, 200_000));
                let lossy = Scenario {
                    reaction: Some(Span::from_us(1)),
                    ..scenario(&topology, settings.clone(), transport, sent)
                };
                let found = lossy.check();
                assert!(found.totals.drops > 0 && found.totals.retransmissions > 0, "{:?}", found.totals);
            }
        }
    }
}

/// Credits, trimmed packets and telemetry cross like all else.
#[test]
fn transports_that_ask_something_of_switches() {
    fn one<T: Transport>(transport: T) {
        let topology = fat_tree(4, 1, 0.0);
        let trimming = Some(TrimSettings { queue: Some(Bytes::new(50_000)), rate: None });
        let settings =
            PacketSettings { trimming, telemetry: true, ..settings(Balancer::Spray { paths: 16 }) };
        let mut sent = incast(15, 80_000);
        sent.extend(permutation(16, 150_000));
        let base = scenario(&topology, settings, transport, sent);
        let found = Scenario { reaction: Some(Span::from_ns(600)), ..base }.check();
        assert_eq!(found.done.len(), 62, "{}", T::NAME);
    }
    one(Ndp::default());
    one(Eqds::default());
    one(Rccc::default());
    one(Hpcc::default());
}

#[test]
fn every_balancer() {
    let topology = fat_tree(4, 1, 0.0);
    let balancers = [
        Balancer::Flowlet { gap: Span::from_us(1) },
        Balancer::Adaptive,
        Balancer::RoundRobin,
        Balancer::Reps { paths: 16 },
        Balancer::DestinationModulo,
    ];
    for balancer in balancers {
        let mut sent = incast(15, 80_000);
        sent.extend(permutation(16, 150_000));
        let transport = Nscc { timeout: TIMEOUT, ..Nscc::default() };
        scenario(&topology, settings(balancer), transport, sent).check();
    }
}

/// Queues of every discipline with priorities, shapers, profiles and marking of their own, one of them paused where an
/// ingress is full, looked at every 700 ns. Pause frames cross borders.
#[test]
fn queues_pauses_and_samples() {
    let topology = fat_tree(4, 1, 0.0);
    let ecn = settings(Balancer::Ecmp).ecn;
    let shaper = Some(Shaper { rate: BitRate::from_gbps(90), burst: Bytes::new(20_000) });
    let profile = |kmin, kmax| {
        Some(DropProfile {
            kmin: Bytes::new(kmin),
            kmax: Bytes::new(kmax),
            pmax: 0.2,
            ..ecn.expect("marking")
        })
    };
    let lossy = QueueSettings { lossless: false, ..QueueSettings::default() };
    let disciplines =
        [Discipline::Fifo, Discipline::Strict, Discipline::WeightedRoundRobin, Discipline::DeficitRoundRobin];
    for (number, discipline) in disciplines.into_iter().enumerate() {
        let queues = vec![
            QueueSettings { reserve: Bytes::new(5_000), ecn, ..QueueSettings::default() },
            QueueSettings { weight: 3, red: profile(10_000, 60_000), ..lossy.clone() },
            QueueSettings { priority: (number % 2) as u8, shaper, alpha: Some(0.5), ..lossy.clone() },
        ];
        let pfc = PfcSettings {
            xoff: Xoff::Dynamic(0.05),
            xon: Xon::Below(Bytes::new(4_160)),
            ..PfcSettings::default()
        };
        let buffers = vec![BufferSettings { size: Bytes::new(1_500_000), alpha: 1.0, reserve: Bytes::ZERO }];
        let base = settings(if number < 2 { Balancer::Ecmp } else { Balancer::Adaptive });
        let settings = PacketSettings {
            queues,
            discipline,
            classes: vec![0, 1, 2],
            pfc: Some(pfc),
            buffers,
            sample_every: Some(Span::from_ns(700)),
            ..base
        };
        let mut sent = incast(15, 200_000);
        sent.extend(permutation(16, 150_000));
        let recovery = Recovery::Selective { reorder: u32::MAX };
        let transport = Dctcp { recovery, timeout: TIMEOUT, ..Dctcp::default() };
        let scenario = scenario(&topology, settings, transport, sent);
        let found = Scenario { reaction: Some(Span::from_ns(600)), ..scenario }.check();
        assert_eq!(found.done.len(), 62, "{discipline:?}");
        assert!(found.totals.pauses > 10 && found.totals.drops > 0, "{discipline:?}: {:?}", found.totals);
        assert!(found.samples.len() > 500, "{}", found.samples.len());
    }
}

/// Samples of ports with one queue, which start what waits when a window ends: as if one process had looked.
#[test]
fn samples_of_single_queues() {
    let topology = fat_tree(4, 1, 0.0);
    for every in [300, 2_100] {
        let sample_every = Some(Span::from_ns(every));
        let settings = PacketSettings { sample_every, ..settings(Balancer::Spray { paths: 16 }) };
        let transport = Nscc { timeout: TIMEOUT, ..Nscc::default() };
        let mut sent = incast(15, 80_000);
        sent.extend(permutation(16, 150_000));
        let found = scenario(&topology, settings, transport, sent).check();
        let most = found.samples.iter().map(|sample| sample.bytes).max();
        assert!(found.samples.len() > 300 && most > Some(10 * 4_160), "{} {most:?}", found.samples.len());
    }
}

/// Marks every fifth packet that leaves a port.
#[derive(Clone, Copy, Debug)]
struct Fifth;

impl SwitchStage for Fifth {
    type State = u32;

    const NAME: &'static str = "fifth";

    fn dequeue(&self, count: &mut u32, _: &StagePort, _: &StagePacket) -> StageVerdict {
        *count += 1;
        if count.is_multiple_of(5) { StageVerdict::Mark } else { StageVerdict::Keep }
    }
}

/// Takes ports in turn while they hold little.
#[derive(Clone, Copy, Debug)]
struct Turns;

impl SwitchBalancer for Turns {
    type State = usize;

    const NAME: &'static str = "turns";

    fn choose(
        &self,
        turn: &mut usize,
        _: &BalancerSwitch,
        _: &BalancerPacket,
        ports: &[BalancerPort],
    ) -> usize {
        if ports[*turn % ports.len()].held > 10_000 {
            *turn += 1;
        }
        *turn
    }
}

#[test]
fn modules_of_another_crate() {
    let topology = fat_tree(4, 1, 0.0);
    let recovery = Recovery::Selective { reorder: u32::MAX };
    let transport = Dctcp { recovery, timeout: TIMEOUT, ..Dctcp::default() };
    let transport = (Staging(Fifth), Balancing(Turns)).around(transport);
    let mut sent = incast(15, 80_000);
    sent.extend(permutation(16, 150_000));
    let base = scenario(&topology, settings(Balancer::Adaptive), transport, sent);
    let found = Scenario { reaction: Some(Span::from_ns(600)), ..base }.check();
    assert!(found.totals.marks > found.hops.0 / 12, "{:?}", found.totals);
}

/// Five routers in a ring whose pauses wait for one another: the run ends at the same picosecond with the same links, whoever
/// knows of which pause.
#[test]
fn a_cycle_of_pauses() {
    let cable = CableSpec { length_mm: 200_000, ..CableSpec::new(RATE) };
    let ring = TorusSpec {
        direct: DirectSpec { nic: cable, ..DirectSpec::new(RATE) },
        dimensions: vec![Dimension { size: 5, wrap: true, links: 1, cable }],
        routing: TorusRouting::DimensionOrder,
    };
    let topology = Arc::new(Topology::new(&TopologySpec::Torus(ring)).expect("routers"));
    let pfc = PfcSettings {
        xoff: Xoff::Static(Bytes::new(4 * 4_160)),
        xon: Xon::At(Bytes::new(2 * 4_160)),
        patience: Span::from_us(50),
        ..PfcSettings::default()
    };
    let settings = PacketSettings { pfc: Some(pfc), ack_every: 1, ..crate::common::even_packets() };
    let sent: Vec<Sent> = (0..5).map(|from| (0, from, (from + 2) % 5, 2_000 * 4_096, false)).collect();
    let found = scenario(&topology, settings, NoTransport::default(), sent).check();
    assert_eq!((found.cycle.len(), found.unfinished.len()), (5, 5));
}

/// Nothing is answered: what a sender has sent is done with, and what is lost stays lost.
#[test]
fn without_acknowledgements() {
    let settings = PacketSettings { ack_every: 0, ..settings(Balancer::Ecmp) };
    let found = scenario(&fat_tree(4, 1, 0.0), settings, NoTransport::default(), incast(15, 60_000)).check();
    assert!(found.totals.drops > 0 && found.done.len() < 15);
}

#[test]
fn around_failed_cables() {
    let topology = fat_tree(4, 1, 0.0);
    // Two cables between switches: queue pairs with one path are given one around them by their host.
    let failed: Vec<LinkId> = inner(&topology).into_iter().step_by(23).take(2).collect();
    let transport = Nscc { timeout: TIMEOUT, ..Nscc::default() };
    let sprayed = settings(Balancer::Spray { paths: 16 });
    let base = scenario(&topology, sprayed, transport, permutation(16, 100_000));
    let found = Scenario { failed, ..base }.check();
    assert_eq!(found.done.len(), 16);
}

/// Cables between switches.
fn inner(topology: &Topology) -> Vec<LinkId> {
    let between = |&link: &LinkId| {
        let Some((switch, port)) = topology.link_source(link) else { return false };
        matches!(topology.peer(switch, port), Some(Peer::Switch { .. }))
    };
    (0..topology.link_count() as u32).map(LinkId).filter(between).collect()
}

/// Cables, a NIC's cable and a switch that go down in the middle of packets and come up, while others change their rate, lose
/// packets or are down for good, and known late elsewhere: whoever owns which end, the same packets are lost.
fn changes(topology: &Topology) -> Impairments {
    let ns = |ns: u64| Time::from_ps(ns * 1_000 + 7);
    let change = |at: u64, known: u64, part, state| PartChange { at: ns(at), known: ns(known), part, state };
    let (inner, nic) = (inner(topology), topology.nic_link(0, 0));
    let cable = |place: usize| FabricPart::Cable(inner[place % inner.len()]);
    let last = FabricPart::Switch(SwitchId(topology.switches() - 1));
    let (down, up) = (PartState::Down, PartState::Up);
    let burst =
        GilbertElliott { to_bad: 0.01, to_good: 0.2, good: Share::Packets(0.0), bad: Share::Packets(0.5) };
    Impairments {
        losses: vec![(inner[5 % inner.len()], burst)],
        changes: vec![
            change(2_300, 3_100, cable(0), down),
            // Down again while what it lost is still on it, in the same window.
            change(2_350, 3_150, cable(0), up),
            change(2_400, 3_200, cable(0), down),
            change(9_000, 9_900, cable(0), up),
            change(3_000, 3_000, FabricPart::Cable(nic), down),
            change(8_000, 8_000, FabricPart::Cable(nic), up),
            change(4_000, 6_000, last, down),
            change(4_100, 6_000, cable(2), PartState::Rate(0.25)),
            change(7_000, 7_500, last, up),
            change(9_000, 9_000, cable(2), PartState::Rate(1.0)),
            change(5_000, 5_500, cable(inner.len() / 2), down),
        ],
        ..Impairments::default()
    }
}

#[test]
fn links_that_change() {
    let balancers = [
        Balancer::Ecmp,
        Balancer::Spray { paths: 16 },
        Balancer::Adaptive,
        Balancer::Flowlet { gap: Span::from_us(1) },
    ];
    for (number, balancer) in balancers.into_iter().enumerate() {
        let topology = fat_tree(4, 1 + number as u32 % 2, 0.0);
        let forwarding = if number < 2 { Forwarding::StoreAndForward } else { Forwarding::CutThrough };
        let sample_every = Some(Span::from_ns(700));
        let base = settings(balancer);
        let settings = PacketSettings { impairments: changes(&topology), forwarding, sample_every, ..base };
        let transport = Nscc { timeout: TIMEOUT, ..Nscc::default() };
        let mut sent = incast(15, 80_000);
        sent.extend(permutation(16, 300_000));
        let scenario = scenario(&topology, settings, transport, sent);
        let found = Scenario { reaction: Some(Span::from_ns(600)), ..scenario }.check();
        assert!(found.totals.link_down > 50, "{balancer:?}: {:?}", found.totals);
        assert!(found.totals.corrupted > 0, "{balancer:?}: {:?}", found.totals);
    }
}

/// The same with queues and pauses, which end with their link and are told again when it is back.
#[test]
fn pauses_of_links_that_change() {
    let topology = fat_tree(4, 1, 0.0);
    let pfc = PfcSettings { xoff: Xoff::Static(Bytes::new(20_000)), ..PfcSettings::default() };
    let queues =
        vec![QueueSettings::default(), QueueSettings { lossless: false, ..QueueSettings::default() }];
    let buffers = vec![BufferSettings { size: Bytes::new(1_500_000), alpha: 1.0, reserve: Bytes::ZERO }];
    for balancer in [Balancer::Ecmp, Balancer::Adaptive] {
        let settings = PacketSettings {
            impairments: changes(&topology),
            queues: queues.clone(),
            classes: vec![0, 0, 1],
            pfc: Some(pfc),
            buffers: buffers.clone(),
            ..settings(balancer)
        };
        let recovery = Recovery::Selective { reorder: u32::MAX };
        let transport = Dctcp { recovery, timeout: TIMEOUT, ..Dctcp::default() };
        let mut sent = incast(15, 200_000);
        sent.extend(permutation(16, 150_000));
        let scenario = scenario(&topology, settings, transport, sent);
        let found = Scenario { reaction: Some(Span::from_ns(600)), ..scenario }.check();
        let totals = &found.totals;
        assert!(totals.link_down > 50 && totals.pauses > 10, "{balancer:?}: {totals:?}");
    }
}

/// What packets decide by the queues they meet does not depend on when these were last looked at.
#[test]
fn adaptive_routes() {
    let topology = dragonfly();
    for balancer in [Balancer::Ecmp, Balancer::Spray { paths: 16 }] {
        let transport = Nscc { timeout: TIMEOUT, ..Nscc::default() };
        let mut sent = permutation(topology.hosts(), 200_000);
        sent.extend(incast(20, 40_000));
        let base = scenario(&topology, settings(balancer), transport, sent);
        Scenario { reaction: Some(Span::from_ns(300)), ..base }.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn small_scenarios(
        (seed, buffer, ack_every) in (0..4u64, 60_000..400_000u64, 1..6u32),
        (spray, cut, dequeue, lossy) in any::<(bool, bool, bool, bool)>(),
        reaction in prop_oneof![Just(None), (200..3_000u64).prop_map(|ns| Some(Span::from_ns(ns)))],
        planes in 1..3u32,
        sent in prop::collection::vec((0..20_000_000u64, 0..16u32, 1..16u32, 1..200_000u64, any::<bool>()), 1..24),
        (threads, processes, ns) in (1..5usize, 2..20usize, 1..1_000u64),
    ) {
        let sent: Vec<Sent> = sent.into_iter().map(|(at, from, step, bytes, shared)| (at, from, (from + step) % 16, bytes, shared)).collect();
        let at = if dequeue { MarkAt::Dequeue } else { MarkAt::Enqueue };
        let forwarding = if cut { Forwarding::CutThrough } else { Forwarding::StoreAndForward };
        let base = settings(if spray { Balancer::Spray { paths: 8 } } else { Balancer::Ecmp });
        let settings = PacketSettings {
            seed,
            ack_every,
            forwarding,
            buffers: vec![BufferSettings { size: Bytes::new(buffer), alpha: 1.0, reserve: Bytes::new(5_000) }],
            ecn: base.ecn.map(|ecn| EcnSettings { at, ..ecn }),
            ..base
        };
        let recovery = Recovery::Selective { reorder: if spray { u32::MAX } else { 3 } };
        let topology = fat_tree(4, planes, if lossy { 0.002 } else { 0.0 });
        let transport = Dctcp { recovery, timeout: TIMEOUT, ..Dctcp::default() };
        let run = Scenario { reaction, ..scenario(&topology, settings, transport, sent) };
        let (one, _) = run.run(ParallelSettings::default());
        for threshold in [None, Some(Span::from_ns(ns))] {
            let (many, _) = run.run(ParallelSettings { threads, processes: Some(processes), threshold });
            prop_assert_eq!(&many, &one);
        }
    }
}
