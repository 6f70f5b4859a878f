//! HammingMesh's rule (one row switch and one column switch at most) against searches, whole and broken.

use std::sync::Arc;

use crate::support::{
    Hop, anything, break_some, check_dense, check_faults, check_routes, check_rule, check_spread,
    check_wiring, longest, narrowest_cut, targets,
};
use proptest::prelude::*;
use windtunnel_kernel::{BitRate, RandomStream, Span};
use windtunnel_topology::{
    CableSpec, Detour, DirectSpec, Forwarder, HammingMeshSpec, Itinerary, LinkTier, Node, PathClass, Peer,
    Policy, SwitchId, Topology, TopologyError, TopologySpec, flow_hash,
};

const RATE: BitRate = BitRate::from_gbps(100);

fn spec(board: [u32; 2], boards: [u32; 2]) -> HammingMeshSpec {
    let direct = DirectSpec {
        nic: CableSpec::new(BitRate::from_gbps(10_000)),
        router_latency: Span::from_ns(100),
        ..DirectSpec::new(RATE)
    };
    let switch_cable = CableSpec { length_mm: 20_000, ..CableSpec::new(RATE) };
    let board_cable = CableSpec { length_mm: 500, ..CableSpec::new(RATE) };
    HammingMeshSpec { direct, board, boards, board_cable, switch_cable, switch_latency: Span::from_ns(300) }
}

fn build(spec: HammingMeshSpec) -> Topology {
    Topology::new(&TopologySpec::HammingMesh(spec)).unwrap()
}

/// The three rules of the shape, from the coordinates [tier, board row, board column, row, column]: tier 1 are the row
/// switches, tier 2 the column switches.
fn one_switch_each_way(spec: &HammingMeshSpec) -> impl Fn(&Topology, u32, Hop) -> Option<u32> {
    let sizes = [spec.board[1], spec.board[0]];
    let joined = [spec.boards[1] > 1, spec.boards[0] > 1];
    move |topology, _, hop| {
        let [at, next, to] = [hop.at, hop.next, hop.to].map(|switch| topology.coordinates(switch));
        // Where the digits of the board and of the place on it are, of a hop along a row and along a column.
        let along_row = at[0] == 1 || next[0] == 1 || at[0] == 0 && next[0] == 0 && at[4] != next[4];
        let (board, place, size) = if along_row { (2, 4, sizes[0]) } else { (1, 3, sizes[1]) };
        let (before, beyond) = (to[place], size - 1 - to[place]);
        let joined = joined[usize::from(!along_row)];
        let short =
            (joined && before.abs_diff(beyond) >= 2).then(|| if before < beyond { 0 } else { size - 1 });
        let legal = match (at[0], next[0]) {
            // On a board: not from the destination's row or column away from its short edge.
            (0, 0) => {
                let away = short.is_some_and(|edge| edge.abs_diff(next[place]) > edge.abs_diff(at[place]));
                at[board] != to[board] || at[place] != to[place] || !away
            }
            // Into a switch: from other boards, or at the far edge of the destination's.
            (0, _) => at[board] != to[board] || short.is_some_and(|edge| edge != at[place]),
            // Out of it: to the destination's boards, at the short edge if there is one.
            _ => next[board] == to[board] && short.is_none_or(|edge| edge == next[place]),
        };
        legal.then_some(0)
    }
}

/// What the rules amount to: state 1 has been at a row switch, 2 at a column switch, 3 at both.
fn counted(topology: &Topology, state: u32, hop: Hop) -> Option<u32> {
    let bit = u32::from(topology.tier(hop.next));
    (state & bit == 0).then_some(state | bit)
}

/// Boards of up to 5 x 5, at most 40 accelerators.
fn specs() -> impl Strategy<Value = HammingMeshSpec> {
    ([1..=5u32, 1..=5u32], [1..=3u32, 1..=3u32], 1..=2u32).prop_map(|(board, boards, nics)| {
        let mut room = 40;
        let mut fit = |size: u32| {
            let size = size.min(room);
            room /= size;
            size
        };
        let boards = boards.map(&mut fit);
        let mut spec = spec(board.map(fit), boards);
        spec.direct.host.nics = nics;
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn wiring_rule_and_routes_hold(spec in specs()) {
        let topology = build(spec.clone());
        check_wiring(&topology);
        check_dense(&topology);
        check_routes(&topology, 20);
        check_rule(&topology, &one_switch_each_way(&spec));
        check_rule(&topology, &counted);
        let links = if topology.hosts() == 1 { 0 } else { longest(&topology, &anything) + 2 };
        prop_assert_eq!(topology.summary().diameter_links, links);
    }

    #[test]
    fn repairs_hold(spec in specs(), seed: u64, percent in 1..30u64) {
        let topology = Arc::new(build(spec.clone()));
        check_faults(&topology, &one_switch_each_way(&spec), seed, percent);
    }

    /// However much is broken, a legal path has at most one row switch and one column switch.
    #[test]
    fn legal_paths_have_one_switch_each_way(spec in specs(), seed: u64, percent in 1..50u64) {
        let topology = Arc::new(build(spec));
        let mut forwarder =
            Forwarder::new(Arc::clone(&topology), Policy { detour: Detour::Forbid, weighted: false });
        break_some(&mut forwarder, &mut RandomStream::new(seed, "faults", 1), percent);
        forwarder.converge();
        for (&from, start) in &targets(&topology) {
            for (&to, target) in &targets(&topology) {
                let hash = flow_hash(seed, u64::from(start.nic), u64::from(target.nic), 0);
                let (mut at, mut visits) = (from, [0; 3]);
                while at != to {
                    let Ok(hop) = forwarder.next_hop(at, target, Itinerary::DIRECT, hash) else { break };
                    let Some(Peer::Switch { switch, .. }) = topology.peer(at, hop.port) else {
                        panic!("a next hop leads to a switch")
                    };
                    at = switch;
                    visits[usize::from(topology.tier(at))] += 1;
                }
                prop_assert!(visits[1] <= 1 && visits[2] <= 1, "{visits:?}");
            }
        }
    }
}

#[test]
fn no_cut_into_halves_is_narrower() {
    // Where a ragged cut is: all of one row and one of each other, 2 + 2 cables in rows and 2 in each of 3 columns.
    let ragged = build(spec([1, 1], [3, 4]));
    let housed: Vec<SwitchId> = targets(&ragged).into_keys().collect();
    assert_eq!(
        (ragged.summary().bisection.bps(), narrowest_cut(&ragged, &housed)),
        (12 * RATE.bps(), 10 * RATE.bps())
    );
    let sizes = [
        ([2, 2], [2, 1]),
        ([2, 2], [1, 2]),
        ([2, 2], [1, 3]),
        ([1, 1], [3, 3]),
        ([3, 1], [1, 3]),
        ([3, 3], [1, 1]),
        ([1, 3], [1, 3]),
        ([1, 1], [2, 2]),
        ([2, 1], [2, 2]),
        ([1, 2], [3, 2]),
        ([4, 3], [1, 1]),
        ([1, 4], [1, 3]),
    ];
    for (board, boards) in sizes {
        let topology = build(spec(board, boards));
        let housed: Vec<SwitchId> = targets(&topology).into_keys().collect();
        let narrowest = narrowest_cut(&topology, &housed);
        assert_eq!(topology.summary().bisection.bps(), narrowest, "boards {board:?} in {boards:?}");
    }
}

#[test]
fn published_sizes_hold() {
    // Hoefler et al., table II: the small cluster is a 16 x 16 Hx2Mesh, or an 8 x 8 Hx4Mesh, of 1,024 accelerators.
    let two = build(spec([2, 2], [16, 16]));
    let summary = two.summary();
    assert_eq!((summary.hosts, summary.switches), (1_024, 1_024 + 32 + 32));
    assert_eq!(
        summary.tiers.iter().map(|tier| tier.name.as_str()).collect::<Vec<_>>(),
        ["accelerator", "row", "column"]
    );
    // Switches of 32 ports, two for each board of a row. Between halves of the boards each of 32 carries 16.
    assert_eq!(two.ports(SwitchId(1_024)), 32);
    assert_eq!(summary.bisection.bps(), 32 * 16 * RATE.bps());
    // Up and down in either direction, and each NIC's cable.
    assert_eq!(summary.diameter_links, 4 + 2);
    let four = build(spec([4, 4], [8, 8]));
    assert_eq!((four.hosts(), four.switches()), (1_024, 1_024 + 64));
    // A step to the edge more at each end.
    assert_eq!(four.summary().diameter_links, 8 + 2);
    assert_eq!(four.summary().bisection.bps(), 32 * 8 * RATE.bps());
}

#[test]
fn flows_spread_over_both_directions_and_edges() {
    // From the middle of a board three wide either edge is as near; one way along the column.
    let topology = build(spec([3, 3], [2, 2]));
    let at = topology.switch_at(&[0, 0, 0, 0, 1]).unwrap();
    let to = topology.target(topology.switch_at(&[0, 0, 1, 1, 1]).unwrap().0, 0);
    check_spread(&topology, at, &to, 3);
    // Boards of one have two cables to each switch.
    let topology = build(spec([1, 1], [2, 2]));
    let to = topology.target(3, 0);
    check_spread(&topology, SwitchId(0), &to, 4);
}

#[test]
fn names_places_and_tiers_follow_the_boards() {
    let topology = build(spec([2, 3], [2, 2]));
    let accelerator = topology.switch_at(&[0, 1, 0, 1, 2]).unwrap();
    // Two boards of six before, then five on its own.
    assert_eq!(accelerator, SwitchId(2 * 6 + 5));
    let address = topology.address(accelerator.0);
    assert_eq!((address.pod, address.rack, address.host), (1, 2, 5));
    let name = |switch| topology.node_name(Node::Switch(switch));
    assert_eq!(name(accelerator), "accelerator1.0/1.2");
    let tier = |port| topology.link(topology.out_link(accelerator, port).unwrap()).tier;
    assert_eq!(
        [tier(0), tier(1), tier(2), tier(3)],
        [LinkTier::Dimension(0), LinkTier::Up(0), LinkTier::Dimension(1), LinkTier::Up(0)]
    );
    let east = topology.link_name(topology.out_link(accelerator, 1).unwrap());
    assert_eq!(east, "accelerator1.0/1.2 -> row3");
    let class =
        |a, b| topology.path_class(windtunnel_kernel::EndpointId(a), windtunnel_kernel::EndpointId(b));
    assert_eq!(
        [class(0, 5), class(0, 6), class(0, 12), class(0, 18)],
        [PathClass::SameLeaf, PathClass::SamePod, PathClass::SamePod, PathClass::Beyond]
    );
    let narrow = build(spec([1, 2], [2, 2]));
    let south = narrow.out_link(SwitchId(0), 3).unwrap();
    assert_eq!(narrow.link_name(south), "accelerator0.0/0.0 -> column0 #1");
}

#[test]
fn wrong_specs_are_refused_with_the_nearest_right_one() {
    let error = |spec: HammingMeshSpec| Topology::new(&TopologySpec::HammingMesh(spec)).unwrap_err();
    assert_eq!(error(spec([2, 0], [2, 2])).path(), "board[1]");
    assert_eq!(error(spec([2, 2], [0, 2])).path(), "boards[0]");
    let mut two = spec([2, 2], [2, 2]);
    two.direct.hosts_per_router = 2;
    assert_eq!(
        error(two).hint().unwrap(),
        "every host is an accelerator: give it more `gpus` or `nics` instead"
    );
    let mut lossy = spec([2, 2], [2, 2]);
    lossy.board_cable.loss = f64::NAN;
    assert_eq!(error(lossy).path(), "board_cable.loss");
    let TopologyError::Oversize { path, fit, .. } = error(spec([4, 4], [1 << 20, 1 << 20])) else {
        panic!("too large")
    };
    assert_eq!(path, "boards[0]");
    assert!(Topology::new(&TopologySpec::HammingMesh(spec([4, 4], [fit, 1 << 20]))).is_ok());
    assert!(Topology::new(&TopologySpec::HammingMesh(spec([4, 4], [fit + 1, 1 << 20]))).is_err());
}
