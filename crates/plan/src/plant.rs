//! What components a fabric has, what each consists of, and which GPUs a broken fabric cuts off.
//!
//! Cables are numbered with those of NICs first. A GPU is cut off if none of its NICs has a living cable, or if its host is
//! not joined to the largest part of the fabric that is left; the GPUs of a host are joined. Without a fabric (job fidelity of
//! jobs that know how long they take, on hosts of which nothing else is said) each GPU has a NIC and a cable of its own.

use std::sync::Arc;

use windtunnel_cluster::faults::{Class, Component, Plant};
use windtunnel_cluster::free::Locator;
use windtunnel_kernel::{EndpointId, NicId};
use windtunnel_topology::{Forwarder, LinkId, Names, Node, Peer, SwitchId, Topology};

use crate::fabric::FabricParts;
use crate::places::Places;

/// The components of a scenario's fabric.
#[derive(Clone)]
pub struct FabricPlant {
    topology: Arc<Topology>,
    /// What always is out, and how switches cope.
    whole: Forwarder,
    /// No fabric is described.
    bare: bool,
    /// The lower link of each cable; of NICs first.
    cables: Vec<LinkId>,
    racks: Vec<Vec<u32>>,
    pods: Vec<Vec<u32>>,
    /// GPUs that what always is out cuts off.
    always: Vec<EndpointId>,
}

impl FabricPlant {
    /// Of `fabric`; `bare` if nothing is said of it.
    pub fn new(fabric: &FabricParts, bare: bool) -> Self {
        let topology = Arc::clone(&fabric.topology);
        let whole = match &fabric.faults {
            Some(forwarder) => forwarder.clone(),
            None => Forwarder::new(Arc::clone(&topology), fabric.policy),
        };
        let (mut racks, mut pods) = (Vec::new(), Vec::new());
        let mut cables: Vec<LinkId> = Vec::new();
        if !bare {
            let places = Places::of(&topology);
            let enter = |groups: &mut Vec<Vec<u32>>, group: u32, host: u32| {
                groups.resize_with(groups.len().max(group as usize + 1), Vec::new);
                groups[group as usize].push(host);
            };
            for host in 0..topology.hosts() {
                enter(&mut racks, places.leaf(host), host);
                enter(&mut pods, places.pod(host), host);
            }
            let lower = |link: LinkId| link.min(topology.reverse(link));
            let nics =
                (0..topology.nics()).flat_map(|nic| (0..topology.planes()).map(move |plane| (nic, plane)));
            cables.extend(nics.map(|(nic, plane)| lower(topology.nic_link(nic, plane))));
            for (switch, port) in ports(&topology) {
                if let (Some(Peer::Switch { .. }), Some(link)) =
                    (topology.peer(switch, port), topology.out_link(switch, port))
                    && lower(link) == link
                {
                    cables.push(link);
                }
            }
        }
        let mut plant = Self { topology, whole, bare, cables, racks, pods, always: Vec::new() };
        plant.always = if bare { Vec::new() } else { plant.apart(&plant.whole) };
        plant
    }

    /// Cables of NICs.
    pub fn access_cables(&self) -> u32 {
        if self.bare { self.topology.endpoints() } else { self.topology.nics() * self.topology.planes() }
    }

    /// Whether nothing is said of the fabric.
    pub const fn is_bare(&self) -> bool {
        self.bare
    }

    /// Routing around what is out, besides what always is.
    pub fn forwarder(&self, out: &[Component]) -> Forwarder {
        let mut forwarder = self.whole.clone();
        // Where nothing is said of the fabric, a cable is as good as its GPU.
        for component in out.iter().filter(|_| !self.bare) {
            match component.class {
                Class::Cable => forwarder.fail_cable(self.cables[component.index as usize]),
                Class::Switch => forwarder.fail_switch(SwitchId(component.index)),
                _ => {}
            }
        }
        forwarder
    }

    /// A component's name.
    pub fn name(&self, component: Component) -> String {
        let index = component.index;
        let gpu = |index: u32| self.topology.node_name(Node::Gpu(EndpointId(index)));
        match component.class {
            Class::Gpu => gpu(index),
            Class::Software => format!("software {}", gpu(index)),
            Class::Host => format!("host{index}"),
            Class::Nic if self.bare => format!("NIC of {}", gpu(index)),
            Class::Nic => self.topology.node_name(Node::Nic(index)),
            Class::Cable if self.bare => format!("cable of {}", gpu(index)),
            Class::Cable => self.topology.link_name(self.cables[index as usize]),
            Class::Switch => self.topology.node_name(Node::Switch(SwitchId(index))),
            Class::Rack => format!("rack{index}"),
            Class::Pod => format!("pod{index}"),
        }
    }

    /// The component of a name; what switches are called needs `names`.
    pub fn find(&self, name: &str, names: &Names<'_>) -> Option<Component> {
        if let Some(rest) = name.strip_prefix("software ") {
            let index = self.gpu(rest.trim())?;
            return Some(Component { class: Class::Software, index });
        }
        let of = |class, index| Some(Component { class, index });
        let known = |prefix: &str, count: u32| {
            let digits = name.strip_prefix(prefix)?;
            digits.bytes().all(|digit| digit.is_ascii_digit()).then_some(())?;
            digits.parse::<u32>().ok().filter(|&index| index < count)
        };
        if let Some(index) = known("host", self.topology.hosts()) {
            return of(Class::Host, index);
        }
        if let Some(index) = self.gpu(name) {
            return of(Class::Gpu, index);
        }
        if self.bare {
            return None;
        }
        if let Some(switch) = names.switch(name) {
            return of(Class::Switch, switch.0);
        }
        if let Some(nic) = names.nic(name) {
            return of(Class::Nic, nic);
        }
        if let Ok(link) = names.link(name) {
            let lower = link.min(self.topology.reverse(link));
            let index = self.cables.iter().position(|&cable| cable == lower)?;
            return of(Class::Cable, index as u32);
        }
        let rack =
            known("rack", self.racks.len() as u32).map(|index| Component { class: Class::Rack, index });
        rack.or_else(|| Some(Component { class: Class::Pod, index: known("pod", self.pods.len() as u32)? }))
    }

    /// Some names of components, for a message that looks for the nearest.
    pub fn examples(&self, names: &Names<'_>) -> Vec<String> {
        let of = |class, index| self.name(Component { class, index });
        let mut found: Vec<String> = (0..self.topology.hosts()).map(|host| of(Class::Host, host)).collect();
        if !self.bare {
            found.extend(names.switches());
            found.extend((0..self.racks.len() as u32).map(|rack| of(Class::Rack, rack)));
        }
        found
    }

    fn gpu(&self, name: &str) -> Option<u32> {
        let (host, gpu) = name.strip_prefix("host")?.split_once("/gpu")?;
        let (host, gpu) = (host.parse::<u32>().ok()?, gpu.parse::<u32>().ok()?);
        let per_host = self.topology.endpoints_per_host();
        (host < self.topology.hosts() && gpu < per_host).then(|| host * per_host + gpu)
    }

    fn hosts(&self, hosts: &[u32], to: &mut Vec<EndpointId>) {
        let per_host = self.topology.endpoints_per_host();
        to.extend(hosts.iter().flat_map(|&host| (host * per_host..(host + 1) * per_host).map(EndpointId)));
    }

    /// GPUs that are apart from the largest part of what is left.
    fn apart(&self, forwarder: &Forwarder) -> Vec<EndpointId> {
        let topology = &*self.topology;
        // Hosts first, then switches.
        let hosts = topology.hosts();
        let mut parts = Parts((0..hosts + topology.switches()).collect());
        let mut alive = vec![false; topology.nics() as usize];
        for nic in 0..topology.nics() {
            for plane in 0..topology.planes() {
                if !forwarder.is_dead(topology.nic_link(nic, plane)) {
                    alive[nic as usize] = true;
                    let switch = topology.attachment(nic, plane).0;
                    parts.join(nic / topology.nics_per_host(), hosts + switch.0);
                }
            }
        }
        for (switch, port) in ports(topology) {
            if let (Some(Peer::Switch { switch: other, .. }), Some(link)) =
                (topology.peer(switch, port), topology.out_link(switch, port))
                && switch < other
                && !forwarder.is_dead(link)
            {
                parts.join(hosts + switch.0, hosts + other.0);
            }
        }
        let mut sizes = vec![0u32; parts.0.len()];
        for host in 0..hosts {
            sizes[parts.root(host) as usize] += 1;
        }
        // Of equally large ones the first.
        let most = sizes.iter().copied().max().unwrap_or(0);
        let main = sizes.iter().position(|&size| size == most).unwrap_or(0) as u32;
        let per_host = topology.endpoints_per_host();
        let lost = |gpu: &EndpointId| {
            let dead = (0..topology.nics_per_endpoint())
                .all(|nic| !alive[topology.nic(*gpu, NicId(nic as u8)) as usize]);
            dead || parts.root(gpu.0 / per_host) != main
        };
        (0..topology.endpoints()).map(EndpointId).filter(lost).collect()
    }
}

impl Plant for FabricPlant {
    fn count(&self, class: Class) -> u32 {
        let topology = &self.topology;
        match class {
            Class::Gpu | Class::Software => topology.endpoints(),
            Class::Host => topology.hosts(),
            Class::Nic | Class::Cable if self.bare => topology.endpoints(),
            Class::Switch if self.bare => 0,
            Class::Nic => topology.nics(),
            Class::Cable => self.cables.len() as u32,
            Class::Switch => topology.switches(),
            Class::Rack => self.racks.len() as u32,
            Class::Pod => self.pods.len() as u32,
        }
    }

    fn gpus(&self, component: Component, to: &mut Vec<EndpointId>) {
        let (topology, index) = (&self.topology, component.index);
        match component.class {
            Class::Gpu | Class::Software => to.push(EndpointId(index)),
            Class::Host => self.hosts(&[index], to),
            Class::Rack => self.hosts(&self.racks[index as usize], to),
            Class::Pod => self.hosts(&self.pods[index as usize], to),
            Class::Nic if self.bare => to.push(EndpointId(index)),
            Class::Nic => {
                let mut of_host = Vec::new();
                self.hosts(&[index / topology.nics_per_host()], &mut of_host);
                let uses = |gpu: &EndpointId| {
                    (0..topology.nics_per_endpoint()).any(|nic| topology.nic(*gpu, NicId(nic as u8)) == index)
                };
                to.extend(of_host.into_iter().filter(uses));
            }
            Class::Cable | Class::Switch => {}
        }
    }

    fn cut_off(&self, out: &[Component]) -> Vec<EndpointId> {
        if self.bare {
            return out.iter().map(|component| EndpointId(component.index)).collect();
        }
        let mut apart = self.apart(&self.forwarder(out));
        apart.retain(|gpu| self.always.binary_search(gpu).is_err());
        apart
    }
}

fn ports(topology: &Topology) -> impl Iterator<Item = (SwitchId, u32)> + '_ {
    let switches = (0..topology.switches()).map(SwitchId);
    switches.flat_map(|switch| (0..topology.ports(switch)).map(move |port| (switch, port)))
}

/// Disjoint sets, each under its lowest member.
struct Parts(Vec<u32>);

impl Parts {
    fn root(&self, mut of: u32) -> u32 {
        while self.0[of as usize] != of {
            of = self.0[of as usize];
        }
        of
    }

    fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.shorten(a), self.shorten(b));
        self.0[a.max(b) as usize] = a.min(b);
    }

    /// The root, with the way there halved.
    fn shorten(&mut self, mut of: u32) -> u32 {
        while self.0[of as usize] != of {
            let up = self.0[of as usize];
            self.0[of as usize] = self.0[up as usize];
            of = up;
        }
        of
    }
}
