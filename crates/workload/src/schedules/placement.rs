//! Which rank holds which stage.
//!
//! *Loop*: chunk v of rank r is stage vP + r. *V*: even chunks run down, odd chunks run back: (v + 1)P - 1 - r, so a turn
//! is a hand-over inside a rank. *Bidirectional* (DualPipe): P stages, chunk 0 of rank r is stage r and serves the first
//! half of the micro-batches, chunk 1 is stage P - 1 - r and serves the second half in the other direction; every stage
//! lives on two ranks.

use std::ops::Range;

/// The rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Round and round.
    Loop,
    /// Down and back.
    V,
    /// Two copies in opposite directions.
    Bidirectional,
}

/// Where the stages of a pipeline are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The rule.
    pub shape: Shape,
    /// Pipeline ranks, P.
    pub ranks: u32,
    /// Chunks a rank, V.
    pub chunks: u16,
}

impl Placement {
    /// Number of different stages.
    pub const fn stages(self) -> u32 {
        match self.shape {
            Shape::Loop | Shape::V => self.ranks * self.chunks as u32,
            Shape::Bidirectional => self.ranks,
        }
    }

    /// Stage of `chunk` on `rank`.
    pub const fn stage(self, rank: u32, chunk: u16) -> u32 {
        let (p, v) = (self.ranks, chunk as u32);
        let backwards = v % 2 == 1;
        match self.shape {
            Shape::V if backwards => (v + 1) * p - 1 - rank,
            Shape::Loop | Shape::V => v * p + rank,
            Shape::Bidirectional if backwards => p - 1 - rank,
            Shape::Bidirectional => rank,
        }
    }

    /// Rank and chunk that hold `stage` for the micro-batches that `chunk` serves.
    const fn holder(self, stage: u32, chunk: u16) -> (u32, u16) {
        let p = self.ranks;
        match self.shape {
            Shape::Bidirectional if chunk == 1 => (p - 1 - stage, 1),
            Shape::Bidirectional => (stage, 0),
            Shape::Loop => (stage % p, (stage / p) as u16),
            Shape::V => {
                let chunk = (stage / p) as u16;
                (if chunk % 2 == 1 { p - 1 - stage % p } else { stage % p }, chunk)
            }
        }
    }

    /// Where the output of a forward goes; `None` after the last stage.
    pub fn next(self, rank: u32, chunk: u16) -> Option<(u32, u16)> {
        let stage = self.stage(rank, chunk) + 1;
        (stage < self.stages()).then(|| self.holder(stage, chunk))
    }

    /// Where the input of a forward comes from; `None` before the first stage.
    pub fn previous(self, rank: u32, chunk: u16) -> Option<(u32, u16)> {
        self.stage(rank, chunk).checked_sub(1).map(|stage| self.holder(stage, chunk))
    }

    /// Every (rank, chunk) that holds `stage`: one, or two when bidirectional.
    pub fn holders(self, stage: u32) -> Vec<(u32, u16)> {
        match self.shape {
            Shape::Bidirectional => vec![self.holder(stage, 0), self.holder(stage, 1)],
            Shape::Loop | Shape::V => vec![self.holder(stage, 0)],
        }
    }

    /// Micro-batches that `chunk` serves, of `total`.
    pub const fn microbatches(self, chunk: u16, total: u32) -> Range<u32> {
        match self.shape {
            Shape::Bidirectional if chunk == 0 => 0..total / 2,
            Shape::Bidirectional => total / 2..total,
            Shape::Loop | Shape::V => 0..total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_invert_stages_and_neighbours_invert_each_other() {
        for shape in [Shape::Loop, Shape::V, Shape::Bidirectional] {
            for (ranks, chunks) in [(4, 2), (6, 2), (1, 2)] {
                let placement = Placement { shape, ranks, chunks };
                for rank in 0..ranks {
                    for chunk in 0..chunks {
                        let stage = placement.stage(rank, chunk);
                        assert!(
                            placement.holders(stage).contains(&(rank, chunk)),
                            "{placement:?} {rank} {chunk}"
                        );
                        if let Some((r, c)) = placement.next(rank, chunk) {
                            assert_eq!(placement.stage(r, c), stage + 1);
                            assert_eq!(placement.previous(r, c), Some((rank, chunk)));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_turns_of_a_v_stay_on_their_rank() {
        let v = Placement { shape: Shape::V, ranks: 4, chunks: 4 };
        assert_eq!((0..4).map(|c| v.stage(1, c)).collect::<Vec<_>>(), [1, 6, 9, 14]);
        assert_eq!(v.next(3, 0), Some((3, 1)));
        assert_eq!(v.next(0, 1), Some((0, 2)));
        assert_eq!(v.next(0, 3), None);
        let wrap = Placement { shape: Shape::Loop, ranks: 4, chunks: 2 };
        assert_eq!(wrap.next(3, 0), Some((0, 1)));
    }
}
