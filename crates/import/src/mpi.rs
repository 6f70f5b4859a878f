//! What the readers of MPI traces share: a rank's calls in program order become operations.
//!
//! Between two calls lies a computation as long as the recording had it, or as many operations as it counted. A blocking call
//! holds up what follows; a non-blocking one has only to have begun, and a wait joins it again. Tags are made unique over
//! communicators. Collectives without a counterpart here (gather, scatter, scan) become messages or a kindred collective.

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Span, StreamId};
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::CollectiveKind;

use crate::coverage::{Coverage, Treatment};
use crate::draft::{Call, Draft, RankDraft, Work};

/// Tags by (communicator, tag), the same for all ranks.
#[derive(Debug, Default)]
pub(crate) struct Tags(FxHashMap<(String, i64), u64>);

impl Tags {
    fn get(&mut self, communicator: &str, tag: i64) -> u64 {
        let next = self.0.len() as u64;
        *self.0.entry((communicator.to_owned(), tag)).or_insert(next)
    }
}

/// Where a message goes or comes from.
pub(crate) struct Envelope<'a> {
    /// Communicator's name, for tags.
    pub communicator: &'a str,
    /// The other rank; `None`: any.
    pub peer: Option<u32>,
    /// The tag; `None`: any.
    pub tag: Option<i64>,
    pub bytes: u64,
}

/// A rank under way.
pub(crate) struct Script<'a> {
    pub rank: RankDraft,
    pub number: u32,
    tags: &'a mut Tags,
    /// What the next operation waits for.
    last: Option<u32>,
    /// Non-blocking operations that must have begun before the next one.
    begun: Vec<u32>,
    /// Pending requests.
    requests: FxHashMap<i64, u32>,
    /// End of the last call in ns.
    clock: Option<i64>,
    /// Begin of the recording in ns.
    begin: Option<i64>,
}

const CPU: StreamId = StreamId(0);
/// Where non-blocking collectives go on beside the program.
const PROGRESS: StreamId = StreamId(1);

impl<'a> Script<'a> {
    pub(crate) fn new(number: u32, tags: &'a mut Tags) -> Self {
        let rank = RankDraft::new();
        Self {
            rank,
            number,
            tags,
            last: None,
            begun: Vec::new(),
            requests: FxHashMap::default(),
            clock: None,
            begin: None,
        }
    }

    fn push(&mut self, work: Work, label: &str, extra: &[u32]) -> u32 {
        let label = self.rank.label(label);
        let mut after: Vec<u32> = self.last.into_iter().collect();
        after.extend_from_slice(extra);
        let index = self.rank.push(work, CPU, label, Dimension::Other, &after);
        for begun in self.begun.drain(..) {
            self.rank.irequires.push((index, begun));
        }
        index
    }

    fn blocking(&mut self, work: Work, label: &str, extra: &[u32]) {
        let index = self.push(work, label, extra);
        self.last = Some(index);
    }

    /// A call goes from `start` to `end` (ns): what was before is computation.
    pub(crate) fn call(&mut self, start: i64, end: i64, coverage: &mut Coverage) {
        if let Some(clock) = self.clock {
            self.compute(start.saturating_sub(clock).max(0) as u64, coverage);
        }
        self.begin.get_or_insert(start);
        self.clock = Some(end.max(start));
    }

    /// The time until `at` is the call's own.
    pub(crate) fn skip_to(&mut self, at: i64) {
        self.clock = Some(at);
    }

    /// Goes on counting from `at`, without a computation before.
    pub(crate) fn start_at(&mut self, at: i64) {
        self.clock = Some(at);
        self.begin = Some(at);
    }

    /// The rank's program; what it took when it was recorded goes to the account.
    pub(crate) fn finish(self, coverage: &mut Coverage) -> RankDraft {
        if let (Some(begin), Some(end)) = (self.begin, self.clock) {
            coverage.span(self.number, "program", end.saturating_sub(begin).max(0) as u64);
        }
        self.rank
    }

    /// Computes for nanoseconds.
    pub(crate) fn compute(&mut self, nanoseconds: u64, coverage: &mut Coverage) {
        if nanoseconds > 0 {
            coverage.count("computation between calls", Treatment::Mapped, "", 0, nanoseconds);
            self.blocking(Work::Calc(Span::from_ns(nanoseconds)), "compute", &[]);
        }
    }

    pub(crate) fn send(&mut self, to: &Envelope<'_>, request: Option<i64>, coverage: &mut Coverage) {
        let kind = if request.is_some() { "non-blocking send" } else { "send" };
        let Some(peer) = to.peer.filter(|&peer| peer != self.number) else {
            // To nobody (MPI_PROC_NULL), or to itself: memory only.
            coverage.count(kind, Treatment::Approximated, "to itself or to nobody: no message", to.bytes, 0);
            return;
        };
        let tag = self.tags.get(to.communicator, to.tag.unwrap_or(0));
        let work = Work::Send(peer, to.bytes, tag);
        let index = self.post(work, "send", request);
        self.rank.account(index, (kind, Treatment::Mapped, ""), to.bytes, 0, coverage);
    }

    pub(crate) fn receive(&mut self, from: &Envelope<'_>, request: Option<i64>, coverage: &mut Coverage) {
        let kind = if request.is_some() { "non-blocking receive" } else { "receive" };
        if from.peer == Some(self.number) {
            coverage.count(
                kind,
                Treatment::Approximated,
                "to itself or to nobody: no message",
                from.bytes,
                0,
            );
            return;
        }
        let tag = from.tag.map(|tag| self.tags.get(from.communicator, tag));
        let index = self.post(Work::Receive(from.peer, tag), "receive", request);
        self.rank.account(index, (kind, Treatment::Mapped, ""), from.bytes, 0, coverage);
    }

    fn post(&mut self, work: Work, label: &str, request: Option<i64>) -> u32 {
        let index = self.push(work, label, &[]);
        match request {
            None => self.last = Some(index),
            Some(request) => {
                self.begun.push(index);
                self.requests.insert(request, index);
            }
        }
        index
    }

    /// Waits for requests; those that are not known have ended.
    pub(crate) fn wait(&mut self, requests: &[i64], coverage: &mut Coverage) {
        self.wait_as(requests, Treatment::Mapped, "", coverage);
    }

    /// The same where the recording does not say all of it.
    pub(crate) fn wait_as(
        &mut self,
        requests: &[i64],
        treatment: Treatment,
        why: &str,
        coverage: &mut Coverage,
    ) {
        let pending: Vec<u32> = requests.iter().filter_map(|request| self.requests.remove(request)).collect();
        coverage.count("wait", treatment, why, 0, 0);
        if !pending.is_empty() {
            self.blocking(Work::Calc(Span::ZERO), "wait", &pending);
        }
    }

    /// All requests that are pending.
    pub(crate) fn pending(&self) -> Vec<i64> {
        let mut pending: Vec<(u32, i64)> =
            self.requests.iter().map(|(&request, &node)| (node, request)).collect();
        pending.sort_unstable();
        pending.into_iter().map(|(_, request)| request).collect()
    }

    /// A collective over `ranks`, which holds up what follows.
    pub(crate) fn collective(
        &mut self,
        draft: &mut Draft,
        name: &str,
        ranks: &[u32],
        said: Said,
        coverage: &mut Coverage,
    ) {
        self.begin_collective(draft, name, ranks, said, None, coverage);
    }

    /// The same, or with a request one that a wait joins again.
    pub(crate) fn begin_collective(
        &mut self,
        draft: &mut Draft,
        name: &str,
        ranks: &[u32],
        said: Said,
        request: Option<i64>,
        coverage: &mut Coverage,
    ) {
        let Said { kind, bytes, splits, nanoseconds, came, as_another } = said;
        let what = format!("collective: {}", kind.name());
        if ranks.len() < 2 {
            let why = "of one member: nothing to do";
            coverage.count(&what, Treatment::Approximated, why, bytes, nanoseconds);
            return;
        }
        let treatment = if as_another.is_some() { Treatment::Approximated } else { Treatment::Mapped };
        let group = draft.group(name, ranks, Dimension::Other);
        let exact = as_another.is_none();
        self.rank.calls.push(Call { group, kind, bytes, splits, sequence: None, nanoseconds, exact, came });
        let work = Work::Call(self.rank.calls.len() as u32 - 1);
        let index = match request {
            None => {
                let index = self.push(work, kind.name(), &[]);
                self.last = Some(index);
                index
            }
            Some(request) => {
                let label = self.rank.label(kind.name());
                let after: Vec<u32> = self.last.into_iter().collect();
                let index = self.rank.push(work, PROGRESS, label, Dimension::Other, &after);
                self.requests.insert(request, index);
                index
            }
        };
        let row = (&*what, treatment, as_another.unwrap_or(""));
        self.rank.account(index, row, bytes, nanoseconds, coverage);
    }

    /// A gather (`into` the root) or a scatter, as messages between the root and each member; bytes of a member.
    pub(crate) fn rooted(
        &mut self,
        name: &str,
        ranks: &[u32],
        root: u32,
        bytes: &[u64],
        into: bool,
        coverage: &mut Coverage,
    ) {
        let what = if into { "collective: gather" } else { "collective: scatter" };
        let total = bytes.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        coverage.count(
            what,
            Treatment::Approximated,
            "as messages between the root and each member",
            total,
            0,
        );
        let communicator = format!("{name} rooted");
        let of = |at: usize| bytes.get(at).or(bytes.first()).copied().unwrap_or(0);
        if self.number != root {
            let tag = self.tags.get(&communicator, i64::from(root));
            let own = of(ranks.iter().position(|&rank| rank == self.number).unwrap_or(0));
            let work = if into { Work::Send(root, own, tag) } else { Work::Receive(Some(root), Some(tag)) };
            let index = self.push(work, if into { "gather" } else { "scatter" }, &[]);
            self.rank.part(index);
            self.last = Some(index);
            return;
        }
        let tag = self.tags.get(&communicator, i64::from(root));
        let mut parts = Vec::new();
        for (at, &rank) in ranks.iter().enumerate().filter(|&(_, &rank)| rank != root) {
            let work =
                if into { Work::Receive(Some(rank), Some(tag)) } else { Work::Send(rank, of(at), tag) };
            let index = self.push(work, if into { "gather" } else { "scatter" }, &[]);
            self.rank.part(index);
            parts.push(index);
        }
        self.blocking(Work::Calc(Span::ZERO), "wait", &parts);
    }
}

/// A collective as a trace has it.
pub(crate) struct Said {
    pub kind: CollectiveKind,
    pub bytes: u64,
    pub splits: Option<Vec<u64>>,
    pub nanoseconds: u64,
    /// When this rank came, on a clock that all share.
    pub came: Option<i64>,
    /// What it was, where it is not what it became.
    pub as_another: Option<&'static str>,
}

impl Said {
    pub(crate) fn new(kind: CollectiveKind, bytes: u64, nanoseconds: u64) -> Self {
        Self { kind, bytes, splits: None, nanoseconds, came: None, as_another: None }
    }
}
