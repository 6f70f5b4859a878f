//! Ranks, coordinates and groups.

use rustc_hash::FxHashMap;
use windtunnel_kernel::RankId;

use super::{Axis, Layout};
use crate::collectives::neighbours;
use crate::schedules::{Placement, Shape};

/// Coordinates of a rank, by [`Axis::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Coordinates {
    /// Position in the tensor-parallel group.
    pub tp: u32,
    /// Position in the context-parallel group.
    pub cp: u32,
    /// Position in the expert-parallel group.
    pub ep: u32,
    /// Pipeline rank.
    pub pp: u32,
    /// Position in the data-parallel group.
    pub dp: u32,
}

/// The mixed-radix numbering of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    degrees: [u32; 5],
    order: [Axis; 5],
}

impl Grid {
    /// The numbering of `layout`.
    pub fn new(layout: &Layout) -> Self {
        Self { degrees: Axis::ALL.map(|axis| layout.degree(axis)), order: layout.order }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.degrees.iter().product()
    }

    /// Coordinates of `rank`.
    pub fn coordinates(&self, rank: RankId) -> Coordinates {
        let mut rest = rank.0;
        let mut at = [0; 5];
        for axis in self.order {
            let degree = self.degrees[axis as usize];
            at[axis as usize] = rest % degree;
            rest /= degree;
        }
        let [tp, cp, ep, pp, dp] = at;
        Coordinates { tp, cp, ep, pp, dp }
    }

    /// Rank at `coordinates`.
    pub fn rank(&self, coordinates: Coordinates) -> RankId {
        let Coordinates { tp, cp, ep, pp, dp } = coordinates;
        let at = [tp, cp, ep, pp, dp];
        let rank = self
            .order
            .iter()
            .rev()
            .fold(0, |rank, &axis| rank * self.degrees[axis as usize] + at[axis as usize]);
        RankId(rank)
    }
}

/// What a communicator is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Tensor-parallel group.
    Tp,
    /// Context-parallel group.
    Cp,
    /// Expert-parallel group.
    Ep,
    /// The ranks of one pipeline.
    Pp,
    /// All ranks that hold the same dense parameters.
    Data,
    /// Ranks over which dense parameters are sharded. Where stages live on two pipeline ranks (two directions), ranks p and
    /// P - 1 - p share stages p and P - 1 - p and have a communicator for each: half 0 for the stage below P / 2, half 1
    /// for the other. Elsewhere the half is 0.
    Shard(u16),
    /// The same for expert parameters.
    ExpertShard(u16),
    /// Ranks that hold the same shard in different replicas.
    Replicate,
    /// First and last stage of a pipeline.
    Tied,
    /// Everybody.
    World,
}

impl Role {
    /// The name of its communicators.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::Cp => "cp",
            Self::Ep => "ep",
            Self::Pp => "pp",
            Self::Data => "data",
            Self::Shard(_) => "dp",
            Self::ExpertShard(_) => "expert-dp",
            Self::Replicate => "replicate",
            Self::Tied => "tied",
            Self::World => "world",
        }
    }

    /// Ranks of equal key form a group; a rank without a key is in none.
    fn key(self, at: Coordinates, layout: &Layout, placement: Placement) -> Option<[u32; 4]> {
        let Coordinates { tp, cp, ep, pp, dp } = at;
        let per_replica = layout.dp / layout.replicate;
        let holders = if placement.shape == Shape::Bidirectional { pp.min(layout.pp - 1 - pp) } else { pp };
        Some(match self {
            Self::Tp => [cp, ep, pp, dp],
            Self::Cp => [tp, ep, pp, dp],
            Self::Ep => [tp, cp, pp, dp],
            Self::Pp => [tp, cp, ep, dp],
            Self::Data => [tp, pp, 0, 0],
            Self::Shard(_) => [tp, holders, dp / per_replica, 0],
            Self::ExpertShard(_) => [tp, holders, dp / per_replica, ep],
            Self::Replicate => [tp, pp, cp * layout.ep + ep, dp % per_replica],
            Self::Tied => {
                let ends = tied_ranks(placement)?;
                if !ends.contains(&pp) {
                    return None;
                }
                [tp, cp, ep, dp]
            }
            Self::World => [0; 4],
        })
    }

    /// Members of a group.
    pub fn size(self, layout: &Layout, placement: Placement) -> u32 {
        let twice = if placement.shape == Shape::Bidirectional { 2 } else { 1 };
        match self {
            Self::Tp => layout.tp,
            Self::Cp => layout.cp,
            Self::Ep => layout.ep,
            Self::Pp => layout.pp,
            Self::Data => layout.cp * layout.ep * layout.dp,
            Self::Shard(_) => twice * layout.cp * layout.ep * layout.dp / layout.replicate,
            Self::ExpertShard(_) => twice * layout.cp * layout.dp / layout.replicate,
            Self::Replicate => layout.replicate,
            Self::Tied => tied_ranks(placement).map_or(1, |_| 2),
            Self::World => layout.tp * layout.cp * layout.ep * layout.pp * layout.dp,
        }
    }
}

/// Pipeline ranks of the first and the last stage if they are two; a V has both on one rank, two directions have both on
/// both.
pub(super) fn tied_ranks(placement: Placement) -> Option<[u32; 2]> {
    if placement.shape == Shape::Bidirectional {
        return None;
    }
    let last = placement.holders(placement.stages() - 1)[0].0;
    (last != 0).then_some([0, last])
}

/// The groups of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// What they are for.
    pub role: Role,
    /// Members of each group, by rank.
    pub members: Vec<Vec<RankId>>,
    /// Group and position of each rank.
    pub place: Vec<Option<(u32, u32)>>,
    /// Members of one scale-up domain that stand next to each other in every group.
    pub domain: u32,
}

impl Groups {
    /// The groups of `role`, numbered by their lowest rank.
    pub fn new(role: Role, layout: &Layout, grid: &Grid, placement: Placement) -> Self {
        let mut groups = Self { role, members: Vec::new(), place: Vec::new(), domain: 1 };
        let mut known: FxHashMap<[u32; 4], u32> = FxHashMap::default();
        for rank in (0..grid.ranks()).map(RankId) {
            let place = role.key(grid.coordinates(rank), layout, placement).map(|key| {
                let group = *known.entry(key).or_insert_with(|| {
                    groups.members.push(Vec::with_capacity(role.size(layout, placement) as usize));
                    groups.members.len() as u32 - 1
                });
                let members = &mut groups.members[group as usize];
                members.push(rank);
                (group, members.len() as u32 - 1)
            });
            groups.place.push(place);
        }
        groups.domain = neighbours(groups.members.iter().map(Vec::as_slice), layout.domain);
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout { tp: 4, cp: 2, ep: 2, pp: 3, dp: 4, domain: 8, ..Layout::default() }
    }

    const LOOP: Placement = Placement { shape: Shape::Loop, ranks: 3, chunks: 1 };

    #[test]
    fn ranks_and_coordinates_invert_each_other_in_any_order() {
        for order in [
            [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Dp, Axis::Pp],
            [Axis::Pp, Axis::Dp, Axis::Tp, Axis::Ep, Axis::Cp],
        ] {
            let grid = Grid::new(&Layout { order, ..layout() });
            assert_eq!(grid.ranks(), 192);
            for rank in (0..192).map(RankId) {
                assert_eq!(grid.rank(grid.coordinates(rank)), rank);
            }
        }
        let grid = Grid::new(&layout());
        // tp fastest, pp slowest.
        assert_eq!(grid.coordinates(RankId(1)), Coordinates { tp: 1, cp: 0, ep: 0, pp: 0, dp: 0 });
        assert_eq!(grid.coordinates(RankId(64)), Coordinates { tp: 0, cp: 0, ep: 0, pp: 1, dp: 0 });
    }

    #[test]
    fn groups_have_the_size_that_their_role_says() {
        let two_ways = Placement { shape: Shape::Bidirectional, ranks: 4, chunks: 2 };
        for placement in [LOOP, two_ways] {
            let layout = Layout { pp: placement.ranks, replicate: 2, zero: 1, ..layout() };
            let grid = Grid::new(&layout);
            for role in [
                Role::Tp,
                Role::Cp,
                Role::Ep,
                Role::Pp,
                Role::Data,
                Role::Shard(0),
                Role::ExpertShard(0),
                Role::Replicate,
                Role::Tied,
                Role::World,
            ] {
                let groups = Groups::new(role, &layout, &grid, placement);
                let size = role.size(&layout, placement) as usize;
                assert!(groups.members.iter().all(|members| members.len() == size), "{role:?}");
                for (rank, place) in groups.place.iter().enumerate() {
                    if let Some((group, index)) = place {
                        assert_eq!(groups.members[*group as usize][*index as usize], RankId(rank as u32));
                    }
                }
            }
        }
    }

    #[test]
    fn members_of_a_domain_stand_next_to_each_other() {
        let grid = Grid::new(&layout());
        let domain = |role| Groups::new(role, &layout(), &grid, LOOP).domain;
        // 8 GPUs hold tp 4 × cp 2.
        assert_eq!((domain(Role::Tp), domain(Role::Cp), domain(Role::Ep), domain(Role::Data)), (4, 2, 1, 2));
        let dp_in =
            Layout { order: [Axis::Dp, Axis::Tp, Axis::Cp, Axis::Ep, Axis::Pp], domain: 8, ..layout() };
        let groups = Groups::new(Role::ExpertShard(0), &dp_in, &Grid::new(&dp_in), LOOP);
        assert_eq!(groups.domain, 4);
    }

    #[test]
    fn with_dp_outermost_replicas_are_the_halves_of_the_machine() {
        let layout = Layout {
            order: [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Pp, Axis::Dp],
            replicate: 2,
            zero: 3,
            ..layout()
        };
        let groups = Groups::new(Role::Shard(0), &layout, &Grid::new(&layout), LOOP);
        for members in &groups.members {
            assert!(members.iter().all(|rank| (rank.0 < 96) == (members[0].0 < 96)));
        }
    }
}
