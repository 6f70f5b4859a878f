//! Reading, recognising and routing imported fat trees: seconds, bytes, nanoseconds. Prints and never fails.
//!
//! `cargo bench -p windtunnel-topology --bench import`

#![allow(clippy::disallowed_methods, reason = "a bench measures wall time")]

use std::hint::black_box;
use std::time::Instant;

use windtunnel_kernel::memory::{self, CountingAllocator};
use windtunnel_kernel::{BitRate, RandomStream};
use windtunnel_topology::graph::{recognise, recognise_clos};
use windtunnel_topology::import::{Format, Imported, import};
use windtunnel_topology::{
    ClosSpec, Defaults, GraphSpec, Itinerary, SwitchId, Topology, TopologySpec, export,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    memory::reset_peak();
    let (held, start) = (memory::peak(), Instant::now());
    let result = work();
    let seconds = start.elapsed().as_secs_f64();
    let mb = (memory::peak() - held) as f64 / 1e6;
    memory::reset_peak();
    let kept = (memory::peak().saturating_sub(held)) as f64 / 1e6;
    println!("  {what:<28} {seconds:>9.3} s, peak {mb:>8.2} MB, kept {kept:>8.2} MB");
    result
}

/// Nanoseconds a next hop takes between random switches and random hosts.
fn look_up(topology: &Topology) -> f64 {
    const COUNT: u32 = 2_000_000;
    let mut draws = RandomStream::new(1, "bench", 2);
    let mut draw = |below: u32| draws.below(u64::from(below)) as u32;
    let pairs: Vec<(SwitchId, u32)> =
        (0..1 << 16).map(|_| (SwitchId(draw(topology.switches())), draw(topology.nics()))).collect();
    let start = Instant::now();
    for number in 0..COUNT {
        let (at, nic) = pairs[number as usize % pairs.len()];
        let target = topology.target(nic, 0);
        black_box(topology.next_hop(at, &target, Itinerary::DIRECT, u64::from(number)));
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(COUNT)
}

fn main() {
    for k in [32, 64] {
        let spec = ClosSpec::fat_tree(k, BitRate::from_gbps(400));
        let by_rule = Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree");
        println!("{k}-ary fat tree of {} hosts as a graph", by_rule.hosts());
        let graph = timed("unroll", || GraphSpec::unrolled(&by_rule));
        let texts = [
            (
                Format::EdgeList,
                timed("write an edge list", || export::edge_list(&graph)).expect("no parallels"),
            ),
            (Format::GraphMl, timed("write GraphML", || export::graphml(&graph))),
        ];
        for (format, text) in &texts {
            let what = format!("read {} ({} MB)", format.name(), text.len() / 1_000_000);
            let read = timed(&what, || import(*format, "bench", text, &Defaults::default()));
            assert!(matches!(read, Ok(Imported::Graph(_))), "{read:?}");
        }
        let found = timed("recognise", || recognise(&graph)).expect("a fat tree");
        println!("  found: {}", found.describe());
        let mut broken = graph.clone();
        broken.links.pop();
        assert!(timed("recognise nothing", || recognise_clos(&broken)).is_none());
        let spec = TopologySpec::Graph(graph);
        let by_table = timed("tables", || Topology::new(&spec)).expect("a sound graph");
        println!("  next hop by table {:.1} ns, by rule {:.1} ns", look_up(&by_table), look_up(&by_rule));
    }
}
