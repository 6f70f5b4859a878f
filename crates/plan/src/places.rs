//! Where hosts stand.

use rustc_hash::FxHashMap;
use windtunnel_cluster::free::Locator;
use windtunnel_topology::Topology;

/// The racks and pods of a topology.
pub struct Places {
    leaves: Vec<u32>,
    pods: Vec<u32>,
}

impl Places {
    /// Of each host, by its first NIC.
    pub fn of(topology: &Topology) -> Self {
        let (mut racks, mut areas) = (FxHashMap::default(), FxHashMap::default());
        let (mut leaves, mut pods) = (Vec::new(), Vec::new());
        for host in 0..topology.hosts() {
            let address = topology.address(host * topology.nics_per_host());
            let area = (address.region, address.building, address.pod);
            let number = areas.len() as u32;
            pods.push(*areas.entry(area).or_insert(number));
            let number = racks.len() as u32;
            leaves.push(*racks.entry((area, address.rack)).or_insert(number));
        }
        Self { leaves, pods }
    }
}

impl Locator for Places {
    fn leaf(&self, host: u32) -> u32 {
        self.leaves[host as usize]
    }

    fn pod(&self, host: u32) -> u32 {
        self.pods[host as usize]
    }
}
