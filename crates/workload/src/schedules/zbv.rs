//! The zero-bubble schedule on the V-shaped placement (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory").
//!
//! Closed form for V = 2 and F = I = W, rank r of P: F0 2(P - r) - 1 times; F1 F0 r times; F1 I1 W1 P - r times; then
//! (F0 while there are any) I0 W0 F1 I1 W1 until the forwards are done; I0 I1 r times; I0 W0 P - r times; what is left of
//! W1, then of W0. It is written for n = max(2P - 1, M) micro-batches, and those from M on are left out. No rank idles
//! between its first and its last action; the makespan is 6M + P - 1.
//!
//! With costs or a cap in the settings, or with V > 2 (even; zig-zag placement), the order is searched for (`search`), with this one
//! among the candidates for V = 2.

use super::{Action, ActionKind, Placement, ScheduleError, ScheduleName, ScheduleSettings, Shape, search};

/// The actions of every rank.
pub(super) fn actions(
    settings: &ScheduleSettings,
    ranks: u32,
    microbatches: u32,
) -> Result<Vec<Vec<Action>>, ScheduleError> {
    let chunks = settings.chunks();
    if !chunks.is_multiple_of(2) {
        return Err(ScheduleError::Chunks {
            name: ScheduleName::Zbv,
            found: chunks,
            expected: "an even number of",
            hint: "the last stage must come back to the first rank",
        });
    }
    let cap = settings.memory_cap.unwrap_or(u32::from(chunks) * ranks);
    if cap < u32::from(chunks) {
        return Err(ScheduleError::MemoryCap { cap, chunks });
    }
    let closed = || (0..ranks).map(|rank| order(rank, ranks, microbatches)).collect::<Vec<_>>();
    if chunks == 2 && settings.costs.is_none() && settings.memory_cap.is_none() {
        return Ok(closed());
    }
    let placement = Placement { shape: Shape::V, ranks, chunks };
    let known = if chunks == 2 { vec![closed()] } else { Vec::new() };
    search::best(settings, placement, microbatches, cap, search::Objective::Makespan, known)
}

/// The closed form for one rank.
fn order(rank: u32, ranks: u32, microbatches: u32) -> Vec<Action> {
    let n = microbatches.max(2 * ranks - 1);
    let mut actions = Vec::with_capacity(6 * n as usize);
    let mut counts = [[0u32; 4]; 2];
    let mut push = |kind: ActionKind, chunk: u16| {
        let count = &mut counts[usize::from(chunk)][kind as usize];
        actions.push(Action::new(kind, chunk, *count));
        *count += 1;
        counts
    };
    use ActionKind::{BackwardInput as I, BackwardWeight as W, Forward as F};
    for _ in 0..2 * (ranks - rank) - 1 {
        push(F, 0);
    }
    for _ in 0..rank {
        push(F, 1);
        push(F, 0);
    }
    let mut counted = [[0; 4]; 2];
    for _ in 0..ranks - rank {
        push(F, 1);
        push(I, 1);
        counted = push(W, 1);
    }
    let forwards = |counted: [[u32; 4]; 2], chunk: usize| counted[chunk][F as usize];
    while forwards(counted, 1) < forwards(counted, 0) || forwards(counted, 0) < n {
        if forwards(counted, 0) < n {
            push(F, 0);
        }
        push(I, 0);
        push(W, 0);
        push(F, 1);
        push(I, 1);
        counted = push(W, 1);
    }
    for _ in 0..rank {
        push(I, 0);
        counted = push(I, 1);
    }
    for _ in 0..ranks - rank {
        push(I, 0);
        counted = push(W, 0);
    }
    for chunk in [1u16, 0] {
        let [_, _, inputs, weights] = counted[usize::from(chunk)];
        for _ in weights..inputs {
            push(W, chunk);
        }
    }
    actions.retain(|action| action.microbatch < microbatches);
    actions
}
