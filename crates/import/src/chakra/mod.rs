//! MLCommons Chakra execution traces: Protocol Buffers (schemas 0.0.4 and 1.0.0) and JSON, one file a rank.
//!
//! A file of Protocol Buffers is a row of messages with their lengths before them: metadata first, then nodes. Times are whole µs,
//! so shorter kernels have none. `comm_size` is what a member brings (as ASTRA-sim takes it): the whole vector, but of an all-gather
//! one member's part.
//!
//! Ranks are the numbers in the files' names (`step.3.et`). Members of a group are those that `comm_groups.json` lists, or else the ranks
//! that name it.

mod node;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use windtunnel_kernel::registry::Entry;
use windtunnel_kernel::{Span, StreamId};
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::program::HOST_STREAM;

use crate::coverage::{Coverage, Treatment};
use crate::draft::{Call, Draft, RankDraft, Work, dimension_of};
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::{Options, Reader};
use node::Node;

/// Chakra.
pub struct Chakra;

impl Reader for Chakra {
    fn entry(&self) -> &'static Entry {
        const {
            &Entry::new(
                "chakra",
                "MLCommons Chakra execution traces (0.0.4 and 1.0.0, Protocol Buffers or JSON)",
            )
        }
    }

    fn detects(&self, head: &[u8], name: &str) -> bool {
        let json = memchr::memmem::find(head, b"\"workload_graph\"").is_some();
        let plain = name.strip_suffix(".gz").unwrap_or(name);
        json || node::is_jsonized(head)
            || (std::path::Path::new(plain).extension().is_some_and(|end| end.eq_ignore_ascii_case("et"))
                && !head.starts_with(b"{"))
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let (beside, traces): (Vec<&Input>, Vec<&Input>) =
            inputs.iter().partition(|input| input.leaf().ends_with("comm_groups.json"));
        let numbers = numbers(&traces);
        let world = numbers.iter().max().map_or(0, |highest| highest.saturating_add(1));
        let world = crate::assemble::believable(world, &inputs[0].name)?;
        let mut draft = Draft { source: inputs[0].name.clone(), world: Some(world), ..Draft::default() };
        coverage.note("Chakra's times are whole microseconds: shorter kernels have none");
        if traces.is_empty() {
            return Err(ImportError::new(&draft.source, "at least one trace", "communicators alone")
                .hint("give the files `STEM.0.et`, `STEM.1.et` and so on beside it"));
        }
        let groups = match beside[..] {
            [] => named_groups(&traces, &numbers)?,
            [file] => comm_groups(file, world)?,
            _ => {
                let found = format!("{} of them", beside.len());
                return Err(ImportError::new(&inputs[0].name, "one file `comm_groups.json`", found)
                    .hint("where the files are of several programs, `--only TEXT` takes those of one"));
            }
        };
        for (rank, input) in numbers.into_iter().zip(traces) {
            let nodes = node::read(input)?;
            let program = program(&nodes, world, &groups, &input.name, &mut draft, coverage)?;
            draft.ranks.insert(rank, program.of_file(&input.name));
        }
        Ok(draft)
    }
}

/// The rank of each trace: the numbers at the ends of their names where all have one and are alike before it, else their order. A
/// file alone is rank 0.
fn numbers(traces: &[&Input]) -> Vec<u32> {
    let order = || (0..traces.len() as u32).collect();
    if traces.len() < 2 {
        return order();
    }
    let mut stem: Option<&str> = None;
    let mut numbers = Vec::with_capacity(traces.len());
    for input in traces {
        let leaf = input.leaf();
        let plain = leaf.strip_suffix(".gz").unwrap_or(leaf);
        let name = plain.rsplit_once('.').map_or(plain, |(name, _)| name);
        let text = name.trim_end_matches(|last: char| last.is_ascii_digit());
        let Ok(number) = name[text.len()..].parse() else { return order() };
        if *stem.get_or_insert(text) != text || numbers.contains(&number) {
            return order();
        }
        numbers.push(number);
    }
    numbers
}

/// Members of groups as the ranks that name them in a collective.
fn named_groups(traces: &[&Input], numbers: &[u32]) -> Result<BTreeMap<String, Vec<u32>>, ImportError> {
    let mut groups: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    // A trace alone is a world of one, whatever it names.
    for (input, &rank) in traces.iter().zip(numbers).filter(|_| traces.len() > 1) {
        for node in node::read(input)? {
            if let (7, Some(name)) = (node.kind, node.pg_name.filter(|name| !name.is_empty())) {
                groups.entry(name).or_default().insert(rank);
            }
        }
    }
    Ok(groups.into_iter().map(|(name, ranks)| (name, ranks.into_iter().collect())).collect())
}

/// Members of communicators by `pg_name`, from the file beside the traces.
fn comm_groups(input: &Input, world: u32) -> Result<BTreeMap<String, Vec<u32>>, ImportError> {
    let groups: BTreeMap<String, Vec<u32>> = serde_json::from_slice(&input.whole()?)
        .map_err(|error| ImportError::new(&input.name, "a list of ranks by name", error.to_string()))?;
    for (name, ranks) in &groups {
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < ranks.len() || sorted.last().is_none_or(|&last| last >= world) {
            let expected = format!("ranks below {world} in group `{name}`, each once");
            return Err(ImportError::new(&input.name, expected, crate::assemble::ranks_text(ranks)));
        }
    }
    Ok(groups)
}

fn kind_of(node: &Node) -> Option<CollectiveKind> {
    let root = u32::try_from(node.root.unwrap_or(0)).unwrap_or(u32::MAX);
    Some(match node.comm_type? {
        0 => CollectiveKind::AllReduce,
        1 => CollectiveKind::Reduce { root },
        2 => CollectiveKind::AllGather,
        5 => CollectiveKind::Broadcast { root },
        6 => CollectiveKind::AllToAll,
        7 | 8 => CollectiveKind::ReduceScatter,
        9 => CollectiveKind::Barrier,
        _ => return None,
    })
}

/// The operations of a rank: a node each, on the host's stream or one of the device's.
fn program(
    nodes: &[Node],
    world: u32,
    groups: &BTreeMap<String, Vec<u32>>,
    file: &str,
    draft: &mut Draft,
    coverage: &mut Coverage,
) -> Result<RankDraft, ImportError> {
    let mut rank = RankDraft::new();
    let mut index: FxHashMap<u64, u32> = FxHashMap::default();
    for (place, node) in (0u32..).zip(nodes) {
        if index.insert(node.id, place).is_some() {
            let error = ImportError::new(file, "one node an id", format!("id {} again", node.id));
            return Err(error.at(Place::Record(u64::from(place) + 1)));
        }
    }
    let mut streams: Vec<u64> = Vec::new();
    let ranks: Vec<u32> = (0..world).collect();
    for node in nodes {
        let host = node.is_cpu_op.unwrap_or(false);
        let stream = if host {
            HOST_STREAM
        } else {
            let own = node.stream.unwrap_or(0);
            let place = streams.iter().position(|known| *known == own).unwrap_or_else(|| {
                streams.push(own);
                streams.len() - 1
            });
            // Around the host's.
            StreamId(place.min(200) as u8 + u8::from(place >= usize::from(HOST_STREAM.0)))
        };
        let label = rank.label(&crate::kineto::short(&node.name));
        let nanoseconds = node.micros.saturating_mul(1_000);
        let stays = Work::Calc(Span::from_ns(nanoseconds));
        let group_name =
            node.pg_name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| "world".to_owned());
        let members = groups.get(&group_name).unwrap_or(&ranks);
        let dimension = dimension_of(&group_name);
        let bytes = node.comm_size;
        let work = match (node.kind, bytes) {
            (7, Some(bytes)) if !host && members.len() > 1 && kind_of(node).is_some() => {
                let kind = kind_of(node).unwrap_or(CollectiveKind::Barrier);
                let bytes = if kind == CollectiveKind::AllGather {
                    bytes.saturating_mul(members.len() as u64)
                } else {
                    bytes
                };
                let (treatment, why) = if !groups.contains_key(&group_name)
                    && node.involved_dim.contains(&false)
                {
                    let why = "over some dimensions (`involved_dim`) of a network that is not in the trace: over all ranks";
                    (Treatment::Approximated, why)
                } else {
                    (Treatment::Mapped, "")
                };
                coverage.count(&format!("collective: {}", kind.name()), treatment, why, bytes, nanoseconds);
                let group = draft.group(&group_name, members, dimension);
                rank.calls.push(Call {
                    group,
                    kind,
                    bytes,
                    splits: None,
                    sequence: None,
                    nanoseconds,
                    exact: true,
                    came: None,
                });
                Work::Call(rank.calls.len() as u32 - 1)
            }
            (5 | 6, Some(bytes)) => {
                let (what, peer) =
                    if node.kind == 5 { ("send", node.comm_dst) } else { ("receive", node.comm_src) };
                let tag = node.comm_tag.unwrap_or(0) & 0x7fff_ffff;
                match peer.and_then(|peer| u32::try_from(peer).ok()).filter(|&peer| peer < world) {
                    Some(peer) => {
                        coverage.count(what, Treatment::Mapped, "", bytes, nanoseconds);
                        if node.kind == 5 {
                            Work::Send(peer, bytes, tag)
                        } else {
                            Work::Receive(Some(peer), Some(tag))
                        }
                    }
                    None => {
                        coverage.count(
                            what,
                            Treatment::Dropped,
                            "its other rank is not recorded",
                            bytes,
                            nanoseconds,
                        );
                        stays
                    }
                }
            }
            (7, _) if !host => {
                let why = match (members.len(), bytes, node.comm_type) {
                    (..2, ..) => "of one rank alone: its recorded time stays",
                    (_, None, _) => "it says no size: its recorded time stays",
                    (_, _, Some(3 | 4)) => "a gather or a scatter: its recorded time stays",
                    _ => "of a kind that is not known: its recorded time stays",
                };
                coverage.count("collective", Treatment::Approximated, why, bytes.unwrap_or(0), nanoseconds);
                stays
            }
            (1, _) => {
                coverage.count("metadata node", Treatment::Mapped, "no operation of its own", 0, 0);
                Work::Calc(Span::ZERO)
            }
            _ => {
                coverage.count(
                    if host { "host node" } else { "device node" },
                    Treatment::Mapped,
                    "",
                    0,
                    nanoseconds,
                );
                stays
            }
        };
        rank.push(work, stream, label, dimension, &[]);
    }
    let mut gone = 0u64;
    for (place, node) in (0u32..).zip(nodes) {
        let mut before: Vec<u64> = node.ctrl_deps.iter().chain(&node.data_deps).copied().collect();
        before.sort_unstable();
        before.dedup();
        for id in before {
            match index.get(&id) {
                Some(&other) if other != place => rank.requires.push((place, other)),
                _ => gone += 1,
            }
        }
    }
    let amount = crate::coverage::Amount { operations: gone, ..Default::default() };
    coverage.add(
        "dependency",
        Treatment::Approximated,
        "on a node that is not in the file: taken as done",
        amount,
    );
    let amount = crate::coverage::Amount { operations: without_cycles(&mut rank), ..Default::default() };
    let why = "in a cycle, on a node that comes later in the file: left out";
    coverage.add("dependency", Treatment::Approximated, why, amount);
    Ok(rank)
}

/// Leaves out dependencies that close cycles: of nodes that no order can release, those on nodes behind them in the file. Returns how
/// many. (Converters of PyTorch's traces have written such files.)
fn without_cycles(rank: &mut RankDraft) -> u64 {
    let nodes = rank.nodes.len();
    let mut waits = vec![0u32; nodes];
    let mut after: Vec<Vec<u32>> = vec![Vec::new(); nodes];
    for &(op, before) in &rank.requires {
        waits[op as usize] += 1;
        after[before as usize].push(op);
    }
    let mut ready: Vec<u32> = (0..nodes as u32).filter(|&op| waits[op as usize] == 0).collect();
    while let Some(op) = ready.pop() {
        for &next in &after[op as usize] {
            waits[next as usize] -= 1;
            if waits[next as usize] == 0 {
                ready.push(next);
            }
        }
    }
    let had = rank.requires.len();
    rank.requires
        .retain(|&(op, before)| before < op || waits[op as usize] == 0 || waits[before as usize] == 0);
    (had - rank.requires.len()) as u64
}
