//! The numbers of GPUs that an elastic job can do with.

use std::sync::Arc;

/// Numbers of GPUs, the one asked for among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// From the first to the second, both included.
    Between(u32, u32),
    /// These, at least one, in ascending order: over others its work cannot be laid out.
    Only(Arc<[u32]>),
}

impl Sizes {
    /// The fewest.
    pub fn least(&self) -> u32 {
        match self {
            Self::Between(least, _) => *least,
            Self::Only(sizes) => sizes[0],
        }
    }

    /// The most.
    pub fn most(&self) -> u32 {
        match self {
            Self::Between(_, most) => *most,
            Self::Only(sizes) => sizes[sizes.len() - 1],
        }
    }

    /// The most of no more than `gpus`; `None`: those are too few.
    pub fn up_to(&self, gpus: u32) -> Option<u32> {
        match self {
            Self::Between(least, most) => (gpus >= *least).then(|| gpus.min(*most)),
            Self::Only(sizes) => sizes[..sizes.partition_point(|&size| size <= gpus)].last().copied(),
        }
    }

    /// The next to try where `size` has no legal place: the next smaller one, or half of it where there are many.
    pub fn after(&self, size: u32) -> Option<u32> {
        match self {
            Self::Between(least, _) => (size > *least).then(|| (size / 2).max(*least)),
            Self::Only(_) => size.checked_sub(1).and_then(|less| self.up_to(less)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_takes_the_most_that_there_are_and_it_can_do_with() {
        let any = Sizes::Between(3, 9);
        assert_eq!([2, 3, 8, 9, 70].map(|gpus| any.up_to(gpus)), [None, Some(3), Some(8), Some(9), Some(9)]);
        assert_eq!([9, 4, 3].map(|size| any.after(size)), [Some(4), Some(3), None]);
        let some = Sizes::Only([8, 16, 24, 48].into());
        assert_eq!((some.least(), some.most()), (8, 48));
        assert_eq!(
            [7, 8, 23, 47, 70].map(|gpus| some.up_to(gpus)),
            [None, Some(8), Some(16), Some(24), Some(48)]
        );
        assert_eq!([48, 24, 8].map(|size| some.after(size)), [Some(24), Some(16), None]);
    }
}
