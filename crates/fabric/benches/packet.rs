//! What a packet's hop costs: `cargo bench -p windtunnel-fabric --bench packet [FILTER]`.
//!
//! A permutation on a three-tier fat tree, every link 400 Gbps and 1 µs, payload 4,096 B in packets of 4,160 B, one
//! acknowledgement per 4 packets, ECN marking, shared buffers and port statistics on. Each row prints data-packet-hops (a
//! data packet over one link) per second of processor time, control-packet-hops and events beside, completion times, and
//! the peak of resident memory of the process so far.
//!
//! Rows named `threads` compare the wall clock of one run on two threads, of one on one thread, and of two independent
//! ones side by side, in turn in one sitting: what two threads could gain at most on this machine is what two runs that
//! share nothing gain. Figures are medians over seven turns, the ratio that of each turn.

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{Dctcp, NoTransport, Nscc, Transport};
use windtunnel_fabric::packet::{
    Balancer, BufferSettings, EcnSettings, Engine, Engines, MarkAt, OpenRequest, PacketSettings,
    ParallelSettings,
};
use windtunnel_kernel::executor::{RunStatistics, ThreadStatistics};
use windtunnel_kernel::{BitRate, Bytes, RandomStream, Span, Time};
use windtunnel_topology::{ClosSpec, Topology, TopologySpec};

fn fat_tree(k: u32) -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(k, BitRate::from_gbps(400));
    for tier in &mut spec.tiers {
        tier.length_mm = 200_000;
    }
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

fn settings(balancer: Balancer) -> PacketSettings {
    PacketSettings {
        seed: 1,
        balancer,
        buffers: vec![BufferSettings {
            size: Bytes::new(64_000_000),
            alpha: 1.0,
            reserve: Bytes::new(20_000),
        }],
        ecn: Some(EcnSettings {
            rate: BitRate::from_gbps(400),
            kmin: Bytes::new(150_000),
            kmax: Bytes::new(450_000),
            pmax: 1.0,
            at: MarkAt::Enqueue,
        }),
        mtu: Bytes::new(4_160),
        header: Bytes::new(64),
        ..PacketSettings::default()
    }
}

/// Every host sends to one other.
fn permutation(hosts: u32) -> Vec<(u32, u32)> {
    let order = RandomStream::new(1, "permutation", 0).permutation(hosts as usize);
    order.iter().zip(order.iter().cycle().skip(1)).map(|(&a, &b)| (a, b)).collect()
}

fn row<T: Transport + Sync>(filter: &str, k: u32, bytes: u64, balancer: Balancer, transport: T) {
    let name = format!("{} {}-host {} KB {balancer:?}", T::NAME, k * k * k / 4, bytes / 1_000);
    if !name.contains(filter) {
        return;
    }
    let begun = cpu_seconds();
    let topology = fat_tree(k);
    let mut engine =
        Engine::new(topology.clone(), settings(balancer), transport).expect("settings that work");
    for (from, to) in permutation(topology.hosts()) {
        let flow = engine.open(&OpenRequest { from, to, entropy: 0, keep: false, route: [&[], &[]] });
        engine.send(Time::ZERO, flow, Bytes::new(bytes), u64::from(from));
    }
    let set_up = cpu_seconds() - begun;
    let (mut done, begun) = (Vec::new(), cpu_seconds());
    while engine.next_time() != Time::NEVER && done.len() < topology.hosts() as usize {
        engine.run(Time::NEVER, u64::MAX, &mut done);
    }
    let seconds = cpu_seconds() - begun;
    let (data, control) = engine.packet_hops();
    let totals = engine.totals();
    let times: Vec<f64> = done.iter().map(|done| done.at.since(done.start).seconds() * 1e6).collect();
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let last = times.iter().copied().fold(0.0, f64::max);
    println!(
        "{name:44} {:6.2} M/s  {:6.1} ns/event  {seconds:6.2} s (+{set_up:.2})  {:5.1} M data + {:4.1} M control hops, {:5.1} M events, FCT {mean:.1}/{last:.1} us, {} marks, {} drops, {} rtx, {} MB",
        data as f64 / seconds / 1e6,
        seconds * 1e9 / totals.events as f64,
        data as f64 / 1e6,
        control as f64 / 1e6,
        totals.events as f64 / 1e6,
        totals.marks,
        totals.drops,
        totals.retransmissions,
        peak_rss() >> 20,
    );
}

/// Seconds of the wall clock that a permutation takes to run, and what threads cost.
#[allow(clippy::disallowed_methods, reason = "what is measured is wall time")]
fn wall<T: Transport + Sync>(
    topology: &Arc<Topology>,
    bytes: u64,
    balancer: Balancer,
    transport: T,
    parallel: ParallelSettings,
) -> (f64, Option<RunStatistics>, [u64; 2]) {
    let settings = PacketSettings { parallel, ..settings(balancer) };
    let mut engines =
        Engines::new(topology.clone(), settings, transport, Span::MAX).expect("settings that work");
    for (from, to) in permutation(topology.hosts()) {
        let request = OpenRequest { from, to, entropy: 0, keep: false, route: [&[], &[]] };
        let pair = engines.open(Time::ZERO, &request);
        engines.send(Time::ZERO, pair, Bytes::new(bytes), u64::from(from));
    }
    let (mut done, begun) = (Vec::new(), std::time::Instant::now());
    while engines.next_time() != Time::NEVER && done.len() < topology.hosts() as usize {
        engines.run(Time::NEVER, u64::MAX, &mut done);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let processes = engines.spread().map_or(1, |spread| spread.processes as u64);
    (seconds, engines.statistics().cloned(), [processes, engines.crossings()])
}

/// Sittings of one row of `threads`.
const ROUNDS: usize = 7;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Two threads against one, beside what two runs that share nothing gain.
fn threads<T: Transport + Sync>(filter: &str, k: u32, bytes: u64, balancer: Balancer, transport: T) {
    let name = format!("threads {} {}-host {} KB {balancer:?}", T::NAME, k * k * k / 4, bytes / 1_000);
    if !name.contains(filter) {
        return;
    }
    let topology = fat_tree(k);
    let processes = std::env::var("PROCESSES").ok().and_then(|text| text.parse().ok());
    let run = |threads| {
        let parallel =
            ParallelSettings { threads, processes: processes.filter(|_| threads > 1), threshold: None };
        wall(&topology, bytes, balancer, transport.clone(), parallel)
    };
    // Alternating, medians: neighbours on the machine come and go, and speak in all three or in none.
    let [mut alone, mut aside, mut together, mut ratios] = [const { Vec::new() }; 4];
    let mut told = None;
    for _ in 0..ROUNDS {
        alone.push(run(1).0);
        let both = std::thread::scope(|scope| {
            let runs = [0, 1].map(|_| scope.spawn(|| run(1).0));
            runs.map(|run| run.join().expect("a run ends")).into_iter().fold(0.0, f64::max)
        });
        aside.push(both);
        let (seconds, statistics, counts) = run(2);
        together.push(seconds);
        ratios.push(both / (2.0 * seconds));
        told = statistics.map(|statistics| (statistics, counts));
    }
    let [alone, aside, together, ratio] = [alone, aside, together, ratios].map(median);
    let (statistics, [processes, crossings]) = told.expect("several processes");
    let each = |thread: &ThreadStatistics| {
        let seconds = thread.busy.as_secs_f64();
        format!("{seconds:.2} s ({:.0} ns an event)", seconds * 1e9 / thread.events as f64)
    };
    let busy: Vec<String> = statistics.threads.iter().map(each).collect();
    println!(
        "{name:48} one thread {alone:.2} s, two {together:.2} s: x{:.2}; two runs side by side x{:.2}; ratio {:.2}; {processes} processes, {} windows, {:.0} events and {:.0} packets that cross a window, barrier share {:.1}%, parallelism {:.2}, busy {}, {} windows alone, {} redeals",
        alone / together,
        2.0 * alone / aside,
        ratio,
        statistics.windows,
        statistics.events_per_window(),
        crossings as f64 / statistics.windows as f64,
        statistics.barrier_share() * 100.0,
        statistics.parallelism(),
        busy.join(" and "),
        statistics.windows_alone,
        statistics.redeals,
    );
}

/// Processor time of this thread, which neighbours on the machine do not inflate by their turns.
fn cpu_seconds() -> f64 {
    let status = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    status.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn peak_rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--")).unwrap_or_default();
    let spray = Balancer::Spray { paths: 64 };
    for (k, bytes) in [(8, 2_000_000), (8, 16_000_000), (16, 2_000_000), (16, 16_000_000)] {
        row(&filter, k, bytes, Balancer::Ecmp, Dctcp::default());
        row(&filter, k, bytes, spray, Nscc::default());
        row(&filter, k, bytes, spray, NoTransport { window: 900_000, ..NoTransport::default() });
    }
    for balancer in
        [Balancer::Flowlet { gap: Span::from_us(10) }, Balancer::Adaptive, Balancer::Reps { paths: 64 }]
    {
        row(&filter, 8, 16_000_000, balancer, Nscc::default());
    }
    row(&filter, 64, 256_000, spray, Nscc::default());
    for bytes in [2_000_000, 16_000_000] {
        threads(&filter, 16, bytes, Balancer::Ecmp, Dctcp::default());
        threads(&filter, 16, bytes, spray, Nscc::default());
    }
}
