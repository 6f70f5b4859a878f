//! Writer of hand-written workloads, also for workloads that were made otherwise.
//!
//! An operation of a program is one line for all ranks that run the program with the same communicators. Ids are `o0`,
//! `o1`, …; what a person called the operation is its `label`.

use std::io::{self, Write};
use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value, json};
use windtunnel_kernel::registry::Listed;
use windtunnel_kernel::units::Dimension as Unit;
use windtunnel_kernel::{Bytes, RankId, Span, StreamId};

use super::{Fault, HandwrittenError};
use crate::collectives::{Algorithm, CollectiveKind, CollectiveSpec, Form};
use crate::output::write_beside;
use crate::program::Edges;
use crate::{Dimension, OpKind, Program, Workload};

/// Writes `workload` to `path`.
///
/// # Errors
/// What the operating system says; `path` is untouched then.
pub fn write(workload: &Workload, path: impl AsRef<Path>) -> Result<(), HandwrittenError> {
    let path = path.as_ref();
    write_beside(path, |output| encode(workload, output))
        .map_err(|error| Fault::new(0, 0, error.to_string()).at(path))
}

/// Writes `workload` to any output.
///
/// # Errors
/// Those of `output`.
pub fn encode(workload: &Workload, output: &mut dyn Write) -> io::Result<()> {
    let mut line = |value: Value| writeln!(output, "{value}");
    line(json!({"windtunnel_workload": 1, "ranks": workload.ranks()}))?;
    let names = communicator_names(workload);
    for (communicator, name) in workload.communicators.iter().zip(&names) {
        if name != "world" {
            line(json!({"communicator": name, "ranks": rank_list(&communicator.ranks)}))?;
        }
    }
    for ranks in groups_of_ranks(workload) {
        let program = workload.program(ranks[0]);
        let after =
            [&program.requires, &program.irequires].map(|edges| prerequisites(edges, program.ops.len()));
        for (index, op) in (0u32..).zip(&program.ops) {
            let mut fields = Map::new();
            if ranks.len() != workload.ranks() {
                fields.insert("ranks".to_owned(), rank_list(&ranks));
            } else if matches!(op.kind, OpKind::Collective { .. }) {
                fields.insert("ranks".to_owned(), json!("all"));
            }
            fields.insert("id".to_owned(), json!(format!("o{index}")));
            fields.insert("label".to_owned(), json!(program.labels[op.label as usize]));
            describe(workload, ranks[0], program, op.kind, &names, &mut fields);
            if op.dimension != Dimension::Other {
                fields.insert("dimension".to_owned(), json!(op.dimension.name()));
            }
            for (key, before) in ["after", "after_start"].into_iter().zip(&after) {
                let ids: Vec<String> = before[index as usize].iter().map(|op| format!("o{op}")).collect();
                if !ids.is_empty() {
                    fields.insert(key.to_owned(), json!(ids));
                }
            }
            line(Value::Object(fields))?;
        }
    }
    Ok(())
}

/// Prerequisites of each operation, from edges that are kept at the prerequisite.
fn prerequisites(edges: &Edges, operations: usize) -> Vec<Vec<u32>> {
    let mut before = vec![Vec::new(); operations];
    for source in 0..operations as u32 {
        for &target in edges.of(source) {
            before[target as usize].push(source);
        }
    }
    before
}

/// Ranks with the same program and the same communicators, each group ascending, groups by their first rank.
fn groups_of_ranks(workload: &Workload) -> Vec<Vec<RankId>> {
    let mut groups: Vec<Vec<RankId>> = Vec::new();
    let mut known: FxHashMap<(u32, Vec<u32>), usize> = FxHashMap::default();
    for rank in 0..workload.ranks() {
        let bound = workload.binding_offsets[rank] as usize..workload.binding_offsets[rank + 1] as usize;
        let communicators = workload.bindings[bound].iter().map(|binding| binding.communicator).collect();
        let group = *known.entry((workload.program_of[rank], communicators)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(RankId(rank as u32));
    }
    groups
}

/// One name per communicator, each different; `world` stands for all ranks in order and for nothing else.
fn communicator_names(workload: &Workload) -> Vec<String> {
    let mut taken: FxHashSet<String> = FxHashSet::default();
    let is_world = |ranks: &[RankId]| {
        ranks.len() == workload.ranks() && ranks.iter().zip(0..).all(|(rank, index)| rank.0 == index)
    };
    let mut names = Vec::with_capacity(workload.communicators.len());
    for (index, communicator) in workload.communicators.iter().enumerate() {
        let mut name = communicator.name.clone();
        let mismatch = name == "world" && !is_world(&communicator.ranks);
        if mismatch || name.is_empty() || taken.contains(&name) {
            name = format!("{name}#{index}");
        }
        taken.insert(name.clone());
        names.push(name);
    }
    names
}

/// A list of ranks in order, runs of three and more as `"first-last"`.
fn rank_list(ranks: &[RankId]) -> Value {
    let mut items = Vec::new();
    for run in ranks.chunk_by(|a, b| b.0.checked_sub(1) == Some(a.0)) {
        match run {
            [first, _, .., last] => items.push(json!(format!("{first}-{last}"))),
            _ => items.extend(run.iter().map(|rank| json!(rank.0))),
        }
    }
    Value::Array(items)
}

/// What an operation does, as `rank` sees it.
fn describe(
    workload: &Workload,
    rank: RankId,
    program: &Program,
    kind: OpKind,
    names: &[String],
    fields: &mut Map<String, Value>,
) {
    let peer = |peer| json!(workload.resolve(rank, peer).0);
    let stream = match kind {
        OpKind::Calc { duration, stream } => {
            fields.insert("compute".to_owned(), json!(time(duration)));
            stream
        }
        OpKind::Send { peer: to, bytes, tag, stream, nic } => {
            let mut send = json!({"to": peer(to), "bytes": size(bytes), "tag": tag.0});
            if nic.0 != 0 {
                send["nic"] = json!(nic.0);
            }
            fields.insert("send".to_owned(), send);
            stream
        }
        OpKind::Receive { peer: from, tag, stream } => {
            let from = from.map_or(json!("any"), peer);
            let tag = tag.map_or(json!("any"), |tag| json!(tag.0));
            fields.insert("receive".to_owned(), json!({"from": from, "tag": tag}));
            stream
        }
        OpKind::Collective { comm, spec, stream, .. } => {
            let communicator = workload.binding(rank, comm).communicator;
            let members = workload.communicators[communicator as usize].ranks.len();
            collective(&program.specs[spec as usize], &names[communicator as usize], members, fields);
            stream
        }
    };
    if stream != StreamId(0) {
        fields.insert("stream".to_owned(), json!(stream.0));
    }
}

fn collective(spec: &CollectiveSpec, communicator: &str, members: usize, fields: &mut Map<String, Value>) {
    let usual = CollectiveSpec::new(spec.kind, spec.bytes);
    fields.insert("collective".to_owned(), json!(spec.kind.entry().name));
    fields.insert("communicator".to_owned(), json!(communicator));
    fields.insert("bytes".to_owned(), json!(size(spec.bytes)));
    if let CollectiveKind::Broadcast { root } | CollectiveKind::Reduce { root } = spec.kind {
        fields.insert("root".to_owned(), json!(root));
    }
    if spec.algorithm != Algorithm::Auto {
        fields.insert("algorithm".to_owned(), json!(spec.algorithm.name()));
    }
    if spec.form != Form::Auto {
        fields.insert("form".to_owned(), json!(spec.form.name()));
    }
    if spec.outstanding != usual.outstanding {
        fields.insert("outstanding".to_owned(), json!(spec.outstanding));
    }
    if spec.domain != usual.domain {
        fields.insert("domain".to_owned(), json!(spec.domain));
    }
    if let Some(matrix) = &spec.matrix {
        let row = |row: &[u64]| row.iter().map(|&bytes| size(Bytes::new(bytes))).collect::<Vec<_>>();
        let rows: Vec<Vec<String>> = matrix.chunks(members.max(1)).map(row).collect();
        fields.insert("matrix".to_owned(), json!(rows));
    }
}

fn time(span: Span) -> String {
    Unit::Time.exact(span.ps(), &["s", "ms", "us", "ns", "ps"], " ")
}

fn size(bytes: Bytes) -> String {
    Unit::Size.exact(bytes.get(), &["GiB", "MiB", "KiB", "B"], " ")
}
