//! Transfers: a message or a run of a group from its request to its arrival.

use std::cmp::Reverse;

use windtunnel_kernel::{Bytes, EndpointId, NicId, Span, Time};
use windtunnel_topology::{PathClass, Route};

use super::flow_network::{FlowNetwork, VOLUME_PER_BYTE};
use super::instant::Instant;
use super::settings::FlowSettings;
use crate::account::FlowRecord;
use crate::model::{Arrival, CoupledId};
use crate::reroute;

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject {
    /// Of those with a `line` other than 0 one queue pair sends one after the other.
    Message {
        message: u32,
        nic: NicId,
        entropy: u32,
        line: u16,
    },
    Coupled {
        run: u32,
        group: CoupledId,
    },
}

/// A message or a run of a group, from its request to its arrival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub subject: Subject,
    pub from: EndpointId,
    pub to: EndpointId,
    pub bytes: Bytes,
    pub start: Time,
    /// From the end of the flow to the arrival.
    pub latency: Span,
    pub class: u8,
    pub path: PathClass,
    pub hops: u16,
    /// The transfer that follows on the same queue pair, [`NONE`] if none waits.
    pub next: u32,
    /// Flows of it that have not ended; 1 but for exchanges.
    pub flows: u32,
}

impl Transfer {
    /// The queue pair it goes by, if messages are sent on it one after the other.
    pub(super) fn queue_pair(&self) -> Option<(u32, u32, u32, u16)> {
        match self.subject {
            Subject::Message { entropy, line: line @ 1.., .. } => {
                Some((self.from.0, self.to.0, entropy, line))
            }
            _ => None,
        }
    }
}

/// No transfer.
pub(super) const NONE: u32 = u32::MAX;

/// What the solver calls a flow: its transfer, and which of an exchange's flows it is.
fn token(slot: u32, part: usize) -> u64 {
    (part as u64) << 32 | u64::from(slot)
}

/// The transfer of a flow.
pub(super) const fn slot_of(token: u64) -> u32 {
    token as u32
}

impl FlowNetwork {
    /// Takes a request: it starts now, or waits.
    pub(super) fn request(&mut self, transfer: Transfer) {
        debug_assert!(transfer.start >= self.clock, "a request in the past: {transfer:?} at {}", self.clock);
        let slot = self.free.pop().unwrap_or(self.transfers.len() as u32);
        if slot as usize == self.transfers.len() {
            self.transfers.push(transfer);
        } else {
            self.transfers[slot as usize] = transfer;
        }
        if transfer.start <= self.clock {
            self.enqueue(slot);
        } else {
            self.waiting.push(Reverse((transfer.start, self.requests, slot)));
            self.requests += 1;
        }
    }

    /// Starts a transfer, or lets it wait for those before it on its queue pair.
    pub(super) fn enqueue(&mut self, slot: u32) {
        if let Some(pair) = self.transfers[slot as usize].queue_pair()
            && let Some(last) = self.queue_pairs.insert(pair, slot)
        {
            self.transfers[last as usize].next = slot;
        } else {
            self.begin(slot, false);
        }
    }

    /// Starts what waits behind a transfer whose last byte has left.
    pub(super) fn dequeue(&mut self, slot: u32) {
        let transfer = self.transfers[slot as usize];
        let Some(pair) = transfer.queue_pair() else { return };
        if transfer.next == NONE {
            self.queue_pairs.remove(&pair);
        } else {
            self.begin(transfer.next, false);
        }
    }

    /// Lays the route of a message over `self.route`; `false` if nothing joins its ends.
    #[inline]
    pub(super) fn lay(&mut self, from: EndpointId, to: EndpointId, nic: NicId, entropy: u32) -> bool {
        if self.settings.nics > 1 && self.lay_over_nics(from, to, nic, entropy) {
            return true;
        }
        self.lay_by(from, to, nic, entropy)
    }

    /// The routes by all NICs of a message that something joins, each with an equal part; `false` if there are none, which is not
    /// yet told to anybody.
    fn lay_over_nics(&mut self, from: EndpointId, to: EndpointId, nic: NicId, entropy: u32) -> bool {
        let (mut whole, mut routes) = (Route::new(), 0u32);
        for other in 0..self.settings.nics {
            let nic = NicId(nic.0.wrapping_add(other));
            if !self.is_joined(from, to, nic, entropy) || !self.lay_by(from, to, nic, entropy) {
                continue;
            }
            if self.route.class <= PathClass::ScaleUp {
                return true;
            }
            routes += 1;
            whole.join(&self.route);
        }
        whole.divide(routes.max(1));
        self.route = whole;
        routes > 0
    }

    /// Whether a NIC's way is left by what has failed.
    fn is_joined(&mut self, from: EndpointId, to: EndpointId, nic: NicId, entropy: u32) -> bool {
        let FlowSettings { balancer, seed, .. } = self.settings;
        let Some(rerouter) = &self.rerouter else { return true };
        let mut rerouter = reroute::lock(rerouter);
        rerouter.forwarder_mut().route(balancer, seed, from, to, nic, entropy, &mut self.route).is_ok()
    }

    /// Lays the route of a message by one of its GPU's NICs over `self.route`; `false` if nothing joins its ends.
    #[inline]
    fn lay_by(&mut self, from: EndpointId, to: EndpointId, nic: NicId, entropy: u32) -> bool {
        let FlowSettings { balancer, seed, .. } = self.settings;
        let route = &mut self.route;
        match &self.rerouter {
            None => {
                self.topology.route(balancer, seed, from, to, nic, entropy, route);
                true
            }
            Some(rerouter) => {
                let mut rerouter = reroute::lock(rerouter);
                if !self.changes.are_to_come() {
                    return rerouter.route(balancer, seed, from, to, nic, entropy, route).is_some();
                }
                // It may yet be joined.
                rerouter.forwarder_mut().route(balancer, seed, from, to, nic, entropy, route).is_ok()
            }
        }
    }

    /// Routes a transfer and starts its flow at the clock; a reduction waits for its turn unless it is `admitted`.
    pub(super) fn begin(&mut self, slot: u32, admitted: bool) {
        if let Subject::Coupled { group, .. } = self.transfers[slot as usize].subject
            && let Some((tree, _)) = &self.groups[group.0 as usize].tree
            && !admitted
            && !self.turns.enter(slot, tree, self.settings.reduction.operations)
        {
            return;
        }
        self.put_on_links(u64::from(slot), None);
    }

    /// Starts a transfer's flow at the clock by the route that it has now, all of them if it is an exchange; or so much volume
    /// per weight as is `left` of one. Without a route it is held until something changes.
    pub(super) fn put_on_links(&mut self, token: u64, left: Option<f64>) {
        let slot = slot_of(token);
        let transfer = self.transfers[slot as usize];
        let at = Instant::at(self.clock.ps());
        match transfer.subject {
            Subject::Message { nic, entropy, .. } => {
                if !self.lay(transfer.from, transfer.to, nic, entropy) {
                    self.hold(token, left);
                    return;
                }
                let class = self.route.class;
                let latency = if self.settings.latency_first { Span::ZERO } else { self.route_latency() };
                let state = &mut self.transfers[slot as usize];
                (state.latency, state.path, state.hops) = (latency, class, self.route.links.len() as u16);
                let whole = || self.wire_bytes(transfer.bytes, class) as f64 * VOLUME_PER_BYTE;
                let volume = left.unwrap_or_else(whole);
                if self.route.links.is_empty() {
                    self.arrive(slot, self.clock);
                    self.dequeue(slot);
                } else {
                    let path = self.route.links.iter().map(|&(link, share)| (link.0, share));
                    self.system.start(at, volume, 1.0, path, token);
                }
            }
            Subject::Coupled { group, .. } => {
                let group = &self.groups[group.0 as usize];
                if group.severed {
                    self.hold(token, left);
                    return;
                }
                if let Some(left) = left.filter(|_| !group.parts.is_empty()) {
                    let part = &group.parts[(token >> 32) as usize];
                    self.system.start(at, left, 1.0, part.links.iter().copied(), token);
                    return;
                }
                for (number, part) in group.parts.iter().enumerate() {
                    let payload = Bytes::new(transfer.bytes.get() * part.pairs);
                    let volume = self.wire_bytes(payload, part.class) as f64 * VOLUME_PER_BYTE;
                    let token = self::token(slot, number);
                    self.system.start(at, volume, 1.0, part.links.iter().copied(), token);
                }
                self.exchange_flows += group.flows;
                if !group.parts.is_empty() {
                    return;
                }
                let whole = || self.wire_bytes(transfer.bytes, group.class) as f64 * VOLUME_PER_BYTE;
                let volume = left.map_or_else(whole, |left| left * group.weight);
                if group.links.is_empty() {
                    self.arrive(slot, self.clock);
                } else {
                    self.system.start(at, volume, group.weight, group.links.iter().copied(), token);
                }
            }
        }
    }

    /// A transfer has no way: it waits for a change, if any is to come.
    fn hold(&mut self, token: u64, left: Option<f64>) {
        if self.changes.are_to_come() {
            self.changes.held.push((token, left));
        }
    }

    /// Books the arrival of a transfer whose last byte left at `left`.
    pub(super) fn arrive(&mut self, slot: u32, left: Time) {
        let transfer = &self.transfers[slot as usize];
        let name = match transfer.subject {
            Subject::Message { message, .. } => u64::from(message),
            Subject::Coupled { run, .. } => 1 << 32 | u64::from(run),
        };
        self.arrivals.push(Reverse((left + transfer.latency, name, slot)));
    }

    /// Reports an arrival.
    pub(super) fn report(&mut self, at: Time, slot: u32) -> Arrival {
        let transfer = self.transfers[slot as usize];
        self.free.push(slot);
        let (arrival, bytes, edges) = match transfer.subject {
            Subject::Message { message, .. } => {
                let outside = transfer.path > PathClass::ScaleUp;
                self.account.message(transfer.bytes, outside.then(|| at.since(transfer.start)));
                (Arrival::Message { message }, transfer.bytes, 1)
            }
            Subject::Coupled { run, group, .. } => {
                let group = &self.groups[group.0 as usize];
                if let Some((tree, _)) = &group.tree {
                    self.turns.leave(tree, self.settings.reduction.operations, &mut self.admitted);
                }
                let bytes = transfer.bytes * group.total_weight;
                if group.stands_for.is_empty() {
                    self.coupled_runs += 1;
                    self.account.group(0, bytes);
                } else {
                    self.account.group(group.total_weight, bytes);
                    let took = at.since(transfer.start);
                    for &(count, latency) in &group.stands_for {
                        let earlier = group.latency - latency;
                        self.account.took(Span::from_ps(took.ps().saturating_sub(earlier.ps())), count);
                    }
                }
                (Arrival::Coupled { run }, bytes, group.edges)
            }
        };
        self.account.record(|| FlowRecord {
            source: transfer.from,
            destination: transfer.to,
            edges,
            bytes,
            start: transfer.start,
            finish: at,
            class: transfer.class,
            path: transfer.path,
            hops: transfer.hops,
        });
        arrival
    }

    /// From the last byte's leaving the bottleneck to its arrival, over the route just asked for.
    pub(super) fn route_latency(&self) -> Span {
        let Route { latency, class, .. } = self.route;
        if class > PathClass::ScaleUp { latency + self.settings.nic_latency } else { latency }
    }
}
