//! From the keys of a shape to its spec.

use windtunnel_kernel::{BitRate, Span};
use windtunnel_plan::error::{InputError, nearest};
use windtunnel_plan::inputs::Inputs;
use windtunnel_topology::{
    BCubeSpec, BuildingSpec, CableSpec, ClosSpec, CrossSpec, Dimension, DirectSpec, DragonflyPlusSpec,
    DragonflyRouting, DragonflySpec, FullMeshSpec, HammingMeshSpec, HostSpec, MeshRouting, RegionsSpec,
    Routing, ShapeName, Tier, TopologySpec, TorusRouting, TorusSpec,
};
use windtunnel_workload::model::sheets::NicSheet;

use super::graph;
use super::place::Place;
use crate::resolve::names::list;
use crate::schema::{CableKind, ClosTier, KEYS, MeshDimension, Name, TopologyFile};

/// What a spec is built from.
pub(super) struct Builder<'a> {
    pub(super) written: &'a TopologyFile,
    pub(super) shape: ShapeName,
    pub(super) host: HostSpec,
    pub(super) nic: Option<&'a NicSheet>,
    pub(super) place: Place<'a>,
    /// Folder of relative paths.
    pub(super) base: &'a Inputs,
}

impl Builder<'_> {
    /// The spec of the shape.
    pub(super) fn spec(&self) -> Result<TopologySpec, InputError> {
        self.refuse_strangers()?;
        match self.shape {
            ShapeName::Clos => self.clos().map(TopologySpec::Clos),
            ShapeName::FatTree => self.fat_tree().map(TopologySpec::Clos),
            ShapeName::Torus | ShapeName::Mesh => self.torus().map(TopologySpec::Torus),
            ShapeName::FullMesh => self.full_mesh().map(TopologySpec::FullMesh),
            ShapeName::Dragonfly => self.dragonfly().map(TopologySpec::Dragonfly),
            ShapeName::DragonflyPlus => self.dragonfly_plus().map(TopologySpec::DragonflyPlus),
            ShapeName::BCube => self.bcube().map(TopologySpec::BCube),
            ShapeName::HammingMesh => self.hamming_mesh().map(TopologySpec::HammingMesh),
            ShapeName::Regions => self.regions().map(TopologySpec::Regions),
            ShapeName::Graph => self.graph(),
        }
    }

    fn graph(&self) -> Result<TopologySpec, InputError> {
        let example = "graph: {file: fabric.graphml}";
        let given = self.written.graph.as_ref().ok_or_else(|| self.place.missing("graph", example))?;
        graph::read(given, self.written.host.is_some().then_some(self.host), &self.place, self.base)
    }

    /// A key of another shape is an error.
    fn refuse_strangers(&self) -> Result<(), InputError> {
        let shape = self.shape;
        let stranger =
            |key: &&crate::schema::ShapeKey| (key.given)(self.written) && !key.shapes.contains(&shape);
        let Some(key) = KEYS.iter().find(stranger) else { return Ok(()) };
        let theirs = list(key.shapes.iter().map(|shape| shape.name()), "and");
        let own = list(KEYS.iter().filter(|key| key.shapes.contains(&shape)).map(|key| key.name), "and");
        let message =
            format!("`{}` means nothing in shape `{}`, it belongs to {theirs}", key.name, shape.name());
        Err(InputError::new(self.place.at(key.name), message).hint(format!("`{}` has {own}", shape.name())))
    }

    fn need<T: Copy>(&self, value: Option<T>, key: &str, example: &str) -> Result<T, InputError> {
        value.ok_or_else(|| self.place.missing(key, example))
    }

    fn propagation(&self) -> u64 {
        self.written.switch.delay_per_metre.0.ps()
    }

    fn switch_latency(&self) -> Span {
        self.written.switch.latency.0
    }

    fn clos(&self) -> Result<ClosSpec, InputError> {
        let written = self.written;
        let hosts = self.need(written.hosts, "hosts", "hosts: 64")?;
        if written.tiers.is_empty() {
            return Err(self.place.missing("tiers", "tiers: [{ports_down: 32, rate: 400 Gbps}]"));
        }
        self.check_nic(written.tiers[0].rate.0, "tiers[0].rate")?;
        Ok(ClosSpec {
            hosts,
            host: self.host,
            tiers: written.tiers.iter().map(|tier| self.tier(tier)).collect(),
            planes: written.planes.unwrap_or(1),
            propagation_ps_per_m: self.propagation(),
        })
    }

    fn tier(&self, tier: &ClosTier) -> Tier {
        Tier {
            ports_down: tier.ports_down,
            oversubscription: tier.oversubscription,
            rate: tier.rate.0,
            length_mm: tier.length.0,
            bundle: tier.bundle,
            switch_latency: tier.switch_latency.map_or_else(|| self.switch_latency(), |latency| latency.0),
            loss: tier.loss,
        }
    }

    /// Al-Fares, Loukissas, Vahdat, SIGCOMM'08: k/2 ports down and up at the edge and in the middle, k down at the core.
    fn fat_tree(&self) -> Result<ClosSpec, InputError> {
        let written = self.written;
        let k = self.need(written.k, "k", "k: 16")?;
        if k == 0 || !k.is_multiple_of(2) {
            let message = format!("expected an even number of ports of a switch, found {k}");
            let nics = |k: u64| k / 2 * (k / 2) * k;
            let (below, above) = (u64::from(k.saturating_sub(1)), u64::from(k.max(1)) + 1);
            let hint = match below {
                0 => format!("the smallest is {above}, for {} NICs", nics(above)),
                _ => format!("{below} and {above} fit {} and {} NICs", nics(below), nics(above)),
            };
            return Err(InputError::new(self.place.at("k"), message).hint(hint));
        }
        let rate = self.need(written.rate, "rate", "rate: 400 Gbps")?.0;
        self.check_nic(rate, "rate")?;
        let lengths = match (written.lengths.as_slice(), written.length) {
            ([], length) => [length.map_or(0, |length| length.0); 3],
            (&[edge, aggregation, core], None) => [edge.0, aggregation.0, core.0],
            (_, Some(_)) => {
                return Err(InputError::new(
                    self.place.at("lengths"),
                    "expected `length` or `lengths`, found both",
                ));
            }
            (found, None) => {
                let message = format!("expected 3 lengths, found {}", found.len());
                return Err(InputError::new(self.place.at("lengths"), message)
                    .hint("they are those below edge, aggregation and core switches"));
            }
        };
        let half = u64::from(k / 2);
        let full = half * half * u64::from(k) / u64::from(self.host.nics.max(1));
        let hosts = written.hosts.unwrap_or(u32::try_from(full).unwrap_or(u32::MAX));
        let tier = |(ports_down, length_mm): (u32, u64)| Tier {
            length_mm,
            switch_latency: self.switch_latency(),
            ..Tier::new(ports_down, rate)
        };
        Ok(ClosSpec {
            hosts,
            host: self.host,
            tiers: [k / 2, k / 2, k].into_iter().zip(lengths).map(tier).collect(),
            planes: 1,
            propagation_ps_per_m: self.propagation(),
        })
    }

    /// What the shapes without tiers share; `default` is the rate of a NIC's link where nothing says it.
    fn direct(&self, default: Option<BitRate>) -> Result<DirectSpec, InputError> {
        let given = self.written.nic_link.as_ref();
        let nic = match given {
            Some(given) => self.cable(given, "nic_link")?,
            None => {
                let rate = default.or(self.nic.map(|nic| nic.rate.value));
                CableSpec::new(self.need(rate, "nic_link", "nic_link: {rate: 400 Gbps, length: 3 m}")?)
            }
        };
        if given.is_some() {
            self.check_nic(nic.rate, "nic_link.rate")?;
        }
        Ok(DirectSpec {
            host: self.host,
            hosts_per_router: self.written.hosts_per_router.unwrap_or(1),
            nic,
            router_latency: self.switch_latency(),
            propagation_ps_per_m: self.propagation(),
        })
    }

    fn dimensions(&self, wrap: Option<bool>) -> Result<Vec<Dimension>, InputError> {
        let dimension = |(index, dimension): (usize, &MeshDimension)| {
            let at = format!("dimensions[{index}]");
            if wrap.is_none() && dimension.wrap.is_some() {
                let message = "`wrap` means nothing in shape `full-mesh`, it belongs to `torus` and `mesh`";
                return Err(InputError::new(self.place.at(&format!("{at}.wrap")), message));
            }
            let MeshDimension { rate, length, loss, .. } = *dimension;
            Ok(Dimension {
                size: dimension.size,
                wrap: dimension.wrap.or(wrap).unwrap_or(false),
                links: dimension.links,
                cable: self.cable(&CableKind { rate, length, loss }, &at)?,
            })
        };
        if self.written.dimensions.is_empty() {
            return Err(self
                .place
                .missing("dimensions", "dimensions: [{size: 8, rate: 400 Gbps, length: 2 m}]"));
        }
        self.written.dimensions.iter().enumerate().map(dimension).collect()
    }

    fn torus(&self) -> Result<TorusSpec, InputError> {
        let routing = self.routing(TorusRouting::NAMED)?;
        let dimensions = self.dimensions(Some(self.shape == ShapeName::Torus))?;
        Ok(TorusSpec { direct: self.direct(None)?, dimensions, routing })
    }

    fn full_mesh(&self) -> Result<FullMeshSpec, InputError> {
        let routing = self.routing(MeshRouting::NAMED)?;
        Ok(FullMeshSpec { dimensions: self.dimensions(None)?, direct: self.direct(None)?, routing })
    }

    fn dragonfly_routing(&self) -> Result<DragonflyRouting, InputError> {
        self.routing(DragonflyRouting::NAMED)
    }

    fn dragonfly(&self) -> Result<DragonflySpec, InputError> {
        let written = self.written;
        Ok(DragonflySpec {
            groups: self.need(written.groups, "groups", "groups: 9")?,
            routers: self.need(written.routers, "routers", "routers: 4")?,
            global_links: self.need(written.global_links, "global_links", "global_links: 2")?,
            local: self.cable_of(written.local.as_ref(), "local")?,
            global: self.cable_of(written.global.as_ref(), "global")?,
            routing: self.dragonfly_routing()?,
            direct: self.direct(None)?,
        })
    }

    fn dragonfly_plus(&self) -> Result<DragonflyPlusSpec, InputError> {
        let written = self.written;
        Ok(DragonflyPlusSpec {
            groups: self.need(written.groups, "groups", "groups: 9")?,
            leaves: self.need(written.leaves, "leaves", "leaves: 4")?,
            spines: self.need(written.spines, "spines", "spines: 4")?,
            global_links: self.need(written.global_links, "global_links", "global_links: 2")?,
            local: self.cable_of(written.local.as_ref(), "local")?,
            global: self.cable_of(written.global.as_ref(), "global")?,
            routing: self.dragonfly_routing()?,
            direct: self.direct(None)?,
        })
    }

    fn bcube(&self) -> Result<BCubeSpec, InputError> {
        let written = self.written;
        let ports = self.need(written.ports, "ports", "ports: 4")?;
        let levels = self.need(written.levels, "levels", "levels: 2")?;
        let cable = self.cable_of(written.link.as_ref(), "link")?;
        let all_ports = BitRate::from_bps(cable.rate.bps().saturating_mul(u64::from(levels)));
        let direct = self.direct(Some(all_ports))?;
        Ok(BCubeSpec { direct, ports, levels, cable, switch_latency: self.switch_latency() })
    }

    fn hamming_mesh(&self) -> Result<HammingMeshSpec, InputError> {
        let written = self.written;
        let board = self.need(written.board, "board", "board: [2, 2]")?;
        let boards = self.need(written.boards, "boards", "boards: [4, 4]")?;
        let board_cable = self.cable_of(written.board_link.as_ref(), "board_link")?;
        let switch_cable = self.cable_of(written.switch_link.as_ref(), "switch_link")?;
        // An accelerator has four ports.
        let direct = self.direct(Some(BitRate::from_bps(board_cable.rate.bps().saturating_mul(4))))?;
        let switch_latency = self.switch_latency();
        Ok(HammingMeshSpec { direct, board, boards, board_cable, switch_cable, switch_latency })
    }

    fn regions(&self) -> Result<RegionsSpec, InputError> {
        let written = self.written;
        if written.buildings.is_empty() {
            let example = "buildings: [{name: a, hosts: 16, tiers: [{ports_down: 16, rate: 400 Gbps}]}]";
            return Err(self.place.missing("buildings", example));
        }
        let mut regions: Vec<&str> = Vec::new();
        let mut buildings = Vec::with_capacity(written.buildings.len());
        for (index, building) in written.buildings.iter().enumerate() {
            let at = format!("buildings[{index}].tiers");
            let Some(first) = building.tiers.first() else {
                return Err(self.place.missing(&at, "tiers: [{ports_down: 16, rate: 400 Gbps}]"));
            };
            self.check_nic(first.rate.0, &format!("{at}[0].rate"))?;
            let name = building.region.as_deref().unwrap_or_default();
            let region = regions.iter().position(|known| *known == name).unwrap_or_else(|| {
                regions.push(name);
                regions.len() - 1
            });
            buildings.push(BuildingSpec {
                name: building.name.clone(),
                region: region as u32,
                hosts: building.hosts,
                tiers: building.tiers.iter().map(|tier| self.tier(tier)).collect(),
                scale_up: None,
            });
        }
        let mut cross = Vec::with_capacity(written.cross.len());
        for (index, links) in written.cross.iter().enumerate() {
            let at = format!("cross[{index}]");
            let number = |end: usize| {
                let (name, mut names) =
                    (&links.between[end], written.buildings.iter().map(|known| &known.name));
                names.position(|known| known == name).map(|number| number as u32).ok_or_else(|| {
                    let message = format!("no building `{name}`");
                    let error = InputError::new(self.place.at(&format!("{at}.between[{end}]")), message);
                    let known = written.buildings.iter().map(|building| building.name.as_str());
                    match nearest(name, known.clone()) {
                        Some(near) => error.hint(format!("did you mean `{near}`?")),
                        None => error.hint(format!("there are {}", list(known, "and"))),
                    }
                })
            };
            let kind = CableKind { rate: links.rate, length: links.length, loss: links.loss };
            cross.push(CrossSpec {
                between: [number(0)?, number(1)?],
                count: links.count,
                cable: self.cable(&kind, &at)?,
            });
        }
        Ok(RegionsSpec { host: self.host, buildings, cross, propagation_ps_per_m: self.propagation() })
    }

    /// A cable that must be given.
    fn cable_of(&self, given: Option<&CableKind>, key: &str) -> Result<CableSpec, InputError> {
        let given = given
            .ok_or_else(|| self.place.missing(key, &format!("{key}: {{rate: 400 Gbps, length: 10 m}}")))?;
        self.cable(given, key)
    }

    fn cable(&self, given: &CableKind, key: &str) -> Result<CableSpec, InputError> {
        if !(0.0..1.0).contains(&given.loss) {
            let message = format!("expected a share of packets from 0 to below 1, found {}", given.loss);
            return Err(InputError::new(self.place.at(&format!("{key}.loss")), message));
        }
        Ok(CableSpec { rate: given.rate.0, length_mm: given.length.0, loss: given.loss })
    }

    /// The routing, one of those of the shape; the first if none is given.
    fn routing<R: Copy>(&self, known: &[(Routing, R)]) -> Result<R, InputError> {
        let Some(Name(given)) = self.written.routing else { return Ok(known[0].1) };
        known.iter().find(|(name, _)| *name == given).map(|(_, routing)| *routing).ok_or_else(|| {
            let names = list(known.iter().map(|(name, _)| name.name()), "and");
            let message = format!("`{}` is no routing of shape `{}`", given.name(), self.shape.name());
            InputError::new(self.place.at("routing"), message).hint(format!("it has {names}"))
        })
    }

    /// Links of NICs are not faster than their data sheet.
    fn check_nic(&self, rate: BitRate, key: &str) -> Result<(), InputError> {
        let Some(nic) = self.nic.filter(|nic| rate.bps() > nic.rate.value.bps()) else { return Ok(()) };
        let gbps = |rate: BitRate| rate.bps() / 1_000_000_000;
        let (given, most) = (gbps(rate), gbps(nic.rate.value));
        let message = format!("the host links run at {given} Gbps, but a {} has {most} Gbps", nic.name);
        Err(InputError::new(self.place.at(key), message).hint("lower the rate, or name another `host.nic`"))
    }
}
