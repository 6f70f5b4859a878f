//! Which kernels communicate, and what they say of it: their own arguments, the execution trace, or the annotation around
//! their launch, in this order; what is left is known by name only and stays a computation.

use rustc_hash::FxHashMap;
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::CollectiveKind;

use super::calls::{Arguments, element_bytes};
use super::events::{DeviceOp, Trace};
use crate::coverage::{Coverage, Treatment};
use crate::draft::{Call, Draft, dimension_of};
use crate::execution_trace::Logged;

/// What a kernel turned out to be.
pub(crate) struct Found {
    pub call: Message,
    pub dimension: Dimension,
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
    by_thread: FxHashMap<u32, Vec<u32>>,
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

    /// The communication of device operation `index`, launched by a thread at a time; `None` for a computation.
    pub(crate) fn call(
        &mut self,
        trace: &Trace,
        index: u32,
        launch: Option<(u32, i64)>,
        draft: &mut Draft,
        coverage: &mut Coverage,
    ) -> Option<Found> {
        let op = &trace.device[index as usize];
        if !is_communication(trace, op) {
            return None;
        }
        let nanoseconds = (op.end - op.start) as u64;
        let name = &trace.names[op.name as usize];
        let library = library_of(name).unwrap_or("collective");
        let mut stays = |why: &str| {
            coverage.count(
                &format!("communication of {library}"),
                Treatment::Approximated,
                why,
                0,
                nanoseconds,
            );
            None
        };
        if let Some(arguments) = op.arguments {
            return match self.by_arguments(trace, &trace.arguments[arguments as usize], nanoseconds, draft) {
                Ok((mut found, treatment, why)) => {
                    found.came_at(op.start);
                    count(coverage, &found, treatment, why, nanoseconds);
                    Some(found)
                }
                Err(why) => stays(why),
            };
        }
        if library != "nccl" {
            return stays("known by its name alone, which says no size: its recorded time stays");
        }
        let Some(annotation) = launch.and_then(|(thread, at)| self.around(trace, thread, at)) else {
            return stays("no argument and no annotation says its size: its recorded time stays");
        };
        if std::mem::replace(&mut self.used[annotation as usize], true) {
            return stays("a further kernel of one call: its recorded time stays");
        }
        let Some((mut found, why)) = self.by_annotation(trace, annotation, nanoseconds, draft) else {
            return stays(
                "its annotation has no shape: its recorded time stays; record with `record_shapes=True`",
            );
        };
        found.came_at(op.start);
        let treatment = if why.is_empty() { Treatment::Mapped } else { Treatment::Guessed };
        count(coverage, &found, treatment, why, nanoseconds);
        Some(found)
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
        let size = said
            .dtype
            .as_deref()
            .and_then(element_bytes)
            .ok_or("an unknown element type: its recorded time stays")?;
        let sent = said.sent.unwrap_or(0).saturating_mul(size);
        let received = said.received.unwrap_or(0).saturating_mul(size);
        let plain = name.trim_start_matches('_').to_ascii_lowercase();
        let text = said.group_text.as_deref().unwrap_or("");
        let dimension = dimension_of(text);
        let other =
            |rank: i64| u32::try_from(rank).map_err(|_| "its other rank is none: its recorded time stays");
        if let (true, Some(to)) = (plain == "send", said.destination) {
            return Ok((
                Found { call: Message::Send(other(to)?, sent.max(received)), dimension },
                Treatment::Mapped,
                "",
            ));
        }
        if let (true, Some(from)) = (plain == "recv", said.source) {
            return Ok((Found { call: Message::Receive(other(from)?), dimension }, Treatment::Mapped, ""));
        }
        let (ranks, why) = self
            .members(trace, said)
            .ok_or("its group's members are not recorded: its recorded time stays")?;
        if !ranks.contains(&self.rank) {
            return Err("the recording's rank is not in its group: its recorded time stays");
        }
        let n = ranks.len() as u64;
        let kind = kind_of(&plain).ok_or("a collective that is not modelled: its recorded time stays")?;
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
    ) -> Option<(Found, &'static str)> {
        let said = &trace.annotations[annotation as usize];
        let name = &trace.names[said.name as usize];
        let plain = name.split_once(':').map_or(name.as_str(), |(_, call)| call).trim_start_matches('_');
        let kind = kind_of(plain)?;
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
        let why = if several { "its group is not recorded: taken for the world" } else { "" };
        let call = Call { group, kind, bytes, splits, sequence: None, nanoseconds, exact: true, came: None };
        Some((Found { call: Message::Call(call), dimension: Dimension::Other }, why))
    }
}

fn count(coverage: &mut Coverage, found: &Found, treatment: Treatment, why: &str, nanoseconds: u64) {
    let (kind, bytes) = match &found.call {
        Message::Call(call) => (call.kind.name(), call.bytes),
        Message::Send(_, bytes) => ("send", *bytes),
        Message::Receive(_) => ("receive", 0),
    };
    coverage.count(&format!("collective: {kind}"), treatment, why, bytes, nanoseconds);
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
        "barrier" => CollectiveKind::Barrier,
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
