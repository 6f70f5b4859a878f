//! Exchanges that share links over time.
//!
//! Between two instants at which some exchange begins or ends, [rates](super::shares) stay; so a walk over these instants says when
//! each has ended. An exchange whose class has its links for itself ends at an instant that is known when it begins.
//!
//! Invariants: of one class one exchange at a time is under way, in the order in which they were asked for. Work and latency are
//! picoseconds.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use smallvec::SmallVec;

use super::shares::{Of, Pool, Rates, Set, Shares};

/// What an exchange takes: `latency` whatever else goes on, and before it `work` on links that it has for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// From the last byte on.
    pub latency: f64,
    /// Of its bytes.
    pub work: f64,
}

impl Part {
    /// Both, as on links without others.
    pub fn alone(self) -> f64 {
        self.latency + self.work
    }

    fn is_nothing(self) -> bool {
        self.latency <= 0.0 && self.work <= 0.0
    }
}

/// Something that ends at an instant, after what ends at the same one and was booked before.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<T> {
    pub time: f64,
    pub order: u64,
    pub what: T,
}

impl<T> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for At<T> {}

impl<T> PartialOrd for At<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for At<T> {
    /// The earliest is the greatest, as a heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        other.time.total_cmp(&self.time).then(other.order.cmp(&self.order))
    }
}

/// What comes of an exchange at an instant that is known.
#[derive(Clone, Copy, Debug)]
enum Due<T> {
    /// The next of its class may begin.
    Sent(u32),
    /// It has ended, and the next may begin if it is no message.
    Landed(u32, T),
}

/// A pool in which exchanges are under way.
#[derive(Debug)]
struct Flowing {
    /// Up to when what is left is known.
    now: f64,
    under_way: Set,
    rates: Rates,
    stale: bool,
    next: f64,
}

/// Exchanges on their way; `T` says what each is.
pub(super) struct Exchanges<'a, T> {
    shares: &'a Shares,
    now: f64,
    queues: Vec<VecDeque<(Part, T)>>,
    /// By class: whether one is under way, up to its end.
    busy: Vec<bool>,
    /// By pool and class.
    left: Vec<Vec<f64>>,
    /// By pool: classes in it.
    members: Vec<Vec<u32>>,
    flowing: Vec<Flowing>,
    due: BinaryHeap<At<Due<T>>>,
    booked: u64,
}

impl<'a, T: Copy> Exchanges<'a, T> {
    pub(super) fn new(shares: &'a Shares) -> Self {
        let classes = shares.fair.len();
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); shares.pools.len()];
        for (class, place) in shares.places.iter().enumerate() {
            if let Some((pool, _)) = place {
                members[*pool as usize].push(class as u32);
            }
        }
        let flowing = |pool: &Pool| Flowing {
            now: 0.0,
            under_way: SmallVec::from_elem(0, pool.fair.len().div_ceil(64)),
            rates: Rc::from([]),
            stale: false,
            next: f64::INFINITY,
        };
        Self {
            shares,
            now: 0.0,
            queues: (0..classes).map(|_| VecDeque::new()).collect(),
            busy: vec![false; classes],
            left: members.iter().map(|members| vec![0.0; members.len()]).collect(),
            members,
            flowing: shares.pools.iter().map(flowing).collect(),
            due: BinaryHeap::new(),
            booked: 0,
        }
    }

    /// Asks for an exchange now.
    pub(super) fn push(&mut self, of: Of, rank: u32, part: Part, what: T) {
        let class = of.class(rank, self.shares.ranks);
        self.queues[class as usize].push_back((part, what));
        if !self.busy[class as usize] {
            self.begin(class);
        }
    }

    fn book(&mut self, time: f64, what: Due<T>) {
        self.due.push(At { time, order: self.booked, what });
        self.booked += 1;
    }

    fn is_message(&self, class: u32) -> bool {
        Of::ALL[(class / self.shares.ranks) as usize].is_message()
    }

    fn begin(&mut self, class: u32) {
        let Some(&(part, what)) = self.queues[class as usize].front() else { return };
        self.busy[class as usize] = true;
        let (share, most) = self.shares.fair[class as usize];
        if part.work <= 0.0 || share <= 0.0 {
            self.land(class);
        } else if let Some((pool, member)) = self.shares.places[class as usize] {
            self.catch_up(pool as usize);
            self.left[pool as usize][member as usize] = part.work;
            let flowing = &mut self.flowing[pool as usize];
            flowing.under_way[member as usize / 64] |= 1 << (member % 64);
            flowing.stale = true;
        } else {
            self.queues[class as usize].pop_front();
            let sent = self.now + part.work / most;
            if self.is_message(class) {
                self.book(sent, Due::Sent(class));
            }
            self.book(sent + part.latency, Due::Landed(class, what));
        }
    }

    /// The last byte of the first of `class` has left.
    fn land(&mut self, class: u32) {
        let (part, what) = self.queues[class as usize].pop_front().expect("one is under way");
        self.book(self.now + part.latency, Due::Landed(class, what));
        if self.is_message(class) {
            self.busy[class as usize] = false;
            self.begin(class);
        }
    }

    /// What is left in a pool by now.
    fn catch_up(&mut self, pool: usize) {
        let flowing = &mut self.flowing[pool];
        let span = self.now - std::mem::replace(&mut flowing.now, self.now);
        if span > 0.0 {
            for &(member, rate) in flowing.rates.iter() {
                self.left[pool][member as usize] -= span * rate;
            }
        }
    }

    /// When something of it happens next.
    pub(super) fn next(&mut self) -> f64 {
        let mut next = self.due.peek().map_or(f64::INFINITY, |at| at.time);
        for ((flowing, left), pool) in self.flowing.iter_mut().zip(&self.left).zip(&self.shares.pools) {
            if flowing.stale {
                flowing.rates = pool.rates(&flowing.under_way);
                flowing.stale = false;
                let sent = flowing.rates.iter().map(|&(member, rate)| left[member as usize] / rate);
                flowing.next = flowing.now + sent.fold(f64::INFINITY, f64::min);
            }
            next = next.min(flowing.next);
        }
        next
    }

    /// Goes on to `until`, no later than [`Self::next`]; what has ended goes to `ended`.
    pub(super) fn advance(&mut self, until: f64, ended: &mut Vec<T>) {
        self.now = until;
        for pool in 0..self.flowing.len() {
            if self.flowing[pool].next > until {
                continue;
            }
            self.catch_up(pool);
            let rates = Rc::clone(&self.flowing[pool].rates);
            for &(member, _) in rates.iter() {
                if self.left[pool][member as usize] <= 0.5 {
                    let flowing = &mut self.flowing[pool];
                    flowing.under_way[member as usize / 64] &= !(1 << (member % 64));
                    flowing.stale = true;
                    self.land(self.members[pool][member as usize]);
                }
            }
        }
        while self.due.peek().is_some_and(|at| at.time <= until) {
            match self.due.pop().expect("it has just been seen").what {
                Due::Sent(class) => {
                    self.busy[class as usize] = false;
                    self.begin(class);
                }
                Due::Landed(class, what) => {
                    ended.push(what);
                    if !self.is_message(class) {
                        self.busy[class as usize] = false;
                        self.begin(class);
                    }
                }
            }
        }
    }
}

/// An exchange of gradients: when it is asked for, its parts among shards, and what follows between replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Leaving {
    /// When they are complete.
    pub at: f64,
    /// Dense and expert gradients.
    pub parts: [Part; 2],
    /// Of each: its shard, between replicas.
    pub across: [Part; 2],
}

/// When each of `asked` has ended, by rank and in the order of asking.
pub fn drained(shares: &Shares, asked: &[Vec<Leaving>]) -> Vec<Vec<f64>> {
    let mut starts: Vec<(f64, u32, u32)> = Vec::new();
    for (rank, list) in asked.iter().enumerate() {
        let of = |(index, leaving): (usize, &Leaving)| (leaving.at, rank as u32, index as u32);
        starts.extend(list.iter().enumerate().map(of));
    }
    starts.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let mut ends: Vec<Vec<f64>> = asked.iter().map(|list| vec![0.0; list.len()]).collect();
    let mut exchanges: Exchanges<'_, (u32, u32, Part)> = Exchanges::new(shares);
    let mut ended: Vec<(u32, u32, Part)> = Vec::new();
    let mut next = 0;
    loop {
        let start = starts.get(next).map_or(f64::INFINITY, |start| start.0);
        let until = exchanges.next().min(start);
        if until.is_infinite() {
            return ends;
        }
        exchanges.advance(until.max(exchanges.now), &mut ended);
        for (rank, index, across) in ended.drain(..) {
            let end = &mut ends[rank as usize][index as usize];
            *end = end.max(exchanges.now);
            if !across.is_nothing() {
                exchanges.push(Of::Across, rank, across, (rank, index, Part::default()));
            }
        }
        while let Some(&(_, rank, index)) = starts.get(next).filter(|start| start.0 <= exchanges.now) {
            let leaving = &asked[rank as usize][index as usize];
            for (number, of) in [Of::Shard, Of::Expert].into_iter().enumerate() {
                let (part, across) = (leaving.parts[number], leaving.across[number]);
                if !part.is_nothing() {
                    exchanges.push(of, rank, part, (rank, index, across));
                } else if !across.is_nothing() {
                    exchanges.push(Of::Across, rank, across, (rank, index, Part::default()));
                }
            }
            next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shares::Class;
    use super::*;

    /// Ranks whose shards share link 0, which carries `wide` of them at their own rate; each has a link of its own.
    fn shares(ranks: u32, wide: f64) -> Shares {
        let mut classes = vec![Class::default(); Of::ALL.len() * ranks as usize];
        for rank in 0..ranks {
            classes[rank as usize] =
                Class { bit: 1.0, flow: 1.0, links: vec![(0, 1.0 / wide), (1 + rank, 1.0)] };
        }
        Shares::new(ranks, &classes)
    }

    fn ends(tasks: &[&[(f64, f64)]], wide: f64) -> Vec<f64> {
        let asked: Vec<Vec<Leaving>> = tasks
            .iter()
            .map(|tasks| {
                tasks
                    .iter()
                    .map(|&(at, work)| Leaving {
                        at,
                        parts: [Part { latency: 0.0, work }, Part::default()],
                        ..Leaving::default()
                    })
                    .collect()
            })
            .collect();
        let ends = drained(&shares(tasks.len() as u32, wide), &asked);
        ends.iter().map(|ends| ends.last().copied().unwrap_or(0.0)).collect()
    }

    #[test]
    fn exchanges_share_the_link_while_they_overlap() {
        // Alone each takes its work; two at once on a link for one take twice as long.
        assert_eq!(ends(&[&[(0.0, 1000.0)], &[(2000.0, 1000.0)]], 1.0), [1000.0, 3000.0]);
        assert_eq!(ends(&[&[(0.0, 1000.0)], &[(0.0, 1000.0)]], 1.0), [2000.0, 2000.0]);
        assert_eq!(ends(&[&[(0.0, 1000.0)], &[(500.0, 1000.0)]], 1.0), [1500.0, 2000.0]);
        assert_eq!(ends(&[&[(0.0, 1000.0)], &[(0.0, 1000.0)]], 2.0), [1000.0, 1000.0]);
        // The second of a rank waits for the first, and for its own start.
        assert_eq!(ends(&[&[(0.0, 1000.0), (500.0, 1000.0), (5000.0, 100.0)]], 1.0), [5100.0]);
        assert!((shares(4, 2.0).crowd() - 2.0).abs() < 1e-9);
        assert!((shares(4, 8.0).crowd() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn shards_are_summed_between_replicas_once_they_are_reduced() {
        let mut classes = vec![Class::default(); Of::ALL.len()];
        classes[0] = Class { bit: 1.0, flow: 1.0, links: vec![(0, 1.0)] };
        classes[2] = Class { bit: 1.0, flow: 1.0, links: vec![(1, 1.0)] };
        let part = |work| Part { latency: 10.0, work };
        let leaving = Leaving {
            at: 0.0,
            parts: [part(100.0), Part::default()],
            across: [part(300.0), Part::default()],
        };
        // The second bucket's replicas queue behind the first's.
        assert_eq!(drained(&Shares::new(1, &classes), &[vec![leaving; 2]]), [[420.0, 110.0 + 2.0 * 310.0]]);
    }
}
