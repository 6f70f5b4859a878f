//! Pipeline schedules: the order in which each stage works.
//!
//! A [`Schedule`] is built once from [`ScheduleSettings`], the number of pipeline ranks P and of micro-batches M; it is
//! the ordered list of [`Action`]s of every rank and the [`Placement`] of stages. It knows neither durations nor
//! messages: [`timed`] executes it against costs, the generator turns it into programs.
//!
//! Invariants, checked when it is built: every (stage, micro-batch) has one forward and either one backward or one
//! input gradient and one weight gradient; executed in order, with every wait honoured, every action is reached.
//!
//! Failure modes: a combination of settings that a schedule does not define is a [`ScheduleError`] with a hint.
//!
//! | name | order | sources |
//! |---|---|---|
//! | `gpipe` | all forwards, all backwards | Huang et al. 2019 |
//! | `1f1b` | P - 1 - r forwards ahead, then one forward, one backward | Narayanan et al. 2021 (PipeDream-Flush) |
//! | `interleaved` | V chunks in a loop, run length N | Narayanan et al. 2021; Grattafori et al. 2024 §3.3.2 (flexible) |
//! | `zb-h1`, `zb1p` | as above with the backward split, weight gradients delayed by r | Qi et al. 2024 |
//! | `zb-h2` | 2(P - 1 - r) forwards ahead, weight gradients delayed by 2r | Qi et al. 2024 §2.2 |
//! | `zb-2p` | the best of a search with costs, within twice the activations of 1F1B | Qi et al. 2024 §3.1, ZB-2p |
//! | `dorapp` | `zb1p` with the run length and the warm-up free | Scale-Across Explorer §2.2; a reading, see [`flexible`] |
//! | `zbv` | V-shaped placement | Qi et al. 2024 (controllable memory) |
//! | `dualpipe` | two directions, overlapped pairs | DeepSeek-V3 report §3.2.1 |
//! | `dualpipev` | DualPipe folded in half: V-shaped placement, one copy of each stage | Qi et al. 2025, "cut in half" |

pub mod dualpipe;
pub mod error;
pub mod flexible;
mod greedy;
pub mod placement;
mod refill;
mod search;
pub mod timed;
pub mod zbv;

pub use error::ScheduleError;
pub use placement::{Placement, Shape};
pub use timed::{Costs, Timeline};

use std::fmt;
use std::str::FromStr;

use windtunnel_kernel::Span;
use windtunnel_kernel::registry::Listed;

windtunnel_kernel::named! {
    /// Which schedule.
    #[derive(Default, Hash)]
    pub enum ScheduleName: "schedule" {
        Gpipe = "gpipe" | "afab", "all forwards, then all backwards";
        #[default]
        OneForwardOneBackward = "1f1b", "one forward, one backward";
        Interleaved = "interleaved", "several chunks a rank in a loop (flexible when the run length is not the number of ranks)";
        ZbH1 = "zb-h1", "input and weight gradients apart, with the memory of 1F1B and one chunk a rank";
        Zb1p = "zb1p", "input and weight gradients apart, any number of chunks";
        ZbH2 = "zb-h2", "input and weight gradients apart, no rank idles between its first and last pass, twice the memory of 1F1B";
        Zb2p = "zb-2p", "input and weight gradients apart, the best order that a search with the passes' costs finds in `memory_cap`";
        Zbv = "zbv", "input and weight gradients apart, zero bubble on the V-shaped placement";
        DoraPp = "dorapp", "input and weight gradients apart, flexible";
        DualPipe = "dualpipe", "both directions at once";
        DualPipeV = "dualpipev", "both directions at once on the V-shaped placement, one copy of each stage";
    }
}

impl ScheduleName {
    /// Whether the backward pass is always split into its two gradients.
    pub const fn splits_backward(self) -> bool {
        matches!(self, Self::ZbH1 | Self::ZbH2 | Self::Zb1p | Self::Zb2p | Self::Zbv | Self::DoraPp)
    }

    /// Whether its stages go down the ranks and back.
    pub const fn is_v(self) -> bool {
        matches!(self, Self::Zbv | Self::DualPipeV)
    }

    /// Whether some forward and backward passes run interleaved.
    pub const fn overlaps(self) -> bool {
        matches!(self, Self::DualPipe | Self::DualPipeV)
    }

    /// Chunks a rank when the settings name none.
    const fn default_chunks(self) -> u16 {
        match self {
            Self::Interleaved | Self::Zbv | Self::DoraPp | Self::DualPipe | Self::DualPipeV => 2,
            _ => 1,
        }
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ScheduleName {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        Self::by_name(text).ok_or_else(|| ScheduleError::UnknownName { found: text.to_owned() })
    }
}

/// What a scenario says of its schedule; `None` leaves the choice to the schedule.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ScheduleSettings {
    /// Which schedule.
    pub name: ScheduleName,
    /// Chunks a pipeline rank holds, V (1; 2 for `interleaved`, `dorapp`, `zbv`; `dualpipe` and `dualpipev` always hold 2).
    pub chunks: Option<u16>,
    /// Consecutive micro-batches of one stage, N; see [`flexible::default_run_length`].
    pub run_length: Option<u32>,
    /// Forwards ahead per rank of distance from the last one (2 for `interleaved` and `zb-h2`, 1 for the others).
    pub warm_up: Option<u32>,
    /// Input gradients that pass before the first weight gradient (the rank's number if unset, twice that for `zb-h2`).
    pub w_delay: Option<u32>,
    /// Share by which both gradients apart cost more than the fused backward: 0.05 is 5%. Used by the generator.
    pub split_overhead: f64,
    /// Live chunk activations a rank may hold under the cost-aware search of `zbv` (V·P if unset) and `zb-2p` (2P if unset).
    pub memory_cap: Option<u32>,
    /// Share of an activation that is held between the gradients of input and weights (1 if unset): what the search counts against
    /// `memory_cap` then.
    pub kept: Option<f64>,
    /// Costs for the cost-aware search of `zbv` and `zb-2p`. Unset, `zbv` takes the closed form, which is best for F = I = W, and
    /// `zb-2p` supposes F = I = W.
    pub costs: Option<Costs>,
    /// Latency between neighbouring ranks for the same search.
    pub latency: Span,
}

impl ScheduleSettings {
    /// `name` with everything else left to the schedule.
    pub fn new(name: ScheduleName) -> Self {
        Self { name, ..Self::default() }
    }

    /// Chunks a pipeline rank holds.
    pub fn chunks(&self) -> u16 {
        self.chunks.unwrap_or(self.name.default_chunks())
    }

    /// Whether the order is searched for, so that [`ScheduleSettings::costs`] matter.
    pub fn is_searched(&self) -> bool {
        match self.name {
            ScheduleName::Zb2p => true,
            ScheduleName::Zbv => self.chunks() > 2 || self.memory_cap.is_some() || self.costs.is_some(),
            _ => false,
        }
    }
}

/// What an action computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionKind {
    /// Forward pass, F.
    Forward,
    /// Both gradients, B.
    Backward,
    /// Gradient of the input, I (dx).
    BackwardInput,
    /// Gradient of the weights, W (dw).
    BackwardWeight,
}

impl ActionKind {
    /// The letter of the literature.
    pub const fn letter(self) -> char {
        match self {
            Self::Forward => 'F',
            Self::Backward => 'B',
            Self::BackwardInput => 'I',
            Self::BackwardWeight => 'W',
        }
    }
}

/// One pass of one micro-batch over one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Action {
    /// What it computes.
    pub kind: ActionKind,
    /// Chunk of the rank.
    pub chunk: u16,
    /// Micro-batch, counted over the whole step.
    pub microbatch: u32,
    /// Runs together with the next action of the list (the overlapped pairs of DualPipe).
    pub paired: bool,
}

impl Action {
    /// An action that runs alone.
    pub const fn new(kind: ActionKind, chunk: u16, microbatch: u32) -> Self {
        Self { kind, chunk, microbatch, paired: false }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}.{}", self.kind.letter(), self.chunk, self.microbatch)
    }
}

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
    /// The schedule of `ranks` pipeline ranks and `microbatches` micro-batches.
    ///
    /// # Errors
    /// [`ScheduleError`] when the settings do not fit each other, P or M.
    pub fn new(settings: &ScheduleSettings, ranks: u32, microbatches: u32) -> Result<Self, ScheduleError> {
        if ranks == 0 || microbatches == 0 || settings.chunks() == 0 {
            return Err(ScheduleError::Empty { ranks, microbatches, chunks: settings.chunks() });
        }
        let (shape, actions) = match settings.name {
            ScheduleName::Zbv => (Shape::V, zbv::actions(settings, ranks, microbatches)?),
            ScheduleName::DualPipe => {
                (Shape::Bidirectional, dualpipe::actions(settings, ranks, microbatches)?)
            }
            ScheduleName::DualPipeV => (Shape::V, dualpipe::actions(settings, ranks, microbatches)?),
            ScheduleName::Zb2p => (Shape::Loop, search::zb2p(settings, ranks, microbatches)?),
            _ => (Shape::Loop, flexible::actions(settings, ranks, microbatches)?),
        };
        let placement = Placement { shape, ranks, chunks: settings.chunks() };
        Self::from_actions(settings.name, placement, microbatches, actions)
    }

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

#[cfg(test)]
mod tests;
