//! Pauses against closed forms, to the picosecond, and what must hold of them whatever is sent.

use std::sync::Arc;

use proptest::prelude::*;
use windtunnel_fabric::packet::transport::{Dctcp, NoTransport, Recovery, Transport};
use windtunnel_fabric::packet::{
    Balancer, BufferSettings, Completion, Engine, FabricPart, Forwarding, Impairments, OpenRequest,
    PacketError, PacketSettings, PartChange, PartState, PfcSettings, QueueSettings, Xoff, Xon,
};
use windtunnel_kernel::{BitRate, Bytes, RandomStream, Span, Time};
use windtunnel_topology::{
    CableSpec, ClosSpec, Dimension, DirectSpec, LinkId, Topology, TopologySpec, TorusRouting, TorusSpec,
};

use crate::packets::{send, star};

const PAYLOAD: u64 = 4_096;
const FULL: u64 = 4_160;
const FRAME: u64 = 64;
/// Picoseconds a byte at 400 Gbps.
const PS: u64 = 20;
/// Time of a full packet.
const S: u64 = FULL * PS;
/// Propagation of every cable.
const CABLE: u64 = 1_000_000;

/// Routers in a row, or a ring, each with one host; all cables 200 m.
fn routers(size: u32, wrap: bool) -> Arc<Topology> {
    let rate = BitRate::from_gbps(400);
    let cable = CableSpec { length_mm: 200_000, ..CableSpec::new(rate) };
    let spec = TopologySpec::Torus(TorusSpec {
        direct: DirectSpec { nic: cable, ..DirectSpec::new(rate) },
        dimensions: vec![Dimension { size, wrap, links: 1, cable }],
        routing: TorusRouting::DimensionOrder,
    });
    Arc::new(Topology::new(&spec).expect("routers"))
}

fn pfc(xoff: u64, xon: u64) -> PfcSettings {
    PfcSettings {
        xoff: Xoff::Static(Bytes::new(xoff)),
        xon: Xon::At(Bytes::new(xon)),
        ..PfcSettings::default()
    }
}

/// Pauses, and no acknowledgements that would keep the way back busy.
fn settings(pfc: PfcSettings) -> PacketSettings {
    PacketSettings { ack_every: 0, pfc: Some(pfc), ..crate::common::even_packets() }
}

fn drain<T: Transport>(engine: &mut Engine<T>) -> Vec<Completion> {
    let mut done = Vec::new();
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, 1 << 20, &mut done);
    }
    done
}

/// 40 hosts send to one, and the last host sends to the first of them so that its pause frame finds a full packet just begun.
/// Drops and the most that were sent.
fn worst_case(headroom: Option<u64>) -> (u64, Vec<(LinkId, Bytes)>) {
    let topology = star(42, 400, 200_000);
    let pfc = PfcSettings { headroom: headroom.map(Bytes::new), ..pfc(10 * FULL, 5 * FULL) };
    let mut engine =
        Engine::new(topology, settings(pfc), NoTransport::default()).expect("settings that work");
    for from in 1..=40 {
        send(&mut engine, 0, from, 41, 60 * PAYLOAD, u64::from(from));
    }
    send(&mut engine, 0, 0, 1, 60 * PAYLOAD, 0);
    let done = drain(&mut engine);
    assert_eq!(done.len() as u64 + engine.totals().drops.min(1), 41);
    (engine.totals().drops, engine.headrooms())
}

/// The derivation's worst case happens: the packet that crosses xoff, a full packet before the pause frame on the way back,
/// one just begun at the sender as the frame is heeded, and a cable full both ways. Nothing of the ingress leaves
/// meanwhile, since 40 take turns. Headroom that its cable asks for loses nothing; one packet less loses one packet.
#[test]
fn headroom_is_exact() {
    let (drops, headrooms) = worst_case(None);
    assert_eq!(drops, 0);
    let way = S + FRAME * PS + 2 * CABLE;
    let headroom = way.div_ceil(PS) + 2 * FULL;
    assert_eq!(headrooms.len(), 42);
    assert!(headrooms.iter().all(|&(_, bytes)| bytes == Bytes::new(headroom)), "{headrooms:?}");
    assert_eq!(worst_case(Some(headroom)).0, 0);
    assert_eq!(worst_case(Some(headroom - FULL)).0, 1);
}

/// Host 0, two routers, host 1, whose link runs at half its rate. Let s be a packet's time, d a cable, K = xoff in packets,
/// T when the first packet is at router 1.
///
/// Packet i comes at T + i s and finds ⌈i/2⌉, so number 2K - 1 crosses. The frame is heeded f + d later; router 0 has
/// begun packets 0 to m = 2K + ⌊(2d + f)/s⌋ by then. With xon 0 the resume leaves when all are sent, at T + 2 (m + 1) s.
#[test]
fn pauses_and_resumes_to_the_picosecond() {
    let topology = routers(2, false);
    let last = topology.nic_link(1, 0);
    let to_host = topology.reverse(last);
    for k in [3, 8] {
        let slow_links = vec![(to_host, 0.5)];
        let settings = PacketSettings { slow_links, ..settings(pfc(k * FULL, 0)) };
        let mut engine = Engine::new(topology.clone(), settings, NoTransport::default()).expect("they work");
        let (d, f) = (CABLE, FRAME * PS);
        let begun = 2 * k + (2 * d + f) / S + 1;
        send(&mut engine, 0, 0, 1, (begun + 1) * PAYLOAD, 7);
        let done = drain(&mut engine);
        let first = 2 * (S + d);
        let crossed = first + (2 * k - 1) * S;
        let paused = crossed + f + d;
        let resumed = first + 2 * begun * S + f + d;
        // The one packet that waited crosses the cable and the slow link.
        assert_eq!(done[0].at, Time::from_ps(resumed + S + d + 2 * S + d), "K = {k}");
        let reports = engine.port_reports();
        let stopped: Vec<_> = reports.iter().filter(|report| report.pauses > 0).collect();
        assert_eq!(stopped.len(), 1, "{stopped:?}");
        assert_eq!((stopped[0].pauses, stopped[0].paused), (1, Span::from_ps(resumed - paused)));
        assert_eq!((engine.totals().pauses, engine.totals().drops), (1, 0));
        assert_eq!(engine.paused(), Span::from_ps(resumed - paused));
    }
}

/// With a static xoff, `Below(xoff − x)` is `At(x)`, event by event; and the further below, the fewer pauses, each of them longer.
#[test]
fn an_offset_below_xoff_is_the_threshold_that_it_names() {
    let xoff = 12 * FULL;
    let run = |xon| {
        let settings = settings(PfcSettings { xon, ..pfc(xoff, 0) });
        let mut engine =
            Engine::new(star(4, 400, 200_000), settings, NoTransport::default()).expect("they work");
        for from in 1..4 {
            send(&mut engine, 0, from, 0, 300 * PAYLOAD, u64::from(from));
        }
        let done: Vec<_> = drain(&mut engine).iter().map(|done| (done.token, done.at)).collect();
        (done, engine.totals().pauses, engine.paused())
    };
    let mut pauses = Vec::new();
    for below in [0, 1, 2, 4, 8, 12] {
        let (at, offset) =
            (run(Xon::At(Bytes::new(xoff - below * FULL))), run(Xon::Below(Bytes::new(below * FULL))));
        assert_eq!(at, offset, "{below} packets below");
        pauses.push(offset.1);
    }
    assert!(pauses.is_sorted_by(|more, fewer| more >= fewer), "{pauses:?}");
    assert!(pauses[0] > pauses[1] && pauses[1] > pauses[3], "{pauses:?}");
}

/// A pause at a NIC stops its data, and its control packets and other NICs go on.
#[test]
fn a_paused_nic_still_sends_control() {
    // Hosts 1 and 2 send to 0 at line rate; xoff of 2 packets pauses both NICs for half of the time.
    let topology = star(4, 400, 200_000);
    let settings = PacketSettings { ack_every: 1, ..settings(pfc(2 * FULL, FULL)) };
    let nics = topology.clone();
    let mut engine = Engine::new(topology, settings, NoTransport::default()).expect("they work");
    for from in [1, 2] {
        send(&mut engine, 0, from, 0, 400 * PAYLOAD, u64::from(from));
    }
    // Acknowledgements of this one leave by host 1's NIC.
    send(&mut engine, 0, 3, 1, 400 * PAYLOAD, 3);
    let done = drain(&mut engine);
    assert_eq!((done.len(), engine.totals().drops), (3, 0));
    let third = done.iter().find(|done| done.token == 3).expect("it arrives");
    let reports = engine.port_reports();
    let of = |nic: u32| {
        let link = nics.nic_link(nic, 0);
        reports.iter().find(|report| report.link == link).map(|report| (report.pauses, report.paused.ps()))
    };
    let (Some((first, _)), Some((second, _)), Some((_, own))) = (of(1), of(2), of(3)) else {
        panic!("{reports:?}")
    };
    assert!(first > 10 && second > 10);
    // Acknowledgements and pause frames go before it on the way to host 1, which is full and now and then has its own
    // sender paused; that host 1 is paused itself holds up no acknowledgement, so nothing else is in its way.
    let alone = S + CABLE + 400 * S + CABLE;
    let before = 400 + 2 * first;
    let latest = alone + before * FRAME * PS + own;
    assert!((alone..=latest).contains(&third.at.ps()), "{third:?}, expected {alone} to {latest}");
}

fn ring(pfc: PfcSettings, transport: NoTransport) -> Engine<NoTransport> {
    let settings = PacketSettings { ack_every: 1, ..settings(pfc) };
    let mut engine = Engine::new(routers(5, true), settings, transport).expect("they work");
    for from in 0..5 {
        send(&mut engine, 0, from, (from + 2) % 5, 2_000 * PAYLOAD, u64::from(from));
    }
    engine
}

/// Five routers in a ring, each host sends two on: every link waits for the next one's, and the run says so.
#[test]
fn a_cycle_of_pauses_ends_the_run() {
    let mut engine = ring(pfc(4 * FULL, 2 * FULL), NoTransport::default());
    let done = drain(&mut engine);
    assert!(done.is_empty());
    let cycle = engine.pause_cycle();
    assert_eq!(cycle.len(), 5, "all five links of one direction");
    let topology = routers(5, true);
    for (here, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
        let (from, _) = topology.link_source(*next).expect("a switch's link");
        let (before, _) = topology.link_source(*here).expect("a switch's link");
        assert_eq!(from.0, (before.0 + 1) % 5, "each waits for the one after it");
    }
    assert_eq!(engine.unfinished().len(), 5);
    assert_eq!(engine.totals().drops, 0);
}

/// A watchdog breaks the cycle: it drops what waits, which is sent again, and all arrives.
#[test]
fn a_watchdog_breaks_the_cycle() {
    let watchdog = Some(Span::from_us(100));
    let pfc = PfcSettings { watchdog, ..pfc(4 * FULL, 2 * FULL) };
    let recovery = Recovery::Selective { reorder: 3 };
    let transport = NoTransport { window: 40 * FULL, recovery, timeout: Span::from_us(500) };
    let mut engine = ring(pfc, transport);
    let done = drain(&mut engine);
    let dropped: u64 = engine.port_reports().iter().map(|report| report.watchdog_drops).sum();
    assert_eq!(done.len(), 5);
    assert!(dropped > 0 && engine.totals().drops == dropped, "{:?}", engine.totals());
    assert_eq!(engine.packets_live(), 0);
}

/// What waits longer than the watchdog lets it is dropped at that instant, and what comes later too.
#[test]
fn the_watchdog_waits_for_its_time() {
    // As in the line above: the pause begins at `paused` and would end when router 1 has sent all.
    let topology = routers(2, false);
    let to_host = topology.reverse(topology.nic_link(1, 0));
    let (k, d, f) = (8, CABLE, FRAME * PS);
    let begun = 2 * k + (2 * d + f) / S + 1;
    let first = 2 * (S + d);
    let (paused, resumed) = (first + (2 * k - 1) * S + f + d, first + 2 * begun * S + f + d);
    for (watchdog, lost) in [(resumed - paused + 1, 0), (resumed - paused, 3)] {
        let pfc = PfcSettings { watchdog: Some(Span::from_ps(watchdog)), ..pfc(k * FULL, 0) };
        let settings = PacketSettings { slow_links: vec![(to_host, 0.5)], ..settings(pfc) };
        let mut engine = Engine::new(topology.clone(), settings, NoTransport::default()).expect("they work");
        send(&mut engine, 0, 0, 1, (begun + 3) * PAYLOAD, 7);
        drain(&mut engine);
        assert_eq!(engine.totals().drops, lost, "after {watchdog} ps");
    }
}

/// A link goes down with queues full and senders paused on both of its sides, and comes up again: what waited is lost and
/// sent again, its room is given back, pauses end and begin anew, and all arrives.
#[test]
fn pauses_outlive_a_link_that_goes_down() {
    let topology = star(6, 400, 200_000);
    let last = topology.reverse(topology.nic_link(0, 0));
    for (part, balancer) in
        [(last, Balancer::Ecmp), (topology.nic_link(1, 0), Balancer::Ecmp), (last, Balancer::Adaptive)]
    {
        let turn = |at: u64, state| PartChange {
            at: Time::from_ps(at),
            known: Time::from_ps(at),
            part: FabricPart::Cable(part),
            state,
        };
        let changes = vec![turn(20_000_000, PartState::Down), turn(90_000_000, PartState::Up)];
        let impairments = Impairments { changes, ..Impairments::default() };
        let settings =
            PacketSettings { ack_every: 1, impairments, balancer, ..settings(pfc(4 * FULL, FULL)) };
        let recovery = Recovery::Selective { reorder: u32::MAX };
        let transport = NoTransport { window: 60 * FULL, recovery, timeout: Span::from_us(50) };
        let mut engine = Engine::new(topology.clone(), settings, transport).expect("they work");
        for from in 1..6 {
            send(&mut engine, 0, from, 0, 300 * PAYLOAD, u64::from(from));
        }
        let done = drain(&mut engine);
        let totals = engine.totals();
        assert_eq!((done.len(), engine.packets_live()), (5, 0));
        assert!(totals.link_down > 0 && totals.drops == totals.link_down && totals.pauses > 5, "{totals:?}");
        let longest = engine.port_reports().iter().map(|report| report.paused).max();
        assert!(longest < Some(Span::from_ps(engine.now().ps())), "no pause is left over");
        let before = engine.paused();
        let flow = engine.open(&OpenRequest { from: 1, to: 2, entropy: 0, keep: false, route: [&[], &[]] });
        engine.send(engine.now(), flow, Bytes::new(PAYLOAD), 9);
        assert_eq!(drain(&mut engine).len(), 1);
        assert_eq!(engine.paused(), before, "nothing is paused in the end");
    }
}

#[test]
fn pauses_that_cannot_work_are_refused() {
    let topology = star(8, 400, 200_000);
    let buffer = |size| vec![BufferSettings { size: Bytes::new(size), alpha: 1.0, reserve: Bytes::ZERO }];
    let refuse = |pfc: PfcSettings, size: Option<u64>| {
        let buffers = size.map(buffer).unwrap_or_default();
        let settings = PacketSettings { buffers, pfc: Some(pfc), ..crate::common::even_packets() };
        match Engine::new(topology.clone(), settings, NoTransport::default()) {
            Ok(_) => panic!("{pfc:?} with {size:?} B is taken"),
            Err(error) => error.to_string(),
        }
    };
    let told = [
        refuse(pfc(50_000, 60_000), None),
        refuse(PfcSettings { xon: Xon::Below(Bytes::new(60_000)), ..pfc(50_000, 0) }, None),
        refuse(pfc(1_000, 0), None),
        refuse(PfcSettings::default(), None),
        refuse(
            PfcSettings { headroom: Some(Bytes::new(200_000)), ..PfcSettings::default() },
            Some(1_000_000),
        ),
        refuse(PfcSettings { headroom: Some(Bytes::new(100_000)), ..pfc(300_000, 0) }, Some(1_000_000)),
        refuse(PfcSettings { xoff: Xoff::Dynamic(0.0), ..PfcSettings::default() }, Some(1_000_000)),
    ];
    assert_eq!(
        told,
        [
            "`pfc.xon` is 60000 B, expected at most `pfc.xoff`: 50000 B",
            "`pfc.xon_offset` is 60000 B, expected at most `pfc.xoff`: 50000 B",
            "`pfc.xoff` is 1000 B, expected at least `mtu`: 4160 B",
            "`pfc.alpha` is a share of the free buffer, but `buffers` sets no size",
            "`buffers[0]` keeps 1608192 B aside, 200000 B of headroom for each of 8 ports and reserves, expected less \
             than the 1000000 B that it shares",
            "`pfc.xoff` is 300000 B, expected at most what `buffers[0]` shares beside reserves and headroom: 191808 B",
            "`pfc.alpha` is 0, expected a number above 0, at most 1024",
        ]
    );
    let lossy = vec![QueueSettings { lossless: false, ..QueueSettings::default() }];
    let settings =
        PacketSettings { queues: lossy, pfc: Some(pfc(50_000, 0)), ..crate::common::even_packets() };
    assert_eq!(settings.check(), Err(PacketError::NothingLossless));
}

/// (start in ns, sender, receiver, bytes)
type Sent = (u64, u32, u32, u64);

fn clos(
    forwarding: Forwarding,
    pfc: PfcSettings,
    size: u64,
    ack_every: u32,
) -> (Arc<Topology>, PacketSettings) {
    let mut spec = ClosSpec::fat_tree(4, BitRate::from_gbps(400));
    for (tier, metres) in spec.tiers.iter_mut().zip([5, 30, 200]) {
        (tier.length_mm, tier.switch_latency) = (metres * 1_000, Span::from_ns(300));
    }
    let topology = Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"));
    let buffers = vec![BufferSettings { size: Bytes::new(size), alpha: 1.0, reserve: Bytes::ZERO }];
    (
        topology,
        PacketSettings { forwarding, buffers, ack_every, pfc: Some(pfc), ..crate::common::even_packets() },
    )
}

/// Thresholds of four ingresses that the shared part cannot hold together: data of paused senders fill it, and
/// acknowledgements have room all the same.
#[test]
fn acknowledgements_pass_where_paused_data_fill_the_buffer() {
    let pfc = PfcSettings {
        xoff: Xoff::Static(Bytes::new(81_209)),
        xon: Xon::Below(Bytes::new(16_972)),
        response: Span::from_ns(500),
        ..PfcSettings::default()
    };
    let (topology, settings) = clos(Forwarding::StoreAndForward, pfc, 900_000, 1);
    for seed in 0..20 {
        let mut draw = RandomStream::new(seed, "incasts", 0);
        let mut engine =
            Engine::new(topology.clone(), settings.clone(), NoTransport::default()).expect("they work");
        for token in 0..50 {
            let (from, to) = (draw.below(16) as u32, draw.below(3) as u32);
            let to = if from == to { 15 } else { to };
            send(&mut engine, draw.below(20_000_000), from, to, 1 + draw.below(300_000), token);
        }
        assert_eq!((drain(&mut engine).len(), engine.totals().drops), (50, 0), "seed {seed}");
        assert!(engine.totals().pauses > 50, "seed {seed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Random incasts on a fat tree, whose up-and-down paths cannot wait for one another: nothing is dropped, everything
    /// arrives once, what was given is given back, and a second run is the same. Pauses are looked at every microsecond
    /// and none is taken for a cycle.
    #[test]
    fn lossless_never_drops(
        sent in prop::collection::vec((0..20_000u64, 0..16u32, 0..3u32, 1..300_000u64), 1..60),
        dynamic in any::<bool>(),
        cut in any::<bool>(),
        xoff in 5_000..100_000u64,
        below in 0..1_000u64,
        ack_every in 0..3u32,
        reaction in any::<bool>(),
    ) {
        let sent: Vec<Sent> = sent
            .into_iter()
            .map(|(start, from, to, bytes)| (start, from, if from == to { 15 } else { to }, bytes))
            .collect();
        let pfc = PfcSettings {
            xoff: if dynamic { Xoff::Dynamic(xoff as f64 / 200_000.0) } else { Xoff::Static(Bytes::new(xoff)) },
            xon: Xon::Below(Bytes::new(xoff * below / 1_000)),
            response: if reaction { Span::from_ns(500) } else { Span::ZERO },
            patience: Span::from_us(1),
            ..PfcSettings::default()
        };
        let forwarding = if cut { Forwarding::CutThrough } else { Forwarding::StoreAndForward };
        let (topology, settings) = clos(forwarding, pfc, 900_000, ack_every);
        let run = || {
            let mut engine =
                Engine::new(topology.clone(), settings.clone(), NoTransport::default()).expect("they work");
            for (token, &(start, from, to, bytes)) in (0..).zip(&sent) {
                send(&mut engine, start * 1_000, from, to, bytes, token);
            }
            let done = drain(&mut engine);
            let reports = engine.port_reports();
            (done, engine.totals(), engine.packets_live(), engine.pause_cycle(), reports, engine.paused())
        };
        let (done, totals, live, cycle, reports, paused) = run();
        prop_assert_eq!((totals.drops, live, cycle.len()), (0, 0, 0));
        let mut tokens: Vec<u64> = done.iter().map(|done| done.token).collect();
        tokens.sort_unstable();
        prop_assert!(tokens.into_iter().eq(0..sent.len() as u64), "{} of {}", done.len(), sent.len());
        prop_assert_eq!(totals.pauses, reports.iter().map(|report| report.pauses).sum::<u64>());
        prop_assert_eq!(paused, Span::from_ps(reports.iter().map(|report| report.paused.ps()).sum()));
        prop_assert!(reports.iter().all(|report| (report.pauses == 0) == (report.paused == Span::ZERO)));
        let again = run();
        prop_assert_eq!((&again.0, again.1, &again.4), (&done, totals, &reports));
    }

    /// Pauses that never come change nothing: a run with thresholds out of reach is the run without pauses.
    #[test]
    fn pauses_out_of_reach_change_nothing(
        sent in prop::collection::vec((0..20_000u64, 0..16u32, 0..16u32, 1..200_000u64), 1..40),
        cut in any::<bool>(),
    ) {
        let forwarding = if cut { Forwarding::CutThrough } else { Forwarding::StoreAndForward };
        let (topology, with) = clos(forwarding, pfc(1_000_000_000, 0), 4_000_000_000, 4);
        let run = |settings: PacketSettings| {
            let mut engine = Engine::new(topology.clone(), settings, Dctcp::default()).expect("they work");
            for (token, &(start, from, to, bytes)) in (0..).zip(&sent) {
                let to = if from == to { (to + 1) % 16 } else { to };
                send(&mut engine, start * 1_000, from, to, bytes, token);
            }
            let done = drain(&mut engine);
            let depths: Vec<_> = engine.port_reports().iter().map(|report| (report.link, report.queueing)).collect();
            (done, depths)
        };
        let without = PacketSettings { pfc: None, ..with.clone() };
        prop_assert_eq!(run(with), run(without));
    }
}
