//! Places in a group, and the group of another rank that is like it.

use rustc_hash::FxHashMap;

/// The members of a group, so that a rank's place is found at once.
pub(super) enum Shape {
    /// From the first on, with a stride.
    Regular { first: u32, stride: u32, size: u32 },
    /// Any: places by rank.
    Other(FxHashMap<u32, u32>),
}

impl Shape {
    pub(super) fn of(ranks: &[u32]) -> Self {
        let first = ranks.first().copied().unwrap_or(0);
        let stride = ranks.get(1).map_or(1, |second| second.wrapping_sub(first));
        let regular = stride > 0
            && (0u32..).zip(ranks).all(|(at, &rank)| {
                Some(rank) == at.checked_mul(stride).and_then(|far| first.checked_add(far))
            });
        if regular {
            return Self::Regular { first, stride, size: ranks.len() as u32 };
        }
        Self::Other(ranks.iter().copied().zip(0..).collect())
    }

    /// The place of a member.
    pub(super) fn place(&self, rank: u32) -> Option<u32> {
        match self {
            Self::Regular { first, stride, size } => {
                let far = rank.checked_sub(*first)?;
                (far % stride == 0 && far / stride < *size).then_some(far / stride)
            }
            Self::Other(places) => places.get(&rank).copied(),
        }
    }

    /// The first member of the group of `rank` that is like this one: groups of regular stride tile the world.
    pub(super) fn image(&self, rank: u32, world: u32) -> Option<u32> {
        let Self::Regular { first, stride, size } = *self else { return None };
        let block = u64::from(stride) * u64::from(size);
        let tiles = block <= u64::from(world)
            && u64::from(world).is_multiple_of(block)
            && first % (block as u32) < stride;
        tiles.then(|| rank / block as u32 * block as u32 + rank % stride)
    }
}
