//! A topology alone, for those who route on it themselves.

use std::path::Path;
use std::sync::Arc;

use windtunnel_config::resolve::fabric;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_topology::{EcmpHash, Topology};

use super::{Failure, topology};

/// The topology of a text whose root is one, or of a scenario.
///
/// # Errors
/// [`Failure::Input`].
pub fn topology_of(text: &str, source: &str, base: &Path) -> Result<Arc<Topology>, Failure> {
    let written = topology::read(text, source, base)?;
    Ok(fabric::Draft::new(&written, &mut EvidenceList::default())?.topology(EcmpHash::default())?)
}
