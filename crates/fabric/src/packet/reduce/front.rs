//! Reductions as the network in front of the engines sees them: trees, turns, members that still wait.

use std::sync::Arc;

use windtunnel_kernel::{Bytes, EndpointId, NicId, Span, Time};
use windtunnel_topology::Topology;

use super::super::engines::Engines;
use super::super::settings::PacketSettings;
use super::super::transport::Transport;
use super::{Prepared, RunSpec};
use crate::model::CoupledId;
use crate::reduction::{ReductionSettings, Tree, Turns};
use crate::reroute::{SharedRerouter, lock};

/// Set in the names of prepared reductions, apart from those of groups inside scale-up domains.
const REDUCTION: u32 = 1 << 31;

/// Set in the tokens of reductions.
const TOKEN: u64 = 1 << 62;

/// A prepared reduction.
#[derive(Clone, Debug)]
struct Group {
    /// Of members that no tree joins there is none, and their runs never end.
    prepared: Option<Arc<Prepared>>,
    ends: (EndpointId, EndpointId),
    members: u32,
    /// Slowest link of the tree, picoseconds a full packet.
    packet_time: Span,
}

/// A run from its start to its end.
#[derive(Clone, Copy, Debug)]
struct Running {
    group: u32,
    /// The host model's name.
    run: u32,
    bytes: Bytes,
    class: u8,
    start: Time,
    /// Members that wait.
    left: u32,
}

/// What has ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::packet) struct Ended {
    pub run: u32,
    pub from: EndpointId,
    pub to: EndpointId,
    pub members: u32,
    pub bytes: Bytes,
    pub class: u8,
    pub start: Time,
}

/// All of them.
#[derive(Debug, Default)]
pub(in crate::packet) struct Front {
    settings: ReductionSettings,
    mtu: Bytes,
    payload: u64,
    groups: Vec<Group>,
    runs: Vec<Running>,
    free: Vec<u32>,
    begun: u64,
    turns: Turns,
    next: Vec<u32>,
}

impl Front {
    pub(crate) fn new(settings: &PacketSettings) -> Self {
        let (settings, mtu, payload) = (settings.reduction, settings.mtu, settings.payload());
        Self { settings, mtu, payload, ..Self::default() }
    }

    /// Whether a group's name is a reduction's.
    pub(crate) const fn is_one(group: CoupledId) -> bool {
        group.0 & REDUCTION != 0
    }

    /// Whether a completion's token is a reduction's.
    pub(crate) const fn owns(token: u64) -> bool {
        token & TOKEN != 0
    }

    /// Whether none is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.runs.len() == self.free.len()
    }

    /// See [`crate::Fabric::prepare_reduction`].
    pub(crate) fn prepare(
        &mut self,
        topology: &Topology,
        rerouter: Option<&SharedRerouter>,
        seed: u64,
        members: &[EndpointId],
        entropy: u32,
    ) -> CoupledId {
        let tree = match rerouter {
            None => Tree::new(topology, None, seed, members, entropy),
            Some(rerouter) => {
                let mut forwarder = lock(rerouter).forwarder().clone();
                Tree::new(topology, Some(&mut forwarder), seed, members, entropy)
            }
        };
        let mut packet_time = Span::ZERO;
        let prepared = tree.map(|tree| {
            let planes = topology.planes();
            let numbered = (0u32..).zip(&tree.members);
            let mut ports: Vec<(u32, u32)> =
                numbered.map(|(number, member)| (member.nic * planes + tree.plane, number)).collect();
            ports.sort_unstable();
            let links = tree.links(topology);
            let slowest = links.iter().map(|&link| topology.link(link).rate.serialise(self.mtu)).max();
            packet_time = slowest.unwrap_or_default();
            let (up, switches) = tree.climb(topology);
            let round_trip = up
                + tree.descent(topology)
                + (self.settings.latency + packet_time * 2) * u64::from(switches)
                + packet_time * u64::from(self.settings.window());
            Arc::new(Prepared { tree: Arc::new(tree), ports, round_trip: round_trip.ps() })
        });
        debug_assert!(members.iter().all(|&member| topology.nic(member, NicId(0)) < topology.nics()));
        let ends = (members[0], members[members.len() - 1]);
        self.groups.push(Group { prepared, ends, members: members.len() as u32, packet_time });
        CoupledId(REDUCTION | (self.groups.len() as u32 - 1))
    }

    /// Time that a run takes on an idle fabric, at most.
    pub(crate) fn span(&self, group: CoupledId, bytes: Bytes) -> Span {
        let group = &self.groups[(group.0 & !REDUCTION) as usize];
        let trip = group.prepared.as_ref().map_or(0, |prepared| prepared.round_trip);
        group.packet_time * bytes.get().div_ceil(self.payload) + Span::from_ps(trip)
    }

    /// A run is to start at `at`; it waits for its turn.
    pub(crate) fn start<T: Transport>(
        &mut self,
        engines: &mut Engines<T>,
        at: Time,
        run: u32,
        group: CoupledId,
        bytes: Bytes,
        class: u8,
    ) {
        let group = group.0 & !REDUCTION;
        let left = self.groups[group as usize].members;
        let running = Running { group, run, bytes, class, start: at, left };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.runs[slot as usize] = running;
                slot
            }
            None => {
                self.runs.push(running);
                self.runs.len() as u32 - 1
            }
        };
        let Some(prepared) = &self.groups[group as usize].prepared else { return };
        if self.turns.enter(slot, &prepared.tree, self.settings.operations) {
            self.begin(engines, at, slot);
        }
    }

    fn begin<T: Transport>(&mut self, engines: &mut Engines<T>, at: Time, slot: u32) {
        let Running { group, bytes, class, .. } = self.runs[slot as usize];
        let Some(prepared) = &self.groups[group as usize].prepared else { return };
        let spec = RunSpec {
            slot,
            number: self.begun,
            prepared: Arc::clone(prepared),
            bytes,
            queue: engines.queue_of_class(class),
            token: TOKEN | u64::from(slot),
        };
        self.begun += 1;
        engines.begin_reduction(at, &spec);
    }

    /// A member has the whole sum at `at`; what has ended if it was the last.
    pub(crate) fn completed<T: Transport>(
        &mut self,
        engines: &mut Engines<T>,
        token: u64,
        at: Time,
    ) -> Option<Ended> {
        let slot = (token & !TOKEN) as u32;
        let running = &mut self.runs[slot as usize];
        running.left -= 1;
        if running.left > 0 {
            return None;
        }
        let Running { group, run, bytes, class, start, .. } = *running;
        engines.end_reduction(slot);
        self.free.push(slot);
        let Group { prepared, ends, members, .. } = &self.groups[group as usize];
        let ended = Ended { run, from: ends.0, to: ends.1, members: *members, bytes, class, start };
        let mut next = std::mem::take(&mut self.next);
        if let Some(prepared) = prepared {
            self.turns.leave(&prepared.tree, self.settings.operations, &mut next);
        }
        for slot in next.drain(..) {
            let at = at.max(self.runs[slot as usize].start);
            self.begin(engines, at, slot);
        }
        self.next = next;
        Some(ended)
    }
}
