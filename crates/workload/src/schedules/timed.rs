//! Timed execution: a schedule against costs and latencies, with computation as the only resource.
//!
//! Rank r starts its next action when the one before has ended and its input has come: a forward needs the forward of
//! the stage before, a backward or input gradient that of the stage after (or, on the last stage, its own forward), a
//! weight gradient its input gradient. An input from another rank comes `latency(from, to)` later. A pair starts when the
//! inputs of both members are there and both end together. This is the ideal that bubbles are quoted against; the
//! generator's programs add communication, noise and contention.

use windtunnel_kernel::{Span, Time};

use super::{Action, ActionKind, Schedule, ScheduleError};

/// What the passes of a stage cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Forward, F.
    pub forward: Span,
    /// Input gradient, I.
    pub input: Span,
    /// Weight gradient, W.
    pub weight: Span,
    /// Fused backward, B; I + W if unset.
    pub backward: Option<Span>,
    /// Overlapped pair, F&B; F + B if unset.
    pub pair: Option<Span>,
}

impl Costs {
    /// F = I = W = 1.
    pub const UNIT: Self = Self::new(Span::from_ps(1), Span::from_ps(1), Span::from_ps(1));

    /// F, I and W; the fused backward is I + W, a pair F + B.
    pub const fn new(forward: Span, input: Span, weight: Span) -> Self {
        Self { forward, input, weight, backward: None, pair: None }
    }

    /// Cost of an action alone.
    pub fn of(&self, kind: ActionKind) -> Span {
        match kind {
            ActionKind::Forward => self.forward,
            ActionKind::Backward => self.backward.unwrap_or(self.input + self.weight),
            ActionKind::BackwardInput => self.input,
            ActionKind::BackwardWeight => self.weight,
        }
    }
}

/// When each action ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Start and end of each action, in the order of each rank's list.
    pub actions: Vec<Vec<(Time, Time)>>,
    /// End of the last action.
    pub makespan: Span,
}

impl Timeline {
    /// From the start of the rank's first action to the end of its last.
    pub fn span(&self, rank: u32) -> Span {
        match self.actions[rank as usize].as_slice() {
            [first, .., last] => last.1.since(first.0),
            [only] => only.1.since(only.0),
            [] => Span::ZERO,
        }
    }

    /// Time in which `rank` computes; members of a pair count once.
    pub fn busy(&self, rank: u32) -> Span {
        let mut busy = Span::ZERO;
        let mut before = None;
        for &(start, end) in &self.actions[rank as usize] {
            if before != Some((start, end)) {
                busy += end.since(start);
            }
            before = Some((start, end));
        }
        busy
    }

    /// Idle time of `rank` within the makespan.
    pub fn bubble(&self, rank: u32) -> Span {
        self.makespan - self.busy(rank)
    }
}

/// Ends of the passes seen so far, by (place of stage and direction, micro-batch).
struct Ends {
    microbatches: usize,
    forward: Vec<Option<Time>>,
    gradient: Vec<Option<Time>>,
}

impl Ends {
    fn at(&self, rank: u32, chunk: u16, chunks: u16, microbatch: u32) -> usize {
        (rank as usize * usize::from(chunks) + usize::from(chunk)) * self.microbatches + microbatch as usize
    }
}

/// Executes `schedule` with `costs(stage)` and `latency(from rank, to rank)`.
///
/// # Errors
/// [`ScheduleError::Deadlock`] when the lists wait for each other.
pub fn execute(
    schedule: &Schedule,
    costs: impl Fn(u32) -> Costs,
    latency: impl Fn(u32, u32) -> Span,
) -> Result<Timeline, ScheduleError> {
    let placement = schedule.placement;
    let (ranks, chunks) = (placement.ranks, placement.chunks);
    let places = ranks as usize * usize::from(chunks) * schedule.microbatches as usize;
    let mut ends = Ends {
        microbatches: schedule.microbatches as usize,
        forward: vec![None; places],
        gradient: vec![None; places],
    };
    let mut timeline = Timeline {
        actions: (0..ranks).map(|rank| Vec::with_capacity(schedule.actions(rank).len())).collect(),
        makespan: Span::ZERO,
    };
    let mut clock = vec![Time::ZERO; ranks as usize];
    // Ranks that may be able to go on; a rank is woken when a message for it leaves.
    let mut awake: Vec<u32> = (0..ranks).rev().collect();
    while let Some(rank) = awake.pop() {
        let list = schedule.actions(rank);
        loop {
            let done = timeline.actions[rank as usize].len();
            let Some(first) = list.get(done) else { break };
            let group = &list[done..(done + 1 + usize::from(first.paired)).min(list.len())];
            let arrival = |action: &Action| input_time(schedule, &ends, rank, *action, &latency);
            let Some(ready) =
                group.iter().try_fold(Time::ZERO, |time, action| Some(time.max(arrival(action)?)))
            else {
                break;
            };
            let start = clock[rank as usize].max(ready);
            let own = |action: &Action| costs(placement.stage(rank, action.chunk));
            let alone: Span = group.iter().map(|action| own(action).of(action.kind)).sum();
            let length = if group.len() == 2 { own(first).pair.unwrap_or(alone) } else { alone };
            let end = start + length;
            clock[rank as usize] = end;
            for action in group {
                timeline.actions[rank as usize].push((start, end));
                let at = ends.at(rank, action.chunk, chunks, action.microbatch);
                let to = match action.kind {
                    ActionKind::Forward => {
                        ends.forward[at] = Some(end);
                        placement.next(rank, action.chunk)
                    }
                    ActionKind::Backward | ActionKind::BackwardInput => {
                        ends.gradient[at] = Some(end);
                        placement.previous(rank, action.chunk)
                    }
                    ActionKind::BackwardWeight => None,
                };
                if let Some((to, _)) = to.filter(|&(to, _)| to != rank && !awake.contains(&to)) {
                    awake.push(to);
                }
            }
            timeline.makespan = timeline.makespan.max(end.since(Time::ZERO));
        }
    }
    for rank in 0..ranks {
        let position = timeline.actions[rank as usize].len();
        if let Some(&action) = schedule.actions(rank).get(position) {
            return Err(ScheduleError::Deadlock { rank, action, position });
        }
    }
    Ok(timeline)
}

/// When the input of `action` is at `rank`; `None` while it is unknown.
fn input_time(
    schedule: &Schedule,
    ends: &Ends,
    rank: u32,
    action: Action,
    latency: impl Fn(u32, u32) -> Span,
) -> Option<Time> {
    let placement = schedule.placement;
    let at = |rank, chunk| ends.at(rank, chunk, placement.chunks, action.microbatch);
    let from = |(from, chunk): (u32, u16), ends: &[Option<Time>]| {
        let end = ends[at(from, chunk)]?;
        Some(if from == rank { end } else { end + latency(from, rank) })
    };
    match action.kind {
        ActionKind::Forward => placement
            .previous(rank, action.chunk)
            .map_or(Some(Time::ZERO), |place| from(place, &ends.forward)),
        ActionKind::Backward | ActionKind::BackwardInput => match placement.next(rank, action.chunk) {
            Some(place) => {
                from(place, &ends.gradient).filter(|_| ends.forward[at(rank, action.chunk)].is_some())
            }
            None => ends.forward[at(rank, action.chunk)],
        },
        ActionKind::BackwardWeight => ends.gradient[at(rank, action.chunk)],
    }
}
