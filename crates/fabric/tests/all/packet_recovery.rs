//! What is sent again was lost: on a path that keeps packets in order, each packet arrives once, however often receivers
//! acknowledge.

use std::sync::Arc;

use crate::packets::{drain, send, star};
use windtunnel_fabric::packet::transport::{
    Bbr, Cubic, Dcqcn, Dctcp, Hpcc, MpRdma, NewReno, NoTransport, Nscc, Recovery, Swift, Transport,
};
use windtunnel_fabric::packet::{BufferSettings, Counters, Engine, OpenRequest, PacketSettings};
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{
    CableSpec, Dimension, DirectSpec, Topology, TopologySpec, TorusRouting, TorusSpec,
};

const PAYLOAD: u64 = 4_096;

/// Two hosts, each on a router, whose cable loses `loss` of all packets each way.
fn lossy(loss: f64, length_mm: u64) -> Arc<Topology> {
    let rate = BitRate::from_gbps(100);
    let cable = CableSpec { rate, length_mm, loss };
    let dimension = Dimension { size: 2, wrap: false, links: 1, cable };
    let direct = DirectSpec::new(rate);
    let spec = TorusSpec { direct, dimensions: vec![dimension], routing: TorusRouting::DimensionOrder };
    Arc::new(Topology::new(&TopologySpec::Torus(spec)).expect("two routers"))
}

/// One message of `packets` packets; what was counted, and when the last byte arrived.
fn one<T: Transport>(
    topology: &Arc<Topology>,
    ack_every: u32,
    telemetry: bool,
    transport: T,
    packets: u64,
) -> (Counters, Time) {
    let settings = PacketSettings { ack_every, telemetry, seed: 7, ..crate::common::even_packets() };
    let mut engine = Engine::new(topology.clone(), settings, transport).expect("settings that work");
    let flow = engine.open(&OpenRequest { from: 0, to: 1, entropy: 0, keep: false, route: [&[], &[]] });
    engine.send(Time::ZERO, flow, Bytes::new(packets * PAYLOAD), 0);
    let mut done = Vec::new();
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, 1 << 20, &mut done);
    }
    (engine.totals(), done[0].at)
}

/// Losses of data and of acknowledgements, 1 to 60 on the way: no packet arrives twice but after a time-out. An acknowledgement that is
/// lost has told of up to 64 packets, and the next one tells of them again.
fn arrives_once<T: Transport + Clone>(name: &str, telemetry: bool, transport: T) {
    for (loss, length_mm, packets) in
        [(1e-3, 1_000_000, 30_000), (1e-3, 100_000_000, 20_000), (1e-2, 10_000_000, 3_000)]
    {
        let topology = lossy(loss, length_mm);
        for ack_every in [1, 2, 4, 16, 48, 64] {
            let (totals, _) = one(&topology, ack_every, telemetry, transport.clone(), packets);
            let lost = packets + totals.retransmissions - totals.data_packets;
            assert!(lost > packets * (loss * 500.0) as u64 / 1_000, "{name} {ack_every}: {totals:?}");
            let vain = totals.retransmissions - lost;
            assert!(
                vain <= totals.timeouts * 64,
                "{name}, ack_every {ack_every}, {length_mm} mm: {lost} lost, {totals:?}"
            );
            if totals.timeouts == 0 {
                assert_eq!(totals.retransmissions, lost, "{name}, ack_every {ack_every}: {totals:?}");
            }
        }
    }
}

const SELECTIVE: Recovery = Recovery::Selective { reorder: 3 };

#[test]
fn what_is_sent_again_was_lost() {
    let timeout = Span::from_us(20_000);
    arrives_once("none", false, NoTransport { recovery: SELECTIVE, timeout, ..NoTransport::default() });
    arrives_once("dctcp", false, Dctcp { timeout, ..Dctcp::default() });
    arrives_once("swift", false, Swift { timeout, ..Swift::default() });
    arrives_once("mprdma", false, MpRdma { timeout, ..MpRdma::default() });
    arrives_once("newreno", false, NewReno { recovery: SELECTIVE, ..NewReno::default() });
    arrives_once("cubic", false, Cubic { recovery: SELECTIVE, ..Cubic::default() });
    arrives_once("bbr", false, Bbr { recovery: SELECTIVE, ..Bbr::default() });
    arrives_once("dcqcn", false, Dcqcn { recovery: SELECTIVE, timeout, ..Dcqcn::default() });
    arrives_once("hpcc", true, Hpcc { recovery: SELECTIVE, timeout, ..Hpcc::default() });
}

/// Losses by time, of every law that may have them: on one path what is sent again was lost, and what is lost again is found too.
#[test]
fn by_time_too_what_is_sent_again_was_lost() {
    let (recovery, timeout) = (Recovery::Rack, Span::from_us(20_000));
    arrives_once("none", false, NoTransport { recovery, timeout, ..NoTransport::default() });
    arrives_once("dctcp", false, Dctcp { recovery, timeout, ..Dctcp::default() });
    arrives_once("swift", false, Swift { recovery, timeout, ..Swift::default() });
    arrives_once("newreno", false, NewReno { recovery, ..NewReno::default() });
    arrives_once("cubic", false, Cubic { recovery, ..Cubic::default() });
    arrives_once("bbr", false, Bbr { recovery, ..Bbr::default() });
    arrives_once("mprdma", false, MpRdma { recovery, timeout, ..MpRdma::default() });
    arrives_once("dcqcn", false, Dcqcn { recovery, timeout, ..Dcqcn::default() });
    arrives_once("hpcc", true, Hpcc { recovery, timeout, ..Hpcc::default() });
    arrives_once("uec", false, Nscc { recovery, timeout, ..Nscc::default() });
}

/// Under random loss each law is as fast as it should be, and alike however often receivers answer. A window that gives up half per
/// loss and grows by a packet per round trip takes the square-root law's time (Mathis et al., CCR 1997: sqrt(3/2p) packets a round
/// trip, 122 at 1 in 10,000); cubic windows grow faster, and what heeds no losses loses nothing by them. There are 30 losses, so
/// a law's time is within 40% of that.
#[test]
fn throughput_under_loss_does_not_depend_on_how_often_receivers_answer() {
    const PACKETS: u64 = 300_000;
    const LOSS: f64 = 1e-4;
    let topology = lossy(LOSS, 100_000_000);
    // Over 100 km a round trip is a millisecond.
    let by_law = PACKETS as f64 / (1.5 / LOSS).sqrt() * 1e9;
    let at_line_rate = PACKETS as f64 * 4_160.0 * 8.0 / 0.1;
    fn alike<T: Transport + Clone>(topology: &Arc<Topology>, name: &str, transport: T, expected: f64) {
        let time =
            |ack_every| one(topology, ack_every, name == "hpcc", transport.clone(), PACKETS).1.ps() as f64;
        for ack_every in [1, 4, 16] {
            let ratio = time(ack_every) / expected;
            assert!(
                (0.6..1.4).contains(&ratio),
                "{name}, ack_every {ack_every}: {ratio} of the time of its law"
            );
        }
    }
    let (recovery, timeout) = (SELECTIVE, Span::from_us(20_000));
    alike(&topology, "dctcp", Dctcp { recovery, timeout, ..Dctcp::default() }, by_law);
    alike(&topology, "swift", Swift { recovery, timeout, ..Swift::default() }, by_law);
    alike(&topology, "mprdma", MpRdma { recovery, timeout, ..MpRdma::default() }, by_law);
    alike(&topology, "newreno", NewReno { recovery, ..NewReno::default() }, by_law);
    alike(&topology, "cubic", Cubic { recovery, ..Cubic::default() }, 0.6 * by_law);
    alike(&topology, "dcqcn", Dcqcn { recovery, timeout, ..Dcqcn::default() }, at_line_rate);
    alike(&topology, "hpcc", Hpcc { recovery, timeout, ..Hpcc::default() }, at_line_rate);
}

/// Where its window fills the path all the same, a message takes as long however often receivers answer.
#[test]
fn a_full_path_under_loss_does_not_depend_on_how_often_receivers_answer() {
    let topology = lossy(1e-4, 20_000_000);
    let times = |ack_every| {
        let transport = Dctcp { timeout: Span::from_us(20_000), ..Dctcp::default() };
        one(&topology, ack_every, false, transport, 60_000).1.ps() as f64
    };
    let each = times(1);
    for ack_every in [4, 16] {
        let ratio = times(ack_every) / each;
        assert!((0.8..1.25).contains(&ratio), "ack_every {ack_every}: {ratio} of the time with 1");
    }
}

/// What a receiver of go-back-N discards was not received: a sender has a window of packets on the way in every round trip in which
/// it does not wait for a time-out of 20, neither fewer nor more.
#[test]
fn what_is_discarded_leaves_no_room_in_the_window() {
    const WINDOW: u64 = 20;
    let transport =
        NoTransport { window: WINDOW * 4_160, recovery: Recovery::GoBackN, timeout: Span::from_us(20_000) };
    let packets = 6_000;
    let (totals, end) = one(&lossy(1e-2, 100_000_000), 1, false, transport, packets);
    let sent = packets + totals.retransmissions;
    let rounds = end.ps().div_ceil(1_000_000_000);
    assert!(totals.retransmissions > packets / 10, "{totals:?}");
    let busy = rounds - 21 * totals.timeouts;
    assert!(sent <= WINDOW * (rounds + 1), "{sent} packets in {rounds} round trips of {WINDOW}");
    assert!(10 * sent >= 9 * WINDOW * busy, "{sent} packets in {busy} round trips of {WINDOW}");
}

/// Ends of ten messages of 400 packets over one queue pair with a window of 20, on a star on which 30 more hosts have sent 20 packets
/// each to the same host if `crowded`: its first packets wait for 200 µs there, and its time-out is 60 µs.
fn ends(recovery: Recovery, crowded: bool) -> (Counters, Vec<Time>) {
    let transport = NoTransport { window: 20 * 4_160, recovery, timeout: Span::from_us(60) };
    let settings = PacketSettings { ack_every: 1, ..crate::common::even_packets() };
    let mut engine = Engine::new(star(32, 100, 400_000), settings, transport).expect("settings that work");
    let flow = engine.open(&OpenRequest { from: 1, to: 0, entropy: 0, keep: true, route: [&[], &[]] });
    (0..10).for_each(|_| engine.send(Time::from_ps(8_000_000), flow, Bytes::new(400 * PAYLOAD), 1));
    for from in (2..32).filter(|_| crowded) {
        let flow = engine.open(&OpenRequest { from, to: 0, entropy: from, keep: false, route: [&[], &[]] });
        engine.send(Time::ZERO, flow, Bytes::new(20 * PAYLOAD), 0);
    }
    let mut done = Vec::new();
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, 1 << 20, &mut done);
    }
    (engine.totals(), done.iter().filter(|done| done.token == 1).map(|done| done.at).collect())
}

/// What was taken for lost and arrived after all is in flight no more, but was: after time-outs in vain a window is as large as before.
#[test]
fn a_time_out_in_vain_leaves_no_room_in_the_window() {
    for recovery in
        [SELECTIVE, Recovery::Selective { reorder: 64 }, Recovery::TIMER, Recovery::Rack, Recovery::GoBackN]
    {
        let (calm, alone) = ends(recovery, false);
        let (totals, crowded) = ends(recovery, true);
        assert_eq!((calm.retransmissions, totals.drops), (0, 0), "{recovery:?}: {calm:?}");
        assert!(totals.timeouts > 0 && totals.retransmissions > 20, "{recovery:?}: {totals:?}");
        let last = |ends: &[Time]| ends[9].since(ends[8]).ps() as f64;
        let ratio = last(&crowded) / last(&alone);
        assert!((ratio - 1.0).abs() < 0.02, "{recovery:?}: the last message takes {ratio} of its time alone");
    }
}

/// 100 Gbps, a round trip of 1 ms, a buffer of one bandwidth–delay product: of two flows of 1 GB the second comes after 10 ms and loses some
/// thousand packets at once as its slow start meets a full queue, which the first keeps full, packet by packet, to its end at 94 ms.
/// However often it times out meanwhile, it goes on from half (0.7) of what it had, not from two packets.
#[test]
fn a_newcomer_does_not_crawl_after_a_burst_of_drops() {
    fn run<T: Transport>(transport: T) -> (Counters, f64) {
        let buffer = BufferSettings { size: Bytes::new(12_500_000), alpha: 1024.0, reserve: Bytes::ZERO };
        let settings = PacketSettings { buffers: vec![buffer], ..crate::common::even_packets() };
        let mut engine =
            Engine::new(star(4, 100, 50_000_000), settings, transport).expect("settings that work");
        for (from, at) in [(0, 0), (1, 10)] {
            send(&mut engine, at * 1_000_000_000, from, 2, 1_000_000_000, u64::from(from));
        }
        let done = drain(&mut engine);
        (engine.totals(), done[1].at.since(done[1].start).seconds())
    }
    for recovery in [SELECTIVE, Recovery::Rack] {
        for (name, most, (totals, seconds)) in [
            ("newreno", 0.42, run(NewReno { recovery, ..NewReno::default() })),
            ("cubic", 0.37, run(Cubic { recovery, ..Cubic::default() })),
        ] {
            assert!(totals.drops > 1_000 && totals.timeouts > 2, "{name}: {totals:?}");
            assert!(totals.retransmissions < totals.drops * 102 / 100, "{name}: {totals:?}");
            // Both together need 0.17 s; from two packets on it takes 0.76.
            assert!(seconds < most, "{name}: {seconds} s");
        }
    }
}

/// A packet that is sent again and lost again holds up what came after it for a few time-outs of 200 µs, 600 packets each, and not to the end
/// of a message of 10 ms, however many other packets arrive meanwhile.
#[test]
fn what_is_lost_twice_is_found_while_others_arrive() {
    let transport =
        NoTransport { recovery: SELECTIVE, timeout: Span::from_us(200), ..NoTransport::default() };
    let settings = PacketSettings { seed: 7, ..crate::common::even_packets() };
    let mut engine = Engine::new(lossy(1e-2, 1_000_000), settings, transport).expect("settings that work");
    send(&mut engine, 0, 0, 1, 30_000 * PAYLOAD, 0);
    assert_eq!(drain(&mut engine).len(), 1);
    let (totals, held) = (engine.totals(), engine.reordering().most_packets);
    assert!(totals.timeouts > 0 && held > 300, "something was lost twice: {held} held, {totals:?}");
    assert!(held < 4 * 600, "{held} held, {totals:?}");
}
