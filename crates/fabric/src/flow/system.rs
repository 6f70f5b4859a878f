//! The flows alive, the links they cross, and when the next of them ends.
//!
//! **Life cycle.** [`FlowSystem::start`] puts a flow on its links; [`FlowSystem::next_departure`] settles the rates and
//! tells when the next flows end; [`FlowSystem::depart`] takes them out. Changes at one instant are settled together.
//!
//! **Variables.** A flow of weight w on links l with multiplicities m has rate `w · level` and loads l with
//! `m · w · level`. Loads `m · w` are fixed-point integers and rates on a link are integers in units of 2^-60 of its
//! capacity, so every sum is exact and does not depend on its order: a solution is a function of flows and links alone.
//!
//! **Groups.** A flow belongs to the link that holds it back. All flows of a group have the same level, so one number,
//! the group's service S (dS/dt = level), stands for the progress of them all: a flow that joins at service S with
//! volume v left ends when the service reaches S + v/w, its tag (virtual time of fair queueing: Demers, Keshav, Shenker,
//! SIGCOMM '89; Parekh, Gallager, 1993). A flow is touched when its group changes, not when its rate does. The service is
//! brought up to date only when the level changes its value, so it knows nothing of solves that changed nothing.
//!
//! **Units.** Time is in ticks, capacity in any unit, volume in that unit × ticks.
//!
//! **Failure.** Capacities are checked by [`FlowSystem::new`]; everything else is the caller's duty and asserted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use windtunnel_kernel::Time;

use super::heap::{DepartureHeap, Positions, Tag, TagHeap};
use super::instant::Instant;
use super::observe::LinkMeter;

/// No group yet.
pub(super) const NONE: u32 = u32::MAX;
/// Fixed-point unit of a load (multiplicity × weight): a link takes loads up to 2^22, at a resolution of 2^-40.
pub const LOAD_BITS: u32 = 40;
/// Tags are rebased when the service stands for more ticks than this, so that it keeps 2^-13 of a tick.
const REBASE_TICKS: f64 = (1u64 << 39) as f64;

/// 2^-900: capacities from this to its inverse leave room for every product.
const SMALLEST_CAPACITY: f64 = f64::from_bits(123 << 52);

/// A capacity that is not positive and finite, or absurdly small or large.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("link {link} has capacity {capacity}, expected a number from 2^-900 to 2^900")]
pub struct CapacityError {
    /// Which link.
    pub link: u32,
    /// What it was given.
    pub capacity: f64,
}

/// A flow alive. Ids are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// A flow's stay on one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incidence {
    pub(super) link: u32,
    /// Position in the link's list.
    pub(super) slot: u32,
    /// Multiplicity × weight, fixed-point.
    pub(super) load: i64,
}

/// An item of a link's list: a flow and which of its incidences this is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub(super) flow: u32,
    pub(super) incidence: u32,
}

/// What a solve needs of a flow: two to a cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Rate per weight, 0 before the first solve.
    pub(super) level: f64,
    /// Which solve touched it last: 2 × epoch while open, + 1 once frozen.
    pub(super) mark: u64,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) group: u32,
    pub(super) position: u32,
}

/// What is rarely needed of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Particulars {
    /// Volume per weight, until the flow joins its first group.
    pub(super) volume: f64,
    token: u64,
    /// While open: the one of the links it has to itself that may hold it back.
    pub(super) own: u32,
}

impl Flow {
    pub(super) fn incidences(&self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

impl Positions for Vec<Flow> {
    #[inline]
    fn moved(&mut self, flow: u32, position: u32) {
        self[flow as usize].position = position;
    }
}

/// One cache line for its flows, one for its group, one for the solve at hand.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Link {
    /// Capacity in rate units of this link, in [2^60, 2^61).
    pub(super) capacity: i64,
    /// Rate units per (level × fixed-point load): a power of two.
    pub(super) unit: f64,
    /// Sum of the rates of its flows, in rate units.
    pub(super) rate: i64,
    /// Sum of the loads of its flows.
    pub(super) load: i64,
    /// Its flows, in no order.
    pub(super) visits: Vec<Visit>,
    pub(super) group: Group,
    pub(super) scratch: Scratch,
}

impl Link {
    /// Rate units of `load` at `level`.
    #[inline]
    pub(super) fn rate_of(&self, load: i64, level: f64) -> i64 {
        (load as f64 * level * self.unit) as i64
    }

    /// The level at which `load` takes `left` rate units.
    #[inline]
    pub(super) fn level_of(&self, left: i64, load: i64) -> f64 {
        left as f64 / (load as f64 * self.unit)
    }
}

/// The flows held back by a link.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub(super) struct Group {
    pub(super) level: f64,
    /// Service at `since`.
    pub(super) service: f64,
    pub(super) since: Instant,
    pub(super) tags: TagHeap,
}

impl Group {
    #[inline]
    pub(super) fn service_at(&self, now: Instant) -> f64 {
        self.service + self.level * now.since(self.since)
    }

    /// When the first of its flows ends.
    #[inline]
    fn departure(&self, first: Tag) -> Instant {
        self.since.snapped_after(((first.service - self.service) / self.level).max(0.0))
    }
}

/// A link's part in the solve of one epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Scratch {
    pub(super) epoch: u64,
    /// Rates of the flows that are not open.
    pub(super) rate: i64,
    /// Loads of the open flows.
    pub(super) load: i64,
    /// Its entry in the heap of links.
    pub(super) key: f64,
    /// Service of its group now.
    pub(super) service: f64,
    /// New level of its group.
    pub(super) level: f64,
    /// No closed flow on it has a higher level.
    pub(super) closed_level: f64,
    /// How many of its visits were opened.
    pub(super) opened: u32,
    /// Whether its key has to be told to the heap.
    pub(super) changed: bool,
}

/// Flows that share links by weighted max-min fairness. See the module page.
#[derive(Clone, Debug)]
pub struct FlowSystem {
    pub(super) now: Instant,
    pub(super) load_unit: f64,
    pub(super) flows: Vec<Flow>,
    pub(super) particulars: Vec<Particulars>,
    free: Vec<u32>,
    pub(super) incidences: Vec<Incidence>,
    /// Free blocks of incidences by the logarithm of their length.
    blocks: Vec<Vec<u32>>,
    pub(super) links: Vec<Link>,
    pub(super) departures: DepartureHeap,
    /// Flows started since the last solve.
    pub(super) fresh: Vec<u32>,
    /// Links whose group lost load since the last solve.
    pub(super) loosened: Vec<u32>,
    pub(super) epoch: u64,
    pub(super) region: Vec<u32>,
    pub(super) open_flows: usize,
    pub(super) to_open: Vec<u32>,
    pub(super) changed: Vec<u32>,
    pub(super) cluster: Vec<(u32, f64)>,
    pub(super) keys: BinaryHeap<Reverse<(u64, u32)>>,
    pub(super) meter: Option<LinkMeter>,
    solves: u64,
}

/// What [`FlowSystem::depart`] took out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batch {
    /// When, exactly.
    pub at: Instant,
    /// When, rounded up to a tick.
    pub notice: Time,
}

impl FlowSystem {
    /// A system of links without flows.
    ///
    /// # Errors
    /// [`CapacityError`] for a capacity that is not positive and finite.
    pub fn new(capacities: &[f64]) -> Result<Self, CapacityError> {
        Self::with_load_bits(capacities, LOAD_BITS)
    }

    /// A system whose loads are kept in units of 2^-`bits`; the loads of a link must sum to less than 2^(62 - `bits`).
    ///
    /// # Errors
    /// [`CapacityError`] for a capacity that is not positive and finite.
    pub fn with_load_bits(capacities: &[f64], bits: u32) -> Result<Self, CapacityError> {
        assert!(bits <= 60, "a load of one does not fit: 2^{bits}");
        let load_unit = (1u64 << bits) as f64;
        let link = |(link, &capacity): (usize, &f64)| {
            if !(SMALLEST_CAPACITY..=1.0 / SMALLEST_CAPACITY).contains(&capacity) {
                return Err(CapacityError { link: link as u32, capacity });
            }
            let (capacity, unit) = scaled(capacity, load_unit);
            Ok(Link {
                capacity,
                unit,
                rate: 0,
                load: 0,
                visits: Vec::new(),
                group: Group::default(),
                scratch: Scratch::default(),
            })
        };
        let links: Vec<Link> = capacities.iter().enumerate().map(link).collect::<Result<_, _>>()?;
        let n = links.len();
        Ok(Self {
            now: Instant::ZERO,
            load_unit,
            flows: Vec::new(),
            particulars: Vec::new(),
            free: Vec::new(),
            incidences: Vec::new(),
            blocks: vec![Vec::new(); 32],
            links,
            departures: DepartureHeap::new(n),
            fresh: Vec::new(),
            loosened: Vec::new(),
            epoch: 0,
            region: Vec::new(),
            open_flows: 0,
            to_open: Vec::new(),
            changed: Vec::new(),
            cluster: Vec::new(),
            keys: BinaryHeap::new(),
            meter: None,
            solves: 0,
        })
    }

    /// Keeps what each link carries from now on.
    pub fn observe_links(&mut self) {
        self.meter = Some(LinkMeter::new(self.links.len(), self.now));
    }

    /// What the links carried until now, if observed.
    pub fn meter(&mut self) -> Option<&LinkMeter> {
        self.settle();
        if let Some(meter) = &mut self.meter {
            for (link, state) in self.links.iter().enumerate() {
                meter.credit(link, state.rate as f64 / (state.unit * self.load_unit), self.now);
            }
        }
        self.meter.as_ref()
    }

    /// The clock.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Flows alive.
    pub fn live(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    /// Solves so far.
    pub fn solves(&self) -> u64 {
        self.solves
    }

    /// Rate per weight of a flow alive.
    pub fn level(&mut self, flow: FlowId) -> f64 {
        self.settle();
        self.flows[flow.0 as usize].level
    }

    /// The link that holds a flow back.
    pub fn bottleneck(&mut self, flow: FlowId) -> u32 {
        self.settle();
        self.flows[flow.0 as usize].group
    }

    /// Starts a flow of `volume` at `at` (at most the next departure; an instant before the clock counts as now) over
    /// `path`, pairs of link and multiplicity, which must not be empty; a link named twice counts twice. `token` comes
    /// back when the flow ends.
    ///
    /// # Panics
    /// If a link does not exist or its loads no longer fit.
    pub fn start<P>(&mut self, at: Instant, volume: f64, weight: f64, path: P, token: u64) -> FlowId
    where
        P: ExactSizeIterator<Item = (u32, f64)>,
    {
        let count = path.len();
        debug_assert!(count > 0 && volume >= 0.0 && weight > 0.0, "a flow of {volume} at weight {weight}");
        self.advance(at);
        let state = Flow { level: 0.0, mark: 0, first: 0, count: 0, group: NONE, position: 0 };
        let particulars = Particulars { volume: volume / weight, token, own: NONE };
        let flow = self.free.pop().unwrap_or_else(|| {
            self.flows.push(state);
            self.particulars.push(particulars);
            self.flows.len() as u32 - 1
        });
        let first = self.block(count);
        for (incidence, (link, multiplicity)) in (first..).zip(path) {
            let load = ((multiplicity * weight * self.load_unit + 0.5) as i64).max(1);
            let state = &mut self.links[link as usize];
            state.load = state.load.checked_add(load).expect("the loads of a link sum to less than 2^22");
            let slot = state.visits.len() as u32;
            state.visits.push(Visit { flow, incidence });
            self.incidences[incidence as usize] = Incidence { link, slot, load };
        }
        self.flows[flow as usize] = Flow { first, count: count as u32, ..state };
        self.particulars[flow as usize] = particulars;
        self.fresh.push(flow);
        FlowId(flow)
    }

    /// Moves the clock to `at`, which must not be past the next departure.
    pub fn advance(&mut self, at: Instant) {
        if at > self.now {
            self.settle();
            self.now = at;
        }
    }

    /// The next departure, settling what has changed.
    pub fn next_departure(&mut self) -> Option<Batch> {
        self.settle();
        let (at, _) = self.departures.first()?;
        if at == Instant::NEVER {
            return None;
        }
        // A start may have moved the clock beyond by less than the grid.
        let at = if at < self.now { self.now } else { at };
        Some(Batch { at, notice: at.notice() })
    }

    /// Takes out the flows that end next, if their notice is at most `limit`: their tokens are appended to `ended`.
    pub fn depart(&mut self, limit: Time, ended: &mut Vec<u64>) -> Option<Batch> {
        let batch = self.next_departure().filter(|batch| batch.notice <= limit)?;
        self.take_out(batch, ended);
        Some(batch)
    }

    /// The same, if their exact instant is at most `limit`.
    pub fn depart_until(&mut self, limit: Instant, ended: &mut Vec<u64>) -> Option<Batch> {
        let batch = self.next_departure().filter(|batch| batch.at <= limit)?;
        self.take_out(batch, ended);
        Some(batch)
    }

    /// Takes out all that ends at the instant of `batch`.
    fn take_out(&mut self, batch: Batch, ended: &mut Vec<u64>) {
        self.now = batch.at;
        while let Some((_, link)) = self.departures.first().filter(|&(at, _)| at <= batch.at) {
            self.departures.remove(link);
            loop {
                let group = &mut self.links[link as usize].group;
                let Some(first) = group.tags.first() else {
                    (group.level, group.service) = (0.0, 0.0);
                    break;
                };
                if group.departure(first) > batch.at {
                    self.loosened.push(link);
                    break;
                }
                group.tags.remove(0, &mut self.flows);
                ended.push(self.particulars[first.flow as usize].token);
                self.remove(first.flow);
            }
        }
    }

    /// Takes all flows out at `at`, which must not be past the next departure: the tokens, and the volumes per weight that are
    /// left, in the order of the links that held them back.
    pub fn withdraw(&mut self, at: Instant) -> Vec<(u64, f64)> {
        self.advance(at);
        self.settle();
        let mut left = Vec::with_capacity(self.live());
        for link in 0..self.links.len() as u32 {
            let group = &self.links[link as usize].group;
            if group.tags.is_empty() {
                continue;
            }
            let service = group.service_at(self.now);
            while let Some(first) = self.links[link as usize].group.tags.first() {
                self.links[link as usize].group.tags.remove(0, &mut self.flows);
                let volume = (first.service - service).max(0.0);
                left.push((self.particulars[first.flow as usize].token, volume));
                self.remove(first.flow);
            }
            self.departures.remove(link);
            let group = &mut self.links[link as usize].group;
            (group.level, group.service) = (0.0, 0.0);
        }
        self.loosened.clear();
        left
    }

    /// Gives a link another capacity while no flow crosses it.
    ///
    /// # Panics
    /// If a flow does, or the capacity is not positive and finite.
    pub fn set_capacity(&mut self, link: u32, capacity: f64) {
        assert!(
            (SMALLEST_CAPACITY..=1.0 / SMALLEST_CAPACITY).contains(&capacity),
            "a capacity of {capacity}"
        );
        self.credit(link);
        let state = &mut self.links[link as usize];
        assert!(state.visits.is_empty(), "link {link} carries {} flows", state.visits.len());
        (state.capacity, state.unit) = scaled(capacity, self.load_unit);
    }

    /// Takes a flow that has left its group off its links.
    fn remove(&mut self, flow: u32) {
        let Flow { level, first, count, group, .. } = self.flows[flow as usize];
        for incidence in first..first + count {
            let Incidence { link, slot, load } = self.incidences[incidence as usize];
            self.credit(link);
            let state = &mut self.links[link as usize];
            state.rate -= state.rate_of(load, level);
            state.load -= load;
            let list = &mut self.links[link as usize].visits;
            list.swap_remove(slot as usize);
            if let Some(moved) = list.get(slot as usize) {
                self.incidences[moved.incidence as usize].slot = slot;
            }
            if link != group && !self.links[link as usize].group.tags.is_empty() {
                self.loosened.push(link);
            }
        }
        self.blocks[class_of(count as usize)].push(first);
        self.free.push(flow);
    }

    /// A block of incidences for `len` links.
    fn block(&mut self, len: usize) -> u32 {
        let class = class_of(len);
        self.blocks[class].pop().unwrap_or_else(|| {
            let first = self.incidences.len();
            self.incidences.resize(first + (1 << class), Incidence { link: NONE, slot: 0, load: 0 });
            u32::try_from(first + (1 << class)).expect("fewer than 2^32 incidences");
            first as u32
        })
    }

    /// Books what `link` carried at its present rate; to be called before the rate changes.
    #[inline]
    pub(super) fn credit(&mut self, link: u32) {
        if let Some(meter) = &mut self.meter {
            let state = &self.links[link as usize];
            meter.credit(link as usize, state.rate as f64 / (state.unit * self.load_unit), self.now);
        }
    }

    /// Gives the group of `link` the level `level` from now on, at which its service is `service`, and books its next
    /// departure.
    #[inline]
    pub(super) fn commit_group(&mut self, link: u32, level: f64, service: f64) {
        let group = &mut self.links[link as usize].group;
        let Some(first) = group.tags.first() else {
            (group.level, group.service) = (0.0, 0.0);
            self.departures.remove(link);
            return;
        };
        if level != group.level {
            group.level = level;
            group.service = service;
            group.since = self.now;
            if service > level * REBASE_TICKS {
                group.tags.rebase(service);
                group.service = 0.0;
                let first = Tag { service: first.service - service, ..first };
                self.departures.set(link, group.departure(first));
                return;
            }
        }
        self.departures.set(link, group.departure(first));
    }

    pub(super) fn count_solve(&mut self) {
        self.solves += 1;
    }
}

/// A capacity in rate units of its link, and the rate units of (level × fixed-point load).
fn scaled(capacity: f64, load_unit: f64) -> (i64, f64) {
    let exponent = (capacity.to_bits() >> 52) as i64 - 1_023;
    let up = power_of_two(60 - exponent);
    ((capacity * up) as i64, up / load_unit)
}

/// Size class of a block: the logarithm of the next power of two.
fn class_of(len: usize) -> usize {
    len.next_power_of_two().trailing_zeros() as usize
}

/// 2^`exponent`, which must be that of a normal double.
pub(super) fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1_023) as u64) << 52)
}
