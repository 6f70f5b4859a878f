//! A queue pair alone on its path: it reaches the rate that its transport means to send at, however few packets fill the path and
//! however many of them one acknowledgement answers.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{
    Cubic, Dcqcn, Dctcp, Endpoint, Eqds, Hpcc, MpRdma, Ndp, Need, NewReno, NoTransport, Nscc, Rccc, Swift,
    Transport,
};
use windtunnel_fabric::packet::{Balancer, Forwarding, OpenRequest, PacketSettings, TrimSettings};
use windtunnel_kernel::{BitRate, Bytes, Time};
use windtunnel_topology::{ClosSpec, HostSpec, Tier, Topology, TopologySpec};

use crate::packets::{drain, engine, star};

const PAYLOAD: u64 = 4_096;
const FULL: u64 = 4_160;

/// Two hosts, each on a leaf of its own, with a spine between them.
fn through_a_spine(gbps: u64, length_mm: u64) -> Arc<Topology> {
    let rate = BitRate::from_gbps(gbps);
    let far = |tier: Tier| Tier { length_mm, ..tier };
    let tiers = vec![far(Tier { oversubscription: 1.0, ..Tier::new(1, rate) }), far(Tier::new(2, rate))];
    let spec = ClosSpec::new(2, HostSpec::new(1, 1, rate), tiers);
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fabric"))
}

/// What a message of so many packets takes behind another on its queue pair, over what they take at `share` of the link's rate.
fn slowdown<T: Transport>(
    topology: &Arc<Topology>,
    settings: PacketSettings,
    transport: T,
    gbps: u64,
    share: f64,
) -> f64 {
    const PACKETS: u64 = 5_000;
    let mut engine = engine(topology, settings, transport);
    let pair = engine.open(&OpenRequest { from: 0, to: 1, entropy: 0, keep: true, route: [&[], &[]] });
    // The first warms the queue pair up: some begin with a window of few packets.
    for (packets, token) in [(2_000, 0), (PACKETS, 1)] {
        engine.send(Time::ZERO, pair, Bytes::new(packets * PAYLOAD), token);
    }
    let done = drain(&mut engine);
    let sent = BitRate::from_gbps(gbps).serialise(Bytes::new(PACKETS * FULL)).seconds();
    done[1].at.since(done[0].at).seconds() / (sent / share)
}

/// What a message of so many packets takes, each way at the same time, over what they take at the link's rate.
fn slowdown_both_ways<T: Transport>(
    topology: &Arc<Topology>,
    settings: PacketSettings,
    transport: T,
    gbps: u64,
) -> f64 {
    const PACKETS: u64 = 2_000;
    let mut engine = engine(topology, settings, transport);
    for (from, to) in [(0, 1), (1, 0)] {
        let pair = engine.open(&OpenRequest { from, to, entropy: 0, keep: true, route: [&[], &[]] });
        engine.send(Time::ZERO, pair, Bytes::new(PACKETS * PAYLOAD), u64::from(from));
    }
    let done = drain(&mut engine);
    let sent = BitRate::from_gbps(gbps).serialise(Bytes::new(PACKETS * FULL)).seconds();
    done.iter().map(|done| done.at.seconds()).fold(0.0, f64::max) / sent
}

/// Acknowledgements and pulls wait for data of the other direction, one packet at each hop at most, and take room: 64 B for each packet
/// of 4,160, twice where each is pulled as well. Slow links count their round trips in few packets.
fn fills_both_ways<T: Transport>(transport: T) {
    for gbps in [10, 25, 50, 100, 400] {
        for (place, topology) in [
            ("one switch, 5 m", star(2, gbps, 5_000)),
            ("one switch, 100 m", star(2, gbps, 100_000)),
            ("three switches, 5 m", through_a_spine(gbps, 5_000)),
        ] {
            for ack_every in [1, 4] {
                let trims = transport.endpoint().needs().contains(&Need::Trimming);
                let settings = PacketSettings {
                    ack_every,
                    balancer: Balancer::Spray { paths: 16 },
                    trimming: trims.then(TrimSettings::default),
                    ..crate::common::even_packets()
                };
                let slower = slowdown_both_ways(&topology, settings, transport.clone(), gbps);
                assert!(
                    slower < 1.06,
                    "{}, {gbps} Gbps, {place}, ack_every {ack_every}: {slower} of the time at the link's rate",
                    T::NAME
                );
            }
        }
    }
}

#[test]
fn data_both_ways_fill_an_idle_path() {
    fills_both_ways(NoTransport::default());
    fills_both_ways(Nscc::default());
    fills_both_ways(Dctcp::default());
    fills_both_ways(Swift::default());
    fills_both_ways(MpRdma::default());
    fills_both_ways(Dcqcn::default());
    fills_both_ways(Ndp::default());
    fills_both_ways(Eqds::default());
    fills_both_ways(Rccc::default());
}

fn fills<T: Transport>(transport: T, share: f64) {
    for gbps in [100, 200, 400, 800] {
        for (place, topology) in [
            ("one switch, 5 m", star(2, gbps, 5_000)),
            ("one switch, 100 m", star(2, gbps, 100_000)),
            ("three switches, 5 m", through_a_spine(gbps, 5_000)),
        ] {
            for forwarding in [Forwarding::StoreAndForward, Forwarding::CutThrough] {
                for ack_every in [1, 4, 16] {
                    let settings = PacketSettings {
                        ack_every,
                        forwarding,
                        balancer: Balancer::Spray { paths: 16 },
                        trimming: transport
                            .endpoint()
                            .needs()
                            .contains(&Need::Trimming)
                            .then(TrimSettings::default),
                        telemetry: true,
                        ..crate::common::even_packets()
                    };
                    let slower = slowdown(&topology, settings, transport.clone(), gbps, share);
                    assert!(
                        (0.98..1.02).contains(&slower),
                        "{}, {gbps} Gbps, {place}, {forwarding:?}, ack_every {ack_every}: {slower} of the time at {share} of the rate",
                        T::NAME
                    );
                }
            }
        }
    }
}

/// A window of few packets does not wait for acknowledgements that are not due.
#[test]
fn senders_by_window_fill_an_idle_path() {
    fills(Nscc::default(), 1.0);
    fills(Dctcp::default(), 1.0);
    fills(Swift::default(), 1.0);
    fills(MpRdma::default(), 1.0);
}

#[test]
fn tcp_fills_an_idle_path() {
    fills(NewReno::default(), 1.0);
    fills(Cubic::default(), 1.0);
}

/// η of HPCC, and of its packets 8 B for each of one or three hops are telemetry, which is within the bound.
#[test]
fn senders_by_rate_fill_an_idle_path() {
    fills(NoTransport::default(), 1.0);
    fills(Dcqcn::default(), 1.0);
    fills(Hpcc::default(), Hpcc::default().target);
}

#[test]
fn credit_fills_an_idle_path() {
    fills(Ndp::default(), 1.0);
    fills(Eqds::default(), 0.99);
    fills(Rccc::default(), 0.99);
}
