//! Event order and event queue.
//!
//! **Order.** Every event of a sharded model has a key, the tuple (time, class, receiving entity, sending entity, the
//! sender's own count), compared in that order: [`EventKey`]. Counts are per entity, so no key depends on processes or
//! threads and the order is the same for any partition. A model that has exactly one shard may use the shorter
//! [`Sequenced`] (time, insertion number).
//!
//! **Queue.** [`EventQueue`] pops in key order. Life cycle: events are pushed at or after the time last popped and
//! popped once; there is no removal, a cancelled event is recognised by its owner when it comes out. Keys are meant to be
//! unique; equal keys come out in an order that is a function of the calls alone.
//!
//! It is a 4-ary implicit heap with a first-in-first-out lane for the current instant: an event pushed for the instant
//! that is being handled, behind everything already in the lane, never touches the heap. Collectives and all-to-alls
//! push thousands of such events.
//!
//! [`CalendarQueue`] pops in the same order. By `cargo bench -p windtunnel-kernel --bench queue` it is two to three times
//! as fast on the load of the packet engine from a thousand events pending to a million, and not slower on any load
//! tried, but it has more state to keep in a cache, and allocates a ring. Few events, or one queue per entity: the heap.
//! A shard's worth of packets: the calendar. [`Agenda`] is a calendar for entities that wait for one instant each, as the
//! ports of a fabric do: it keeps no nodes, sorts words, and tells whose turn is next.

mod agenda;
mod calendar;
#[cfg(test)]
mod load;
mod networks;

use std::collections::VecDeque;

pub use agenda::Agenda;
pub use calendar::CalendarQueue;

use crate::units::Time;

/// The order of events, the same for any partition: the tuple of the fields as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventKey {
    /// When.
    pub time: Time,
    /// What kind of event: lower classes act first within an instant.
    pub class: u8,
    /// Entity the event acts on.
    pub receiver: u32,
    /// Entity that caused it.
    pub sender: u32,
    /// How many events the sender had caused before.
    pub count: u64,
}

/// The order of events in a model with one shard: by time, then by insertion number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sequenced {
    /// When.
    pub time: Time,
    /// Insertion number, unique within the model.
    pub number: u64,
}

/// A key by which events are ordered, the time first.
pub trait EventOrder: Copy {
    /// When the event happens.
    fn time(self) -> Time;
    /// Whether `self` comes before `other`.
    fn before(self, other: Self) -> bool;
}

impl EventOrder for EventKey {
    #[inline]
    fn time(self) -> Time {
        self.time
    }

    #[inline]
    fn before(self, other: Self) -> bool {
        self < other
    }
}

impl EventOrder for Sequenced {
    #[inline]
    fn time(self) -> Time {
        self.time
    }

    #[inline]
    fn before(self, other: Self) -> bool {
        // One wide comparison instead of two that predict badly.
        let wide = |key: Self| u128::from(key.time.ps()) << 64 | u128::from(key.number);
        wide(self) < wide(other)
    }
}

/// Children per node of the heap: four keys fill a cache line or two, and the heap is half as deep as a binary one.
const ARITY: usize = 4;

/// A queue of events, earliest first. See the module page.
#[derive(Clone, Debug)]
pub struct EventQueue<T, K = EventKey> {
    heap: Vec<(K, T)>,
    /// Sorted; all of one instant.
    lane: VecDeque<(K, T)>,
    /// Time of the last pop.
    now: Time,
}

impl<T: Copy, K: EventOrder> EventQueue<T, K> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { heap: Vec::new(), lane: VecDeque::new(), now: Time::ZERO }
    }

    /// Number of events.
    #[inline]
    pub fn len(&self) -> usize {
        self.heap.len() + self.lane.len()
    }

    /// Whether there is no event.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty() && self.lane.is_empty()
    }

    /// Adds an event.
    #[inline]
    pub fn push(&mut self, key: K, event: T) {
        let in_lane = match self.lane.back() {
            None => key.time() == self.now,
            Some(&(last, _)) => key.time() == last.time() && last.before(key),
        };
        if in_lane {
            self.lane.push_back((key, event));
        } else {
            self.heap.push((key, event));
            self.sift_up(self.heap.len() - 1);
        }
    }

    /// Key of the earliest event.
    #[inline]
    pub fn peek(&self) -> Option<K> {
        match (self.lane.front(), self.heap.first()) {
            (None, None) => None,
            (Some(&(key, _)), None) | (None, Some(&(key, _))) => Some(key),
            (Some(&(lane, _)), Some(&(heap, _))) => Some(if heap.before(lane) { heap } else { lane }),
        }
    }

    /// The earliest event, for a caller that has brought from memory what it will need of it.
    #[inline]
    pub fn first(&self) -> Option<T> {
        match (self.lane.front(), self.heap.first()) {
            (None, None) => None,
            (Some(&(_, event)), None) | (None, Some(&(_, event))) => Some(event),
            (Some(&(lane, in_lane)), Some(&(heap, in_heap))) => {
                Some(if heap.before(lane) { in_heap } else { in_lane })
            }
        }
    }

    /// Takes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<(K, T)> {
        let from_lane = match (self.lane.front(), self.heap.first()) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(&(lane, _)), Some(&(heap, _))) => !heap.before(lane),
        };
        let item = if from_lane { self.lane.pop_front() } else { self.pop_heap() };
        if let Some((key, _)) = item {
            self.now = key.time();
        }
        item
    }

    #[inline]
    fn pop_heap(&mut self) -> Option<(K, T)> {
        let last = self.heap.pop()?;
        if self.heap.is_empty() {
            return Some(last);
        }
        let first = self.heap[0];
        self.fill_root(last);
        Some(first)
    }

    /// Puts `item` in place of the root.
    #[inline]
    fn fill_root(&mut self, item: (K, T)) {
        let heap = self.heap.as_mut_slice();
        let mut hole = 0;
        // A full family is decided by a tournament of positions: no branch depends on who wins.
        while let Some([a, b, c, d]) =
            heap.get(hole * ARITY + 1..).and_then(|tail| tail.first_chunk::<ARITY>())
        {
            let left = usize::from(b.0.before(a.0));
            let right = 2 + usize::from(d.0.before(c.0));
            let family = [a.0, b.0, c.0, d.0];
            let first = if family[right].before(family[left]) { right } else { left };
            let child = hole * ARITY + 1 + first;
            if !heap[child].0.before(item.0) {
                heap[hole] = item;
                return;
            }
            heap[hole] = heap[child];
            hole = child;
        }
        // The last family may be smaller.
        let start = hole * ARITY + 1;
        if let Some(child) =
            (start..heap.len()).reduce(|a, b| if heap[b].0.before(heap[a].0) { b } else { a })
            && heap[child].0.before(item.0)
        {
            heap[hole] = heap[child];
            hole = child;
        }
        heap[hole] = item;
    }

    #[inline]
    fn sift_up(&mut self, mut hole: usize) {
        let heap = self.heap.as_mut_slice();
        let item = heap[hole];
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !item.0.before(heap[parent].0) {
                break;
            }
            heap[hole] = heap[parent];
            hole = parent;
        }
        heap[hole] = item;
    }
}

impl<T: Copy, K: EventOrder> Default for EventQueue<T, K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key() -> impl Strategy<Value = EventKey> {
        let entity = || prop_oneof![0..3u32, Just(255), Just(256), any::<u32>()];
        (prop_oneof![0..4u64, any::<u64>()], 0..3u8, entity(), entity(), prop_oneof![0..3u64, any::<u64>()])
            .prop_map(|(time, class, receiver, sender, count)| EventKey {
                time: Time::from_ps(time),
                class,
                receiver,
                sender,
                count,
            })
    }

    proptest! {
        #[test]
        fn keys_compare_as_their_tuple(a in key(), b in key(), equal in 0..4u8) {
            let mut b = b;
            if equal > 0 {
                b.time = a.time;
            }
            if equal > 1 {
                (b.class, b.receiver) = (a.class, a.receiver);
            }
            if equal > 2 {
                b.sender = a.sender;
            }
            let tuple = |k: EventKey| (k.time.ps(), k.class, k.receiver, k.sender, k.count);
            prop_assert_eq!(a.cmp(&b), tuple(a).cmp(&tuple(b)));
            prop_assert_eq!(a.before(b), tuple(a) < tuple(b));
        }

        #[test]
        fn sequenced_keys_compare_as_their_tuple(a in any::<(u64, u64)>(), b in any::<(u64, u64)>(), equal: bool) {
            let key = |(time, number)| Sequenced { time: Time::from_ps(time), number };
            let b = if equal { (a.0, b.1) } else { b };
            prop_assert_eq!(key(a).before(key(b)), a < b);
            prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
        }

        /// Any interleaving of pushes (not before the last pop) and pops gives what a sorted list gives.
        #[test]
        fn the_queue_pops_in_key_order(calls in prop::collection::vec((0..4u64, 0..2u8, 0..50u32, prop::bool::weighted(0.4)), 0..400)) {
            let mut queue = EventQueue::new();
            let mut list: Vec<(EventKey, u64)> = Vec::new();
            let mut now = Time::ZERO;
            for (count, (delay, class, receiver, pop)) in (0u64..).zip(calls) {
                if pop {
                    list.sort_unstable();
                    let expected = (!list.is_empty()).then(|| list.remove(0));
                    prop_assert_eq!(queue.peek(), expected.map(|item| item.0));
                    prop_assert_eq!(queue.pop(), expected);
                    now = expected.map_or(now, |item| item.0.time);
                } else {
                    let key = EventKey { time: Time::from_ps(now.ps() + delay), class, receiver, sender: 0, count };
                    queue.push(key, count);
                    list.push((key, count));
                }
                prop_assert_eq!(queue.len(), list.len());
                prop_assert_eq!(queue.is_empty(), list.is_empty());
            }
        }
    }
}
