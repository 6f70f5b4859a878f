//! From one rank's events to its operations.
//!
//! The host is one chain of points: the start of each call that launches something, the start and the end of each call that
//! waits, whatever its thread, in order of time. Between two points lies a computation on the host's stream as long as the
//! recording had it. (A thread that takes over from another, as PyTorch's backward pass does, follows the last point of that
//! one.) An operation of the device waits for the one before on its stream, for the point that launched it, and for what
//! events make it wait for; what is left until its recorded start, launch latency above all, comes before it on its stream.
//! A wait of the host ends when what it waited for has ended, and then takes what it took beyond that. So a replay in which
//! communication takes as long as recorded gives the recorded times, and one in which it does not moves all that depends on it.

use rustc_hash::{FxHashMap, FxHashSet};
use windtunnel_kernel::StreamId;
use windtunnel_workload::program::HOST_STREAM;

use super::communication::{Caller, Counted, Found, is_communication};
use super::events::INSIDE;
use super::trace::{HostCall, HostKind, SyncRecord, Trace};
use crate::coverage::{Amount, Coverage, Treatment};
use crate::draft::{Draft, RankDraft, Work};

/// Clocks of host and device agree to this.
const SLACK: i64 = 2_000;
/// A gap before an operation longer than this wants an explanation.
const GAP: i64 = 20_000;

/// No node.
const NONE: u32 = u32::MAX;

/// What happens on the host at an instant.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// Begin of a call that launches: index of the call.
    Launch(u32),
    /// Begin of a wait.
    Wait,
    /// End of a wait: index of the call.
    Waited(u32),
    /// End of a copy that the host waits for: index of the call.
    Copied(u32),
    /// A step's begin: its index.
    Begin(u32),
    /// Its end.
    End(u32),
    /// An operation of the device starts: its index. (Devices come last at an instant.)
    Device(u32),
}

/// The last operations of a stream, by launch.
#[derive(Debug, Default)]
struct Line {
    /// (launch, node, recorded end), launches ascending up to races between threads.
    ops: Vec<(i64, u32, i64)>,
}

impl Line {
    /// The last operation launched by `at`.
    fn before(&self, at: i64) -> Option<(u32, i64)> {
        self.ops.iter().rev().find(|(launch, _, _)| *launch <= at).map(|&(_, node, end)| (node, end))
    }
}

/// Builds the program of a rank whose times count from `origin`.
pub(crate) fn build(
    trace: &Trace,
    origin: i64,
    caller: &mut Caller<'_>,
    draft: &mut Draft,
    coverage: &mut Coverage,
) -> RankDraft {
    let mut rank = RankDraft::new();
    let streams = stream_numbers(trace, coverage);
    let launches = Launches::new(trace);
    let points = points(trace, &launches);
    count_launches(trace, &launches, &points, coverage);
    rank.nodes.reserve_exact(points.len() + trace.arguments.len());
    rank.requires.reserve_exact(points.len() + points.len() / 2);
    let waits = Waits::new(trace);
    let mut counts = vec![0usize; trace.streams.len()];
    trace.device.iter().for_each(|op| counts[op.stream as usize] += 1);
    let mut lines: Vec<Line> =
        counts.into_iter().map(|count| Line { ops: Vec::with_capacity(count) }).collect();
    // Of each operation of the device the node (`NONE`: not seen), the thread and the instant that launched it.
    let mut launched: Vec<(u32, u32, i64)> = vec![(NONE, 0, 0); trace.device.len()];
    let mut last_of_thread: FxHashMap<u32, i64> = FxHashMap::default();
    let mut host: Option<(u32, i64)> = None;
    let mut node_of: Vec<Option<u32>> = vec![None; trace.device.len()];
    let (launch_label, wait_label) = (rank.label("host"), rank.label("wait of the host"));
    let begin_label = rank.label("before the recording");
    for (at, point) in points {
        let from = host.map_or(origin, |(_, time)| time);
        let before: Vec<u32> = host.iter().map(|&(node, _)| node).collect();
        let label = if host.is_none() { begin_label } else { launch_label };
        match point {
            Point::Launch(call) => {
                let HostCall { correlation, thread, .. } = trace.host[call as usize];
                let node = rank.calc(at.saturating_sub(from).max(0) as u64, HOST_STREAM, label, &before);
                host = Some((node, at));
                for &(_, op) in launches.of(correlation) {
                    launched[op as usize] = (node, thread, at);
                }
            }
            Point::Wait => {
                let node = rank.calc(at.saturating_sub(from).max(0) as u64, HOST_STREAM, label, &before);
                host = Some((node, at));
            }
            Point::Begin(step) | Point::End(step) => {
                let end = matches!(point, Point::End(_));
                let (name, _, _) = &trace.steps[step as usize];
                let label = rank.label(&format!("{name} {}", if end { "end" } else { "begin" }));
                let node = rank.calc(at.saturating_sub(from).max(0) as u64, HOST_STREAM, label, &before);
                host = Some((node, at));
            }
            Point::Waited(call) => {
                let call = &trace.host[call as usize];
                let (ends, reason) = waits.waited(call.kind, call.start, call.end, call.correlation, &lines);
                let latest = ends.iter().map(|&(_, end)| end).max().unwrap_or(i64::MIN).max(from);
                let mut after = before;
                after.extend(ends.iter().map(|&(node, _)| node));
                let node =
                    rank.calc(at.saturating_sub(latest).max(0) as u64, HOST_STREAM, wait_label, &after);
                host = Some((node, at));
                let (treatment, why) = match reason {
                    Reason::Known => (Treatment::Mapped, ""),
                    Reason::ByTime => (
                        Treatment::Guessed,
                        "the trace does not say which stream it waits for: taken by time",
                    ),
                };
                coverage.count("wait of the host", treatment, why, 0, (call.end - call.start) as u64);
            }
            Point::Copied(call) => {
                let copies = launches.of(trace.host[call as usize].correlation);
                let nodes = copies.iter().filter_map(|&(_, op)| node_of[op as usize]);
                let mut after = before;
                after.extend(nodes);
                let end = copies
                    .iter()
                    .map(|&(_, op)| trace.device[op as usize].end)
                    .max()
                    .unwrap_or(from)
                    .max(from);
                let node = rank.calc(at.saturating_sub(end).max(0) as u64, HOST_STREAM, wait_label, &after);
                host = Some((node, at));
            }
            Point::Device(index) => {
                let op = &trace.device[index as usize];
                let (by, thread, at) = launched[index as usize];
                let launch = (by != NONE).then_some((by, at, thread));
                let launch_time = launch.map_or(op.start, |(_, time, _)| time);
                let line = op.stream as usize;
                let before = lines[line].ops.last().map(|&(_, node, end)| (node, end));
                let start = before.map_or(op.start, |(_, end)| end.max(op.start));
                let length = (op.end - start).max(0);
                let overlap = start - op.start > SLACK;
                let mut after: Vec<(u32, i64)> = before.into_iter().collect();
                after.extend(launch.map(|(node, time, _)| (node, time)));
                let since = launch.and_then(|(_, _, thread)| last_of_thread.insert(thread, launch_time));
                let thread = launch.map(|(_, _, thread)| thread);
                let mut guessed =
                    waits.before(op.stream, launch_time, since, thread, op.start, &lines, &mut after);
                let ready = |after: &[(u32, i64)]| after.iter().map(|&(_, end)| end).max().unwrap_or(origin);
                if start - ready(&after) > GAP
                    && let Some(found) = explanation(line, start, launch_time, &lines)
                {
                    after.push(found);
                    guessed = true;
                }
                let gap = (start - ready(&after)).max(0);
                let nodes: Vec<u32> = after.iter().map(|&(node, _)| node).collect();
                let stream = streams[line];
                let name = &trace.names[op.name as usize];
                let label = rank.label(&short(name));
                let (found, counted) =
                    caller.call(trace, index, thread.map(|thread| (thread, launch_time)), draft);
                let node = if let Some(Found { call, dimension }) = found {
                    let early = if gap > 0 {
                        let delay = rank.label("launch");
                        vec![rank.calc(gap as u64, stream, delay, &nodes)]
                    } else {
                        nodes
                    };
                    match call {
                        super::communication::Message::Call(call) => {
                            rank.call(call, stream, label, dimension, &early)
                        }
                        super::communication::Message::Send(to, bytes) => {
                            rank.push(Work::Send(to, bytes, 0), stream, label, dimension, &early)
                        }
                        super::communication::Message::Receive(from) => {
                            rank.push(Work::Receive(Some(from), Some(0)), stream, label, dimension, &early)
                        }
                    }
                } else {
                    rank.calc((gap + length) as u64, stream, label, &nodes)
                };
                let (treatment, why) = match () {
                    () if overlap => {
                        (Treatment::Approximated, "overlaps the one before on its stream: put behind it")
                    }
                    () if guessed => {
                        (Treatment::Guessed, "waits for another stream: which one is taken by time")
                    }
                    () if launch.is_none() => {
                        (Treatment::Approximated, "its launch is not in the trace: follows its stream")
                    }
                    () if gap > 100_000 => (
                        Treatment::Approximated,
                        "nothing recorded says why it starts so late: the gap stays",
                    ),
                    () => (Treatment::Mapped, ""),
                };
                let own = counted.unwrap_or_else(|| Counted {
                    kind: if op.copy { "copy or set of memory" } else { "kernel" }.to_owned(),
                    treatment: Treatment::Mapped,
                    why: "",
                    bytes: op.bytes,
                });
                // What it is and where it is put is one verdict: the worse.
                let (treatment, why) =
                    if treatment > own.treatment { (treatment, why) } else { (own.treatment, own.why) };
                let time = (op.end - op.start) as u64;
                if matches!(rank.nodes[node as usize].work, Work::Calc(_)) {
                    coverage.count(&own.kind, treatment, why, own.bytes, time);
                } else {
                    rank.account(node, (&own.kind, treatment, why), own.bytes, time, coverage);
                }
                lines[line].ops.push((launch_time, node, op.end.max(start)));
                node_of[index as usize] = Some(node);
            }
        }
    }
    rank
}

/// Why an operation starts so late: the end of one on another stream just before.
fn explanation(line: usize, start: i64, launch: i64, lines: &[Line]) -> Option<(u32, i64)> {
    let others = lines.iter().enumerate().filter(|(other, _)| *other != line);
    let ends = others.filter_map(|(_, other)| other.before(launch));
    ends.filter(|&(_, end)| end <= start + SLACK && end >= start - GAP).max_by_key(|&(node, end)| (end, node))
}

/// Device operations by the correlation of their launch, sorted.
struct Launches(Vec<(i64, u32)>);

impl Launches {
    fn new(trace: &Trace) -> Self {
        let known = (0..).zip(&trace.device).filter(|(_, op)| op.correlation >= 0);
        let mut launches: Vec<(i64, u32)> = known.map(|(index, op)| (op.correlation, index)).collect();
        launches.sort_unstable();
        Self(launches)
    }

    fn of(&self, correlation: i64) -> &[(i64, u32)] {
        let first = self.0.partition_point(|&(known, _)| known < correlation);
        let count = self.0[first..].partition_point(|&(known, _)| known == correlation);
        &self.0[first..first + count]
    }
}

impl Point {
    /// At an instant, what ends comes before what begins, and the device last.
    fn order(self) -> u8 {
        match self {
            Self::Waited(_) | Self::Copied(_) | Self::End(_) => 0,
            Self::Launch(_) | Self::Wait | Self::Begin(_) => 1,
            Self::Device(_) => 2,
        }
    }
}

/// All points in order of time.
fn points(trace: &Trace, launches: &Launches) -> Vec<(i64, Point)> {
    let mut points: Vec<(i64, Point)> = Vec::with_capacity(trace.host.len() + trace.device.len());
    let mut launched: Vec<i64> = vec![i64::MIN; trace.device.len()];
    for (index, call) in (0..).zip(&trace.host) {
        match call.kind {
            HostKind::Launch => {
                let ops = launches.of(call.correlation);
                // Two calls of one correlation (a runtime call and the driver's below it): the outer one came first.
                if ops.is_empty() || launched[ops[0].1 as usize] != i64::MIN {
                    continue;
                }
                for &(_, op) in ops {
                    launched[op as usize] = call.start;
                }
                points.push((call.start, Point::Launch(index)));
                if ops
                    .iter()
                    .map(|&(_, op)| &trace.device[op as usize])
                    .all(|op| op.copy && op.end <= call.end)
                {
                    points.push((call.end, Point::Copied(index)));
                }
            }
            HostKind::StreamSync | HostKind::EventSync | HostKind::DeviceSync => {
                points.push((call.start, Point::Wait));
                points.push((call.end, Point::Waited(index)));
            }
            HostKind::Step(step, false) => points.push((call.start, Point::Begin(step))),
            HostKind::Step(step, true) => points.push((call.start, Point::End(step))),
            HostKind::StreamWait | HostKind::Record => {}
        }
    }
    for (index, op) in (0..).zip(&trace.device) {
        points.push((op.start.max(launched[index as usize]), Point::Device(index)));
    }
    points.sort_by_key(|&(at, point)| (at, point.order()));
    points
}

/// Counts the calls of the host that wait for nothing; waits are counted with what they wait for.
fn count_launches(trace: &Trace, launches: &Launches, points: &[(i64, Point)], coverage: &mut Coverage) {
    let mut launching = vec![false; trace.host.len()];
    for (_, point) in points {
        if let Point::Launch(call) = point {
            launching[*call as usize] = true;
        }
    }
    let mut sums = [Amount::default(); 3];
    for (index, call) in trace.host.iter().enumerate().filter(|(_, call)| call.kind == HostKind::Launch) {
        let of = match () {
            () if launching[index] => 0,
            () if launches.of(call.correlation).is_empty() => 1,
            () => 2,
        };
        sums[of].operations += 1;
        sums[of].nanoseconds = sums[of].nanoseconds.saturating_add((call.end - call.start) as u64);
    }
    let rows = [
        ("call that launches", ""),
        ("call that launches nothing", INSIDE),
        ("call below another", "has the operation of the call that it was made by"),
    ];
    for ((kind, why), sum) in rows.into_iter().zip(sums) {
        coverage.add(kind, Treatment::Mapped, why, sum);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Reason {
    Known,
    ByTime,
}

/// What waits for what, as far as the trace says.
struct Waits {
    /// Calls that made a stream wait, without a record: (thread, time).
    unknown: Vec<(u32, i64)>,
    /// Of each stream: (time of the call, stream waited for, operations launched by then count).
    known: FxHashMap<u32, Vec<(i64, u32, i64)>>,
    /// Records of host waits by correlation.
    records: FxHashMap<i64, SyncRecord>,
    /// Times of event records by correlation.
    recorded: FxHashMap<i64, i64>,
}

impl Waits {
    fn new(trace: &Trace) -> Self {
        let records: FxHashMap<i64, SyncRecord> =
            trace.syncs.iter().map(|record| (record.correlation, *record)).collect();
        let mut recorded = FxHashMap::default();
        let mut known: FxHashMap<u32, Vec<(i64, u32, i64)>> = FxHashMap::default();
        let mut unknown = Vec::new();
        // Where the trace has records at all, a wait without one is for an event that has long happened.
        let exact = trace.syncs.iter().any(|record| record.stream.is_some() && record.waited.is_some());
        for call in trace.host.iter().filter(|call| call.kind == HostKind::Record) {
            recorded.insert(call.correlation, call.start);
        }
        for call in trace.host.iter().filter(|call| call.kind == HostKind::StreamWait) {
            match records.get(&call.correlation) {
                Some(SyncRecord { stream: Some(stream), waited: Some(waited), record, .. }) => {
                    let limit =
                        record.and_then(|record| recorded.get(&record)).copied().unwrap_or(call.start);
                    known.entry(*stream).or_default().push((call.start, *waited, limit));
                }
                _ if !exact => unknown.push((call.thread, call.start)),
                _ => {}
            }
        }
        Self { unknown, known, records, recorded }
    }

    /// Adds what an operation of `stream` launched at `launch` waits for on other streams; whether that is a guess.
    fn before(
        &self,
        stream: u32,
        launch: i64,
        since: Option<i64>,
        thread: Option<u32>,
        start: i64,
        lines: &[Line],
        after: &mut Vec<(u32, i64)>,
    ) -> bool {
        let own = lines[stream as usize].ops.last().map_or(i64::MIN, |&(launch, _, _)| launch);
        for &(at, waited, limit) in self.known.get(&stream).into_iter().flatten() {
            if at <= launch && at > own {
                after.extend(lines[waited as usize].before(limit).filter(|&(_, end)| end <= start + SLACK));
            }
        }
        let Some(thread) = thread else { return false };
        let since = since.unwrap_or(i64::MIN);
        let from = self.unknown.partition_point(|&(_, at)| at <= since);
        let last = self.unknown[from..]
            .iter()
            .take_while(|&&(_, at)| at <= launch)
            .filter(|&&(of, _)| of == thread)
            .last();
        let Some(&(_, at)) = last else { return false };
        let mut guessed = false;
        for (other, line) in lines.iter().enumerate() {
            if other != stream as usize
                && let Some(found) = line.before(at).filter(|&(_, end)| end <= start + SLACK)
            {
                after.push(found);
                guessed = true;
            }
        }
        guessed
    }

    /// What a wait of the host waited for.
    fn waited(
        &self,
        kind: HostKind,
        start: i64,
        end: i64,
        correlation: i64,
        lines: &[Line],
    ) -> (Vec<(u32, i64)>, Reason) {
        let in_time = |found: &(u32, i64)| found.1 <= end + SLACK;
        if kind == HostKind::DeviceSync {
            return (
                lines.iter().filter_map(|line| line.before(start)).filter(in_time).collect(),
                Reason::Known,
            );
        }
        if let Some(record) = self.records.get(&correlation) {
            let limit = record.record.and_then(|record| self.recorded.get(&record)).copied().unwrap_or(start);
            if let Some(stream) = record.waited.or(record.stream) {
                let found = lines[stream as usize].before(limit).filter(in_time);
                return (found.into_iter().collect(), Reason::Known);
            }
        }
        let ends = lines.iter().filter_map(|line| line.before(start));
        let found =
            ends.filter(|&(_, at)| at > start && at <= end + SLACK).max_by_key(|&(node, at)| (at, node));
        (found.into_iter().collect(), Reason::ByTime)
    }
}

/// Streams of the workload: 0 for the one that computes most, others as they come, the host's left out.
fn stream_numbers(trace: &Trace, coverage: &mut Coverage) -> Vec<StreamId> {
    let mut busy = vec![0i64; trace.streams.len()];
    for op in &trace.device {
        if !is_communication(trace, op) {
            let busy = &mut busy[op.stream as usize];
            *busy = busy.saturating_add(op.end - op.start);
        }
    }
    let first = (0..busy.len()).max_by_key(|&stream| (busy[stream], std::cmp::Reverse(stream)));
    let used: FxHashSet<u32> = trace.device.iter().map(|op| op.stream).collect();
    let mut next = 1u8;
    let numbers = (0..busy.len()).map(|stream| {
        if Some(stream) == first || !used.contains(&(stream as u32)) {
            return StreamId(0);
        }
        let number = next;
        if next == u8::MAX {
            coverage.note(format!("{}: more than 254 streams: the last ones share one", trace.file));
        } else {
            next += 1;
            next += u8::from(StreamId(next) == HOST_STREAM);
        }
        StreamId(number)
    });
    numbers.collect()
}

/// A kernel's name without its templates and parameters.
pub(crate) fn short(name: &str) -> String {
    let name = name.strip_prefix("void ").unwrap_or(name).replace("(anonymous namespace)::", "");
    let end = name.find(['<', '(']).filter(|&end| end > 0).unwrap_or(name.len());
    let name = &name[..end];
    let name = name.rsplit("::").next().filter(|last| !last.is_empty()).unwrap_or(name);
    name.chars().take(64).collect::<String>().trim().to_owned()
}
