//! A topology alone, for those who route on it themselves.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use windtunnel_topology::Topology;

use super::Failure;
use crate::assemble::evidence::EvidenceList;
use crate::assemble::fabric;
use crate::load;
use crate::schema::TopologyFile;

/// The topology of a text whose root is one, or of a scenario.
///
/// # Errors
/// [`Failure::Input`].
pub fn topology_of(text: &str, source: &str, base: &Path) -> Result<Arc<Topology>, Failure> {
    let tree: Value = load::from_yaml(text, source)?;
    let (written, place) = if tree.get("topology").is_some() {
        (load::scenario(text, source, &[])?.topology, "topology")
    } else {
        (load::from_yaml::<TopologyFile>(text, source)?, "")
    };
    let parts = fabric::fabric(&written, source, place, base, &mut EvidenceList::default())?;
    Ok(parts.topology)
}
