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
use super::system::{FlowSystem, Incidence, NONE, Scratch};

/// Links freeze together when their shares agree within this.
const TIE: f64 = 1.0 / (1u64 << 36) as f64;

/// What a link at the top of the heap turned out to be.
enum Examined {
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
            if !self.links[link as usize].group.tags.is_empty() {
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
        let alone = |incidence: &Incidence| self.links[incidence.link as usize].visits.len() == 1;
        if !self.incidences[flow.incidences()].iter().all(alone) {
            return false;
        }
        let group = self.own_link(flow.incidences());
        let of_group = |incidence: &&Incidence| incidence.link == group;
        let incidence = self.incidences[flow.incidences()].iter().find(of_group).expect("one of its links");
        let state = &self.links[group as usize];
        let level = state.level_of(state.capacity, incidence.load);
        for index in flow.incidences() {
            let incidence = self.incidences[index];
            self.credit(incidence.link);
            let link = &mut self.links[incidence.link as usize];
            link.rate = link.rate_of(incidence.load, level);
        }
        let volume = self.particulars[id as usize].volume;
        let state = &mut self.flows[id as usize];
        state.level = level;
        state.group = group;
        self.links[group as usize].group.tags.push(Tag { service: volume, flow: id }, &mut self.flows);
        self.commit_group(group, level, 0.0);
        true
    }

    /// Of the links that a flow has to itself the one that may hold it back: the least of those with the least share.
    fn own_link(&self, incidences: std::ops::Range<usize>) -> u32 {
        let mut own = NONE;
        let mut bound = f64::INFINITY;
        for incidence in &self.incidences[incidences.clone()] {
            let state = &self.links[incidence.link as usize];
            if state.visits.len() == 1 {
                bound = bound.min(state.level_of(state.capacity, incidence.load));
            }
        }
        bound *= 1.0 + TIE;
        for incidence in &self.incidences[incidences] {
            let state = &self.links[incidence.link as usize];
            if state.visits.len() == 1
                && incidence.link < own
                && state.level_of(state.capacity, incidence.load) <= bound
            {
                own = incidence.link;
            }
        }
        own
    }

    /// Brings `link` into the region; if it holds flows back, they are to be opened.
    #[inline]
    fn touch(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        if state.scratch.epoch == self.epoch {
            return;
        }
        let group = &state.group;
        let idle = group.tags.is_empty();
        state.scratch = Scratch {
            epoch: self.epoch,
            rate: state.rate,
            service: if idle { 0.0 } else { group.service_at(self.now) },
            level: group.level,
            // A flow held back elsewhere has no higher level than those held back here.
            closed_level: if idle { f64::INFINITY } else { group.level * (1.0 + TIE) },
            ..Scratch::default()
        };
        self.region.push(link);
        if !idle {
            self.to_open.push(link);
        }
    }

    /// Opens a flow. Of the links that it has to itself only one can hold it back; the others stay out of the region.
    fn open(&mut self, id: u32) {
        let flow = &mut self.flows[id as usize];
        flow.mark = 2 * self.epoch;
        self.open_flows += 1;
        let flow = *flow;
        let mut has_own = false;
        for index in flow.incidences() {
            let incidence = self.incidences[index];
            if self.links[incidence.link as usize].visits.len() == 1 {
                has_own = true;
            } else {
                self.open_on(incidence, flow.level, true);
            }
        }
        if has_own {
            let own = self.own_link(flow.incidences());
            self.particulars[id as usize].own = own;
            for index in flow.incidences() {
                let incidence = self.incidences[index];
                let link = incidence.link;
                if (link == own || link == flow.group) && self.links[link as usize].visits.len() == 1 {
                    self.open_on(incidence, flow.level, link == own);
                }
            }
        }
    }

    /// Opens a flow on one of its links, which may freeze it if it `holds`.
    #[inline]
    fn open_on(&mut self, incidence: Incidence, level: f64, holds: bool) {
        self.touch(incidence.link);
        let link = &mut self.links[incidence.link as usize];
        link.scratch.rate -= link.rate_of(incidence.load, level);
        link.scratch.load += incidence.load;
        link.scratch.opened += 1;
        if holds && !link.scratch.changed {
            link.scratch.changed = true;
            self.changed.push(incidence.link);
        }
    }

    /// Opens the groups of all links touched, and what that touches; then tells the heap.
    fn open_groups(&mut self) {
        while let Some(link) = self.to_open.pop() {
            for position in 0..self.links[link as usize].group.tags.len() {
                let flow = self.links[link as usize].group.tags.get(position).flow;
                if self.flows[flow as usize].mark < 2 * self.epoch {
                    self.open(flow);
                }
            }
        }
        while let Some(link) = self.changed.pop() {
            self.links[link as usize].scratch.changed = false;
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
        self.links[link as usize].scratch.key = key;
        // Keys are not negative, so their bits are in the same order.
        self.keys.push(Reverse((key.to_bits(), link)));
    }

    /// Whether a flow on `link` keeps its rate so far.
    #[inline]
    fn has_closed(&self, link: u32) -> bool {
        self.links[link as usize].visits.len() > self.links[link as usize].scratch.opened as usize
    }

    /// The level at which `link` freezes if its closed flows keep their rates. Never below zero, though rounding may
    /// leave a tied link with less than nothing.
    #[inline]
    fn share(&self, link: u32) -> f64 {
        let (state, scratch) = (&self.links[link as usize], &self.links[link as usize].scratch);
        if scratch.load == 0 {
            return f64::INFINITY;
        }
        state.level_of((state.capacity - scratch.rate).max(0), scratch.load)
    }

    /// The level at which `link` freezes if its closed flows keep their rates up to that level and share it above:
    /// the fixed point from below, from `level`. Infinite if it has no open flow and its closed ones stay below. And the
    /// highest level of a closed flow.
    fn share_with_closed(&self, link: u32, mut level: f64) -> (f64, f64) {
        let (state, scratch) = (&self.links[link as usize], &self.links[link as usize].scratch);
        let opened = 2 * self.epoch;
        loop {
            let (mut left, mut load, mut highest) = (state.capacity - scratch.rate, scratch.load, 0.0f64);
            let cut = level * (1.0 - 2.0 * TIE);
            for visit in &self.links[link as usize].visits {
                let flow = &self.flows[visit.flow as usize];
                if flow.mark < opened {
                    highest = highest.max(flow.level);
                    if flow.level >= cut {
                        let own = self.incidences[visit.incidence as usize].load;
                        left += state.rate_of(own, flow.level);
                        load += own;
                    }
                }
            }
            if load == 0 {
                return (f64::INFINITY, highest);
            }
            let next = state.level_of(left.max(0), load);
            if next <= level {
                return (level, highest);
            }
            level = next;
        }
    }

    /// Whether `link`, on which no flow is open any more, may be too full for the flows that stayed closed.
    #[inline]
    fn crowds_closed(&self, link: u32) -> bool {
        let capacity = self.links[link as usize].capacity;
        let left = capacity - self.links[link as usize].scratch.rate;
        left as f64 <= 2.0 * TIE * capacity as f64 && self.has_closed(link)
    }

    /// Judges `link`, just taken from the top of the heap.
    fn examine(&mut self, link: u32) -> Examined {
        let Scratch { load, key, closed_level, .. } = self.links[link as usize].scratch;
        if load > 0 {
            let share = self.share(link);
            if share > key {
                self.push(link, share);
                return Examined::Not;
            }
        } else if !self.crowds_closed(link) {
            return Examined::Not;
        }
        let cut = key * (1.0 - 2.0 * TIE);
        if closed_level >= cut && self.has_closed(link) {
            let (share, highest) = self.share_with_closed(link, key);
            self.links[link as usize].scratch.closed_level = highest;
            if share > key {
                if share < f64::INFINITY {
                    self.push(link, share);
                }
                return Examined::Not;
            }
            if highest < cut {
                return if load > 0 { Examined::Ready } else { Examined::Not };
            }
            let before = self.open_flows;
            for position in 0..self.links[link as usize].visits.len() {
                let id = self.links[link as usize].visits[position].flow;
                let flow = &self.flows[id as usize];
                if flow.mark < 2 * self.epoch && flow.level >= cut {
                    self.open(id);
                }
            }
            if self.open_flows > before {
                self.open_groups();
                return Examined::Not;
            }
        }
        if load > 0 { Examined::Ready } else { Examined::Not }
    }

    /// Takes the next link ready to freeze, at a share of at most `bound`.
    fn next_ready(&mut self, bound: f64) -> Option<u32> {
        while let Some(&Reverse((bits, link))) = self.keys.peek() {
            let key = f64::from_bits(bits);
            if key > bound {
                return None;
            }
            self.keys.pop();
            let current = self.links[link as usize].scratch.key.to_bits() == bits;
            if current && matches!(self.examine(link), Examined::Ready) {
                return Some(link);
            }
        }
        None
    }

    /// Freezes all open flows.
    fn fill(&mut self) {
        let mut reached = 0.0;
        loop {
            // Most links never freeze: once nothing is open, only those that cut closed flows matter.
            if self.open_flows == 0 && !self.region.iter().any(|&link| self.crowds_closed(link)) {
                self.keys.clear();
                break;
            }
            let Some(first) = self.next_ready(f64::INFINITY) else { break };
            let bound = self.links[first as usize].scratch.key * (1.0 + TIE);
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
        if self.links[link as usize].scratch.load == 0 {
            return;
        }
        self.links[link as usize].scratch.level = level;
        let open = 2 * self.epoch;
        for position in 0..self.links[link as usize].visits.len() {
            let id = self.links[link as usize].visits[position].flow;
            let flow = &mut self.flows[id as usize];
            if flow.mark != open {
                continue;
            }
            flow.mark = open + 1;
            self.open_flows -= 1;
            flow.level = level;
            let (group, place) = (flow.group, flow.position);
            flow.group = link;
            for index in flow.incidences() {
                let incidence = self.incidences[index];
                let state = &mut self.links[incidence.link as usize];
                let rate = state.rate_of(incidence.load, level);
                if state.visits.len() == 1
                    && incidence.link != group
                    && incidence.link != self.particulars[id as usize].own
                {
                    if rate != state.rate {
                        self.credit(incidence.link);
                        self.links[incidence.link as usize].rate = rate;
                    }
                } else {
                    state.scratch.rate += rate;
                    state.scratch.load -= incidence.load;
                }
            }
            if group == link {
                continue;
            }
            let left = if group == NONE {
                self.particulars[id as usize].volume
            } else {
                let tag = self.links[group as usize].group.tags.remove(place as usize, &mut self.flows);
                (tag.service - self.links[group as usize].scratch.service).max(0.0)
            };
            let service = self.links[link as usize].scratch.service + left;
            self.links[link as usize].group.tags.push(Tag { service, flow: id }, &mut self.flows);
        }
    }

    /// Makes the new rates those of the links and groups.
    fn commit(&mut self) {
        debug_assert!(self.keys.is_empty());
        let mut region = std::mem::take(&mut self.region);
        for &link in &region {
            let Scratch { rate, level, service, load, .. } = self.links[link as usize].scratch;
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
