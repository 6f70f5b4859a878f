//! What fails, when, and for how long; and what is taken out for maintenance.
//!
//! A *component* is a GPU, a host, a NIC, a cable, a switch, the software of a GPU, or all hosts of a rack or a pod (what
//! shares a power feed or a cooling loop fails together). A [`Process`] makes the components of a class fail and be
//! repaired in turn: the time to the next fault counts from the end of the repair (a renewal process). Every draw comes
//! from a stream of its own, keyed by (seed, class, component, how many faults it had), so that nothing a scheduler does
//! changes what fails when, and two runs that differ in one window of maintenance meet the same faults.
//!
//! [`Agenda`] gives all that happens in order of time; [`Outages`] knows what is out and why. What follows for jobs is
//! [`crate::cluster`]'s part, what a component consists of is told by a [`Plant`].

mod agenda;
mod distribution;
pub mod log;
mod outages;

use windtunnel_kernel::EndpointId;

pub use agenda::{Agenda, Event};
pub use distribution::{Lifetime, Repair, gamma};
pub(crate) use outages::{Cause, Known};
pub use outages::{Out, Outages};

windtunnel_kernel::named! {
    /// A kind of component.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Class: "class" {
        Gpu = "gpu", "a GPU";
        Host = "host", "a host with all its GPUs";
        Nic = "nic", "a NIC; GPUs that use it are lost with it";
        Cable = "cable", "a cable, both directions";
        Switch = "switch", "a switch with all its ports";
        Software = "software", "what runs on a GPU: the job is lost, the GPU is not";
        Rack = "rack", "all hosts of a rack, or leaf";
        Pod = "pod", "all hosts of a pod";
    }
}

impl Class {
    /// Whether its faults change the fabric; which GPUs are lost then depends on what else is out.
    pub const fn is_fabric(self) -> bool {
        matches!(self, Self::Cable | Self::Switch)
    }

    /// The domain of its random streams.
    const fn domain(self) -> &'static str {
        match self {
            Self::Gpu => "fault-gpu",
            Self::Host => "fault-host",
            Self::Nic => "fault-nic",
            Self::Cable => "fault-cable",
            Self::Switch => "fault-switch",
            Self::Software => "fault-software",
            Self::Rack => "fault-rack",
            Self::Pod => "fault-pod",
        }
    }
}

/// One component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Component {
    /// Its class.
    pub class: Class,
    /// Its number in the class.
    pub index: u32,
}

/// Knows what components there are and what each consists of.
pub trait Plant {
    /// Components of a class; 0 if there are none.
    fn count(&self, class: Class) -> u32;

    /// Appends the GPUs that are out while `component` is, in order; none for cables and switches.
    fn gpus(&self, component: Component, to: &mut Vec<EndpointId>);

    /// GPUs that nothing joins to the others while these cables and switches are out, in order.
    fn cut_off(&self, out: &[Component]) -> Vec<EndpointId>;
}

/// Makes components fail and be repaired.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Process {
    /// Of this class.
    pub class: Class,
    /// Components 0 to this one, exclusive, of the class.
    pub count: u32,
    /// How many processes of the same class stand before it: its streams are apart from theirs.
    pub number: u32,
    /// Time from the start, or the end of a repair, to a component's next fault.
    pub lifetime: Lifetime,
    /// Time from a fault to the end of its repair.
    pub repair: Repair,
}

/// A fault that is known ahead, from a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFault {
    /// When, in nanoseconds.
    pub at: u64,
    /// What.
    pub component: Component,
    /// Nanoseconds until it works again.
    pub repair: u64,
}

windtunnel_kernel::named! {
    /// What becomes of jobs where maintenance begins.
    #[derive(Default)]
    pub enum Leave: "rule for jobs at maintenance" {
        #[default]
        Stopped = "stop", "they go on until it begins, and are then interrupted as by a fault";
        Migrated = "migrate", "they write a checkpoint as notice is given, and go on elsewhere";
    }
}

/// A component is taken out on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// What.
    pub component: Component,
    /// When, in nanoseconds.
    pub at: u64,
    /// For so many nanoseconds.
    pub lasts: u64,
    /// Nothing new is placed there from so many nanoseconds before.
    pub notice: u64,
    /// What jobs do.
    pub leave: Leave,
}

impl Maintenance {
    /// When it ends.
    pub const fn end(&self) -> u64 {
        self.at.saturating_add(self.lasts)
    }
}

/// Hosts kept back for when others fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spares {
    /// How many: the last ones of the cluster.
    pub hosts: u32,
    /// Nanoseconds until one is ready; 0 for hot ones.
    pub delay: u64,
}

/// All that goes wrong, and is done about it.
pub struct Upkeep<'a> {
    /// What components there are.
    pub plant: &'a dyn Plant,
    /// What fails by chance.
    pub processes: Vec<Process>,
    /// What fails by a log.
    pub known: Vec<KnownFault>,
    /// What is taken out.
    pub maintenance: Vec<Maintenance>,
    /// What is kept back.
    pub spares: Spares,
}
