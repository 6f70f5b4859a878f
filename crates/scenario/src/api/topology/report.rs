//! Tiers, checks and analysis as JSON.

use serde_json::{Value, json};
use windtunnel_config::schema::TopologyFile;
use windtunnel_topology::{
    Forwarder, Limits, LinkTier, Node, Routing, ShapeName, SwitchId, TierSummary, cable_tier, cables,
    check as run_check, distances,
};

use super::paths::whole;

/// Pairs of hosts up to which all are looked at.
const PAIRS: u64 = 10_000;

/// Of the samples.
const SEED: u64 = 1;

/// Reach of optics and copper, in metres: passive and active copper, multimode, DR, FR, LR, ER.
const CLASSES: [(u64, &str); 7] = [
    (3, "up to 3 m"),
    (30, "up to 30 m"),
    (100, "up to 100 m"),
    (500, "up to 500 m"),
    (2_000, "up to 2 km"),
    (10_000, "up to 10 km"),
    (40_000, "up to 40 km"),
];

const LONGEST: &str = "beyond 40 km";

fn length_class(length_mm: u64) -> &'static str {
    CLASSES.iter().find(|(metres, _)| length_mm <= metres * 1_000).map_or(LONGEST, |(_, name)| name)
}

/// A tier of switches.
pub(super) fn tier(tier: &TierSummary) -> Value {
    json!({
        "tier": tier.tier,
        "name": tier.name,
        "switches": tier.switches,
        "ports_down": tier.ports_down,
        "ports_up": tier.ports_up,
        "ports_down_used": tier.ports_down_used,
        "ports_down_unused": tier.ports_down_unused,
        "rate_down_bps": tier.rate_down.bps(),
        "rate_up_bps": tier.rate_up.map(windtunnel_kernel::BitRate::bps),
        "links": tier.links,
        "oversubscription": tier.oversubscription,
    })
}

/// Name of the routing; `recognised` is the shape that an imported graph is routed as.
pub(super) fn routing(written: &TopologyFile, recognised: Option<&str>) -> &'static str {
    let or = |default: Routing| written.routing.map_or(default, |name| name.0).name();
    match written.shape.map(|name| name.0) {
        None | Some(ShapeName::Clos | ShapeName::FatTree | ShapeName::Regions) => "up-down",
        Some(ShapeName::Torus | ShapeName::Mesh) => or(Routing::DimensionOrder),
        Some(ShapeName::FullMesh | ShapeName::Dragonfly | ShapeName::DragonflyPlus) => or(Routing::Minimal),
        Some(ShapeName::BCube | ShapeName::HammingMesh) => Routing::Minimal.name(),
        Some(ShapeName::Graph) => match recognised {
            Some("clos") => "up-down",
            Some(_) => Routing::DimensionOrder.name(),
            None => "table",
        },
    }
}

/// All checks.
pub(super) fn check(forwarder: &mut Forwarder, pairs: u64) -> Value {
    let found = run_check(forwarder, &Limits { pairs, seed: SEED, ..Limits::default() });
    let topology = forwarder.topology();
    let name = |switch: SwitchId| topology.node_name(Node::Switch(switch));
    let named = |pairs: &[(SwitchId, SwitchId)]| -> Vec<[String; 2]> {
        pairs.iter().map(|&(from, to)| [name(from), name(to)]).collect()
    };
    let reports: Vec<Value> = found
        .reports
        .iter()
        .map(|report| {
            json!({
                "name": report.name,
                "ok": report.ok(),
                "exhaustive": report.exhaustive,
                "compared": report.compared,
                "what": report.what,
                "failed": report.failed,
                "failures": report.failures,
            })
        })
        .collect();
    let pairs = &found.pairs;
    json!({
        "ok": found.ok(),
        "checks": reports,
        "pairs": {
            "compared": pairs.compared,
            "legal": pairs.legal,
            "detour": pairs.detour,
            "unreachable": pairs.unreachable,
            "blackhole": pairs.blackhole,
            "detoured": named(&pairs.detoured),
            "cut_off": named(&pairs.cut_off),
        },
    })
}

/// Cables, bandwidth, distances, diversity and addresses.
pub(super) fn analysis(forwarder: &mut Forwarder) -> Value {
    let topology = forwarder.topology().clone();
    let summary = topology.summary();
    let metres = |length_mm: u64, count: u64| length_mm as f64 * count as f64 / 1e3;
    let kinds = cables(&topology);
    let rows: Vec<Value> = kinds
        .iter()
        .map(|kind| {
            json!({
                "tier": kind.tier,
                "length_m": metres(kind.length_mm, 1),
                "class": length_class(kind.length_mm),
                "rate_bps": kind.rate.bps(),
                "count": kind.count,
                "total_m": metres(kind.length_mm, kind.count),
            })
        })
        .collect();
    let names = CLASSES.iter().map(|(_, name)| *name).chain([LONGEST]);
    let classes: Vec<Value> = names
        .map(|class| {
            let of = || kinds.iter().filter(|kind| length_class(kind.length_mm) == class);
            // From +0: the sum of no floats is -0, which JSON would show.
            let total_m = of().fold(0.0, |sum, kind| sum + metres(kind.length_mm, kind.count));
            json!({ "class": class, "count": of().map(|kind| kind.count).sum::<u64>(), "total_m": total_m })
        })
        .collect();
    let oversubscription: Vec<Value> = summary
        .tiers
        .iter()
        .map(|tier| json!({ "tier": tier.tier, "name": tier.name, "ratio": tier.oversubscription }))
        .collect();
    let (hops, paths) = match distances(forwarder, PAIRS, SEED) {
        None => (Value::Null, Value::Null),
        Some(found) => {
            let method = if found.exhaustive {
                "all pairs of hosts".to_owned()
            } else {
                format!("{} drawn pairs of hosts", found.pairs + found.cut_off)
            };
            let hops = json!({
                "mean": found.mean_switches,
                "max": found.max_switches,
                "pairs": found.pairs,
                "cut_off": found.cut_off,
                "method": method,
            });
            let paths = json!({
                "min": whole(found.min_paths),
                "mean": found.mean_paths,
                "max": whole(found.max_paths),
                "pairs": found.pairs,
                "cut_off": found.cut_off,
                "method": method,
            });
            (hops, paths)
        }
    };
    json!({
        "cables": rows,
        "length_classes": classes,
        "bisection_bps": summary.bisection.bps(),
        "bisection_bps_per_gpu": summary.bisection.bps() as f64 / f64::from(summary.endpoints),
        "oversubscription": oversubscription,
        "diameter_links": summary.diameter_links,
        "diameter_latency_ps": summary.diameter_latency.ps(),
        "hops": hops,
        "paths": paths,
        "addresses": addresses(forwarder),
    })
}

/// A few addresses: the first host, one in the middle and the last, and the first switch of every tier.
fn addresses(forwarder: &Forwarder) -> Value {
    let topology = forwarder.topology();
    let hosts = topology.hosts();
    let mut few = vec![0, hosts / 2, hosts - 1];
    few.dedup();
    let host = |host: u32| {
        let at = topology.address(host * topology.nics_per_host());
        json!({
            "host": format!("host{host}"),
            "region": at.region,
            "building": at.building,
            "pod": at.pod,
            "rack": at.rack,
            "slot": at.host,
        })
    };
    let mut tiers: Vec<u8> = Vec::new();
    let mut switches = Vec::new();
    for switch in (0..topology.switches()).map(SwitchId) {
        let tier = topology.tier(switch);
        if !tiers.contains(&tier) {
            tiers.push(tier);
            let coordinates = topology.coordinates(switch);
            let name = topology.node_name(Node::Switch(switch));
            switches.push(json!({ "switch": name, "coordinates": coordinates.as_slice() }));
        }
    }
    json!({
        "axes": topology.axes(),
        "hosts": few.into_iter().map(host).collect::<Vec<_>>(),
        "switches": switches,
    })
}

/// What a cable is called by where it stands.
pub(super) fn kind_of(tier: LinkTier) -> String {
    cable_tier(tier)
}
