//! Which receive can take which send: a largest matching per receiving rank, wildcards included.
//!
//! A receive names its source and tag, or takes any source, any tag, or any of both. Sends of one (source, tag) are a
//! *class*. The matching is built in an order that loses nothing: exact receives first (they have no other choice), then
//! receives with one wildcard (a send may go to those of its source or to those of its tag; augmenting paths move sends
//! between them: Berge, "Two theorems in graph theory", 1957), last those that take anything. So as many sends as
//! receives are left over as must be in any order of arrival; in a run, a wildcard may take what an exact receive needed
//! and leave more.
//!
//! Inside a class, receives take sends in program order.

use std::collections::VecDeque;

use windtunnel_kernel::{RankId, Tag};

use crate::{OpKind, Workload};

/// A send, from its receiver's side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    pub source: RankId,
    pub operation: u32,
    pub tag: Tag,
}

/// A receive and the send it takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub operation: u32,
    pub source: Option<RankId>,
    pub tag: Option<Tag>,
    /// Position in [`Matcher::incoming`].
    pub send: Option<u32>,
}

/// All sends of a workload, by receiver.
pub(crate) struct Matcher<'a> {
    workload: &'a Workload,
    offsets: Vec<usize>,
    sends: Vec<Incoming>,
}

/// Sends of one (source, tag) to one rank: `next..end` are free.
struct Class {
    source: RankId,
    tag: Tag,
    next: u32,
    end: u32,
    /// Groups of receives with one wildcard that may take them: of this source, of this tag.
    groups: [Option<u32>; 2],
    /// Sends promised to each.
    promised: [u32; 2],
}

impl Class {
    fn free(&self) -> u32 {
        self.end - self.next - self.promised[0] - self.promised[1]
    }
}

impl<'a> Matcher<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        let ranks = workload.ranks();
        let each_send = |visit: &mut dyn FnMut(RankId, Incoming)| {
            for source in (0..ranks as u32).map(RankId) {
                for (operation, op) in (0..).zip(&workload.program(source).ops) {
                    if let OpKind::Send { peer, tag, .. } = op.kind {
                        visit(workload.resolve(source, peer), Incoming { source, operation, tag });
                    }
                }
            }
        };
        let mut offsets = vec![0; ranks + 1];
        each_send(&mut |to, _| offsets[to.0 as usize + 1] += 1);
        for rank in 0..ranks {
            offsets[rank + 1] += offsets[rank];
        }
        let mut next = offsets.clone();
        let nobody = Incoming { source: RankId(0), operation: 0, tag: Tag(0) };
        let mut sends = vec![nobody; offsets[ranks]];
        each_send(&mut |to, send| {
            let slot = &mut next[to.0 as usize];
            sends[*slot] = send;
            *slot += 1;
        });
        for rank in 0..ranks {
            // Stable: program order stays inside a class.
            sends[offsets[rank]..offsets[rank + 1]].sort_by_key(|send| (send.source, send.tag));
        }
        Self { workload, offsets, sends }
    }

    /// Sends to `rank`, by source, tag and program order.
    pub(crate) fn incoming(&self, rank: RankId) -> &[Incoming] {
        &self.sends[self.offsets[rank.0 as usize]..self.offsets[rank.0 as usize + 1]]
    }

    /// Receives of `rank` in program order, with what each takes.
    pub(crate) fn receives(&self, rank: RankId) -> Vec<Taken> {
        let mut receives: Vec<Taken> = (0..)
            .zip(&self.workload.program(rank).ops)
            .filter_map(|(operation, op)| match op.kind {
                OpKind::Receive { peer, tag, .. } => {
                    let source = peer.map(|peer| self.workload.resolve(rank, peer));
                    Some(Taken { operation, source, tag, send: None })
                }
                _ => None,
            })
            .collect();
        let mut classes = self.classes(rank);
        let mut wildcards = [0; 3];
        for receive in &mut receives {
            match (receive.source, receive.tag) {
                (Some(source), Some(tag)) => {
                    let class =
                        classes.binary_search_by_key(&(source, tag), |class| (class.source, class.tag));
                    if let Ok(class) = class
                        && classes[class].next < classes[class].end
                    {
                        receive.send = Some(classes[class].next);
                        classes[class].next += 1;
                    }
                }
                (Some(_), None) => wildcards[0] += 1,
                (None, Some(_)) => wildcards[1] += 1,
                (None, None) => wildcards[2] += 1,
            }
        }
        if wildcards != [0; 3] {
            promise(&mut classes, &receives);
            hand_out(&mut classes, &mut receives);
        }
        receives
    }

    /// Sizes of the receives of `rank` in program order: that of the send each takes, 0 where there is none.
    pub(crate) fn receive_sizes(&self, rank: RankId) -> impl Iterator<Item = u64> {
        self.receives(rank).into_iter().map(move |receive| {
            let Some(send) = receive.send else { return 0 };
            let send = self.incoming(rank)[send as usize];
            match self.workload.program(send.source).ops[send.operation as usize].kind {
                OpKind::Send { bytes, .. } => bytes.get(),
                _ => 0,
            }
        })
    }

    fn classes(&self, rank: RankId) -> Vec<Class> {
        let mut classes: Vec<Class> = Vec::new();
        for (index, send) in (0..).zip(self.incoming(rank)) {
            match classes.last_mut() {
                Some(class) if (class.source, class.tag) == (send.source, send.tag) => class.end = index + 1,
                _ => classes.push(Class {
                    source: send.source,
                    tag: send.tag,
                    next: index,
                    end: index + 1,
                    groups: [None; 2],
                    promised: [0; 2],
                }),
            }
        }
        classes
    }
}

/// The receives of one source with any tag, or of one tag with any source, and the classes that they may take from.
#[derive(Default)]
struct Group {
    wanted: u32,
    classes: Vec<u32>,
}

/// Promises free sends to the receives with one wildcard, as many as can be served together.
///
/// A class joins two groups, that of its source and that of its tag, and each of its sends serves one of them: sends
/// are edges to be oriented, and a group that wants more is served along a path of re-orientations to a free send.
fn promise(classes: &mut [Class], receives: &[Taken]) {
    let mut sources: Vec<RankId> =
        receives.iter().filter(|r| r.tag.is_none()).filter_map(|r| r.source).collect();
    let mut tags: Vec<Tag> = receives.iter().filter(|r| r.source.is_none()).filter_map(|r| r.tag).collect();
    let wanted_sources = sources.clone();
    let wanted_tags = tags.clone();
    sort_unique(&mut sources);
    sort_unique(&mut tags);
    let mut groups: Vec<Group> = Vec::new();
    groups.resize_with(sources.len() + tags.len(), Group::default);
    for source in wanted_sources {
        groups[sources.binary_search(&source).expect("its own source")].wanted += 1;
    }
    for tag in wanted_tags {
        groups[sources.len() + tags.binary_search(&tag).expect("its own tag")].wanted += 1;
    }
    for (index, class) in (0..).zip(&mut *classes) {
        let by_source = sources.binary_search(&class.source).ok();
        let by_tag = tags.binary_search(&class.tag).ok().map(|at| sources.len() + at);
        class.groups = [by_source, by_tag].map(|group| group.map(|group| group as u32));
        for group in class.groups.into_iter().flatten() {
            groups[group as usize].classes.push(index);
        }
    }
    for group in 0..groups.len() as u32 {
        while groups[group as usize].wanted > 0 && serve(classes, &groups, group) {
            groups[group as usize].wanted -= 1;
        }
    }
}

fn sort_unique<T: Ord>(items: &mut Vec<T>) {
    items.sort_unstable();
    items.dedup();
}

/// Finds one more send for `start`, breadth first over groups. Once there is none, there never will be.
fn serve(classes: &mut [Class], groups: &[Group], start: u32) -> bool {
    // How a group was reached: it would give up a send of this class to that group.
    let mut gives: Vec<Option<(u32, u32)>> = vec![None; groups.len()];
    let mut queue = VecDeque::from([start]);
    while let Some(group) = queue.pop_front() {
        for &index in &groups[group as usize].classes {
            let class = &mut classes[index as usize];
            let side = usize::from(class.groups[1] == Some(group));
            if class.free() > 0 {
                class.promised[side] += 1;
                let mut at = group;
                while let Some((class, to)) = gives[at as usize] {
                    let class = &mut classes[class as usize];
                    let side = usize::from(class.groups[1] == Some(to));
                    class.promised[side] += 1;
                    class.promised[1 - side] -= 1;
                    at = to;
                }
                return true;
            }
            if class.promised[1 - side] > 0
                && let Some(other) = class.groups[1 - side]
                && other != start
                && gives[other as usize].is_none()
            {
                gives[other as usize] = Some((index, group));
                queue.push_back(other);
            }
        }
    }
    false
}

/// Gives the promised sends to the receives with one wildcard, and what is left to those that take anything.
fn hand_out(classes: &mut [Class], receives: &mut [Taken]) {
    for receive in &mut *receives {
        let side = match (receive.source, receive.tag) {
            (Some(_), None) => 0,
            (None, Some(_)) => 1,
            _ => continue,
        };
        let serves = |class: &&mut Class| {
            class.promised[side] > 0
                && receive.source.is_none_or(|source| source == class.source)
                && receive.tag.is_none_or(|tag| tag == class.tag)
        };
        if let Some(class) = classes.iter_mut().find(serves) {
            class.promised[side] -= 1;
            receive.send = Some(class.next);
            class.next += 1;
        }
    }
    let mut left = classes.iter_mut().flat_map(|class| class.next..class.end);
    for receive in receives.iter_mut().filter(|r| r.source.is_none() && r.tag.is_none()) {
        receive.send = left.next();
    }
}
