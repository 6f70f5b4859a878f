//! MLCommons Chakra execution traces: Protocol Buffers (schemas 0.0.4 and 1.0.0) and JSON, one file a rank.
//!
//! A file of Protocol Buffers is a row of messages with their lengths before them: metadata first, then nodes. Times are whole µs,
//! so shorter kernels have none. `comm_size` is what a member brings (as ASTRA-sim takes it): the whole vector, but of an all-gather
//! one member's part.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use windtunnel_kernel::registry::Entry;
use windtunnel_kernel::{Span, StreamId};
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::program::HOST_STREAM;

use crate::bytes::Bytes;
use crate::coverage::{Coverage, Treatment};
use crate::draft::{Call, Draft, RankDraft, Work, dimension_of};
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::json::Elements;
use crate::{Options, Reader};

/// Chakra.
pub struct Chakra;

/// A node of either form.
#[derive(Clone, Debug, Default, Deserialize)]
struct Node {
    #[serde(alias = "Id", default)]
    id: u64,
    #[serde(alias = "Name", default)]
    name: String,
    #[serde(rename = "type", alias = "NodeType", default)]
    kind: u64,
    #[serde(alias = "ctrlDeps", default)]
    ctrl_deps: Vec<u64>,
    #[serde(default)]
    data_deps: Vec<u64>,
    #[serde(alias = "runtime", alias = "duration_micros", default)]
    micros: u64,
    #[serde(default)]
    is_cpu_op: Option<bool>,
    #[serde(default)]
    comm_type: Option<u64>,
    #[serde(default)]
    comm_size: Option<u64>,
    #[serde(default)]
    pg_name: Option<String>,
    #[serde(default)]
    comm_src: Option<u64>,
    #[serde(default)]
    comm_dst: Option<u64>,
    #[serde(default)]
    comm_tag: Option<u64>,
    #[serde(default)]
    stream: Option<u64>,
    #[serde(default)]
    root: Option<u64>,
}

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
        json || (std::path::Path::new(plain).extension().is_some_and(|end| end.eq_ignore_ascii_case("et"))
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
        let world = traces.len() as u32;
        let groups = match beside[..] {
            [] => BTreeMap::new(),
            [file] => comm_groups(file, world)?,
            _ => {
                let found = format!("{} of them", beside.len());
                return Err(ImportError::new(&inputs[0].name, "one file `comm_groups.json`", found));
            }
        };
        let mut draft = Draft { source: inputs[0].name.clone(), world: Some(world), ..Draft::default() };
        coverage.note("Chakra's times are whole microseconds: shorter kernels have none");
        if traces.is_empty() {
            return Err(ImportError::new(&draft.source, "at least one trace", "communicators alone"));
        }
        for (rank, input) in (0..).zip(traces) {
            let json = input.head(64)?.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
            let nodes = if json { read_json(input)? } else { read_binary(input)? };
            if nodes.is_empty() {
                return Err(ImportError::new(&input.name, "at least one node", "none"));
            }
            let program = program(&nodes, world, &groups, &input.name, &mut draft, coverage)?;
            draft.ranks.insert(rank, program.of_file(&input.name));
        }
        Ok(draft)
    }
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

fn read_json(input: &Input) -> Result<Vec<Node>, ImportError> {
    let mut elements = Elements::new(input.open()?, &input.name, "workload_graph");
    let mut nodes = Vec::new();
    while let Some((byte, element)) = elements.element()? {
        let node = serde_json::from_slice(element).map_err(|error| {
            ImportError::new(&input.name, "a node", error.to_string()).at(Place::Byte(byte))
        })?;
        nodes.push(node);
    }
    if elements.found {
        return Ok(nodes);
    }
    let error = ImportError::new(
        &input.name,
        "`workload_graph` of a Chakra trace in JSON",
        "a JSON document without it",
    );
    Err(error.hint(
        "PyTorch's own execution traces have no times: give them to `kineto` beside the profiler's trace",
    ))
}

fn read_binary(input: &Input) -> Result<Vec<Node>, ImportError> {
    let all = input.whole()?;
    let mut bytes = Bytes::new(&input.name, &all);
    let mut nodes = Vec::new();
    let mut first = true;
    while !bytes.is_empty() {
        let length = bytes.varint()?;
        let at = bytes.place();
        let message = bytes.take(length)?;
        if std::mem::replace(&mut first, false) {
            known_version(&input.name, at, message)?;
            continue;
        }
        nodes.push(node(&input.name, at, message)?);
    }
    Ok(nodes)
}

/// The first message says the version, where it says anything: later ones may count fields anew.
fn known_version(file: &str, at: u64, message: &[u8]) -> Result<(), ImportError> {
    let mut fields = Bytes::new(file, message);
    while let Ok(Some(field)) = fields.field() {
        let version = if field.number == 1 { field.value.text() } else { continue };
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major > 1) {
            let found = format!("version `{}`", version.chars().take(40).collect::<String>());
            return Err(ImportError::new(file, "a Chakra trace of version 0.0.4 or 1.0.0", found)
                .at(Place::Byte(at))
                .hint("a newer Chakra wrote it: convert it with its tools, or write it as 1.0.0"));
        }
    }
    Ok(())
}

fn node(file: &str, at: u64, message: &[u8]) -> Result<Node, ImportError> {
    let mut node = Node::default();
    let mut fields = Bytes::new(file, message);
    let placed = |error: ImportError| match error.place {
        Place::Byte(byte) => error.at(Place::Byte(at + byte)),
        _ => error,
    };
    while let Some(field) = fields.field().map_err(placed)? {
        match field.number {
            1 => node.id = field.value.number(),
            2 => node.name = field.value.text(),
            3 => node.kind = field.value.number(),
            4 => field.value.numbers(file, &mut node.ctrl_deps).map_err(placed)?,
            5 => field.value.numbers(file, &mut node.data_deps).map_err(placed)?,
            7 => node.micros = field.value.number(),
            10 => attribute(file, field.value.bytes(), &mut node).map_err(placed)?,
            _ => {}
        }
    }
    Ok(node)
}

/// An attribute: a name and one of many kinds of value.
fn attribute(file: &str, message: &[u8], node: &mut Node) -> Result<(), ImportError> {
    let mut fields = Bytes::new(file, message);
    let (mut name, mut number, mut text) = (String::new(), None, None);
    while let Some(field) = fields.field()? {
        match field.number {
            1 => name = field.value.text(),
            // int32, int64, uint32, uint64, fixed ones, bool.
            7 | 9 | 11 | 13 | 19 | 21 | 23 | 25 | 27 => number = Some(field.value.number()),
            // sint32, sint64: zigzag.
            15 | 17 => number = Some((field.value.number() >> 1) ^ (field.value.number() & 1).wrapping_neg()),
            29 => text = Some(field.value.text()),
            _ => {}
        }
    }
    match name.as_str() {
        "is_cpu_op" => node.is_cpu_op = number.map(|number| number != 0),
        "comm_type" => node.comm_type = number,
        // Signed in new writers, unsigned in old ones: a negative one is no size.
        "comm_size" => node.comm_size = number.filter(|&number| i64::try_from(number).is_ok()),
        "pg_name" => node.pg_name = text.or(number.map(|number| number.to_string())),
        "comm_src" => node.comm_src = number,
        "comm_dst" => node.comm_dst = number,
        "comm_tag" => node.comm_tag = number,
        "stream" => node.stream = number,
        "root_rank" | "root" => node.root = number,
        "runtime" => node.micros = node.micros.max(number.unwrap_or(0)),
        _ => {}
    }
    Ok(())
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
        let group_name = node.pg_name.clone().unwrap_or_else(|| "world".to_owned());
        let dimension = dimension_of(&group_name);
        let bytes = node.comm_size;
        let work = match (node.kind, bytes) {
            (7, Some(bytes)) if !host && world > 1 && kind_of(node).is_some() => {
                let kind = kind_of(node).unwrap_or(CollectiveKind::Barrier);
                let members = groups.get(&group_name).unwrap_or(&ranks);
                let bytes = if kind == CollectiveKind::AllGather {
                    bytes.saturating_mul(members.len() as u64)
                } else {
                    bytes
                };
                coverage.count(
                    &format!("collective: {}", kind.name()),
                    Treatment::Mapped,
                    "",
                    bytes,
                    nanoseconds,
                );
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
                let why = if world > 1 {
                    "it says no size: its recorded time stays"
                } else {
                    "of one rank alone: its recorded time stays"
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
