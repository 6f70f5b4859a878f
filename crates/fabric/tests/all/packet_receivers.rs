//! Homa, ExpressPass and SIRD: results do not depend on processes, and messages that share a queue pair arrive whole, also over links that lose.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{ExpressPass, Homa, Sird, Transport};
use windtunnel_fabric::packet::{
    BufferSettings, Completion, Engines, OpenRequest, PacketSettings, ParallelSettings,
};
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{ClosSpec, Topology, TopologySpec};

use crate::common::even_packets;

/// A fat tree of 16 hosts; a link loses so many packets in 1,000.
fn fat_tree(loss: u32) -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(4, BitRate::from_gbps(100));
    for tier in &mut spec.tiers {
        (tier.length_mm, tier.switch_latency) = (20_000, Span::from_ns(300));
        tier.loss = f64::from(loss) / 1_000.0;
    }
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

/// Three rounds of 16 messages of drawn sizes between drawn hosts, the rounds of a pair on one queue pair; figures by name.
fn run<T: Transport>(
    transport: T,
    processes: usize,
    loss: u32,
    buffer: Option<u64>,
) -> (Vec<Completion>, Vec<(&'static str, u64)>) {
    let parallel = ParallelSettings { threads: 1, processes: Some(processes), threshold: None };
    let buffers =
        buffer.map(|size| BufferSettings { size: Bytes::new(size), alpha: 1.0, reserve: Bytes::ZERO });
    let settings = PacketSettings {
        parallel,
        nic_latency: Span::from_ns(500),
        buffers: buffers.into_iter().collect(),
        ..even_packets()
    };
    let mut engines =
        Engines::new(fat_tree(loss), settings, transport, Span::from_ns(500)).expect("settings that work");
    let mut sum = 0;
    for from in 0..16 {
        let to = (from + 1 + combine(7, u64::from(from)) as u32 % 15) % 16;
        let request = OpenRequest { from, to, entropy: from, keep: true, route: [&[], &[]] };
        let pair = engines.open(Time::ZERO, &request);
        for round in 0..3 {
            let draw = combine(u64::from(from), round);
            let bytes = 1 + draw % if draw.is_multiple_of(3) { 1_000_000 } else { 20_000 };
            sum += bytes;
            engines.send(
                Time::from_ps(round * 3_000_000),
                pair,
                Bytes::new(bytes),
                round * 16 + u64::from(from),
            );
        }
    }
    let mut done = Vec::new();
    while engines.next_time() != Time::NEVER {
        engines.run(Time::NEVER, 1 << 20, &mut done);
    }
    assert_eq!((done.len(), engines.totals().bytes_delivered), (48, sum));
    let mut figures: Vec<_> = engines.tally().expect("dispatchers").figures().collect();
    figures.sort_unstable();
    (done, figures)
}

#[test]
fn processes_change_nothing() {
    fn holds<T: Transport>(transport: T) {
        let one = run(transport.clone(), 1, 0, None);
        assert_eq!(one, run(transport.clone(), 2, 0, None), "{}", T::NAME);
        assert_eq!(one, run(transport, 5, 0, None), "{}", T::NAME);
    }
    holds(Homa::default());
    holds(ExpressPass::default());
    holds(Sird::default());
}

/// A hundredth of all packets, notes among them, is lost on every link; every message arrives, at any number of processes alike.
#[test]
fn lossy_links_are_borne() {
    fn holds<T: Transport>(transport: T) {
        let one = run(transport.clone(), 1, 10, Some(400_000));
        let lost =
            one.1.iter().find(|figure| figure.0 == "data_lost_in_network").map_or(0, |figure| figure.1);
        assert!(lost > 10, "{}: {lost}", T::NAME);
        assert_eq!(one, run(transport, 3, 10, Some(400_000)), "{}", T::NAME);
    }
    holds(Homa::default());
    holds(ExpressPass::default());
    holds(Sird::default());
}
