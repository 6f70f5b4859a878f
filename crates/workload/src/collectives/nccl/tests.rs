//! The choice against NCCL's documented behaviour, times against closed forms worked by hand.

mod curves;
mod sums;

use std::sync::Arc;

use windtunnel_kernel::{Bytes, Span};

use super::hosts::dgx_h100;
use super::prior::Hop;
use super::*;
use crate::collectives::{CollectiveKind, CollectiveSpec, Plan, Tuner};

fn dgx_a100() -> Hardware {
    Hardware {
        architecture: Architecture::Ampere,
        scale_up: 240e9,
        scale_up_sums: false,
        nic: 25e9,
        memory: 1.3e12,
        amd: true,
        ..dgx_h100()
    }
}

fn on(domains: u32, ranks: u32) -> Layout {
    Layout { domains, ranks, ranks_per_process: 1 }
}

fn chosen(hardware: &Hardware, layout: Layout, function: Function, bytes: u64) -> (Algorithm, Protocol) {
    let settings = Settings::default();
    let choice = Communicator { hardware, layout, settings: &settings }
        .choose(function, bytes)
        .expect("all is allowed");
    (choice.algorithm, choice.protocol)
}

#[test]
fn one_host_of_hopper_sums_in_the_switch_and_ampere_goes_round() {
    let all_reduce = Function::AllReduce;
    // NCCL 2.17 and later: NVLink SHARP for large all-reduces of 8 H100, rings on A100.
    assert_eq!(chosen(&dgx_h100(), on(1, 8), all_reduce, 1 << 30), (Algorithm::Nvls, Protocol::Simple));
    assert_eq!(chosen(&dgx_a100(), on(1, 8), all_reduce, 1 << 30), (Algorithm::Ring, Protocol::Simple));
    // Of 4 ranks the switch saves too little: 370.8 · 0.85 · 3/4 < 370.8 · 4/6.
    assert_eq!(chosen(&dgx_h100(), on(1, 4), all_reduce, 1 << 30).0, Algorithm::Ring);
    assert_eq!(chosen(&dgx_h100(), on(1, 8), all_reduce, 8).1, Protocol::LL);
}

#[test]
fn small_sizes_of_many_hosts_go_by_trees_and_large_ones_by_rings() {
    let all_reduce = Function::AllReduce;
    for domains in [4, 16, 64] {
        let small = chosen(&dgx_a100(), on(domains, 8), all_reduce, 1024);
        assert_eq!(small, (Algorithm::Tree, Protocol::LL), "{domains}");
        let large = chosen(&dgx_a100(), on(domains, 8), all_reduce, 16 << 30);
        assert_eq!(large, (Algorithm::Ring, Protocol::Simple), "{domains}");
        // Between them LL128, which NVLink and a NIC at the GPU's switch allow.
        assert_eq!(chosen(&dgx_a100(), on(domains, 8), all_reduce, 1 << 20).1, Protocol::LL128, "{domains}");
    }
    // More hosts, later to rings.
    let turn = |domains| {
        (10..36)
            .find(|&exponent| {
                chosen(&dgx_a100(), on(domains, 8), all_reduce, 1 << exponent).0 == Algorithm::Ring
            })
            .expect("rings in the end")
    };
    assert!(turn(4) < turn(16) && turn(16) < turn(64));
    // All-gathers have rings alone, unless there is one rank a host.
    assert_eq!(chosen(&dgx_a100(), on(4, 8), Function::AllGather, 1 << 20).0, Algorithm::Ring);
    assert_eq!(chosen(&dgx_a100(), on(64, 1), Function::AllGather, 1 << 16).0, Algorithm::Pat);
}

#[test]
fn the_environment_is_followed() {
    let hardware = dgx_h100();
    let with = |pairs: &[(&str, &str)]| {
        let mut settings = Settings::default();
        for (name, value) in pairs {
            assert_eq!(settings.set(name, value), Ok(true), "{name}");
        }
        settings
    };
    let choose = |pairs: &[(&str, &str)], bytes| {
        let settings = with(pairs);
        Communicator { hardware: &hardware, layout: on(1, 8), settings: &settings }
            .choose(Function::AllReduce, bytes)
    };
    assert_eq!(choose(&[("NCCL_ALGO", "Ring")], 1 << 30).expect("a ring").algorithm, Algorithm::Ring);
    assert_eq!(choose(&[("NCCL_ALGO", "^NVLS")], 1 << 30).expect("a ring").algorithm, Algorithm::Ring);
    assert_eq!(choose(&[("NCCL_NVLS_ENABLE", "0")], 1 << 30).expect("a ring").algorithm, Algorithm::Ring);
    assert_eq!(choose(&[("NCCL_PROTO", "Simple")], 8).expect("simple").protocol, Protocol::Simple);
    assert_eq!(choose(&[("NCCL_MAX_NCHANNELS", "4")], 1 << 30).expect("channels").channels, 4);
    assert_eq!(choose(&[("NCCL_MIN_NCHANNELS", "16")], 8).expect("channels").channels, 16);
    assert!(choose(&[("NCCL_ALGO", "PAT")], 8).is_err(), "no all-reduce by PAT");
    let mut settings = Settings::default();
    assert_eq!(settings.set("NCCL_DEBUG", "INFO"), Ok(false));
    let error = settings.set("NCCL_ALGO", "rings").expect_err("no such algorithm");
    assert_eq!(error.to_string(), "`NCCL_ALGO=rings`: expected names of algorithms");
}

#[test]
fn the_tuner_adds_latencies_as_its_source_does() {
    // Ring, LL, 2 hosts of 4 with AMD's processors, which post a message in 2 us: 6.6 + 12 · 2 + 2 · 2.7; Simple posts
    // three: 8.4 + 12 · 6 + 2 · 14; tree, Simple: 8.4 + 2 · (3 · 4 + 14).
    let settings = Settings::default();
    let hardware = Hardware { gpus: 4, nics: 4, ..dgx_a100() };
    let communicator = Communicator { hardware: &hardware, layout: on(2, 4), settings: &settings };
    let latency = |algorithm, protocol| {
        communicator.estimate(Function::AllReduce, algorithm, protocol).expect("allowed").latency
    };
    assert!((latency(Algorithm::Ring, Protocol::LL) - 36.0).abs() < 1e-9);
    assert!((latency(Algorithm::Ring, Protocol::Simple) - 108.4).abs() < 1e-9);
    assert!((latency(Algorithm::Tree, Protocol::Simple) - 60.4).abs() < 1e-9);
    // From 64 B a rank and channel on rings of several hosts are believed to take 1.4 times their latency.
    let bytes = 1 << 20;
    let believed = communicator
        .estimated(Function::AllReduce, (Algorithm::Ring, Protocol::Simple), bytes)
        .expect("allowed");
    let expected = 1.4 * 108.4 + bytes as f64 / (1e3 * 96.0 * 8.0 / 14.0);
    assert!((believed - expected).abs() < 1e-9, "{believed} {expected}");
    // One rank a host: the network's latency of trees, 6.6 + 6 · 5 between 4 hosts.
    let alone = Communicator { layout: on(4, 1), ..communicator.clone() };
    let one = alone.estimate(Function::AllReduce, Algorithm::Ring, Protocol::LL).expect("allowed").latency;
    assert!((one - 36.6).abs() < 1e-9, "{one}");
    // The ring's bandwidth: four channels of 24 GB/s, the next speed below the NICs' 25 that the search tries, by 8 of 14
    // steps.
    let ring =
        communicator.estimate(Function::AllReduce, Algorithm::Ring, Protocol::Simple).expect("allowed");
    assert!((ring.bandwidth - 96.0 * 8.0 / 14.0).abs() < 1e-9);
    assert_eq!(prior::hop(Hop::Net, Algorithm::Ring, Version::NEWEST)[2], 14.0);
    assert_eq!(prior::tree_correction(Protocol::LL, 1 << 18), 0.4);
    assert_eq!(prior::tree_correction(Protocol::LL, 1 << 40), 1.0);
}

#[test]
fn times_are_sums_of_their_parts() {
    let hardware = dgx_a100();
    let settings = Settings::default();
    let constants = Constants {
        launch: 5e-6,
        channel: 0.0,
        base: [0.0; 3],
        hop_scale_up: [1e-6; 3],
        hop_tree: [4e-6; 3],
        hop_ring: [4e-6; 3],
        share_scale_up: [1.0; 3],
        share_network: [1.0; 3],
        ..Constants::default()
    };
    let communicator = Communicator { hardware: &hardware, layout: on(4, 8), settings: &settings };
    let choice = Choice { algorithm: Algorithm::Ring, protocol: Protocol::Simple, channels: 16 };
    let bytes = 1u64 << 30;
    // 62 steps, every eighth between hosts, which some part begins with: 8, each with a microsecond of wire; 200 GB/s of
    // NICs. Two channels share a NIC: while one waits the other sends.
    let expected = 5e-6 + 0.5 * (54e-6 + 8.0 * 5e-6) + bytes as f64 * 62.0 / 32.0 / 200e9;
    let found = communicator.time_of(Function::AllReduce, choice, bytes, &constants);
    assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    // A process that launches on 8 GPUs takes 7 launches more.
    let layout = Layout { ranks_per_process: 8, ..communicator.layout };
    let together = Communicator { layout, ..communicator.clone() };
    let issued = Constants { issue: 3e-6, ..constants.clone() };
    let later = together.time_of(Function::AllReduce, choice, bytes, &issued);
    assert!((later - found - 21e-6).abs() < 1e-12);
    // All-to-all: 24 of 32 shares leave a host of 8 ranks.
    let exchange = Constants {
        exchange: 1e-6,
        peer_scale_up: 0.0,
        peer_network: 0.0,
        exchange_network: 1.0,
        exchange_single: 1.0,
        ..constants
    };
    let point = Choice { algorithm: Algorithm::PointToPoint, protocol: Protocol::Simple, channels: 16 };
    let found = communicator.time_of(Function::AllToAll, point, bytes, &exchange);
    let expected = 1e-6 + 5e-6 + 8.0 * bytes as f64 * 24.0 / 32.0 / 200e9;
    assert!((found - expected).abs() < 1e-12, "{found} {expected}");
}

/// Constants of rings that cost nothing but their bytes.
fn without_hops() -> Constants {
    Constants {
        launch: 0.0,
        channel: 0.0,
        base: [0.0; 3],
        hop_scale_up: [0.0; 3],
        hop_ring: [0.0; 3],
        ..Constants::default()
    }
}

#[test]
fn messages_of_a_ring_wait_for_their_proxy() {
    let hardware = Hardware { gpus: 4, nics: 4, ..dgx_a100() };
    let constants = Constants {
        share_network: [1.0; 3],
        eager: 8192.0,
        short_message: 32768.0,
        share_short: 0.1,
        handshake: 20e-6,
        copy_launch: 5e-6,
        ..without_hops()
    };
    let hardware = Hardware { wire: 0.0.into(), ..hardware };
    let time = |pairs: &[(&str, &str)], message: u64| {
        let mut settings = Settings::default();
        for (name, value) in pairs {
            settings.set(name, value).expect("a value of the variable's");
        }
        let communicator = Communicator { hardware: &hardware, layout: on(4, 4), settings: &settings };
        let choice = Choice { algorithm: Algorithm::Ring, protocol: Protocol::Simple, channels: 16 };
        // Per step: parts of `message` bytes, four on every NIC, each in two slices.
        communicator.time_of(Function::AllReduce, choice, message * 16 * 16, &constants) / 30.0
    };
    let near =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    let (short, long, longer) = (65536u64, 131_072u64, 1u64 << 20);
    near(time(&[], short), 4.0 * short as f64 / 2.5e9);
    near(time(&[], long), 8.0 * 20e-6);
    near(time(&[], longer), 4.0 * longer as f64 / 25e9);
    // Eight hops over the network pay for the copy, too; of four channels of a NIC one waits.
    let copied = 8.0 * 25e-6 + 8.0 * 5e-6 / 4.0 / 30.0;
    near(time(&[("FI_HMEM_CUDA_USE_GDRCOPY", "0")], long), copied);
    near(time(&[("FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD", "16777216")], short), 8.0 * 20e-6);
}

/// Hosts of 4 A100 on NVLink and two NICs of 200 Gbps at the processor.
fn two_nics() -> Hardware {
    Hardware { gpus: 4, nics: 2, ll128_between: false, ..dgx_a100() }
}

#[test]
fn low_latency_messages_beyond_the_eager_limit_wait_one_after_another() {
    let hardware = Hardware { wire: 0.0.into(), ..two_nics() };
    let settings = Settings::default();
    let constants = Constants {
        rendezvous: 0.0,
        share_network: [0.5; 3],
        eager: 8192.0,
        answer: 15e-6,
        ..without_hops()
    };
    let communicator = Communicator { hardware: &hardware, layout: on(2, 4), settings: &settings };
    // Per step, parts of so many bytes: two channels on each of two NICs.
    let step = |part: u64| {
        let choice = Choice { algorithm: Algorithm::Ring, protocol: Protocol::LL, channels: 4 };
        communicator.time_of(Function::AllReduce, choice, part * 8 * 4, &constants) / 14.0
    };
    // Flags double them on the wire: 2 KiB of data are sent unasked, 4 KiB are not, and parts beyond 32 KiB go in chunks.
    assert!((step(2048) - 2.0 * 2048.0 / 12.5e9).abs() < 1e-12);
    assert!((step(4096) - 2.0 * 15e-6).abs() < 1e-12);
    assert!((step(131_072) - 2.0 * 4.0 * 15e-6).abs() < 1e-12);
}

#[test]
fn a_low_latency_message_beyond_the_rendezvous_threshold_is_pulled() {
    let hardware = Hardware { wire: 0.0.into(), ..two_nics() };
    let settings = Settings::default();
    let constants = Constants {
        launch: 0.0,
        channel: 0.0,
        base: [0.0; 3],
        hop_tree: [4e-6; 3],
        share_network: [0.05, 0.05, 0.8],
        eager: 8192.0,
        rendezvous: 10e-6,
        answer: 0.0,
        handshake: 0.0,
        pulled: 16384.0,
        block: [f64::INFINITY; 3],
        ..Constants::default()
    };
    let communicator = Communicator { hardware: &hardware, layout: on(2, 1), settings: &settings };
    let choice = Choice { algorithm: Algorithm::Tree, protocol: Protocol::LL, channels: 2 };
    // Two channels, one of either tree: a chunk goes up and down. LL's flags double it on the wire of 25 GB/s.
    let time = |chunk: u64| communicator.time_of(Function::AllReduce, choice, 2 * chunk, &constants);
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    // 16 KiB on the wire are copied at LL's own share, 32 KiB are pulled at Simple's.
    near(time(8192), 2.0 * 14e-6 + 2.0 * 8192.0 / (0.05 * 25e9));
    near(time(16384), 2.0 * 14e-6 + 2.0 * 32768.0 / (0.8 * 25e9));
    // Without such a threshold all are copied.
    let copied = Constants { pulled: 0.0, ..constants.clone() };
    let all = communicator.time_of(Function::AllReduce, choice, 2 * 16384, &copied);
    near(all, 2.0 * 14e-6 + 2.0 * 16384.0 / (0.05 * 25e9));
    // Eight channels are four of either tree: three others keep the NIC busy until their answers come.
    let waiting = Constants { answer: 40e-6, ..constants };
    let many = Choice { channels: 8, ..choice };
    let found = communicator.time_of(Function::AllReduce, many, 8 * 8192, &waiting);
    near(found, 2.0 * 14e-6 + 2.0 * 4.0 * 40e-6);
}

#[test]
fn a_tree_fills_once_and_is_as_deep_as_its_hosts_need() {
    let settings = Settings::default();
    let hardware = Hardware { wire: 0.0.into(), ..two_nics() };
    let constants = Constants {
        launch: 0.0,
        channel: 0.0,
        base: [0.0; 3],
        hop_tree: [4e-6; 3],
        share_network: [1.0; 3],
        block: [10e9; 3],
        ..Constants::default()
    };
    let timed = |domains, channels, protocol, bytes: u64| {
        let communicator = Communicator { hardware: &hardware, layout: on(domains, 1), settings: &settings };
        let choice = Choice { algorithm: Algorithm::Tree, protocol, channels };
        communicator.time_of(Function::AllReduce, choice, bytes, &constants)
    };
    let time = |domains, protocol, bytes| timed(domains, 2, protocol, bytes);
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    // A level takes a chunk's copy by a block of 10 GB/s and its way through a NIC of 25.
    let level = |chunk: f64| chunk / 10e9 + chunk / 25e9;
    // Two hosts: a first chunk goes up and down, those behind that of both channels follow one way.
    let (bytes, chunk) = ((64u64 << 20) as f64, f64::from(1u32 << 19));
    near(time(2, Protocol::Simple, 64 << 20), 8e-6 + 2.0 * level(chunk) + (bytes - 2.0 * chunk) / 25e9);
    // Less than a chunk of Simple is not halved: all goes up, then all comes down.
    near(time(2, Protocol::Simple, 1 << 19), 8e-6 + 2.0 * level(chunk / 2.0));
    // Five hosts are three levels deep, and inner ones pass everything on twice.
    let expected = 24e-6 + 6.0 * level(chunk) + 2.0 * (bytes - 2.0 * chunk) / 25e9;
    near(time(5, Protocol::Simple, 64 << 20), expected);
    // LL128 halves its 576,000 bytes of data while a channel has fewer than 64 · (1 + 1 + 0.1) = 134.4 chunks: 58, 116, 233.
    let chunk = 144_000.0;
    near(time(2, Protocol::LL128, 64 << 20), 8e-6 + 2.0 * level(chunk) + (bytes - 2.0 * chunk) / 25e9);
    // Four channels of either tree on one NIC: one chunk each passes without meeting another at its level, a second one
    // has the first wait for the three others of its tree.
    let chunk = f64::from(1u32 << 19);
    near(timed(5, 8, Protocol::Simple, 4 << 20), 24e-6 + 6.0 * level(chunk));
    let behind = 2.0 * 8.0 * chunk / 25e9;
    near(timed(5, 8, Protocol::Simple, 8 << 20), 24e-6 + 6.0 * (level(chunk) + 3.0 * chunk / 25e9) + behind);
}

#[test]
fn versions_of_nccl_decide_by_their_own_tables() {
    assert_eq!(Version::parse("2.18.5"), Some(Version(2, 18, 5)));
    assert_eq!(Version::parse("2.26.2+cuda12.8"), Some(Version(2, 26, 2)));
    assert_eq!(Version::parse("2.23.4-1"), Some(Version(2, 23, 4)));
    assert_eq!(Version::parse("22807"), Some(Version(2, 28, 7)));
    assert_eq!(Version::parse("2_18"), Some(Version(2, 18, u32::MAX)));
    assert_eq!((Version::parse("new"), Version::parse("")), (None, None));
    assert!(Settings::default().set("NCCL_VERSION", "newest").is_err());

    let hardware = two_nics();
    let with = |version: &str| {
        let mut settings = Settings::default();
        assert_eq!(settings.set("NCCL_VERSION", version), Ok(true));
        settings
    };
    let latency = |version, algorithm, protocol| {
        let settings = with(version);
        Communicator { hardware: &hardware, layout: on(8, 4), settings: &settings }
            .estimate(Function::AllReduce, algorithm, protocol)
            .expect("allowed")
            .latency
    };
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    // Trees under Simple of 8 hosts of 4: 2 (3 · 4 + 3 · 14), 2.19 to 2.22 2 (3 · 28 + 3 · 28), since 2.23 8.4 more than first.
    near(latency("2.18.5", Algorithm::Tree, Protocol::Simple), 108.0);
    near(latency("2.21.5", Algorithm::Tree, Protocol::Simple), 336.0);
    near(latency("2.23.4", Algorithm::Tree, Protocol::Simple), 116.4);
    // Rings of LL: 62 steps of 2 us on AMD's processors, of which 16 cross, since 2.23 14, at 2.7; before 2.18 nothing for
    // posting, 0.47 us by 1.8.
    near(latency("2.21.5", Algorithm::Ring, Protocol::LL), 6.6 + 46.0 * 2.0 + 16.0 * 2.7);
    near(latency("2.23.4", Algorithm::Ring, Protocol::LL), 6.6 + 48.0 * 2.0 + 14.0 * 2.7);
    near(latency("2.14.3", Algorithm::Ring, Protocol::LL), 3.6 + 46.0 * 0.47 * 1.8 + 16.0 * 2.7);
    // All-reduces of 1 MiB of 8 hosts: Argonne's logs show trees with 2.18 and the rings of LL with 2.21.
    let choose = |version, layout, function, bytes| {
        let settings = with(version);
        let choice = Communicator { hardware: &hardware, layout, settings: &settings }
            .choose(function, bytes)
            .expect("all is allowed");
        (choice.algorithm, choice.protocol)
    };
    let all_reduce = Function::AllReduce;
    assert_eq!(choose("2.18", on(8, 4), all_reduce, 1 << 20), (Algorithm::Tree, Protocol::Simple));
    assert_eq!(choose("2.21", on(8, 4), all_reduce, 1 << 20), (Algorithm::Ring, Protocol::LL));
    // PAT came with 2.23.
    assert_eq!(choose("2.22.3", on(64, 1), Function::AllGather, 1 << 16).0, Algorithm::Ring);
    assert_eq!(choose("2.23.4", on(64, 1), Function::AllGather, 1 << 16).0, Algorithm::Pat);
}

#[test]
fn the_search_counts_channels_of_nics_whatever_the_fabric_carries() {
    let settings = Settings::default();
    let believed = |hardware: &Hardware, layout, algorithm| {
        Communicator { hardware, layout, settings: &settings }
            .estimate(Function::AllReduce, algorithm, Protocol::Simple)
            .expect("allowed")
            .bandwidth
    };
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    // Two NICs of 25 GB/s: two channels of 24; a channel of a tree of many hosts 17.8 at most on Ampere, half of it each way.
    near(believed(&two_nics(), on(8, 4), Algorithm::Tree), 2.0 * 17.8 / 2.0);
    near(believed(&two_nics(), on(8, 4), Algorithm::Ring), 48.0 * 32.0 / 62.0);
    // A fabric that carries a tenth is not asked.
    let slow = Hardware { uplink: 5e9, ..two_nics() };
    near(believed(&slow, on(8, 4), Algorithm::Ring), 48.0 * 32.0 / 62.0);
    // Two NICs of 50 GB/s on Hopper: 48 a NIC, in two channels of 24 each, so that trees are not bound by theirs.
    let fast = Hardware { gpus: 4, nics: 2, ..dgx_h100() };
    near(believed(&fast, on(8, 4), Algorithm::Tree), 96.0 * 0.92 / 2.0);
    // Where no second GPU reaches a NIC trees are simple ones: 15 % less. So is that of a host's only GPU.
    let simple = Hardware { simple_trees: true, ..fast };
    near(believed(&simple, on(8, 4), Algorithm::Tree), 96.0 * 0.92 * 0.85 / 2.0);
    near(believed(&simple, on(8, 4), Algorithm::Ring), 96.0 * 32.0 / 62.0);
    // A speed that the system's file states: 20 GB/s a channel, which are then not doubled.
    let stated = Hardware { channel_speed: 20e9, ..simple };
    near(believed(&stated, on(8, 4), Algorithm::Ring), 40.0 * 32.0 / 62.0);
    near(believed(&two_nics(), on(8, 1), Algorithm::Tree), 17.8 * 0.85 / 2.0);
}

#[test]
fn a_slow_leaf_slows_down_the_longer_it_is_used() {
    let hardware = Hardware { slow_leaf: true, wire: 0.0.into(), ..dgx_h100() };
    let settings = Settings::default();
    let constants = Constants {
        exchange: 0.0,
        peer_scale_up: 0.0,
        peer_network: 0.0,
        hop_tree: [0.0; 3],
        exchange_network: 1.0,
        exchange_single: 1.0,
        exchange_long: 1.0,
        slow_leaf: 10e9,
        sustained: 1e9,
        ..Constants::default()
    };
    let point = Choice { algorithm: Algorithm::PointToPoint, protocol: Protocol::Simple, channels: 16 };
    let rate = |hardware: &Hardware, function, ranks, bytes: u64| {
        let communicator = Communicator { hardware, layout: on(2, ranks), settings: &settings };
        bytes as f64 / communicator.time_of(function, point, bytes, &constants)
    };
    let near =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
    // The NIC behind the leaf sends half of one rank's buffer to the other host, however many ranks there are.
    for ranks in [1, 4, 8] {
        let bytes = 1_000_000_000 * u64::from(ranks);
        near(rate(&hardware, Function::AllToAll, ranks, bytes), 2.0 * 10e9 / 2.0);
        near(rate(&hardware, Function::AllToAll, ranks, 3 * bytes), 2.0 * 10e9 / 4.0);
    }
    near(rate(&hardware, Function::SendReceive, 8, 1_000_000_000), 10e9 / 2.0);
    // Short ones get all that the leaf lets out, and a leaf that lets out what its NICs send is none.
    assert!((rate(&hardware, Function::SendReceive, 8, 1 << 20) / 10e9 - 1.0).abs() < 2e-3);
    let wide = Hardware { slow_leaf: false, ..hardware.clone() };
    near(rate(&wide, Function::SendReceive, 8, 1_000_000_000), wide.nic);
    // Rings wait for their slowest rail: eight times what it gets, not the share of the NICs that Simple gets.
    let ring = Choice { algorithm: Algorithm::Ring, protocol: Protocol::Simple, channels: 16 };
    let time = |hardware: &Hardware| {
        Communicator { hardware, layout: on(2, 8), settings: &settings }.time_of(
            Function::AllGather,
            ring,
            64 << 30,
            &constants,
        )
    };
    let sound =
        (8.0 * wide.nic * constants.share_network[2]).min(wide.scale_up * constants.share_scale_up[2]);
    let expected = sound / (8.0 * 10e9);
    assert!((time(&hardware) / time(&wide) / expected - 1.0).abs() < 0.02);
}

#[test]
fn times_grow_with_sizes_while_the_choice_stays() {
    let settings = Settings::default();
    for hardware in [dgx_a100(), dgx_h100()] {
        for layout in [on(1, 2), on(1, 8), on(2, 8), on(16, 8), on(8, 1)] {
            let communicator = Communicator { hardware: &hardware, layout, settings: &settings };
            for function in [Function::AllReduce, Function::AllGather, Function::AllToAll] {
                let mut last: Option<(Choice, f64)> = None;
                for exponent in 3..34 {
                    let (choice, time) = communicator
                        .time(function, 1 << exponent, &Constants::default())
                        .expect("something is left");
                    assert!(time > 0.0 && time.is_finite());
                    if let Some((before, least)) = last
                        && (before.algorithm, before.protocol) == (choice.algorithm, choice.protocol)
                    {
                        assert!(time >= 0.999 * least, "{function:?} {layout:?} 2^{exponent}");
                    }
                    last = Some((choice, time));
                }
            }
        }
    }
}

#[test]
fn more_hosts_than_a_group_crowd_its_links_and_further_ranks_wait_for_a_proxy() {
    let settings = Settings::default();
    let hardware = dgx_a100();
    let none = Constants::default();
    let crowded = Constants { crowd: [0.1, 0.1, 0.3], ..none.clone() };
    let proxies = Constants { proxy: 5e-6, ..none.clone() };
    for (domains, grows) in [(8, 1.0), (16, 1.0), (32, 1.3), (64, 1.6)] {
        let on = Communicator { hardware: &hardware, layout: on(domains, 8), settings: &settings };
        let ring = Choice { algorithm: Algorithm::Ring, protocol: Protocol::Simple, channels: 16 };
        let tree = Choice { algorithm: Algorithm::Tree, ..ring };
        // A tree of very many bytes is all bytes. A ring's neighbours stand in one group, but for one of each.
        let time = |choice, constants| on.time_of(Function::AllReduce, choice, 1 << 40, constants);
        assert!((time(tree, &crowded) / time(tree, &none) / grows - 1.0).abs() < 1e-3, "{domains}");
        assert_eq!(time(ring, &crowded).to_bits(), time(ring, &none).to_bits());
        let short = |constants| on.time_of(Function::AllReduce, tree, 1, constants);
        let levels = f64::from(domains.ilog2());
        // Seven further ranks, at every level up and down.
        assert!((short(&proxies) - short(&none) - 2.0 * levels * 7.0 * 5e-6).abs() < 1e-9, "{domains}");
    }
}

/// Hopper's search channels become four of few ranks a host, two where rings change NICs.
#[test]
fn rings_that_change_nics_have_half_of_the_channels() {
    let mut crossing = Settings::default();
    crossing.set("NCCL_CROSS_NIC", "1").expect("a value of the variable's");
    let hardware = Hardware { gpus: 4, nics: 4, ..dgx_h100() };
    let settings = Settings::default();
    let channels = |settings, ranks| {
        Communicator { hardware: &hardware, layout: on(4, ranks), settings }
            .choose(Function::AllReduce, 1 << 30)
            .unwrap()
            .channels
    };
    assert_eq!((channels(&settings, 4), channels(&crossing, 4)), (16, 8));
}

#[test]
fn a_peer_of_grouped_sends_has_fewer_channels_among_more_ranks() {
    let settings = Settings::default();
    let hardware = dgx_h100();
    let constants = Constants { peer_channels: 1.0, ..Constants::default() };
    let size = 1 << 34;
    let time = |domains, ranks| {
        Communicator { hardware: &hardware, layout: on(domains, ranks), settings: &settings }
            .time(Function::SendReceive, size, &constants)
            .unwrap()
            .1
    };
    // 8 · 16 operations are four for each of 32 channels.
    let alone = time(2, 8);
    assert!((time(10, 2) / alone - 2.0).abs() < 0.01 && (time(10, 8) / alone - 8.0).abs() < 0.01);
}

/// Message by message: of what passes before the bytes, a collective leaves what its messages bring by themselves. A ring over two
/// domains of eight leaves its domain in two of fifteen steps.
#[test]
fn messages_bring_the_latency_of_their_chain_and_launch_the_rest() {
    struct Always(crate::collectives::Algorithm);
    impl Tuner for Always {
        fn choose(&self, _: &CollectiveSpec, _: u32) -> crate::collectives::Algorithm {
            self.0
        }
    }
    let (inside, between) = (100_000, 1_000_000);
    let library = Library(Arc::new(Machine {
        hardware: dgx_h100(),
        settings: Settings::default(),
        rules: Vec::new(),
        constants: Constants::default(),
        hosts_of_domain: 1,
        payload: 1.0,
        latency: [Span::from_ps(inside), Span::from_ps(between)],
        sites: None,
        kinds: None,
    }));
    let spec = CollectiveSpec {
        domain: 8,
        library: Some(library.clone()),
        ..CollectiveSpec::new(CollectiveKind::AllGather, Bytes::new(64 << 20))
    };
    let before = library.0.cost_of(&spec, 16).expect("NCCL gathers").before.ps();
    let ring = Plan::by_steps(&spec, 16, &Always(crate::collectives::Algorithm::Ring)).expect("a ring");
    assert!(before > 13 * inside + 2 * between);
    assert_eq!(ring.before().ps(), before - (13 * inside + 2 * between));
}
