//! What fails, is drained and is kept back.

use windtunnel_cluster::faults::{Class, KnownFault, Maintenance, Process, Spares, Upkeep};

use crate::plant::FabricPlant;

/// What fails, is drained and is kept back.
#[derive(Clone)]
pub struct UpkeepPlan {
    /// The components.
    pub plant: FabricPlant,
    /// Random faults by class.
    pub processes: Vec<Process>,
    /// Faults whose time is known.
    pub known: Vec<KnownFault>,
    /// Windows in which parts are drained.
    pub maintenance: Vec<Maintenance>,
    /// Hosts kept back.
    pub spares: Spares,
    /// Rows of logs that were left out.
    pub left_out: u64,
}

impl UpkeepPlan {
    /// As the cluster takes it.
    pub fn as_upkeep(&self) -> Upkeep<'_> {
        Upkeep {
            plant: &self.plant,
            processes: self.processes.clone(),
            known: self.known.clone(),
            maintenance: self.maintenance.clone(),
            spares: self.spares,
        }
    }

    /// Whether cables or switches may go out.
    pub fn changes_fabric(&self) -> bool {
        let classes = self.processes.iter().map(|process| process.class);
        let named = self.known.iter().map(|fault| fault.component.class);
        let drained = self.maintenance.iter().map(|window| window.component.class);
        !self.plant.is_bare() && classes.chain(named).chain(drained).any(Class::is_fabric)
    }
}
