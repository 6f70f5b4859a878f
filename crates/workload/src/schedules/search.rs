//! Orders that know their costs: the best of many candidates by timed execution.
//!
//! Candidates are orders known beforehand (closed forms), those of list scheduling under every policy (`greedy`), and the better of
//! these with their weight gradients placed anew (`refill`). Those that hold more live chunk activations than the cap on some rank
//! fall out; of the others the shortest by [`timed::execute`] wins, the earliest candidate on a tie. It is a heuristic, as that of Qi et al.
//! (2024, §3.1) is, and never worse than what is known beforehand. Failure mode: a cap that no candidate keeps.

use super::greedy::{Room, WHOLE};
use super::refill::Filling;
use super::{
    Action, Costs, Placement, Schedule, ScheduleError, ScheduleName, ScheduleSettings, Shape, flexible,
    greedy, refill, timed,
};

/// Delays of weight gradients that [`zb2p`] tries, in halves of a pass per rank of distance.
const DELAYS: u32 = 12;

/// Orders of the first round whose weight gradients are placed anew.
const REFILLED: usize = 4;

/// What the best order makes shortest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objective {
    /// The time from the first pass of all ranks to the last: what counts where all ranks meet after a step.
    Makespan,
    /// The longest time from a rank's first pass to its last: what counts where a rank goes on as soon as it is done, as those of
    /// Qi et al. do, who check the norm of gradients afterwards (2024, §4).
    Span,
}

/// The order for `placement` that takes least with the costs and latency of `settings` and holds at most `cap` live chunk activations a
/// rank; `known` are further candidates.
///
/// # Errors
/// [`ScheduleError::MemoryCap`] when no candidate keeps the cap.
pub(super) fn best(
    settings: &ScheduleSettings,
    placement: Placement,
    microbatches: u32,
    cap: u32,
    objective: Objective,
    known: Vec<Vec<Vec<Action>>>,
) -> Result<Vec<Vec<Action>>, ScheduleError> {
    let costs = settings.costs.unwrap_or(Costs::UNIT);
    let kept = (f64::from(WHOLE) * settings.kept.unwrap_or(1.0)).round() as u32;
    let room = Room { cap, kept: kept.min(WHOLE) };
    // What it takes: from first to last pass of the whole pipeline, or of the rank that takes longest.
    let taken = |schedule: &Schedule| {
        let timeline = timed::execute(schedule, |_| costs, |_, _| settings.latency)?;
        let span = (0..placement.ranks).map(|rank| timeline.span(rank).ps()).max().unwrap_or(0);
        Ok(match objective {
            Objective::Makespan => (timeline.makespan.ps(), span),
            Objective::Span => (span, timeline.makespan.ps()),
        })
    };
    let mut found: Vec<((u64, u64), Schedule)> = Vec::new();
    let listed = greedy::Policy::all()
        .filter_map(|policy| greedy::actions(placement, microbatches, costs, settings.latency, room, policy));
    for actions in known.into_iter().chain(listed) {
        let schedule = Schedule::from_actions(settings.name, placement, microbatches, actions)?;
        found.push((taken(&schedule)?, schedule));
    }
    found.sort_by_key(|(taken, _)| *taken);
    let bases: Vec<Schedule> = found.iter().take(REFILLED).map(|(_, schedule)| schedule.clone()).collect();
    for base in &bases {
        for filling in Filling::all(room) {
            if let Some(actions) = refill::actions(base, costs, settings.latency, filling) {
                let refilled = base.with(actions);
                found.push((taken(&refilled)?, refilled));
            }
        }
    }
    let chunks = usize::from(placement.chunks);
    let (whole, kept) = (vec![u64::from(WHOLE); chunks], vec![u64::from(room.kept); chunks]);
    let most = u64::from(WHOLE) * u64::from(cap);
    let fits = |schedule: &Schedule| {
        (0..placement.ranks).all(|rank| schedule.peak_activation(rank, &whole, &kept) <= most)
    };
    found.retain(|(_, schedule)| fits(schedule));
    let best = found.into_iter().min_by_key(|(taken, _)| *taken);
    best.map(|(_, schedule)| schedule.into_actions())
        .ok_or(ScheduleError::MemoryCap { cap, chunks: placement.chunks })
}

/// The actions of every rank under ZB-2p, ZB-1p being the same with a cap of P: ZB-H1 and ZB-H2 are among the candidates.
///
/// # Errors
/// [`ScheduleError`] for other than one chunk a rank, or a cap of 0.
pub(super) fn zb2p(
    settings: &ScheduleSettings,
    ranks: u32,
    microbatches: u32,
) -> Result<Vec<Vec<Action>>, ScheduleError> {
    let name = ScheduleName::Zb2p;
    if settings.chunks() != 1 {
        return Err(ScheduleError::Chunks {
            name,
            found: settings.chunks(),
            expected: "1",
            hint: "`zb1p` takes several chunks",
        });
    }
    let cap = settings.memory_cap.unwrap_or(2 * ranks);
    // Weight gradients delayed by x per rank of distance from the first: 1 is ZB-H1, 2 with twice the forwards ahead ZB-H2.
    let known = [ScheduleName::ZbH1, ScheduleName::ZbH2].into_iter().flat_map(|name| {
        (1..=DELAYS).map(move |half| {
            let with = ScheduleSettings { name, ..settings.clone() };
            flexible::delayed(&with, ranks, microbatches, |rank| half * rank / 2)
        })
    });
    let known = known.collect::<Result<Vec<_>, _>>()?;
    best(
        settings,
        Placement { shape: Shape::Loop, ranks, chunks: 1 },
        microbatches,
        cap,
        Objective::Span,
        known,
    )
}
