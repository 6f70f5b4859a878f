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

#[cfg(test)]
mod tests {
    use windtunnel_kernel::Span;

    use super::super::{Architecture, Constants, Hardware, Settings};
    use super::*;

    fn machine(architecture: Architecture, scale_up: f64, sums: bool) -> Machine {
        let hardware = Hardware {
            architecture,
            scale_up,
            scale_up_sums: sums,
            scale_up_ranks: None,
            host_link: 0.0,
            memory: 3.0 * scale_up,
            nics: 8,
            nic: 50e9,
            uplink: 0.0,
            slow_leaf: false,
            channel_speed: 0.0,
            simple_trees: false,
            amd: false,
            gpus: 8,
            wire: 1e-6.into(),
            ll128_between: true,
            network_sums: false,
        };
        Machine {
            hardware,
            settings: Settings::default(),
            rules: Vec::new(),
            constants: Constants::default(),
            hosts_of_domain: 1,
            payload: 1.0,
            latency: [Span::from_ns(scale_up as u64 / 1_000_000_000), Span::from_us(2)],
            sites: None,
            kinds: None,
        }
    }

    /// A group of one kind has its machine, whatever stands beside; one of several the least of each.
    #[test]
    fn a_group_has_the_machine_of_its_members() {
        let (new, old) =
            (machine(Architecture::Hopper, 360e9, true), machine(Architecture::Ampere, 240e9, false));
        let kinds = Kinds::new(vec![0, 0, 1], vec![new.clone(), old.clone()]);
        let sets = [vec![0, 1], vec![2], vec![1, 2]].map(|domains| kinds.among(domains));
        assert_eq!(sets, [0b01, 0b10, 0b11]);
        let library = Library(Arc::new(Machine { kinds: Some(Arc::new(kinds)), ..new.clone() }));
        assert_eq!(*library.among(sets[0]).0, new);
        assert_eq!(*library.among(sets[1]).0, old);
        let both = library.among(sets[2]);
        assert_eq!(both.0.hardware, old.hardware);
        assert_eq!(both.0.latency, [new.latency[0], old.latency[1]]);
        assert!(!both.0.hardware.scale_up_sums);
        // Where nothing differs a library stays what it is.
        let alike = Library(Arc::new(new));
        assert_eq!(alike.among(0b10), alike);
    }
}
