//! The two heaps of the solver: the next departure of each group, and the finish tags inside a group.
//!
//! Both know where each member stands, so a member can be moved or taken out anywhere in O(log n). Neither allocates
//! once it has grown to its largest size.

use super::instant::Instant;

/// Not in a heap.
const ABSENT: u32 = u32::MAX;
/// Children of a node of the departure heap.
const ARITY: usize = 4;

/// Departure instants of groups, one per link at most; the earliest on top.
#[derive(Clone, Debug)]
pub(super) struct DepartureHeap {
    entries: Vec<(Instant, u32)>,
    position: Vec<u32>,
}

impl DepartureHeap {
    pub(super) fn new(links: usize) -> Self {
        Self { entries: Vec::new(), position: vec![ABSENT; links] }
    }

    /// The earliest departure and its link.
    #[inline]
    pub(super) fn first(&self) -> Option<(Instant, u32)> {
        self.entries.first().copied()
    }

    /// Sets the departure of `link`.
    #[inline]
    pub(super) fn set(&mut self, link: u32, at: Instant) {
        let position = self.position[link as usize];
        if position == ABSENT {
            self.entries.push((at, link));
            self.up(self.entries.len() - 1, (at, link));
        } else {
            let position = position as usize;
            if at < self.entries[position].0 {
                self.up(position, (at, link));
            } else {
                self.down(position, (at, link));
            }
        }
    }

    /// Takes `link` out, if it is in.
    #[inline]
    pub(super) fn remove(&mut self, link: u32) {
        let position = self.position[link as usize];
        if position == ABSENT {
            return;
        }
        self.position[link as usize] = ABSENT;
        let position = position as usize;
        let last = self.entries.pop().expect("a member means an entry");
        if position < self.entries.len() {
            if last.0 < self.entries[position].0 {
                self.up(position, last);
            } else {
                self.down(position, last);
            }
        }
    }

    fn up(&mut self, mut position: usize, entry: (Instant, u32)) {
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.entries[position] = self.entries[parent];
            self.position[self.entries[position].1 as usize] = position as u32;
            position = parent;
        }
        self.entries[position] = entry;
        self.position[entry.1 as usize] = position as u32;
    }

    fn down(&mut self, mut position: usize, entry: (Instant, u32)) {
        loop {
            let first = position * ARITY + 1;
            let end = (first + ARITY).min(self.entries.len());
            if first >= end {
                break;
            }
            let mut least = first;
            for child in first + 1..end {
                if self.entries[child].0 < self.entries[least].0 {
                    least = child;
                }
            }
            if self.entries[least].0 >= entry.0 {
                break;
            }
            self.entries[position] = self.entries[least];
            self.position[self.entries[position].1 as usize] = position as u32;
            position = least;
        }
        self.entries[position] = entry;
        self.position[entry.1 as usize] = position as u32;
    }
}

/// The service at which a flow ends, and the flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tag {
    pub(super) service: f64,
    pub(super) flow: u32,
}

/// Where a flow stands in its group's heap.
pub(super) trait Positions {
    fn moved(&mut self, flow: u32, position: u32);
}

/// Finish tags of one group in a binary heap, the least on top.
#[derive(Clone, Debug, Default)]
pub(super) struct TagHeap(Vec<Tag>);

impl TagHeap {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<Tag> {
        self.0.first().copied()
    }

    #[inline]
    pub(super) fn get(&self, position: usize) -> Tag {
        self.0[position]
    }

    /// Subtracts `service` from all tags; rounding is monotone, so the heap stays one.
    pub(super) fn rebase(&mut self, service: f64) {
        for tag in &mut self.0 {
            tag.service -= service;
        }
    }

    #[inline]
    pub(super) fn push(&mut self, tag: Tag, positions: &mut impl Positions) {
        self.0.push(tag);
        self.up(self.0.len() - 1, tag, positions);
    }

    #[inline]
    pub(super) fn remove(&mut self, position: usize, positions: &mut impl Positions) -> Tag {
        let removed = self.0[position];
        let last = self.0.pop().expect("a position means an entry");
        if position < self.0.len() {
            if last.service < removed.service {
                self.up(position, last, positions);
            } else {
                self.down(position, last, positions);
            }
        }
        removed
    }

    fn up(&mut self, mut position: usize, tag: Tag, positions: &mut impl Positions) {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.0[parent].service <= tag.service {
                break;
            }
            self.0[position] = self.0[parent];
            positions.moved(self.0[position].flow, position as u32);
            position = parent;
        }
        self.0[position] = tag;
        positions.moved(tag.flow, position as u32);
    }

    fn down(&mut self, mut position: usize, tag: Tag, positions: &mut impl Positions) {
        loop {
            let mut child = position * 2 + 1;
            if child >= self.0.len() {
                break;
            }
            if child + 1 < self.0.len() && self.0[child + 1].service < self.0[child].service {
                child += 1;
            }
            if self.0[child].service >= tag.service {
                break;
            }
            self.0[position] = self.0[child];
            positions.moved(self.0[position].flow, position as u32);
            position = child;
        }
        self.0[position] = tag;
        positions.moved(tag.flow, position as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windtunnel_kernel::RandomStream;

    struct Table(Vec<u32>);
    impl Positions for Table {
        fn moved(&mut self, flow: u32, position: u32) {
            self.0[flow as usize] = position;
        }
    }

    #[test]
    fn departures_come_in_order_after_changes_and_removals() {
        let mut random = RandomStream::new(1, "departure-heap", 0);
        let mut heap = DepartureHeap::new(200);
        let mut expected = vec![None; 200];
        for _ in 0..2_000 {
            let link = random.below(200) as u32;
            if random.below(4) == 0 {
                heap.remove(link);
                expected[link as usize] = None;
            } else {
                let at = Instant::at(random.below(1_000));
                heap.set(link, at);
                expected[link as usize] = Some(at);
            }
        }
        let mut instants: Vec<Instant> = expected.into_iter().flatten().collect();
        instants.sort_by(|a, b| a.partial_cmp(b).unwrap());
        for instant in instants {
            let (at, link) = heap.first().unwrap();
            assert_eq!(at, instant);
            heap.remove(link);
        }
        assert!(heap.first().is_none());
    }

    #[test]
    fn tags_come_in_order_and_know_their_place() {
        let mut random = RandomStream::new(2, "tag-heap", 0);
        let (mut heap, mut table) = (TagHeap::default(), Table(vec![0; 300]));
        for flow in 0..300 {
            heap.push(Tag { service: random.uniform(), flow }, &mut table);
        }
        for flow in (0..300).step_by(3) {
            let removed = heap.remove(table.0[flow] as usize, &mut table);
            assert_eq!(removed.flow as usize, flow);
        }
        let mut last = 0.0;
        while let Some(first) = heap.first() {
            assert!(first.service >= last && first.flow % 3 != 0);
            last = first.service;
            heap.remove(0, &mut table);
        }
    }
}
