//! What `probing` promises: probes are counted, messages arrive, and a path that is slow or busy is not taken blindly.

use std::sync::Arc;

use probing_endpoint::Probing;
use windtunnel_fabric::packet::transport::{
    Around, StagePacket, StagePort, StageVerdict, Staging, SwitchStage, Transport,
};
use windtunnel_fabric::packet::{
    Balancer, Completion, Counters, Engines, GilbertElliott, Impairments, OpenRequest, PacketSettings,
    ParallelSettings, Share,
};
use windtunnel_kernel::digest::EventDigest;
use windtunnel_kernel::{BitRate, Bytes, Span, Time};
use windtunnel_topology::{ClosSpec, HostSpec, LinkId, Names, Tier, Topology, TopologySpec};

const HOSTS: u32 = 8;
const BLIND: Probing = Probing { probes: 0, packets: 256, rounds: 3 };

/// Two leaves of 8 hosts, with a cable of 100 m at 400 Gbps to each of 8 spines.
fn two_leaves() -> Arc<Topology> {
    let rate = BitRate::from_gbps(400);
    let far = |tier: Tier| Tier { length_mm: 100_000, ..tier };
    let tiers = vec![far(Tier::new(HOSTS, rate)), far(Tier::new(2, rate))];
    let spec = ClosSpec::new(2 * HOSTS, HostSpec::new(1, 1, rate), tiers);
    Arc::new(Topology::new(&TopologySpec::Clos(spec)).expect("a fabric"))
}

fn link(topology: &Topology, name: &str) -> LinkId {
    Names::new(topology).link(name).expect("a link of this name")
}

fn settings() -> PacketSettings {
    PacketSettings {
        seed: 5,
        mtu: Bytes::new(4_160),
        header: Bytes::new(64),
        balancer: Balancer::Spray { paths: 64 },
        ..PacketSettings::default()
    }
}

/// (start in nanoseconds, sender, receiver, bytes)
type Sent = (u64, u32, u32, u64);

fn run<T: Transport>(
    settings: PacketSettings,
    transport: T,
    sent: &[Sent],
) -> (Vec<Completion>, Counters, u128) {
    let mut engines = Engines::new(two_leaves(), settings, transport, Span::MAX).expect("settings that work");
    engines.keep_digest(&EventDigest::new());
    for (token, &(start, from, to, bytes)) in (0..).zip(sent) {
        let request = OpenRequest { from, to, entropy: token as u32, keep: false, route: [&[], &[]] };
        let pair = engines.open(Time::ZERO, &request);
        engines.send(Time::from_ps(start * 1_000), pair, Bytes::new(bytes), token);
    }
    let mut done = Vec::new();
    while engines.next_time() != Time::NEVER {
        engines.run(Time::NEVER, u64::MAX, &mut done);
    }
    assert_eq!(engines.packets_live(), 0, "every packet is gone in the end");
    done.sort_by_key(|completion| completion.token);
    (done, engines.totals(), engines.digest().expect("one is kept").value())
}

fn mean_us(done: &[Completion]) -> f64 {
    done.iter().map(|done| done.at.since(done.start).seconds() * 1e6).sum::<f64>() / done.len() as f64
}

/// All hosts of the first leaf to those of the second, one after the other.
fn across(every_ns: u64, bytes: u64) -> Vec<Sent> {
    (0..4 * HOSTS).map(|n| (u64::from(n) * every_ns, n % HOSTS, HOSTS + n * 3 % HOSTS, bytes)).collect()
}

/// On an idle path a message waits for the first answer, which takes less than a round trip of a full packet, and no longer.
#[test]
fn an_idle_path_costs_one_round_trip_of_a_probe() {
    let sent = [(0, 0, HOSTS, 1_000_000)];
    let (blind, none, _) = run(settings(), BLIND, &sent);
    let (probed, totals, _) = run(settings(), Probing::default(), &sent);
    assert_eq!(none.probes, 0);
    assert_eq!(totals.probes, 2 * 8, "8 probes and their answers");
    assert_eq!((totals.data_packets, totals.retransmissions), (none.data_packets, 0));
    let more = probed[0].at.since(blind[0].at).ps();
    // Four cables of 500 ns each way, and four times 64 B at 400 Gbps there and back.
    let probe = 8 * 500_000 + 8 * 64 * 20;
    assert!((probe..probe + 8 * 64 * 20).contains(&more), "{more} ps more, a probe takes {probe}");
}

/// Two of eight spines are slow on the way up. Whoever's hash leads there blindly takes ten times as long.
#[test]
fn slow_paths_are_found_before_a_packet_takes_them() {
    let topology = two_leaves();
    let slow = ["leaf0 -> spine1", "leaf0 -> spine6"].map(|name| (link(&topology, name), 0.1));
    let settings = PacketSettings { slow_links: slow.to_vec(), ..settings() };
    let sent = across(20_000, 1_000_000);
    let (blind, ..) = run(settings.clone(), BLIND, &sent);
    let (probed, totals, _) = run(settings, Probing::default(), &sent);
    assert_eq!((blind.len(), probed.len()), (sent.len(), sent.len()));
    assert!(totals.probes >= 2 * 8 * sent.len() as u64);
    let [blind, probed] = [blind, probed].map(|done| mean_us(&done));
    assert!(probed < 0.6 * blind, "mean of {probed} us, blindly {blind} us");
}

/// All paths are equal, but others' packets stand on them: probes wait behind these, and lead around.
#[test]
fn busy_paths_are_left_to_others() {
    let sent = across(1_500, 2_000_000);
    let (blind, ..) = run(settings(), BLIND, &sent);
    let (probed, ..) = run(settings(), Probing::default(), &sent);
    let [blind, probed] = [blind, probed].map(|done| mean_us(&done));
    assert!(probed < blind, "mean of {probed} us, blindly {blind} us");
}

/// Half of all packets are lost on every cable up, probes among them: rounds in vain end, and all arrives.
#[test]
fn lost_probes_do_not_hold_a_message_for_ever() {
    let topology = two_leaves();
    let losses = |share: f64| {
        let loss = GilbertElliott::independent(Share::Packets(share));
        let up = (0..HOSTS).map(|spine| (link(&topology, &format!("leaf0 -> spine{spine}")), loss));
        PacketSettings {
            impairments: Impairments { losses: up.collect(), ..Impairments::default() },
            ..settings()
        }
    };
    let sent = across(5_000, 100_000);
    let (done, totals, _) = run(losses(0.5), Probing::default(), &sent);
    assert_eq!(done.len(), sent.len(), "{totals:?}");
    assert!(totals.drops > 0 && totals.probes > 0);
    // Where every probe is lost, packets go out blindly after the last round, and time-outs follow those.
    let mut engines =
        Engines::new(two_leaves(), losses(1.0), Probing::default(), Span::MAX).expect("settings");
    let request = OpenRequest { from: 0, to: HOSTS, entropy: 0, keep: false, route: [&[], &[]] };
    let pair = engines.open(Time::ZERO, &request);
    engines.send(Time::ZERO, pair, Bytes::new(8_192), 0);
    engines.run(Time::from_ps(200_000_000), u64::MAX, &mut Vec::new());
    let totals = engines.totals();
    assert!(totals.probes >= 3 * 8 && totals.drops > totals.probes, "{totals:?}");
    assert!(!engines.has_lost_for_good());
}

/// Probes and answers cross between processes like all else.
#[test]
fn processes_change_nothing() {
    let sent = across(1_500, 300_000);
    let loss = GilbertElliott::independent(Share::Packets(0.01));
    let lossy = link(&two_leaves(), "leaf0 -> spine3");
    let impairments = Impairments { losses: vec![(lossy, loss)], ..Impairments::default() };
    let settings = PacketSettings { impairments, ..settings() };
    let one = run(settings.clone(), Probing::default(), &sent);
    for (threads, processes) in [(1, Some(3)), (2, None)] {
        let parallel = ParallelSettings { threads, processes, threshold: None };
        assert!(run(PacketSettings { parallel, ..settings.clone() }, Probing::default(), &sent) == one);
    }
}

/// A rule of switches for probes alone: each is charged to its port as a packet of 64 KB that nobody sends, and one that finds more
/// than that ahead of it goes no further. So a probe says whether a burst would find room.
#[derive(Clone, Debug)]
struct Virtual;

impl SwitchStage for Virtual {
    /// When the port would have sent what it was charged.
    type State = Time;

    const NAME: &'static str = "virtual";

    fn enqueue(&self, free: &mut Time, port: &StagePort, packet: &StagePacket) -> StageVerdict {
        let Some(own) = packet.own else { return StageVerdict::Keep };
        let burst = port.rate.serialise(Bytes::new(65_536));
        if *free > port.now + burst {
            return StageVerdict::Drop;
        }
        *free = (*free).max(port.now) + burst;
        // What it says is kept: the round.
        assert_eq!(own.kind, 0);
        StageVerdict::Write(own.value)
    }
}

#[test]
fn switches_may_have_rules_for_probes() {
    let sent = across(1_000, 500_000);
    let (plain, ..) = run(settings(), Probing::default(), &sent);
    let (charged, totals, _) = run(settings(), Staging(Virtual).around(Probing::default()), &sent);
    assert!(
        totals.drops > 0 && totals.retransmissions == 0,
        "probes are dropped, packets are not: {totals:?}"
    );
    assert_eq!((plain.len(), charged.len()), (sent.len(), sent.len()));
    assert_ne!(mean_us(&plain), mean_us(&charged));
}
