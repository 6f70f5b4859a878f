//! Which kernels communicate, and what they say of it: their own arguments, the execution trace, or the annotation around
//! their launch, in this order; what is left is known by name only and stays a computation.

use rustc_hash::FxHashMap;
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::CollectiveKind;

use super::calls::{Arguments, element_bytes};
use super::trace::{DeviceOp, Trace};
use crate::coverage::Treatment;
use crate::draft::{Call, Draft, dimension_of};
use crate::execution_trace::Logged;

/// What a kernel turned out to be.
pub(crate) struct Found {
    pub call: Message,
    pub dimension: Dimension,
}

/// How communication is counted: kind, verdict, reason and bytes.
pub(crate) struct Counted {
    pub kind: String,
    pub treatment: Treatment,
    pub why: &'static str,
    pub bytes: u64,
}

impl Found {
    /// Says when the member came.
    fn came_at(&mut self, start: i64) {
        if let Message::Call(call) = &mut self.call {
            call.came = Some(start);
        }
    }
}

pub(crate) enum Message {
    Call(Call),
    Send(u32, u64),
    Receive(u32),
}

/// Whether a kernel communicates, by its arguments or its name.
pub(crate) fn is_communication(trace: &Trace, op: &DeviceOp) -> bool {
    op.arguments.is_some() || (!op.copy && library_of(&trace.names[op.name as usize]).is_some())
}

/// Finds the communication of one rank.
pub(crate) struct Caller<'a> {
    pub rank: u32,
    pub world: u32,
    /// Of each annotation, what the execution trace says.
    pub logged: Vec<Option<&'a Logged>>,
    /// Annotations by thread, as indices in order of time.
    pub(super) by_thread: FxHashMap<u32, Vec<u32>>,
    used: Vec<bool>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(trace: &Trace, rank: u32, world: u32, logged: Vec<Option<&'a Logged>>) -> Self {
        let mut by_thread: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (index, annotation) in (0..).zip(&trace.annotations) {
            by_thread.entry(annotation.thread).or_default().push(index);
        }
        Self { rank, world, logged, by_thread, used: vec![false; trace.annotations.len()] }
    }

    /// The communication of device operation `index`, launched by a thread at a time, and how it is counted; `None` twice for a
    /// computation, and no communication where its recorded time stays.
    pub(crate) fn call(
        &mut self,
        trace: &Trace,
        index: u32,
        launch: Option<(u32, i64)>,
        draft: &mut Draft,
    ) -> (Option<Found>, Option<Counted>) {
        let op = &trace.device[index as usize];
        if !is_communication(trace, op) {
            return (None, None);
        }
        let name = &trace.names[op.name as usize];
        let library = library_of(name).unwrap_or("collective");
        match self.found(trace, op, library, launch, draft) {
            Ok((mut found, treatment, why)) => {
                found.came_at(op.start);
                let counted = counted(&found, treatment, why);
                (Some(found), Some(counted))
            }
            Err(why) => {
                let kind = format!("communication of {library}");
                let said = op.arguments.map(|said| &trace.arguments[said as usize]);
                let bytes = said.and_then(payload).map_or(0, |(sent, received)| sent.max(received));
                (None, Some(Counted { kind, treatment: Treatment::Approximated, why, bytes }))
            }
        }
    }

    fn found(
        &mut self,
        trace: &Trace,
        op: &DeviceOp,
        library: &str,
        launch: Option<(u32, i64)>,
        draft: &mut Draft,
    ) -> Result<(Found, Treatment, &'static str), &'static str> {
        let nanoseconds = (op.end - op.start) as u64;
        if let Some(arguments) = op.arguments {
            return self.by_arguments(trace, &trace.arguments[arguments as usize], nanoseconds, draft);
        }
        if library != "nccl" {
            return Err("known by its name alone, which says no size: its recorded time stays");
        }
        let annotation = launch.and_then(|(thread, at)| self.around(trace, thread, at));
        let annotation =
            annotation.ok_or("no argument and no annotation says its size: its recorded time stays")?;
        if std::mem::replace(&mut self.used[annotation as usize], true) {
            return Err("a further kernel of one call: its recorded time stays");
        }
        if trace.nsight {
            return self.by_payload(trace, annotation, nanoseconds, draft);
        }
        let found = self.by_annotation(trace, annotation, nanoseconds, draft);
        found.ok_or("its annotation has no shape: its recorded time stays; record with `record_shapes=True`")
    }

    /// The innermost annotation of `thread` around `at`.
    fn around(&self, trace: &Trace, thread: u32, at: i64) -> Option<u32> {
        let list = self.by_thread.get(&thread)?;
        let after = list.partition_point(|&index| trace.annotations[index as usize].start <= at);
        list[..after].iter().rev().take(8).copied().find(|&index| trace.annotations[index as usize].end >= at)
    }

    fn by_arguments(
        &self,
        trace: &Trace,
        said: &Arguments,
        nanoseconds: u64,
        draft: &mut Draft,
    ) -> Result<(Found, Treatment, &'static str), &'static str> {
        let name = said.collective.as_deref().unwrap_or("");
        let (sent, received) = payload(said).ok_or("an unknown element type: its recorded time stays")?;
        let plain = name.trim_start_matches('_').to_ascii_lowercase();
        let text = said.group_text.as_deref().unwrap_or("");
        let dimension = dimension_of(text);
        let size_said = said.sent.is_some() || said.received.is_some();
        const NO_SIZE: &str = "nothing says its size: its recorded time stays";
        if let "send" | "recv" = &*plain {
            let sends = plain == "send";
            let other = self.other(trace, said, if sends { said.destination } else { said.source })?;
            // Both ends alike, so that no receive waits for a message that became a time.
            if !size_said {
                return Err(NO_SIZE);
            }
            let call = if sends { Message::Send(other, sent.max(received)) } else { Message::Receive(other) };
            return Ok((Found { call, dimension }, Treatment::Mapped, ""));
        }
        let (ranks, why) = self
            .members(trace, said)
            .ok_or("its group's members are not recorded: its recorded time stays")?;
        if !ranks.contains(&self.rank) {
            return Err("the recording's rank is not in its group: its recorded time stays");
        }
        let n = ranks.len() as u64;
        let kind = kind_of(&plain).ok_or("a collective that is not modelled: its recorded time stays")?;
        if kind != CollectiveKind::Barrier && !size_said {
            return Err(NO_SIZE);
        }
        let root = said.rank.and_then(|root| u32::try_from(root).ok()).filter(|&root| u64::from(root) < n);
        let (kind, no_root) = rooted(kind, root);
        let why = if why.is_empty() { no_root } else { why };
        let bytes = match kind {
            CollectiveKind::AllGather => received.max(sent.saturating_mul(n)),
            CollectiveKind::Barrier => 0,
            _ => sent.max(received),
        };
        let rows = said.split_in.iter().fold(0u64, |sum, part| sum.saturating_add(*part));
        let splits =
            (kind == CollectiveKind::AllToAll && said.split_in.len() as u64 == n && rows > 0).then(|| {
                said.split_in
                    .iter()
                    .map(|&part| (u128::from(part) * u128::from(sent) / u128::from(rows)) as u64)
                    .collect()
            });
        let group = draft.group(said.group_name.as_deref().unwrap_or("group"), &ranks, dimension);
        let sequence = said.sequence.and_then(|number| u64::try_from(number).ok());
        let call = Call { group, kind, bytes, splits, sequence, nanoseconds, exact: true, came: None };
        let treatment = if why.is_empty() { Treatment::Mapped } else { Treatment::Guessed };
        Ok((Found { call: Message::Call(call), dimension }, treatment, why))
    }

    /// The other rank of a message: as it is said, or by its place in the group, which PyTorch has as `Rank`.
    fn other(&self, trace: &Trace, said: &Arguments, rank: Option<i64>) -> Result<u32, &'static str> {
        const NONE: &str = "its other rank is not recorded: its recorded time stays";
        let rank = match rank {
            Some(rank) => u32::try_from(rank).ok(),
            None => {
                let place = said.rank.and_then(|place| usize::try_from(place).ok()).ok_or(NONE)?;
                self.members(trace, said).and_then(|(ranks, _)| ranks.get(place).copied())
            }
        };
        rank.filter(|&rank| rank != self.rank && rank < self.world).ok_or(NONE)
    }

    /// The members of a kernel's group: as listed, from `distributedInfo`, by start and stride, or all.
    fn members(&self, trace: &Trace, said: &Arguments) -> Option<(Vec<u32>, &'static str)> {
        let size = said.group_size.or(said.group_ranks.as_ref().map(|ranks| ranks.len() as u64))?;
        if let Some(ranks) = &said.group_ranks
            && ranks.len() as u64 == size
        {
            return Some((ranks.clone(), ""));
        }
        let named = trace.groups.iter().find(|group| Some(&group.pg_name) == said.group_name.as_ref());
        if let Some(group) = named.filter(|group| group.ranks.len() as u64 == size) {
            return Some((group.ranks.clone(), ""));
        }
        if let (Some(start), Some(stride)) = (said.rank_start, said.rank_stride)
            && start >= 0
            && stride > 0
            && size <= u64::from(self.world)
        {
            let rank = |index: i64| {
                let rank = index.checked_mul(stride).and_then(|far| far.checked_add(start))?;
                u32::try_from(rank).ok()
            };
            if let Some(ranks) = (0..size as i64).map(rank).collect() {
                return Some((ranks, ""));
            }
        }
        (size == u64::from(self.world))
            .then(|| ((0..self.world).collect(), "its group is as large as the world: taken for it"))
    }

    fn by_annotation(
        &self,
        trace: &Trace,
        annotation: u32,
        nanoseconds: u64,
        draft: &mut Draft,
    ) -> Option<(Found, Treatment, &'static str)> {
        let said = &trace.annotations[annotation as usize];
        let name = &trace.names[said.name as usize];
        let plain = name.split_once(':').map_or(name.as_str(), |(_, call)| call).trim_start_matches('_');
        let (kind, no_root) = rooted(kind_of(plain)?, None);
        let logged = self.logged[annotation as usize];
        let bytes = match (logged, &said.dims) {
            (Some(logged), _) => logged.bytes,
            (None, Some(dims)) => dims.elements.checked_mul(dims.element_bytes)?,
            (None, None) if kind == CollectiveKind::Barrier => 0,
            (None, None) => return None,
        };
        let n = u64::from(self.world);
        let bytes = if kind == CollectiveKind::AllGather { bytes.saturating_mul(n) } else { bytes };
        let splits =
            logged.and_then(|logged| logged.splits.clone()).filter(|splits| splits.len() as u64 == n);
        let ranks: Vec<u32> = (0..self.world).collect();
        let group = draft.group("world", &ranks, Dimension::Other);
        // One library on one device numbers its groups in the kernel's arguments only; without them all ranks are taken.
        let several = trace.groups.iter().filter(|group| group.ranks.len() > 1).count() > 1;
        let why = if several { "its group is not recorded: taken for the world" } else { no_root };
        let treatment = if why.is_empty() { Treatment::Mapped } else { Treatment::Guessed };
        let call = Call { group, kind, bytes, splits, sequence: None, nanoseconds, exact: true, came: None };
        Some((Found { call: Message::Call(call), dimension: Dimension::Other }, treatment, why))
    }
}

/// Bytes that go in and come out, where the type of an element is known.
fn payload(said: &Arguments) -> Option<(u64, u64)> {
    let size = said.dtype.as_deref().and_then(element_bytes)?;
    let bytes = |elements: Option<u64>| elements.unwrap_or(0).saturating_mul(size);
    Some((bytes(said.sent), bytes(said.received)))
}

/// The collective with its root, and what is to be said where the root is not known.
pub(super) fn rooted(kind: CollectiveKind, root: Option<u32>) -> (CollectiveKind, &'static str) {
    let why = if root.is_some() { "" } else { "its root is not recorded: taken for the first member" };
    let root = root.unwrap_or(0);
    match kind {
        CollectiveKind::Broadcast { .. } => (CollectiveKind::Broadcast { root }, why),
        CollectiveKind::Reduce { .. } => (CollectiveKind::Reduce { root }, why),
        other => (other, ""),
    }
}

fn counted(found: &Found, treatment: Treatment, why: &'static str) -> Counted {
    let (kind, bytes) = match &found.call {
        Message::Call(call) => (format!("collective: {}", call.kind.name()), call.bytes),
        Message::Send(_, bytes) => ("send".to_owned(), *bytes),
        Message::Receive(_) => ("receive".to_owned(), 0),
    };
    Counted { kind, treatment, why, bytes }
}

/// The collective that a name stands for, in PyTorch's, NCCL's and MPI's words.
pub(crate) fn kind_of(name: &str) -> Option<CollectiveKind> {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let plain = plain.strip_suffix("coalesced").unwrap_or(&plain);
    Some(match plain {
        "allreduce" | "allreduceintotensor" => CollectiveKind::AllReduce,
        "allgather" | "allgatherbase" | "allgatherintotensor" | "allgatherv" => CollectiveKind::AllGather,
        "reducescatter" | "reducescatterbase" | "reducescattertensor" => CollectiveKind::ReduceScatter,
        "broadcast" | "broadcastoop" | "bcast" => CollectiveKind::Broadcast { root: 0 },
        "reduce" | "reduceoop" => CollectiveKind::Reduce { root: 0 },
        "alltoall" | "alltoallv" | "alltoallbase" | "alltoallsingle" => CollectiveKind::AllToAll,
        "barrier" | "allreducebarrier" => CollectiveKind::Barrier,
        _ => return None,
    })
}

/// The library whose kernel has this name, if it communicates.
fn library_of(name: &str) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 12] = [
        ("ncclKernel", "nccl"),
        ("ncclDevKernel", "nccl"),
        ("rcclGenericKernel", "nccl"),
        ("msccl", "msccl"),
        ("cross_device_reduce", "a framework's all-reduce"),
        ("allreduce_fusion", "a framework's all-reduce"),
        ("custom_all_reduce", "a framework's all-reduce"),
        ("lamport_allreduce", "a framework's all-reduce"),
        ("ep::internode::", "expert-parallel kernels"),
        ("ep::intranode::", "expert-parallel kernels"),
        ("deep_ep", "expert-parallel kernels"),
        ("nvshmem", "nvshmem"),
    ];
    KNOWN.iter().find(|(part, _)| name.contains(part)).map(|(_, library)| *library)
}
