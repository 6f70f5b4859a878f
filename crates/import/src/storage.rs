//! Traces of block requests: SPC, MSR, MQSim, CloudPhysics. Each becomes a client that asks a replicated store.
//!
//! | format | a line |
//! |---|---|
//! | SPC | `ASU,LBA,bytes,R or W,seconds` (blocks of 512 bytes) |
//! | MSR | `ticks of 100 ns,host,disk,Read or Write,offset,bytes,response` |
//! | MQSim | `ns device LBA sectors 0 (write) or 1 (read)` |
//! | CloudPhysics | `version,time in s,SCSI operation,bytes,LBA` under a header |
//!
//! The store: as many clients as the trace has devices (at most 16), as many servers as clients and one more for each copy; a block's
//! extent of 1 MiB says its server. A read is a request of 64 bytes to it and the data back; a write the data to it, a copy of it to
//! the next two, and an answer of 64 bytes when they have it. Requests keep their times: a client sends each at its instant.

use windtunnel_kernel::registry::Entry;
use windtunnel_kernel::{Span, StreamId};
use windtunnel_workload::Dimension;

use crate::coverage::{Coverage, Verdict};
use crate::draft::{Draft, RankDraft, Work};
use crate::error::{ImportError, Place};
use crate::input::Input;
use crate::{Options, Reader};

/// Block traces.
pub struct Storage;

/// Size of a request or an answer without data.
const CONTROL: u64 = 64;
const EXTENT: u64 = 1 << 20;
const COPIES: u32 = 3;
const CLIENTS: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Request {
    /// In ns.
    at: i64,
    device: u64,
    offset: u64,
    bytes: u64,
    write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Spc,
    Msr,
    MqSim,
    CloudPhysics,
}

impl Form {
    fn of(head: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(&head[..head.len().min(512)]);
        let line = text.lines().next()?.trim();
        if line == "version,time,op,size,lbn" {
            return Some(Self::CloudPhysics);
        }
        let commas: Vec<&str> = line.split(',').map(str::trim).collect();
        let spaces: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse::<u64>().is_ok();
        match (&commas[..], &spaces[..]) {
            ([asu, lba, bytes, op, time, ..], _)
                if number(asu)
                    && number(lba)
                    && number(bytes)
                    && matches!(*op, "R" | "W" | "r" | "w")
                    && time.parse::<f64>().is_ok() =>
            {
                Some(Self::Spc)
            }
            ([time, _, _, "Read" | "Write", offset, bytes, ..], _)
                if number(time) && number(offset) && number(bytes) =>
            {
                Some(Self::Msr)
            }
            (_, [time, device, lba, sectors, "0" | "1"])
                if [time, device, lba, sectors].iter().all(|text| number(text)) =>
            {
                Some(Self::MqSim)
            }
            _ => None,
        }
    }

    fn request(self, line: &str) -> Option<Request> {
        let fields: Vec<&str> = match self {
            Self::MqSim => line.split_whitespace().collect(),
            _ => line.split(',').map(str::trim).collect(),
        };
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let blocks = |value: u64| value.checked_mul(512);
        Some(match self {
            Self::Spc => {
                let seconds: f64 =
                    fields.get(4)?.parse().ok().filter(|seconds| (0.0..1e9).contains(seconds))?;
                let write = fields.get(3)?.eq_ignore_ascii_case("w");
                Request {
                    at: (seconds * 1e9).round() as i64,
                    device: number(0)?,
                    offset: blocks(number(1)?)?,
                    bytes: number(2)?,
                    write,
                }
            }
            Self::Msr => {
                let device = number(2)?;
                let write = *fields.get(3)? == "Write";
                Request {
                    at: i64::try_from(number(0)?.checked_mul(100)?).ok()?,
                    device,
                    offset: number(4)?,
                    bytes: number(5)?,
                    write,
                }
            }
            Self::MqSim => Request {
                at: i64::try_from(number(0)?).ok()?,
                device: number(1)?,
                offset: blocks(number(2)?)?,
                bytes: blocks(number(3)?)?,
                write: *fields.get(4)? == "0",
            },
            Self::CloudPhysics => {
                // SCSI: 2a, aa, 8a write; 28, a8, 88 read.
                let write = match *fields.get(2)? {
                    "2a" | "aa" | "8a" | "a" | "0a" => true,
                    "28" | "a8" | "88" | "8" | "08" => false,
                    _ => return None,
                };
                Request {
                    at: i64::try_from(number(1)?.checked_mul(1_000_000_000)?).ok()?,
                    device: 0,
                    offset: blocks(number(4)?)?,
                    bytes: number(3)?,
                    write,
                }
            }
        })
    }
}

impl Reader for Storage {
    fn entry(&self) -> &'static Entry {
        const {
            &Entry::new(
                "storage",
                "block requests (SPC, MSR, MQSim, CloudPhysics), as clients of a replicated store",
            )
        }
    }

    fn detects(&self, head: &[u8], _name: &str) -> bool {
        Form::of(head).is_some()
    }

    fn read(
        &self,
        inputs: &[Input],
        _options: &Options,
        coverage: &mut Coverage,
    ) -> Result<Draft, ImportError> {
        let source = inputs[0].name.clone();
        let mut requests = Vec::new();
        for input in inputs {
            let bytes = input.whole()?;
            let form = Form::of(&bytes).ok_or_else(|| {
                ImportError::new(&input.name, "a line of SPC, MSR, MQSim or CloudPhysics", "something else")
                    .at(Place::Line(1))
            })?;
            let text = String::from_utf8_lossy(&bytes);
            for (line, text) in (1..).zip(text.lines()) {
                if text.trim().is_empty() || (line == 1 && form == Form::CloudPhysics) {
                    continue;
                }
                let request = form.request(text).ok_or_else(|| {
                    let found: String = text.chars().take(60).collect();
                    let hint = "a last line may be cut: remove it";
                    ImportError::new(
                        &input.name,
                        format!("a request as {form:?} has it"),
                        format!("`{found}`"),
                    )
                    .at(Place::Line(line))
                    .hint(hint)
                })?;
                let kind = if request.write { "write" } else { "read" };
                coverage.count(kind, Verdict::Mapped, "", request.bytes, 0);
                requests.push(request);
            }
        }
        requests.sort_by_key(|request| request.at);
        let mut devices: Vec<u64> = requests.iter().map(|request| request.device).collect();
        devices.sort_unstable();
        devices.dedup();
        let clients = (devices.len() as u64).clamp(1, CLIENTS) as u32;
        let servers = clients + COPIES - 1;
        coverage.note(format!(
            "{clients} clients ask {servers} servers with {COPIES} copies of each extent of 1 MiB"
        ));
        coverage.note("what a disk takes is not in the trace: servers answer at once");
        Ok(store(&requests, &devices, clients, servers, source))
    }
}

/// The messages of all requests.
fn store(requests: &[Request], devices: &[u64], clients: u32, servers: u32, source: String) -> Draft {
    let mut ranks: Vec<RankDraft> = (0..clients + servers).map(|_| RankDraft::new()).collect();
    let origin = requests.first().map_or(0, |request| request.at);
    // Of each client its last instant.
    let mut clocks: Vec<Option<(u32, i64)>> = vec![None; clients as usize];
    let (network, clock) = (StreamId(0), StreamId(1));
    for (number, request) in (0u64..).zip(requests) {
        let device = devices.binary_search(&request.device).unwrap_or(0) as u64;
        let client = (device % u64::from(clients)) as u32;
        let home = ((request.offset / EXTENT) % u64::from(servers)) as u32;
        let server = |copy: u32| clients + (home + copy) % servers;
        let (tag, data) = (number % (1 << 31), request.bytes.max(1));
        let rank = &mut ranks[client as usize];
        let arrival = rank.label("arrival");
        let before = clocks[client as usize];
        let gap = request.at - before.map_or(origin, |(_, at)| at);
        let at = rank.calc(gap.max(0) as u64, clock, arrival, before.map(|(node, _)| node).as_slice());
        clocks[client as usize] = Some((at, request.at));
        let mut push = |rank: u32, work: Work, label: &str, after: &[u32]| {
            let rank = &mut ranks[rank as usize];
            let label = rank.label(label);
            rank.push(work, network, label, Dimension::Other, after)
        };
        let first = server(0);
        if request.write {
            push(client, Work::Send(first, data, tag), "write", &[at]);
            push(client, Work::Receive(Some(first), Some(tag)), "written", &[at]);
            let came = push(first, Work::Receive(Some(client), Some(tag)), "write", &[]);
            let mut kept = vec![came];
            for copy in 1..COPIES {
                let other = server(copy);
                push(first, Work::Send(other, data, tag), "copy", &[came]);
                let copied = push(other, Work::Receive(Some(first), Some(tag)), "copy", &[]);
                push(other, Work::Send(first, CONTROL, tag), "copied", &[copied]);
                kept.push(push(first, Work::Receive(Some(other), Some(tag)), "copied", &[came]));
            }
            let done = push(first, Work::Calc(Span(0)), "kept", &kept);
            push(first, Work::Send(client, CONTROL, tag), "written", &[done]);
        } else {
            push(client, Work::Send(first, CONTROL, tag), "read", &[at]);
            push(client, Work::Receive(Some(first), Some(tag)), "data", &[at]);
            let asked = push(first, Work::Receive(Some(client), Some(tag)), "read", &[]);
            push(first, Work::Send(client, data, tag), "data", &[asked]);
        }
    }
    let mut draft = Draft { source, world: Some(clients + servers), ..Draft::default() };
    draft.ranks.extend((0..).zip(ranks));
    draft
}
