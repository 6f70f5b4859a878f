//! A second way to an order that knows its costs: keep the forwards and input gradients of a schedule in their order and
//! place the weight gradients anew, in the gaps where a rank waits.
//!
//! A weight gradient holds nobody up but its own rank, so its place is a matter of that rank alone: when the input of the
//! next forward or input gradient is known to come later than the rank is free, weight gradients that end in time fill
//! the gap; more than `waiting` of them never pile up, and one goes first where the cap leaves no room for a forward.

use std::collections::VecDeque;

use windtunnel_kernel::{Span, Time};

use super::greedy::{Room, WHOLE};
use super::{Action, ActionKind, Costs, Schedule};

/// When weight gradients run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filling {
    /// Most that wait; the next one runs at once.
    pub waiting: u32,
    /// A gap too short for one takes one all the same.
    pub overrun: bool,
    /// What a rank may hold.
    pub room: Room,
}

impl Filling {
    /// The fillings worth trying in `room`.
    pub(super) fn all(room: Room) -> impl Iterator<Item = Self> {
        let waiting = (0..room.cap.min(64)).filter(|waiting| *waiting < 16 || waiting.is_multiple_of(8));
        waiting.flat_map(move |waiting| [false, true].map(|overrun| Self { waiting, overrun, room }))
    }
}

struct Rank {
    at: usize,
    clock: Time,
    live: u32,
    weights: VecDeque<(u16, u32)>,
    actions: Vec<Action>,
}

impl Rank {
    fn weight(&mut self, costs: Costs, room: Room) {
        if let Some((chunk, microbatch)) = self.weights.pop_front() {
            self.actions.push(Action::new(ActionKind::BackwardWeight, chunk, microbatch));
            self.clock += costs.weight;
            self.live -= room.kept;
        }
    }
}

/// `base` with its weight gradients placed anew; `None` if the cap is below what its order needs.
pub(super) fn actions(
    base: &Schedule,
    costs: Costs,
    latency: Span,
    filling: Filling,
) -> Option<Vec<Vec<Action>>> {
    let placement = base.placement;
    let chunks = usize::from(placement.chunks);
    let lists: Vec<Vec<Action>> = (0..placement.ranks)
        .map(|rank| {
            let kept = |action: &&Action| action.kind != ActionKind::BackwardWeight;
            base.actions(rank).iter().filter(kept).copied().collect()
        })
        .collect();
    let place = |rank: u32, chunk: u16, microbatch: u32| {
        (rank as usize * chunks + usize::from(chunk)) * base.microbatches as usize + microbatch as usize
    };
    let places = lists.len() * chunks * base.microbatches as usize;
    let mut ends = [vec![None; places], vec![None; places]];
    let mut ranks: Vec<Rank> = lists
        .iter()
        .map(|_| Rank { at: 0, clock: Time::ZERO, live: 0, weights: VecDeque::new(), actions: Vec::new() })
        .collect();
    let mut awake: Vec<u32> = (0..placement.ranks).rev().collect();
    while let Some(index) = awake.pop() {
        let rank = &mut ranks[index as usize];
        while let Some(&action) = lists[index as usize].get(rank.at) {
            let Action { kind, chunk, microbatch, .. } = action;
            let forward = kind == ActionKind::Forward;
            let from = if forward { placement.previous(index, chunk) } else { placement.next(index, chunk) };
            let known = match from {
                Some((from, chunk)) => ends[usize::from(!forward)][place(from, chunk, microbatch)]
                    .map(|end: Time| if from == index { end } else { end + latency }),
                None => Some(Time::ZERO),
            };
            let Some(arrival) = known else { break };
            while !rank.weights.is_empty()
                && (rank.weights.len() as u32 > filling.waiting
                    || rank.clock + costs.weight <= arrival
                    || filling.overrun && rank.clock < arrival
                    || forward && rank.live + WHOLE > WHOLE * filling.room.cap)
            {
                rank.weight(costs, filling.room);
            }
            if forward && rank.live + WHOLE > WHOLE * filling.room.cap {
                return None;
            }
            rank.clock = rank.clock.max(arrival) + costs.of(kind);
            rank.actions.push(action);
            rank.at += 1;
            if forward {
                rank.live += WHOLE;
            } else {
                rank.live -= WHOLE - filling.room.kept;
                rank.weights.push_back((chunk, microbatch));
            }
            ends[usize::from(!forward)][place(index, chunk, microbatch)] = Some(rank.clock);
            let to = if forward { placement.next(index, chunk) } else { placement.previous(index, chunk) };
            if let Some((to, _)) = to.filter(|&(to, _)| to != index && !awake.contains(&to)) {
                awake.push(to);
            }
        }
    }
    for rank in &mut ranks {
        while !rank.weights.is_empty() {
            rank.weight(costs, filling.room);
        }
    }
    Some(ranks.into_iter().map(|rank| rank.actions).collect())
}
