//! Independent messages as a workload: patterns, connection matrices and tables.

use windtunnel_kernel::{Bytes, NicId, RandomStream, RankId, Span, StreamId, Tag};
use windtunnel_plan::error::InputError;
use windtunnel_plan::inputs::Inputs;
use windtunnel_workload::{Dimension, OpKind, Peer, ProgramBuilder, Workload};

use crate::schema::{FlowPattern, FlowsJob};
use crate::sheets;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Sending rank.
    pub source: u32,
    /// Receiving rank.
    pub destination: u32,
    /// Payload.
    pub bytes: u64,
    /// When it starts, from the job's start.
    pub start: Span,
    /// Its traffic class.
    pub class: Dimension,
}

/// The stream whose computations stand for start times; it does not delay sends, which are on stream 0.
const CLOCK: StreamId = StreamId(7);

/// The flows that `job` names over `ranks` ranks; `place` is its path in the scenario.
///
/// # Errors
/// [`InputError`] for a missing key, two sources, or a file that cannot be read.
pub fn flows(
    job: &FlowsJob,
    ranks: u32,
    seed: u64,
    base: &Inputs,
    place: &str,
) -> Result<Vec<Flow>, InputError> {
    match (job.pattern, &job.file) {
        (Some(pattern), None) => {
            let bytes = job.bytes.ok_or_else(|| {
                InputError::new(place, "a pattern needs `bytes`").hint("for example `bytes: 1 MiB`")
            })?;
            let high = job.bytes_to.map_or(bytes.0.get(), |to| to.0.get());
            if high < bytes.0.get() {
                return Err(InputError::new(
                    place,
                    format!("`bytes_to` ({high} B) is below `bytes` ({} B)", bytes.0.get()),
                ));
            }
            let mut sizes = RandomStream::new(seed, "flow-sizes", 0);
            let mut size = || bytes.0.get() + sizes.below(high - bytes.0.get() + 1);
            let pairs = pairs(pattern, ranks, seed).into_iter();
            let class = Dimension::Other;
            let flow =
                |(source, destination)| Flow { source, destination, bytes: size(), start: Span::ZERO, class };
            Ok(pairs.map(flow).collect())
        }
        (None, Some(file)) => {
            let path = base.join(file);
            let name = path.display().to_string();
            let text = sheets::read(&path, &format!("{place}.file"))?;
            let flows = if path.extension().is_some_and(|extension| extension == "csv") {
                from_csv(&text, &name)?
            } else {
                from_matrix(&text, &name)?
            };
            match flows.iter().map(|flow| flow.source.max(flow.destination)).max() {
                Some(highest) if highest >= ranks => Err(InputError::new(
                    format!("{place}.file"),
                    format!("`{name}` names rank {highest}, but the job has {ranks} ranks"),
                )),
                _ => Ok(flows),
            }
        }
        _ => Err(InputError::new(place, "expected exactly one of `pattern` and `file`")),
    }
}

/// (source, destination) of each message of a pattern, by source and then in the order of sending.
fn pairs(pattern: FlowPattern, ranks: u32, seed: u64) -> Vec<(u32, u32)> {
    match pattern {
        FlowPattern::Permutation => {
            let order = RandomStream::new(seed, "permutation", 0).permutation(ranks as usize);
            // A cycle through a random order: nobody sends to itself.
            let mut pairs: Vec<(u32, u32)> =
                order.iter().zip(order.iter().cycle().skip(1)).map(|(&a, &b)| (a, b)).collect();
            pairs.retain(|(a, b)| a != b);
            pairs.sort_unstable();
            pairs
        }
        FlowPattern::Incast => (1..ranks).map(|rank| (rank, 0)).collect(),
        FlowPattern::Outcast => (1..ranks).map(|rank| (0, rank)).collect(),
        FlowPattern::AllToAll => {
            (0..ranks).flat_map(|a| (1..ranks).map(move |shift| (a, (a + shift) % ranks))).collect()
        }
        FlowPattern::Ring if ranks < 2 => Vec::new(),
        FlowPattern::Ring => (0..ranks).map(|rank| (rank, (rank + 1) % ranks)).collect(),
    }
}

/// Reads htsim's connection matrix: `Nodes`, `Connections`, then `SRC->DST [id N] start PS size BYTES`.
fn from_matrix(text: &str, name: &str) -> Result<Vec<Flow>, InputError> {
    let mut flows = Vec::new();
    let (mut nodes, mut connections) = (None, None);
    for (number, line) in text.lines().enumerate().map(|(i, line)| (i + 1, line.trim())) {
        let bad = |message: String| InputError::new(format!("{name}:{number}"), message);
        let mut words = line.split_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let mut count = || {
            let word = words.next().unwrap_or_default();
            word.parse::<u64>().map_err(|_| bad(format!("expected a number after `{first}`, found `{word}`")))
        };
        match first {
            "Nodes" => nodes = Some(count()?),
            "Connections" => connections = Some(count()?),
            "Triggers" | "Failures" if count()? == 0 => {}
            "Triggers" | "trigger" => {
                return Err(bad(
                    "connections started by triggers cannot be replayed without their transport".to_owned(),
                )
                .hint("give each connection a `start` in picoseconds, or write the dependencies as GOAL"));
            }
            "Failures" | "failure" => {
                return Err(bad("failures do not belong to the traffic".to_owned())
                    .hint("remove the line; links fail in the topology"));
            }
            _ => flows.push(connection(first, words, nodes, &bad)?),
        }
    }
    match connections {
        Some(expected) if expected != flows.len() as u64 => Err(InputError::new(
            name,
            format!("`Connections` is {expected}, but {} connections follow", flows.len()),
        )),
        _ => Ok(flows),
    }
}

fn connection<'a>(
    pair: &str,
    mut words: impl Iterator<Item = &'a str>,
    nodes: Option<u64>,
    bad: &dyn Fn(String) -> InputError,
) -> Result<Flow, InputError> {
    let ends =
        pair.split_once("->").and_then(|(a, b)| Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?)));
    let (source, destination) = ends.ok_or_else(|| {
        bad(format!("expected a connection such as `0->5 start 0 size 65536`, found `{pair}`"))
    })?;
    if let Some(nodes) = nodes.filter(|&nodes| u64::from(source.max(destination)) >= nodes) {
        return Err(bad(format!("`{pair}` names a node beyond the {nodes} of `Nodes`")));
    }
    let (mut bytes, mut start) = (None, None);
    while let Some(key) = words.next() {
        let word = words.next().unwrap_or_default();
        let value = word
            .parse::<u64>()
            .map_err(|_| bad(format!("expected a number after `{key}`, found `{word}`")))?;
        match key {
            "size" => bytes = Some(value),
            "start" => start = Some(value),
            "id" | "prio" => {}
            "trigger" | "send_done_trigger" | "recv_done_trigger" => {
                return Err(bad(format!("`{key}` cannot be replayed without the transport")).hint(
                    "give each connection a `start` in picoseconds, or write the dependencies as GOAL",
                ));
            }
            _ => return Err(bad(format!("unknown key `{key}`, expected `id`, `start`, `size` or `prio`"))),
        }
    }
    let bytes = bytes.ok_or_else(|| bad(format!("`{pair}` has no `size`")))?;
    let start = start.ok_or_else(|| bad(format!("`{pair}` has no `start`")))?;
    Ok(Flow { source, destination, bytes, start: Span::from_ps(start), class: Dimension::Other })
}

/// Reads a table with the columns source, destination, bytes and, if wanted, start_ps and class, in any order.
fn from_csv(text: &str, name: &str) -> Result<Vec<Flow>, InputError> {
    let mut lines =
        text.lines().enumerate().map(|(i, line)| (i + 1, line.trim())).filter(|(_, line)| !line.is_empty());
    let (_, header) = lines.next().ok_or_else(|| InputError::new(name, "the file is empty"))?;
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let position = |column: &str| columns.iter().position(|name| *name == column);
    let need = |column: &str| {
        position(column).ok_or_else(|| {
            InputError::new(format!("{name}:1"), format!("column `{column}` is missing, found `{header}`"))
        })
    };
    let (source, destination, bytes, start) =
        (need("source")?, need("destination")?, need("bytes")?, position("start_ps"));
    let class = position("class");
    let mut flows = Vec::new();
    for (number, line) in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let number_at = |column: usize| {
            let cell = cells.get(column).copied().unwrap_or_default();
            cell.parse::<u64>().map_err(|_| {
                InputError::new(
                    format!("{name}:{number}"),
                    format!("expected a whole number for `{}`, found `{cell}`", columns[column]),
                )
            })
        };
        flows.push(Flow {
            source: number_at(source)? as u32,
            destination: number_at(destination)? as u32,
            bytes: number_at(bytes)?,
            start: start.map_or(Ok(Span::ZERO), |start| number_at(start).map(Span::from_ps))?,
            class: class.map_or(Ok(Dimension::Other), |column| {
                let cell = cells.get(column).copied().unwrap_or_default();
                let known = Dimension::ALL.into_iter().find(|class| class.name() == cell);
                let names = Dimension::ALL.map(Dimension::name);
                known.ok_or_else(|| {
                    InputError::new(
                        format!("{name}:{number}"),
                        format!("expected a class of `{}`, found `{cell}`", names.join("`, `")),
                    )
                })
            })?,
        });
    }
    Ok(flows)
}

/// The workload of `flows`: each rank sends its own in order and receives the others'.
///
/// # Panics
/// If a flow names a rank beyond `ranks`.
pub fn workload(flows: &[Flow], ranks: u32) -> Workload {
    let mut builders: Vec<ProgramBuilder> = (0..ranks).map(|_| ProgramBuilder::new()).collect();
    let mut order: Vec<u32> = (0..flows.len() as u32).collect();
    order.sort_by_key(|&index| (flows[index as usize].start, index));
    // The clock of each rank: its last computation and the time it ends.
    let mut clocks: Vec<(Option<u32>, Span)> = vec![(None, Span::ZERO); ranks as usize];
    for index in order {
        let flow = flows[index as usize];
        let builder = &mut builders[flow.source as usize];
        let (clock, at) = &mut clocks[flow.source as usize];
        if flow.start > *at {
            let wait = builder.calc(flow.start - *at, CLOCK, 0);
            if let Some(before) = *clock {
                builder.requires(wait, before);
            }
            (*clock, *at) = (Some(wait), flow.start);
        }
        let tag = Tag(u64::from(index));
        let peer = Peer::Rank(RankId(flow.destination));
        let kind =
            OpKind::Send { peer, bytes: Bytes::new(flow.bytes), tag, stream: StreamId(0), nic: NicId(0) };
        let send = builder.push(kind, flow.class, 0);
        if let Some(clock) = *clock {
            builder.requires(send, clock);
        }
        let peer = Some(Peer::Rank(RankId(flow.source)));
        let kind = OpKind::Receive { peer, tag: Some(tag), stream: StreamId(0) };
        builders[flow.destination as usize].push(kind, Dimension::Other, 0);
    }
    let programs =
        builders.into_iter().map(|builder| builder.finish().expect("a chain and its sends have no cycle"));
    Workload::from_programs(programs.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_their_pairs() {
        let permutation = pairs(FlowPattern::Permutation, 100, 1);
        let mut targets: Vec<u32> = permutation.iter().map(|&(_, to)| to).collect();
        targets.sort_unstable();
        assert_eq!(targets, (0..100).collect::<Vec<_>>());
        assert!(permutation.iter().all(|(a, b)| a != b));
        assert_eq!(pairs(FlowPattern::AllToAll, 3, 1), [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]);
        assert_eq!(pairs(FlowPattern::Incast, 3, 1), [(1, 0), (2, 0)]);
        assert!(pairs(FlowPattern::Ring, 1, 1).is_empty());
    }

    #[test]
    fn a_matrix_reads_and_its_faults_have_a_line() {
        let text =
            "Nodes 16\nConnections 2\n# two\n0->5 id 1 start 0 size 65536\n5->9 start 1000 size 4096\n";
        let flows = from_matrix(text, "a.cm").unwrap();
        assert_eq!(
            flows[1],
            Flow {
                source: 5,
                destination: 9,
                bytes: 4096,
                start: Span::from_ps(1000),
                class: Dimension::Other
            }
        );
        let error = |text: &str| from_matrix(text, "a.cm").unwrap_err().to_string();
        assert_eq!(
            error("Connections 2\n0->1 start 0 size 1\n"),
            "a.cm: `Connections` is 2, but 1 connections follow"
        );
        assert_eq!(error("0->1 start 0\n"), "a.cm:1: `0->1` has no `size`");
        assert!(
            error("Nodes 2\n0->7 start 0 size 1\n").starts_with("a.cm:2: `0->7` names a node beyond the 2")
        );
        assert!(error("0->1 trigger 1 size 5\n").contains("write the dependencies as GOAL"));
    }

    #[test]
    fn a_table_reads_in_any_column_order() {
        let flows = from_csv("bytes,source,destination\n10,0,1\n20,1,0\n", "a.csv").unwrap();
        assert_eq!(
            flows[1],
            Flow { source: 1, destination: 0, bytes: 20, start: Span::ZERO, class: Dimension::Other }
        );
        let error = from_csv("bytes,source,destination\n10,0,x\n", "a.csv").unwrap_err();
        assert_eq!(error.to_string(), "a.csv:2: expected a whole number for `destination`, found `x`");
    }

    #[test]
    fn later_flows_wait_for_their_start() {
        let flow = |start| Flow {
            source: 0,
            destination: 1,
            bytes: 1,
            start: Span::from_ps(start),
            class: Dimension::Other,
        };
        let workload = workload(&[flow(7), flow(0), flow(7)], 2);
        let program = &workload.programs[0];
        let calcs = program.ops.iter().filter(|op| matches!(op.kind, OpKind::Calc { .. })).count();
        assert_eq!((calcs, program.ops.len(), program.requires.len()), (1, 4, 2));
        assert_eq!(workload.programs[1].ops.len(), 3);
    }
}
