//! What is particular about the passes of a rank: which gather, which reduce, and how many are alive at once.

use crate::schedules::{Action, ActionKind};

/// Parameters gathered since the start of the step bound this pass.
pub(super) const BOUND: u16 = 2;
/// Gradients leave.
pub(super) const REDUCES: u16 = 4;

/// When parameters are gathered that no pass has kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gathering {
    /// Never, or before the step begins.
    None,
    /// In the first pass over each chunk.
    Once,
    /// In the first of a run of passes of one kind over a chunk.
    EachRun,
    /// In every pass.
    EachPass,
}

/// After which passes gradients leave while others go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reducing {
    /// None: after the step.
    Late,
    /// The last over each chunk.
    Last,
    /// All that complete them.
    Every,
}

/// What is particular about each action of a rank: its flags, and whether it gathers.
pub(super) fn marks(actions: &[Action], gathering: Gathering, reducing: Reducing) -> Vec<(u16, bool)> {
    let chunks = actions.iter().map(|action| usize::from(action.chunk) + 1).max().unwrap_or(0);
    let mut seen = vec![false; chunks];
    let mut last = vec![usize::MAX; chunks];
    let completes = |kind| matches!(kind, ActionKind::Backward | ActionKind::BackwardWeight);
    for (index, action) in actions.iter().enumerate().filter(|(_, action)| completes(action.kind)) {
        last[usize::from(action.chunk)] = index;
    }
    let mut runs = [None; 2];
    actions
        .iter()
        .enumerate()
        .map(|(index, action)| {
            let chunk = usize::from(action.chunk);
            let first = action.kind == ActionKind::Forward && !std::mem::replace(&mut seen[chunk], true);
            let begins = action.kind != ActionKind::BackwardWeight
                && runs[usize::from(action.kind != ActionKind::Forward)].replace(chunk) != Some(chunk);
            let gathers = action.kind != ActionKind::BackwardWeight
                && match gathering {
                    Gathering::None => false,
                    Gathering::Once => first,
                    Gathering::EachRun => begins,
                    Gathering::EachPass => true,
                };
            let reduces = completes(action.kind)
                && match reducing {
                    Reducing::Late => false,
                    Reducing::Last => last[chunk] == index,
                    Reducing::Every => true,
                };
            let bound = if first { BOUND } else { 0 };
            (bound | if reduces { REDUCES } else { 0 }, gathers)
        })
        .collect()
}

/// Chunks in the order of their first pass.
pub(super) fn entered(actions: &[Action]) -> Vec<u32> {
    let mut chunks = Vec::new();
    for action in actions {
        if !chunks.contains(&u32::from(action.chunk)) {
            chunks.push(u32::from(action.chunk));
        }
    }
    chunks
}

/// The greatest numbers of micro-batches alive, two for each chunk: from the start of their forward pass to the end of their input
/// gradient, and from there to the end of their weight gradient.
pub(super) fn peaks(actions: &[Action], chunks: usize) -> Vec<Vec<u32>> {
    let mut found: Vec<Vec<u32>> = Vec::new();
    let mut now = vec![0u32; 2 * chunks];
    let mut ended: Vec<Action> = Vec::new();
    for action in actions {
        match action.kind {
            ActionKind::Forward => {
                now[2 * usize::from(action.chunk)] += 1;
                if !found.iter().any(|known| known.iter().zip(&now).all(|(known, now)| known >= now)) {
                    found.retain(|known| known.iter().zip(&now).any(|(known, now)| known > now));
                    found.push(now.clone());
                }
            }
            _ => ended.push(*action),
        }
        if !action.paired {
            for ended in ended.drain(..) {
                let whole = 2 * usize::from(ended.chunk);
                match ended.kind {
                    ActionKind::BackwardInput => {
                        now[whole] -= 1;
                        now[whole + 1] += 1;
                    }
                    ActionKind::BackwardWeight => now[whole + 1] -= 1,
                    _ => now[whole] -= 1,
                }
            }
        }
    }
    found
}
