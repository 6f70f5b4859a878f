//! A cost-aware search for orders with a split backward on any placement, under a cap on live activations.
//!
//! List scheduling in time order: whenever a rank is free it takes, of what is ready, an input gradient, else a forward
//! that the cap leaves room for, else a weight gradient; it waits only when nothing is left to fill the time. A policy
//! decides the ties that matter: whether a weight gradient goes before a wait that it would outlast, whether forwards
//! rank before input gradients while the pipeline fills, and which chunk goes first. Under the cap a forward of
//! chunk v needs V - v free places, so that a micro-batch that has entered can always turn around: no deadlock.
//!
//! The search is a heuristic: it stands beside the closed form and never replaces a better one (see [`super::zbv`]).

use std::collections::VecDeque;

use windtunnel_kernel::{Span, Time};

use super::{Action, ActionKind, Costs, Placement};

/// How ties are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// A weight gradient may run although it ends after the next known arrival.
    pub overrun: bool,
    /// Forwards go before input gradients.
    pub forward_first: bool,
    /// Deeper chunks go first among forwards.
    pub deep_first: bool,
    /// A weight gradient follows its input gradient as soon as this many are waiting (0: never on purpose).
    pub weights_waiting: u32,
}

impl Policy {
    /// Every combination, in a fixed order.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..24u32).map(|bits| Self {
            overrun: bits & 1 != 0,
            forward_first: bits & 2 != 0,
            deep_first: bits & 4 == 0,
            weights_waiting: bits / 8,
        })
    }
}

/// An activation in the unit in which memory is counted.
pub(super) const WHOLE: u32 = 1000;

/// What a rank may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// Activations of chunks.
    pub cap: u32,
    /// What is left of one, of [`WHOLE`], between its two gradients.
    pub kept: u32,
}

struct State {
    clock: Time,
    /// Activations held, in parts of [`WHOLE`].
    live: u32,
    /// Per chunk: inputs that have come, in micro-batch order, with their arrival.
    forwards: Vec<VecDeque<(Time, u32)>>,
    gradients: Vec<VecDeque<(Time, u32)>>,
    weights: VecDeque<(u16, u32)>,
    actions: Vec<Action>,
}

/// Orders of every rank for one policy; `None` if the cap leaves it stuck.
pub(super) fn actions(
    placement: Placement,
    microbatches: u32,
    costs: Costs,
    latency: Span,
    room: Room,
    policy: Policy,
) -> Option<Vec<Vec<Action>>> {
    let chunks = usize::from(placement.chunks);
    let mut ranks: Vec<State> = (0..placement.ranks)
        .map(|rank| {
            let mut state = State {
                clock: Time::ZERO,
                live: 0,
                forwards: vec![VecDeque::new(); chunks],
                gradients: vec![VecDeque::new(); chunks],
                weights: VecDeque::new(),
                actions: Vec::new(),
            };
            if rank == 0 {
                state.forwards[0].extend((0..microbatches).map(|microbatch| (Time::ZERO, microbatch)));
            }
            state
        })
        .collect();
    let total = 3 * chunks * microbatches as usize * ranks.len();
    let mut done = 0;
    while done < total {
        // The rank that can start something first acts next; ties by rank. Nothing it does can arrive earlier.
        let (_, rank) = (0..ranks.len())
            .filter_map(|rank| Some((ranks[rank].earliest(placement.chunks, room)?, rank)))
            .min()?;
        let (start, action) = ranks[rank].choose(placement.chunks, room, costs, policy);
        let end = start + costs.of(action.kind);
        let state = &mut ranks[rank];
        state.clock = end;
        state.actions.push(action);
        done += 1;
        let (from, chunk) = (rank as u32, action.chunk);
        let arrival = |to: u32| if to == from { end } else { end + latency };
        match action.kind {
            ActionKind::Forward => {
                state.live += WHOLE;
                match placement.next(from, chunk) {
                    Some((to, next)) => {
                        ranks[to as usize].forwards[usize::from(next)]
                            .push_back((arrival(to), action.microbatch));
                    }
                    None => state.gradients[usize::from(chunk)].push_back((end, action.microbatch)),
                }
            }
            ActionKind::BackwardWeight => state.live -= room.kept,
            _ => {
                state.live -= WHOLE - room.kept;
                state.weights.push_back((chunk, action.microbatch));
                if let Some((to, next)) = placement.previous(from, chunk) {
                    ranks[to as usize].gradients[usize::from(next)]
                        .push_back((arrival(to), action.microbatch));
                }
            }
        }
    }
    Some(ranks.into_iter().map(|state| state.actions).collect())
}

impl State {
    /// Whether the cap has room for a forward of `chunk`.
    fn room(&self, chunk: usize, chunks: u16, room: Room) -> bool {
        self.live + WHOLE * (u32::from(chunks) - chunk as u32) <= WHOLE * room.cap
    }

    /// Earliest arrival among the heads of `queues` that may run.
    fn head(queues: &[VecDeque<(Time, u32)>], allowed: impl Fn(usize) -> bool) -> Option<Time> {
        queues
            .iter()
            .enumerate()
            .filter(|&(chunk, _)| allowed(chunk))
            .filter_map(|(_, queue)| Some(queue.front()?.0))
            .min()
    }

    fn earliest(&self, chunks: u16, room: Room) -> Option<Time> {
        let inputs = Self::head(&self.gradients, |_| true)
            .into_iter()
            .chain(Self::head(&self.forwards, |chunk| self.room(chunk, chunks, room)))
            .chain((!self.weights.is_empty()).then_some(Time::ZERO));
        inputs.min().map(|arrival| arrival.max(self.clock))
    }

    /// Start and action of what goes next.
    fn choose(&mut self, chunks: u16, room: Room, costs: Costs, policy: Policy) -> (Time, Action) {
        let now = self.clock;
        let gradient = pick(&self.gradients, now, true, |_| true);
        let forward = pick(&self.forwards, now, policy.deep_first, |chunk| self.room(chunk, chunks, room));
        let gradient_now = gradient.filter(|&(arrival, _)| arrival <= now);
        let forward_now = forward.filter(|&(arrival, _)| arrival <= now);
        let due = policy.weights_waiting > 0 && self.weights.len() as u32 >= policy.weights_waiting;
        let blocked = forward.is_none() && self.forwards.iter().any(|queue| !queue.is_empty());
        if gradient_now.is_none() && (forward_now.is_none() || due) || blocked && due {
            let next = gradient.iter().chain(&forward).map(|&(arrival, _)| arrival).min();
            let fits = next.is_none_or(|arrival| policy.overrun || now + costs.weight <= arrival.max(now));
            if !self.weights.is_empty() && (fits || due || blocked) {
                let (chunk, microbatch) = self.weights.pop_front().expect("checked to hold one");
                return (now, Action::new(ActionKind::BackwardWeight, chunk, microbatch));
            }
        }
        let candidates = if policy.forward_first {
            [(ActionKind::Forward, forward), (ActionKind::BackwardInput, gradient)]
        } else {
            [(ActionKind::BackwardInput, gradient), (ActionKind::Forward, forward)]
        };
        // The earliest start; among equals the policy's order.
        let best = candidates
            .into_iter()
            .filter_map(|(kind, found)| found.map(|(arrival, chunk)| (arrival.max(now), kind, chunk)))
            .reduce(|best, other| if other.0 < best.0 { other } else { best });
        let Some((start, kind, chunk)) = best else {
            let (chunk, microbatch) = self.weights.pop_front().expect("a rank that acts has something to do");
            return (now, Action::new(ActionKind::BackwardWeight, chunk, microbatch));
        };
        let queue =
            if kind == ActionKind::Forward { &mut self.forwards[chunk] } else { &mut self.gradients[chunk] };
        let (_, microbatch) = queue.pop_front().expect("it was the head of its queue");
        (start, Action::new(kind, chunk as u16, microbatch))
    }
}

/// The head to take: one that has come, deepest or shallowest chunk first, else the earliest to come.
fn pick(
    queues: &[VecDeque<(Time, u32)>],
    now: Time,
    deep_first: bool,
    allowed: impl Fn(usize) -> bool,
) -> Option<(Time, usize)> {
    let rank = |chunk: usize| if deep_first { queues.len() - chunk } else { chunk };
    (0..queues.len())
        .filter(|&chunk| allowed(chunk))
        .filter_map(|chunk| Some((queues[chunk].front()?.0.max(now), rank(chunk), chunk)))
        .min()
        .map(|(arrival, _, chunk)| (arrival, chunk))
}
