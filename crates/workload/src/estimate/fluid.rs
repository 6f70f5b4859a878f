//! Exchanges that share links over time.
//!
//! Exchanges of one kind and pipeline rank, those of all its groups at once, are a *class*. A class that is under way alone goes on at
//! rate 1; where classes meet on a link, each gets what max-min fairness gives its flows (Bertsekas and Gallager 1992, section 6.5.2),
//! as the flow model does. Between two instants at which some exchange begins or ends, rates stay; so a walk over these instants
//! says when each has ended.
//!
//! Invariants: a set of classes under way has one solution, whatever led to it; of one class one exchange at a time is under way, in the
//! order in which they were asked for. Work and latency are picoseconds.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::data::Meeting;

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

/// What a class of exchanges is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Of {
    /// Parameters and gradients among shards.
    Shard,
    /// The same of experts.
    Expert,
    /// Between replicas of the shards.
    Across,
    /// Messages to the pipeline rank after.
    Up,
    /// Messages to the one before.
    Down,
}

impl Of {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::Shard, Self::Expert, Self::Across, Self::Up, Self::Down];

    /// The number of the class of pipeline rank `rank` of `ranks`.
    pub const fn class(self, rank: u32, ranks: u32) -> u32 {
        self as u32 * ranks + rank
    }

    const fn is_message(self) -> bool {
        matches!(self, Self::Up | Self::Down)
    }
}

/// A class of exchanges as links see it.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// Picoseconds that a bit takes at rate 1.
    pub bit: f64,
    /// Rate of an edge at which max-min fairness counts it as one flow, for each bit a picosecond of the class.
    pub flow: f64,
    /// Picoseconds for which each link is busy with a bit; each link once.
    pub links: Vec<(u32, f64)>,
}

/// A limit of several classes: how much of it each takes at rate 1.
type Limit = Vec<(u32, f64)>;

/// Rates of the classes under way, by class.
type Rates = Rc<[(u32, f64)]>;

/// How classes share links.
#[derive(Debug)]
pub struct Shares {
    ranks: u32,
    /// By class: what it gets of an equal share, and its rate at most.
    fair: Vec<(f64, f64)>,
    limits: Vec<Limit>,
    crowd: f64,
    known: RefCell<FxHashMap<SmallVec<[u64; 5]>, Rates>>,
}

/// A difference that rounding makes.
const ROUNDED: f64 = 1e-6;

impl Shares {
    /// Of `classes`, which have the numbers that [`Of::class`] gives them.
    pub fn new(ranks: u32, classes: &[Class]) -> Self {
        let mut takes: Vec<(u32, u32, f64)> = Vec::new();
        let mut fair = Vec::with_capacity(classes.len());
        for (number, class) in classes.iter().enumerate() {
            if class.bit <= 0.0 {
                fair.push((0.0, f64::INFINITY));
                continue;
            }
            let most = class.links.iter().map(|&(_, busy)| busy).fold(0.0, f64::max);
            fair.push((class.bit * class.flow, class.bit / most.max(f64::MIN_POSITIVE)));
            takes.extend(class.links.iter().map(|&(link, busy)| (link, number as u32, busy / class.bit)));
        }
        takes.sort_unstable_by_key(|&(link, class, _)| (link, class));
        let data = |class: u32| class / ranks < Of::Up as u32;
        let mut crowd = 1.0f64;
        let mut seen: FxHashSet<SmallVec<[(u32, u64); 4]>> = FxHashSet::default();
        let mut limits: Vec<Limit> = Vec::new();
        for limit in takes.chunk_by(|a, b| a.0 == b.0).filter(|limit| limit.len() > 1) {
            let limit: Limit = limit.iter().map(|&(_, class, take)| (class, take)).collect();
            let whole: f64 = limit.iter().map(|&(class, take)| take * fair[class as usize].1).sum();
            if whole <= 1.0 + ROUNDED {
                continue;
            }
            // Links with one load are one limit.
            let rounded = limit.iter().map(|&(class, take)| (class, (take / ROUNDED).round() as u64));
            if !seen.insert(rounded.collect()) {
                continue;
            }
            let mut of_ranks = vec![0.0f64; ranks as usize];
            for &(class, take) in limit.iter().filter(|&&(class, _)| data(class)) {
                let most = &mut of_ranks[(class % ranks) as usize];
                *most = most.max(take * fair[class as usize].1);
            }
            crowd = crowd.max(of_ranks.iter().sum());
            limits.push(limit);
        }
        Self { ranks, fair, limits, crowd, known: RefCell::default() }
    }

    /// By how much data-parallel exchanges of all pipeline ranks at once are slower than those of one.
    pub fn crowd(&self) -> f64 {
        self.crowd
    }

    /// Rates of two classes of one rank while both are under way.
    pub fn of_two(a: &Class, b: &Class) -> [f64; 2] {
        if a.bit <= 0.0 || b.bit <= 0.0 {
            return [1.0; 2];
        }
        let found = Self::new(1, &[a.clone(), b.clone()]).solve(&[0, 1]);
        [found[0].1, found[1].1]
    }

    /// Rates of the classes `under_way`, a bit for each class.
    fn rates(&self, under_way: &SmallVec<[u64; 5]>) -> Rates {
        if let Some(known) = self.known.borrow().get(under_way) {
            return Rc::clone(known);
        }
        let classes = (0..self.fair.len() as u32)
            .filter(|&class| under_way[class as usize / 64] >> (class % 64) & 1 == 1)
            .collect::<Vec<_>>();
        let found: Rates = self.solve(&classes).into();
        self.known.borrow_mut().insert(under_way.clone(), Rc::clone(&found));
        found
    }

    /// Progressive filling: all rates rise together until a limit or a class's own rate stops some of them.
    fn solve(&self, classes: &[u32]) -> Vec<(u32, f64)> {
        let mut rates: FxHashMap<u32, Option<f64>> = classes.iter().map(|&class| (class, None)).collect();
        let limits: Vec<Limit> = self
            .limits
            .iter()
            .map(|limit| limit.iter().filter(|(class, _)| rates.contains_key(class)).copied().collect())
            .filter(|limit: &Limit| limit.len() > 1)
            .collect();
        let fair = |class: u32| self.fair[class as usize];
        loop {
            let mut level = f64::INFINITY;
            for &class in classes.iter().filter(|class| rates[class].is_none()) {
                level = level.min(fair(class).1 / fair(class).0.max(f64::MIN_POSITIVE));
            }
            if level.is_infinite() {
                break;
            }
            let at = |limit: &Limit, rates: &FxHashMap<u32, Option<f64>>| {
                let (mut rising, mut taken) = (0.0, 0.0);
                for &(class, take) in limit {
                    match rates[&class] {
                        Some(rate) => taken += take * rate,
                        None => rising += take * fair(class).0,
                    }
                }
                if rising > 0.0 { ((1.0 - taken).max(0.0)) / rising } else { f64::INFINITY }
            };
            let levels: Vec<f64> = limits.iter().map(|limit| at(limit, &rates)).collect();
            level = levels.iter().copied().fold(level, f64::min);
            let reached = level * (1.0 + ROUNDED);
            for (limit, _) in limits.iter().zip(&levels).filter(|(_, full)| **full <= reached) {
                for &(class, _) in limit {
                    let rate = rates.get_mut(&class).expect("it is under way");
                    *rate = Some(rate.unwrap_or(level * fair(class).0));
                }
            }
            for &class in classes {
                let (share, most) = fair(class);
                let rate = rates.get_mut(&class).expect("it is under way");
                if rate.is_none() && most <= reached * share {
                    *rate = Some(most);
                }
            }
        }
        classes.iter().map(|&class| (class, rates[&class].unwrap_or(1.0))).collect()
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

/// Exchanges on their way; `T` says what each is.
pub(super) struct Exchanges<'a, T> {
    shares: &'a Shares,
    now: f64,
    queues: Vec<VecDeque<(Part, T)>>,
    /// By class: whether one is under way, up to its end.
    busy: Vec<bool>,
    left: Vec<f64>,
    under_way: SmallVec<[u64; 5]>,
    rates: Rates,
    stale: bool,
    landing: BinaryHeap<At<(u32, T)>>,
    booked: u64,
}

impl<'a, T: Copy> Exchanges<'a, T> {
    pub(super) fn new(shares: &'a Shares) -> Self {
        let classes = shares.fair.len();
        Self {
            shares,
            now: 0.0,
            queues: (0..classes).map(|_| VecDeque::new()).collect(),
            busy: vec![false; classes],
            left: vec![0.0; classes],
            under_way: SmallVec::from_elem(0, classes.div_ceil(64)),
            rates: Rc::from([]),
            stale: false,
            landing: BinaryHeap::new(),
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

    fn begin(&mut self, class: u32) {
        let Some(&(part, _)) = self.queues[class as usize].front() else { return };
        self.busy[class as usize] = true;
        if part.work > 0.0 && self.shares.fair[class as usize].0 > 0.0 {
            self.left[class as usize] = part.work;
            self.under_way[class as usize / 64] |= 1 << (class % 64);
            self.stale = true;
        } else {
            self.land(class);
        }
    }

    /// The last byte of the first of `class` has left.
    fn land(&mut self, class: u32) {
        let (part, what) = self.queues[class as usize].pop_front().expect("one is under way");
        self.landing.push(At { time: self.now + part.latency, order: self.booked, what: (class, what) });
        self.booked += 1;
        if Of::ALL[(class / self.shares.ranks) as usize].is_message() {
            self.busy[class as usize] = false;
            self.begin(class);
        }
    }

    /// By how much a stretch of a pass of `rank` that begins now is longer for what data-parallel exchanges of the rank are asked for;
    /// these are held up in turn.
    pub(super) fn meet(&mut self, rank: u32, span: f64, meeting: Meeting) -> f64 {
        if meeting.longer + meeting.held <= 0.0 {
            return 0.0;
        }
        let mut longer = 0.0;
        for of in [Of::Shard, Of::Expert] {
            let class = of.class(rank, self.shares.ranks) as usize;
            if self.left[class] <= 0.0 {
                continue;
            }
            let queued: f64 = self.queues[class].iter().skip(1).map(|(part, _)| part.work).sum();
            self.next();
            let rate =
                self.rates.iter().find(|&&(known, _)| known as usize == class).map_or(1.0, |found| found.1);
            // While both go on, so much of the stretch passes.
            let beside = (1.0 + meeting.longer - meeting.held).max(f64::MIN_POSITIVE);
            let met = ((self.left[class] + queued) / rate / beside).min(span);
            longer += met * meeting.longer;
            self.left[class] += met * meeting.held * rate;
        }
        longer
    }

    /// When something of it happens next.
    pub(super) fn next(&mut self) -> f64 {
        if self.stale {
            self.rates = self.shares.rates(&self.under_way);
            self.stale = false;
        }
        let sent = self.rates.iter().map(|&(class, rate)| self.now + self.left[class as usize] / rate);
        sent.fold(self.landing.peek().map_or(f64::INFINITY, |at| at.time), f64::min)
    }

    /// Goes on to `until`, no later than [`Self::next`]; what has ended goes to `ended`.
    pub(super) fn advance(&mut self, until: f64, ended: &mut Vec<T>) {
        let span = until - self.now;
        self.now = until;
        let rates = Rc::clone(&self.rates);
        for &(class, rate) in rates.iter() {
            let left = &mut self.left[class as usize];
            *left -= span * rate;
            if *left <= 0.5 {
                self.under_way[class as usize / 64] &= !(1 << (class % 64));
                self.stale = true;
                *left = 0.0;
                self.land(class);
            }
        }
        while self.landing.peek().is_some_and(|at| at.time <= until) {
            let (class, what) = self.landing.pop().expect("it has just been seen").what;
            ended.push(what);
            if !Of::ALL[(class / self.shares.ranks) as usize].is_message() {
                self.busy[class as usize] = false;
                self.begin(class);
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
    use super::*;

    /// Ranks whose shards share link 0, which carries `wide` of them at their own rate; each has a link of its own.
    fn shares(ranks: u32, wide: f64) -> Shares {
        let mut classes = vec![Class::default(); 5 * ranks as usize];
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
    fn who_cannot_use_its_share_leaves_it_to_others() {
        // Rank 0 has a link of a quarter: the shared one is left to rank 1 but for that.
        let mut classes = vec![Class::default(); 10];
        classes[0] = Class { bit: 1.0, flow: 1.0, links: vec![(0, 1.0), (1, 4.0)] };
        classes[1] = Class { bit: 1.0, flow: 1.0, links: vec![(0, 1.0)] };
        let shares = Shares::new(2, &classes);
        assert_eq!(shares.solve(&[0, 1]), [(0, 0.25), (1, 0.75)]);
        assert_eq!(shares.solve(&[1]), [(1, 1.0)]);
    }

    #[test]
    fn shards_are_summed_between_replicas_once_they_are_reduced() {
        let mut classes = vec![Class::default(); 5];
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
