//! The packet model against closed forms, to the picosecond.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{Dctcp, NoTransport, Nscc, Recovery};
use windtunnel_fabric::packet::{
    Balancer, BufferSettings, EcnSettings, Forwarding, MarkAt, OpenRequest, PacketSettings,
};
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{
    CableSpec, ClosSpec, Dimension, DirectSpec, HostSpec, Tier, Topology, TopologySpec, TorusRouting,
    TorusSpec,
};

use crate::packets::{drain, engine, send, star};

const HEADER: u64 = 64;
const PAYLOAD: u64 = 4_096;
const FULL: u64 = PAYLOAD + HEADER;
/// Picoseconds a byte at 400 Gbps.
const PS: u64 = 20;
/// Propagation of every cable and pipeline of every switch.
const CABLE: u64 = 1_000_000;
const PIPELINE: u64 = 300_000;

/// A k-ary fat tree of 400 Gbps.
fn fat_tree(k: u32) -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(k, BitRate::from_gbps(400));
    for tier in &mut spec.tiers {
        (tier.length_mm, tier.switch_latency) = (200_000, Span::from_ps(PIPELINE));
    }
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

fn line_rate() -> NoTransport {
    NoTransport::default()
}

/// Wire bytes of each packet of a message.
fn packets(bytes: u64) -> Vec<u64> {
    let full = bytes / PAYLOAD;
    let rest = bytes % PAYLOAD;
    (0..full).map(|_| FULL).chain((rest > 0).then_some(rest + HEADER)).collect()
}

/// (time that the NIC takes, the last packet of) a message.
fn on_wire(bytes: u64) -> (u64, u64) {
    let packets = packets(bytes);
    (packets.iter().sum::<u64>() * PS, packets[packets.len() - 1])
}

/// Store and forward: the NIC's time, then the last packet (and with a short last one the packets before it, which are
/// slower) over every further hop. With p_i the times of the packets, the last bit leaves hop h at the longest path
/// through the grid packets × hops: max over i of (Σ_{j ≤ i} p_j + (h - 1) p_i + Σ_{j > i} p_j).
#[test]
fn one_flow_over_h_hops() {
    for (forwarding, bytes) in [Forwarding::StoreAndForward, Forwarding::CutThrough]
        .into_iter()
        .flat_map(|forwarding| [1, 100, 4_096, 4_097, 10_000, 2_000_000].map(|bytes| (forwarding, bytes)))
    {
        // In a fat tree of k = 4: the same leaf, the same pod, another pod.
        for (to, hops) in [(1, 2), (2, 4), (13, 6)] {
            let topology = fat_tree(4);
            let settings = PacketSettings { forwarding, ..crate::common::even_packets() };
            let mut engine = engine(&topology, settings, line_rate());
            send(&mut engine, 5_000, 0, to, bytes, 1);
            let done = drain(&mut engine);
            let (total, last) = on_wire(bytes);
            let delays = hops * CABLE + (hops - 1) * PIPELINE;
            let expected = match forwarding {
                Forwarding::StoreAndForward => {
                    let widest = if packets(bytes).len() > 1 { FULL } else { last };
                    total + (hops - 1) * widest * PS + delays
                }
                // Every switch begins when the header is in, so only headers are paid again.
                Forwarding::CutThrough => total + (hops - 1) * HEADER * PS + delays,
            };
            assert_eq!(
                done[0].at,
                Time::from_ps(5_000 + expected),
                "{forwarding:?} {bytes} B over {hops} links"
            );
            let data = packets(bytes).len() as u64;
            assert_eq!(engine.packet_hops(), (data * hops, data.div_ceil(4) * hops), "and acknowledgements");
        }
    }
}

/// A slow link after a fast one cuts through; a fast one after a slow one must not run dry and waits for the whole packet.
#[test]
fn cut_through_falls_back_where_an_egress_is_faster() {
    let rate = BitRate::from_gbps(100);
    let tiers = vec![Tier::new(4, rate), Tier::new(2, BitRate::from_gbps(400))];
    let spec = ClosSpec::new(8, HostSpec::new(1, 1, rate), tiers);
    let topology = Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("two tiers"));
    let settings = PacketSettings { forwarding: Forwarding::CutThrough, ..crate::common::even_packets() };
    let mut engine = engine(&topology, settings, line_rate());
    send(&mut engine, 0, 0, 7, PAYLOAD, 0);
    // NIC at 80 ps/B in whole; the first uplink at 20 ps/B passes its header on, and so does the spine, whose ports
    // are no faster; the last leaf's port is slower: 80 ps/B for the whole packet.
    let expected = FULL * 80 + HEADER * 20 + HEADER * 20 + FULL * 80;
    assert_eq!(drain(&mut engine)[0].at, Time::from_ps(expected));
}

/// On short cables a header is at the next switch long before its packet has left the port: what joins the queue in between
/// starts when the packet has left.
#[test]
fn what_joins_behind_a_header_starts_behind_its_packet() {
    let rate = BitRate::from_gbps(400);
    let (delay, late) = (15_000, 50_000);
    let short = |tier: Tier| Tier { length_mm: 3_000, ..tier };
    let leaf = Tier { oversubscription: 2.0, ..Tier::new(2, rate) };
    let spec = ClosSpec::new(4, HostSpec::new(1, 1, rate), vec![short(leaf), short(Tier::new(2, rate))]);
    let topology = Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("two leaves and a spine"));
    let settings = PacketSettings { forwarding: Forwarding::CutThrough, ..crate::common::even_packets() };
    let mut engine = engine(&topology, settings, line_rate());
    send(&mut engine, 0, 0, 2, PAYLOAD, 0);
    send(&mut engine, late, 1, 3, PAYLOAD, 1);
    let done = drain(&mut engine);
    // The first has the uplink from its header's arrival on; the second comes while it has, and follows it.
    let header = HEADER * PS + delay;
    assert!(
        late + header > 2 * header && late + header < header + FULL * PS,
        "behind the header, not the packet"
    );
    let rest = 2 * header + FULL * PS + delay;
    let times: Vec<(u64, Time)> = done.iter().map(|done| (done.token, done.at)).collect();
    assert_eq!(times, [(0, Time::from_ps(header + rest)), (1, Time::from_ps(header + FULL * PS + rest))]);
}

/// n hosts send at once to one: its link is never idle from the first packet's arrival on, and drains n messages.
#[test]
fn an_incast_drains_at_line_rate() {
    for n in [2, 7, 31] {
        let topology = star(n + 1, 400, 200_000);
        let mut engine = engine(&topology, crate::common::even_packets(), line_rate());
        let bytes = 100_000;
        for from in 1..=n {
            send(&mut engine, 0, from, 0, bytes, u64::from(from));
        }
        let done = drain(&mut engine);
        let (total, _) = on_wire(bytes);
        // All first packets are at the switch at once; then every byte of all messages crosses one link.
        let expected = FULL * PS + CABLE + u64::from(n) * total + CABLE;
        assert_eq!(done.last().map(|done| done.at), Some(Time::from_ps(expected)), "{n} to 1");
        assert_eq!(done.len(), n as usize);
        let reports = engine.port_reports();
        let deepest = reports.iter().map(|report| report.max_depth).max();
        // The last full packets find all others of n senders but what the link has taken since the first came.
        let arrived = u64::from(n) * packets(bytes).len() as u64;
        assert!(
            deepest < Some(arrived * FULL)
                && deepest > Some((arrived - 30) * FULL * 9 / 10 * (u64::from(n) - 1) / u64::from(n))
        );
    }
}

/// Two flows from one NIC take turns: each gets half until the shorter has ended.
#[test]
fn two_queue_pairs_share_their_nic() {
    let topology = star(3, 400, 200_000);
    let mut engine = engine(&topology, crate::common::even_packets(), line_rate());
    let (short, long) = (10 * PAYLOAD, 30 * PAYLOAD);
    send(&mut engine, 0, 0, 1, short, 1);
    send(&mut engine, 0, 0, 2, long, 2);
    let done = drain(&mut engine);
    let behind = CABLE + FULL * PS + CABLE;
    // The first was asked alone and has its next turn already when the second comes: a a b a b …, so that its tenth
    // packet is number 18 on the wire.
    assert_eq!((done[0].token, done[0].at), (1, Time::from_ps(18 * FULL * PS + behind)));
    assert_eq!((done[1].token, done[1].at), (2, Time::from_ps(40 * FULL * PS + behind)));
}

/// Two flows from different hosts meet at one egress port: packets alternate as they come.
#[test]
fn two_flows_share_a_link() {
    let topology = star(3, 400, 200_000);
    let mut engine = engine(&topology, crate::common::even_packets(), line_rate());
    let bytes = 50 * PAYLOAD;
    send(&mut engine, 0, 1, 0, bytes, 1);
    send(&mut engine, 0, 2, 0, bytes, 2);
    let done = drain(&mut engine);
    let first = FULL * PS + CABLE;
    assert_eq!((done[0].token, done[0].at), (1, Time::from_ps(first + 99 * FULL * PS + CABLE)));
    assert_eq!((done[1].token, done[1].at), (2, Time::from_ps(first + 100 * FULL * PS + CABLE)));
}

/// With W bytes in flight and a round trip R the rate is W / R: packets leave in rounds of W, one round a round trip.
#[test]
fn a_window_limits_throughput() {
    let topology = star(2, 400, 50_000_000);
    let cable = 250_000_000;
    for ack_every in [1, 4] {
        let settings = PacketSettings { ack_every, ..crate::common::even_packets() };
        let window = 480 * FULL;
        let mut engine = engine(&topology, settings, NoTransport { window, ..line_rate() });
        let rounds = 10;
        send(&mut engine, 0, 0, 1, rounds * 480 * PAYLOAD, 0);
        let done = drain(&mut engine);
        // A round begins with the acknowledgement of the first `ack_every` packets of the one before.
        let there = 2 * cable + FULL * PS * 2;
        let round_trip = there + u64::from(ack_every - 1) * FULL * PS + 2 * cable + 2 * HEADER * PS;
        let expected = (rounds - 1) * round_trip + 479 * FULL * PS + there;
        assert_eq!(done[0].at, Time::from_ps(expected), "one acknowledgement for {ack_every}");
        // 2 MB in flight over 1 ms is 16 Gbps.
        if ack_every == 1 {
            let rate = (window * 8) as f64 / (round_trip as f64 * 1e-12);
            assert!((rate / 16e9 - 1.0).abs() < 0.01, "{rate}");
        }
    }
}

/// An acknowledgement overtakes the data that waits at its port, but not the packet in service.
#[test]
fn control_packets_go_before_data() {
    // Hosts 1 and 2 keep the port to host 0 busy; host 0 sends one packet more than its window to host 1.
    let (cable, packet) = (10_000_000, FULL * PS);
    let settings = PacketSettings { ack_every: 1, ..crate::common::even_packets() };
    let mut engine =
        engine(&star(3, 400, 2_000_000), settings, NoTransport { window: 400 * FULL, ..line_rate() });
    send(&mut engine, 0, 1, 0, 400 * PAYLOAD, 1);
    send(&mut engine, 0, 2, 0, 400 * PAYLOAD, 2);
    send(&mut engine, 0, 0, 1, 401 * PAYLOAD, 3);
    let done = drain(&mut engine);
    // Both ports on the way of the first acknowledgement are busy without pause from `since` on.
    let waits = |at: u64, since: u64| since + (at - since).div_ceil(packet) * packet;
    let first = 2 * (packet + cable);
    let at_switch = waits(first, 0) + HEADER * PS + cable;
    let back = waits(at_switch, packet + cable) + HEADER * PS + cable;
    let last = done.iter().find(|done| done.token == 3).map(|done| done.at);
    assert_eq!(last, Some(Time::from_ps(back + 2 * (packet + cable))));
}

/// With one port in use a switch holds x bytes until x = α (B - x): nothing is lost below, the excess above.
#[test]
fn the_shared_buffer_drops_what_it_cannot_hold() {
    let n = 4;
    let bytes = 100 * PAYLOAD;
    let run = |size: u64| {
        let buffers = vec![BufferSettings { size: Bytes::new(size), alpha: 1.0, reserve: Bytes::ZERO }];
        let mut engine = engine(
            &star(n + 1, 400, 200_000),
            PacketSettings { buffers, ..crate::common::even_packets() },
            line_rate(),
        );
        for from in 1..=n {
            send(&mut engine, 0, from, 0, bytes, u64::from(from));
        }
        let mut done = Vec::new();
        engine.run(Time::NEVER, u64::MAX, &mut done);
        while engine.next_time() != Time::NEVER {
            engine.run(Time::NEVER, u64::MAX, &mut done);
        }
        let deepest = engine.port_reports().iter().map(|report| report.max_depth).max().unwrap_or(0);
        (engine.totals().drops, deepest, done.len())
    };
    let (drops, deepest, done) = run(1 << 30);
    assert_eq!((drops, done), (0, n as usize));
    // α = 1 lets a lone port take half of the buffer.
    assert_eq!(run(2 * deepest).0, 0);
    let (drops, held, done) = run(2 * deepest - 2 * FULL);
    assert!(drops > 0 && held <= deepest - FULL && done < n as usize, "{drops} {held} {done}");
}

/// What is lost is sent again, by both kinds of recovery, and every message arrives.
#[test]
fn losses_are_mended() {
    let buffers = vec![BufferSettings { size: Bytes::new(200_000), alpha: 1.0, reserve: Bytes::ZERO }];
    for recovery in [Recovery::GoBackN, Recovery::Selective { reorder: 3 }] {
        let settings = PacketSettings { buffers: buffers.clone(), ..crate::common::even_packets() };
        let transport = Dctcp { recovery, timeout: Span::from_us(200), ..Dctcp::default() };
        let mut engine = engine(&star(9, 400, 200_000), settings, transport);
        for from in 1..9 {
            send(&mut engine, 0, from, 0, 1_000_000, u64::from(from));
        }
        let done = drain(&mut engine);
        let totals = engine.totals();
        assert_eq!((done.len(), totals.bytes_delivered), (8, 8_000_000), "{recovery:?}");
        assert!(totals.drops > 0 && totals.retransmissions >= totals.drops, "{recovery:?} {totals:?}");
    }
}

/// Messages of one queue pair arrive in order; many of them reuse what few need.
#[test]
fn queue_pairs_keep_order_and_places_are_used_again() {
    let settings =
        PacketSettings { balancer: Balancer::Spray { paths: 16 }, ..crate::common::even_packets() };
    let mut engine = engine(&fat_tree(4), settings, Nscc::default());
    let pair = engine.open(&OpenRequest { from: 0, to: 13, entropy: 0, keep: true, route: [&[], &[]] });
    for token in 0..50 {
        engine.send(Time::from_ps(token * 1_000), pair, Bytes::new(1 + token * 777), token);
    }
    let done = drain(&mut engine);
    assert!(done.iter().map(|done| done.token).eq(0..50));
    for token in 0..100 {
        let now = engine.now().ps();
        send(&mut engine, now, 1, 14, 10_000, token);
        assert_eq!(drain(&mut engine).len(), 1);
    }
    assert_eq!(engine.places(), 2, "one that stays open, and one for all that are used once");
}

/// Marks keep a DCTCP queue near its threshold without loss.
#[test]
fn dctcp_holds_the_queue_at_the_threshold() {
    let rate = BitRate::from_gbps(400);
    let k = Bytes::new(200_000);
    for at in [MarkAt::Enqueue, MarkAt::Dequeue] {
        let ecn = Some(EcnSettings { rate, kmin: k, kmax: k, pmax: 1.0, at });
        let mut engine = engine(
            &star(5, 400, 200_000),
            PacketSettings { ecn, ..crate::common::even_packets() },
            Dctcp::default(),
        );
        for from in 1..5 {
            send(&mut engine, 0, from, 0, 40_000_000, u64::from(from));
        }
        let done = drain(&mut engine);
        let (total, _) = on_wire(40_000_000);
        let ideal = (4 * total) as f64;
        let last = done.last().map_or(0, |done| done.at.ps()) as f64;
        assert!(last < ideal * 1.02, "{at:?}: the link stays busy: {last} of {ideal}");
        let reports = engine.port_reports();
        let hot = reports.iter().max_by(|a, b| a.mean_depth.total_cmp(&b.mean_depth)).expect("a port");
        assert!(hot.marks > 0 && (0.5..1.5).contains(&(hot.mean_depth / 200_000.0)), "{at:?}: {hot:?}");
    }
}

/// A link loses packets at random: the share lies within the 99.9% interval, and both ends recover.
#[test]
fn links_lose_the_share_that_they_are_said_to() {
    let rate = BitRate::from_gbps(400);
    let loss = 0.01;
    let direct = DirectSpec { nic: CableSpec { rate, length_mm: 0, loss }, ..DirectSpec::new(rate) };
    let cable = CableSpec::new(rate);
    let spec = TopologySpec::Torus(TorusSpec {
        direct,
        dimensions: vec![Dimension { size: 2, wrap: false, links: 1, cable }],
        routing: TorusRouting::DimensionOrder,
    });
    let topology = Arc::new(Topology::new(&spec).expect("two routers"));
    for recovery in [Recovery::GoBackN, Recovery::Selective { reorder: 3 }] {
        let transport = NoTransport { window: 50 * FULL, recovery, timeout: Span::from_us(20) };
        let mut engine = engine(&topology, crate::common::even_packets(), transport);
        send(&mut engine, 0, 0, 1, 20_000 * PAYLOAD, 0);
        assert_eq!(drain(&mut engine).len(), 1);
        let totals = engine.totals();
        // Two of the three links lose, data and acknowledgements alike.
        let (data, control) = engine.packet_hops();
        let tries = (data + control) as f64 * 2.0 / 3.0;
        let deviation = (tries * loss * (1.0 - loss)).sqrt();
        let error = totals.drops as f64 - tries * loss;
        assert!(error.abs() < 3.5 * deviation, "{recovery:?}: {totals:?} of {tries}");
        assert!(totals.retransmissions > 0 && totals.data_packets >= 20_000);
    }
}
