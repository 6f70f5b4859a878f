//! Against htsim on fat trees of 400 Gbps and 1 µs: `../shared/data/golden/htsim`, whose README gives commits and
//! settings. Skipped where the data is absent.
//!
//! htsim's completion times end with the last acknowledgement at the sender, ours with the last byte at the receiver: the
//! way back of an acknowledgement on an idle path is added. Its queues hold one bandwidth–delay product and trim what is
//! above, with marks between a fifth and four fifths of it; here they do not overflow.

use std::io::Read as _;
use std::sync::Arc;

use windtunnel_fabric::packet::transport::Nscc;
use windtunnel_fabric::packet::{Balancer, EcnSettings, Engine, MarkAt, OpenRequest, PacketSettings};
use windtunnel_kernel::{BitRate, Bytes, Time};
use windtunnel_topology::{ClosSpec, Topology, TopologySpec};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/golden/htsim");

/// (source, destination, bytes) of each line `9->44 id 1 start 0 size 2000000`.
fn matrix(name: &str) -> Option<Vec<(u32, u32, u64)>> {
    let file = std::fs::File::open(format!("{DATA}/{name}.cm.gz")).ok()?;
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a gzip file");
    let line = |line: &str| {
        let (from, rest) = line.split_once("->")?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        Some((from.parse().ok()?, words[0].parse().ok()?, words.last()?.parse().ok()?))
    };
    Some(text.lines().filter_map(line).collect())
}

/// Mean and greatest completion time in µs.
fn run(k: u32, flows: &[(u32, u32, u64)]) -> (f64, f64) {
    let mut spec = ClosSpec::fat_tree(k, BitRate::from_gbps(400));
    for tier in &mut spec.tiers {
        tier.length_mm = 200_000;
    }
    let topology = Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"));
    // 12.5 µs of 400 Gbps.
    let bdp = 625_000;
    let ecn = EcnSettings {
        rate: BitRate::from_gbps(400),
        kmin: Bytes(bdp / 5),
        kmax: Bytes(bdp * 4 / 5),
        pmax: 1.0,
        at: MarkAt::Enqueue,
    };
    let settings = PacketSettings {
        seed: 1,
        balancer: Balancer::Spray { paths: 64 },
        ecn: Some(ecn),
        ..PacketSettings::default()
    };
    let mut engine = Engine::new(topology, settings, Nscc::default()).expect("settings that work");
    let mut back = Vec::new();
    for (token, &(from, to, bytes)) in (0..).zip(flows) {
        let flow = engine.open(&OpenRequest { from, to, entropy: 0, keep: false, route: [&[], &[]] });
        back.push(f64::from(engine.links(flow)) * (1.0 + 64.0 * 8.0 / 400e3));
        engine.send(Time::ZERO, flow, Bytes(bytes), token);
    }
    let mut done = Vec::new();
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, u64::MAX, &mut done);
    }
    assert_eq!(done.len(), flows.len());
    let times: Vec<f64> =
        done.iter().map(|done| done.at.seconds() * 1e6 + back[done.token as usize]).collect();
    (times.iter().sum::<f64>() / times.len() as f64, times.iter().copied().fold(0.0, f64::max))
}

#[test]
fn uec_completes_permutations_as_in_htsim() {
    for (name, k, mean, max) in [
        ("perm_128_2MB", 8, 58.7, 62.9),
        ("perm_1024_2MB", 16, 60.1, 66.0),
        ("perm_128_16MB", 8, 360.2, 400.8),
    ] {
        let Some(flows) = matrix(name) else {
            println!("skipped: {DATA}/{name}.cm.gz is absent");
            continue;
        };
        let ours = run(k, &flows);
        println!("{name}: {:.1}/{:.1} us, htsim {mean}/{max}", ours.0, ours.1);
        assert!((ours.0 / mean - 1.0).abs() < 0.1, "{name}: mean {:.1} us, htsim {mean}", ours.0);
    }
}
