//! What `path_health` promises: all planes are used, and paths that lose packets are left out, by the next queue pair too.

use std::sync::Arc;

use path_health::PathHealth;
use windtunnel_fabric::packet::{
    Balancer, Completion, Engines, GilbertElliott, Impairments, OpenRequest, PacketSettings, Share,
};
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{ClosSpec, HostSpec, LinkId, Names, Tier, Topology, TopologySpec};

const HOSTS: u32 = 4;
/// Sprays alike, and does not heed what is lost where.
const BLIND: PathHealth = PathHealth { out: Span::ZERO };

/// Two leaves of 4 hosts in each of `planes`, with a cable of 100 m at 400 Gbps to each of 4 spines.
fn two_leaves(planes: u32) -> Arc<Topology> {
    let rate = BitRate::from_gbps(400);
    let far = |tier: Tier| Tier { length_mm: 100_000, ..tier };
    let tiers = vec![far(Tier::new(HOSTS, rate)), far(Tier::new(2, rate))];
    let spec = ClosSpec { planes, ..ClosSpec::new(2 * HOSTS, HostSpec::new(1, 1, rate), tiers) };
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fabric"))
}

fn link(topology: &Topology, name: &str) -> LinkId {
    Names::new(topology).link(name).unwrap_or_else(|error| panic!("{error:?}"))
}

fn losing(losses: &[(LinkId, f64)]) -> PacketSettings {
    let loss = |&(link, share)| (link, GilbertElliott::independent(Share::Packets(share)));
    PacketSettings {
        seed: 7,
        balancer: Balancer::Spray { paths: 16 },
        impairments: Impairments { losses: losses.iter().map(loss).collect(), ..Impairments::default() },
        mtu: Bytes::new(4_160),
        header: Bytes::new(64),
        ..PacketSettings::default()
    }
}

/// What a run left behind.
struct Seen {
    done: Vec<Completion>,
    engines: Engines<PathHealth>,
}

impl Seen {
    /// Data packets that left by a link.
    fn sent_by(&self, link: LinkId) -> u64 {
        let reports = self.engines.port_reports();
        reports.iter().find(|report| report.link == link).map_or(0, |report| report.data_packets)
    }

    fn us(&self, message: usize) -> f64 {
        self.done[message].at.since(self.done[message].start).seconds() * 1e6
    }

    fn retransmissions(&self) -> u64 {
        self.engines.totals().retransmissions
    }
}

/// Messages of `bytes` from one host to another one after the other, each on a queue pair of its own.
fn run(
    topology: &Arc<Topology>,
    settings: PacketSettings,
    endpoint: PathHealth,
    [from, to]: [u32; 2],
    messages: u64,
    bytes: u64,
) -> Seen {
    let mut engines =
        Engines::new(topology.clone(), settings, endpoint, Span::MAX).expect("settings that work");
    engines.keep_digest(&EventDigest::new());
    let mut done = Vec::new();
    for token in 0..messages {
        let now = engines.run(Time::from_ps(token), 0, &mut done);
        let request = OpenRequest { from, to, entropy: token as u32, keep: false, route: [&[], &[]] };
        let pair = engines.open(now, &request);
        let last = done.last().map_or(now, |completion: &Completion| completion.at);
        engines.send(now.max(last), pair, Bytes::new(bytes), token);
        while engines.next_time() != Time::NEVER {
            engines.run(Time::NEVER, u64::MAX, &mut done);
        }
    }
    let totals = engines.totals();
    assert_eq!((done.len() as u64, engines.packets_live()), (messages, 0), "{totals:?}");
    Seen { done, engines }
}

const BYTES: u64 = 8_000_000;

/// Nothing is lost: on two planes of half the rate each a message takes as long as on one of the whole, and each carries half of it.
#[test]
fn all_planes_are_filled() {
    let on = |planes| run(&two_leaves(planes), losing(&[]), PathHealth::default(), [0, HOSTS], 1, 4 * BYTES);
    let (one, two) = (on(1), on(2));
    assert_eq!((one.retransmissions(), two.retransmissions()), (0, 0));
    assert!(
        (two.us(0) / one.us(0) - 1.0).abs() < 0.02,
        "{} us on two planes, {} us on one",
        two.us(0),
        one.us(0)
    );
    let topology = two_leaves(2);
    let [first, second] = [0, 1].map(|plane| two.sent_by(topology.nic_link(0, plane)));
    assert!(first.abs_diff(second) <= 2, "{first} packets and {second}");
}

/// One of four cables up loses everything. Blind spraying sends a quarter of all there, and again and again.
#[test]
fn a_dead_path_is_left_out_and_the_next_queue_pair_knows() {
    let topology = two_leaves(1);
    let dead = link(&topology, "leaf0 -> spine2");
    let settings = losing(&[(dead, 1.0)]);
    let run = |endpoint, messages| run(&topology, settings.clone(), endpoint, [0, HOSTS], messages, BYTES);
    let (blind, one, two) = (run(BLIND, 1), run(PathHealth::default(), 1), run(PathHealth::default(), 2));
    let packets = BYTES / 4_096;
    assert!(blind.sent_by(dead) > packets / 5, "{}", blind.sent_by(dead));
    assert!(one.sent_by(dead) < blind.sent_by(dead) / 5, "{} of {}", one.sent_by(dead), blind.sent_by(dead));
    assert!(one.us(0) < blind.us(0), "{} us, blindly {} us", one.us(0), blind.us(0));
    let later = two.sent_by(dead) - one.sent_by(dead);
    assert!(later < one.sent_by(dead) / 2, "{later} more in the second message, after {}", one.sent_by(dead));
    assert!(two.us(1) < one.us(0), "{} us after {} us", two.us(1), one.us(0));
}

/// A cable that loses every fifth packet is used little, and not given up: it is tried again and again.
#[test]
fn a_lossy_path_is_used_little() {
    let topology = two_leaves(1);
    let lossy = link(&topology, "leaf0 -> spine1");
    let settings = losing(&[(lossy, 0.2)]);
    let run = |endpoint| run(&topology, settings.clone(), endpoint, [0, HOSTS], 1, 4 * BYTES);
    let (blind, healthy) = (run(BLIND), run(PathHealth::default()));
    let (more, less) = (blind.sent_by(lossy), healthy.sent_by(lossy));
    assert!(less < more / 3 && less > 16, "{less} of {more} packets on the lossy path");
    assert!(healthy.retransmissions() < blind.retransmissions() / 2);
}

/// The second plane leads nowhere: its cable from the NIC loses all. The message takes the other one.
#[test]
fn a_dead_plane_is_refused() {
    let topology = two_leaves(2);
    for dead in [topology.nic_link(0, 1), topology.reverse(topology.nic_link(HOSTS, 1))] {
        let settings = losing(&[(dead, 1.0)]);
        let found = run(&topology, settings.clone(), PathHealth::default(), [0, HOSTS], 2, BYTES);
        let blind = run(&topology, settings, BLIND, [0, HOSTS], 2, BYTES);
        let both = run(&topology, losing(&[]), PathHealth::default(), [0, HOSTS], 1, BYTES);
        // At half of the rate.
        let (second, least) = (found.us(1), 2.0 * both.us(0));
        assert!(second < 1.2 * least, "{second} us with one plane dead, {least} us at half the rate");
        let out = topology.nic_link(0, 1);
        assert!(
            found.sent_by(out) < blind.sent_by(out) / 4,
            "{} of {}",
            found.sent_by(out),
            blind.sent_by(out)
        );
    }
}
