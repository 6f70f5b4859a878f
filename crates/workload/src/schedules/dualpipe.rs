//! DualPipe (DeepSeek-V3 technical report §3.2.1): two directions, each with half of the micro-batches; and DualPipeV, which is one half
//! of its ranks with all micro-batches going down and back (Qi et al. 2025, "DualPipe could be better without the Dual").
//!
//! Rank r's phase 0 is the direction that enters at its own half of the pipeline. With h = min(r, P - 1 - r), H = P / 2
//! and c = M / 2 the eight steps are: F0 2(H - h - 1) times; F0 F1 h + 1 times; I1 W1 F1 H - h - 1 times; the overlapped
//! pairs (F0 B1), (F1 B0) c - P + h + 1 times; B1 (F1 B0) H - h - 1 times; B1 B0 h + 1 times, the second half split;
//! W I0 H - h - 1 times; W h + 1 times. Weight gradients are taken first in, first out. The first main pair of the
//! two middle ranks runs apart, since nothing could hide their exchange.
//!
//! DualPipeV is the same with h = r, H = P and c = M on the V-shaped placement: what a direction hands to the other half of the ranks a
//! rank hands to its other chunk.
//!
//! Bubble per rank: (H - 1)(F&B + B - 3W), F&B being the time of an overlapped pair; exact for F = I = W (timed in the
//! tests), a few percent off where they differ.

use std::collections::VecDeque;

use super::{Action, ActionKind, ScheduleError, ScheduleName, ScheduleSettings};

struct Rank {
    swapped: bool,
    /// First micro-batch of chunk 1.
    second: u32,
    forwards: [u32; 2],
    backwards: [u32; 2],
    weights: VecDeque<(u16, u32)>,
    actions: Vec<Action>,
}

impl Rank {
    /// Chunk of `phase` and its next micro-batch.
    fn take(swapped: bool, second: u32, counts: &mut [u32; 2], phase: usize) -> (u16, u32) {
        let chunk = phase ^ usize::from(swapped);
        let microbatch = counts[chunk] + chunk as u32 * second;
        counts[chunk] += 1;
        (chunk as u16, microbatch)
    }

    fn forward(&mut self, phase: usize, paired: bool) {
        let (chunk, microbatch) = Self::take(self.swapped, self.second, &mut self.forwards, phase);
        self.actions.push(Action { paired, ..Action::new(ActionKind::Forward, chunk, microbatch) });
    }

    fn backward(&mut self, phase: usize, split: bool) {
        let (chunk, microbatch) = Self::take(self.swapped, self.second, &mut self.backwards, phase);
        let kind = if split {
            self.weights.push_back((chunk, microbatch));
            ActionKind::BackwardInput
        } else {
            ActionKind::Backward
        };
        self.actions.push(Action::new(kind, chunk, microbatch));
    }

    fn weight(&mut self) {
        let (chunk, microbatch) =
            self.weights.pop_front().expect("the steps take as many weights as they split");
        self.actions.push(Action::new(ActionKind::BackwardWeight, chunk, microbatch));
    }

    fn pair(&mut self, forward: usize, backward: usize) {
        self.forward(forward, true);
        self.backward(backward, false);
    }
}

/// The actions of every rank.
pub(super) fn actions(
    settings: &ScheduleSettings,
    ranks: u32,
    microbatches: u32,
) -> Result<Vec<Vec<Action>>, ScheduleError> {
    let name = settings.name;
    let both = name == ScheduleName::DualPipe;
    if settings.chunks() != 2 {
        return Err(ScheduleError::Chunks {
            name,
            found: settings.chunks(),
            expected: "2",
            hint: if both {
                "the two chunks are the two directions; leave `chunks` out"
            } else {
                "the two chunks are the way down and the way back; leave `chunks` out"
            },
        });
    }
    if both && !ranks.is_multiple_of(2) {
        return Err(ScheduleError::OddRanks { name, found: ranks });
    }
    if microbatches < 2 * ranks || both && !microbatches.is_multiple_of(2) {
        let fewer = if both { (microbatches / 4 * 2).max(2) } else { (microbatches / 2).max(1) };
        return Err(ScheduleError::Microbatches {
            name,
            ranks,
            found: microbatches,
            expected: format!("{}at least {}", if both { "an even number of " } else { "" }, 2 * ranks),
            hint: format!("use {fewer} or fewer pipeline ranks, or at least {} micro-batches", 2 * ranks),
        });
    }
    let order = |rank: u32| {
        if both {
            let half = microbatches / 2;
            Half { inner: rank.min(ranks - 1 - rank), depth: ranks / 2, microbatches: half }
                .order(rank >= ranks / 2, half)
        } else {
            Half { inner: rank, depth: ranks, microbatches }.order(false, 0)
        }
    };
    Ok((0..ranks).map(order).collect())
}

/// One rank of a half pipeline that both directions pass: the whole of DualPipeV, half of DualPipe.
struct Half {
    /// Ranks between this one and where a direction enters, h.
    inner: u32,
    /// Ranks of the half, H.
    depth: u32,
    /// Micro-batches of a direction, c.
    microbatches: u32,
}

impl Half {
    /// Its actions; chunks change their parts if `swapped`, and those of chunk 1 begin with micro-batch `second`.
    fn order(&self, swapped: bool, second: u32) -> Vec<Action> {
        let (inner, outer) = (self.inner, self.depth - self.inner - 1);
        let mut rank = Rank {
            swapped,
            second,
            forwards: [0; 2],
            backwards: [0; 2],
            weights: VecDeque::new(),
            actions: Vec::with_capacity(6 * self.microbatches as usize),
        };
        for _ in 0..2 * outer {
            rank.forward(0, false);
        }
        for _ in 0..=inner {
            rank.forward(0, false);
            rank.forward(1, false);
        }
        for _ in 0..outer {
            rank.backward(1, true);
            rank.weight();
            rank.forward(1, false);
        }
        for round in 0..self.microbatches + inner + 1 - 2 * self.depth {
            if round == 0 && outer == 0 {
                rank.forward(0, false);
                rank.backward(1, false);
            } else {
                rank.pair(0, 1);
            }
            rank.pair(1, 0);
        }
        for _ in 0..outer {
            rank.backward(1, false);
            rank.pair(1, 0);
        }
        // Of the 2(h + 1) backwards here the last h + 1 are split.
        for position in 0..2 * (inner + 1) {
            rank.backward(usize::from(position % 2 == 0), position > inner);
        }
        for _ in 0..outer {
            rank.weight();
            rank.backward(0, true);
        }
        for _ in 0..=inner {
            rank.weight();
        }
        rank.actions
    }
}
