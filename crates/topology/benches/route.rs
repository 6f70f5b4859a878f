//! Set-up and routing at 1K, 64K and 1M endpoints: `cargo bench -p windtunnel-topology --bench route`.
//!
//! Each figure is the fastest of several rounds over random pairs, drawn beforehand.

#![allow(clippy::disallowed_methods, reason = "a benchmark is about the wall clock")]

use std::hint::black_box;
use std::time::Instant;

use windtunnel_kernel::{BitRate, EndpointId, NicId, RandomStream};
use windtunnel_topology::{ClosSpec, HostSpec, LoadBalancer, Route, Tier, Topology, TopologySpec, choose};

const PAIRS: usize = 1 << 16;
const ROUNDS: usize = 15;

fn main() {
    println!("choose                                 {:7.1} ns", time_choose());
    println!(
        "\n{:>10} {:>9} {:>10} {:>8} | ns/route: {:>6} {:>7} {:>6} {:>6}",
        "endpoints", "links", "set-up", "peak RSS", "ecmp", "modulo", "ideal", "spray"
    );
    for (endpoints, ports) in [(1 << 10, [16, 8, 16]), (1 << 16, [32, 32, 64]), (1 << 20, [64, 64, 256])] {
        report(endpoints, ports);
    }
}

/// Hosts of 8 GPUs on 8 rails under three tiers.
fn report(endpoints: u32, ports: [u32; 3]) {
    let rate = BitRate::from_gbps(400);
    let mut host = HostSpec::new(8, 8, BitRate::from_gbps(3_600));
    host.rails = true;
    let tiers = ports.map(|ports| Tier::new(ports, rate)).to_vec();
    let spec = TopologySpec::Clos(ClosSpec::new(endpoints / 8, host, tiers));
    let setup = best(|| {
        let start = Instant::now();
        black_box(Topology::new(black_box(&spec)).expect("a valid spec"));
        start.elapsed().as_nanos() as f64
    });
    let topology = Topology::new(&spec).expect("a valid spec");
    let mut draws = RandomStream::new(1, "pairs", u64::from(endpoints));
    let mut draw = || EndpointId(draws.below(u64::from(topology.endpoints())) as u32);
    let pairs: Vec<(EndpointId, EndpointId)> = (0..PAIRS).map(|_| (draw(), draw())).collect();
    let time = |balancer, pairs: &[(EndpointId, EndpointId)]| {
        let mut route = Route::new();
        best(|| {
            let start = Instant::now();
            for (index, &(from, to)) in pairs.iter().enumerate() {
                topology.route(balancer, 1, from, to, NicId(0), index as u32, &mut route);
                black_box(&route);
            }
            start.elapsed().as_nanos() as f64 / pairs.len() as f64
        })
    };
    println!(
        "{:>10} {:>9} {:>7.0} ns {:>5} MB |           {:>6.1} {:>7.1} {:>6.1} {:>6.0}",
        topology.endpoints(),
        topology.link_count(),
        setup,
        peak_rss_mb().map_or("?".to_owned(), |mb| mb.to_string()),
        time(LoadBalancer::Ecmp, &pairs),
        time(LoadBalancer::DestinationModulo, &pairs),
        time(LoadBalancer::Ideal, &pairs),
        time(LoadBalancer::Spray, &pairs[..PAIRS / 64]),
    );
}

fn time_choose() -> f64 {
    best(|| {
        let start = Instant::now();
        for index in 0..PAIRS as u64 {
            black_box(choose(1, black_box(index), index, index + 1, 0, 64));
        }
        start.elapsed().as_nanos() as f64 / PAIRS as f64
    })
}

fn best(round: impl FnMut() -> f64) -> f64 {
    std::iter::repeat_with(round).take(ROUNDS).fold(f64::INFINITY, f64::min)
}

/// The process's peak so far, where the system tells.
fn peak_rss_mb() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kb| kb / 1024)
}
