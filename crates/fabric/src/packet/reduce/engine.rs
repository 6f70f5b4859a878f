//! What switches and NICs do about reductions.

use windtunnel_kernel::{Bytes, Time};
use windtunnel_topology::Itinerary;

use super::super::engine::Engine;
use super::super::handles::Completion;
use super::super::packets::{Kind, NONE, Packet, flag};
use super::super::port::DATA;
use super::super::timeline::{Class, Key};
use super::super::transport::Transport;
use super::{Due, Run, RunSpec, Step};
use crate::reduction::Below;

/// Time-outs in a row after which a member will never be heard.
const HOPELESS: u8 = 64;

/// Least time after which a segment is sent again whose sum has not come.
pub(super) const PATIENCE: u64 = 100_000_000;

/// A packet between a member and the root.
#[derive(Clone, Copy)]
struct Piece {
    slot: u32,
    number: u64,
    segment: u32,
    /// The node or member that it goes to, and which of the node's children it comes from.
    to: u32,
    child: u32,
    kind: Kind,
}

impl<T: Transport> Engine<T> {
    /// A run begins at `at`, at those of its members that live here.
    pub(in crate::packet) fn begin_reduction(&mut self, at: Time, spec: RunSpec) {
        let own = self.crossing.as_ref().map_or(0, |crossing| crossing.number);
        for &(port, _) in &spec.prepared.ports {
            if self.home(port) == own {
                self.timeline.schedule_key(Key::named(at.ps(), Class::Reduce, port, spec.slot));
            }
        }
        let (place, window) = (spec.slot as usize, self.settings.reduction.window());
        let run = Run::new(spec, at.ps(), self.settings.payload(), window);
        if self.reductions.runs.len() <= place {
            self.reductions.runs.resize(place + 1, None);
        }
        self.reductions.runs[place] = Some(Box::new(run));
    }

    /// A run has ended.
    pub(in crate::packet) fn end_reduction(&mut self, slot: u32) {
        self.reductions.runs[slot as usize] = None;
    }

    /// The members on NIC port `p` of the run that is kept at `slot` begin to send, or look whether they wait in vain.
    pub(in crate::packet) fn reduce_event(&mut self, p: u32, slot: u32, now: u64) {
        let Some(run) = self.reductions.runs.get_mut(slot as usize).and_then(Option::as_deref_mut) else {
            return;
        };
        let number = run.spec.number;
        let ports = &run.spec.prepared.ports;
        let first = ports.partition_point(|&(port, _)| port < p);
        let members: Vec<u32> =
            ports[first..].iter().take_while(|&&(port, _)| port == p).map(|&(_, member)| member).collect();
        let patience = PATIENCE + 4 * run.spec.prepared.round_trip;
        self.pull(p, now);
        for member in members {
            let Some(run) = self.reductions.get(slot, number) else { return };
            let contributor = &mut run.contributors[member as usize];
            let mut again = Vec::new();
            if contributor.under_way.is_empty() {
                if run.start > now {
                    // A time-out of the run that was here before.
                    return;
                }
                contributor.missing = run.segments;
                contributor.under_way = (0..run.window).map(|segment| (segment, now)).collect();
                again.extend(0..run.window);
            } else if contributor.due == now && contributor.missing > 0 {
                let wait = patience << contributor.silent.min(6);
                for (segment, sent) in &mut contributor.under_way {
                    if *segment != NONE && *sent + wait <= now {
                        *sent = now;
                        again.push(*segment);
                    }
                }
                if !again.is_empty() {
                    contributor.silent += 1;
                    let given_up = contributor.silent >= HOPELESS && now >= self.changes.last;
                    self.account.totals.time_out(wait);
                    self.account.totals.retransmissions += again.len() as u64;
                    if given_up {
                        let planes = self.fabric.topology.planes();
                        self.account.give_up([p / planes; 2]);
                        if let Some(crossing) = &self.crossing {
                            crossing.calls(now);
                        }
                        return;
                    }
                }
            } else {
                continue;
            }
            self.watch_sums(p, slot, number, member, patience);
            for segment in again {
                self.contribute(p, slot, number, member, segment, now);
            }
        }
        self.pull(p, now);
    }

    /// Sets the timer of a member to when the first of its segments will have waited for too long.
    fn watch_sums(&mut self, p: u32, slot: u32, number: u64, member: u32, patience: u64) {
        let Some(run) = self.reductions.get(slot, number) else { return };
        let contributor = &mut run.contributors[member as usize];
        let wait = patience << contributor.silent.min(6);
        let sent = contributor.under_way.iter().filter(|&&(segment, _)| segment != NONE);
        let Some(first) = sent.map(|&(_, sent)| sent).min() else { return };
        contributor.due = first + wait;
        let due = contributor.due;
        self.timeline.schedule_key(Key::named(due, Class::Reduce, p, slot));
    }

    /// A member hands a segment to its NIC, which has been pulled to `now`.
    fn contribute(&mut self, p: u32, slot: u32, number: u64, member: u32, segment: u32, now: u64) {
        let Some(run) = self.reductions.get(slot, number) else { return };
        let leaf = run.spec.prepared.tree.members[member as usize];
        let piece =
            Piece { slot, number, segment, to: leaf.node, child: leaf.child, kind: Kind::Contribution };
        let Some(id) = self.piece(&piece, now) else { return };
        if self.fabric.ports[p as usize].down {
            self.drop_down(p, id);
            return;
        }
        self.packets[id].joined = now;
        self.fabric.ports[p as usize].waiting[DATA].push(id, &mut self.packets);
    }

    /// A packet of a run.
    fn piece(&mut self, piece: &Piece, now: u64) -> Option<u32> {
        let &Piece { slot, number, segment, to, child, kind } = piece;
        let (payload, header) = (self.settings.payload(), self.settings.header.get());
        let run = self.reductions.get(slot, number)?;
        let packet = Packet {
            hash: number,
            stamp: now,
            next: NONE,
            flow: slot,
            sequence: segment,
            detail: to,
            // Nobody routes by it.
            to: run.spec.prepared.ports[0].0,
            itinerary: Itinerary::DIRECT,
            wire: (run.payload_of(segment, payload) + header) as u16,
            path: child as u16,
            kind,
            flags: flag::REDUCED,
            queue: run.spec.queue,
            ..Packet::default()
        };
        Some(self.packets.insert(packet))
    }

    /// A packet of a run is at the end of the pipeline of `switch`.
    #[cold]
    pub(in crate::packet) fn reduce(&mut self, switch: u32, id: u32, now: u64) {
        let Packet { hash: number, flow: slot, sequence: segment, detail: node, path, kind, .. } =
            self.packets[id];
        self.packets.release(id);
        let child = u32::from(path);
        let Some(run) = self.reductions.get(slot, number) else { return };
        if kind == Kind::Sum {
            if run.settle(node, segment) {
                self.send_down(slot, number, node, segment, now);
            }
            return;
        }
        match run.contribute(node, child, segment) {
            Step::Wait => {}
            Step::Sum => {
                let due = Due { time: now, slot, number, node, segment };
                self.sum(switch, due);
            }
            Step::UpAgain => self.send_up(slot, number, node, segment, now),
            Step::DownAgain => {
                let (port, below) = run.spec.prepared.tree.nodes[node as usize].children[child as usize];
                let piece = Piece { slot, number, segment, to: target(below), child: 0, kind: Kind::Sum };
                self.emit(switch, port, &piece, now);
            }
        }
    }

    /// All children have contributed to a segment at `due.time`: its sum leaves the unit one latency later, after those
    /// before it.
    fn sum(&mut self, switch: u32, mut due: Due) {
        let settings = self.settings.reduction;
        let now = due.time;
        if settings.latency.ps() == 0 && settings.rate.is_none() {
            self.pass_on(&due, now);
            return;
        }
        let payload = self.settings.payload();
        let bytes =
            self.reductions.get(due.slot, due.number).map_or(0, |run| run.payload_of(due.segment, payload));
        let unit = self.reductions.units.entry(switch).or_default();
        let takes = settings.rate.map_or(0, |rate| rate.serialise(Bytes::new(bytes)).ps());
        unit.free_at = unit.free_at.max(now) + takes;
        due.time = unit.free_at + settings.latency.ps();
        unit.due.push_back(due);
        let first = self.fabric.switches[switch as usize].first;
        self.timeline.schedule(due.time, Class::Sum, first);
    }

    /// Sums leave the unit of the switch whose first port is `p`.
    pub(in crate::packet) fn sum_event(&mut self, p: u32, now: u64) {
        let switch = self.fabric.ports[p as usize].owner;
        while let Some(unit) = self.reductions.units.get_mut(&switch)
            && let Some(&due) = unit.due.front()
            && due.time <= now
        {
            unit.due.pop_front();
            self.pass_on(&due, now);
        }
    }

    /// A sum goes up, or down from the root.
    fn pass_on(&mut self, due: &Due, now: u64) {
        let &Due { slot, number, node, segment, .. } = due;
        let Some(run) = self.reductions.get(slot, number) else { return };
        if run.spec.prepared.tree.nodes[node as usize].parent.is_some() {
            self.send_up(slot, number, node, segment, now);
        } else if run.settle(node, segment) {
            self.send_down(slot, number, node, segment, now);
        }
    }

    fn send_up(&mut self, slot: u32, number: u64, node: u32, segment: u32, now: u64) {
        let Some(run) = self.reductions.get(slot, number) else { return };
        let at = &run.spec.prepared.tree.nodes[node as usize];
        let (switch, Some((port, to, child))) = (at.switch.0, at.parent) else { return };
        let piece = Piece { slot, number, segment, to, child, kind: Kind::Contribution };
        self.emit(switch, port, &piece, now);
    }

    fn send_down(&mut self, slot: u32, number: u64, node: u32, segment: u32, now: u64) {
        let Some(run) = self.reductions.get(slot, number) else { return };
        let prepared = std::sync::Arc::clone(&run.spec.prepared);
        let at = &prepared.tree.nodes[node as usize];
        for &(port, below) in &at.children {
            let piece = Piece { slot, number, segment, to: target(below), child: 0, kind: Kind::Sum };
            self.emit(at.switch.0, port, &piece, now);
        }
    }

    /// A packet joins the egress queue of port `port` of `switch`.
    fn emit(&mut self, switch: u32, port: u32, piece: &Piece, now: u64) {
        let Some(id) = self.piece(piece, now) else { return };
        let egress = self.fabric.switches[switch as usize].first + port;
        // It stands in the slot's memory: nothing upstream is charged for it, or for all its copies.
        self.packets[id].next_time = u64::from(NONE);
        if self.fabric.ports[egress as usize].down {
            self.drop_down(egress, id);
            return;
        }
        self.enqueue(egress, id, now);
    }

    /// The sum of a segment has reached a member, by port `p`.
    pub(in crate::packet) fn summed(&mut self, p: u32, id: u32, now: u64) {
        let Packet { hash: number, flow: slot, sequence: segment, detail: member, .. } = self.packets[id];
        self.packets.release(id);
        self.account.totals.data_packets += 1;
        let Some(run) = self.reductions.get(slot, number) else { return };
        let window = run.window;
        let leaf = run.spec.prepared.tree.members[member as usize];
        let contributor = &mut run.contributors[member as usize];
        let under_way = &mut contributor.under_way[(segment % window) as usize];
        if under_way.0 != segment {
            return;
        }
        contributor.missing -= 1;
        contributor.silent = 0;
        let next = segment + window;
        *under_way = if next < run.segments { (next, now) } else { (NONE, now) };
        let (missing, more) = (contributor.missing, next < run.segments);
        let nic_port = leaf.nic * self.fabric.topology.planes() + run.spec.prepared.tree.plane;
        if missing == 0 {
            let completion = Completion {
                token: run.spec.token,
                at: Time::from_ps(now),
                start: Time::from_ps(run.start),
                bytes: run.spec.bytes,
            };
            self.account.complete(p, completion);
            if let Some(crossing) = &self.crossing {
                crossing.calls(now);
            }
        } else if more {
            self.pull(nic_port, now);
            self.contribute(nic_port, slot, number, member, next, now);
            self.pull(nic_port, now);
        }
    }
}

fn target(below: Below) -> u32 {
    match below {
        Below::Node(to) | Below::Member(to) => to,
    }
}
