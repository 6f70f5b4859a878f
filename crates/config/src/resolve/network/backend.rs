//! The network model of a shared library: where it is, and what it is not told.

use windtunnel_backend::LoadError;
use windtunnel_plan::error::InputError;
use windtunnel_plan::fabric::FabricParts;
use windtunnel_plan::inputs::Inputs;
use windtunnel_plan::network_plan::BackendPlan;
use windtunnel_plan::troubles::Troubles;
use windtunnel_topology::LinkId;

use crate::schema::{Backend, Fidelity, Scenario};

pub(super) fn plan(given: &Backend, base: &Inputs) -> BackendPlan {
    let parameters = serde_json::Value::from(given.parameters.clone()).to_string();
    BackendPlan { written: given.library.clone(), library: base.join(&given.library), parameters }
}

/// Checks that the scenario has nothing of which a model of one's own is not told, and, where it would run, that the
/// file is there: other fidelities run where nobody has built it.
///
/// # Errors
/// [`InputError`] with the key to leave out.
pub(super) fn meet(
    plan: &BackendPlan,
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
    if scenario.fidelity == Fidelity::Packet && !plan.library.is_file() {
        let error = LoadError::Missing { path: plan.library.clone() };
        return Err(InputError::new(format!("{source}: network.backend.library"), error.to_string()));
    }
    let goes_wrong = &troubles.impairments;
    if !goes_wrong.losses.is_empty() || !goes_wrong.changes.is_empty() || !troubles.background.is_empty() {
        return refused("a model of one's own is not told what goes wrong", "impairments");
    }
    Ok(())
}
