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
    crowd: f64,
    meets: bool,
}

/// Exchanges inside passes are followed where others want more than so much of a link beside them.
const MEETS: f64 = 1.25;

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
        let inside = |class: u32| class / ranks > Of::Down as u32;
        let most = |class: u32, take: f64| take * fair[class as usize].1;
        let meets = takes.chunk_by(|a, b| a.0 == b.0).any(|limit| {
            let counted = limit.iter().filter(|&&(_, class, _)| data(class) || inside(class));
            limit.iter().any(|&(_, class, _)| inside(class))
                && counted.map(|&(_, class, take)| most(class, take)).sum::<f64>() > MEETS
        });
        if !meets {
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
        Self { ranks, fair, places, pools, crowd, meets }
    }

    /// By how much data-parallel exchanges of all pipeline ranks at once are slower than those of one.
    pub fn crowd(&self) -> f64 {
        self.crowd
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
    (places, pools)
}

impl Pool {
    /// Rates of the classes `under_way`.
    pub(super) fn rates(&self, under_way: &Set) -> Rates {
        if let Some(known) = self.known.borrow().get(under_way) {
            return Rc::clone(known);
        }
        let found: Rates = self.solve(under_way).into();
        self.known.borrow_mut().insert(under_way.clone(), Rc::clone(&found));
        found
    }

    /// Progressive filling: all rates rise together until a limit or a class's own rate stops some of them.
    fn solve(&self, under_way: &Set) -> Vec<(u32, f64)> {
        let goes = |class: u32| under_way[class as usize / 64] >> (class % 64) & 1 == 1;
        let classes: Vec<u32> = (0..self.fair.len() as u32).filter(|&class| goes(class)).collect();
        // Below 0: still rising.
        let mut rates = vec![-1.0f64; self.fair.len()];
        let mut limits: Vec<&Limit> = self
            .limits
            .iter()
            .filter(|limit| limit.iter().filter(|&&(class, _)| goes(class)).count() > 1)
            .collect();
        let mut levels: Vec<f64> = Vec::with_capacity(limits.len());
        loop {
            let mut level = f64::INFINITY;
            for &class in classes.iter().filter(|&&class| rates[class as usize] < 0.0) {
                let (share, most) = self.fair[class as usize];
                level = level.min(most / share.max(f64::MIN_POSITIVE));
            }
            if level.is_infinite() {
                break;
            }
            levels.clear();
            for limit in &limits {
                let (mut rising, mut taken) = (0.0, 0.0);
                for &(class, take) in limit.iter().filter(|&&(class, _)| goes(class)) {
                    match rates[class as usize] {
                        rate if rate < 0.0 => rising += take * self.fair[class as usize].0,
                        rate => taken += take * rate,
                    }
                }
                levels.push(if rising > 0.0 { (1.0 - taken).max(0.0) / rising } else { f64::INFINITY });
            }
            level = levels.iter().copied().fold(level, f64::min);
            let reached = level * (1.0 + ROUNDED);
            for (limit, _) in limits.iter().zip(&levels).filter(|(_, full)| **full <= reached) {
                for &(class, _) in limit.iter().filter(|&&(class, _)| goes(class)) {
                    let rate = &mut rates[class as usize];
                    if *rate < 0.0 {
                        *rate = level * self.fair[class as usize].0;
                    }
                }
            }
            for &class in &classes {
                let (share, most) = self.fair[class as usize];
                let rate = &mut rates[class as usize];
                if *rate < 0.0 && most <= reached * share {
                    *rate = most;
                }
            }
            let mut open = levels.iter().map(|&full| full > reached && full.is_finite());
            limits.retain(|_| open.next().unwrap_or(false));
        }
        let rate = |class: u32| if rates[class as usize] < 0.0 { 1.0 } else { rates[class as usize] };
        classes.iter().map(|&class| (class, rate(class))).collect()
    }
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
