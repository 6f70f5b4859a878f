//! Classes of exchanges, and how they share links.
//!
//! Exchanges of one kind and pipeline rank, those of all its groups at once, are a *class*. A class that is under way alone goes on at
//! rate 1; where classes meet on a link, each gets what max-min fairness gives its flows (Bertsekas and Gallager 1992, section 6.5.2),
//! as the flow model does. Classes that limits bind together, directly or over others, are a *pool*, which is solved for itself.
//!
//! Invariants: a set of classes under way has one solution, whatever led to it, and is solved once.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

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
    /// Of tensor parallelism.
    Tp,
    /// Of context parallelism.
    Cp,
    /// Of experts.
    Ep,
}

impl Of {
    /// All of them, in order.
    pub const ALL: [Self; 8] =
        [Self::Shard, Self::Expert, Self::Across, Self::Up, Self::Down, Self::Tp, Self::Cp, Self::Ep];

    /// The number of the class of pipeline rank `rank` of `ranks`.
    pub const fn class(self, rank: u32, ranks: u32) -> u32 {
        self as u32 * ranks + rank
    }

    pub(super) const fn is_message(self) -> bool {
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

/// Classes of a pool, a bit for each.
pub(super) type Set = SmallVec<[u64; 2]>;

/// Rates of the classes under way, by their numbers in the pool.
pub(super) type Rates = Rc<[(u32, f64)]>;

/// Classes that limits bind together, directly or over others.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Of each: what it gets of an equal share, and its rate at most.
    pub fair: Vec<(f64, f64)>,
    limits: Vec<Limit>,
    /// The classes of each limit.
    masks: Vec<Set>,
    known: RefCell<FxHashMap<Set, Rates>>,
}

/// How classes share links.
#[derive(Debug)]
pub struct Shares {
    pub(super) ranks: u32,
    /// By class: what it gets of an equal share, and its rate at most.
    pub(super) fair: Vec<(f64, f64)>,
    /// By class: its pool, and its number there; none for those that have their links for themselves.
    pub(super) places: Vec<Option<(u32, u32)>>,
    pub(super) pools: Vec<Pool>,
    /// What of each link messages take at rate 1, where several share it or exchanges inside passes do, and whether these do.
    messages: Vec<(Limit, bool)>,
    crowd: f64,
    meets: bool,
}

/// Sets whose rates a pool remembers.
const KNOWN: usize = 16_384;

/// Limits of a pool up to which each is compared with all others.
const COMPARED: usize = 2048;

/// Exchanges inside passes are followed where others want more than so much of a link beside them.
const MEETS: f64 = 1.25;

/// Exchanges inside passes that take less of a link are in nobody's way.
const BESIDE: f64 = 0.1;

/// A difference that rounding makes.
const ROUNDED: f64 = 1e-6;

impl Shares {
    /// Of `classes`, which have the numbers that [`Of::class`] gives them; exchanges inside passes count where they meet data-parallel ones or
    /// those of other ranks.
    pub fn new(ranks: u32, classes: &[Class]) -> Self {
        Self::of(ranks, classes, false)
    }

    /// The same, with exchanges inside passes whatever they meet.
    pub fn close(ranks: u32, classes: &[Class]) -> Self {
        Self::of(ranks, classes, true)
    }

    fn of(ranks: u32, classes: &[Class], close: bool) -> Self {
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
        let inside = |class: u32| class / ranks > Of::Down as u32;
        let most = |class: u32, take: f64| take * fair[class as usize].1;
        let meets = takes.chunk_by(|a, b| a.0 == b.0).any(|limit| {
            let counted = limit.iter().filter(|&&(_, class, _)| data(class) || inside(class));
            limit.iter().any(|&(_, class, _)| inside(class))
                && counted.map(|&(_, class, take)| most(class, take)).sum::<f64>() > MEETS
        });
        let message = |class: u32| !data(class) && !inside(class);
        let mut messages: Vec<(Limit, bool)> = Vec::new();
        let mut told: FxHashSet<SmallVec<[(u32, u64); 4]>> = FxHashSet::default();
        for limit in takes.chunk_by(|a, b| a.0 == b.0).filter(|limit| limit.len() > 1) {
            let own = || limit.iter().filter(|&&(_, class, _)| message(class));
            let beside = limit.iter().any(|&(_, class, take)| inside(class) && most(class, take) > BESIDE);
            if own().count() < if beside { 1 } else { 2 } {
                continue;
            }
            let rounded = own().map(|&(_, class, take)| (class, (take / ROUNDED).round() as u64));
            if told.insert(rounded.chain([(u32::MAX, u64::from(beside))]).collect()) {
                messages.push((own().map(|&(_, class, take)| (class, take)).collect(), beside));
            }
        }
        if !meets && !close {
            takes.retain(|&(_, class, _)| !inside(class));
        }
        let mut crowd = 1.0f64;
        let mut seen: FxHashSet<SmallVec<[(u32, u64); 4]>> = FxHashSet::default();
        let mut limits: Vec<Limit> = Vec::new();
        for limit in takes.chunk_by(|a, b| a.0 == b.0).filter(|limit| limit.len() > 1) {
            let whole: f64 = limit.iter().map(|&(_, class, take)| most(class, take)).sum();
            if whole <= 1.0 + ROUNDED {
                continue;
            }
            // Links with one load are one limit.
            let rounded = limit.iter().map(|&(_, class, take)| (class, (take / ROUNDED).round() as u64));
            if !seen.insert(rounded.collect()) {
                continue;
            }
            let mut of_ranks = vec![0.0f64; ranks as usize];
            for &(_, class, take) in limit.iter().filter(|&&(_, class, _)| data(class)) {
                let most_of = &mut of_ranks[(class % ranks) as usize];
                *most_of = most_of.max(most(class, take));
            }
            crowd = crowd.max(of_ranks.iter().sum());
            limits.push(limit.iter().map(|&(_, class, take)| (class, take)).collect());
        }
        let (places, pools) = pooled(&fair, &limits);
        Self { ranks, fair, places, pools, messages, crowd, meets }
    }

    /// By how much data-parallel exchanges of all pipeline ranks at once are slower than those of one.
    pub fn crowd(&self) -> f64 {
        self.crowd
    }

    /// For how long messages hold the link that they hold longest, where `work` says what those of a class take: beside each other, and beside
    /// exchanges inside passes.
    pub fn held(&self, work: &dyn Fn(u32) -> f64) -> [f64; 2] {
        let mut found = [0.0f64; 2];
        for (limit, beside) in &self.messages {
            let taken: f64 = limit.iter().map(|&(class, take)| take * work(class)).sum();
            if limit.len() > 1 {
                found[0] = found[0].max(taken);
            }
            if *beside {
                found[1] = found[1].max(taken);
            }
        }
        found
    }

    /// Whether exchanges inside passes meet others on links, so that how long a pass takes depends on what goes on beside it.
    pub fn meets(&self) -> bool {
        self.meets
    }
}

/// Pools of the classes that `limits` bind together, and where each class is.
fn pooled(fair: &[(f64, f64)], limits: &[Limit]) -> (Vec<Option<(u32, u32)>>, Vec<Pool>) {
    fn root(over: &mut [u32], mut class: u32) -> u32 {
        while over[class as usize] != class {
            over[class as usize] = over[over[class as usize] as usize];
            class = over[class as usize];
        }
        class
    }
    let mut over: Vec<u32> = (0..fair.len() as u32).collect();
    let mut bound = vec![false; fair.len()];
    for limit in limits {
        let first = root(&mut over, limit[0].0);
        for &(class, _) in limit {
            bound[class as usize] = true;
            let other = root(&mut over, class);
            over[other as usize] = first;
        }
    }
    let mut numbers: Vec<Option<u32>> = vec![None; fair.len()];
    let mut pools: Vec<Pool> = Vec::new();
    let mut places = vec![None; fair.len()];
    for class in (0..fair.len()).filter(|&class| bound[class]) {
        let root = root(&mut over, class as u32) as usize;
        let pool = *numbers[root].get_or_insert_with(|| {
            pools.push(Pool::default());
            pools.len() as u32 - 1
        });
        let members = &mut pools[pool as usize].fair;
        places[class] = Some((pool, members.len() as u32));
        members.push(fair[class]);
    }
    for limit in limits {
        let place = |class: u32| places[class as usize].expect("a limit binds it");
        let local = limit.iter().map(|&(class, take)| (place(class).1, take)).collect();
        pools[place(limit[0].0).0 as usize].limits.push(local);
    }
    for pool in &mut pools {
        pool.settle();
    }
    (places, pools)
}

/// Whether `class` is in `set`.
fn goes(set: &[u64], class: u32) -> bool {
    set[class as usize / 64] >> (class % 64) & 1 == 1
}

/// Whether two sets have a class in common.
fn meet(a: &[u64], b: &[u64]) -> bool {
    a.iter().zip(b).any(|(a, b)| a & b != 0)
}

impl Pool {
    /// Leaves out limits that another one implies whatever is under way, since it has all of their classes and each takes no less of it.
    fn settle(&mut self) {
        let words = self.fair.len().div_ceil(64);
        let mask = |limit: &Limit| {
            let mut mask = Set::from_elem(0, words);
            for &(class, _) in limit {
                mask[class as usize / 64] |= 1 << (class % 64);
            }
            mask
        };
        let masks: Vec<Set> = self.limits.iter().map(mask).collect();
        let number = self.limits.len();
        let implied = |of: usize, by: usize| {
            if !masks[of].iter().zip(&masks[by]).all(|(of, by)| of & !by == 0) {
                return false;
            }
            let mut wider = self.limits[by].iter();
            self.limits[of].iter().all(|&(class, take)| {
                wider.find(|&&(other, _)| other == class).is_some_and(|&(_, other)| take <= other)
            })
        };
        let mut kept = vec![true; number];
        if number <= COMPARED {
            for of in 0..number {
                kept[of] = !(0..number).any(|by| by != of && kept[by] && implied(of, by));
            }
        }
        let mut keep = kept.iter();
        self.limits.retain(|_| *keep.next().expect("one for each"));
        self.masks = masks.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(mask, _)| mask).collect();
    }

    /// Rates of the classes `under_way`.
    pub(super) fn rates(&self, under_way: &Set) -> Rates {
        if let Some(known) = self.known.borrow().get(under_way) {
            return Rc::clone(known);
        }
        let found: Rates = self.solve(under_way).into();
        if self.known.borrow().len() >= KNOWN {
            self.known.borrow_mut().clear();
        }
        self.known.borrow_mut().insert(under_way.clone(), Rc::clone(&found));
        found
    }

    /// Progressive filling: all rates rise together until a limit or a class's own rate stops some of them.
    fn solve(&self, under_way: &Set) -> Vec<(u32, f64)> {
        let classes: Vec<u32> = (0..self.fair.len() as u32).filter(|&class| goes(under_way, class)).collect();
        // Below 0: still rising.
        let mut rates = vec![-1.0f64; self.fair.len()];
        // What of each limit is under way, one after the other, and the level at which it is full.
        let mut taken: Vec<(u32, f64)> = Vec::new();
        let mut limits: Vec<Under<'_>> = Vec::new();
        for (limit, mask) in self.limits.iter().zip(&self.masks) {
            let both: u32 = mask.iter().zip(under_way).map(|(a, b)| (a & b).count_ones()).sum();
            if both > 1 {
                let from = taken.len();
                taken.extend(limit.iter().filter(|&&(class, _)| goes(under_way, class)));
                limits.push(Under { mask, from, to: taken.len(), full: 0.0, stale: true });
            }
        }
        // Classes that the last round stopped: only limits that have one of them are full at another level than before.
        let mut stopped = Set::from_elem(0, under_way.len());
        loop {
            let mut level = f64::INFINITY;
            for &class in classes.iter().filter(|&&class| rates[class as usize] < 0.0) {
                let (share, most) = self.fair[class as usize];
                level = level.min(most / share.max(f64::MIN_POSITIVE));
            }
            if level.is_infinite() {
                break;
            }
            for limit in &mut limits {
                if limit.stale || meet(limit.mask, &stopped) {
                    limit.stale = false;
                    limit.full = self.full(&taken[limit.from..limit.to], &rates);
                }
                level = level.min(limit.full);
            }
            stopped.fill(0);
            let reached = level * (1.0 + ROUNDED);
            let mut stop = |class: u32| stopped[class as usize / 64] |= 1 << (class % 64);
            for limit in limits.iter().filter(|limit| limit.full <= reached) {
                for &(class, _) in &taken[limit.from..limit.to] {
                    let rate = &mut rates[class as usize];
                    if *rate < 0.0 {
                        *rate = level * self.fair[class as usize].0;
                        stop(class);
                    }
                }
            }
            for &class in &classes {
                let (share, most) = self.fair[class as usize];
                let rate = &mut rates[class as usize];
                if *rate < 0.0 && most <= reached * share {
                    *rate = most;
                    stop(class);
                }
            }
            limits.retain(|limit| limit.full > reached && limit.full.is_finite());
        }
        let rate = |class: u32| if rates[class as usize] < 0.0 { 1.0 } else { rates[class as usize] };
        classes.iter().map(|&class| (class, rate(class))).collect()
    }

    /// The level of those that still rise at which a limit is full that is `taken` so.
    fn full(&self, taken: &[(u32, f64)], rates: &[f64]) -> f64 {
        let (mut rising, mut held) = (0.0, 0.0);
        for &(class, take) in taken {
            match rates[class as usize] {
                rate if rate < 0.0 => rising += take * self.fair[class as usize].0,
                rate => held += take * rate,
            }
        }
        if rising > 0.0 { (1.0 - held).max(0.0) / rising } else { f64::INFINITY }
    }
}

/// A limit while rates rise.
struct Under<'a> {
    mask: &'a Set,
    from: usize,
    to: usize,
    full: f64,
    stale: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_use_its_share_leaves_it_to_others() {
        // Rank 0 has a link of a quarter: the shared one is left to rank 1 but for that.
        let mut classes = vec![Class::default(); 2 * Of::ALL.len()];
        classes[0] = Class { bit: 1.0, flow: 1.0, links: vec![(0, 1.0), (1, 4.0)] };
        classes[1] = Class { bit: 1.0, flow: 1.0, links: vec![(0, 1.0)] };
        let shares = Shares::new(2, &classes);
        let set = |bits: u64| Set::from_slice(&[bits]);
        assert_eq!(shares.pools[0].solve(&set(0b11)), [(0, 0.25), (1, 0.75)]);
        assert_eq!(shares.pools[0].solve(&set(0b10)), [(1, 1.0)]);
    }
}
