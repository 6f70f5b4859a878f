//! Where a key of the topology stands, for messages.

use windtunnel_plan::error::InputError;
use windtunnel_topology::{ShapeName, TopologyError};

/// A topology's file, and its path in there: empty where the topology is the root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) source: &'a str,
    pub(super) path: &'a str,
}

impl Place<'_> {
    /// `a.yaml: topology.tiers[0]`.
    pub(super) fn at(&self, key: &str) -> String {
        let path = [self.path, key].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>();
        format!("{}: {}", self.source, path.join("."))
    }

    /// A key is missing.
    pub(super) fn missing(&self, key: &str, example: &str) -> InputError {
        InputError::new(self.at(key), format!("`{key}` is missing")).hint(format!("for example `{example}`"))
    }

    /// What the topology found, at the key of `shape` that it is about.
    pub(super) fn error(&self, shape: ShapeName, error: &TopologyError) -> InputError {
        // What is wrong with a graph has its place in the graph's file.
        let at = match error {
            TopologyError::Graph(error) => error.place(),
            error => self.at(&key(shape, &error.path())),
        };
        let fault = InputError::new(at, error.to_string());
        match error.hint() {
            // Its tiers follow from `k`.
            Some(_) if shape == ShapeName::FatTree => fault.hint("raise `k`, or lower `hosts`"),
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

/// The key of the schema for a path in the spec: the schema has what the shapes without tiers share at the root, and a
/// fat tree has no tiers.
fn key(shape: ShapeName, path: &str) -> String {
    let path = path.strip_prefix("direct.").unwrap_or(path);
    if shape == ShapeName::FatTree && path.starts_with("tiers") {
        return "k".to_owned();
    }
    const RENAMED: [(&str, &str); 8] = [
        ("nic", "nic_link"),
        ("router_latency", "switch.latency"),
        ("switch_latency", "switch.latency"),
        ("propagation_ps_per_m", "switch.delay_per_metre"),
        ("cable", "link"),
        ("board_cable", "board_link"),
        ("switch_cable", "switch_link"),
        ("length_mm", "length"),
    ];
    let parts = path.split('.').map(|part| {
        let (name, index) = part.split_at(part.find('[').unwrap_or(part.len()));
        let renamed = RENAMED.iter().find(|(from, _)| *from == name).map_or(name, |(_, to)| to);
        format!("{renamed}{index}")
    });
    // Of a dimension the cable's keys stand beside its size.
    parts.filter(|part| !(path.starts_with("dimensions") && part == "link")).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_the_spec_become_keys_of_the_schema() {
        let keys = [
            (ShapeName::Clos, "tiers[1].bundle", "tiers[1].bundle"),
            (ShapeName::FatTree, "tiers[1].ports_down", "k"),
            (ShapeName::Torus, "direct.nic.rate", "nic_link.rate"),
            (ShapeName::Torus, "dimensions[2].cable.rate", "dimensions[2].rate"),
            (ShapeName::HammingMesh, "board_cable.rate", "board_link.rate"),
            (ShapeName::Dragonfly, "direct.host.nics", "host.nics"),
            (ShapeName::BCube, "direct.router_latency", "switch.latency"),
        ];
        for (shape, path, expected) in keys {
            assert_eq!(key(shape, path), expected);
        }
    }
}
