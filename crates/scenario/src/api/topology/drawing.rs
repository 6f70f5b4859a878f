//! What a drawing needs to know: groups of hosts and switches with the cables between them, and of a small fabric every
//! node and cable.
//!
//! Hosts are grouped by a prefix of their address, the finest that gives at most [`GROUPS`] groups; where even the
//! coarsest useful one gives more, those in the middle are drawn as one. A switch belongs to the group of the hosts below
//! it if they are of one group, else to a layer of its own tier (of its building, if there are several).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use windtunnel_topology::{Forwarder, HostAddress, LinkId, LinkTier, Node, Peer, SwitchId, Topology};

use super::report::kind_of;

/// Groups of hosts that a drawing has room for.
const GROUPS: usize = 40;

/// Groups drawn one by one where they are too many; the rest but the last are one.
const FIRST: usize = 15;

/// Hosts and switches up to which all are drawn.
const NODES: u64 = 200;

/// How much of a host's address names its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Building,
    Pod,
    Rack,
}

/// Region and building, pod, rack; 0 beyond the level.
type HostKey = [u32; 4];

impl Level {
    const ALL: [Self; 3] = [Self::Building, Self::Pod, Self::Rack];

    fn key(self, at: &HostAddress) -> HostKey {
        let mut key = [at.region, at.building, 0, 0];
        if self != Self::Building {
            key[2] = at.pod;
        }
        if self == Self::Rack {
            key[3] = at.rack;
        }
        key
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Pod => "pod",
            Self::Rack => "rack",
        }
    }
}

/// Where a node stands before groups are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// The group of hosts of this number.
    Hosts(u32),
    /// Switches of a tier above several groups, of a building or of all.
    Layer { building: Option<(u32, u32)>, tier: u8 },
}

/// Cables that look alike: tier, rate, length in millimetres.
type Kind = (LinkTier, u64, u64);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    cables: u64,
    failed: u64,
}

#[derive(Default)]
struct Group {
    place: Option<Place>,
    name: String,
    kind: &'static str,
    tier: u8,
    parent: Option<usize>,
    repeat: u64,
    /// Count, first and last name of each kind of member; hosts first, then by tier.
    members: BTreeMap<Option<u8>, (u64, String, String)>,
    inside: BTreeMap<Kind, Count>,
    failed_switches: u64,
}

struct Drawing<'a> {
    forwarder: &'a Forwarder,
    topology: &'a Topology,
    whole: bool,
    level: Level,
    /// Of the hosts' groups, in order.
    keys: Vec<HostKey>,
    host_group: Vec<u32>,
    switch_place: Vec<Place>,
    groups: Vec<Group>,
    /// Of the hosts' groups, where they are drawn.
    drawn: Vec<usize>,
}

/// See the module page.
pub(super) fn drawing(forwarder: &Forwarder) -> Value {
    let mut drawing = Drawing::new(forwarder);
    drawing.gather();
    let between = drawing.cables();
    let (nodes, cables) = drawing.nodes();
    let groups: Vec<Value> =
        drawing.groups.iter().enumerate().map(|(id, group)| drawing.group(id, group)).collect();
    let level = if nodes.is_some() { "nodes" } else { "groups" };
    json!({ "level": level, "groups": groups, "between": between, "nodes": nodes, "cables": cables })
}

impl<'a> Drawing<'a> {
    fn new(forwarder: &'a Forwarder) -> Self {
        let topology: &Topology = forwarder.topology();
        let nics = topology.nics_per_host();
        let addresses: Vec<HostAddress> =
            (0..topology.hosts()).map(|host| topology.address(host * nics)).collect();
        let groups_at = |level: Level| -> BTreeSet<HostKey> {
            addresses.iter().map(|address| level.key(address)).collect()
        };
        let found = Level::ALL.map(groups_at);
        let fits = |index: &usize| (2..=GROUPS).contains(&found[*index].len());
        // The groups of a dragonfly are what it is made of, however few routers they have.
        let groups = topology.shape_name().starts_with("dragonfly").then_some(1).filter(fits);
        let chosen = groups
            .or_else(|| (0..found.len()).rev().find(fits))
            .or_else(|| (0..found.len()).find(|index| found[*index].len() > GROUPS))
            .unwrap_or(0);
        let level = Level::ALL[chosen];
        let keys: Vec<HostKey> = found[chosen].iter().copied().collect();
        let number = |address| keys.binary_search(&level.key(address)).expect("taken from these") as u32;
        let host_group = addresses.iter().map(number).collect();
        let whole =
            forwarder.failed_cables().next().is_none() && forwarder.failed_switches().next().is_none();
        Self {
            forwarder,
            topology,
            whole,
            level,
            keys,
            host_group,
            switch_place: Vec::new(),
            groups: Vec::new(),
            drawn: Vec::new(),
        }
    }

    /// Places of switches, from the lowest tier up.
    fn places(&self) -> Vec<Place> {
        let topology = self.topology;
        let nics = topology.nics_per_host();
        let switches = topology.switches();
        let mut tiers: Vec<(u8, SwitchId)> =
            (0..switches).map(SwitchId).map(|switch| (topology.tier(switch), switch)).collect();
        tiers.sort_unstable();
        let unplaced = Place::Layer { building: None, tier: u8::MAX };
        let mut places = vec![unplaced; switches as usize];
        for (tier, switch) in tiers {
            let below = (0..topology.ports(switch)).filter_map(|port| match topology.peer(switch, port)? {
                Peer::Nic { nic, .. } => Some(Place::Hosts(self.host_group[(nic / nics) as usize])),
                Peer::Switch { switch: far, .. } => {
                    (topology.tier(far) < tier).then(|| places[far.0 as usize])
                }
            });
            let building = |place: Place| match place {
                Place::Hosts(group) => {
                    let key = self.keys[group as usize];
                    Some((key[0], key[1]))
                }
                Place::Layer { building, .. } => building,
            };
            let mut place: Option<Place> = None;
            let mut layer = false;
            let mut of: Option<Option<(u32, u32)>> = None;
            for next in below {
                layer |= place.is_some_and(|place| place != next) || matches!(next, Place::Layer { .. });
                place.get_or_insert(next);
                let theirs = building(next);
                of = Some(match of {
                    Some(known) if known != theirs => None,
                    _ => theirs,
                });
            }
            places[switch.0 as usize] = match place {
                Some(place) if !layer => place,
                _ => Place::Layer { building: of.flatten().filter(|_| self.buildings() > 1), tier },
            };
        }
        places
    }

    fn buildings(&self) -> usize {
        self.keys.iter().map(|key| (key[0], key[1])).collect::<BTreeSet<_>>().len()
    }

    /// What a pod is called in this shape.
    fn word(&self) -> &'static str {
        match (self.level, self.topology.shape_name()) {
            (Level::Pod, shape) if shape.starts_with("dragonfly") => "group",
            (Level::Pod, "torus" | "mesh" | "full-mesh") => "plane",
            (Level::Pod, "hamming-mesh") => "board",
            (level, _) => level.name(),
        }
    }

    /// The building of a group of hosts, where buildings have names.
    fn building_name(&self, number: usize) -> Option<String> {
        let host = self.host_group.iter().position(|&group| group as usize == number)?;
        let nic = host as u32 * self.topology.nics_per_host();
        self.topology.building_name(nic).map(str::to_owned)
    }

    /// What a group of hosts is called: a building by its name, others by their number.
    fn group_name(&self, number: usize) -> String {
        let named = if self.level == Level::Building { self.building_name(number) } else { None };
        named.unwrap_or_else(|| format!("{}{number}", self.word()))
    }

    /// Groups with their members.
    fn gather(&mut self) {
        self.switch_place = self.places();
        let count = self.keys.len();
        let parents = self.level != Level::Building && self.buildings() > 1;
        let mut of_building: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        if parents {
            for (number, key) in self.keys.iter().enumerate() {
                let building = (key[0], key[1]);
                let name =
                    self.building_name(number).unwrap_or_else(|| format!("building{}", of_building.len()));
                let groups = &mut self.groups;
                of_building.entry(building).or_insert_with(|| {
                    groups.push(Group { name, kind: "building", repeat: 1, ..Group::default() });
                    groups.len() - 1
                });
            }
        }
        let too_many = count > GROUPS;
        for number in 0..count {
            if too_many && number > FIRST && number < count - 1 {
                // Drawn with the first of the middle.
                let id = self.groups.len() - 1;
                self.groups[id].repeat += 1;
                self.drawn.push(id);
                continue;
            }
            let key = self.keys[number];
            self.drawn.push(self.groups.len());
            self.groups.push(Group {
                place: Some(Place::Hosts(number as u32)),
                name: self.group_name(number),
                kind: self.level.name(),
                parent: of_building.get(&(key[0], key[1])).copied().filter(|_| !too_many),
                repeat: 1,
                ..Group::default()
            });
        }
        if too_many {
            let merged = self.drawn[FIRST];
            self.groups[merged].name = format!("{} … {}", self.group_name(FIRST), self.group_name(count - 2));
            self.groups[merged].parent = None;
        }
        let mut layers: BTreeMap<Place, usize> = BTreeMap::new();
        for &place in &self.switch_place {
            if let Place::Layer { building, tier } = place {
                let groups = &mut self.groups;
                let name = self.topology.tier_name(tier);
                let parent = building.and_then(|building| of_building.get(&building).copied());
                layers.entry(place).or_insert_with(|| {
                    groups.push(Group {
                        place: Some(place),
                        name,
                        kind: "layer",
                        parent,
                        repeat: 1,
                        ..Group::default()
                    });
                    groups.len() - 1
                });
            }
        }
        for host in 0..self.topology.hosts() {
            let id = self.drawn[self.host_group[host as usize] as usize];
            enter(&mut self.groups[id], None, format!("host{host}"));
        }
        for switch in (0..self.topology.switches()).map(SwitchId) {
            let id = match self.switch_place[switch.0 as usize] {
                Place::Hosts(group) => self.drawn[group as usize],
                layer @ Place::Layer { .. } => layers[&layer],
            };
            let tier = self.topology.tier(switch);
            enter(&mut self.groups[id], Some(tier), self.topology.node_name(Node::Switch(switch)));
            self.groups[id].tier = self.groups[id].tier.max(tier);
        }
        for switch in self.forwarder.failed_switches() {
            let id = self.group_of(Node::Switch(switch));
            self.groups[id].failed_switches += 1;
        }
    }

    fn group_of(&self, node: Node) -> usize {
        let nics = self.topology.nics_per_host();
        let place = match node {
            Node::Switch(switch) => self.switch_place[switch.0 as usize],
            Node::Nic(nic) => Place::Hosts(self.host_group[(nic / nics) as usize]),
            Node::Gpu(_) | Node::ScaleUp(_) => Place::Hosts(0),
        };
        match place {
            Place::Hosts(group) => self.drawn[group as usize],
            layer @ Place::Layer { .. } => {
                self.groups.iter().position(|group| group.place == Some(layer)).expect("gathered before")
            }
        }
    }

    /// Every cable of the fabric once: its ends, its kind, and whether it is dead.
    fn each_cable(&self, mut visit: impl FnMut(Node, Node, Kind, bool)) {
        let topology = self.topology;
        for link in (0..topology.link_count() as u32).map(LinkId) {
            if link > topology.reverse(link) {
                continue;
            }
            let known = topology.link(link);
            let tier = match known.tier {
                LinkTier::ScaleUpOut | LinkTier::ScaleUpIn => continue,
                LinkTier::NicDown => LinkTier::NicUp,
                LinkTier::Down(tier) => LinkTier::Up(tier),
                other => other,
            };
            let (from, to) = topology.link_ends(link);
            let dead = !self.whole && self.forwarder.is_dead(link);
            visit(from, to, (tier, known.rate.bps(), topology.cable_length_mm(link)), dead);
        }
    }

    /// Cables inside the groups, entered there, and those between groups.
    fn cables(&mut self) -> Vec<Value> {
        let mut between: BTreeMap<(usize, usize, Kind), Count> = BTreeMap::new();
        let mut inside: BTreeMap<(usize, Kind), Count> = BTreeMap::new();
        self.each_cable(|from, to, kind, dead| {
            let (a, b) = (self.group_of(from), self.group_of(to));
            let count = if a == b {
                inside.entry((a, kind)).or_default()
            } else {
                between.entry((a.min(b), a.max(b), kind)).or_default()
            };
            count.cables += 1;
            count.failed += u64::from(dead);
        });
        for ((id, kind), count) in inside {
            self.groups[id].inside.insert(kind, count);
        }
        between.into_iter().map(|((a, b, kind), count)| cable(Some((a, b)), kind, count)).collect()
    }

    fn group(&self, id: usize, group: &Group) -> Value {
        let members = group.members.iter().map(|(tier, (count, first, last))| {
            let kind = tier.map_or_else(|| "host".to_owned(), |tier| self.topology.tier_name(tier));
            json!({ "kind": kind, "tier": tier, "count": count, "first": first, "last": last })
        });
        let inside = group.inside.iter().map(|(&kind, &count)| cable(None, kind, count));
        json!({
            "id": id,
            "name": group.name,
            "kind": group.kind,
            "tier": group.tier,
            "parent": group.parent,
            "repeat": group.repeat,
            "members": members.collect::<Vec<_>>(),
            "inside": inside.collect::<Vec<_>>(),
            "failed_switches": group.failed_switches,
        })
    }

    /// All nodes and cables, if they are few.
    fn nodes(&self) -> (Option<Vec<Value>>, Option<Vec<Value>>) {
        let topology = self.topology;
        let hosts = topology.hosts();
        if u64::from(hosts) + u64::from(topology.switches()) > NODES {
            return (None, None);
        }
        let nics = topology.nics_per_host();
        let failed: BTreeSet<SwitchId> = self.forwarder.failed_switches().collect();
        let host = |host: u32| {
            let group = self.group_of(Node::Nic(host * nics));
            json!({
                "id": host, "name": format!("host{host}"), "kind": "host", "tier": Value::Null,
                "group": group, "coordinates": Value::Null, "failed": false,
            })
        };
        let switch = |switch: SwitchId| {
            let tier = topology.tier(switch);
            json!({
                "id": hosts + switch.0,
                "name": topology.node_name(Node::Switch(switch)),
                "kind": topology.tier_name(tier),
                "tier": tier,
                "group": self.group_of(Node::Switch(switch)),
                "coordinates": topology.coordinates(switch).as_slice(),
                "failed": failed.contains(&switch),
            })
        };
        let switches = (0..topology.switches()).map(SwitchId).map(switch);
        let nodes = (0..hosts).map(host).chain(switches).collect();
        let id = |node: Node| match node {
            Node::Nic(nic) => (nic / nics) as usize,
            Node::Switch(switch) => (hosts + switch.0) as usize,
            Node::Gpu(_) | Node::ScaleUp(_) => 0,
        };
        let mut cables: BTreeMap<(usize, usize, Kind), Count> = BTreeMap::new();
        self.each_cable(|from, to, kind, dead| {
            let (a, b) = (id(from), id(to));
            let count = cables.entry((a.min(b), a.max(b), kind)).or_default();
            count.cables += 1;
            count.failed += u64::from(dead);
        });
        let cables = cables.into_iter().map(|((a, b, kind), count)| cable(Some((a, b)), kind, count));
        (Some(nodes), Some(cables.collect()))
    }
}

fn enter(group: &mut Group, tier: Option<u8>, name: String) {
    let (count, _, last) = group.members.entry(tier).or_insert_with(|| (0, name.clone(), String::new()));
    *count += 1;
    *last = name;
}

fn cable(ends: Option<(usize, usize)>, (tier, rate, length_mm): Kind, count: Count) -> Value {
    let mut value = json!({
        "tier": kind_of(tier),
        "count": count.cables,
        "rate_bps": rate,
        "length_m": length_mm as f64 / 1e3,
        "failed": count.failed,
    });
    if let Some((a, b)) = ends {
        value["a"] = json!(a);
        value["b"] = json!(b);
    }
    value
}
