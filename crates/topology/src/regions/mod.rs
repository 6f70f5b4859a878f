//! Regions: buildings, each with a Clos network of its own, joined by cables between their top switches.
//!
//! The hosts, NICs, switches and links of a building are numbered as in its Clos, after those of the buildings before it;
//! the links between buildings come last. Cable i of the `count` between two buildings of n and m top switches joins
//! their top switches i mod n and i mod m. A top switch has its ports down, then for every building that its own has
//! cables to, in the order of the entries, ceil(`count` / n) ports: cable i is on port i / n of these. Where n does not
//! divide the count, the last of them has no cable on some top switches: the gap is in the ports alone.
//!
//! Legal paths. Within a building: up, then down. To another building: up to a top switch, over cables between
//! buildings by as few buildings as possible, down. So between buildings that have cables only those are used; others
//! are joined *by transit* through top switches, never below them. Of several ways over equally few buildings all are
//! legal. That a packet never climbs in vain, only those uplinks are used that lead to a top switch with a cable that
//! leads on: with fewer cables than top switches, the first `count` of them.
//!
//! Invariants, checked at set-up: every building reaches every other; wherever a cable arrives at a top switch, there is
//! a cable that leads on to every building that transit by it is the shortest way to.
//!
//! Memory: the buildings, the entries, and three words for every pair of buildings.
//!
//! Source: Li et al., "ScaleAcross Explorer: exploring communication optimization for scale-across AI model training"
//! (2026), §2 and table 3: buildings of RTSW, CTSW and ATSW tiers.

mod pairs;
mod rule;
mod summary;
mod survive;

use windtunnel_kernel::Span;

use crate::clos::Clos;
use crate::direct::{LONGEST_PS, cable_at};
use crate::error::TopologyError;
use crate::hosts::Hosts;
use crate::shape::{Cable, Shape};
use crate::spec::{BuildingSpec, ClosSpec, CrossSpec, RegionsSpec};
use pairs::BuildingPairs;

/// Buildings there may be: their pairs have tables.
const MOST_BUILDINGS: u64 = 1 << 10;

/// The cables of an entry, as one of its buildings sees them.
#[derive(Clone, Debug)]
struct Exit {
    /// The other building.
    to: u32,
    /// Number of the entry.
    entry: u32,
    /// 0 if the building is the first of the entry's two, 1 if the second.
    side: u32,
    /// First port on every top switch.
    first_port: u32,
}

/// A building and what comes before it.
#[derive(Clone, Debug)]
struct Building {
    clos: Clos,
    name: String,
    region: u32,
    /// Within its region.
    number: u32,
    hosts: u32,
    first_host: u32,
    first_link: u32,
    /// Where its share of the tally begins.
    tally: usize,
    /// First top switch, counted in the building, and how many.
    tops: (u32, u32),
    exits: Vec<Exit>,
    /// Ports of a top switch.
    top_ports: u32,
}

/// The cables between two buildings.
#[derive(Clone, Debug)]
struct Entry {
    between: [u32; 2],
    /// In the lists of the two buildings.
    exits: [u32; 2],
    count: u32,
    cable: Cable,
    /// First link; those of the second building come `count` later.
    first_link: u32,
}

/// See the module page.
#[derive(Clone, Debug)]
pub(crate) struct Regions {
    buildings: Vec<Building>,
    /// First switches and first NICs of the buildings, ascending.
    first_switches: Vec<u32>,
    first_nics: Vec<u32>,
    entries: Vec<Entry>,
    /// First link between buildings.
    first_cross: u32,
    links: u32,
    switches: u32,
    pairs: BuildingPairs,
}

impl Regions {
    /// All hosts.
    pub(crate) fn hosts(spec: &RegionsSpec) -> Result<Hosts, TopologyError> {
        if spec.buildings.is_empty() {
            return Err(TopologyError::Zero { path: "buildings".to_owned() });
        }
        let found = spec.buildings.len() as u64;
        if found >= MOST_BUILDINGS {
            return Err(TopologyError::TooLarge { what: "buildings", limit: MOST_BUILDINGS, found });
        }
        for (index, building) in spec.buildings.iter().enumerate() {
            if building.hosts == 0 {
                return Err(TopologyError::Zero { path: format!("buildings[{index}].hosts") });
            }
        }
        let count = spec.buildings.iter().map(|building| u64::from(building.hosts)).sum();
        let too_large = |_| TopologyError::TooLarge { what: "endpoints", limit: 1 << 31, found: count };
        let hosts = Hosts::new(u32::try_from(count).map_err(too_large)?, &spec.host)?;
        if spec.buildings.iter().all(|building| building.scale_up.is_none()) {
            return Ok(hosts);
        }
        let zero = |building: &BuildingSpec| building.scale_up.is_some_and(|(rate, _)| rate.bps() == 0);
        if let Some(index) = spec.buildings.iter().position(zero) {
            return Err(TopologyError::Zero { path: format!("buildings[{index}].host.scale_up.rate") });
        }
        let common = (spec.host.scale_up.rate, spec.host.scale_up.latency);
        Ok(hosts.with_scale_ups(spec.buildings.iter().map(|building| {
            let (rate, latency) = building.scale_up.unwrap_or(common);
            (building.hosts, rate, latency)
        })))
    }

    /// The rules of `spec`, whose hosts [`Self::hosts`] has given.
    pub(crate) fn new(spec: &RegionsSpec, hosts: &Hosts) -> Result<Self, TopologyError> {
        let too_large = |what, found| TopologyError::TooLarge { what, limit: 1 << 32, found };
        let mut buildings: Vec<Building> = Vec::with_capacity(spec.buildings.len());
        let (mut first_switches, mut first_nics) = (Vec::new(), Vec::new());
        let (mut switches, mut links, mut first_host, mut tally) = (0u64, 0u64, 0, 0);
        for (index, building) in spec.buildings.iter().enumerate() {
            let name = building.name.clone();
            if let Some(other) = spec.buildings[..index].iter().position(|other| other.name == name) {
                return Err(TopologyError::BuildingName { index, other, name });
            }
            let clos = ClosSpec {
                hosts: building.hosts,
                host: spec.host,
                tiers: building.tiers.clone(),
                planes: 1,
                propagation_ps_per_m: spec.propagation_ps_per_m,
            };
            let within =
                |error| TopologyError::Building { index, name: name.clone(), error: Box::new(error) };
            let inside = Hosts::new(building.hosts, &spec.host)?;
            let clos = Clos::new(&clos, &inside).map_err(within)?;
            first_switches.push(u32::try_from(switches).map_err(|_| too_large("switches", switches))?);
            first_nics.push(first_host * hosts.nics);
            let (region, tops) = (building.region, clos.tops());
            let number = buildings.iter().filter(|other| other.region == region).count() as u32;
            let first_link = u32::try_from(links).map_err(|_| too_large("links", links))?;
            (switches, links) =
                (switches + u64::from(clos.switches()), links + u64::from(clos.fabric_links()));
            let (tally_here, top_ports) = (tally, clos.top_ports());
            tally += 1 + clos.tally_len();
            buildings.push(Building {
                clos,
                name,
                region,
                number,
                hosts: building.hosts,
                first_host,
                first_link,
                tally: tally_here,
                tops,
                exits: Vec::new(),
                top_ports,
            });
            // Fits: the hosts of all buildings do.
            first_host += building.hosts;
        }
        let switches = u32::try_from(switches).map_err(|_| too_large("switches", switches))?;
        let first_cross = u32::try_from(links).map_err(|_| too_large("links", links))?;
        let mut entries: Vec<Entry> = Vec::with_capacity(spec.cross.len());
        for (index, cross) in spec.cross.iter().enumerate() {
            check_entry(spec, index)?;
            let first_link = u32::try_from(links).map_err(|_| too_large("links", links))?;
            let exits = [0, 1].map(|side| {
                let [at, to] = [side, 1 - side].map(|side| cross.between[side]);
                let building = &mut buildings[at as usize];
                let first_port = building.top_ports;
                building.top_ports = first_port.saturating_add(cross.count.div_ceil(building.tops.1));
                building.exits.push(Exit { to, entry: index as u32, side: side as u32, first_port });
                building.exits.len() as u32 - 1
            });
            links += 2 * u64::from(cross.count);
            let cable = cable_at(&cross.cable, spec.propagation_ps_per_m, &format!("cross[{index}].cable"))?;
            entries.push(Entry { between: cross.between, exits, count: cross.count, cable, first_link });
        }
        let links = u32::try_from(links).map_err(|_| too_large("links", links))?;
        let pairs = BuildingPairs::new(&buildings, &entries)?;
        let regions =
            Self { buildings, first_switches, first_nics, entries, first_cross, links, switches, pairs };
        regions.check_latency()?;
        Ok(regions)
    }

    /// No path may be longer than time.
    fn check_latency(&self) -> Result<(), TopologyError> {
        let inside = |building: &Building| {
            let (climb, descent) = building.clos.climb_and_descent(building.clos.tiers() - 1);
            u128::from(climb.ps().max(descent.ps()))
        };
        let slowest = self.buildings.iter().map(inside).max().unwrap_or(0);
        let mut total = 2 * slowest;
        for (index, entry) in self.entries.iter().enumerate() {
            // A path passes an entry at most once.
            let delay = entry.between.map(|at| self.top_delay(at)).into_iter().max().unwrap_or_default();
            total += u128::from(entry.cable.propagation.ps()) + u128::from(delay.ps());
            if total >= LONGEST_PS {
                return Err(TopologyError::LongPaths {
                    path: format!("cross[{index}].cable"),
                    length_mm: entry.cable.length_mm,
                    hop: Span::from_ps(entry.cable.propagation.ps().saturating_add(delay.ps())),
                });
            }
        }
        Ok(())
    }

    /// Pipeline delay of the top switches of a building.
    fn top_delay(&self, building: u32) -> Span {
        let building = &self.buildings[building as usize];
        building.clos.delay(building.tops.0)
    }

    /// The building of a switch, and the switch's number in it.
    #[inline]
    fn building(&self, switch: u32) -> (usize, u32) {
        let building = self.first_switches.partition_point(|&first| first <= switch) - 1;
        (building, switch - self.first_switches[building])
    }

    /// A top switch by its number among them, from its number in the building.
    #[inline]
    fn top(&self, building: usize, local: u32) -> Option<u32> {
        local.checked_sub(self.buildings[building].tops.0)
    }

    /// Cables of an entry on a top switch of one of its buildings: numbers `top`, `top` + n, …
    #[inline]
    fn cables_at(&self, building: usize, exit: &Exit, top: u32) -> u32 {
        let tops = self.buildings[building].tops.1;
        (self.entries[exit.entry as usize].count + tops - 1 - top) / tops
    }

    /// What a port of a top switch beyond its ports down leads over.
    fn crossing(&self, building: usize, top: u32, port: u32) -> Option<Crossing<'_>> {
        let own = &self.buildings[building];
        let place = own.exits.partition_point(|exit| exit.first_port <= port).checked_sub(1)?;
        let exit = &own.exits[place];
        let entry = &self.entries[exit.entry as usize];
        let cable = u64::from(top) + u64::from(own.tops.1) * u64::from(port - exit.first_port);
        let cable = u32::try_from(cable).ok().filter(|&cable| cable < entry.count)?;
        Some(Crossing { exit, entry, cable })
    }

    /// The switch and port at the far end.
    fn landing(&self, crossing: &Crossing) -> Landing {
        let side = 1 - crossing.exit.side as usize;
        let building = crossing.exit.to as usize;
        let far = &self.buildings[building];
        let back = &far.exits[crossing.entry.exits[side] as usize];
        let tops = far.tops.1;
        Landing { building, top: crossing.cable % tops, port: back.first_port + crossing.cable / tops }
    }
}

/// A cable between buildings, from one of them.
struct Crossing<'a> {
    exit: &'a Exit,
    entry: &'a Entry,
    /// Its number in the entry.
    cable: u32,
}

/// Where it leads.
struct Landing {
    building: usize,
    top: u32,
    port: u32,
}

fn check_entry(spec: &RegionsSpec, index: usize) -> Result<(), TopologyError> {
    let CrossSpec { between, count, .. } = spec.cross[index];
    let buildings = spec.buildings.len();
    if between[0] == between[1] || between.iter().any(|&building| building as usize >= buildings) {
        return Err(TopologyError::CrossBetween { index, between, buildings });
    }
    let same = |other: &CrossSpec| other.between == between || other.between == [between[1], between[0]];
    if let Some(other) = spec.cross[..index].iter().position(same) {
        return Err(TopologyError::CrossTwice { index, other });
    }
    if count == 0 {
        return Err(TopologyError::Zero { path: format!("cross[{index}].count") });
    }
    Ok(())
}
