//! Layers shared out so that all pipeline ranks compute for about as long.
//!
//! A rank takes what its stages' layers take, the embedding and the head among them, over its speed. One layer after the other goes
//! to the rank that would then be done soonest, and there to the stage that has fewest: no other way to share out layers that take
//! equally long has a lower maximum. Inner stages have one layer at least; the first and the last may have none, beside the embedding
//! and the head.

use windtunnel_workload::schedules::Placement;

/// What the parts of a model compute for a micro-batch, in any unit.
pub(super) struct Loads {
    pub layers: Vec<f64>,
    pub embedding: f64,
    pub head: f64,
}

impl Loads {
    /// Of a layer on the mean.
    pub(super) fn layer(&self) -> f64 {
        self.layers.iter().sum::<f64>() / self.layers.len().max(1) as f64
    }
}

/// Layers of each stage at `placement`, whose pipeline ranks have `speeds` (none: all as fast). Where there are fewer layers
/// than inner stages, as many stages have none, and the layout is refused in the words of a run.
pub(super) fn balanced(loads: &Loads, placement: Placement, speeds: &[f64]) -> Vec<u32> {
    let stages = placement.stages() as usize;
    let holders: Vec<Vec<usize>> = (0..stages)
        .map(|stage| placement.holders(stage as u32).iter().map(|&(rank, _)| rank as usize).collect())
        .collect();
    let speed = |rank: usize| speeds.get(rank).copied().unwrap_or(1.0);
    let mut left = loads.layers.len();
    let each = loads.layers.iter().sum::<f64>() / (left.max(1) as f64);
    let mut found = vec![0u32; stages];
    // What each rank has to do, at the speed of its sheet.
    let mut busy = vec![0.0; placement.ranks as usize];
    for (stage, load) in [(0, loads.embedding), (stages - 1, loads.head)] {
        for &rank in &holders[stage] {
            busy[rank] += load;
        }
    }
    let mut give = |stage: usize, found: &mut Vec<u32>, busy: &mut Vec<f64>| {
        if left > 0 {
            left -= 1;
            found[stage] += 1;
            for &rank in &holders[stage] {
                busy[rank] += each;
            }
        }
        left > 0
    };
    for stage in 1..stages.saturating_sub(1) {
        give(stage, &mut found, &mut busy);
    }
    let until = |stage: usize, busy: &[f64]| {
        holders[stage].iter().map(|&rank| (busy[rank] + each) / speed(rank)).fold(0.0, f64::max)
    };
    loop {
        let best = (0..stages).min_by(|&a, &b| {
            until(a, &busy).total_cmp(&until(b, &busy)).then(found[a].cmp(&found[b])).then(a.cmp(&b))
        });
        let Some(stage) = best else { break };
        if !give(stage, &mut found, &mut busy) {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use windtunnel_workload::schedules::Shape;

    use super::*;

    fn loads(layers: usize, embedding: f64, head: f64) -> Loads {
        Loads { layers: vec![1.0; layers], embedding, head }
    }

    fn at(shape: Shape, ranks: u32, chunks: u16) -> Placement {
        Placement { shape, ranks, chunks }
    }

    #[test]
    fn layers_follow_the_speeds() {
        let plain = |speeds: &[f64], ranks| balanced(&loads(32, 0.0, 0.0), at(Shape::Loop, ranks, 1), speeds);
        assert_eq!(plain(&[], 4), [8, 8, 8, 8]);
        assert_eq!(plain(&[1.0, 1.0, 0.6, 0.6], 4), [10, 10, 6, 6]);
        assert_eq!(plain(&[1.0, 1.0 / 3.0], 2), [24, 8]);
        // By rank and not by stage: the chunks of a slow rank share what it has.
        let chunked = balanced(&loads(32, 0.0, 0.0), at(Shape::Loop, 2, 2), &[1.0, 1.0 / 3.0]);
        assert_eq!(chunked, [12, 4, 12, 4]);
        // The ends of a V are on one rank, those of two directions on both.
        let v = balanced(&loads(32, 0.0, 0.0), at(Shape::V, 2, 2), &[1.0, 1.0 / 3.0]);
        assert_eq!(v, [12, 4, 4, 12]);
        let both = balanced(&loads(32, 0.0, 0.0), at(Shape::Bidirectional, 2, 2), &[1.0, 0.5]);
        assert_eq!(both.iter().sum::<u32>(), 32);
    }

    #[test]
    fn the_embedding_and_the_head_count() {
        let shared = balanced(&loads(30, 0.0, 2.0), at(Shape::Loop, 4, 1), &[]);
        assert_eq!(shared, [8, 8, 8, 6]);
        // A head that is longer than all else leaves its stage without layers.
        assert_eq!(balanced(&loads(6, 0.0, 9.0), at(Shape::Loop, 3, 1), &[]), [3, 3, 0]);
        // Of no two ways is another better: all ways of 7 layers over three ranks of different speeds.
        let paces = [1.0, 0.7, 0.45];
        let longest = |layers: &[u32]| {
            let of =
                |(rank, &n): (usize, &u32)| (f64::from(n) + if rank == 2 { 0.8 } else { 0.0 }) / paces[rank];
            layers.iter().enumerate().map(of).fold(0.0, f64::max)
        };
        let found = balanced(&loads(7, 0.0, 0.8), at(Shape::Loop, 3, 1), &paces);
        let ways = (0..=7).flat_map(|a| (1..=7 - a).map(move |b| [a, b, 7 - a - b]));
        assert!(ways.into_iter().all(|way| longest(&way) >= longest(&found) - 1e-12), "{found:?}");
    }

    #[test]
    fn fewer_layers_than_stages_leave_some_without() {
        assert_eq!(balanced(&loads(2, 0.0, 0.0), at(Shape::Loop, 6, 1), &[]), [0, 1, 1, 0, 0, 0]);
    }
}
