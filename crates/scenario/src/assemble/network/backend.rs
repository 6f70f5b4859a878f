//! The network model of a shared library: where it is, and what it is not told.

use std::path::PathBuf;

use windtunnel_backend::LoadError;
use windtunnel_topology::LinkId;

use super::super::fabric::FabricParts;
use super::super::impair::Troubles;
use crate::error::InputError;
use crate::inputs::Inputs;
use crate::schema::{Backend, Fidelity, Scenario};

/// A shared library with a network model. Nothing of it is loaded until a run needs it.
#[derive(Clone, Debug)]
pub struct BackendPlan {
    /// Its file as the scenario names it.
    pub written: String,
    /// The file.
    pub library: PathBuf,
    /// What it is handed, as JSON.
    pub parameters: String,
}

pub(super) fn plan(given: &Backend, base: &Inputs) -> BackendPlan {
    let parameters = serde_json::Value::from(given.parameters.clone()).to_string();
    BackendPlan { written: given.library.clone(), library: base.join(&given.library), parameters }
}

impl BackendPlan {
    /// Checks that the scenario has nothing of which a model of one's own is not told, and, where it would run, that the
    /// file is there: other fidelities run where nobody has built it.
    ///
    /// # Errors
    /// [`InputError`] with the key to leave out.
    pub(super) fn meet(
        &self,
        scenario: &Scenario,
        fabric: &FabricParts,
        slow_links: &[(LinkId, f64)],
        troubles: &Troubles,
        source: &str,
    ) -> Result<(), InputError> {
        let refused = |message: &str, key: &str| {
            let error = InputError::new(format!("{source}: network.backend.library"), message);
            Err(error.hint(format!("leave `{key}` out")))
        };
        if fabric.faults.is_some() {
            return refused("a model of one's own is not told what has failed", "topology.failed");
        }
        let variation = !scenario.variation.nics.is_empty();
        let bus = fabric.bus_links().next().is_some();
        if let Some((link, _)) = slow_links.first() {
            if variation {
                let name = fabric.topology.link_name(*link);
                let message = format!("a model of one's own is not told what is slow, `{name}` among others");
                return refused(&message, "variation.nics");
            }
            if bus {
                let message = "a model of one's own is not told of a bus that is slower than the NIC";
                return refused(message, "topology.host.nic_bus.rate");
            }
            let message = "a model of one's own is not told how fast storage hosts read";
            return refused(message, "cluster.storage.rate");
        }
        if scenario.fidelity == Fidelity::Packet && !self.library.is_file() {
            let error = LoadError::Missing { path: self.library.clone() };
            return Err(InputError::new(format!("{source}: network.backend.library"), error.to_string()));
        }
        let goes_wrong = &troubles.impairments;
        if !goes_wrong.losses.is_empty() || !goes_wrong.changes.is_empty() || !troubles.background.is_empty()
        {
            return refused("a model of one's own is not told what goes wrong", "impairments");
        }
        Ok(())
    }
}
