//! The up-down rule of Clos networks against searches, whole and broken.

use std::sync::Arc;

use crate::support::{Hop, check_faults, check_routes, check_rule, check_wiring};
use proptest::prelude::*;
use windtunnel_kernel::{BitRate, mix64};
use windtunnel_topology::{ClosSpec, HostSpec, Itinerary, SwitchId, Tier, Topology, TopologySpec};

const RATE: BitRate = BitRate::from_gbps(100);

/// Up, then down: state 1 once the path has turned.
fn up_down(topology: &Topology, state: u32, hop: Hop) -> Option<u32> {
    if topology.tier(hop.next) > topology.tier(hop.at) { (state == 0).then_some(0) } else { Some(1) }
}

/// Two to four tiers of few ports, with rails, planes, bundles, oversubscription and ports to spare.
fn specs() -> impl Strategy<Value = ClosSpec> {
    let ports = prop::collection::vec(1..=3u32, 1..=3);
    (ports, 1..=3u32, any::<bool>(), 1..=2u32, 1..=2u32, 1..=2u32, 0.5..=1.0f64).prop_map(
        |(above, nics, rails, planes, bundle, narrow, fill)| {
            let leaf = if rails { 2 } else { 2 * nics };
            let mut tiers = vec![Tier::new(leaf * bundle, BitRate::from_bps(RATE.bps() * u64::from(planes)))];
            for ports in above {
                let mut tier = Tier::new((ports + 1) * bundle, RATE);
                tier.bundle = bundle;
                tiers.push(tier);
            }
            // An oversubscription only where it leaves whole bundles.
            if bundle == 1 && leaf % narrow == 0 {
                tiers[0].oversubscription = f64::from(narrow);
            }
            let mut host = HostSpec::new(1, nics, RATE);
            host.rails = rails;
            let mut spec = ClosSpec::new(1, host, tiers);
            spec.planes = planes;
            let leaves: u32 = spec.tiers[1..].iter().map(|tier| tier.ports_down / tier.bundle).product();
            let fit = if rails { leaves / nics * leaf * bundle } else { leaves * (leaf * bundle / nics) };
            spec.hosts = ((f64::from(fit) * fill) as u32).clamp(1, 24);
            spec
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn wiring_rule_and_routes_hold(spec in specs()) {
        let Ok(topology) = Topology::new(&TopologySpec::Clos(spec)) else { return Ok(()) };
        check_wiring(&topology);
        check_rule(&topology, &up_down);
        check_routes(&topology, 20);
    }

    /// What a switch keeps of the rule says what the rule says.
    #[test]
    fn the_rule_of_a_switch_is_the_rule(spec in specs(), salt: u64) {
        let Ok(topology) = Topology::new(&TopologySpec::Clos(spec)) else { return Ok(()) };
        for at in (0..topology.switches()).map(SwitchId) {
            let rule = topology.switch_rule(at).expect("the rule of a Clos");
            let plane = topology.coordinates(at)[0];
            for nic in 0..topology.nics() {
                let (to, hash) = (topology.target(nic, plane), mix64(salt ^ u64::from(nic)));
                let expected = topology.next_hop(at, &to, Itinerary::DIRECT, hash);
                prop_assert_eq!((rule.next_hop(&to, hash), Itinerary::DIRECT), expected);
            }
        }
    }

    #[test]
    fn repairs_hold(spec in specs(), seed: u64, percent in 1..40u64) {
        let Ok(topology) = Topology::new(&TopologySpec::Clos(spec)) else { return Ok(()) };
        check_faults(&Arc::new(topology), &up_down, seed, percent);
    }
}
