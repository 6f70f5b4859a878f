//! Which event queue: nanoseconds per (pop, push) pair, by queue and load.
//!
//! `cargo bench -p windtunnel-kernel --bench queue`. Loads: the hold model (pop the earliest, push one an exponential
//! or a bimodal delay later) at a steady number of events, and bursts (each event of an instant pushes one for the same
//! instant and one for a common later instant, as the steps of a collective do).
#![allow(clippy::disallowed_methods, reason = "a bench reads the wall clock")]

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::Instant;

use windtunnel_kernel::queue::{EventKey, EventOrder, EventQueue, Sequenced};
use windtunnel_kernel::{RandomStream, Time};

trait Queue<K> {
    fn push(&mut self, key: K, event: u32);
    fn pop(&mut self) -> Option<(K, u32)>;
}

impl<K: EventOrder> Queue<K> for EventQueue<u32, K> {
    fn push(&mut self, key: K, event: u32) {
        Self::push(self, key, event);
    }
    fn pop(&mut self) -> Option<(K, u32)> {
        Self::pop(self)
    }
}

#[derive(Default)]
struct Binary<K: Ord>(BinaryHeap<Reverse<(K, u32)>>);

impl<K: Ord> Queue<K> for Binary<K> {
    fn push(&mut self, key: K, event: u32) {
        self.0.push(Reverse((key, event)));
    }
    fn pop(&mut self) -> Option<(K, u32)> {
        self.0.pop().map(|item| item.0)
    }
}

/// Calendar queue: a power of two of buckets of equal width, each sorted; doubled and halved with the number
/// of events, the width from the mean gap of the events nearest the front.
struct Calendar<K> {
    buckets: Vec<VecDeque<(K, u32)>>,
    width: u64,
    /// Number (not index) of the current bucket: time / width.
    current: u64,
    len: usize,
}

impl<K: EventOrder> Default for Calendar<K> {
    fn default() -> Self {
        Self { buckets: vec![VecDeque::new(); 2], width: 1, current: 0, len: 0 }
    }
}

impl<K: EventOrder> Calendar<K> {
    fn insert(&mut self, key: K, event: u32) {
        let mask = self.buckets.len() as u64 - 1;
        let number = key.time().0 / self.width;
        self.current = self.current.min(number);
        let bucket = &mut self.buckets[(number & mask) as usize];
        let at = bucket.partition_point(|item| item.0.before(key));
        bucket.insert(at, (key, event));
    }

    fn resize(&mut self, count: usize) {
        let mut items: Vec<(K, u32)> = self.buckets.iter_mut().flat_map(std::mem::take).collect();
        items.sort_unstable_by(|a, b| if a.0.before(b.0) { Ordering::Less } else { Ordering::Greater });
        let sample = items.len().min(64);
        if sample > 1 {
            let span = items[sample - 1].0.time().0 - items[0].0.time().0;
            self.width = (3 * span / sample as u64).max(1);
        }
        self.buckets.resize_with(count, VecDeque::new);
        self.current = u64::MAX;
        for (key, event) in items {
            self.insert(key, event);
        }
    }
}

impl<K: EventOrder> Queue<K> for Calendar<K> {
    fn push(&mut self, key: K, event: u32) {
        if self.len == 0 {
            self.current = key.time().0 / self.width;
        }
        self.insert(key, event);
        self.len += 1;
        if self.len > 2 * self.buckets.len() {
            self.resize(2 * self.buckets.len());
        }
    }

    fn pop(&mut self) -> Option<(K, u32)> {
        if self.len == 0 {
            return None;
        }
        let mask = self.buckets.len() as u64 - 1;
        for number in self.current..=self.current + mask {
            let bucket = &mut self.buckets[(number & mask) as usize];
            if let Some(&item) = bucket.front().filter(|item| item.0.time().0 / self.width == number) {
                bucket.pop_front();
                self.current = number;
                self.len -= 1;
                if self.len < self.buckets.len() / 2 && self.buckets.len() > 2 {
                    self.resize(self.buckets.len() / 2);
                }
                return Some(item);
            }
        }
        // A whole year is empty: go to the earliest event directly.
        let earliest =
            self.buckets.iter().filter_map(|bucket| bucket.front()).map(|item| item.0.time()).min()?;
        self.current = earliest.0 / self.width;
        self.pop()
    }
}

/// Makes keys.
trait Make: Copy {
    /// Whether keys of one instant grow with insertion. If not, a burst lies in one bucket of a calendar in random order,
    /// and filling it takes a time that is quadratic in the burst.
    const GROW: bool;
    fn make(time: u64, number: u64) -> Self;
}

impl Make for Sequenced {
    const GROW: bool = true;

    fn make(time: u64, number: u64) -> Self {
        Self { time: Time(time), number }
    }
}

impl Make for EventKey {
    const GROW: bool = false;

    fn make(time: u64, number: u64) -> Self {
        Self {
            time: Time(time),
            class: 0,
            receiver: number as u32 & 0xfff,
            sender: number as u32 & 0xff,
            count: number,
        }
    }
}

#[derive(Clone, Copy)]
enum Load {
    Exponential,
    Bimodal,
    Bursts,
}

/// Nanoseconds per pop, best of three.
fn measure<K: Make + EventOrder, Q: Queue<K>>(make: impl Fn() -> Q, load: Load, n: u64) -> f64 {
    let pops = (2 * n).clamp(400_000, 2_000_000);
    let mut draws = RandomStream::new(1, "queue-bench", n);
    let delays: Vec<u64> = (0..1 << 16)
        .map(|i| match load {
            Load::Exponential => 1 + (draws.exponential() * 1e6) as u64,
            Load::Bimodal => {
                if i % 10 == 0 {
                    50_000_000 + draws.below(1_000_000)
                } else {
                    10_000 + draws.below(1_000)
                }
            }
            Load::Bursts => 1_000_000,
        })
        .collect();
    (0..3)
        .map(|_| {
            let mut queue = make();
            let mut number = 0;
            let mut push = |queue: &mut Q, time| {
                queue.push(K::make(time, number), number as u32 & 1);
                number += 1;
            };
            for i in 0..n {
                let time = if matches!(load, Load::Bursts) { 0 } else { delays[i as usize & 0xffff] };
                push(&mut queue, time);
            }
            let start = Instant::now();
            for i in 0..pops {
                let (key, event) = queue.pop().expect("a push follows each pop");
                let now = key.time().0;
                // In bursts every other pop stays in the instant.
                let delay =
                    if matches!(load, Load::Bursts) && event == 0 { 0 } else { delays[i as usize & 0xffff] };
                push(&mut queue, now + delay);
            }
            black_box(&queue.pop());
            start.elapsed().as_nanos() as f64 / pops as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn rows<K: Make + EventOrder + Ord>(name: &str) {
    for (load, label) in
        [(Load::Exponential, "hold, exponential"), (Load::Bimodal, "hold, bimodal"), (Load::Bursts, "bursts")]
    {
        for n in [1_000, 100_000, 1_000_000] {
            let binary = measure::<K, _>(|| Binary(BinaryHeap::new()), load, n);
            let quaternary = measure::<K, _>(EventQueue::<u32, K>::new, load, n);
            let quadratic = matches!(load, Load::Bursts) && !K::GROW && n > 1_000;
            let calendar = if quadratic {
                "(quadratic)".to_owned()
            } else {
                format!("{:.1}", measure::<K, _>(Calendar::default, load, n))
            };
            println!(
                "{name:<9} {label:<17} {n:>7} events: binary heap {binary:>6.1}, 4-ary heap with lane {quaternary:>6.1}, \
                 calendar {calendar:>11} ns per pop and push"
            );
        }
    }
}

fn main() {
    rows::<Sequenced>("Sequenced");
    rows::<EventKey>("EventKey");
}
