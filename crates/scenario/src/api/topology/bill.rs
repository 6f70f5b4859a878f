//! What the shape's numbers are, for drawings, and the bill of a fabric: its switches and cables, counted for
//! [`windtunnel_config::cost`].

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windtunnel_config::cost::{CableGroup, Inventory, SwitchGroup};
use windtunnel_config::schema::TopologyFile;
use windtunnel_kernel::BitRate;
use windtunnel_topology::{Cables, ShapeName, SwitchId, Topology, cables};

/// Tiers that forward but are no switches: they come with their hosts.
const NOT_BOUGHT: [&str; 2] = ["server", "accelerator"];

/// What `topology` is built from.
pub(super) fn inventory(topology: &Topology, model: Option<&str>) -> Inventory {
    let mut groups: BTreeMap<(u8, BTreeMap<u64, u64>), u64> = BTreeMap::new();
    for switch in (0..topology.switches()).map(SwitchId) {
        let mut ports: BTreeMap<u64, u64> = BTreeMap::new();
        for link in (0..topology.ports(switch)).filter_map(|port| topology.out_link(switch, port)) {
            *ports.entry(topology.link(link).rate.bps()).or_default() += 1;
        }
        *groups.entry((topology.tier(switch), ports)).or_default() += 1;
    }
    let switches = groups.into_iter().map(|((tier, ports), count)| SwitchGroup {
        what: topology.tier_name(tier),
        count,
        ports: ports.into_iter().map(|(rate, count)| (BitRate::from_bps(rate), count)).collect(),
    });
    let bought = |group: &SwitchGroup| !NOT_BOUGHT.contains(&group.what.as_str());
    let cable = |kind: Cables| CableGroup {
        what: kind.tier,
        count: kind.count,
        rate: kind.rate,
        length_mm: kind.length_mm,
    };
    Inventory {
        model: model.map(str::to_owned),
        switches: switches.filter(bought).collect(),
        cables: cables(topology).into_iter().map(cable).collect(),
    }
}

/// The sizes from which a shape without groups is drawn: dimensions, or boards; null elsewhere.
pub(super) fn parameters(written: &TopologyFile) -> Value {
    if let (Some(board), Some(boards)) = (written.board, written.boards) {
        return json!({ "board": board, "boards": boards });
    }
    if written.dimensions.is_empty() {
        return Value::Null;
    }
    let ring = written.shape.is_some_and(|name| name.0 == ShapeName::Torus);
    let dimensions: Vec<Value> = written
        .dimensions
        .iter()
        .map(|dimension| {
            let wrap = dimension.wrap.unwrap_or(ring);
            json!({ "size": dimension.size, "wrap": wrap, "links": dimension.links })
        })
        .collect();
    json!({ "dimensions": dimensions, "hosts_per_router": written.hosts_per_router.unwrap_or(1) })
}
