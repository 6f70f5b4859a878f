//! What the flow solver takes: `cargo bench -p windtunnel-fabric --bench flow [FILTER]`.
//!
//! Routes are computed here by the formulas of a k-ary fat tree, so only the solver is measured. Each row prints the
//! processor time of the whole run, the rate, and the peak of resident memory of the process so far.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant as Clock;

use windtunnel_fabric::flow::{FlowSystem, Instant};
use windtunnel_kernel::{RandomStream, Time, mix64};

const GBPS: f64 = 1e9;
/// bit/s × ps in a byte.
const BYTE: f64 = 8e12;
const MIB: f64 = 1_048_576.0;

/// A k-ary fat tree of single-plane hosts: host up and down, edge up and down, aggregation up and down.
struct FatTree {
    k: u32,
}

impl FatTree {
    fn hosts(&self) -> u32 {
        self.k * self.k * self.k / 4
    }

    fn links(&self) -> usize {
        6 * self.hosts() as usize
    }

    /// The path that `choice` (tier → number) selects.
    fn path(&self, from: u32, to: u32, choice: impl Fn(u32) -> u32) -> ([u32; 6], usize) {
        let (half, hosts) = (self.k / 2, self.hosts());
        let (edge_from, edge_to) = (from / half, to / half);
        let (pod_from, pod_to) = (edge_from / half, edge_to / half);
        let mut path = [from; 6];
        if edge_from == edge_to {
            path[1] = hosts + to;
            return (path, 2);
        }
        let aggregation = choice(0) % half;
        path[1] = 2 * hosts + edge_from * half + aggregation;
        if pod_from == pod_to {
            (path[2], path[3]) = (3 * hosts + edge_to * half + aggregation, hosts + to);
            return (path, 4);
        }
        let core = choice(1) % half;
        path[2] = 4 * hosts + (pod_from * half + aggregation) * half + core;
        path[3] = 5 * hosts + (pod_to * half + aggregation) * half + core;
        (path[4], path[5]) = (3 * hosts + edge_to * half + aggregation, hosts + to);
        (path, 6)
    }

    fn hashed(&self, from: u32, to: u32) -> ([u32; 6], usize) {
        let hash = |tier: u32| mix64(u64::from(from) << 40 | u64::from(to) << 8 | u64::from(tier));
        self.path(from, to, |tier| (hash(tier) >> 40) as u32)
    }

    fn modulo(&self, from: u32, to: u32) -> ([u32; 6], usize) {
        let half = self.k / 2;
        self.path(from, to, |tier| if tier == 0 { to % half } else { to / half % half })
    }
}

fn start(system: &mut FlowSystem, at: Instant, volume: f64, (path, hops): ([u32; 6], usize), token: u64) {
    system.start(at, volume, 1.0, path[..hops].iter().map(|&link| (link, 1.0)), token);
}

/// Takes out all flows; how many, and when the last ended in seconds.
fn drain(system: &mut FlowSystem) -> (usize, f64) {
    let (mut ended, mut count, mut last) = (Vec::new(), 0, Instant::ZERO);
    while let Some(batch) = system.depart(Time::NEVER, &mut ended) {
        count += ended.len();
        ended.clear();
        last = batch.at;
    }
    (count, last.tick() as f64 / 1e12)
}

fn random_permutation() -> (usize, f64) {
    let tree = FatTree { k: 16 };
    let mut system = FlowSystem::new(&vec![400.0 * GBPS; tree.links()]).unwrap();
    let to = RandomStream::new(1, "permutation", 0).permutation(tree.hosts() as usize);
    for (from, &to) in (0..).zip(&to) {
        if from != to {
            start(&mut system, Instant::ZERO, 64.0 * MIB * BYTE, tree.hashed(from, to), 0);
        }
    }
    drain(&mut system)
}

fn all_to_all(route: impl Fn(&FatTree, u32, u32) -> ([u32; 6], usize)) -> (usize, f64) {
    let tree = FatTree { k: 16 };
    let mut system = FlowSystem::new(&vec![400.0 * GBPS; tree.links()]).unwrap();
    for from in 0..tree.hosts() {
        for to in (0..tree.hosts()).filter(|&to| to != from) {
            start(&mut system, Instant::ZERO, MIB * BYTE, route(&tree, from, to), 0);
        }
    }
    drain(&mut system)
}

/// As a collective runs: every host has 64 messages to its next peers outstanding, sizes drawn from 0.5 to 1.5 MiB.
fn all_to_all_outstanding() -> (usize, f64) {
    let tree = FatTree { k: 8 };
    let n = tree.hosts();
    let mut system = FlowSystem::new(&vec![400.0 * GBPS; tree.links()]).unwrap();
    let mut random = RandomStream::new(1, "sizes", 0);
    let mut next = vec![1u32; n as usize];
    let mut send = |system: &mut FlowSystem, at: Instant, from: u32| {
        let step = next[from as usize];
        if step < n {
            next[from as usize] += 1;
            let volume = (0.5 + random.uniform()) * MIB * BYTE;
            start(system, at, volume, tree.hashed(from, (from + step) % n), u64::from(from));
        }
    };
    for from in 0..n {
        for _ in 0..64 {
            send(&mut system, Instant::ZERO, from);
        }
    }
    let (mut ended, mut count, mut last) = (Vec::new(), 0, Instant::ZERO);
    while let Some(batch) = system.depart(Time::NEVER, &mut ended) {
        last = batch.at;
        for from in std::mem::take(&mut ended) {
            count += 1;
            send(&mut system, last, from as u32);
        }
    }
    (count, last.tick() as f64 / 1e12)
}

fn ideal_switch() -> (usize, f64) {
    let n = 128;
    let mut system = FlowSystem::new(&vec![400.0 * GBPS; 256]).unwrap();
    let mut random = RandomStream::new(1, "sizes", 0);
    for from in 0..n {
        for to in (0..n).filter(|&to| to != from) {
            let volume = (1.0 + 99.0 * random.uniform()) * 1e6 * BYTE;
            system.start(Instant::ZERO, volume, 1.0, [(from, 1.0), (n + to, 1.0)].into_iter(), 0);
        }
    }
    drain(&mut system)
}

/// One coupled group of 4,096 edges over the fat tree's larger sibling: 1 GiB is 2 (n − 1)/n GiB an edge.
fn ring_coupled() -> (usize, f64) {
    let tree = FatTree { k: 32 };
    let n = 4_096;
    let mut system = FlowSystem::new(&vec![400.0 * GBPS; tree.links()]).unwrap();
    let mut links: Vec<(u32, f64)> = Vec::new();
    for from in 0..n {
        let (path, hops) = tree.hashed(from, (from + 1) % n);
        links.extend(path[..hops].iter().map(|&link| (link, 1.0)));
    }
    links.sort_by_key(|&(link, _)| link);
    links.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0.0 };
        same
    });
    let volume = 1024.0 * MIB * BYTE * 2.0 * f64::from(n - 1) / f64::from(n);
    system.start(Instant::ZERO, volume, 1.0, links.iter().copied(), 0);
    drain(&mut system)
}

/// 200 of the 8,190 steps of that ring, message by message.
fn ring_steps() -> (usize, f64) {
    let tree = FatTree { k: 32 };
    let n = 4_096;
    let mut system = FlowSystem::new(&vec![400.0 * GBPS; tree.links()]).unwrap();
    let paths: Vec<_> = (0..n).map(|from| tree.modulo(from, (from + 1) % n)).collect();
    let (mut at, mut count, mut ended) = (Instant::ZERO, 0, Vec::new());
    for _ in 0..200 {
        for &path in &paths {
            start(&mut system, at, MIB / 4.0 * BYTE, path, 0);
        }
        while let Some(batch) = system.depart(Time::NEVER, &mut ended) {
            at = batch.at;
        }
        count += ended.len();
        ended.clear();
    }
    (count, at.tick() as f64 / 1e12)
}

/// Sends of 8,192 hosts on a hashed fat tree that come and go, one every `mean_ps` on average. Every 30 ns: 550 live, 99%
/// of them in components of 1 to 8 flows. Every 10 ns: 2,470 live, 72% of them in components of more than 64.
fn sends(mean_ps: u64) -> (usize, f64) {
    let tree = FatTree { k: 32 };
    let n = tree.hosts();
    let mut system = FlowSystem::new(&vec![400.0 * GBPS; tree.links()]).unwrap();
    let mut random = RandomStream::new(1, "sends", 0);
    let (mut ended, mut count, mut at) = (Vec::new(), 0, 0u64);
    for _ in 0..500_000 {
        at += random.below(2 * mean_ps);
        while system.depart_until(Instant::at(at), &mut ended).is_some() {}
        let (from, hop) = (random.below(u64::from(n)) as u32, 256 + random.below(1_024) as u32);
        let volume = (0.1 + random.uniform()) * MIB * BYTE;
        start(&mut system, Instant::at(at), volume, tree.hashed(from, (from + hop) % n), 0);
    }
    count += ended.len() + drain(&mut system).0;
    (count, system.now().tick() as f64 / 1e12)
}

/// Tensor-parallel collectives inside 512 hosts of 8 GPUs: coupled groups of 16 links, one after another in each host.
fn coupled_in_hosts() -> (usize, f64) {
    let hosts = 512;
    let mut system = FlowSystem::new(&vec![3_600.0 * GBPS; hosts * 16]).unwrap();
    let begin = |system: &mut FlowSystem, at: Instant, host: u64| {
        let links = (0..16).map(|link| (host as u32 * 16 + link, 1.0));
        system.start(at, (32.0 + host as f64) * MIB * BYTE, 1.0, links, host);
    };
    for host in 0..hosts as u64 {
        begin(&mut system, Instant::ZERO, host);
    }
    let (mut ended, mut count) = (Vec::new(), 0);
    while count < 1_000_000 {
        let batch = system.depart(Time::NEVER, &mut ended).unwrap();
        count += ended.len();
        for host in ended.drain(..) {
            begin(&mut system, Instant::at(batch.notice.ps()), host);
        }
    }
    (count, system.now().tick() as f64 / 1e12)
}

/// Seconds of processor time of this thread where the system tells, so that neighbours on the machine do not count;
/// of the clock elsewhere.
fn cpu_seconds(clock: Clock) -> f64 {
    let ns = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = ns.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    ns.map_or_else(|| clock.elapsed().as_secs_f64(), |ns| ns as f64 / 1e9)
}

/// Peak of resident memory in MiB, where the system tells.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

/// Runs one case: flows, and the simulated time of the last end in seconds.
type Case = fn() -> (usize, f64);

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let rows: [(&str, Case); 10] = [
        ("permutation, k=16, ECMP", random_permutation),
        ("all-to-all 128 hosts, one switch, random sizes", ideal_switch),
        ("ring of 4,096, coupled", ring_coupled),
        ("ring of 4,096, 200 steps", ring_steps),
        ("500 K sends, one every 30 ns", || sends(30_000)),
        ("500 K sends, one every 10 ns", || sends(10_000)),
        ("coupled in hosts, 1 M groups of 16 links", coupled_in_hosts),
        ("all-to-all 128 hosts, ECMP, 64 outstanding", all_to_all_outstanding),
        ("all-to-all k=16, destination-modulo", || all_to_all(FatTree::modulo)),
        ("all-to-all k=16, ECMP", || all_to_all(FatTree::hashed)),
    ];
    println!(
        "{:48} {:>9} {:>9} {:>9} {:>12} {:>9}",
        "flow solver", "flows", "CPU s", "ns/flow", "simulated s", "peak MiB"
    );
    for (name, run) in rows.into_iter().filter(|(name, _)| name.contains(filter.as_str())) {
        let clock = Clock::now();
        let before = cpu_seconds(clock);
        let (flows, simulated) = black_box(run());
        // The processor clock ticks in milliseconds: too coarse for the shortest cases.
        let (cpu, wall) = (cpu_seconds(clock) - before, clock.elapsed().as_secs_f64());
        let seconds = if wall < 0.1 { wall } else { cpu };
        let each = seconds * 1e9 / flows.max(1) as f64;
        let peak = peak_mib().map_or_else(String::new, |mib| mib.to_string());
        println!("{name:48} {flows:>9} {seconds:>9.3} {each:>9.0} {simulated:>12.6} {peak:>9}");
    }
}
