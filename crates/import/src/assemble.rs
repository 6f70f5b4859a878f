//! From recorded ranks to a workload: ranks that are missing, calls of all members side by side, programs.

mod shape;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use windtunnel_kernel::{Bytes, NicId, RankId, Span, Tag};
use windtunnel_workload::collectives::{CollectiveKind, CollectiveSpec};
use windtunnel_workload::program::{Binding, Communicator};
use windtunnel_workload::{CommSlot, OpKind, Peer, ProgramBuilder, Workload};

use crate::coverage::{Coverage, Treatment};
use crate::draft::{Call, Draft, RankDraft, Work};
use crate::error::ImportError;
use shape::Shape;

windtunnel_kernel::named! {
    /// What to do about ranks that took part and were not recorded.
    #[derive(Default)]
    pub enum Missing: "treatment of missing ranks" {
        #[default]
        Refuse = "refuse", "refuse the recording and name them";
        Same = "same", "each does what a recorded rank did (counted as guessed)";
        Alone = "alone", "collectives with them take the time that was recorded";
    }
}

const HINT_STEPS: &str =
    "recordings that begin at different iterations do not fit together: record the same steps on all ranks";

/// Most ranks that a recording may say there are: the number is believed before the ranks are there.
pub(crate) const MOST_RANKS: u32 = 1 << 18;

/// Refuses a number of ranks that no job has.
pub(crate) fn believable(world: u32, source: &str) -> Result<u32, ImportError> {
    if world > MOST_RANKS {
        return Err(ImportError::new(source, format!("at most {MOST_RANKS} ranks"), world.to_string()));
    }
    Ok(world)
}

impl Draft {
    /// Makes the workload.
    ///
    /// # Errors
    /// [`ImportError`]: a rank of a communicator that is missing, or collectives that differ between members.
    pub fn finish(mut self, missing: Missing, coverage: &mut Coverage) -> Result<Workload, ImportError> {
        let highest = self.ranks.keys().next_back().map_or(0, |&rank| rank.saturating_add(1));
        let named =
            self.groups.iter().flat_map(|group| &group.ranks).max().map_or(0, |rank| rank.saturating_add(1));
        let world = self.world.unwrap_or(0).max(highest).max(named);
        if world == 0 || self.ranks.values().all(|rank| rank.nodes.is_empty()) {
            return Err(ImportError::new(&self.source, "operations to replay", "none"));
        }
        believable(world, &self.source)?;
        let templates = self.missing(world, missing, coverage)?;
        self.leave_alone(missing, coverage);
        let specs = self.align(&templates, coverage)?;
        self.programs(world, &templates, &specs)
    }

    /// Which recorded rank a missing one copies: `None` where there is nobody to copy.
    fn missing(
        &mut self,
        world: u32,
        missing: Missing,
        coverage: &mut Coverage,
    ) -> Result<BTreeMap<u32, u32>, ImportError> {
        let called: Vec<bool> = self.called();
        let needed = |group: usize| called[group] && self.groups[group].ranks.len() > 1;
        let short = (0..self.groups.len()).find(|&group| {
            needed(group) && self.groups[group].ranks.iter().any(|rank| !self.ranks.contains_key(rank))
        });
        let Some(short) = short else { return Ok(BTreeMap::new()) };
        match missing {
            Missing::Refuse => {
                let group = &self.groups[short];
                let lacking: Vec<u32> =
                    group.ranks.iter().copied().filter(|rank| !self.ranks.contains_key(rank)).collect();
                let recorded: Vec<u32> = self.ranks.keys().copied().collect();
                let expected = format!(
                    "recordings of all {} members of communicator `{}`",
                    group.ranks.len(),
                    group.name
                );
                let found = format!("{} (missing: {})", ranks_text(&recorded), ranks_text(&lacking));
                Err(ImportError::new(&self.source, expected, found).hint(
                    "`windtunnel import --missing same` lets each missing rank do what a recorded one did, `--missing alone` \
                     gives collectives with them their recorded time",
                ))
            }
            Missing::Alone => Ok(BTreeMap::new()),
            Missing::Same => {
                let recorded: Vec<u32> = self.ranks.keys().copied().collect();
                let mut templates = BTreeMap::new();
                for rank in (0..world).filter(|rank| !self.ranks.contains_key(rank)) {
                    let template = recorded[rank as usize % recorded.len()];
                    coverage.count(
                        "rank",
                        Treatment::Guessed,
                        &format!("not recorded: does what rank {template} did"),
                        0,
                        0,
                    );
                    templates.insert(rank, template);
                }
                Ok(templates)
            }
        }
    }

    /// Which groups have calls.
    fn called(&self) -> Vec<bool> {
        let mut called = vec![false; self.groups.len()];
        for call in self.ranks.values().flat_map(|rank| &rank.calls) {
            called[call.group as usize] = true;
        }
        called
    }

    /// Turns calls that nobody answers into computations of their recorded time.
    fn leave_alone(&mut self, missing: Missing, coverage: &mut Coverage) {
        let recorded: Vec<u32> = self.ranks.keys().copied().collect();
        let alone: Vec<bool> = self
            .groups
            .iter()
            .map(|group| {
                group.ranks.len() < 2
                    || (missing == Missing::Alone
                        && group.ranks.iter().any(|rank| recorded.binary_search(rank).is_err()))
            })
            .collect();
        let single: Vec<bool> = self.groups.iter().map(|group| group.ranks.len() < 2).collect();
        for rank in self.ranks.values_mut() {
            for index in 0..rank.nodes.len() {
                let (other, treatment, why, length) = match rank.nodes[index].work {
                    Work::Call(call) if alone[rank.calls[call as usize].group as usize] => {
                        let call = &rank.calls[call as usize];
                        let why = if single[call.group as usize] {
                            "its group has one member: its recorded time stays"
                        } else {
                            "members are missing: its recorded time stays"
                        };
                        (told_as(call), Treatment::Approximated, why, call.nanoseconds)
                    }
                    Work::Send(to, bytes, _) if recorded.binary_search(&to).is_err() => {
                        let other = ("send".to_owned(), bytes, 0);
                        (other, Treatment::Dropped, "its receiver was not recorded", 0)
                    }
                    Work::Receive(Some(from), _) if recorded.binary_search(&from).is_err() => {
                        let other = ("receive".to_owned(), 0, 0);
                        (other, Treatment::Dropped, "its sender was not recorded", 0)
                    }
                    _ => continue,
                };
                let (kind, bytes, nanoseconds) = &other;
                rank.change(index as u32, (kind, *bytes, *nanoseconds), treatment, why, coverage);
                rank.nodes[index].work = Work::Calc(Span::from_ns(length));
            }
        }
    }

    /// Calls of a rank in their order, by group: (group, indices).
    fn by_group(rank: &RankDraft) -> FxHashMap<u32, Vec<u32>> {
        let mut by_group: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for node in &rank.nodes {
            if let Work::Call(call) = node.work {
                by_group.entry(rank.calls[call as usize].group).or_default().push(call);
            }
        }
        by_group
    }

    /// Lays the members' calls side by side and says what each is: of each rank, one specification a call.
    fn align(
        &mut self,
        templates: &BTreeMap<u32, u32>,
        coverage: &mut Coverage,
    ) -> Result<BTreeMap<u32, Vec<Option<CollectiveSpec>>>, ImportError> {
        let mut specs: BTreeMap<u32, Vec<Option<CollectiveSpec>>> =
            self.ranks.iter().map(|(&rank, draft)| (rank, vec![None; draft.calls.len()])).collect();
        let lists: BTreeMap<u32, FxHashMap<u32, Vec<u32>>> =
            self.ranks.iter().map(|(&rank, draft)| (rank, Self::by_group(draft))).collect();
        for (index, group) in (0u32..).zip(&self.groups) {
            let members: Vec<u32> =
                group.ranks.iter().copied().filter(|rank| self.ranks.contains_key(rank)).collect();
            let mut calls: Vec<(u32, Vec<u32>)> = members
                .iter()
                .map(|&rank| (rank, lists[&rank].get(&index).cloned().unwrap_or_default()))
                .collect();
            if calls.iter().all(|(_, list)| list.is_empty()) {
                continue;
            }
            self.match_ends(&mut calls, coverage);
            let most = calls.iter().map(|(_, list)| list.len()).max().unwrap_or(0);
            for at in 0..most {
                let said: Vec<(u32, u32)> =
                    calls.iter().filter_map(|(rank, list)| Some((*rank, *list.get(at)?))).collect();
                let of = |&(rank, call): &(u32, u32)| &self.ranks[&rank].calls[call as usize];
                let kinds: Vec<(u32, CollectiveKind)> =
                    said.iter().map(|call| (call.0, of(call).kind)).collect();
                let kind = kinds[0].1;
                if let Some(((odd, own), (rank, usual))) = odd_one(&kinds) {
                    let expected =
                        format!("the same collectives on all members of communicator `{}`", group.name);
                    let found = format!(
                        "its call {} is {} here, on rank {odd}, and {} on rank {rank} ({})",
                        at + 1,
                        told(own),
                        told(usual),
                        self.file_of(rank)
                    );
                    return Err(ImportError::new(self.file_of(odd), expected, found).hint(HINT_STEPS));
                }
                if let Some(root) = root_of(kind).filter(|&root| root as usize >= group.ranks.len()) {
                    let expected =
                        format!("a root among the {} members of `{}`", group.ranks.len(), group.name);
                    let found = format!("{root} in call {} of rank {}, {}", at + 1, kinds[0].0, kind.name());
                    return Err(ImportError::new(self.file_of(kinds[0].0), expected, found));
                }
                if said.len() < members.len() {
                    // Recordings end at different calls: what not all have stays as it was recorded.
                    continue;
                }
                let parts: Vec<&Call> = said.iter().map(of).collect();
                // Vectors that are added up have one length. Parts of gathers, scatters and exchanges may differ, and of broadcasts
                // and reductions some formats count at the root what others do not.
                let sizes: Vec<(u32, u64)> = said.iter().map(|call| (call.0, of(call).bytes)).collect();
                let summed = kind == CollectiveKind::AllReduce
                    && said.iter().all(|call| of(call).exact && of(call).bytes > 0);
                if let (true, Some(((odd, own), (rank, usual)))) = (summed, odd_one(&sizes)) {
                    let expected =
                        format!("calls of one size on all members of communicator `{}`", group.name);
                    let found = format!(
                        "its call {} is {} of {own} B here, on rank {odd}, and of {usual} B on rank {rank} ({})",
                        at + 1,
                        told(kind),
                        self.file_of(rank)
                    );
                    return Err(ImportError::new(self.file_of(odd), expected, found).hint(HINT_STEPS));
                }
                let came: Option<Vec<(u32, i64)>> =
                    said.iter().zip(&parts).map(|(&(rank, _), call)| Some((rank, call.came?))).collect();
                if let (Some(came), true) = (came, parts.len() > 1) {
                    coverage.arrive(&group.name, &came);
                }
                let spec = specification(kind, group.ranks.len(), &parts, templates.is_empty(), coverage);
                for &(rank, call) in &said {
                    specs.get_mut(&rank).expect("recorded")[call as usize] = Some(spec.clone());
                }
            }
        }
        for (rank, draft) in &mut self.ranks {
            for index in 0..draft.nodes.len() {
                let Work::Call(call) = draft.nodes[index].work else { continue };
                if specs[rank][call as usize].is_some() {
                    continue;
                }
                let call = &draft.calls[call as usize];
                let why = "other members' recordings do not have it: its recorded time stays";
                let (kind, bytes, nanoseconds) = told_as(call);
                let length = call.nanoseconds;
                let other = (&*kind, bytes, nanoseconds);
                draft.change(index as u32, other, Treatment::Approximated, why, coverage);
                draft.nodes[index].work = Work::Calc(Span::from_ns(length));
            }
        }
        Ok(specs)
    }

    /// Where all members number their calls, keeps the numbers that all have.
    fn match_ends(&self, calls: &mut [(u32, Vec<u32>)], coverage: &mut Coverage) {
        let number = |rank: u32, call: u32| self.ranks[&rank].calls[call as usize].sequence;
        if calls.iter().any(|(rank, list)| list.iter().any(|&call| number(*rank, call).is_none())) {
            let lengths: Vec<usize> = calls.iter().map(|(_, list)| list.len()).collect();
            if lengths.iter().any(|&length| length != lengths[0]) {
                coverage.note("members of a group have different numbers of calls, which the recording does not number: they are matched from the first");
            }
            return;
        }
        let mut common: Option<Vec<u64>> = None;
        for (rank, list) in calls.iter() {
            let mut numbers: Vec<u64> = list.iter().filter_map(|&call| number(*rank, call)).collect();
            numbers.sort_unstable();
            common = Some(match common {
                None => numbers,
                Some(known) => {
                    known.into_iter().filter(|number| numbers.binary_search(number).is_ok()).collect()
                }
            });
        }
        let common = common.unwrap_or_default();
        for (rank, list) in calls.iter_mut() {
            list.retain(|&call| {
                number(*rank, call).is_some_and(|number| common.binary_search(&number).is_ok())
            });
        }
    }

    /// Builds one program for each recorded rank; ranks that copy one share it.
    fn programs(
        &mut self,
        world: u32,
        templates: &BTreeMap<u32, u32>,
        specs: &BTreeMap<u32, Vec<Option<CollectiveSpec>>>,
    ) -> Result<Workload, ImportError> {
        let mut workload = Workload::default();
        let mut built: BTreeMap<u32, (u32, Vec<u32>)> = BTreeMap::new();
        // A rank's draft is let go as its program is there: memory holds few of them twice.
        for (rank, draft) in std::mem::take(&mut self.ranks) {
            let (program, slots) = self.program(rank, &draft, &specs[&rank])?;
            workload.programs.push(program);
            built.insert(rank, (workload.programs.len() as u32 - 1, slots));
        }
        let shapes: Vec<Shape> = self.groups.iter().map(|group| Shape::of(&group.ranks)).collect();
        // Communicators by group and the first of its members.
        let mut known: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut idle = None;
        for rank in 0..world {
            let template = templates.get(&rank).copied().unwrap_or(rank);
            let Some((program, slots)) = built.get(&template) else {
                let program = *idle.get_or_insert_with(|| {
                    workload.programs.push(ProgramBuilder::new().finish().expect("no operation, no cycle"));
                    workload.programs.len() as u32 - 1
                });
                workload.add_rank(program, &[]);
                continue;
            };
            let mut bindings = Vec::with_capacity(slots.len());
            for &slot in slots {
                let (group, shape) = (&self.groups[slot as usize], &shapes[slot as usize]);
                let first = match shape.place(rank) {
                    Some(_) => group.ranks[0],
                    None => shape.image(rank, world).ok_or_else(|| self.no_image(group, template))?,
                };
                let moved = first.wrapping_sub(group.ranks[0]);
                let own = shape.place(rank.wrapping_sub(moved));
                let own = own.ok_or_else(|| self.no_image(group, template))?;
                let communicator = *known.entry((slot, first)).or_insert_with(|| {
                    let members =
                        group.ranks.iter().map(|&member| RankId(member.wrapping_add(moved))).collect();
                    workload.communicators.push(Communicator { name: group.name.clone(), ranks: members });
                    workload.communicators.len() as u32 - 1
                });
                bindings.push(Binding { communicator, index: own });
            }
            workload.add_rank(*program, &bindings);
        }
        Ok(workload)
    }

    fn no_image(&self, group: &crate::draft::Group, template: u32) -> ImportError {
        let expected =
            format!("a group of regular stride, to know the groups of ranks that copy rank {template}");
        let found = format!("communicator `{}` with {}", group.name, ranks_text(&group.ranks));
        ImportError::new(&self.source, expected, found).hint("use `--missing alone`")
    }

    fn program(
        &self,
        rank: u32,
        draft: &RankDraft,
        specs: &[Option<CollectiveSpec>],
    ) -> Result<(windtunnel_workload::Program, Vec<u32>), ImportError> {
        let mut builder = ProgramBuilder::new();
        let mut slots: Vec<u32> = Vec::new();
        let labels: Vec<u32> = draft.labels.iter().map(|label| builder.label(label)).collect();
        for node in &draft.nodes {
            let (stream, label) = (node.stream, labels[node.label as usize]);
            match node.work {
                Work::Calc(duration) => {
                    builder.push(OpKind::Calc { duration, stream }, node.dimension, label);
                }
                Work::Send(to, bytes, tag) => {
                    let peer = Peer::Rank(RankId(to));
                    let kind =
                        OpKind::Send { peer, bytes: Bytes::new(bytes), tag: Tag(tag), stream, nic: NicId(0) };
                    builder.push(kind, node.dimension, label);
                }
                Work::Receive(from, tag) => {
                    let peer = from.map(|from| Peer::Rank(RankId(from)));
                    builder.push(OpKind::Receive { peer, tag: tag.map(Tag), stream }, node.dimension, label);
                }
                Work::Call(call) => {
                    let group = draft.calls[call as usize].group;
                    let slot = slots.iter().position(|&known| known == group).unwrap_or_else(|| {
                        slots.push(group);
                        slots.len() - 1
                    });
                    let spec = specs[call as usize].clone().expect("calls without one are computations");
                    builder.collective(CommSlot(slot as u16), spec, node.dimension, stream, label);
                }
            }
        }
        for &(op, before) in &draft.requires {
            builder.requires(op, before);
        }
        for &(op, before) in &draft.irequires {
            builder.irequires(op, before);
        }
        let program = builder.finish().map_err(|error| {
            ImportError::new(
                if draft.file.is_empty() { &self.source } else { &draft.file },
                format!("operations of rank {rank} without a cycle"),
                error.to_string(),
            )
        })?;
        Ok((program, slots))
    }
}

/// How readers count a call that do not keep it.
fn told_as(call: &Call) -> (String, u64, u64) {
    (format!("collective: {}", call.kind.name()), call.bytes, call.nanoseconds)
}

/// A collective by its name, with its root if it has one.
fn told(kind: CollectiveKind) -> String {
    root_of(kind).map_or_else(|| kind.name().to_owned(), |root| format!("{} of root {root}", kind.name()))
}

/// The root of a collective that has one, a place among its members.
fn root_of(kind: CollectiveKind) -> Option<u32> {
    match kind {
        CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root } => Some(root),
        _ => None,
    }
}

/// Where members name different collectives or sizes: the first of those fewest members name, and the first of those most do. Of two that disagree
/// the later one stands for the odd one.
fn odd_one<T: Copy + PartialEq>(kinds: &[(u32, T)]) -> Option<((u32, T), (u32, T))> {
    let many = |kind: T| kinds.iter().filter(|(_, own)| *own == kind).count();
    let (first, others) = kinds.split_first()?;
    others.iter().find(|(_, kind)| *kind != first.1)?;
    let mut usual = *first;
    for call in others {
        if many(call.1) > many(usual.1) {
            usual = *call;
        }
    }
    let odd = kinds.iter().filter(|(_, kind)| *kind != usual.1).min_by_key(|(_, kind)| many(*kind))?;
    Some((*odd, usual))
}

/// What all members' parts come to.
fn specification(
    kind: CollectiveKind,
    n: usize,
    parts: &[&Call],
    whole: bool,
    coverage: &mut Coverage,
) -> CollectiveSpec {
    let bytes = parts.iter().map(|call| call.bytes).max().unwrap_or(0);
    if kind == CollectiveKind::AllToAll {
        let rows: Option<Vec<&Vec<u64>>> =
            parts.iter().map(|call| call.splits.as_ref().filter(|row| row.len() == n)).collect();
        if let (Some(rows), true) = (rows, whole && parts.len() == n) {
            let matrix: Vec<u64> = rows.into_iter().flatten().copied().collect();
            let total = matrix.iter().fold(0u64, |sum, part| sum.saturating_add(*part));
            let mut spec = CollectiveSpec::new(CollectiveKind::AllToAllV, Bytes::new(total));
            spec.matrix = Some(matrix.into());
            return spec;
        }
        let mean =
            parts.iter().fold(0u64, |sum, call| sum.saturating_add(call.bytes)) / parts.len().max(1) as u64;
        if parts.iter().any(|call| call.bytes != mean || call.splits.is_some()) {
            coverage.note(
                "all-to-alls whose members' parts are not all known are taken as even ones of the mean size",
            );
        }
        return CollectiveSpec::new(kind, Bytes::new(mean));
    }
    if parts.iter().any(|call| call.bytes != bytes) {
        coverage.note("members of a collective that state different sizes get the largest");
    }
    CollectiveSpec::new(kind, Bytes::new(bytes))
}

/// `ranks 0 to 3, 7`.
pub(crate) fn ranks_text(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let texts: Vec<String> = runs
        .map(|run| match run {
            [only] => only.to_string(),
            [first, .., last] => format!("{first} to {last}"),
            [] => String::new(),
        })
        .collect();
    let shown = texts.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    let more = if texts.len() > 8 { ", …" } else { "" };
    format!("{} {shown}{more}", if ranks.len() == 1 { "rank" } else { "ranks" })
}
