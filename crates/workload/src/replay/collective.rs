//! Collectives in flight, by steps: for each rank in one, a slot of a few words and a window of its rounds under way.
//!
//! Slots and windows live in slabs and are reused by collectives of the same window size, so the steady state allocates
//! nothing. A message's token is its cell (lane and round, cyclic in the depth) and whether it is a receive.

use windtunnel_kernel::{Bytes, NicId, RankId, Span, StreamId, Tag, Time};

use super::prepare::{Prepared, tag_step};
use crate::collectives::{MAX_LANES, Plan, Round};
use crate::machine::{Machine, Meet, Outgoing, Token};
use crate::program::Dimension;

/// Marks the token of a collective's message.
pub(super) const MESSAGE: u32 = 1 << 31;

/// A lane's progress.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// Next round to be started.
    next: u32,
    /// Rounds complete without a gap.
    done: u32,
    /// End of the last of them.
    finish: Time,
    /// Longest time in which a receive was posted whose sender had not begun.
    waited: Span,
}

/// A rank's part in a collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub rank: RankId,
    pub op: u32,
    pub plan: u32,
    pub communicator: u32,
    /// The rank's index in the communicator.
    pub index: u32,
    pub tag: u64,
    pub stream: StreamId,
    pub dimension: Dimension,
    /// Whether it is in use.
    pub active: bool,
    lanes_left: u32,
    first_cell: u32,
    lanes: [Lane; MAX_LANES as usize],
}

impl Slot {
    /// Part of its rounds that is complete.
    pub(super) fn done(&self, plan: &Plan) -> f64 {
        let lanes = (0..plan.lanes()).map(|lane| (self.lanes[lane as usize].done, plan.rounds(lane)));
        let (done, rounds) =
            lanes.fold((0, 0), |sum, lane| (sum.0 + u64::from(lane.0), sum.1 + u64::from(lane.1)));
        done as f64 / rounds.max(1) as f64
    }
}

/// A round under way.
#[derive(Clone, Copy, Debug)]
struct Cell {
    slot: u32,
    /// Messages not yet finished.
    outstanding: u32,
    ready: Time,
    /// Latest end of its messages.
    finish: Time,
    /// Latest start of a sender to it.
    remote: Time,
}

/// What a rank brings to a collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub rank: RankId,
    pub op: u32,
    pub plan: u32,
    pub communicator: u32,
    pub index: u32,
    pub tag: u64,
    pub stream: StreamId,
    pub dimension: Dimension,
}

/// The end of a rank's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub op: u32,
    pub at: Time,
    /// Longest wait for a peer that had not begun to send.
    pub waited: Span,
}

/// All collectives in flight.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    pub slots: Vec<Slot>,
    cells: Vec<Cell>,
    /// Unused slots by window class.
    free: Vec<Vec<u32>>,
    /// Of each plan that is an exchange and does not join: members that have begun one.
    pub stepped: Vec<u64>,
    round: Round,
}

impl Collectives {
    pub(super) fn new(prepared: &Prepared) -> Self {
        let stepped = vec![0; prepared.plans.len()];
        Self { free: vec![Vec::new(); prepared.windows.len()], stepped, ..Self::default() }
    }

    /// Starts a rank's part at `at`; it may end at once if no round has a message for it.
    pub(super) fn start(
        &mut self,
        prepared: &Prepared,
        entry: Entry,
        at: Time,
        machine: &mut impl Machine,
    ) -> Option<End> {
        let group = &prepared.plans[entry.plan as usize];
        let lanes = group.plan.lanes();
        let slot = self.allocate(group.class, prepared.windows[group.class as usize]);
        let first_cell = self.slots[slot as usize].first_cell;
        let Entry { rank, op, plan, communicator, index, tag, stream, dimension } = entry;
        self.slots[slot as usize] = Slot {
            rank,
            op,
            plan,
            communicator,
            index,
            tag,
            stream,
            dimension,
            active: true,
            lanes_left: lanes,
            first_cell,
            lanes: [Lane { finish: at, ..Lane::default() }; MAX_LANES as usize],
        };
        for lane in 0..lanes {
            for round in 0..group.plan.depth(lane).min(group.plan.rounds(lane)) {
                self.start_round(prepared, slot, lane, round, at, machine);
            }
        }
        let mut end = None;
        for lane in 0..lanes {
            end = end.or(self.advance(prepared, slot, lane, machine));
        }
        end
    }

    /// A message of `token` ended at `at`; returns the end of the rank's part if it was the last.
    pub(super) fn finished(
        &mut self,
        prepared: &Prepared,
        token: Token,
        at: Time,
        remote: Time,
        machine: &mut impl Machine,
    ) -> Option<End> {
        let index = (token.0 & !MESSAGE) >> 1;
        let cell = &mut self.cells[index as usize];
        debug_assert!(cell.outstanding > 0, "a message ended twice");
        cell.outstanding -= 1;
        cell.finish = cell.finish.max(at);
        if token.0 & 1 == 1 {
            cell.remote = cell.remote.max(remote);
        }
        if cell.outstanding > 0 {
            return None;
        }
        let slot = cell.slot;
        let Slot { plan, first_cell, .. } = self.slots[slot as usize];
        let depth = prepared.plans[plan as usize].plan.depth(0);
        self.advance(prepared, slot, (index - first_cell) / depth, machine)
    }

    /// Peers from which `slot` still waits for a message, in the rounds under way.
    pub(super) fn waits_for(&self, prepared: &Prepared, slot: &Slot) -> Vec<(u32, Round)> {
        let plan = &prepared.plans[slot.plan as usize].plan;
        let mut waits = Vec::new();
        for lane in 0..plan.lanes() {
            let Lane { next, done, .. } = slot.lanes[lane as usize];
            for number in done..next {
                let cell = slot.first_cell + lane * plan.depth(lane) + number % plan.depth(lane);
                if self.cells[cell as usize].outstanding > 0 {
                    let mut round = Round::new();
                    plan.round(slot.index, lane, number, &mut round);
                    waits.push((number, round));
                }
            }
        }
        waits
    }

    fn allocate(&mut self, class: u32, window: u32) -> u32 {
        if let Some(slot) = self.free[class as usize].pop() {
            return slot;
        }
        let (slot, first_cell) = (self.slots.len() as u32, self.cells.len() as u32);
        assert!(first_cell + window < MESSAGE >> 1, "more than 2^30 rounds of collectives in flight");
        let cell = Cell { slot, outstanding: 0, ready: Time::ZERO, finish: Time::ZERO, remote: Time::ZERO };
        self.cells.resize(self.cells.len() + window as usize, cell);
        self.slots.push(Slot {
            rank: RankId(0),
            op: 0,
            plan: 0,
            communicator: 0,
            index: 0,
            tag: 0,
            stream: StreamId(0),
            dimension: Dimension::Other,
            active: false,
            lanes_left: 0,
            first_cell,
            lanes: [Lane::default(); MAX_LANES as usize],
        });
        slot
    }

    /// Asks the machine for the messages of a round, sends before receives.
    fn start_round(
        &mut self,
        prepared: &Prepared,
        slot: u32,
        lane: u32,
        number: u32,
        ready: Time,
        machine: &mut impl Machine,
    ) {
        let Slot { rank, plan, communicator, index, tag, stream, dimension, first_cell, .. } =
            self.slots[slot as usize];
        let plan = &prepared.plans[plan as usize].plan;
        let depth = plan.depth(lane);
        plan.round(index, lane, number, &mut self.round);
        let at = first_cell + lane * depth + number % depth;
        let meeting = plan.meeting(index, number);
        let outstanding = self.round.len() as u32 + u32::from(meeting.is_some());
        self.cells[at as usize] = Cell { slot, outstanding, ready, finish: ready, remote: Time::ZERO };
        self.slots[slot as usize].lanes[lane as usize].next = number + 1;
        let members = &prepared.workload.communicators[communicator as usize].ranks;
        let tag = Tag(tag | tag_step(lane, number));
        if let Some(meeting) = meeting {
            let meet = Meet { communicator, tag, meeting, dimension };
            machine.meet(ready, rank, Token(MESSAGE | at << 1 | 1), meet);
        }
        let entropy = prepared.collective_entropy(communicator, lane);
        for &(to, bytes) in &self.round.sends {
            let to = members[to as usize];
            let message = Outgoing {
                stream,
                nic: NicId(0),
                to,
                bytes: Bytes::new(bytes),
                tag,
                dimension,
                entropy,
                line: 1,
                waits: plan.sends_in_turn(),
            };
            machine.send(ready, rank, Token(MESSAGE | at << 1), message);
        }
        for &(from, _) in &self.round.receives {
            let from = Some(members[from as usize]);
            machine.post_receive(ready, rank, Token(MESSAGE | at << 1 | 1), stream, from, Some(tag));
        }
    }

    /// Retires complete rounds in order; each lets the round `depth` later start.
    fn advance(
        &mut self,
        prepared: &Prepared,
        slot: u32,
        lane: u32,
        machine: &mut impl Machine,
    ) -> Option<End> {
        let Slot { plan, first_cell, .. } = self.slots[slot as usize];
        let plan = &prepared.plans[plan as usize].plan;
        let (rounds, depth) = (plan.rounds(lane), plan.depth(lane));
        let window = first_cell + lane * depth;
        loop {
            let progress = &mut self.slots[slot as usize].lanes[lane as usize];
            if progress.done == progress.next {
                break;
            }
            let cell = &self.cells[(window + progress.done % depth) as usize];
            if cell.outstanding > 0 {
                return None;
            }
            progress.waited = progress.waited.max(cell.remote.since(cell.ready));
            progress.finish = progress.finish.max(cell.finish);
            progress.done += 1;
            let (next, ready) = (progress.next, progress.finish);
            if next < rounds {
                self.start_round(prepared, slot, lane, next, ready, machine);
            }
        }
        self.lane_ended(prepared, slot)
    }

    fn lane_ended(&mut self, prepared: &Prepared, slot: u32) -> Option<End> {
        let ended = &mut self.slots[slot as usize];
        ended.lanes_left -= 1;
        if ended.lanes_left > 0 {
            return None;
        }
        ended.active = false;
        let group = &prepared.plans[ended.plan as usize];
        let lanes = &ended.lanes[..group.plan.lanes() as usize];
        let at = lanes.iter().map(|lane| lane.finish).max().unwrap_or_default();
        let waited = lanes.iter().map(|lane| lane.waited).max().unwrap_or_default();
        let op = ended.op;
        self.free[group.class as usize].push(slot);
        Some(End { op, at, waited })
    }
}
