//! Progressive filling of what has changed, and of nothing else.
//!
//! **From scratch**, all flows are open and the level of all rises together; a link whose capacity is used up freezes its
//! open flows at the level reached, and the rest go on (Bertsekas, Gallager, *Data Networks*, §6.5.2). The share of a
//! link is the level at which it would freeze: (capacity − rates of its frozen flows) / loads of its open ones. Links
//! freeze in the order of their shares.
//!
//! **Incrementally**, a flow stays closed (keeps its rate, as if frozen) until something shows that its rate may change:
//! 1. new flows are open;
//! 2. a link that loses a flow, or on which any flow is opened, opens the group it holds back: its share changes. The
//!    groups so reached have levels at or above the first changed one, because a flow crosses only links whose groups'
//!    levels are at or above its own;
//! 3. a link about to freeze at level x on which a closed flow has a level of x or more opens that flow: it is cut.
//!
//! What has stayed closed below level x when a link freezes at x is what filling from scratch would have frozen by then,
//! so the link sees the same integers and gets the same level, bit by bit. Filling therefore touches the part of a
//! component that depends on the change, at or above its level; other components are never visited.
//!
//! **Ties.** Links whose shares agree within 2^-36 freeze together, each at its own share as it was before any of them
//! froze, and a flow on several of them belongs to the one of least id. Rounding (2^-53) thus never decides an order;
//! the price is a relative error of 2^-36 at most in what a tied link carries.

use std::cmp::Reverse;

use super::heap::Tag;
use super::system::{FlowSystem, NONE, Scratch};

/// Links freeze together when their shares agree within this.
const TIE: f64 = 1.0 / (1u64 << 36) as f64;

/// What a link at the top of the heap turned out to be.
enum Verdict {
    /// Ready to freeze.
    Ready,
    /// Back in the heap, or done.
    Not,
}

impl FlowSystem {
    /// Solves for what has changed since the last solve.
    pub(super) fn settle(&mut self) {
        if self.fresh.is_empty() && self.loosened.is_empty() {
            return;
        }
        self.count_solve();
        self.epoch += 1;
        let mut loosened = std::mem::take(&mut self.loosened);
        for &link in &loosened {
            if !self.groups[link as usize].tags.is_empty() {
                self.touch(link);
            }
        }
        loosened.clear();
        self.loosened = loosened;
        let mut fresh = std::mem::take(&mut self.fresh);
        for &flow in &fresh {
            if !self.place_alone(flow) {
                self.open(flow);
            }
        }
        fresh.clear();
        self.fresh = fresh;
        if !self.region.is_empty() {
            self.open_groups();
            self.fill();
            self.commit();
        }
    }

    /// A flow that shares no link needs no filling.
    fn place_alone(&mut self, id: u32) -> bool {
        let flow = self.flows[id as usize];
        let incidences = &self.incidences[flow.incidences()];
        if incidences.iter().any(|visit| self.visits[visit.link as usize].len() > 1) {
            return false;
        }
        let share = |link: u32, load: i64| {
            let state = &self.links[link as usize];
            state.level_of(state.capacity, load)
        };
        let least = incidences.iter().map(|i| share(i.link, i.load)).fold(f64::INFINITY, f64::min);
        let bound = least * (1.0 + TIE);
        let (mut group, mut level) = (NONE, least);
        for incidence in incidences {
            let own = share(incidence.link, incidence.load);
            if own <= bound && incidence.link < group {
                (group, level) = (incidence.link, own);
            }
        }
        for index in flow.incidences() {
            let incidence = self.incidences[index];
            self.credit(incidence.link);
            let link = &mut self.links[incidence.link as usize];
            link.rate = link.rate_of(incidence.load, level);
        }
        let state = &mut self.flows[id as usize];
        state.level = level;
        state.group = group;
        self.groups[group as usize].tags.push(Tag { service: flow.volume, flow: id }, &mut self.flows);
        self.commit_group(group, level, 0.0);
        true
    }

    /// Brings `link` into the region; if it holds flows back, they are to be opened.
    #[inline]
    fn touch(&mut self, link: u32) {
        let scratch = &mut self.scratch[link as usize];
        if scratch.epoch == self.epoch {
            return;
        }
        let group = &self.groups[link as usize];
        let idle = group.tags.is_empty();
        *scratch = Scratch {
            epoch: self.epoch,
            rate: self.links[link as usize].rate,
            service: if idle { 0.0 } else { group.service_at(self.now) },
            level: group.level,
            ..Scratch::default()
        };
        self.region.push(link);
        if !idle {
            self.to_open.push(link);
        }
    }

    /// Opens a flow.
    fn open(&mut self, id: u32) {
        let flow = &mut self.flows[id as usize];
        flow.mark = 2 * self.epoch;
        let level = flow.level;
        for index in flow.incidences() {
            let incidence = self.incidences[index];
            self.touch(incidence.link);
            let scratch = &mut self.scratch[incidence.link as usize];
            scratch.rate -= self.links[incidence.link as usize].rate_of(incidence.load, level);
            scratch.load += incidence.load;
            scratch.opened += 1;
            if !scratch.changed {
                scratch.changed = true;
                self.changed.push(incidence.link);
            }
        }
    }

    /// Opens the groups of all links touched, and what that touches; then tells the heap.
    fn open_groups(&mut self) {
        while let Some(link) = self.to_open.pop() {
            for position in 0..self.groups[link as usize].tags.len() {
                let flow = self.groups[link as usize].tags.get(position).flow;
                if self.flows[flow as usize].mark < 2 * self.epoch {
                    self.open(flow);
                }
            }
        }
        while let Some(link) = self.changed.pop() {
            self.scratch[link as usize].changed = false;
            let mut key = self.share(link);
            if self.has_closed(link) {
                // With closed flows at their old rates this is too low, and so is an equal share for all.
                let state = &self.links[link as usize];
                key = key.max(state.level_of(state.capacity, state.load));
            }
            self.push(link, key);
        }
    }

    #[inline]
    fn push(&mut self, link: u32, key: f64) {
        self.scratch[link as usize].key = key;
        // Keys are not negative, so their bits are in the same order.
        self.keys.push(Reverse((key.to_bits(), link)));
    }

    /// Whether a flow on `link` keeps its rate so far.
    #[inline]
    fn has_closed(&self, link: u32) -> bool {
        self.visits[link as usize].len() > self.scratch[link as usize].opened as usize
    }

    /// The level at which `link` freezes if its closed flows keep their rates. Never below zero, though rounding may
    /// leave a tied link with less than nothing.
    #[inline]
    fn share(&self, link: u32) -> f64 {
        let (state, scratch) = (&self.links[link as usize], &self.scratch[link as usize]);
        if scratch.load == 0 {
            return f64::INFINITY;
        }
        state.level_of((state.capacity - scratch.rate).max(0), scratch.load)
    }

    /// The level at which `link` freezes if its closed flows keep their rates up to that level and share it above:
    /// the fixed point from below, from `level`. Infinite if it has no open flow and its closed ones stay below.
    fn share_with_closed(&self, link: u32, mut level: f64) -> f64 {
        let (state, scratch) = (&self.links[link as usize], &self.scratch[link as usize]);
        let opened = 2 * self.epoch;
        loop {
            let (mut left, mut load) = (state.capacity - scratch.rate, scratch.load);
            let cut = level * (1.0 - 2.0 * TIE);
            for visit in &self.visits[link as usize] {
                let flow = &self.flows[visit.flow as usize];
                if flow.mark < opened && flow.level >= cut {
                    let own = self.incidences[visit.incidence as usize].load;
                    left += state.rate_of(own, flow.level);
                    load += own;
                }
            }
            if load == 0 {
                return f64::INFINITY;
            }
            let next = state.level_of(left.max(0), load);
            if next <= level {
                return level;
            }
            level = next;
        }
    }

    /// Judges `link`, just taken from the top of the heap.
    fn examine(&mut self, link: u32) -> Verdict {
        let Scratch { load, key, rate, .. } = self.scratch[link as usize];
        let closed = self.has_closed(link);
        let mut share = self.share(link);
        if load == 0 {
            // Its open flows froze elsewhere. Closed ones may still find it too full now.
            let capacity = self.links[link as usize].capacity;
            if !closed || ((capacity - rate) as f64) > 2.0 * TIE * capacity as f64 {
                return Verdict::Not;
            }
            share = key;
        }
        if closed {
            share = self.share_with_closed(link, share.max(key));
        }
        if share == f64::INFINITY {
            return Verdict::Not;
        }
        if share > key {
            self.push(link, share);
            return Verdict::Not;
        }
        if closed {
            let cut = key * (1.0 - 2.0 * TIE);
            let mut opened = false;
            for position in 0..self.visits[link as usize].len() {
                let id = self.visits[link as usize][position].flow;
                let flow = &self.flows[id as usize];
                if flow.mark < 2 * self.epoch && flow.level >= cut {
                    self.open(id);
                    opened = true;
                }
            }
            if opened {
                self.open_groups();
                return Verdict::Not;
            }
        }
        Verdict::Ready
    }

    /// Takes the next link ready to freeze, at a share of at most `bound`.
    fn next_ready(&mut self, bound: f64) -> Option<u32> {
        while let Some(&Reverse((bits, link))) = self.keys.peek() {
            let key = f64::from_bits(bits);
            if key > bound {
                return None;
            }
            self.keys.pop();
            let current = self.scratch[link as usize].key.to_bits() == bits;
            if current && matches!(self.examine(link), Verdict::Ready) {
                return Some(link);
            }
        }
        None
    }

    /// Freezes all open flows.
    fn fill(&mut self) {
        let mut reached = 0.0;
        while let Some(first) = self.next_ready(f64::INFINITY) {
            let bound = self.scratch[first as usize].key * (1.0 + TIE);
            let mut cluster = std::mem::take(&mut self.cluster);
            cluster.push((first, 0.0));
            while let Some(link) = self.next_ready(bound) {
                cluster.push((link, 0.0));
            }
            cluster.sort_unstable_by_key(|&(link, _)| link);
            cluster.dedup_by_key(|&mut (link, _)| link);
            for (link, level) in &mut cluster {
                *level = self.share(*link);
                // Only rounding can leave an unfrozen link without capacity.
                if *level <= 0.0 {
                    *level = reached;
                }
            }
            for &(link, level) in &cluster {
                self.freeze(link, level);
            }
            reached = bound;
            cluster.clear();
            self.cluster = cluster;
        }
    }

    /// Freezes the open flows of `link` at `level`; they join its group.
    fn freeze(&mut self, link: u32, level: f64) {
        if self.scratch[link as usize].load == 0 {
            return;
        }
        self.scratch[link as usize].level = level;
        let open = 2 * self.epoch;
        for position in 0..self.visits[link as usize].len() {
            let id = self.visits[link as usize][position].flow;
            let flow = &mut self.flows[id as usize];
            if flow.mark != open {
                continue;
            }
            flow.mark = open + 1;
            flow.level = level;
            let (group, place) = (flow.group, flow.position);
            flow.group = link;
            let (incidences, volume) = (flow.incidences(), flow.volume);
            for incidence in &self.incidences[incidences] {
                let scratch = &mut self.scratch[incidence.link as usize];
                scratch.rate += self.links[incidence.link as usize].rate_of(incidence.load, level);
                scratch.load -= incidence.load;
            }
            if group == link {
                continue;
            }
            let left = if group == NONE {
                volume
            } else {
                let tag = self.groups[group as usize].tags.remove(place as usize, &mut self.flows);
                (tag.service - self.scratch[group as usize].service).max(0.0)
            };
            let service = self.scratch[link as usize].service + left;
            self.groups[link as usize].tags.push(Tag { service, flow: id }, &mut self.flows);
        }
    }

    /// Makes the new rates those of the links and groups.
    fn commit(&mut self) {
        debug_assert!(self.keys.is_empty());
        let mut region = std::mem::take(&mut self.region);
        for &link in &region {
            let Scratch { rate, level, service, load, .. } = self.scratch[link as usize];
            debug_assert_eq!(load, 0, "every flow of link {link} is frozen");
            if rate != self.links[link as usize].rate {
                self.credit(link);
                self.links[link as usize].rate = rate;
            }
            self.commit_group(link, level, service);
        }
        region.clear();
        self.region = region;
    }
}
