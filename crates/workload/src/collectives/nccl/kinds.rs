//! Domains whose GPUs differ: which machine a group has that stands in some of them.
//!
//! Life cycle: whoever knows the topology makes [`Kinds`] once, with a [`Machine`] for each kind; a group asks by the set of kinds
//! among its members ([`Library::among`]). Of one kind it has that kind's machine. Of several it has that of the oldest generation, as
//! NCCL asks the least compute capability of a communicator, with the slowest links and memory among them, and switches sum if all do.

use std::sync::Arc;

use super::library::{Library, Machine};

/// Kinds of GPUs at most: a set of them is a number, and the message model has as many classes of paths inside hosts.
pub const MOST_KINDS: usize = 8;

/// See the module page.
#[derive(Clone, Debug, PartialEq)]
pub struct Kinds {
    of_domain: Vec<u8>,
    machines: Vec<Machine>,
}

impl Kinds {
    /// `of_domain` gives the kind of each scale-up domain, as a place in `machines`.
    ///
    /// # Panics
    /// If a domain is of a kind without a machine, or there are more than [`MOST_KINDS`].
    pub fn new(of_domain: Vec<u8>, machines: Vec<Machine>) -> Self {
        assert!(machines.len() <= MOST_KINDS, "a set of kinds is a number");
        assert!(of_domain.iter().all(|&kind| usize::from(kind) < machines.len()), "every kind has a machine");
        Self { of_domain, machines }
    }

    /// The same with other machines.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn map<E>(&self, change: impl Fn(&Machine) -> Result<Machine, E>) -> Result<Self, E> {
        let machines = self.machines.iter().map(change).collect::<Result<_, _>>()?;
        Ok(Self { of_domain: self.of_domain.clone(), machines })
    }

    /// The set of kinds among `domains`: bit k for kind k.
    pub fn among(&self, domains: impl IntoIterator<Item = u32>) -> u64 {
        domains.into_iter().fold(0, |set, domain| set | 1 << self.of_domain[domain as usize])
    }

    /// The machine of a group with this set of kinds.
    fn machine(&self, set: u64) -> Machine {
        let all =
            || self.machines.iter().enumerate().filter(|(kind, _)| set >> kind & 1 == 1).map(|(_, one)| one);
        let rank = |machine: &&Machine| (machine.hardware.architecture, machine.hardware.scale_up.to_bits());
        let mut found = all().min_by_key(rank).unwrap_or(&self.machines[0]).clone();
        let hardware = &mut found.hardware;
        for other in all().map(|machine| &machine.hardware) {
            hardware.scale_up = hardware.scale_up.min(other.scale_up);
            hardware.memory = hardware.memory.min(other.memory);
            hardware.host_link = hardware.host_link.min(other.host_link);
            hardware.scale_up_sums &= other.scale_up_sums;
        }
        let inside = all().map(|machine| machine.latency[0]).max();
        found.latency[0] = inside.unwrap_or(found.latency[0]);
        found
    }
}

impl Library {
    /// The library of a group whose members are of this set of kinds; itself where GPUs do not differ.
    #[must_use]
    pub fn among(&self, set: u64) -> Self {
        match &self.0.kinds {
            Some(kinds) if set != 0 => Self(Arc::new(kinds.machine(set))),
            _ => self.clone(),
        }
    }
}
