//! Gathers and scatters: an entry does not say its root, but the root alone has tensors of all members.

use std::collections::BTreeMap;

use windtunnel_kernel::{Span, StreamId};
use windtunnel_workload::Dimension;

use crate::draft::{RankDraft, Work};
use crate::pickle::Value;

/// Group and number of a call.
type Key = (String, i64);
/// The root of each gather and scatter that has one.
pub(super) type Roots = BTreeMap<Key, u32>;

/// The group and the number of an entry.
pub(super) fn key(entry: Value<'_>) -> Key {
    let group = entry.get("process_group").and_then(|group| group.items().next()).and_then(Value::text);
    let number = entry.get("collective_seq_id").and_then(Value::int).unwrap_or(-1);
    (group.unwrap_or("0").to_owned(), number)
}

/// The roots of all gathers and scatters: the rank whose entry has several tensors there.
pub(super) fn roots<'a>(dumps: impl Iterator<Item = (u32, Value<'a>)>) -> Roots {
    let mut found: BTreeMap<Key, Option<u32>> = BTreeMap::new();
    for (rank, root) in dumps {
        for entry in root.get("entries").into_iter().flat_map(Value::items) {
            let name = entry.get("profiling_name").and_then(Value::text).unwrap_or("");
            let tensors = match name.split_once(':').map_or(name, |(_, call)| call) {
                "gather" => "output_sizes",
                "scatter" => "input_sizes",
                _ => continue,
            };
            if entry.get(tensors).is_some_and(|list| list.len() > 1) {
                // Two that say it is neither.
                found.entry(key(entry)).and_modify(|root| *root = None).or_insert(Some(rank));
            }
        }
    }
    found.into_iter().filter_map(|(key, root)| Some((key, root?))).collect()
}

/// A gather (`into` the root) or a scatter of rank `number`.
pub(super) struct Rooted<'a> {
    pub root: u32,
    pub into: bool,
    pub number: u32,
    pub members: &'a [u32],
    /// Bytes of its inputs.
    pub sent: u64,
}

impl Rooted<'_> {
    /// Its messages, and the operation that they end in.
    pub(super) fn messages(
        &self,
        rank: &mut RankDraft,
        label: u32,
        dimension: Dimension,
        after: &[u32],
    ) -> u32 {
        let stream = StreamId(1);
        let mut parts = Vec::new();
        let others: Vec<u32> = if self.number == self.root {
            self.members.iter().copied().filter(|&member| member != self.root).collect()
        } else {
            vec![self.root]
        };
        let sends = self.into != (self.number == self.root);
        let bytes = match (self.number == self.root, self.into) {
            (true, false) => self.sent / self.members.len().max(1) as u64,
            _ => self.sent,
        };
        for other in others {
            let work = if sends { Work::Send(other, bytes, 0) } else { Work::Receive(Some(other), Some(0)) };
            let index = rank.push(work, stream, label, dimension, after);
            rank.part(index);
            parts.push(index);
        }
        let end = if parts.is_empty() { after } else { &parts };
        rank.push(Work::Calc(Span::ZERO), stream, label, dimension, end)
    }
}
