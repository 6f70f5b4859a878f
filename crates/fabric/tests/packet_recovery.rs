//! What is sent again was lost: on a path that keeps packets in order, each packet arrives once, however often receivers
//! acknowledge.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{
    Cubic, Dcqcn, Dctcp, Hpcc, MpRdma, NewReno, NoTransport, Recovery, Swift, Transport,
};
use windtunnel_fabric::packet::{Counters, Engine, OpenRequest, PacketSettings};
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
    let settings = PacketSettings { ack_every, telemetry, seed: 7, ..PacketSettings::default() };
    let mut engine = Engine::new(topology.clone(), settings, transport).expect("settings that work");
    let flow = engine.open(&OpenRequest { from: 0, to: 1, entropy: 0, keep: false, route: [&[], &[]] });
    engine.send(Time::ZERO, flow, Bytes(packets * PAYLOAD), 0);
    let mut done = Vec::new();
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, 1 << 20, &mut done);
    }
    (engine.totals(), done[0].at)
}

/// Losses of data and of acknowledgements, 1 to 60 on the way: no packet arrives twice but after a time-out.
fn arrives_once<T: Transport + Clone>(name: &str, telemetry: bool, transport: T) {
    for (loss, length_mm, packets) in
        [(1e-3, 1_000_000, 30_000), (1e-3, 100_000_000, 20_000), (1e-2, 10_000_000, 3_000)]
    {
        let topology = lossy(loss, length_mm);
        for ack_every in [1, 2, 4, 16, 48] {
            let (totals, _) = one(&topology, ack_every, telemetry, transport.clone(), packets);
            let lost = packets + totals.retransmissions - totals.data_packets;
            assert!(lost > packets * (loss * 500.0) as u64 / 1_000, "{name} {ack_every}: {totals:?}");
            assert!(
                totals.retransmissions - lost <= totals.timeouts * 64,
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
    arrives_once("newreno", false, NewReno::default());
    arrives_once("cubic", false, Cubic::default());
    arrives_once("dcqcn", false, Dcqcn { recovery: SELECTIVE, timeout, ..Dcqcn::default() });
    arrives_once("hpcc", true, Hpcc { recovery: SELECTIVE, timeout, ..Hpcc::default() });
}

/// A window that heeds losses fills a lossy path alike however often it hears: half a window is given up per loss, so the
/// rate is that of the square root of the losses (Mathis et al., CCR 1997).
#[test]
fn throughput_under_loss_does_not_depend_on_how_often_receivers_answer() {
    let topology = lossy(1e-4, 20_000_000);
    let times = |ack_every| {
        let transport = Dctcp { timeout: Span::from_us(20_000), ..Dctcp::default() };
        one(&topology, ack_every, false, transport, 60_000).1.0 as f64
    };
    let each = times(1);
    for ack_every in [4, 16] {
        let ratio = times(ack_every) / each;
        assert!((0.8..1.25).contains(&ratio), "ack_every {ack_every}: {ratio} of the time with 1");
    }
}
