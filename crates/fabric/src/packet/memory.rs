//! What endpoints keep of pairs of NICs, for longer than any queue pair is open.

use rustc_hash::FxHashMap;

use super::transport::State;

/// By the NICs of a sender and a receiver, in the sender's process; nothing where an endpoint keeps nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Memories<M> {
    places: FxHashMap<(u32, u32), u32>,
    each: Vec<M>,
    /// By sending half.
    of: Vec<u32>,
}

impl<M: State> Memories<M> {
    /// Whether there is anything to keep: of a type without size there is not. Where there is, the path numbers of all queue pairs between
    /// two NICs name the same paths, so that what is kept of a path holds for the next queue pair.
    pub(super) const KEPT: bool = size_of::<M>() > 0;

    /// A sending half between these NICs has been opened.
    pub(super) fn open(&mut self, flow: u32, nics: (u32, u32)) {
        if !Self::KEPT {
            return;
        }
        let each = &mut self.each;
        let place = *self.places.entry(nics).or_insert_with(|| {
            each.push(M::default());
            each.len() as u32 - 1
        });
        let places = self.of.len().max(flow as usize + 1);
        self.of.resize(places, 0);
        self.of[flow as usize] = place;
    }

    /// What is kept of the NICs of a sending half.
    #[inline]
    pub(super) fn of(&mut self, flow: u32) -> Option<&mut M> {
        if Self::KEPT { Some(&mut self.each[self.of[flow as usize] as usize]) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_of_two_nics_share_what_is_kept() {
        let mut memories = Memories::<u64>::default();
        for (flow, nics) in [(0, (1, 2)), (3, (2, 1)), (1, (1, 2))] {
            memories.open(flow, nics);
            *memories.of(flow).expect("kept") += 1;
        }
        assert_eq!([0, 1, 3].map(|flow| memories.of(flow).copied()), [Some(2), Some(2), Some(1)]);
        // The place of a half is used again by one between others.
        memories.open(0, (2, 1));
        assert_eq!(memories.of(0), Some(&mut 1));
        let mut none = Memories::<()>::default();
        none.open(5, (1, 2));
        assert_eq!(none.of(5), None);
    }
}
