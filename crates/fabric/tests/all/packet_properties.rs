//! Whatever is sent over whatever fabric: every message arrives once, no sooner than an idle path allows, nothing is left
//! in the network, and a second run is the same.

use std::sync::Arc;

use proptest::prelude::*;
use windtunnel_fabric::packet::transport::{
    Dctcp, Eqds, ExpressPass, Homa, Hpcc, Ndp, NoTransport, Nscc, Rccc, Recovery, Sird, Transport,
};
use windtunnel_fabric::packet::{
    Balancer, BufferSettings, Completion, Counters, EcnSettings, Engine, Forwarding, MarkAt, OpenRequest,
    PacketSettings, TrimSettings,
};
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{ClosSpec, Topology, TopologySpec};

const HOSTS: u32 = 16;

fn fat_tree(planes: u32) -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(4, BitRate::from_gbps(400));
    for tier in &mut spec.tiers {
        (tier.length_mm, tier.switch_latency) = (20_000, Span::from_ns(300));
    }
    // A NIC's rate is divided over its planes, so the cables of the fabric are too.
    for tier in &mut spec.tiers[1..] {
        tier.rate = BitRate::from_bps(tier.rate.bps() / u64::from(planes));
    }
    spec.planes = planes;
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

/// (start in ns, sender, receiver, bytes, whether it shares the pair's queue pair)
type Sent = (u64, u32, u32, u64, bool);

fn settings() -> impl Strategy<Value = PacketSettings> {
    let balancer = prop_oneof![Just(Balancer::Ecmp), Just(Balancer::Spray { paths: 8 })];
    let buffer = prop_oneof![Just(None), (60_000..400_000u64).prop_map(Some)];
    let forwarding = prop_oneof![Just(Forwarding::StoreAndForward), Just(Forwarding::CutThrough)];
    let at = prop_oneof![Just(MarkAt::Enqueue), Just(MarkAt::Dequeue)];
    let queue = prop_oneof![Just(None), (8_000..60_000u64).prop_map(|queue| Some(Bytes::new(queue)))];
    let trimming = prop_oneof![Just(None), queue.prop_map(|queue| Some(TrimSettings { queue, rate: None }))];
    (0..4u64, balancer, buffer, forwarding, at, trimming, 1..6u32).prop_map(
        |(seed, balancer, buffer, forwarding, at, trimming, ack_every)| PacketSettings {
            seed,
            balancer,
            forwarding,
            ack_every,
            trimming,
            telemetry: true,
            buffers: buffer
                .map(|size| BufferSettings { size: Bytes::new(size), alpha: 1.0, reserve: Bytes::new(5_000) })
                .into_iter()
                .collect(),
            ecn: Some(EcnSettings {
                rate: BitRate::from_gbps(400),
                kmin: Bytes::new(20_000),
                kmax: Bytes::new(60_000),
                pmax: 0.5,
                at,
            }),
            ..crate::common::even_packets()
        },
    )
}

fn run<T: Transport>(
    topology: &Arc<Topology>,
    settings: &PacketSettings,
    transport: T,
    sent: &[Sent],
) -> (Vec<Completion>, Counters, u32) {
    let mut engine = Engine::new(topology.clone(), settings.clone(), transport).expect("settings that work");
    let mut pairs = std::collections::BTreeMap::new();
    for (token, &(start, from, to, bytes, shared)) in (0..).zip(sent) {
        let mut open =
            |keep| engine.open(&OpenRequest { from, to, entropy: u32::from(keep), keep, route: [&[], &[]] });
        let pair = if shared { *pairs.entry((from, to)).or_insert_with(|| open(true)) } else { open(false) };
        engine.send(Time::from_ps(start * 1_000), pair, Bytes::new(bytes), token);
    }
    let mut done = Vec::new();
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, 1_000, &mut done);
    }
    (done, engine.totals(), engine.packets_live())
}

fn check<T: Transport>(
    planes: u32,
    settings: &PacketSettings,
    transport: T,
    sent: &[Sent],
) -> Result<(), TestCaseError> {
    let topology = fat_tree(planes);
    let (done, totals, live) = run(&topology, settings, transport.clone(), sent);
    prop_assert_eq!(live, 0);
    let mut tokens: Vec<u64> = done.iter().map(|done| done.token).collect();
    tokens.sort_unstable();
    prop_assert!(tokens.into_iter().eq(0..sent.len() as u64), "{} of {} arrived", done.len(), sent.len());
    prop_assert_eq!(totals.bytes_delivered, sent.iter().map(|sent| sent.3).sum::<u64>());
    prop_assert!(done.windows(2).all(|pair| pair[0].at <= pair[1].at));
    for completion in &done {
        let (start, _, _, bytes, _) = sent[completion.token as usize];
        // One cable each to and from the leaf, one pipeline, and the bytes at the rate of a plane.
        let least = 2 * 100_000 + 300_000 + bytes * 20 * u64::from(planes);
        prop_assert!(completion.at.ps() >= start * 1_000 + least);
        prop_assert_eq!(completion.start, Time::from_ps(start * 1_000));
    }
    prop_assert_eq!(run(&topology, settings, transport, sent), (done, totals, 0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_message_arrives_once(
        settings in settings(),
        transport in 0..12u8,
        by_time in any::<bool>(),
        planes in 1..3u32,
        sent in prop::collection::vec((0..20_000u64, 0..HOSTS, 1..HOSTS, 1..300_000u64, any::<bool>()), 1..40),
    ) {
        let sent: Vec<Sent> = sent
            .into_iter()
            .map(|(start, from, step, bytes, shared)| (start, from, (from + step) % HOSTS, bytes, shared))
            .collect();
        let timeout = Span::from_us(100);
        let window = NoTransport { window: 50_000, timeout, ..NoTransport::default() };
        // Packets that are sprayed come in any order: later ones show no loss, and go-back-N would never end.
        let sprayed = settings.balancer != Balancer::Ecmp;
        let reorder = if sprayed { u32::MAX } else { 3 };
        let selective = if by_time { Recovery::Rack } else { Recovery::Selective { reorder } };
        let back = if sprayed { selective } else { Recovery::GoBackN };
        let recovery = if by_time { Recovery::Rack } else { Recovery::TIMER };
        match transport {
            0 => check(planes, &settings, Nscc { recovery, timeout, ..Nscc::default() }, &sent)?,
            1 => check(planes, &settings, Dctcp { recovery: selective, timeout, ..Dctcp::default() }, &sent)?,
            2 => check(planes, &settings, Dctcp { recovery: back, timeout, ..Dctcp::default() }, &sent)?,
            3 => check(planes, &settings, NoTransport { recovery: selective, ..window }, &sent)?,
            4 => check(planes, &settings, Eqds { recovery, timeout, ..Eqds::default() }, &sent)?,
            5 => check(planes, &settings, Rccc { recovery, timeout, ..Rccc::default() }, &sent)?,
            6 => check(planes, &settings, Hpcc { recovery: back, timeout, ..Hpcc::default() }, &sent)?,
            7 => {
                let trimming = Some(settings.trimming.unwrap_or_default());
                let settings = PacketSettings { trimming, ..settings };
                check(planes, &settings, Ndp { recovery, timeout, ..Ndp::default() }, &sent)?;
            }
            8..=10 => {
                // Ports have lines of their own.
                let settings = PacketSettings { trimming: None, ..settings };
                match transport {
                    8 => check(planes, &settings, Homa { timeout, ..Homa::default() }, &sent)?,
                    9 => check(planes, &settings, Sird { timeout, ..Sird::default() }, &sent)?,
                    _ => {
                        let pass = ExpressPass { timeout, symmetric: !sprayed, ..ExpressPass::default() };
                        check(planes, &settings, pass, &sent)?;
                    }
                }
            }
            _ => check(planes, &settings, NoTransport { recovery: back, ..window }, &sent)?,
        }
    }
}
