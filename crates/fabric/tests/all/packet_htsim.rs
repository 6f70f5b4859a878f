//! Against htsim on fat trees of 400 Gbps and 1 µs: `../shared/data/golden/htsim`, whose README gives commits and
//! settings. Ignored where the data is absent.
//!
//! htsim's completion times end with the last acknowledgement at the sender, ours with the last byte at the receiver: the
//! way back of an acknowledgement on an idle path is added.

use std::io::Read as _;
use std::sync::Arc;

use windtunnel_fabric::packet::transport::{Eqds, Ndp, Nscc, Transport};
use windtunnel_fabric::packet::{
    Balancer, EcnSettings, Engine, MarkAt, OpenRequest, PacketSettings, TrimSettings,
};
use windtunnel_kernel::{BitRate, Bytes, Time};
use windtunnel_topology::{ClosSpec, Topology, TopologySpec};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/golden/htsim");

/// (source, destination, bytes) of each line `9->44 id 1 start 0 size 2000000`.
fn matrix(name: &str) -> Vec<(u32, u32, u64)> {
    let file = std::fs::File::open(format!("{DATA}/{name}.cm.gz")).expect("a recorded matrix");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a gzip file");
    let line = |line: &str| {
        let (from, rest) = line.split_once("->")?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        Some((from.parse().ok()?, words[0].parse().ok()?, words.last()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Links of 400 Gbps and 1 µs.
fn fat_tree(k: u32) -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(k, BitRate::from_gbps(400));
    for tier in &mut spec.tiers {
        tier.length_mm = 200_000;
    }
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

/// As `uec` is run: queues of 12.5 µs of 400 Gbps, which trim, and mark between a fifth and four fifths of that.
fn uec_settings() -> PacketSettings {
    let bdp = 625_000;
    let ecn = EcnSettings {
        rate: BitRate::from_gbps(400),
        kmin: Bytes::new(bdp / 5),
        kmax: Bytes::new(bdp * 4 / 5),
        pmax: 1.0,
        at: MarkAt::Dequeue,
    };
    PacketSettings {
        seed: 1,
        balancer: Balancer::Spray { paths: 64 },
        ecn: Some(ecn),
        trimming: Some(TrimSettings { queue: Some(Bytes::new(bdp)), rate: None }),
        ..crate::common::even_packets()
    }
}

/// As `ndp` and `eqds` are: packets of 4,224 B, queues of 50 times 4,160 B, no marks.
fn ndp_settings() -> PacketSettings {
    PacketSettings {
        mtu: Bytes::new(4_224),
        ecn: None,
        trimming: Some(TrimSettings { queue: Some(Bytes::new(50 * 4_160)), rate: None }),
        ..uec_settings()
    }
}

/// Mean and greatest completion time in µs.
fn run<T: Transport>(
    k: u32,
    flows: &[(u32, u32, u64)],
    settings: PacketSettings,
    transport: T,
) -> (f64, f64) {
    let mut engine = Engine::new(fat_tree(k), settings, transport).expect("settings that work");
    let mut back = Vec::new();
    for (token, &(from, to, bytes)) in (0..).zip(flows) {
        let flow = engine.open(&OpenRequest { from, to, entropy: 0, keep: false, route: [&[], &[]] });
        back.push(f64::from(engine.links(flow)) * (1.0 + 64.0 * 8.0 / 400e3));
        engine.send(Time::ZERO, flow, Bytes::new(bytes), token);
    }
    let mut done = Vec::new();
    while engine.next_time() != Time::NEVER {
        engine.run(Time::NEVER, u64::MAX, &mut done);
    }
    assert_eq!(done.len(), flows.len());
    println!("{:?}", engine.totals());
    let times: Vec<f64> =
        done.iter().map(|done| done.at.seconds() * 1e6 + back[done.token as usize]).collect();
    (times.iter().sum::<f64>() / times.len() as f64, times.iter().copied().fold(0.0, f64::max))
}

/// Runs `cases`: matrix, k, htsim's mean and greatest.
fn compare<T: Transport>(cases: &[(&str, u32, f64, f64)], settings: &PacketSettings, transport: &T) {
    for &(name, k, mean, max) in cases {
        let ours = run(k, &matrix(name), settings.clone(), transport.clone());
        println!("{} {name}: {:.1}/{:.1} us, htsim {mean}/{max}", T::NAME, ours.0, ours.1);
        assert!((ours.0 / mean - 1.0).abs() < 0.1, "{name}: mean {:.1} us, htsim {mean}", ours.0);
    }
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn uec_completes_permutations_as_in_htsim() {
    let cases = [
        ("perm_128_2MB", 8, 58.7, 62.9),
        ("perm_1024_2MB", 16, 60.1, 66.0),
        ("perm_128_16MB", 8, 360.2, 400.8),
    ];
    compare(&cases, &uec_settings(), &Nscc::default());
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn ndp_completes_permutations_as_in_htsim() {
    let cases = [("perm_128_2MB", 8, 60.8, 71.2), ("perm_1024_2MB", 16, 63.3, 71.2)];
    // htsim spaces pulls by a packet and 64 B at 0.99 of the link.
    let ndp = Ndp { packets: Some(150), share: 0.99 * 4_224.0 / 4_288.0, ..Ndp::default() };
    compare(&cases, &ndp_settings(), &ndp);
}

#[test]
#[cfg_attr(not(golden_data), ignore = "needs ../shared/data")]
fn eqds_completes_permutations_as_in_htsim() {
    let cases = [("perm_128_2MB", 8, 62.9, 67.8), ("perm_1024_2MB", 16, 64.0, 69.8)];
    compare(&cases, &ndp_settings(), &Eqds { packets: Some(150), ..Eqds::default() });
}
