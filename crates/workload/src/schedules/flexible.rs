//! The loop family: GPipe, 1F1B, interleaved and flexible, ZB-H1, ZB-H2, ZB1P and DoraPP.
//!
//! With run length N, forwards go in groups of N micro-batches: for each group, for each chunk, for each micro-batch of
//! the group; backwards the same with chunks descending. Rank r runs (V - 1)N + w(P - 1 - r) forwards ahead (w = 2
//! interleaved, 1 otherwise), at most VM, then one forward and one backward in turn, then drains. N = P is depth first,
//! N = M breadth first (Grattafori et al. 2024 §3.3.2; Megatron-LM's `microbatch_group_size_per_vp_stage` is N).
//!
//! The split family runs the input gradient where the backward stood; a weight gradient follows each input gradient once
//! r of them have passed, first in first out, and the rest at the end (Qi et al. 2024; torch's `InterleavedZeroBubble`).
//!
//! ZB-H2 fills what 1F1B idles while the pipeline fills with forwards (w = 2) and what it idles while the pipeline drains with
//! weight gradients (each follows once 2r input gradients have passed): for F = I = W and M >= 2P - 1 no rank idles between its first and its
//! last pass, and each holds 2P - 1 activations (Qi et al. 2024 §2.2, figure 3).
//!
//! DoraPP has no public text beyond the Scale-Across Explorer paper §2.2: it extends the flexible schedule, splits the
//! backward, wraps around, and runs one stage for several micro-batches in a row. Read here as ZB1P with N >= P free,
//! w and the delay of weight gradients free. This reading is timed in the tests.

use super::{Action, ActionKind, ScheduleError, ScheduleName, ScheduleSettings};

/// The run length when the settings name none: P if that is legal, else M over max(1, M / P) rounds (torch's rule) if it
/// divides, else M.
pub fn default_run_length(ranks: u32, microbatches: u32) -> u32 {
    let rounds = (microbatches / ranks).max(1);
    if microbatches >= ranks && fits(ranks, microbatches, ranks) {
        ranks
    } else if microbatches.is_multiple_of(rounds) {
        microbatches / rounds
    } else {
        microbatches
    }
}

/// Whether the last group is empty, whole, or at least as long as the pipeline.
fn fits(ranks: u32, microbatches: u32, run_length: u32) -> bool {
    let rest = microbatches % run_length;
    rest == 0 || rest >= ranks
}

fn check(settings: &ScheduleSettings, ranks: u32, microbatches: u32) -> Result<u32, ScheduleError> {
    let (name, chunks) = (settings.name, settings.chunks());
    if matches!(name, ScheduleName::OneForwardOneBackward | ScheduleName::ZbH1 | ScheduleName::ZbH2)
        && chunks != 1
    {
        let hint = if name.splits_backward() {
            "`zb1p` takes several chunks"
        } else {
            "`interleaved` takes several chunks"
        };
        return Err(ScheduleError::Chunks { name, found: chunks, expected: "1", hint });
    }
    if name == ScheduleName::Gpipe {
        return Ok(microbatches);
    }
    if chunks == 1 {
        // With one chunk every run length gives the same order.
        return Ok(1);
    }
    let run_length = settings.run_length.unwrap_or_else(|| default_run_length(ranks, microbatches));
    let refuse =
        |reason, hint| Err(ScheduleError::RunLength { run_length, ranks, microbatches, reason, hint });
    if run_length == 0 || run_length > microbatches {
        return refuse(
            "it is not between 1 and the number of micro-batches",
            format!("try {}", default_run_length(ranks, microbatches)),
        );
    }
    if run_length < ranks && run_length != microbatches {
        return refuse(
            "a run shorter than the pipeline stalls at every wrap",
            format!("use at least {ranks}, or all {microbatches} micro-batches"),
        );
    }
    if !fits(ranks, microbatches, run_length) {
        return refuse(
            "the last group is shorter than the pipeline",
            format!(
                "the remainder of {microbatches} by the run length must be 0 or at least {ranks}, as with {}",
                default_run_length(ranks, microbatches)
            ),
        );
    }
    Ok(run_length)
}

/// (chunk, micro-batch) in run order, chunks ascending or descending.
fn passes(chunks: u16, microbatches: u32, run_length: u32, descending: bool) -> Vec<(u16, u32)> {
    let mut passes = Vec::with_capacity(usize::from(chunks) * microbatches as usize);
    let mut first = 0;
    while first < microbatches {
        let group = first..(first + run_length).min(microbatches);
        for position in 0..chunks {
            let chunk = if descending { chunks - 1 - position } else { position };
            passes.extend(group.clone().map(|microbatch| (chunk, microbatch)));
        }
        first = group.end;
    }
    passes
}

/// The actions of every rank.
pub(super) fn actions(
    settings: &ScheduleSettings,
    ranks: u32,
    microbatches: u32,
) -> Result<Vec<Vec<Action>>, ScheduleError> {
    let wide = settings.name == ScheduleName::ZbH2;
    delayed(settings, ranks, microbatches, |rank| {
        settings.w_delay.unwrap_or(if wide { 2 * rank } else { rank })
    })
}

/// The actions of every rank, with `delay(rank)` input gradients before the first weight gradient.
pub(super) fn delayed(
    settings: &ScheduleSettings,
    ranks: u32,
    microbatches: u32,
    delay: impl Fn(u32) -> u32,
) -> Result<Vec<Vec<Action>>, ScheduleError> {
    let run_length = check(settings, ranks, microbatches)?;
    let chunks = settings.chunks();
    let split = settings.name.splits_backward();
    let forwards = passes(chunks, microbatches, run_length, false);
    let backwards = passes(chunks, microbatches, run_length, true);
    let factor = settings.warm_up.unwrap_or(match settings.name {
        ScheduleName::Interleaved if chunks > 1 => 2,
        ScheduleName::ZbH2 => 2,
        _ => 1,
    });
    let order = |rank: u32| {
        let ahead = match settings.name {
            ScheduleName::Gpipe => forwards.len() as u64,
            _ => {
                u64::from(chunks - 1) * u64::from(run_length)
                    + u64::from(factor) * u64::from(ranks - 1 - rank)
            }
        };
        let ahead = ahead.min(forwards.len() as u64) as usize;
        let delay = delay(rank) as usize;
        let forward = |&(chunk, microbatch): &(u16, u32)| Action::new(ActionKind::Forward, chunk, microbatch);
        let mut actions: Vec<Action> = Vec::with_capacity(forwards.len() * if split { 3 } else { 2 });
        actions.extend(forwards[..ahead].iter().map(forward));
        let weight = |index: usize| {
            let (chunk, microbatch) = backwards[index];
            Action::new(ActionKind::BackwardWeight, chunk, microbatch)
        };
        for (index, &(chunk, microbatch)) in backwards.iter().enumerate() {
            actions.extend(forwards.get(ahead + index).map(forward));
            let kind = if split { ActionKind::BackwardInput } else { ActionKind::Backward };
            actions.push(Action::new(kind, chunk, microbatch));
            if split && index >= delay {
                actions.push(weight(index - delay));
            }
        }
        if split {
            actions.extend((backwards.len().saturating_sub(delay)..backwards.len()).map(weight));
        }
        actions
    };
    Ok((0..ranks).map(order).collect())
}
