//! htsim's `.topo`: sizes of a leaf-spine or a three-tier fat tree.

use std::fmt::Write;

use super::cannot;
use crate::graph::{GraphError, GraphSpec, recognise_clos};
use crate::spec::ClosSpec;

/// A graph for htsim, if it is a Clos that htsim can express.
///
/// # Errors
/// [`GraphError`] that says what of it htsim cannot express.
pub fn htsim(graph: &GraphSpec) -> Result<String, GraphError> {
    let Some((spec, _)) = recognise_clos(graph) else {
        let what = "expected a leaf-spine or a fat tree for htsim, found another shape".to_owned();
        return Err(cannot(&graph.source, what, Some("GraphML, an edge list and ns-3 text hold any graph")));
    };
    htsim_clos(&spec, &graph.source)
}

/// A Clos for htsim; `name` stands in messages.
///
/// # Errors
/// [`GraphError`] that says what of it htsim cannot express: other than two or three tiers, planes, several NICs,
/// hosts that do not fill whole pods, rates that are no whole number of Gbps, latencies of less than a ns, loss,
/// and an oversubscription that is no whole number.
pub fn htsim_clos(spec: &ClosSpec, name: &str) -> Result<String, GraphError> {
    let refuse = |what: String| Err(cannot(name, what, None));
    let top = spec.tiers.len() - 1;
    if !(1..=2).contains(&top) {
        return refuse(format!("expected 2 or 3 tiers for htsim, found {}", spec.tiers.len()));
    }
    if spec.planes != 1 || spec.host.nics != 1 {
        let (planes, nics) = (spec.planes, spec.host.nics);
        return refuse(format!("expected hosts of 1 NIC on 1 plane for htsim, found {nics} on {planes}"));
    }
    let children = |tier: usize| u64::from(spec.tiers[tier].ports_down / spec.tiers[tier].bundle);
    let hosts_per_leaf = u64::from(spec.tiers[0].ports_down);
    let hosts = u64::from(spec.hosts);
    let pod = if top == 1 { hosts } else { hosts_per_leaf * children(1) };
    let unit = if top == 1 { hosts_per_leaf } else { pod };
    if !hosts.is_multiple_of(unit) {
        return refuse(format!(
            "expected hosts in multiples of {unit} for htsim, whose pods are full, found {hosts}"
        ));
    }
    let mut text = format!("Nodes {hosts}\nTiers {}\nPodsize {pod}\n", top + 1);
    for (index, tier) in spec.tiers.iter().enumerate() {
        if !tier.rate.bps().is_multiple_of(1_000_000_000) {
            return refuse(format!(
                "expected rates in whole Gbps for htsim, found {} bps in tier {index}",
                tier.rate.bps()
            ));
        }
        if tier.loss > 0.0 {
            return refuse(format!(
                "expected cables without loss for htsim, found {} in tier {index}",
                tier.loss
            ));
        }
        let ps = u128::from(tier.length_mm) * u128::from(spec.propagation_ps_per_m) / 1_000;
        let whole_ns = ps.is_multiple_of(1_000) && tier.switch_latency.ps().is_multiple_of(1_000);
        if !whole_ns || ps == 0 {
            let delay = tier.switch_latency.ps();
            return refuse(format!(
                "expected latencies in whole ns, of a link at least 1, for htsim, found {ps} ps and {delay} ps in tier \
                 {index}"
            ));
        }
        // Ports of the top tier are those in use.
        let used = match index {
            0 => hosts_per_leaf,
            _ if index == top => hosts / if top == 1 { hosts_per_leaf } else { pod } * u64::from(tier.bundle),
            _ => u64::from(tier.ports_down),
        };
        let _ = writeln!(text, "Tier {index}");
        let _ = writeln!(text, "Downlink_speed_Gbps {}", tier.rate.bps() / 1_000_000_000);
        let _ = writeln!(text, "Radix_Down {used}");
        if let Some(above) = spec.tiers.get(index + 1) {
            let down = u128::from(tier.ports_down) * u128::from(tier.rate.bps());
            let uplinks = (down as f64 / (tier.oversubscription * above.rate.bps() as f64)).round() as u64;
            let up = u128::from(uplinks) * u128::from(above.rate.bps());
            if up == 0 || !down.is_multiple_of(up) {
                return refuse(format!(
                    "expected an oversubscription that is a whole number for htsim, found {} in tier {index}",
                    tier.oversubscription
                ));
            }
            let _ = writeln!(text, "Radix_Up {uplinks}");
            if down != up {
                let _ = writeln!(text, "Oversubscribed {}", down / up);
            }
        }
        if tier.bundle > 1 {
            let _ = writeln!(text, "Bundle {}", tier.bundle);
        }
        let _ = writeln!(text, "Downlink_Latency_ns {}", ps / 1_000);
        if tier.switch_latency.ps() > 0 {
            let _ = writeln!(text, "Switch_Latency_ns {}", tier.switch_latency.ps() / 1_000);
        }
    }
    Ok(text)
}
