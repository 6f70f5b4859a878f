//! Ranks under way: operations and dependencies as readers find them, before all ranks are known.
//!
//! A collective is a *call* here: what one member says of it. [`Draft::finish`](crate::draft::Draft::finish) lays the calls
//! of all members side by side, fills in or leaves out ranks that were not recorded, and makes the workload.

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Span, StreamId};
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::CollectiveKind;

use std::collections::BTreeMap;

use crate::coverage::{Coverage, Treatment};

/// A collective as one member knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Index of its group in [`Draft::groups`].
    pub group: u32,
    /// What it computes.
    pub kind: CollectiveKind,
    /// Size, counted as [`CollectiveKind`] says; of an all-to-all what this member sends.
    pub bytes: u64,
    /// Bytes to each member, where they differ.
    pub splits: Option<Vec<u64>>,
    /// The library's number for it, where it was recorded.
    pub sequence: Option<u64>,
    /// Recorded time, waiting included.
    pub nanoseconds: u64,
    /// Whether its size is that of one vector for all members: an all-reduce that stands for a scan may be counted as less.
    pub exact: bool,
    /// When this member came, in ns of a clock that all ranks share; where the recording says it.
    pub came: Option<i64>,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Computes.
    Calc(Span),
    /// Sends bytes to a rank with a tag.
    Send(u32, u64, u64),
    /// Receives from a rank (or any), with a tag (or any).
    Receive(Option<u32>, Option<u64>),
    /// Takes part in a collective: index into [`RankDraft::calls`].
    Call(u32),
}

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it does.
    pub work: Work,
    /// Where.
    pub stream: StreamId,
    /// Index into [`RankDraft::labels`].
    pub label: u32,
    /// What for.
    pub dimension: Dimension,
}

/// A rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankDraft {
    /// Operations.
    pub nodes: Vec<Node>,
    /// (operation, prerequisite that has ended).
    pub requires: Vec<(u32, u32)>,
    /// (operation, prerequisite that has started).
    pub irequires: Vec<(u32, u32)>,
    /// Collectives in the order in which the library was called.
    pub calls: Vec<Call>,
    /// Labels; the first is empty.
    pub labels: Vec<String>,
    /// The file that it was read from, for messages.
    pub file: String,
    index: FxHashMap<String, u32>,
    /// How operations of other ranks' concern were counted, in order of their operations.
    accounts: Vec<(u32, Account)>,
    /// Kinds, verdicts and reasons of `accounts`.
    rows: Vec<(String, Treatment, String)>,
}

/// How an operation was counted, for when its verdict changes as other ranks are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    row: u32,
    bytes: u64,
    nanoseconds: u64,
}

/// The row of what is counted with another operation.
const PART: u32 = u32::MAX;

impl RankDraft {
    /// A rank without operations.
    pub fn new() -> Self {
        let mut draft = Self::default();
        draft.label("");
        draft
    }

    /// The same, read from `file`.
    #[must_use]
    pub fn of_file(mut self, file: &str) -> Self {
        file.clone_into(&mut self.file);
        self
    }

    /// Counts operation `node`, and keeps how: [`Draft::finish`] takes it back where the operation becomes another.
    pub fn account(
        &mut self,
        node: u32,
        row: (&str, Treatment, &str),
        bytes: u64,
        nanoseconds: u64,
        coverage: &mut Coverage,
    ) {
        let (kind, treatment, why) = row;
        coverage.count(kind, treatment, why, bytes, nanoseconds);
        let known =
            self.rows.iter().position(|(of, with, reason)| of == kind && *with == treatment && reason == why);
        let row = known.unwrap_or_else(|| {
            self.rows.push((kind.to_owned(), treatment, why.to_owned()));
            self.rows.len() - 1
        }) as u32;
        self.accounts.push((node, Account { row, bytes, nanoseconds }));
    }

    /// Says that operation `node` is a part of one that is counted, so that it is not counted again.
    pub fn part(&mut self, node: u32) {
        self.accounts.push((node, Account { row: PART, bytes: 0, nanoseconds: 0 }));
    }

    /// Gives operation `node` another verdict; one that its reader did not keep is of `kind` with what else is told.
    pub(crate) fn change(
        &self,
        node: u32,
        other: (&str, u64, u64),
        treatment: Treatment,
        why: &str,
        coverage: &mut Coverage,
    ) {
        match self.accounts.binary_search_by_key(&node, |&(node, _)| node) {
            Ok(at) => {
                let Account { row, bytes, nanoseconds } = self.accounts[at].1;
                if row == PART {
                    return;
                }
                let (kind, was, reason) = &self.rows[row as usize];
                coverage.change(kind, Some((*was, reason)), treatment, why, bytes, nanoseconds);
            }
            Err(_) => {
                let (kind, bytes, nanoseconds) = other;
                coverage.change(kind, None, treatment, why, bytes, nanoseconds);
            }
        }
    }

    /// The index of a label.
    pub fn label(&mut self, text: &str) -> u32 {
        if let Some(&known) = self.index.get(text) {
            return known;
        }
        let index = self.labels.len() as u32;
        self.labels.push(text.to_owned());
        self.index.insert(text.to_owned(), index);
        index
    }

    /// Adds an operation that waits for the ends of `after`.
    pub fn push(
        &mut self,
        work: Work,
        stream: StreamId,
        label: u32,
        dimension: Dimension,
        after: &[u32],
    ) -> u32 {
        let index = self.nodes.len() as u32;
        self.nodes.push(Node { work, stream, label, dimension });
        for (place, &before) in after.iter().enumerate() {
            if !after[..place].contains(&before) {
                self.requires.push((index, before));
            }
        }
        index
    }

    /// Adds a computation of whole nanoseconds.
    pub fn calc(&mut self, nanoseconds: u64, stream: StreamId, label: u32, after: &[u32]) -> u32 {
        self.push(Work::Calc(Span::from_ns(nanoseconds)), stream, label, Dimension::Other, after)
    }

    /// Adds a collective.
    pub fn call(
        &mut self,
        call: Call,
        stream: StreamId,
        label: u32,
        dimension: Dimension,
        after: &[u32],
    ) -> u32 {
        self.calls.push(call);
        self.push(Work::Call(self.calls.len() as u32 - 1), stream, label, dimension, after)
    }
}

/// A communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name in the recording.
    pub name: String,
    /// Its members in order.
    pub ranks: Vec<u32>,
    /// What it is for.
    pub dimension: Dimension,
}

/// A recording under way.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Recorded ranks.
    pub ranks: BTreeMap<u32, RankDraft>,
    /// Communicators.
    pub groups: Vec<Group>,
    /// Number of ranks that ran, where it is said.
    pub world: Option<u32>,
    /// What the recording is of, for messages.
    pub source: String,
    pub(crate) known: FxHashMap<(String, Vec<u32>), u32>,
}

impl Draft {
    /// The file of a rank; the recording's name where that is not known.
    pub fn file_of(&self, rank: u32) -> &str {
        let own = self.ranks.get(&rank).map(|draft| draft.file.as_str()).filter(|file| !file.is_empty());
        own.unwrap_or(&self.source)
    }

    /// The index of a communicator.
    pub fn group(&mut self, name: &str, ranks: &[u32], dimension: Dimension) -> u32 {
        let key = (name.to_owned(), ranks.to_vec());
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let index = self.groups.len() as u32;
        self.groups.push(Group { name: name.to_owned(), ranks: ranks.to_vec(), dimension });
        self.known.insert(key, index);
        index
    }
}

/// What a group is for, by its name or description.
pub fn dimension_of(text: &str) -> Dimension {
    let text = text.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match () {
        () if has(&["expert", "ep_", "_ep", "moe"]) || text == "ep" => Dimension::Ep,
        () if has(&["tensor", "tp_", "_tp"]) || text == "tp" => Dimension::Tp,
        () if has(&["pipeline", "pp_", "_pp"]) || text == "pp" => Dimension::Pp,
        () if has(&["context", "cp_", "_cp"]) || text == "cp" => Dimension::Cp,
        () if has(&["data", "dp_", "_dp", "fsdp", "ddp"]) || text == "dp" => Dimension::Dp,
        () => Dimension::Other,
    }
}
