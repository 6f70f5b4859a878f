//! What a run asks of the hosts: requests go in, and [`Fabric::step`] handles one instant after the other.

use windtunnel_kernel::queue::Sequenced;
use windtunnel_kernel::{Bytes, EndpointId, Span, StreamId, Tag, Time};

use super::operations::{ANY_TAG, NONE, Operation, RENDEZVOUS, State};
use super::{Event, Host, Run, StuckKind};
use crate::{CoupledId, Fabric, InStep, Network, Notice, SendRequest, Ticket};

impl<N: Network> Fabric for Host<N> {
    fn now(&self) -> Time {
        self.now
    }

    fn calc(&mut self, ready: Time, at: EndpointId, ticket: Ticket, stream: StreamId, duration: Span) {
        let number = self.next_number(ready);
        let operation = Operation {
            amount: duration.ps(),
            stream: stream.0,
            ..Operation::new(State::Calc, at, ticket, number)
        };
        self.insert(ready, operation);
    }

    fn send(&mut self, ready: Time, from: EndpointId, ticket: Ticket, request: SendRequest) {
        assert!(request.to.0 < self.spec.endpoints, "endpoint {} of {}", request.to, self.spec.endpoints);
        let number = self.next_number(ready);
        let operation = Operation {
            amount: request.bytes.get().max(1),
            tag: request.tag,
            peer: request.to.0,
            entropy: request.entropy,
            line: request.line,
            marks: if request.waits { RENDEZVOUS } else { 0 },
            stream: request.stream.0,
            nic: request.nic.0,
            class: request.class,
            path: self.costs.class(from, request.to) as u8,
            ..Operation::new(State::Send, from, ticket, number)
        };
        self.insert(ready, operation);
    }

    fn post_receive(
        &mut self,
        ready: Time,
        at: EndpointId,
        ticket: Ticket,
        stream: StreamId,
        source: Option<EndpointId>,
        tag: Option<Tag>,
    ) {
        if !self.wildcards && (source.is_none() || tag.is_none()) {
            self.expect_wildcards();
        }
        let number = self.next_number(ready);
        let time = ready.max(self.stream_free[self.stream_clock(at, stream.0)]);
        let operation = Operation {
            tag: tag.unwrap_or_default(),
            marks: if tag.is_none() { ANY_TAG } else { 0 },
            peer: source.map_or(NONE, |source| source.0),
            stream: stream.0,
            ..Operation::new(State::Receive, at, ticket, number)
        };
        let id = self.operations.insert(operation);
        self.queue.push(Sequenced { time, number }, Event::Operation(id));
    }

    fn prepare_coupled(&mut self, edges: &[(EndpointId, EndpointId, u32)], entropy: u32) -> CoupledId {
        self.network.prepare_coupled(edges, entropy)
    }

    fn prepare_reduction(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        self.network.prepare_reduction(members, entropy)
    }

    fn prepare_exchange(&mut self, members: &[EndpointId], entropy: u32) -> CoupledId {
        self.network.prepare_exchange(members, entropy)
    }

    fn prepare_in_step(&mut self, members: &[EndpointId], entropy: u32) -> Option<InStep> {
        self.network.prepare_in_step(members, entropy)
    }

    fn coupled_span(&self, group: CoupledId, bytes: Bytes, steps: u32) -> Span {
        self.network.coupled_span(group, bytes, steps)
    }

    fn start_coupled(
        &mut self,
        start: Time,
        leader: EndpointId,
        ticket: Ticket,
        group: CoupledId,
        bytes: Bytes,
        steps: u32,
        class: u8,
    ) {
        assert!(start >= self.now, "a coupled group starts at {start}, before the clock at {}", self.now);
        let run = Run { leader, ticket, start, gone: false };
        let id = if let Some(id) = self.free_runs.pop() {
            self.runs[id as usize] = run;
            id
        } else {
            self.runs.push(run);
            (self.runs.len() - 1) as u32
        };
        self.network.start_coupled(start, id, group, bytes, steps, class);
        self.network_next = None;
    }

    fn next_time(&mut self) -> Time {
        let queued = self.queue_time();
        if queued <= self.now {
            return queued;
        }
        let next = queued.min(self.network_time());
        if next > Time::HORIZON { Time::NEVER } else { next }
    }

    fn is_beyond(&mut self) -> bool {
        self.next_time() == Time::NEVER && (!self.queue.is_empty() || self.network.is_beyond())
    }

    fn step(&mut self, notices: &mut Vec<Notice>) {
        let mut next = self.next_time();
        if next == Time::NEVER {
            return;
        }
        if next > self.now || self.queue_time() > next {
            if self.network_time() == next {
                next = self.run_network(next, self.queue_time().min(self.horizon).max(next));
            }
            self.now = next;
        }
        // Failed attempts make nothing known and are no events.
        while let Some(key) = self.queue.peek().filter(|key| key.time == next) {
            let Some((_, event)) = self.queue.pop() else { break };
            if let Some(Event::Operation(next)) = self.queue.first() {
                self.operations.foresee(next);
            }
            if self.handle(key, event, notices) {
                self.handled += 1;
                break;
            }
        }
    }

    fn events(&self) -> u64 {
        self.handled
    }

    fn unreceived(&self) -> Vec<(EndpointId, Ticket)> {
        let messages = self.stuck().into_iter().filter_map(|stuck| match stuck.kind {
            StuckKind::Message { from, ticket, .. } => Some((from, ticket)),
            StuckKind::Receive { .. } => None,
        });
        messages.collect()
    }
}
