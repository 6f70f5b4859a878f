//! NCCL Inspector (NCCL 2.28 and newer, RCCL): JSON lines, one file a process, a record a collective.
//!
//! Output v4.0 has `header`, `metadata` and `coll_perf` or `p2p_perf` in each line; from v4.1 on the first two may come once a dump,
//! and stand for what follows. It has no computation: between two records of a rank lies the time from the end of one to the start
//! of the next where event times were recorded, and nothing where not. The size of a reduce-scatter is one rank's part.

mod communicators;

use std::collections::BTreeMap;

use serde_json::Value;
use windtunnel_kernel::StreamId;
use windtunnel_kernel::registry::Entry;
use windtunnel_workload::Dimension;
use windtunnel_workload::collectives::CollectiveKind;
use windtunnel_workload::program::HOST_STREAM;

use crate::coverage::{Coverage, Treatment};
use crate::draft::{Call, Draft, RankDraft, Work};
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::kineto::kind_of;
use crate::{Options, Reader};

/// NCCL Inspector.
pub struct Inspector;

/// Newest output whose records are known: v4.3.
const NEWEST: u32 = 3;

/// A record.
#[derive(Debug)]
struct Record {
    /// Index of its file.
    file: usize,
    /// Host and process that wrote it.
    process: Option<(String, u64)>,
    communicator: String,
    rank: u32,
    ranks: u32,
    what: String,
    number: u64,
    bytes: u64,
    length: u64,
    /// Start and end in ns, where they were recorded.
    span: Option<(i64, i64)>,
    peer: Option<u32>,
    dumped: i64,
}

impl Reader for Inspector {
    fn entry(&self) -> &'static Entry {
        const { &Entry::new("inspector", "NCCL Inspector's JSON lines, of every rank") }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        memchr::memmem::find(head, b"inspector_output_format_version").is_some()
            || memchr::memmem::find(head, b"\"coll_perf\"").is_some()
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let mut records = Vec::new();
        for (file, input) in inputs.iter().enumerate() {
            read_file(file, input, &mut records, coverage)?;
        }
        coverage.note("the Inspector leaves out messages below 8,192 bytes unless `NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES` says otherwise");
        coverage.note("the Inspector keeps the last 1,024 collectives between dumps (`NCCL_INSPECTOR_DUMP_COLL_RING_SIZE`): earlier ones are not here");
        coverage.note("the Inspector records no computation: gaps between collectives are kept where it has event times");
        let mut draft = Draft { source: inputs[0].name.clone(), ..Draft::default() };
        if records.is_empty() {
            return Err(ImportError::new(&draft.source, "records of collectives", "none").hint(
                "the Inspector leaves out messages below `NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES` (8,192 if not set), and writes only while \
                 the job runs: set it to 0, and copy the files after a dump",
            ));
        }
        let jobs = communicators::Job::of(&records, &draft.source, coverage)?;
        draft.world = Some(jobs.world);
        let mut by_rank: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
        for record in &records {
            match jobs.rank(record) {
                Some(rank) => by_rank.entry(rank).or_default().push(record),
                None => coverage.count(
                    &format!("collective: {}", record.what),
                    Treatment::Dropped,
                    communicators::WHY,
                    record.bytes,
                    record.length,
                ),
            }
        }
        for (rank, mut list) in by_rank {
            list.sort_by_key(|record| (record.span.map_or(record.dumped, |span| span.0), record.number));
            let program = program(&list, &jobs, &mut draft, coverage);
            draft.ranks.insert(rank, program.of_file(&inputs[list[0].file].name));
        }
        Ok(draft)
    }
}

/// What of a rank is under way: by communicator its last operation, and all whose ends nothing waits for yet.
#[derive(Default)]
struct Under {
    last: BTreeMap<usize, (u32, i64)>,
    tails: Vec<(i64, u32)>,
}

impl Under {
    /// What an operation of a communicator that began at `start` waits for, and when the last of that ended.
    fn before(&mut self, communicator: usize, start: Option<i64>) -> (Vec<u32>, Option<i64>) {
        let own = self.last.get(&communicator).copied();
        let Some(start) = start else { return (own.map(|own| own.0).into_iter().collect(), None) };
        // Of other communicators only what had ended: collectives of several may be under way beside each other.
        let mut before: Vec<(i64, u32)> = self.tails.iter().copied().filter(|tail| tail.0 <= start).collect();
        self.tails.retain(|tail| tail.0 > start);
        if let Some((node, end)) = own.filter(|own| before.iter().all(|tail| tail.1 != own.0)) {
            before.push((end, node));
        }
        let ended = before.iter().map(|tail| tail.0).filter(|&end| end > i64::MIN).max();
        (before.into_iter().map(|tail| tail.1).collect(), ended)
    }

    fn push(&mut self, communicator: usize, node: u32, end: Option<i64>) {
        self.last.insert(communicator, (node, end.unwrap_or(i64::MIN)));
        self.tails.extend(end.map(|end| (end, node)));
    }
}

/// One rank's records in order.
fn program(
    list: &[&Record],
    job: &communicators::Job,
    draft: &mut Draft,
    coverage: &mut Coverage,
) -> RankDraft {
    let mut rank = RankDraft::new();
    let mut under = Under::default();
    for record in list {
        let Some((communicator, members)) = job.members(record) else { continue };
        let label = rank.label(&record.what);
        let compute = rank.label("compute");
        let (mut before, ended) = under.before(communicator, record.span.map(|span| span.0));
        if let (Some(clock), Some((start, _))) = (ended, record.span)
            && start > clock
        {
            let gap = start.saturating_sub(clock).unsigned_abs();
            coverage.count(
                "gap between collectives",
                Treatment::Approximated,
                "taken for computation",
                0,
                gap,
            );
            before = vec![rank.calc(gap, StreamId(0), compute, &before)];
        }
        let n = members.len() as u64;
        let peer = record.peer.and_then(|peer| members.get(peer as usize)).copied();
        let work = match (kind_of(&record.what), record.what.as_str(), peer) {
            (Some(kind), _, _) => {
                let bytes = match kind {
                    CollectiveKind::AllGather | CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => {
                        record.bytes.saturating_mul(n)
                    }
                    _ => record.bytes,
                };
                let (treatment, why) = match kind {
                    CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. } => {
                        (Treatment::Guessed, "its root is not recorded: 0")
                    }
                    _ => (Treatment::Mapped, ""),
                };
                coverage.count(&format!("collective: {}", kind.name()), treatment, why, bytes, record.length);
                let group = draft.group(&record.communicator, members, Dimension::Other);
                rank.calls.push(Call {
                    group,
                    kind,
                    bytes,
                    splits: None,
                    sequence: Some(record.number),
                    nanoseconds: record.length,
                    exact: true,
                    came: None,
                });
                Work::Call(rank.calls.len() as u32 - 1)
            }
            (None, "Send", Some(peer)) => {
                coverage.count("send", Treatment::Mapped, "", record.bytes, record.length);
                Work::Send(peer, record.bytes, communicator as u64)
            }
            (None, "Recv", Some(peer)) => {
                coverage.count("receive", Treatment::Mapped, "", record.bytes, record.length);
                Work::Receive(Some(peer), Some(communicator as u64))
            }
            (None, other, _) => {
                coverage.count(other, Treatment::Dropped, "not modelled", record.bytes, record.length);
                continue;
            }
        };
        // Around the host's.
        let place = (1 + communicator).min(200) as u8;
        let stream = StreamId(place + u8::from(place >= HOST_STREAM.0));
        let node = rank.push(work, stream, label, Dimension::Other, &before);
        under.push(communicator, node, record.span.map(|span| span.1));
    }
    rank
}

/// Whether an output is of a version whose records are known (`Some(true)`), or of a later one with the same first number.
fn known_version(version: &str) -> Option<bool> {
    let (first, second) = version.strip_prefix('v')?.split_once('.')?;
    (first == "4").then_some(second.parse::<u32>().ok()? <= NEWEST)
}

fn read_file(
    file: usize,
    input: &Input,
    records: &mut Vec<Record>,
    coverage: &mut Coverage,
) -> Result<(), ImportError> {
    let bytes = input.whole()?;
    let (mut header, mut metadata) = (Value::Null, Value::Null);
    for (line, text) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let fault = |expected: &str, found: String| {
            ImportError::new(&input.name, expected, found).at(Place::Line(line))
        };
        let value: Value = serde_json::from_slice(text).map_err(|error| {
            fault("a record of the Inspector in JSON", error.to_string())
                .hint("a last line that was being written may be cut: remove it")
        })?;
        if let Some(version) = value["metadata"]["inspector_output_format_version"].as_str() {
            match known_version(version) {
                Some(true) => {}
                Some(false) => coverage.note(format!(
                    "output format {version} is newer than v4.{NEWEST}: what it has beyond that is not read"
                )),
                None => {
                    let expected = format!("output format v4.0 to v4.{NEWEST}");
                    return Err(fault(&expected, format!("`{version}`")).hint(
                        "the format is that of the plugin (`NCCL_PROFILER_PLUGIN`), not of the NCCL that loads it: record with an \
                         Inspector that writes v4 (of NCCL 2.28 and after)",
                    ));
                }
            }
        }
        for (kept, key) in [(&mut header, "header"), (&mut metadata, "metadata")] {
            if !value[key].is_null() {
                *kept = value[key].clone();
            }
        }
        let (perf, prefix) = if value["coll_perf"].is_null() {
            (&value["p2p_perf"], "p2p")
        } else {
            (&value["coll_perf"], "coll")
        };
        if perf.is_null() {
            coverage.count(
                "line without a collective",
                Treatment::Mapped,
                "header, statistics or trace of proxies",
                0,
                0,
            );
            continue;
        }
        let number = |key: &str| perf[format!("{prefix}_{key}")].as_f64();
        let need = |key: &str| {
            number(key)
                .filter(|value| *value >= 0.0)
                .ok_or_else(|| fault(&format!("`{prefix}_{key}`"), "nothing".to_owned()))
        };
        let whole = |value: &Value, key: &str| {
            value[key]
                .as_u64()
                .and_then(|value| u32::try_from(value).ok())
                .ok_or_else(|| fault(&format!("`{key}` in the header"), value[key].to_string()))
        };
        let length = need("exec_time_us")? * 1e3;
        let dumped = metadata["dump_timestamp_us"].as_i64().unwrap_or(0).saturating_mul(1_000);
        let event = &perf["event_trace_ts"];
        let kernels: Vec<&Value> =
            event["kernel_events"].as_array().map(|list| list.iter().collect()).unwrap_or_default();
        let first = kernels.iter().filter_map(|kernel| kernel["kernel_start_ts"].as_i64()).min();
        let last = kernels.iter().filter_map(|kernel| kernel["kernel_stop_ts"].as_i64()).max();
        let span =
            first.zip(last).map(|(first, last)| (first.saturating_mul(1_000), last.saturating_mul(1_000)));
        if header.is_null() {
            return Err(fault(
                "a `header` (communicator and rank) in this line or one before",
                "none".to_owned(),
            )
            .hint("from output v4.1 on the header comes once a dump: give the file from its begin on"));
        }
        records.push(Record {
            file,
            process: metadata["hostname"].as_str().map(str::to_owned).zip(metadata["pid"].as_u64()),
            communicator: header["id"].as_str().map_or_else(|| header["id"].to_string(), str::to_owned),
            rank: whole(&header, "rank")?,
            ranks: whole(&header, "n_ranks")?,
            what: perf[prefix].as_str().unwrap_or("").to_owned(),
            number: need("sn")? as u64,
            bytes: need("msg_size_bytes")? as u64,
            length: length as u64,
            span,
            peer: number("peer").map(|peer| peer as u32),
            dumped,
        });
    }
    Ok(())
}
