//! The pages of `docs/extend`, whose examples are the tests of this crate's documentation, and what they share.

use std::sync::Arc;

use windtunnel_cluster::shard::{IterationEnd, Observer, Shard, ShardJob};
use windtunnel_cluster::variation::Variation;
use windtunnel_fabric::host::{Costs, Host, HostSpec, LogGops};
use windtunnel_fabric::message::Latency;
use windtunnel_kernel::{Bytes, EndpointId, RankId, Span, Time};
use windtunnel_workload::Workload;
use windtunnel_workload::replay::Replay;

/// A NIC of 400 Gbps (G = 20 ps/B) behind 1 us, the ends of which cost nothing; every message is eager.
pub const NIC: LogGops = LogGops {
    latency: Span::from_us(1),
    overhead: Span::ZERO,
    gap: Span::ZERO,
    gap_per_byte: 20_000,
    overhead_per_byte: 0,
    eager_limit: Bytes::MAX,
};

struct Nobody;

impl Observer for Nobody {
    fn rank_iteration(&mut self, _: usize, _: RankId, _: u64, _: &Replay) {}
    fn iteration(&mut self, _: usize, _: &IterationEnd, _: &Replay) {}
}

/// When each rank ends that runs one iteration of `workload` under LogGOPS with [`NIC`], rank r on endpoint r.
///
/// # Panics
/// If the workload contradicts itself, or some operation can never start.
pub fn finish_times(workload: Workload) -> Vec<Time> {
    let endpoints = workload.ranks() as u32;
    let costs = Costs::uniform(NIC);
    let host = Host::new(HostSpec { endpoints, streams: 1, nics: 1 }, costs.clone(), Latency::new(costs));
    let variation = Variation::none();
    let mut shard = Shard::new(host, endpoints, &variation, Nobody);
    let job = ShardJob {
        number: 0,
        workload: Arc::new(workload),
        placement: (0..endpoints).map(EndpointId).collect(),
        own: endpoints as usize,
        iterations: 1,
        redone: 0,
        awaited: true,
        start: Time::ZERO,
        done_before: 0,
        simulated: Arc::from([]),
    };
    shard.enter(job).expect("a workload that agrees with itself");
    while shard.handle(1 << 16) {}
    shard.drain();
    assert_eq!(shard.stuck(), [], "operations that can never start");
    shard.fabric().finish_times()
}

/// Each page with its examples as tests.
macro_rules! pages {
    ($($page:ident),*) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../../docs/extend/", stringify!($page), ".md"))]
            mod $page {}
        )*
    };
}

pages!(collective, fidelity, importer, scheduler, shape);
