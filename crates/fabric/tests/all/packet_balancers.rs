//! Balancers against closed forms and properties: who shares what, what is held out of order, what a slow path costs.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{Dctcp, MpRdma, NoTransport, Nscc, Recovery, Transport};
use windtunnel_fabric::packet::{
    Balancer, EcnSettings, Engine, MarkAt, OpenRequest, PacketSettings, PortReport,
};
use windtunnel_kernel::{BitRate, Bytes, RandomStream, Span, Time};
use windtunnel_topology::{ClosSpec, LinkId, SwitchId, Topology, TopologySpec};

use crate::packets::{drain, engine, send, send_on, two_leaves};

const PAYLOAD: u64 = 4_096;

fn rate() -> BitRate {
    BitRate::from_gbps(400)
}

fn fat_tree(k: u32) -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(k, rate());
    for tier in &mut spec.tiers {
        tier.length_mm = 200_000;
    }
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

fn ecn() -> EcnSettings {
    EcnSettings {
        rate: rate(),
        kmin: Bytes::new(100_000),
        kmax: Bytes::new(400_000),
        pmax: 1.0,
        at: MarkAt::Enqueue,
    }
}

fn settings(balancer: Balancer) -> PacketSettings {
    PacketSettings { balancer, ecn: Some(ecn()), ..crate::common::even_packets() }
}

/// Reports of the links up from leaves.
fn up<T: Transport>(topology: &Topology, engine: &Engine<T>) -> Vec<PortReport> {
    let links: Vec<LinkId> = (0..topology.switches())
        .filter(|&switch| topology.tier(SwitchId(switch)) == 0)
        .flat_map(|switch| (0..topology.ports(SwitchId(switch))).map(move |port| (switch, port)))
        .filter_map(|(switch, port)| topology.out_link(SwitchId(switch), port))
        .filter(|&link| topology.link(link).tier.name().ends_with("-up"))
        .collect();
    engine.port_reports().into_iter().filter(|report| links.contains(&report.link)).collect()
}

/// n hosts at line rate over n cables: every instant brings n packets, and each finds a free cable. All cables carry the
/// same, nothing waits, and everybody is done after the time of an empty fabric.
#[test]
fn adaptive_spreads_evenly_where_all_is_symmetric() {
    let (n, bytes) = (8, 1_000 * PAYLOAD);
    let topology = two_leaves(n, n);
    let mut engine = engine(
        &topology,
        PacketSettings { ack_every: 0, ..settings(Balancer::Adaptive) },
        NoTransport::default(),
    );
    for host in 0..n {
        send_on(&mut engine, 0, host, n + host, bytes);
    }
    let done = drain(&mut engine);
    let reports = up(&topology, &engine);
    assert_eq!(reports.len(), n as usize);
    for report in &reports {
        assert_eq!((report.data_packets, report.queueing), (1_000, Span::ZERO), "{report:?}");
    }
    assert_eq!(done.len(), n as usize);
    // With ECMP some cable carries more than one flow.
    let mut engine = self::engine(
        &topology,
        PacketSettings { ack_every: 0, ..settings(Balancer::Ecmp) },
        NoTransport::default(),
    );
    for host in 0..n {
        send_on(&mut engine, 0, host, n + host, bytes);
    }
    let later = drain(&mut engine);
    assert!(up(&topology, &engine).iter().any(|report| report.data_packets >= 2_000));
    assert!(later.iter().map(|done| done.at).max() > done.iter().map(|done| done.at).max());
}

/// Packets of one port take the cables in turn: of any number each cable carries as many, to one, and what comes by another port has
/// turns of its own.
#[test]
fn round_robin_takes_the_cables_in_turn() {
    let topology = two_leaves(3, 8);
    for (senders, packets) in [(1_u32, 83_u64), (3, 40)] {
        let settings = PacketSettings { ack_every: 0, ..settings(Balancer::RoundRobin) };
        let mut engine = engine(&topology, settings, NoTransport::default());
        for host in 0..senders {
            send_on(&mut engine, 0, host, 3 + host, packets * PAYLOAD);
        }
        assert_eq!(drain(&mut engine).len(), senders as usize);
        let carried: Vec<u64> = up(&topology, &engine).iter().map(|report| report.data_packets).collect();
        assert_eq!((carried.len(), carried.iter().sum::<u64>()), (8, u64::from(senders) * packets));
        let most = if senders == 1 { 11 } else { 15 };
        assert!(carried.iter().all(|&found| (10..=most).contains(&found)), "{carried:?}");
    }
}

/// A burst that meets cables with other packets goes where the least waits: 3 cables that hold 0, 1 and 2 packets and 6
/// packets at once end with 3 each.
#[test]
fn adaptive_fills_the_shortest_queue_first() {
    let topology = two_leaves(6, 3);
    let mut engine = engine(
        &topology,
        PacketSettings { ack_every: 0, ..settings(Balancer::Adaptive) },
        NoTransport::default(),
    );
    // Nine hosts' worth of packets at once from six NICs, one each, then as many again: 12 over 3 cables.
    for host in 0..6 {
        send_on(&mut engine, 0, host, 6 + host, 2 * PAYLOAD);
    }
    drain(&mut engine);
    for report in up(&topology, &engine) {
        assert_eq!(report.data_packets, 4, "{report:?}");
        assert!(report.max_depth <= 3 * 4_160, "{report:?}");
    }
}

/// Packets in a row are one flowlet and keep their path, whatever it holds; after a pause another path may be drawn, and
/// over many pauses all are.
#[test]
fn flowlets_stay_together_and_pauses_part_them() {
    let (gap, up_links) = (Span::from_us(5), 8);
    let topology = two_leaves(8, up_links);
    let run = |pause: u64| {
        let mut engine = engine(
            &topology,
            PacketSettings { ack_every: 0, ..settings(Balancer::Flowlet { gap }) },
            NoTransport::default(),
        );
        let request = OpenRequest { from: 0, to: 9, entropy: 0, keep: true, route: [&[], &[]] };
        let flow = engine.open(&request);
        // 83.2 ns a packet.
        for burst in 0..64 {
            engine.send(Time::from_ps(burst * (10 * 83_200 + pause)), flow, Bytes::new(10 * PAYLOAD), burst);
        }
        drain(&mut engine);
        let packets: Vec<u64> = up(&topology, &engine).iter().map(|report| report.data_packets).collect();
        assert_eq!(packets.iter().sum::<u64>(), 640);
        packets
    };
    assert_eq!(run(4_900_000).len(), 1, "no pause exceeds the gap");
    let parted = run(5_000_000);
    assert!(parted.len() >= 6, "64 draws of 8: {parted:?}");
    assert!(parted.iter().all(|packets| packets % 10 == 0), "bursts stay whole: {parted:?}");
}

/// One of four spines runs at a quarter of its rate: spraying sends it a quarter of all packets and waits for it, REPS
/// finds that they come back marked and takes the other paths, and so does the adaptive switch.
#[test]
fn reps_avoids_a_slow_path() {
    let topology = two_leaves(4, 4);
    let bytes = 8_000_000;
    let finish = |balancer: Balancer| {
        let spine = |link: &LinkId| {
            let (from, to) = topology.link_ends(*link);
            let at = |node| matches!(node, windtunnel_topology::Node::Switch(switch) if switch.0 == topology.switches() - 1);
            at(from) || at(to)
        };
        let slow_links: Vec<(LinkId, f64)> =
            (0..topology.link_count() as u32).map(LinkId).filter(spine).map(|link| (link, 0.25)).collect();
        assert_eq!(slow_links.len(), 4);
        let settings = PacketSettings { slow_links, ack_every: 1, ..settings(balancer) };
        let mut engine = engine(&topology, settings, MpRdma::default());
        for host in 0..4 {
            send_on(&mut engine, 0, host, 4 + host, bytes);
        }
        let done = drain(&mut engine);
        let slow: u64 = up(&topology, &engine)
            .iter()
            .filter(|report| spine(&report.link))
            .map(|report| report.data_packets)
            .sum();
        let last = done.iter().map(|done| done.at.ps()).max().expect("completions");
        (last, slow as f64 / (4.0 * bytes.div_ceil(PAYLOAD) as f64))
    };
    let spray = finish(Balancer::Spray { paths: 64 });
    let reps = finish(Balancer::Reps { paths: 64 });
    let adaptive = finish(Balancer::Adaptive);
    println!("spray {spray:?}, REPS {reps:?}, adaptive {adaptive:?}");
    assert!((spray.1 - 0.25).abs() < 0.05, "{spray:?}");
    assert!(reps.1 < 0.15 && reps.0 < spray.0 * 8 / 10, "REPS {reps:?}, spray {spray:?}");
    assert!(adaptive.1 < 0.15 && adaptive.0 < spray.0 * 8 / 10, "adaptive {adaptive:?}, spray {spray:?}");
}

/// A limit of packets in flight is a window: with N packets of P bytes on an idle path of round trip R, N P / R.
#[test]
fn a_limit_of_packets_is_a_window() {
    let topology = two_leaves(2, 2);
    let settings = PacketSettings {
        in_flight: 16,
        ack_every: 1,
        balancer: Balancer::Spray { paths: 1 },
        ..crate::common::even_packets()
    };
    let mut engine =
        engine(&topology, settings, NoTransport { recovery: Recovery::None, ..NoTransport::default() });
    let packets = 1_600;
    send_on(&mut engine, 0, 0, 2, packets * PAYLOAD);
    let done = drain(&mut engine);
    // Four links of 1 µs there and back, a full packet over each and an acknowledgement of 64 B over each.
    let rtt = 8 * 1_000_000 + 4 * 4_160 * 20 + 4 * 64 * 20;
    let rounds = packets / 16;
    let last = 15 * 4_160 * 20 + 4 * (1_000_000 + 4_160 * 20);
    assert_eq!(done[0].at, Time::from_ps((rounds - 1) * rtt + last));
}

/// Spraying over paths of unequal length puts packets out of order, never more than what may be in flight; one path none.
#[test]
fn reorder_buffers_are_observed_and_bounded() {
    let topology = fat_tree(4);
    let run = |balancer: Balancer, in_flight: u32| {
        let settings = PacketSettings { in_flight, ..settings(balancer) };
        let mut engine = engine(&topology, settings, Nscc::default());
        let order = RandomStream::new(3, "permutation", 0).permutation(16);
        for (&from, &to) in order.iter().zip(order.iter().cycle().skip(1)) {
            send_on(&mut engine, 0, from, to, 500 * PAYLOAD);
        }
        drain(&mut engine);
        engine.reordering()
    };
    let one = run(Balancer::Ecmp, u32::MAX);
    assert_eq!((one.most_packets, one.queue_pairs[0], one.percentile(100)), (0, 16, 0));
    let many = run(Balancer::Spray { paths: 64 }, u32::MAX);
    assert!(many.most_packets > 1 && many.most_bytes == many.most_packets * 4_160, "{many:?}");
    assert_eq!(many.queue_pairs.iter().sum::<u64>(), 16);
    let few = run(Balancer::Spray { paths: 64 }, 8);
    assert!(few.most_packets < 8, "{few:?}");
}

/// Whatever the balancer, everything arrives, and the same run gives the same times.
#[test]
fn balancers_deliver_everything_and_repeat_themselves() {
    let topology = fat_tree(4);
    for balancer in [
        Balancer::Flowlet { gap: Span::from_ns(500) },
        Balancer::Adaptive,
        Balancer::RoundRobin,
        Balancer::Reps { paths: 64 },
        Balancer::Spray { paths: 16 },
    ] {
        let run = || {
            let mut engine = engine(&topology, settings(balancer), Dctcp::default());
            for from in 0..16 {
                send_on(&mut engine, 0, from, (from + 5) % 16, 300_000);
            }
            let done = drain(&mut engine);
            assert_eq!(done.len(), 16, "{balancer:?}");
            done
        };
        assert_eq!(run(), run(), "{balancer:?}");
    }
}

/// Queue pairs of one pair of NICs have entropies of their own, and so have their acknowledgements: both take all uplinks, each about
/// as often as a draw would, and not the same on both ways.
#[test]
fn queue_pairs_of_one_pair_spread_on_the_way_back_too() {
    let (spines, pairs) = (8, 256_u64);
    let topology = two_leaves(1, spines);
    let settings = PacketSettings { ack_every: 1, ..crate::common::even_packets() };
    let mut engine = engine(&topology, settings, NoTransport::default());
    for token in 0..pairs {
        send(&mut engine, 0, 0, 1, PAYLOAD, token);
    }
    drain(&mut engine);
    let reports = up(&topology, &engine);
    let (there, back): (Vec<u64>, Vec<u64>) =
        reports.iter().map(|report| (report.data_packets, report.control_packets)).unzip();
    for counts in [&there, &back] {
        let used: Vec<u64> = counts.iter().copied().filter(|&count| count > 0).collect();
        assert_eq!((used.len(), used.iter().sum::<u64>()), (spines as usize, pairs), "{reports:?}");
        // 32 expected, standard deviation 5.3.
        assert!(used.iter().all(|count| (10..60).contains(count)), "{used:?}");
    }
}
