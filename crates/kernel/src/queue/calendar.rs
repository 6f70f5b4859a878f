//! A calendar queue that fits itself to its load.
//!
//! Time is cut into buckets of equal width, a power of two; a ring of them covers the near future (Brown, "Calendar
//! queues", CACM 31(10), 1988). The bucket whose turn it is, the *current* one, is sorted by the full key when its turn
//! comes, the others are lists in no order: an event is touched twice, and compared with the few that share its bucket.
//! A pop takes the end of the current bucket.
//!
//! **What goes wrong with calendars, and what is done.**
//! - *Events far ahead* (time-outs) would be met at every turn of the ring: they wait in a heap until their bucket's turn
//!   comes.
//! - *Bursts* of one instant all lie in one bucket. It is sorted once; what is pushed into it meanwhile goes to its place
//!   if this is near the front, and else to a second heap, never through a long shift. So the worst load costs what the
//!   heap costs, and a sort.
//! - *Empty stretches* are skipped by a bitmap, 64 buckets a step.
//! - *A look ahead* ([`CalendarQueue::peek`]) moves the current bucket to the next event, and mail may come before it.
//!   Then the few events of that bucket are put back and the cursor goes back. A list may therefore hold events of
//!   several turns. Those of another turn are left in it, but not for ever: once as many were passed as there are events
//!   in lists, all that are a turn away or more go to the heap. So an event is passed a bounded number of times.
//!
//! **Width and number of buckets** follow the load: after as many pops as events are pending (1024 at least), the width
//! is made [`FILL`] times the mean time between pops, and there are two to four buckets per event pending. Both are a
//! function of the calls alone, and neither can be seen in what is popped: the order is that of keys, always.
//!
//! **Life cycle and misuse** are those of [`EventQueue`]; an event before the last pop is popped next. Keys must be
//! unique. Memory: a node per event pending at most, two words per bucket.
//!
//! Measured by `cargo bench -p windtunnel-kernel --bench queue` against the heap: see [the module above](super).

use super::{EventKey, EventOrder, EventQueue};
use crate::units::Time;

/// No node.
const NONE: u32 = u32::MAX;

/// Events that a bucket is to hold when its turn comes.
const FILL: u64 = 4;

/// Pops between two looks at the width, at least.
const LOOK: u64 = 1 << 10;

/// Fewest and most buckets.
const BUCKETS: (usize, usize) = (1 << 6, 1 << 20);

/// An event of the current bucket is moved at most by so many places; behind them it goes to the heap.
const REACH: usize = 24;

/// Most events of the current bucket that are put back when an earlier one comes.
const RETREAT: usize = 32;

/// An event in a list.
#[derive(Clone, Copy, Debug)]
struct Node<T, K> {
    key: K,
    event: T,
    next: u32,
}

/// A queue of events, earliest first, for many events that are spread in time. See the module page.
#[derive(Clone, Debug)]
pub struct CalendarQueue<T, K = EventKey> {
    /// Events of the current bucket and before, the latest first.
    current: Vec<(K, T)>,
    /// More of these.
    late: EventQueue<T, K>,
    /// Number of the current bucket: time over width.
    cursor: u64,
    /// The width is 2^shift ps.
    shift: u32,
    /// First node of each bucket.
    heads: Vec<u32>,
    /// A bit per bucket that has nodes.
    occupied: Vec<u64>,
    nodes: Vec<Node<T, K>>,
    /// First free node.
    free: u32,
    /// Nodes in buckets.
    filed: usize,
    /// Events that were a turn of the ring away, or more, when they came.
    far: EventQueue<T, K>,
    /// Events of other turns that were passed since lists were last cleared of them.
    passed: usize,
    /// Time of the last pop.
    now: Time,
    /// Pops and time since the last look at the width.
    pops: u64,
    since: Time,
    look: u64,
}

impl<T: Copy, K: EventOrder> CalendarQueue<T, K> {
    /// An empty queue.
    pub fn new() -> Self {
        Self {
            current: Vec::new(),
            late: EventQueue::new(),
            cursor: 0,
            shift: 14,
            heads: vec![NONE; BUCKETS.0],
            occupied: vec![0; BUCKETS.0 / 64],
            nodes: Vec::new(),
            free: NONE,
            filed: 0,
            far: EventQueue::new(),
            passed: 0,
            now: Time::ZERO,
            pops: 0,
            since: Time::ZERO,
            look: LOOK,
        }
    }

    /// Number of events.
    #[inline]
    pub fn len(&self) -> usize {
        self.current.len() + self.late.len() + self.filed + self.far.len()
    }

    /// Whether there is no event.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an event.
    #[inline]
    pub fn push(&mut self, key: K, event: T) {
        let number = self.number(key);
        if number > self.cursor {
            if number - self.cursor < self.heads.len() as u64 {
                self.file(number, key, event);
            } else {
                self.far.push(key, event);
            }
        } else {
            self.push_current(number, key, event);
        }
    }

    /// Key of the earliest event, which is looked for if need be.
    #[inline]
    pub fn peek(&mut self) -> Option<K> {
        if self.current.is_empty() && self.late.is_empty() && !self.advance() {
            return None;
        }
        match (self.current.last(), self.late.peek()) {
            (Some(&(current, _)), Some(late)) => Some(if late.before(current) { late } else { current }),
            (Some(&(key, _)), None) | (None, Some(key)) => Some(key),
            (None, None) => None,
        }
    }

    /// Key of the event that comes after so many others, if no other is pushed before it and it is in sight.
    #[inline]
    pub fn ahead(&self, others: usize) -> Option<K> {
        let place = self.current.len().checked_sub(others + 1)?;
        self.current.get(place).map(|&(key, _)| key)
    }

    /// Takes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<(K, T)> {
        if self.pops >= self.look {
            self.adapt();
        }
        if self.current.is_empty() && self.late.is_empty() && !self.advance() {
            return None;
        }
        let item = if self.late.is_empty() { self.current.pop()? } else { self.pop_either()? };
        self.now = item.0.time();
        self.pops += 1;
        Some(item)
    }

    #[cold]
    fn pop_either(&mut self) -> Option<(K, T)> {
        match (self.current.last(), self.late.peek()) {
            (Some(&(current, _)), Some(late)) if current.before(late) => self.current.pop(),
            _ => self.late.pop(),
        }
    }

    #[inline]
    fn number(&self, key: K) -> u64 {
        key.time().ps() >> self.shift
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.heads.len() - 1)
    }

    /// Puts an event into its bucket.
    #[inline]
    fn file(&mut self, number: u64, key: K, event: T) {
        let slot = self.slot(number);
        let node = Node { key, event, next: self.heads[slot] };
        let place = self.free;
        if let Some(free) = self.nodes.get_mut(place as usize) {
            self.free = free.next;
            *free = node;
            self.heads[slot] = place;
        } else {
            self.heads[slot] = u32::try_from(self.nodes.len()).expect("more than 2^32 events");
            self.nodes.push(node);
        }
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.filed += 1;
    }

    /// Adds an event of the current bucket or before.
    #[inline]
    fn push_current(&mut self, number: u64, key: K, event: T) {
        if number < self.cursor && !self.current.is_empty() && self.retreat(number) {
            self.current.push((key, event));
            return;
        }
        // Latest first, so the place is near the end for what is due soon.
        let len = self.current.len();
        let reach = &self.current[len.saturating_sub(REACH)..];
        let Some(earlier) = reach.iter().rev().position(|item| key.before(item.0)) else {
            if len > REACH {
                self.late.push(key, event);
            } else {
                self.current.insert(0, (key, event));
            }
            return;
        };
        self.current.insert(len - earlier, (key, event));
    }

    /// Goes back to an earlier bucket, whose events would otherwise all count as current: the cursor had run ahead
    /// because nothing was nearer.
    #[cold]
    fn retreat(&mut self, number: u64) -> bool {
        if self.current.len() > RETREAT || !self.late.is_empty() {
            return false;
        }
        self.cursor = number;
        let mut items = std::mem::take(&mut self.current);
        for &(key, event) in &items {
            self.push(key, event);
        }
        if self.current.is_empty() {
            items.clear();
            self.current = items;
        }
        self.current.is_empty()
    }

    /// Makes the next bucket that has events the current one; whether there is one.
    fn advance(&mut self) -> bool {
        if self.passed > self.filed {
            self.clear_lists();
        }
        let far = self.far.peek().map_or(u64::MAX, |key| self.number(key));
        let end = self.cursor.saturating_add(self.heads.len() as u64);
        let mut number = self.cursor;
        while self.filed > 0
            && let Some(next) = self.next_occupied(number, end.min(far.saturating_add(1)))
        {
            if self.activate(next, far) {
                return true;
            }
            number = next;
        }
        if far >= end && self.filed > 0 {
            // What is left in lists is of other turns.
            self.clear_lists();
        }
        let Some(far) = self.far.peek().map(|key| self.number(key)) else { return false };
        self.activate(far, far)
    }

    /// Moves what is a turn of the ring away or more from the lists to the heap.
    #[cold]
    fn clear_lists(&mut self) {
        self.passed = 0;
        let (shift, buckets) = (self.shift, self.heads.len() as u64);
        for word in 0..self.occupied.len() {
            let mut left = self.occupied[word];
            while left != 0 {
                let slot = word * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                let (mut place, mut kept) = (self.heads[slot], NONE);
                while let Some(node) = self.nodes.get_mut(place as usize) {
                    let next = node.next;
                    if (node.key.time().ps() >> shift).saturating_sub(self.cursor) < buckets {
                        node.next = kept;
                        kept = place;
                    } else {
                        self.far.push(node.key, node.event);
                        node.next = self.free;
                        self.free = place;
                        self.filed -= 1;
                    }
                    place = next;
                }
                self.keep(slot, kept);
            }
        }
    }

    /// Leaves the list that begins with `kept` in a bucket.
    #[inline]
    fn keep(&mut self, slot: usize, kept: u32) {
        self.heads[slot] = kept;
        if kept == NONE {
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// The first bucket with nodes after `number` and before `end`, less than a turn of the ring away.
    fn next_occupied(&self, number: u64, end: u64) -> Option<u64> {
        let mut number = number.saturating_add(1);
        while number < end {
            let slot = self.slot(number);
            let word = self.occupied[slot / 64] >> (slot % 64);
            if word != 0 {
                let next = number + u64::from(word.trailing_zeros());
                return (next < end).then_some(next);
            }
            number = number.saturating_add(64 - (slot % 64) as u64);
        }
        None
    }

    /// Makes bucket `number` the current one, with the events of the heap if those of bucket `far` are the first there;
    /// whether it has events of this turn of the ring.
    fn activate(&mut self, number: u64, far: u64) -> bool {
        let slot = self.slot(number);
        let mut place = self.heads[slot];
        let mut kept = NONE;
        while let Some(node) = self.nodes.get_mut(place as usize) {
            let next = node.next;
            if node.key.time().ps() >> self.shift == number {
                self.current.push((node.key, node.event));
                node.next = self.free;
                self.free = place;
                self.filed -= 1;
            } else {
                node.next = kept;
                kept = place;
                self.passed += 1;
            }
            place = next;
        }
        self.keep(slot, kept);
        if far == number {
            while self.far.peek().is_some_and(|key| self.number(key) == number) {
                self.current.extend(self.far.pop());
            }
        }
        if self.current.is_empty() {
            return false;
        }
        self.cursor = number;
        // Latest first. A bucket holds a few events.
        if self.current.len() > 1 {
            self.current.sort_unstable_by(|a, b| {
                if b.0.before(a.0) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater }
            });
        }
        true
    }

    /// Fits width and number of buckets to the pops since the last look and the events pending.
    #[cold]
    fn adapt(&mut self) {
        let gap = self.now.since(self.since).ps() / self.pops;
        let len = self.len();
        let buckets = (len * 2).next_power_of_two().clamp(BUCKETS.0, BUCKETS.1);
        let shift = if gap == 0 { self.shift } else { (gap * FILL).ilog2() };
        let stale = self.shift.abs_diff(shift) > 1
            || buckets > 2 * self.heads.len()
            || buckets < self.heads.len() / 8;
        if stale {
            self.rebuild(shift, buckets);
        }
        self.since = self.now;
        self.pops = 0;
        self.look = (2 * self.look).clamp(LOOK, (len as u64).max(LOOK));
    }

    fn rebuild(&mut self, shift: u32, buckets: usize) {
        let mut items = std::mem::take(&mut self.current);
        while let Some(item) = self.late.pop() {
            items.push(item);
        }
        for &head in &self.heads {
            let mut place = head;
            while let Some(node) = self.nodes.get(place as usize) {
                items.push((node.key, node.event));
                place = node.next;
            }
        }
        self.nodes.clear();
        self.free = NONE;
        self.filed = 0;
        self.heads = vec![NONE; buckets];
        self.occupied = vec![0; buckets / 64];
        self.shift = shift;
        self.cursor = self.now.ps() >> shift;
        self.passed = 0;
        for (key, event) in items {
            self.push(key, event);
        }
        // A wider bucket may be the current one of what was far ahead.
        while let Some(key) = self.far.peek().filter(|&key| self.number(key) <= self.cursor) {
            if let Some((_, event)) = self.far.pop() {
                self.push_current(self.cursor, key, event);
            }
        }
    }
}

impl<T: Copy, K: EventOrder> Default for CalendarQueue<T, K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::load::calls;
    use proptest::prelude::*;

    fn agree(calls: Vec<(u8, usize, u64, u32)>) -> Result<(), TestCaseError> {
        let mut calendar = CalendarQueue::new();
        // A look at the width now and then, also in short runs.
        calendar.look = 16;
        let mut heap = EventQueue::new();
        let (mut now, mut count) = (0, 0u64);
        for (kind, times, delay, salt) in calls {
            for i in 0..times as u64 {
                match kind {
                    0 | 1 => {
                        let draw = crate::mix64(u64::from(salt) ^ i);
                        // Some of one instant, some spread.
                        let spread = if salt % 3 == 0 { 0 } else { draw % (delay / 2 + 1) };
                        let key = EventKey {
                            time: Time::from_ps(now + delay + spread),
                            class: (draw >> 8) as u8 % 2,
                            receiver: (draw >> 16) as u32 % 8,
                            sender: salt % 4,
                            count,
                        };
                        calendar.push(key, count);
                        heap.push(key, count);
                        count += 1;
                    }
                    2 => {
                        let expected = heap.pop();
                        prop_assert_eq!(calendar.pop(), expected);
                        now = expected.map_or(now, |item| item.0.time.ps());
                    }
                    _ => prop_assert_eq!(calendar.peek(), heap.peek()),
                }
                prop_assert_eq!(calendar.len(), heap.len());
                prop_assert_eq!(calendar.is_empty(), heap.is_empty());
            }
        }
        while let Some(expected) = heap.pop() {
            prop_assert_eq!(calendar.pop(), Some(expected));
        }
        prop_assert_eq!(calendar.pop(), None);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn a_calendar_pops_what_the_heap_pops(calls in calls()) {
            agree(calls)?;
        }
    }

    /// A look ahead at time-outs, which then lie behind what comes before them: however many there are, no event is passed more
    /// than a few times.
    #[test]
    fn what_lies_behind_is_not_met_again_and_again() {
        let mut calendar = CalendarQueue::new();
        let key = |ps: u64, count| EventKey { time: Time::from_ps(ps), count, ..EventKey::default() };
        let (timers, ms) = (10_000, 1_000_000_000);
        calendar.push(key(ms, 0), 0);
        // The look goes to the first of them, and the others are filed around it.
        calendar.peek();
        (1..timers).for_each(|i| calendar.push(key(ms + i * 10_000, i), i));
        let mut passed = 0;
        for i in 0..20_000 {
            calendar.push(key(i * 1_000, timers + i), timers + i);
            let before = calendar.passed;
            assert_eq!(calendar.pop(), Some((key(i * 1_000, timers + i), timers + i)));
            passed += calendar.passed.saturating_sub(before);
            calendar.peek();
        }
        assert!(passed < 40_000, "{passed}");
        (0..timers).for_each(|i| assert_eq!(calendar.pop(), Some((key(ms + i * 10_000, i), i))));
        assert_eq!(calendar.pop(), None);
    }

    /// Long enough for the width to follow the load from microseconds to nanoseconds and back.
    #[test]
    fn the_width_follows_the_load() {
        let mut calendar = CalendarQueue::new();
        let mut heap = EventQueue::new();
        let mut stream = crate::RandomStream::new(1, "calendar", 0);
        let mut push = |calendar: &mut CalendarQueue<u32>, heap: &mut EventQueue<u32>, time, count: u64| {
            let receiver = stream.below(64) as u32;
            let key = EventKey { time: Time::from_ps(time), receiver, count, ..EventKey::default() };
            calendar.push(key, receiver);
            heap.push(key, receiver);
        };
        let mut count = 0;
        for _ in 0..5_000 {
            push(&mut calendar, &mut heap, count % 977 * 1_000, count);
            count += 1;
        }
        let mut widths = Vec::new();
        for scale in [1_000_000, 100, 10_000_000] {
            for i in 0..30_000 {
                let (key, event) = heap.pop().unwrap();
                assert_eq!(calendar.pop(), Some((key, event)));
                push(&mut calendar, &mut heap, key.time.ps() + scale * (1 + i % 13), count);
                count += 1;
            }
            widths.push(calendar.shift);
        }
        assert!(widths[0] > widths[1] + 5 && widths[2] > widths[1] + 5, "{widths:?}");
    }

    /// Up to the last picosecond that there is, whatever the width.
    #[test]
    fn nothing_is_lost_at_the_end_of_time() {
        for bits in [6, 20, 34, 50] {
            let mut calendar = CalendarQueue::new();
            let mut heap = EventQueue::new();
            calendar.look = 16;
            let push = |calendar: &mut CalendarQueue<u64>, heap: &mut EventQueue<u64>, time, count| {
                let key = EventKey { time: Time::from_ps(time), count, ..EventKey::default() };
                calendar.push(key, count);
                heap.push(key, count);
            };
            for count in 0..200 {
                let before = crate::mix64(count << 8 | bits) >> (64 - bits);
                push(&mut calendar, &mut heap, u64::MAX - before, count);
            }
            for count in 200..5_200 {
                let Some((key, event)) = heap.pop() else { break };
                assert_eq!(calendar.pop(), Some((key, event)), "{bits} bits");
                let delay = crate::mix64(count) >> (64 - bits) >> 4;
                if count < 4_200 {
                    push(&mut calendar, &mut heap, key.time.ps().saturating_add(delay), count);
                }
            }
            assert_eq!((calendar.pop(), heap.pop()), (None, None));
        }
    }
}
