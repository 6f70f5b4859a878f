//! pHost, pFabric and dcPIM beside what a public simulator of the three gives in the setting of DCSIM's paper: a fat tree of 128 hosts at
//! 800 Gbps, 650 ns a link, packets of 9,000 B, 500 KB a port, flows in bandwidth–delay products of 87 packets. Draws differ, and so does
//! the choice among equal paths (there in turn at each switch, here by hashes of path numbers).

use std::sync::Arc;

use windtunnel_fabric::packet::transport::{DcPim, Dcsim, PFabric, PHost, Tally, Transport};
use windtunnel_fabric::packet::{Balancer, PacketSettings};
use windtunnel_kernel::{BitRate, Bytes, RandomStream, Span};
use windtunnel_topology::{ClosSpec, Topology, TopologySpec};

use crate::packets::{drain, engine, send, star};

fn settings() -> PacketSettings {
    PacketSettings {
        mtu: Bytes::new(9_000),
        header: Bytes::new(40),
        control: Bytes::new(64),
        seed: 1,
        balancer: Balancer::Spray { paths: 1 << 12 },
        ..PacketSettings::default()
    }
}

fn fat_tree(k: u32) -> Arc<Topology> {
    let mut spec = ClosSpec::fat_tree(k, BitRate::from_gbps(800));
    for tier in &mut spec.tiers {
        (tier.length_mm, tier.switch_latency) = (130_000, Span::ZERO);
    }
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fat tree"))
}

/// Completion time in µs of a permutation of so many packets over 128 hosts, and what was counted.
fn permutation<T: Transport>(transport: T, packets: u64) -> (f64, Tally) {
    let topology = fat_tree(8);
    let mut engine = engine(&topology, settings(), transport);
    let order = RandomStream::new(1, "permutation", 0).permutation(128);
    for (&from, &to) in order.iter().zip(order.iter().cycle().skip(1)) {
        send(&mut engine, 0, from, to, packets * 8_960, u64::from(from));
    }
    let done = drain(&mut engine);
    assert_eq!(done.len(), 128);
    let last = done.iter().map(|completion| completion.at.ps()).max().expect("messages");
    (last as f64 / 1e6, engine.tally().expect("a dispatcher"))
}

fn assert_near(what: &str, found: f64, expected: f64, part: f64) {
    assert!((found / expected - 1.0).abs() <= part, "{what}: {found:.1} µs, the simulator has {expected} µs");
}

/// One packet more than a bandwidth–delay product, which is a long flow, and two and four of them.
#[test]
fn permutations_take_as_long_as_in_the_reference() {
    for (packets, phost, dcpim) in [(88, 52.9, 69.9), (174, 84.5, 70.4), (348, 148.4, 75.5)] {
        assert_near("phost", permutation(PHost::default(), packets).0, phost, 0.1);
        assert_near("dcpim", permutation(DcPim::default(), packets).0, dcpim, 0.1);
    }
    for (packets, dcsim) in [(44, 51.5), (87, 55.5), (174, 63.4), (348, 79.4)] {
        assert_near("dcsim", permutation(Dcsim::default(), packets).0, dcsim, 0.02);
    }
    assert_near("pfabric", permutation(PFabric::default(), 44).0, 11.0, 0.1);
    assert_near("pfabric", permutation(PFabric::default(), 348).0, 162.8, 0.1);
}

/// A window of 87 packets meets a NIC's queue of 55: 32 of 119 transmissions are lost in the host, none in the network.
#[test]
fn pfabric_drops_in_its_own_hosts() {
    let (_, tally) = permutation(PFabric::default(), 87);
    assert_eq!((tally.get("data_lost_in_hosts"), tally.get("data_lost_in_network")), (128 * 32, 0));
}

/// Short flows need no matching: all is sent at once, and nothing but announcements and acknowledgements besides.
#[test]
fn short_flows_are_sent_at_once() {
    let (time, tally) = permutation(DcPim::default(), 87);
    assert!(time < 20.0 && tally.get("tokens_sent") == 0, "{time}");
    let (time, tally) = permutation(DcPim { strict: true, ..DcPim::default() }, 87);
    assert!(time > 50.0 && tally.get("tokens_sent") >= 128 * 87, "{time}");
}

/// Eight hosts send 40 packets each to one at once, whose port holds 55: of 320 some 225 are lost. Free tokens count as given, so no flow
/// is given another for twice 40 packet times; the receiver leaves 40 slots, those of the last announcement, not 320. So it asks for what
/// is missing from 80 packet times on, one each packet time.
#[test]
fn phost_leaves_slots_to_the_last_announcement_alone() {
    let phost = PHost {
        initial: 64.0,
        window: 64.0,
        resend: Some(89),
        window_timeout: Some(265),
        ..PHost::default()
    };
    let settings = PacketSettings { balancer: Balancer::Ecmp, ..settings() };
    let mut engine = engine(&star(9, 800, 0), settings, phost);
    for host in 1..9 {
        send(&mut engine, 0, host, 0, 40 * 8_960, u64::from(host));
    }
    let done = drain(&mut engine);
    assert_eq!(done.len(), 8);
    let tally = engine.tally().expect("a dispatcher");
    let (lost, tokens) = (tally.get("data_lost_in_network"), tally.get("tokens_sent"));
    assert!((180..260).contains(&lost), "{lost}");
    // What is missing is asked for once, and none of the tokens lapses; only what waits at the port still, until 95 packet times, is asked
    // for though it comes.
    assert!((lost..=lost + 16).contains(&tokens), "{tokens} tokens, {lost} lost");
    assert_eq!(tally.get("data_packets_arrived") - 320, tokens - lost);
    let slots = done.iter().map(|completion| completion.at.ps()).max().expect("messages") / 90_000;
    // And the last waits behind those that waited at the port as the first token was used.
    assert!((80 + tokens..80 + tokens + 20).contains(&slots), "{slots} packet times, {tokens} tokens");
}

/// Of eight hosts that send one 40 packets each at once some 225 are lost, and asked for by matches. The receiver's clocks pass over 40
/// slots before, those of the last announcement; without that the last arrives as much earlier.
#[test]
fn dcpim_leaves_slots_to_what_is_sent_at_once() {
    let last = |hold: bool| {
        let dcpim = DcPim { initial: 64.0, hold, ..DcPim::default() };
        let settings = PacketSettings { balancer: Balancer::Ecmp, ..settings() };
        let mut engine = engine(&star(9, 800, 130_000), settings, dcpim);
        for host in 1..9 {
            send(&mut engine, 0, host, 0, 40 * 8_960, u64::from(host));
        }
        let done = drain(&mut engine);
        assert_eq!(done.len(), 8);
        done.iter().map(|completion| completion.at.ps()).max().expect("messages")
    };
    let slots = (last(true) - last(false)) / 90_000;
    assert!((1..=60).contains(&slots), "{slots} packet times");
}

/// A match is of hosts: when the shorter of two flows of one sender is done, its channel serves the other. The first tokens leave at 20.3 µs,
/// and a channel of four gives one each 0.36 µs, so 120 packets take 43 µs more, and 8.4 µs to the last arrival. A match for each flow would
/// begin with the next matching, at 61 µs.
#[test]
fn dcpim_serves_all_flows_of_a_matched_sender() {
    let dcpim = DcPim { initial: 0.01, ..DcPim::default() };
    let mut engine = engine(&fat_tree(8), settings(), dcpim);
    for (packets, entropy) in [(20, 1), (100, 2)] {
        send(&mut engine, 0, 0, 127, packets * 8_960, entropy);
    }
    let done = drain(&mut engine);
    let last = done.iter().map(|completion| completion.at.ps()).max().expect("messages") as f64 / 1e6;
    assert!((71.0..95.0).contains(&last), "{last} µs");
}
