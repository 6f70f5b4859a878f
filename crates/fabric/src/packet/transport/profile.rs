//! Entropy values of a pair of NICs: which of the paths between them are in use, as Multipath Reliable Connection has it.
//!
//! An entropy value (EV) names a path of a plane. It is *good* until a packet that took it is lost; then it is *assumed bad*, and carries
//! nothing but probes until one of these is answered. One whose probes go unanswered too often is *denied*, and left alone for a while
//! before it is probed again. So many stay in use whatever is lost (the floor), because a path that loses some is better than none.
//!
//! **What shows a loss.** Every packet is acknowledged, and an acknowledgement says by which EV its packet came and when that was sent;
//! so what was sent by an EV and not heard of is known. When a loss is found, packets overdue by half a round trip were lost where
//! they went. A trimmed packet says nothing against its path but that it is congested: the EV is passed over for a few turns, as
//! after a mark.
//!
//! **Invariants.** `good` counts the EVs of each plane that are good. At least the floor are, or all.

use std::collections::VecDeque;

use windtunnel_kernel::{Span, Time};

use super::PathChoice;

/// Turns that a mark costs, that a packet trimmed on the way costs, and the most that an EV is passed over in a row.
const MARKED: u8 = 1;
const TRIMMED: u8 = 4;
pub(super) const MOST: u8 = 15;

/// What is thought of an EV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Health {
    /// It carries packets.
    #[default]
    Good,
    /// A packet was lost on it: it is probed.
    AssumedBad,
    /// Its probes went unanswered: it is left alone.
    Denied,
}

/// An entropy value.
#[derive(Clone, Debug, Default)]
struct Ev {
    health: Health,
    /// Turns to be passed over for congestion.
    passes: u8,
    /// When the packets on it were sent, in order.
    under_way: VecDeque<Time>,
}

/// An EV by plane and number.
pub(super) type Name = (u32, u16);

/// All EVs from one NIC to another; see the module page.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// By plane, then number.
    each: Vec<Vec<Ev>>,
    /// How many are good, by plane, and of all at least so many stay so.
    good: Vec<u32>,
    floor: u32,
    /// The last round trip.
    rtt: Span,
}

impl Profile {
    /// Makes the EVs, unless they are there: so many on each of so many planes, of which `floor` stay in use.
    pub(super) fn open(&mut self, planes: u32, on_each: u32, floor: u32, rtt: Span) {
        if self.each.is_empty() {
            self.each = vec![vec![Ev::default(); on_each as usize]; planes as usize];
            self.good = vec![on_each; planes as usize];
            self.floor = floor.min(planes * on_each);
        }
        self.rtt = self.rtt.max(rtt);
    }

    fn of(&mut self, (plane, number): Name) -> Option<&mut Ev> {
        self.each.get_mut(plane as usize)?.get_mut(usize::from(number))
    }

    /// What is thought of an EV.
    pub(super) fn health(&self, (plane, number): Name) -> Health {
        let ev = self.each.get(plane as usize).and_then(|plane| plane.get(usize::from(number)));
        ev.map_or(Health::Good, |ev| ev.health)
    }

    /// Those that are not good.
    pub(super) fn bad(&self) -> impl Iterator<Item = Name> {
        (0..).zip(&self.each).flat_map(|(plane, evs)| {
            let bad = (0..).zip(evs).filter(|(_, ev)| ev.health != Health::Good);
            bad.map(move |(number, _)| (plane, number))
        })
    }

    /// Whether a plane carries packets: it has a good EV, or no plane has.
    pub(super) fn carries(&self, plane: u32) -> bool {
        self.good.get(plane as usize).is_none_or(|&good| good > 0) || self.good.iter().all(|&good| good == 0)
    }

    /// The next EV in turn of a plane that is good and not passed over, for a packet sent now; where none is, the next in turn.
    pub(super) fn next(&mut self, turn: &mut u32, choice: &PathChoice) -> u16 {
        let Some(evs) = self.each.get_mut(choice.plane as usize) else { return 0 };
        let among = PathChoice { paths: evs.len() as u32, ..*choice };
        let mut take = || {
            let number = among.in_turn(*turn);
            *turn = turn.wrapping_add(1);
            number
        };
        let any = self.good[choice.plane as usize] > 0;
        let (mut number, mut best) = (take(), None);
        for _ in 1..2 * among.paths {
            let ev = &mut evs[usize::from(number)];
            if ev.health == Health::Good || !any {
                if ev.passes == 0 {
                    best = Some(number);
                    break;
                }
                ev.passes -= 1;
                best.get_or_insert(number);
            }
            number = take();
        }
        let number = best.unwrap_or(number);
        // In order: all queue pairs of the NICs take turns at the plane's port.
        evs[usize::from(number)].under_way.push_back(choice.now);
        number
    }

    /// A packet that was sent at `sent` has arrived, marked or not, and that was heard after `rtt`.
    pub(super) fn arrived(&mut self, name: Name, sent: Time, marked: bool, rtt: Span) {
        self.rtt = rtt;
        let Some(ev) = self.of(name) else { return };
        if let Ok(place) = ev.under_way.binary_search(&sent) {
            ev.under_way.remove(place);
        }
        if marked {
            ev.passes = (ev.passes + MARKED).min(MOST);
        }
    }

    /// A packet that was sent at `sent` has been trimmed, at the last hop or before.
    pub(super) fn trimmed(&mut self, name: Name, sent: Time, last_hop: bool) {
        let Some(ev) = self.of(name) else { return };
        if let Ok(place) = ev.under_way.binary_search(&sent) {
            ev.under_way.remove(place);
        }
        if !last_hop {
            ev.passes = (ev.passes + TRIMMED).min(MOST);
        }
    }

    /// Something was lost: EVs with packets that are overdue are assumed bad, as far as the floor lets them. Those that are so from now on.
    pub(super) fn lost(&mut self, now: Time, mut retired: impl FnMut(Name)) {
        let patience = Span::from_ps(self.rtt.ps() * 3 / 2);
        let mut good: u32 = self.good.iter().sum();
        for (plane, evs) in (0..).zip(&mut self.each) {
            for (number, ev) in (0..).zip(evs) {
                let before = ev.under_way.len();
                while ev.under_way.pop_front_if(|sent| *sent + patience <= now).is_some() {}
                if ev.under_way.len() < before && ev.health == Health::Good && good > self.floor {
                    ev.health = Health::AssumedBad;
                    good -= 1;
                    self.good[plane as usize] -= 1;
                    retired((plane, number));
                }
            }
        }
    }

    /// A probe has been answered: the EV is good again.
    pub(super) fn answered(&mut self, name: Name) {
        let Some(ev) = self.of(name) else { return };
        if ev.health != Health::Good {
            (ev.health, ev.passes) = (Health::Good, 0);
            self.good[name.0 as usize] += 1;
        }
    }

    /// Probes of an EV went unanswered, or it is to be probed again.
    pub(super) fn judge(&mut self, name: Name, health: Health) {
        if let Some(ev) = self.of(name).filter(|ev| ev.health != Health::Good) {
            ev.health = health;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(now: u64, plane: u32) -> PathChoice {
        PathChoice { now: Time::from_ps(now), round: 0, paths: 64, hash: 7, plane }
    }

    fn opened(floor: u32) -> Profile {
        let mut profile = Profile::default();
        profile.open(2, 4, floor, Span::from_us(10));
        profile
    }

    fn take(profile: &mut Profile, turn: &mut u32, count: usize) -> Vec<u16> {
        (0..count).map(|_| profile.next(turn, &choice(0, 0))).collect()
    }

    /// A loss retires what is overdue and nothing else; an answered probe brings it back.
    #[test]
    fn a_loss_retires_the_path_that_lost_it() {
        let (mut profile, mut turn) = (opened(1), 0);
        let first = profile.next(&mut turn, &choice(0, 0));
        let second = profile.next(&mut turn, &choice(14_000_000, 0));
        let mut retired = Vec::new();
        profile.lost(Time::from_ps(20_000_000), |name| retired.push(name));
        assert_eq!(retired, [(0, first)]);
        assert_eq!(
            (profile.health((0, first)), profile.health((0, second))),
            (Health::AssumedBad, Health::Good)
        );
        assert!(!take(&mut profile, &mut turn, 24).contains(&first));
        assert_eq!(profile.bad().collect::<Vec<_>>(), [(0, first)]);
        profile.judge((0, first), Health::Denied);
        assert_eq!(profile.health((0, first)), Health::Denied);
        profile.answered((0, first));
        assert!(take(&mut profile, &mut turn, 8).contains(&first));
    }

    #[test]
    fn the_floor_stays_in_use_and_a_plane_without_a_good_path_carries_nothing() {
        let (mut profile, mut turn) = (opened(3), 0);
        take(&mut profile, &mut turn, 8);
        for _ in 0..8 {
            let _ = profile.next(&mut 0, &choice(0, 1));
        }
        let mut retired = 0;
        profile.lost(Time::from_ps(1_000_000_000), |_| retired += 1);
        assert_eq!((retired, profile.good.iter().sum::<u32>()), (5, 3));
        assert_eq!((profile.carries(0), profile.carries(1)), (false, true));
    }

    /// Trimmed packets are congestion: the EV is passed over, and stays good.
    #[test]
    fn a_trimmed_packet_retires_nothing() {
        let (mut profile, mut turn) = (opened(1), 0);
        let first = profile.next(&mut turn, &choice(0, 0));
        profile.trimmed((0, first), Time::ZERO, false);
        profile.lost(Time::from_ps(1_000_000_000), |_| panic!("nothing is overdue"));
        // What is left of this round of four, and four rounds.
        let taken = take(&mut profile, &mut turn, 19);
        assert!(!taken[..15].contains(&first) && taken.contains(&first), "{taken:?}");
        // Where all are congested one is taken all the same.
        (0..4).for_each(|number| profile.trimmed((0, number), Time::ZERO, false));
        assert_eq!(take(&mut profile, &mut turn, 9).len(), 9);
    }
}
