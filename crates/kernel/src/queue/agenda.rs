//! A calendar of entities that wait for one instant each: the ports of a fabric.
//!
//! It is the [calendar queue](super::CalendarQueue) for a model in which an entity has at most one event at a time. Then
//! an event needs no node: a slot of eight bytes per entity holds its time and the next entity of the same bucket, and
//! what is sorted is a word, (time, entity). Order: by time, then by the entity's number.
//!
//! **Buckets.** Time is cut into buckets of equal width, a power of two; a ring of them, 1 ms at most, covers the near
//! future. Those whose turn has come are taken apart, sorted and lined up in `line`, from which events are popped;
//! the line is filled up before it is empty, so that [`Agenda::ahead`] can tell whom the next events will be about and
//! their state can be on its way from memory. Times are kept as their low 32 bits; the last pop tells the rest.
//!
//! **What goes wrong with calendars, and what is done.**
//! - *Events beyond the ring* wait in a heap.
//! - *Events for what is lined up already* are put into their place, if that is among the last [`REACH`]. If the line had
//!   run ahead of the clock it is taken back; else (a burst: many events, one bucket) they go to a second heap. So the
//!   worst load costs what a heap costs, and a sort.
//! - *Empty stretches* are skipped by a bitmap, 64 buckets a step.
//!
//! **Width and number of buckets** follow the load, as those of the calendar queue do, and cannot be seen in what is
//! popped.
//!
//! **Life cycle and misuse.** An entity is pushed when it has no event, at or after the time last popped (an earlier
//! event counts as one of that time), and popped once; nothing is removed. Pushing an entity that has an event loses
//! events. Nothing checks this: the caller keeps a mark, as ports do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::networks::{FEW, sort};
use crate::units::Time;

/// No entity.
const NONE: u32 = u32::MAX;

/// Events that a bucket is to hold when its turn comes.
const FILL: u64 = 3;

/// Pops between two looks at the width, at least.
const LOOK: u64 = 1 << 10;

/// Fewest and most buckets.
const BUCKETS: (usize, usize) = (1 << 6, 1 << 20);

/// The ring is at most 2^30 ps long and begins at most 2^31 ps after the last pop, so low bits tell times in it.
const LONGEST: u32 = 30;
const FARTHEST: u64 = 1 << 31;

/// Events that are lined up before the line is empty, where there are some nearby, and so many more when it is filled up:
/// one look in a dozen finds it short, and is foreseen.
const AHEAD: usize = 12;
const MORE: usize = 6;

/// An event of the line is moved at most by so many places.
const REACH: usize = 32;

/// Events taken from the line before it is moved up.
const DRAIN: usize = 256;

/// What an entity waits for, while it is in a bucket.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Low bits of the time.
    time: u32,
    /// Next entity of the bucket.
    next: u32,
}

/// Entities and the instants they wait for, earliest first. See the module page.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// Events of the buckets up to the cursor, earliest first from `first` on: low bits of the time, entity.
    line: Vec<u64>,
    first: usize,
    /// Number of the last bucket lined up: time over width.
    cursor: u64,
    /// The width is 2^shift ps.
    shift: u32,
    /// First entity of each bucket.
    heads: Vec<u32>,
    /// A bit per bucket that has entities.
    occupied: Vec<u64>,
    slots: Vec<Slot>,
    /// Entities in buckets.
    filed: usize,
    /// Events up to the cursor that are not in the line.
    late: BinaryHeap<Reverse<(u64, u32)>>,
    /// Events beyond the ring.
    far: BinaryHeap<Reverse<(u64, u32)>>,
    /// Time of the last pop.
    now: u64,
    /// Events lined up and time since the last look at the width.
    pops: u64,
    since: u64,
    look: u64,
}

impl Agenda {
    /// Nobody of `entities` waits.
    pub fn new(entities: usize) -> Self {
        Self {
            line: Vec::new(),
            first: 0,
            cursor: 0,
            shift: 14,
            heads: vec![NONE; BUCKETS.0],
            occupied: vec![0; BUCKETS.0 / 64],
            slots: vec![Slot { time: 0, next: NONE }; entities],
            filed: 0,
            late: BinaryHeap::new(),
            far: BinaryHeap::new(),
            now: 0,
            pops: 0,
            since: 0,
            look: LOOK,
        }
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.line.len() - self.first + self.late.len() + self.filed + self.far.len()
    }

    /// Whether there is no event.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An entity that waits for nothing waits for `time`.
    ///
    /// # Panics
    /// If there is no such entity.
    #[inline]
    pub fn push(&mut self, entity: u32, time: Time) {
        let number = time.ps() >> self.shift;
        if number.wrapping_sub(self.cursor).wrapping_sub(1) < self.heads.len() as u64 - 1 {
            self.file(number, entity, time.ps());
        } else {
            self.push_aside(number, entity, time.ps().max(self.now));
        }
    }

    /// Time of the earliest event, [`Time::NEVER`] if there is none.
    #[inline]
    pub fn next_time(&mut self) -> Time {
        self.line_up();
        self.line.get(self.first).map_or_else(|| self.earliest(), |&word| Time::from_ps(self.time(word)))
    }

    /// Takes the earliest event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Time, u32)> {
        self.pop_until(Time::NEVER)
    }

    /// Takes the earliest event if its time is `limit` at most.
    #[inline]
    pub fn pop_until(&mut self, limit: Time) -> Option<(Time, u32)> {
        self.line_up();
        let Some(&word) = self.line.get(self.first) else { return self.pop_far(limit) };
        let time = self.time(word);
        if time > limit.ps() {
            return None;
        }
        self.first += 1;
        self.now = time;
        Some((Time::from_ps(time), word as u32))
    }

    /// The next event is far away, if there is one.
    #[cold]
    fn pop_far(&mut self, limit: Time) -> Option<(Time, u32)> {
        if self.earliest() > limit {
            return None;
        }
        self.now = self.next_bucket(u64::MAX)? << self.shift;
        self.pop_until(limit)
    }

    /// The entities that the next events will be about at these places, the next event's being 0, if so many are known and nothing
    /// comes before them.
    #[inline]
    pub fn ahead<const N: usize>(&self, places: [usize; N]) -> Option<[u32; N]> {
        let words: &[u64; AHEAD] = self.line.get(self.first..)?.first_chunk()?;
        let mut entities = [NONE; N];
        for (entity, place) in entities.iter_mut().zip(places) {
            *entity = words[place] as u32;
        }
        Some(entities)
    }

    /// The time of an event of the line.
    #[inline]
    fn time(&self, word: u64) -> u64 {
        self.full((word >> 32) as u32)
    }

    /// A time not before the last pop from its low bits.
    #[inline]
    fn full(&self, low: u32) -> u64 {
        self.now + u64::from(low.wrapping_sub(self.now as u32))
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.heads.len() - 1)
    }

    /// Puts an entity into a bucket less than a ring away.
    #[inline]
    fn file(&mut self, number: u64, entity: u32, time: u64) {
        let slot = self.slot(number);
        let next = std::mem::replace(&mut self.heads[slot], entity);
        self.slots[entity as usize] = Slot { time: time as u32, next };
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.filed += 1;
    }

    /// Adds an event of what is lined up, or one beyond the ring.
    fn push_aside(&mut self, number: u64, entity: u32, time: u64) {
        if number > self.cursor {
            self.far.push(Reverse((time, entity)));
            return;
        }
        self.pops += 1;
        let order = |word: u64| (self.time(word), word as u32);
        let reach = &self.line[self.first.max(self.line.len().saturating_sub(REACH))..];
        let later = reach.iter().rev().take_while(|&&word| (time, entity) < order(word)).count();
        let len = self.line.len();
        if later < REACH {
            self.line.insert(len - later, time << 32 | u64::from(entity));
        } else if self.now >> self.shift < self.cursor && len - self.first <= 2 * REACH {
            self.retreat();
            self.push(entity, Time::from_ps(time));
        } else {
            self.late.push(Reverse((time, entity)));
        }
    }

    /// Time of the earliest event when none is in the line and the next bucket is too far away to be lined up.
    #[cold]
    fn earliest(&self) -> Time {
        let mut earliest = u64::MAX;
        if let Some(number) = self.next_occupied(u64::MAX) {
            let mut entity = self.heads[self.slot(number)];
            while entity != NONE {
                let Slot { time, next } = self.slots[entity as usize];
                earliest = earliest.min(self.full(time));
                entity = next;
            }
        }
        let aside = [self.late.peek(), self.far.peek()].into_iter().flatten();
        Time::from_ps(aside.fold(earliest, |earliest, &Reverse((time, _))| earliest.min(time)))
    }

    /// Number of the next bucket with events after the cursor, if it is less than `within` buckets away.
    #[inline]
    fn next_bucket(&self, within: u64) -> Option<u64> {
        let near = if self.filed > 0 { self.next_occupied(within) } else { None };
        let far = self.far.peek().map(|&Reverse((time, _))| time >> self.shift);
        near.into_iter().chain(far).min().filter(|&next| next - self.cursor < within)
    }

    /// Lines up the next bucket with entities if it is less than `within` buckets away; whether it did.
    fn fill(&mut self, within: u64) -> bool {
        let Some(number) = self.next_bucket(within) else { return false };
        if number << self.shift > self.now.saturating_add(FARTHEST) {
            return false;
        }
        self.cursor = number;
        if !self.far.is_empty() {
            self.fetch();
        }
        if self.first >= DRAIN {
            self.line.drain(..self.first);
            self.first = 0;
        }
        self.take_apart(number);
        true
    }

    /// Appends the entities of a bucket to the line.
    #[inline]
    fn take_apart(&mut self, number: u64) {
        let slot = self.slot(number);
        let mut entity = std::mem::replace(&mut self.heads[slot], NONE);
        self.occupied[slot / 64] &= !(1 << (slot % 64));
        // Within a bucket that the low bits of the time begin anew in, times count from its start.
        let start = (number << self.shift) as u32;
        let bias = if start.checked_add(1 << self.shift).is_none() { start } else { 0 };
        let mut few = [u64::MAX; FEW];
        let mut count = 0;
        while let Some(word) = few.get_mut(count)
            && entity != NONE
        {
            let Slot { time, next } = self.slots[entity as usize];
            *word = u64::from(time.wrapping_sub(bias)) << 32 | u64::from(entity);
            entity = next;
            count += 1;
        }
        let old = self.line.len();
        if entity == NONE {
            sort(&mut few, count, &mut self.line);
        } else {
            self.line.extend(few);
            while entity != NONE {
                let Slot { time, next } = self.slots[entity as usize];
                self.line.push(u64::from(time.wrapping_sub(bias)) << 32 | u64::from(entity));
                entity = next;
                count += 1;
            }
            self.line[old..].sort_unstable();
        }
        if bias != 0 {
            for word in &mut self.line[old..] {
                *word = word.wrapping_add(u64::from(bias) << 32);
            }
        }
        self.filed -= count;
        self.pops += count as u64;
    }

    /// Sees to it that the line has enough events for [`Self::ahead`], and the earliest if it is not far away.
    #[inline]
    fn line_up(&mut self) {
        if self.line.len() - self.first <= AHEAD || !self.late.is_empty() {
            self.fill_up();
        }
    }

    fn fill_up(&mut self) {
        if self.pops >= self.look {
            self.adapt();
        }
        let first =
            self.line.get(self.first).map_or((u64::MAX, NONE), |&word| (self.time(word), word as u32));
        if let Some(late) = self.late.peek_mut().filter(|late| late.0 < first) {
            let Reverse((time, entity)) = PeekMut::pop(late);
            self.line.insert(self.first, time << 32 | u64::from(entity));
        }
        if self.first == self.line.len() {
            self.fill(u64::MAX);
        }
        while self.line.len() - self.first <= AHEAD + MORE && self.fill(64) {}
    }

    /// The first bucket with entities after the cursor, less than `within` buckets away.
    fn next_occupied(&self, within: u64) -> Option<u64> {
        // Distances and no numbers, of which the last one has none after it.
        let within = within.min(self.heads.len() as u64);
        let mut distance = 1;
        while distance < within {
            let number = self.cursor.checked_add(distance)?;
            let slot = self.slot(number);
            let word = self.occupied[slot / 64] >> (slot % 64);
            if word != 0 {
                return Some(number.saturating_add(u64::from(word.trailing_zeros())));
            }
            distance += 64 - (slot % 64) as u64;
        }
        None
    }

    /// Files the far events that are less than a ring away now; those of the bucket at the cursor will be lined up.
    fn fetch(&mut self) {
        while let Some(&Reverse((time, entity))) = self.far.peek() {
            let number = time >> self.shift;
            if number - self.cursor >= self.heads.len() as u64 {
                return;
            }
            self.far.pop();
            self.file(number, entity, time);
        }
    }

    /// Puts back what was lined up ahead of the clock's own bucket.
    #[cold]
    fn retreat(&mut self) {
        let (old, new) = (self.cursor, self.now >> self.shift);
        // Buckets emptied since hold entities of the next turn, if any, which is out of reach from there.
        let turn = self.heads.len() as u64;
        for number in old.saturating_sub(turn - 1).max(new)..=old {
            let slot = self.slot(number);
            let mut entity = std::mem::replace(&mut self.heads[slot], NONE);
            self.occupied[slot / 64] &= !(1 << (slot % 64));
            while entity != NONE {
                let Slot { time, next } = self.slots[entity as usize];
                self.far.push(Reverse((self.full(time), entity)));
                self.filed -= 1;
                entity = next;
            }
        }
        let line = std::mem::take(&mut self.line);
        self.cursor = new;
        let first = std::mem::take(&mut self.first);
        for &word in &line[first..] {
            self.push(word as u32, Time::from_ps(self.time(word)));
        }
        // What was late for the old cursor may come after what is in buckets now.
        for Reverse((time, entity)) in std::mem::take(&mut self.late) {
            self.push(entity, Time::from_ps(time));
        }
    }

    /// Fits width and number of buckets to the events since the last look and those pending.
    #[cold]
    fn adapt(&mut self) {
        let len = self.len();
        let buckets = (len * 4).next_power_of_two().clamp(BUCKETS.0, BUCKETS.1);
        let span = self.now - self.since;
        let width = (u128::from(span) * u128::from(FILL) / u128::from(self.pops)).max(1);
        let shift = if span == 0 { self.shift } else { width.ilog2() };
        let shift = shift.min(LONGEST - buckets.ilog2());
        // Too wide costs more than too narrow.
        let stale = shift < self.shift
            || shift > self.shift + 1
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
        let mut events: Vec<(u64, u32)> =
            self.line[self.first..].iter().map(|&word| (self.time(word), word as u32)).collect();
        for &head in &self.heads {
            let mut entity = head;
            while entity != NONE {
                let Slot { time, next } = self.slots[entity as usize];
                events.push((self.full(time), entity));
                entity = next;
            }
        }
        let aside = [std::mem::take(&mut self.late), std::mem::take(&mut self.far)];
        events.extend(aside.into_iter().flatten().map(|Reverse(event)| event));
        self.line.clear();
        self.first = 0;
        self.filed = 0;
        self.heads = vec![NONE; buckets];
        self.occupied = vec![0; buckets / 64];
        self.shift = shift;
        self.cursor = self.now >> shift;
        for (time, entity) in events {
            self.push(entity, Time::from_ps(time));
        }
    }
}

#[cfg(test)]
mod tests;
