//! Path numbers by what came back of them, as the simulator of the Ultra Ethernet Consortium has it (htsim's `mixed`: a bitmap
//! of penalties, and path numbers used again).
//!
//! Path numbers go in turn. A mark or a loss on one leaves it out the next times its turn comes, as often as its penalty says:
//! a mark adds 1, a packet trimmed on the way 4, up to a largest. A path number whose packet came through unmarked may be
//! used once more at once, before the turn goes on.
//!
//! **Bounds.** Penalties are kept for [`PLACES`] path numbers; where there are more, those that are equal modulo it share one.
//! Of path numbers to be used again the last [`GOOD`] are kept.

use super::{Ack, Nack, PathChoice};

/// Penalties kept.
const PLACES: usize = 64;
/// Path numbers kept to be used again.
const GOOD: usize = 8;
/// Turns that a mark costs, that a trimmed packet costs, and the most that a path number has to wait.
const MARKED: u64 = 1;
const TRIMMED: u64 = 4;
const LARGEST: u64 = 15;

/// State of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mixed {
    /// Turns to be left out, 4 bits each.
    penalties: [u64; PLACES / 16],
    good: [u16; GOOD],
    first: u8,
    kept: u8,
    turn: u32,
}

impl Mixed {
    fn penalty(&self, path: u16) -> u64 {
        let place = usize::from(path) % PLACES;
        self.penalties[place / 16] >> (place % 16 * 4) & 15
    }

    /// Leaves a path number out `more` times, but at most `most` (15 or less) times in a row.
    pub(super) fn penalise(&mut self, path: u16, more: u64, most: u64) {
        let place = usize::from(path) % PLACES;
        let shift = place % 16 * 4;
        let word = &mut self.penalties[place / 16];
        let penalty = ((*word >> shift & 15) + more).min(most);
        *word = *word & !(15 << shift) | penalty << shift;
    }

    /// A packet came through without mark.
    pub(super) fn recycle(&mut self, path: u16) {
        let place = (self.first + self.kept) as usize % GOOD;
        self.good[place] = path;
        if usize::from(self.kept) == GOOD {
            self.first = (self.first + 1) % GOOD as u8;
        } else {
            self.kept += 1;
        }
    }

    /// A packet has come through, marked or not.
    #[inline]
    pub(super) fn acknowledged(&mut self, ack: &Ack) {
        if ack.echo {
            self.penalise(ack.path, MARKED, LARGEST);
        } else {
            self.recycle(ack.path);
        }
    }

    /// A packet has been trimmed. At the last hop that says nothing of its path.
    pub(super) fn trimmed(&mut self, nack: &Nack) {
        match (nack.last_hop, nack.echo) {
            (false, _) => self.penalise(nack.path, TRIMMED, LARGEST),
            (true, true) => self.penalise(nack.path, MARKED, LARGEST),
            (true, false) => self.recycle(nack.path),
        }
    }

    /// The next path number.
    #[inline]
    pub(super) fn next(&mut self, choice: &PathChoice) -> u16 {
        if self.kept > 0 {
            let path = self.good[usize::from(self.first)];
            self.first = (self.first + 1) % GOOD as u8;
            self.kept -= 1;
            return path;
        }
        self.in_turn(choice, false)
    }

    /// The next path number in turn whose penalty is none. The first that is left out has its penalty lowered by one, with
    /// `all` the others too.
    #[inline]
    pub(super) fn in_turn(&mut self, choice: &PathChoice, all: bool) -> u16 {
        let mut path = self.advance(choice);
        if self.penalty(path) > 0 {
            self.lower(path);
            for _ in 0..choice.paths {
                path = self.advance(choice);
                if self.penalty(path) == 0 {
                    break;
                }
                if all {
                    self.lower(path);
                }
            }
        }
        path
    }

    #[inline]
    fn advance(&mut self, choice: &PathChoice) -> u16 {
        let path = choice.in_turn(self.turn);
        self.turn = self.turn.wrapping_add(1);
        path
    }

    fn lower(&mut self, path: u16) {
        let place = usize::from(path) % PLACES;
        self.penalties[place / 16] -= 1 << (place % 16 * 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_kernel::Time;

    const CHOICE: PathChoice = PathChoice { now: Time::ZERO, round: 0, paths: 4, hash: 7, plane: 0 };

    fn take(mixed: &mut Mixed, count: usize) -> Vec<u16> {
        (0..count).map(|_| mixed.next(&CHOICE)).collect()
    }

    #[test]
    fn every_path_number_has_its_turn_and_orders_differ() {
        let mut mixed = Mixed::default();
        let orders: Vec<Vec<u16>> = (0..8).map(|_| take(&mut mixed, 4)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert!(orders.iter().any(|order| *order != orders[0]));
    }

    #[test]
    fn penalties_leave_out_and_good_ones_come_first() {
        let mut mixed = Mixed::default();
        mixed.penalise(2, 4, 15);
        // Two rounds and a bit of the others: 2 is due once a round, and pays one each time.
        let taken = take(&mut mixed, 12);
        assert!(!taken.contains(&2), "{taken:?}");
        mixed.recycle(2);
        mixed.recycle(3);
        assert_eq!(take(&mut mixed, 2), [2, 3]);
        // The fourth turn clears it.
        assert!(take(&mut mixed, 8).contains(&2));
    }

    #[test]
    fn where_all_are_penalised_one_is_taken_all_the_same() {
        let mut mixed = Mixed::default();
        (0..4).for_each(|path| mixed.penalise(path, 9, 15));
        assert_eq!(take(&mut mixed, 40).len(), 40);
        (0..20).for_each(|path| mixed.recycle(path));
        assert_eq!(take(&mut mixed, 8), [12, 13, 14, 15, 16, 17, 18, 19], "the last eight are kept");
    }
}
