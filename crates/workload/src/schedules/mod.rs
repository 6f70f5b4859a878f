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

mod action;
pub mod dualpipe;
pub mod error;
pub mod flexible;
mod greedy;
mod name;
pub mod placement;
mod refill;
mod schedule;
mod search;
mod settings;
pub mod timed;
pub mod zbv;

pub use action::{Action, ActionKind};
pub use error::ScheduleError;
pub use name::ScheduleName;
pub use placement::{Placement, Shape};
pub use schedule::Schedule;
pub use settings::ScheduleSettings;
pub use timed::{Costs, Timeline};

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
}

#[cfg(test)]
mod tests;
