//! A schedule: the order of work of every pipeline rank, and what follows from it.

use windtunnel_kernel::Span;

use super::action::{Action, ActionKind};
use super::error::ScheduleError;
use super::name::ScheduleName;
use super::placement::Placement;
use super::timed::{self, Costs};

/// The order of work of every pipeline rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Which schedule.
    pub name: ScheduleName,
    /// Where the stages are.
    pub placement: Placement,
    /// Micro-batches of a step, M.
    pub microbatches: u32,
    actions: Vec<Vec<Action>>,
}

impl Schedule {
    /// A schedule from ready lists, one per rank.
    ///
    /// # Errors
    /// [`ScheduleError::Incomplete`] or [`ScheduleError::Deadlock`] when the lists break an invariant.
    pub fn from_actions(
        name: ScheduleName,
        placement: Placement,
        microbatches: u32,
        actions: Vec<Vec<Action>>,
    ) -> Result<Self, ScheduleError> {
        let schedule = Self { name, placement, microbatches, actions };
        schedule.check_complete()?;
        timed::execute(&schedule, |_| Costs::UNIT, |_, _| Span::ZERO)?;
        Ok(schedule)
    }

    /// The actions of `rank` in order.
    pub fn actions(&self, rank: u32) -> &[Action] {
        &self.actions[rank as usize]
    }

    /// The same with other lists, which do the same work in another order: nothing is checked.
    pub(super) fn with(&self, actions: Vec<Vec<Action>>) -> Self {
        Self { actions, ..self.clone() }
    }

    /// The actions of every rank.
    pub(super) fn into_actions(self) -> Vec<Vec<Action>> {
        self.actions
    }

    /// Pipeline ranks, P.
    pub fn ranks(&self) -> u32 {
        self.placement.ranks
    }

    /// Whether some backward is split into its two gradients.
    pub fn splits_backward(&self) -> bool {
        self.actions.iter().flatten().any(|action| action.kind == ActionKind::BackwardInput)
    }

    /// Largest number of chunk activations alive at once on `rank`: from the start of a forward to the end of the
    /// micro-batch's last gradient on that chunk.
    pub fn peak_in_flight(&self, rank: u32) -> u32 {
        let ones = vec![1; usize::from(self.placement.chunks)];
        self.peak_activation(rank, &ones, &ones) as u32
    }

    /// Peak of the activations of `rank` when a micro-batch holds `whole[chunk]` from the start of its forward to the
    /// end of its input gradient and `kept[chunk]` from there to the end of its weight gradient. Members of a pair
    /// overlap: the new activation exists before the old one is released.
    ///
    /// # Panics
    /// If a list is shorter than the number of chunks.
    pub fn peak_activation(&self, rank: u32, whole: &[u64], kept: &[u64]) -> u64 {
        let (mut now, mut peak, mut release) = (0u64, 0u64, 0u64);
        for action in self.actions(rank) {
            let chunk = usize::from(action.chunk);
            match action.kind {
                ActionKind::Forward => now += whole[chunk],
                ActionKind::Backward => release += whole[chunk],
                ActionKind::BackwardInput => release += whole[chunk] - kept[chunk].min(whole[chunk]),
                ActionKind::BackwardWeight => release += kept[chunk].min(whole[chunk]),
            }
            peak = peak.max(now);
            if !action.paired {
                now -= release;
                release = 0;
            }
        }
        peak
    }

    /// Who hands `action` of `rank` its input, itself perhaps, and whether that is a gradient; `None` of one that begins with what its
    /// rank has.
    pub fn sender(&self, rank: u32, action: Action) -> Option<(u32, bool)> {
        let (from, gradient) = match action.kind {
            ActionKind::Forward => (self.placement.previous(rank, action.chunk), false),
            ActionKind::Backward | ActionKind::BackwardInput => {
                (self.placement.next(rank, action.chunk), true)
            }
            ActionKind::BackwardWeight => (None, false),
        };
        from.map(|(from, _)| (from, gradient))
    }

    /// Rank and chunk to which the output of `action` of `rank` goes, itself perhaps, and whether that is a gradient.
    pub fn receiver(&self, rank: u32, action: Action) -> Option<(u32, u16, bool)> {
        let (to, gradient) = match action.kind {
            ActionKind::Forward => (self.placement.next(rank, action.chunk), false),
            ActionKind::Backward | ActionKind::BackwardInput => {
                (self.placement.previous(rank, action.chunk), true)
            }
            ActionKind::BackwardWeight => (None, false),
        };
        to.map(|(to, chunk)| (to, chunk, gradient))
    }

    /// Messages of one step between ranks for which `crosses(from, to)`: activations and gradients together.
    pub fn messages_crossing(&self, crosses: impl Fn(u32, u32) -> bool) -> u64 {
        let mut count = 0;
        for rank in 0..self.ranks() {
            for action in self.actions(rank) {
                let to = self.receiver(rank, *action);
                count += u64::from(to.is_some_and(|(to, ..)| to != rank && crosses(rank, to)));
            }
        }
        count
    }

    fn check_complete(&self) -> Result<(), ScheduleError> {
        for rank in 0..self.ranks() {
            let mut seen = vec![[0u8; 4]; usize::from(self.placement.chunks) * self.microbatches as usize];
            let place = |chunk: u16, microbatch: u32| {
                usize::from(chunk) * self.microbatches as usize + microbatch as usize
            };
            for action in self.actions(rank) {
                let legal = action.chunk < self.placement.chunks
                    && self
                        .placement
                        .microbatches(action.chunk, self.microbatches)
                        .contains(&action.microbatch);
                if !legal {
                    return Err(ScheduleError::Incomplete { rank, action: *action, count: 1, expected: 0 });
                }
                seen[place(action.chunk, action.microbatch)][action.kind as usize] += 1;
            }
            for chunk in 0..self.placement.chunks {
                for microbatch in self.placement.microbatches(chunk, self.microbatches) {
                    let [f, b, i, w] = seen[place(chunk, microbatch)];
                    let wrong = |kind, count, expected| {
                        let action = Action::new(kind, chunk, microbatch);
                        Err(ScheduleError::Incomplete { rank, action, count, expected })
                    };
                    if f != 1 {
                        return wrong(ActionKind::Forward, f, 1);
                    }
                    if b + i != 1 {
                        return wrong(ActionKind::Backward, b + i, 1);
                    }
                    if w != i {
                        return wrong(ActionKind::BackwardWeight, w, i);
                    }
                }
            }
        }
        Ok(())
    }
}
