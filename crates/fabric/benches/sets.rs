//! What a data packet costs where it is looked for first, or granted: `cargo bench -p windtunnel-fabric --bench sets [FILTER]`.
//!
//! Five all-to-all-v at once (64, 32, 32, 16 and 8 members, drawn) over the fat tree of DCSIM's paper: 128 hosts, 800 Gbps, 650 ns a link,
//! packets of 9,000 B, 500 KB a port. Each member draws a receiver for each packet, so many round trips' worth a pair in the mean as the
//! row says. Each row prints processor time for each data packet sent, hops and events of each, and when the last message was whole.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{DcPim, Dcsim, PFabric, PHost, Transport};
use windtunnel_fabric::packet::{Balancer, Engine, OpenRequest, PacketSettings};
use windtunnel_kernel::random::combine;
use windtunnel_kernel::{BitRate, Bytes, RandomStream, Span, Time};
use windtunnel_topology::{ClosSpec, Topology, TopologySpec};

const MEMBERS: [u32; 5] = [64, 32, 32, 16, 8];
const MTU: u64 = 9_000;
const HEADER: u64 = 40;

fn fat_tree() -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(8, BitRate::from_gbps(800));
    for tier in &mut spec.tiers {
        (tier.length_mm, tier.switch_latency) = (130_000, Span::ZERO);
    }
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

/// Sender, receiver, packets, collective: `packets` in the mean for each pair.
fn flows(hosts: u32, packets: u32) -> Vec<(u32, u32, u64, u32)> {
    let mut flows = Vec::new();
    for (set, count) in (0..).zip(MEMBERS) {
        let order = RandomStream::new(1, "members", u64::from(set)).permutation(hosts as usize);
        let members = &order[..count as usize];
        for (place, &from) in members.iter().enumerate() {
            let mut sent = vec![0; count as usize];
            for draw in 0..u64::from(packets) * u64::from(count - 1) {
                let drawn = combine(u64::from(from) << 32 | u64::from(set), draw) % u64::from(count - 1);
                sent[(place + 1 + drawn as usize) % count as usize] += 1;
            }
            let others = members.iter().zip(sent).filter(|&(_, sent)| sent > 0);
            flows.extend(others.map(|(&to, sent)| (from, to, sent, set)));
        }
    }
    flows
}

fn row<T: Transport>(filter: &str, packets: u32, transport: T) {
    let name = format!("{} {packets} packets a pair", T::NAME);
    if !name.contains(filter) {
        return;
    }
    let topology = fat_tree();
    let settings = PacketSettings {
        seed: 1,
        balancer: Balancer::Spray { paths: 4_096 },
        mtu: Bytes::new(MTU),
        header: Bytes::new(HEADER),
        control: Bytes::new(64),
        ..PacketSettings::default()
    };
    let mut engine = Engine::new(topology.clone(), settings, transport).expect("settings that work");
    let flows = flows(topology.hosts(), packets);
    for (token, &(from, to, count, set)) in (0..).zip(&flows) {
        let pair = engine.open(&OpenRequest { from, to, entropy: set, keep: false, route: [&[], &[]] });
        engine.send(Time::ZERO, pair, Bytes::new(count * (MTU - HEADER)), token);
    }
    let (mut done, begun) = (Vec::new(), cpu_seconds());
    while engine.next_time() != Time::NEVER && done.len() < flows.len() {
        engine.run(Time::NEVER, u64::MAX, &mut done);
    }
    let seconds = cpu_seconds() - begun;
    let tally = engine.tally().expect("a transport that schedules whole ports");
    let sent = tally.get("data_packets_sent") as f64;
    let (data, control) = engine.packet_hops();
    let last = done.iter().map(|done| done.at.seconds() * 1e6).fold(0.0, f64::max);
    let mean = done.iter().map(|done| done.at.seconds() * 1e6).sum::<f64>() / done.len() as f64;
    println!(
        "{name:28} {:5.2} us a data packet, {:5.1} ns a hop  {seconds:5.2} s  {:.2} M data packets, {:.2} hops and {:.2} events each, {} late, mean {mean:.6} us, last {last:.6} us",
        seconds * 1e6 / sent,
        seconds * 1e9 / (data + control) as f64,
        sent / 1e6,
        (data + control) as f64 / sent,
        engine.totals().events as f64 / sent,
        tally.get("arrived_late"),
    );
}

/// Processor time of this thread, which neighbours on the machine do not inflate by their turns.
fn cpu_seconds() -> f64 {
    let status = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    status.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).unwrap_or_default();
    for packets in [44, 174] {
        row(&filter, packets, Dcsim::default());
        row(&filter, packets, DcPim::default());
        row(&filter, packets, PHost::default());
        row(&filter, packets, PFabric::default());
    }
}
