//! The tag matcher of an endpoint: posted receives and unexpected messages, matched by hash.
//!
//! A message takes the earliest posted receive that fits it, a receive the earliest unexpected message. Receives and
//! messages of one (source, tag) never wait both, so one list per (source, tag), of the one or the other, serves the
//! exact case with one look-up. Most endpoints of rings, trees and pipelines wait for one peer at a time, so a list that
//! is alone is kept in the matcher itself and needs no table. A wildcard receive waits in a list by its source, by its tag, or in the list of those
//! that take anything; a message compares the heads of the four lists that fit it. An unexpected message is found by
//! wildcards through ordered sets, kept only from the first wildcard of the run on ([`Matcher::index_for_wildcards`]).
//! It is always the head of its (source, tag) list, because it is the earliest of a larger set.
//!
//! Invariants: the numbers of posted receives and of unexpected messages grow in the order of posting and of arrival;
//! an empty list is not kept; `alone` is used only while the table is empty and never beside wildcards.

use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, OccupiedEntry};

use rustc_hash::FxHashMap;
use windtunnel_kernel::Tag;

use super::operations::{ANY_TAG, NONE, Operations, State};

/// First and last of a list linked through [`super::operations::Operation::next`].
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

impl List {
    const fn one(id: u32) -> Self {
        Self { head: id, tail: id }
    }

    fn append(&mut self, id: u32, operations: &mut Operations) {
        operations[self.tail].next = id;
        self.tail = id;
    }
}

/// Source and tag.
type Key = (u32, Tag);

/// See the module page.
#[derive(Clone, Debug, Default)]
pub(super) struct Matcher {
    alone: Option<(Key, List)>,
    exact: FxHashMap<Key, List>,
    wild: Option<Box<Wild>>,
}

/// What only an endpoint with wildcard receives needs.
#[derive(Clone, Debug, Default)]
struct Wild {
    posted_by_source: FxHashMap<u32, List>,
    posted_by_tag: FxHashMap<Tag, List>,
    posted_any: Option<List>,
    /// (source, number, id), (tag, number, id), (number, id) of unexpected messages.
    by_source: BTreeSet<(u32, u64, u32)>,
    by_tag: BTreeSet<(Tag, u64, u32)>,
    all: BTreeSet<(u64, u32)>,
}

/// Appends `id` to the list of a key.
fn append<K: std::hash::Hash + Eq>(
    lists: &mut FxHashMap<K, List>,
    key: K,
    id: u32,
    operations: &mut Operations,
) {
    match lists.entry(key) {
        Entry::Occupied(mut list) => list.get_mut().append(id, operations),
        Entry::Vacant(slot) => {
            slot.insert(List::one(id));
        }
    }
}

/// Takes the head of the list of a key off.
fn take<K: std::hash::Hash + Eq>(lists: &mut FxHashMap<K, List>, key: K, operations: &Operations) {
    if let Entry::Occupied(list) = lists.entry(key) {
        take_head(list, operations);
    }
}

/// Takes the head of a list off; an empty list goes.
#[inline]
fn take_head<K>(mut list: OccupiedEntry<'_, K, List>, operations: &Operations) {
    let next = operations[list.get().head].next;
    if next == NONE {
        list.remove();
    } else {
        list.get_mut().head = next;
        operations.foresee(next);
    }
}

impl Matcher {
    /// Matches the receive `id` with the earliest unexpected message that fits and returns that, or posts it.
    #[inline]
    pub(super) fn post(&mut self, id: u32, operations: &mut Operations) -> Option<u32> {
        let receive = operations[id];
        if receive.peer == NONE || receive.has(ANY_TAG) {
            return self.post_wildcard(id, operations);
        }
        let key = (receive.peer, receive.tag);
        if self.exact.is_empty() && self.wild.is_none() {
            return self.meet_alone(key, id, State::Posted, operations);
        }
        match self.exact.entry(key) {
            Entry::Vacant(slot) => {
                slot.insert(List::one(id));
                None
            }
            Entry::Occupied(mut list) => {
                let head = list.get().head;
                if operations[head].state == State::Posted {
                    list.get_mut().append(id, operations);
                    return None;
                }
                take_head(list, operations);
                self.forget(head, operations);
                Some(head)
            }
        }
    }

    /// [`Self::post`] and [`Self::arrive`] while the table is empty: `id`, which would wait as `waits`, meets what waits
    /// alone, joins it, or sends it into the table.
    #[inline]
    fn meet_alone(&mut self, key: Key, id: u32, waits: State, operations: &mut Operations) -> Option<u32> {
        let Some((known, list)) = &mut self.alone else {
            self.alone = Some((key, List::one(id)));
            return None;
        };
        if *known != key {
            self.exact.insert(key, List::one(id));
            self.leave_alone();
            return None;
        }
        let head = list.head;
        if operations[head].state == waits {
            list.append(id, operations);
            return None;
        }
        match operations[head].next {
            NONE => self.alone = None,
            next => {
                list.head = next;
                operations.foresee(next);
            }
        }
        Some(head)
    }

    /// Moves what is alone into the table.
    fn leave_alone(&mut self) {
        self.exact.extend(self.alone.take());
    }

    fn post_wildcard(&mut self, id: u32, operations: &mut Operations) -> Option<u32> {
        self.expect_wildcards();
        let receive = operations[id];
        let wild = self.wild.get_or_insert_default();
        let found = match (receive.peer, receive.has(ANY_TAG)) {
            (NONE, true) => wild.all.first().map(|&(_, id)| id),
            (NONE, false) => {
                wild.by_tag.range((receive.tag, 0, 0)..=(receive.tag, u64::MAX, NONE)).next().map(|m| m.2)
            }
            (source, _) => {
                wild.by_source.range((source, 0, 0)..=(source, u64::MAX, NONE)).next().map(|m| m.2)
            }
        };
        let Some(message) = found else {
            match (receive.peer, receive.has(ANY_TAG)) {
                (NONE, true) => match &mut wild.posted_any {
                    Some(list) => list.append(id, operations),
                    none => *none = Some(List::one(id)),
                },
                (NONE, false) => append(&mut wild.posted_by_tag, receive.tag, id, operations),
                (source, _) => append(&mut wild.posted_by_source, source, id, operations),
            }
            return None;
        };
        let (source, tag) = (operations[message].endpoint.0, operations[message].tag);
        take(&mut self.exact, (source, tag), operations);
        self.forget(message, operations);
        Some(message)
    }

    /// Matches the message `id` with the earliest posted receive that fits and returns that, or keeps it as unexpected.
    #[inline]
    pub(super) fn arrive(&mut self, id: u32, operations: &mut Operations) -> Option<u32> {
        let (source, tag) = (operations[id].endpoint.0, operations[id].tag);
        if self.wild.is_some() {
            return self.arrive_among_wildcards(id, operations);
        }
        if self.exact.is_empty() {
            return self.meet_alone((source, tag), id, State::Unexpected, operations);
        }
        match self.exact.entry((source, tag)) {
            Entry::Vacant(slot) => {
                slot.insert(List::one(id));
                None
            }
            Entry::Occupied(mut list) => {
                let head = list.get().head;
                if operations[head].state == State::Unexpected {
                    list.get_mut().append(id, operations);
                    return None;
                }
                take_head(list, operations);
                Some(head)
            }
        }
    }

    fn arrive_among_wildcards(&mut self, id: u32, operations: &mut Operations) -> Option<u32> {
        let (source, tag) = (operations[id].endpoint.0, operations[id].tag);
        let wild = self.wild.get_or_insert_default();
        let exact =
            self.exact.get(&(source, tag)).filter(|list| operations[list.head].state == State::Posted);
        let heads = [
            exact,
            wild.posted_by_source.get(&source),
            wild.posted_by_tag.get(&tag),
            wild.posted_any.as_ref(),
        ];
        let earliest = heads
            .into_iter()
            .enumerate()
            .filter_map(|(kind, list)| list.map(|list| (operations[list.head].number, kind, list.head)))
            .min();
        let Some((_, kind, receive)) = earliest else {
            append(&mut self.exact, (source, tag), id, operations);
            self.index_for_wildcards(id, operations);
            return None;
        };
        match kind {
            0 => take(&mut self.exact, (source, tag), operations),
            1 => take(&mut wild.posted_by_source, source, operations),
            2 => take(&mut wild.posted_by_tag, tag, operations),
            _ => {
                let next = operations[receive].next;
                wild.posted_any =
                    wild.posted_any.filter(|_| next != NONE).map(|list| List { head: next, ..list });
            }
        }
        Some(receive)
    }

    /// Makes the unexpected message `id` visible to wildcards; done for each at the first wildcard of the run.
    pub(super) fn index_for_wildcards(&mut self, id: u32, operations: &Operations) {
        self.leave_alone();
        let message = &operations[id];
        let wild = self.wild.get_or_insert_default();
        wild.by_source.insert((message.endpoint.0, message.number, id));
        wild.by_tag.insert((message.tag, message.number, id));
        wild.all.insert((message.number, id));
    }

    /// Makes sure that unexpected messages will be visible to wildcards.
    pub(super) fn expect_wildcards(&mut self) {
        self.leave_alone();
        self.wild.get_or_insert_default();
    }

    /// Takes a matched message out of the sets.
    #[inline]
    fn forget(&mut self, id: u32, operations: &Operations) {
        if let Some(wild) = &mut self.wild {
            let message = &operations[id];
            wild.by_source.remove(&(message.endpoint.0, message.number, id));
            wild.by_tag.remove(&(message.tag, message.number, id));
            wild.all.remove(&(message.number, id));
        }
    }
}
