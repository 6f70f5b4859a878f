//! What a scenario says of its schedule.

use windtunnel_kernel::Span;

use super::name::ScheduleName;
use super::timed::Costs;

/// What a scenario says of its schedule; `None` leaves the choice to the schedule.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ScheduleSettings {
    /// Which schedule.
    pub name: ScheduleName,
    /// Chunks a pipeline rank holds, V (1; 2 for `interleaved`, `dorapp`, `zbv`; `dualpipe` and `dualpipev` always hold 2).
    pub chunks: Option<u16>,
    /// Consecutive micro-batches of one stage, N; see [`flexible::default_run_length`](super::flexible::default_run_length).
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
