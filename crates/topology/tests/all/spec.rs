//! What a spec amounts to, and what is said of a wrong one.

use windtunnel_kernel::{BitRate, EndpointId, Id, NicId, Span};
use windtunnel_topology::{
    ClosSpec, HostSpec, Link, LinkId, LinkTier, LoadBalancer, Node, PathClass, Route, SwitchId, Tier,
    Topology, TopologyError, TopologySpec,
};

const RATE: BitRate = BitRate::from_gbps(400);

/// 64 hosts of 8 GPUs on 8 rails in groups of 32, two tiers: the smallest complete scenario of the docs.
fn rails() -> ClosSpec {
    let leaf = Tier { length_mm: 30_000, switch_latency: Span::from_ns(600), ..Tier::new(32, RATE) };
    let spine = Tier { length_mm: 100_000, switch_latency: Span::from_ns(700), ..Tier::new(64, RATE) };
    let mut host = HostSpec::new(8, 8, BitRate::from_gbps(3_600));
    (host.rails, host.scale_up.latency) = (true, Span::from_ns(500));
    ClosSpec::new(64, host, vec![leaf, spine])
}

fn build(spec: ClosSpec) -> Topology {
    Topology::new(&TopologySpec::Clos(spec)).unwrap()
}

#[test]
fn a_rail_optimised_cluster_has_its_sizes() {
    let topology = build(rails());
    let summary = topology.summary();
    assert_eq!((summary.hosts, summary.endpoints, summary.nics, summary.planes), (64, 512, 512, 1));
    // 2 groups × 8 leaves of 32 + 32 ports under 32 spines of which 16 of 64 ports are used.
    assert_eq!(summary.switches, 16 + 32);
    let [leaf, spine] = &summary.tiers[..] else { panic!("two tiers") };
    assert_eq!((leaf.name.as_str(), leaf.switches, leaf.ports_down, leaf.ports_up), ("leaf", 16, 32, 32));
    assert_eq!((leaf.links, leaf.ports_down_used, leaf.ports_down_unused), (1024, 512, 0));
    assert_eq!((leaf.oversubscription, leaf.rate_up), (Some(1.0), Some(RATE)));
    assert_eq!((spine.name.as_str(), spine.switches, spine.ports_up), ("spine", 32, 0));
    assert_eq!((spine.links, spine.ports_down_used, spine.ports_down_unused), (1024, 512, 32 * 48));
    assert_eq!((spine.oversubscription, spine.rate_up), (None, None));
    assert_eq!(summary.links, 2 * (512 + 512 + 512));
    assert_eq!(topology.link_count() as u64, summary.links);
    assert_eq!(summary.bisection, BitRate::from_gbps(400 * 256));
    assert_eq!(summary.diameter_links, 4);
    // 30 m + leaf + 100 m + spine + 100 m + leaf + 30 m at 5 ns/m.
    assert_eq!(summary.diameter_latency, Span::from_ns(150 + 600 + 500 + 700 + 500 + 600 + 150));
}

#[test]
fn oversubscription_narrows_the_bisection() {
    let mut spec = rails();
    spec.tiers[0].oversubscription = 4.0;
    let summary = build(spec).summary();
    assert_eq!((summary.tiers[0].ports_up, summary.tiers[0].oversubscription), (8, Some(4.0)));
    assert_eq!(summary.bisection, BitRate::from_gbps(400 * 64));
}

#[test]
fn a_single_host_needs_no_fabric() {
    let mut spec = rails();
    spec.hosts = 1;
    let summary = build(spec.clone()).summary();
    assert_eq!((summary.diameter_links, summary.diameter_latency), (2, Span::from_ns(500)));
    assert_eq!(summary.bisection, BitRate::ZERO);
    // Two domains in a host meet over the spines, each on its own rail.
    spec.host.scale_up.size = Some(4);
    assert_eq!(build(spec).summary().diameter_links, 4);
}

#[test]
fn links_and_nodes_have_names() {
    let topology = build(rails());
    let mut route = Route::new();
    topology.route(
        LoadBalancer::DestinationModulo,
        0,
        EndpointId(3 * 8 + 2),
        EndpointId(37 * 8 + 2),
        NicId(0),
        0,
        &mut route,
    );
    let names: Vec<String> = route.links.iter().map(|&(link, _)| topology.link_name(link)).collect();
    assert_eq!(
        names,
        ["host3/nic2 -> leaf0.2", "leaf0.2 -> spine5", "spine5 -> leaf1.2", "leaf1.2 -> host37/nic2"]
    );
    let tiers: Vec<LinkTier> = route.links.iter().map(|&(link, _)| topology.link(link).tier).collect();
    assert_eq!(tiers, [LinkTier::NicUp, LinkTier::Up(0), LinkTier::Down(0), LinkTier::NicDown]);
    assert_eq!(tiers.map_names(), ["nic-up", "leaf-up", "leaf-down", "nic-down"]);
    assert_eq!(route.class, PathClass::SamePod);
    // The far end's switch is part of a link's latency; a host's is not.
    let latencies: Vec<Span> = route.links.iter().map(|&(link, _)| topology.link(link).latency).collect();
    assert_eq!(latencies, [750, 1200, 1100, 150].map(Span::from_ns));
    assert_eq!(
        topology.link(LinkId(5)),
        Link {
            rate: BitRate::from_gbps(3_600),
            latency: Span::from_ns(500),
            propagation: Span::from_ns(500),
            loss: 0.0,
            tier: LinkTier::ScaleUpOut
        }
    );
    assert_eq!(topology.link_name(LinkId(512 + 9)), "host1/scale-up -> host1/gpu1");
    assert_eq!(topology.link(LinkId(512 + 9)).latency, Span::ZERO);
    assert_eq!(
        (LinkTier::Up(1).to_string(), LinkTier::Down(3).to_string()),
        ("tier1-up".into(), "tier3-down".into())
    );
    let spine = topology.switch_at(&[0, 1, 0, 5]).expect("spine 5");
    assert_eq!((topology.node_name(Node::Switch(spine)), spine), ("spine5".into(), SwitchId(21)));
    assert_eq!(topology.switch_at(&[0, 1, 0, 32]), None);
    assert_eq!(topology.switch_at(&[0, 2, 0, 5]), None);
}

trait MapNames {
    fn map_names(&self) -> Vec<String>;
}

impl MapNames for Vec<LinkTier> {
    fn map_names(&self) -> Vec<String> {
        self.iter().map(|tier| tier.name().into_owned()).collect()
    }
}

/// Eight NICs under two GPUs, and two NICs under eight.
#[test]
fn nics_are_shared_out() {
    let first_link = |gpus, nics, endpoint, nic| {
        let mut host = HostSpec::new(gpus, nics, RATE);
        host.scale_up.size = Some(1);
        let topology = build(ClosSpec::new(2, host, vec![Tier::new(16, RATE)]));
        let mut route = Route::new();
        let to = EndpointId((endpoint + gpus) % (2 * gpus));
        topology.route(LoadBalancer::Ecmp, 0, EndpointId(endpoint), to, NicId(nic), 0, &mut route);
        topology.link_name(route.links[0].0)
    };
    assert_eq!(first_link(2, 8, 1, 3), "host0/nic7 -> leaf0");
    assert_eq!(first_link(2, 8, 3, 1), "host1/nic5 -> leaf0");
    assert_eq!(first_link(2, 8, 1, 4), "host0/nic4 -> leaf0", "NIC numbers are taken modulo those of a GPU");
    assert_eq!(first_link(8, 2, 3, 0), "host0/nic0 -> leaf0");
    assert_eq!(first_link(8, 2, 4, 1), "host0/nic1 -> leaf0");
}

#[test]
fn a_leaf_is_a_whole_topology() {
    let topology = build(ClosSpec::new(8, HostSpec::new(1, 1, RATE), vec![Tier::new(8, RATE)]));
    assert_eq!((topology.link_count(), topology.scale_up_size()), (16, 1));
    assert_eq!(topology.path_class(EndpointId(0), EndpointId(7)), PathClass::SameLeaf);
    assert_eq!(topology.path_class(EndpointId(3), EndpointId(3)), PathClass::Local);
    let summary = topology.summary();
    assert_eq!((summary.diameter_links, summary.bisection), (2, BitRate::from_gbps(1600)));
}

/// A million endpoints: the ids of all tiers stay dense and a path is found without a table.
#[test]
fn a_million_endpoints() {
    let mut host = HostSpec::new(8, 8, BitRate::from_gbps(3_600));
    host.rails = true;
    let tiers = vec![Tier::new(64, RATE), Tier::new(64, RATE), Tier::new(256, RATE)];
    let topology = build(ClosSpec::new(131_072, host, tiers));
    assert_eq!(topology.endpoints(), 1 << 20);
    assert_eq!(topology.link_count(), (2 * 4) << 20);
    let last = LinkId::from_index(topology.link_count() - 1);
    assert_eq!(topology.link_name(last), "spine4095 -> agg255.63");
    let mut route = Route::new();
    topology.route(LoadBalancer::Ecmp, 1, EndpointId(0), EndpointId((1 << 20) - 1), NicId(0), 0, &mut route);
    assert_eq!((route.links.len(), route.class), (6, PathClass::Beyond));
    assert!(!route.links.spilled());
}

/// One negative test per kind of error: the place, the message and the hint.
#[test]
fn errors_say_what_was_expected_and_found() {
    type Change = fn(&mut ClosSpec);
    let cases: [(Change, &str, &str, Option<&str>); 23] = [
        (|s| s.hosts = 0, "hosts", "expected `hosts` to be at least 1, found 0", None),
        (|s| s.host.gpus = 0, "host.gpus", "expected `host.gpus` to be at least 1, found 0", None),
        (|s| s.host.nics = 0, "host.nics", "expected `host.nics` to be at least 1, found 0", None),
        (
            |s| s.host.scale_up.rate = BitRate::ZERO,
            "host.scale_up.rate",
            "expected `host.scale_up.rate` to be at least 1, found 0",
            None,
        ),
        (|s| s.tiers.clear(), "tiers", "expected `tiers` to be at least 1, found 0", None),
        (|s| s.planes = 0, "planes", "expected `planes` to be at least 1, found 0", None),
        (
            |s| s.tiers[1].ports_down = 0,
            "tiers[1].ports_down",
            "expected `tiers[1].ports_down` to be at least 1, found 0",
            None,
        ),
        (
            |s| s.tiers[1].rate = BitRate::ZERO,
            "tiers[1].rate",
            "expected `tiers[1].rate` to be at least 1, found 0",
            None,
        ),
        (
            |s| s.tiers[1].bundle = 0,
            "tiers[1].bundle",
            "expected `tiers[1].bundle` to be at least 1, found 0",
            None,
        ),
        (
            |s| s.host.nics = 6,
            "host.nics",
            "expected the NICs of a host to be a multiple or a divisor of its 8 GPUs, found 6",
            Some("8 gives every GPU its own NIC, 1 shares one among all"),
        ),
        (
            |s| s.host.scale_up.size = Some(3),
            "host.scale_up.size",
            "expected a scale-up domain size that divides the 8 GPUs of a host or is a multiple of them, found 3",
            Some("8 joins all GPUs of a host, 1 leaves them without a scale-up network"),
        ),
        (
            |s| s.tiers[0].oversubscription = f64::NAN,
            "tiers[0].oversubscription",
            "expected a positive oversubscription in tier 0, found NaN",
            None,
        ),
        (
            |s| s.tiers[1].oversubscription = 2.0,
            "tiers[1].oversubscription",
            "expected no oversubscription in tier 1, the top tier has no uplinks, found 2",
            Some("give it to the tier below, whose uplinks lead to the top"),
        ),
        (
            |s| s.tiers[0].oversubscription = 3.0,
            "tiers[0].oversubscription",
            "expected a whole number of uplinks in tier 0, found 10.666666666666666: 32 ports of 400 Gbps over 3 times \
             400 Gbps",
            Some("an oversubscription of 2.909090909090909 gives 11 uplinks"),
        ),
        (
            |s| s.tiers[0].bundle = 2,
            "tiers[0].bundle",
            "expected a bundle of 1 in tier 0, found 2",
            Some("several NICs are `host.nics`, several ports of a NIC are `planes`"),
        ),
        (
            |s| s.tiers[1].bundle = 3,
            "tiers[1].bundle",
            "expected a bundle in tier 1 that divides the 32 uplinks of a switch of the tier below, found 3",
            Some("1 is a single link"),
        ),
        (
            |s| (s.tiers[1].bundle, s.tiers[1].ports_down) = (2, 63),
            "tiers[1].bundle",
            "expected a bundle in tier 1 that divides the 63 ports down of a switch, found 2",
            Some("1 is a single link"),
        ),
        (
            |s| (s.planes, s.tiers[0].rate) = (3, BitRate::from_bps(400)),
            "planes",
            "expected planes that divide the NIC rate of 400 bit/s, found 3",
            Some("2 and 4 do"),
        ),
        (
            |s| (s.host.rails, s.tiers[0].ports_down) = (false, 4),
            "tiers[0].ports_down",
            "expected a leaf with a port for each of the 8 NICs of a host, found 4 ports",
            Some("set `ports_down` to 8 or more, or spread the NICs with `host.rails: true`"),
        ),
        (
            |s| s.tiers.truncate(1),
            "host.rails",
            "expected room for a leaf for each of the 8 rails, found room for 1",
            Some(
                "rails meet only above the leaves: add a tier with `ports_down` of 8 or more, or set `host.rails: false`",
            ),
        ),
        (
            |s| s.hosts = 257,
            "hosts",
            "expected at most 256 hosts, found 257",
            Some("raise `ports_down` of a tier (above tier 0 in multiples of its bundle), or add a tier"),
        ),
        (
            |s| s.hosts = 1 << 30,
            "hosts",
            "expected a topology of fewer than 2147483648 endpoints, found 8589934592",
            None,
        ),
        (
            |s| s.tiers[1].length_mm = u64::MAX,
            "tiers[1].length",
            "expected paths of less than 200 days, found more in tier 1: cables of 18446744073709551615 mm, switches of \
             700 ns",
            None,
        ),
    ];
    for (change, path, message, hint) in cases {
        let mut spec = rails();
        change(&mut spec);
        let error = Topology::new(&TopologySpec::Clos(spec)).expect_err(message);
        let found = (error.path(), error.to_string(), error.hint());
        assert_eq!(found, (path.to_owned(), message.to_owned(), hint.map(str::to_owned)));
    }
}

/// Sizes that overflow are refused, not wrapped and not allocated.
#[test]
fn absurd_sizes_are_refused() {
    let wide = Tier::new(u32::MAX, RATE);
    let host = HostSpec::new(1, 1, RATE);
    let error = |spec| Topology::new(&TopologySpec::Clos(spec)).unwrap_err();
    let too_wide = error(ClosSpec::new(1, host, vec![wide, wide, wide]));
    assert!(matches!(too_wide, TopologyError::TooLarge { what: "links", .. }), "{too_wide}");
    let too_high = error(ClosSpec::new(1, host, vec![Tier::new(1, RATE); 256]));
    assert_eq!(too_high.path(), "tiers");
    let mut slow = ClosSpec::new(1, host, vec![Tier::new(1, RATE); 3]);
    for tier in &mut slow.tiers {
        tier.switch_latency = Span::from_ps(u64::MAX / 4);
    }
    assert!(matches!(error(slow), TopologyError::Latency { tier: 1, .. }));
    let lone = build(ClosSpec::new(1, host, vec![Tier::new(1, RATE); 255]));
    assert_eq!(lone.link_count(), 2 * 255);
}
